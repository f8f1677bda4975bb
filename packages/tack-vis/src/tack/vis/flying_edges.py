"""Kernels of the flying-edges method for CPUs, with one bit for each voxel. `tack.vis.groups` is for GPUs.

    W. Schroeder, R. Maynard, B. Geveci: "Flying edges: a high-performance scalable isocontouring algorithm",
    IEEE Symposium on Large Data Analysis and Visualization, 2015

As there, one pass over the rows of the volume finds out what is inside (`tack.vis.bits`), a second counts the
points and triangles of each row, running totals tell where each row writes, and a last pass writes, without
any search for points that neighbours share. Here a row's classification is 64 voxels to a word: crossed
edges are the exclusive or of two words and are counted by population count, cells that the surface cuts are
what is neither inside nor outside as a whole, and 64 cells that it misses cost what one does. The bits take
1/32 of an f32 volume.

A row is (k, j), all voxels along x, the last axis. It owns the edges that start in it: along x, along y to
row (k, j + 1), along z to row (k + 1, j). Points are numbered row by row, and in a row by axis.

Bits of the cells that may be used come as further words, in the variant for masked volumes. An edge may be
used if one of its cells may.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Kernel, i32, i64, u64
from tack.vis.bits import ahead, lowest

__all__ = ["count_kernel", "cut_cells", "write_kernel"]


@tack.func
def _everything(usable: Any, n: Any) -> Any:
    return ~u64(0)


@tack.func
def _some(usable: Any, n: Any) -> Any:
    return usable[n]


@tack.func
def _find_nothing(
    cells: Any, w: Any, r: Any, j: Any, up: Any, over: Any, ny: Any, rows: Any, usable: Any
) -> None:
    pass


@tack.func
def _find_usable(
    cells: Any, w: Any, r: Any, j: Any, up: Any, over: Any, ny: Any, rows: Any, usable: Any
) -> None:
    """Which edges have a usable cell, in the order of `write_kernel`, and then which cells are usable.

    Of a word of row r, from those of the rows around it: ``up`` leads to the next along y, ``over`` along z.
    """
    down = 1 if j > 0 else 0
    under = ny if r >= ny else 0
    here = tack.local_array(9, u64)
    both = tack.local_array(9, u64)  # of a cell, or of the one before it along x
    for n in range(9):
        row = r
        if n // 3 != 1:
            row += over if n // 3 else -under
        if n % 3 != 1:
            row += up if n % 3 else -down
        here[n] = cells[w * rows + row]
        both[n] = here[n] | here[n] << 1
        if w > 0:
            both[n] |= cells[(w - 1) * rows + row] >> 63
    for n in range(4):
        corner = (n & 1) + (n >> 1) * 3
        usable[n] = here[corner] | here[corner + 1] | here[corner + 3] | here[corner + 4]
    for n in range(2):
        usable[4 + n] = both[3 * n + 1] | both[3 * n + 4]
        usable[6 + n] = both[3 + n] | both[4 + n]
    usable[8] = here[4]


@tack.func
def _begin(bits: Any, r: Any, up: Any, over: Any, coming: Any) -> Any:
    """The first words of the four rows around cells: row n is next along y if n & 1, along z if n & 2."""
    for n in range(4):
        coming[n] = bits[r + (n & 1) * up + (n >> 1) * over]


@tack.func
def _advance(
    bits: Any, w: Any, r: Any, up: Any, over: Any, length: Any, rows: Any, coming: Any, words: Any, nexts: Any
) -> Any:
    """Word w of the four rows, of ``length``, and that of the voxels one further along x."""
    for n in range(4):
        words[n] = coming[n]
        coming[n] = ahead(bits, w, r + (n & 1) * up + (n >> 1) * over, length, rows)
        nexts[n] = words[n] >> 1 | coming[n] << 63


@tack.func
def crossed(words: Any, nexts: Any, columns: Any) -> Any:
    """Not 0 if the surface crosses any edge of the cells."""
    edges = (words[0] ^ words[1]) | (words[2] ^ words[3]) | (words[0] ^ words[2])
    for n in range(4):
        edges |= (words[n] ^ nexts[n]) & columns
    return edges


@tack.func
def cut_cells(words: Any, nexts: Any) -> Any:
    """The bits of cells that are neither inside nor outside as a whole."""
    some = u64(0)
    every = ~u64(0)
    for n in range(4):
        some |= words[n] | nexts[n]
        every &= words[n] & nexts[n]
    return some & ~every


@tack.func
def case_of(words: Any, nexts: Any, i: Any) -> Any:
    """Which corners of cell i are inside: its place in `CUBE_CASES`."""
    case = u64(0)
    for n in range(4):
        case |= ((words[n] >> i & 1) | (nexts[n] >> i & 1) << 1) << 2 * n
    return case


@cache
def count_kernel(masked: bool) -> Kernel:
    """Counts each row's triangles, and behind those of all rows its points.

    Of the ``depth`` planes that ``bits`` has, these are the rows of ``planes`` behind the first ``skip``. In
    ``counts``, which has ``held`` planes, they are from plane ``place`` on. What a row has is put one behind
    its place, so that running sums are where each row begins. ``shares`` gets how many of its points are
    along x and y.
    """
    find_usable, may = (_find_usable, _some) if masked else (_find_nothing, _everything)

    @tack.kernel
    def count(
        bits: Any, cells: Any, cases: Any, counts: Any, shares: Any,
        place: Any, skip: Any, planes: Any, depth: Any, held: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        for k, j in tack.ndindex(planes, ny):
            r = (skip + k) * ny + j
            rows = depth * ny
            up = 1 if j + 1 < ny else 0  # to the row that is next along y, or to the same
            over = ny if skip + k + 1 < depth else 0
            inside = ~u64(0) if up and over else u64(0)  # whether the row has cells
            x = 0
            y = 0
            z = 0
            triangles = 0
            words = tack.local_array(4, u64)
            nexts = tack.local_array(4, u64)
            coming = tack.local_array(4, u64)
            usable = tack.local_array(9, u64)
            _begin(bits, r, up, over, coming)
            for w in range(length):
                columns = lowest(nx - 1 - w * 64)
                _advance(bits, w, r, up, over, length, rows, coming, words, nexts)
                if crossed(words, nexts, columns) == 0:
                    continue
                find_usable(cells, w, r, j, up, over, ny, rows, usable)
                x += tack.popcount((words[0] ^ nexts[0]) & columns & may(usable, 0))
                y += tack.popcount((words[0] ^ words[1]) & may(usable, 4))
                z += tack.popcount((words[0] ^ words[2]) & may(usable, 6))
                cut = cut_cells(words, nexts) & columns & inside & may(usable, 8)
                while cut:
                    triangles += i32(cases[case_of(words, nexts, tack.ctz(cut))] & 15)
                    cut &= cut - 1
            row = (place + k) * ny + j
            counts[row + 1] = triangles
            counts[held * ny + row + 1] = x + y + z
            shares[2 * row] = x
            shares[2 * row + 1] = y

    return count


@cache
def write_kernel(masked: bool, coordinate: DType, integer: DType, index: DType) -> Kernel:
    """Writes the corners of the triangles, and for each point the grid edge that it is on.

    That takes the memory of the point's coordinates, as numbers of dtype ``integer``, which is as wide: 4 i +
    axis, j, k of the edge's first voxel. Corners are of dtype ``index``. ``starts`` is where each row's
    triangles and points begin. Points are numbered from ``first_point`` on, triangles from
    ``first_triangle``; the rows' first plane is ``first_plane`` of the volume. The other arguments are those
    of `count_kernel`.
    """
    find_usable, may = (_find_usable, _some) if masked else (_find_nothing, _everything)

    @tack.kernel
    def write(
        bits: Any, cells: Any, cases: Any, starts: Any, shares: Any,
        points: Any, triangles: Any, first_point: Any, first_triangle: Any, first_plane: Any,
        place: Any, skip: Any, planes: Any, depth: Any, held: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        for k, j in tack.ndindex(planes, ny):
            r = (skip + k) * ny + j
            rows = depth * ny
            up = 1 if j + 1 < ny else 0
            over = ny if skip + k + 1 < depth else 0
            inside = ~u64(0) if up and over else u64(0)
            # The points on edges along x in the four rows, then along y here and next along z, then along z
            # here and next along y: how many come before, and on which of the word's edges there are some.
            before = tack.local_array(8, index)
            on = tack.local_array(8, u64)
            row = (place + k) * ny + j
            own = held * ny + row
            start = index(first_point - starts[held * ny])
            for n in range(4):
                before[n] = start + index(starts[own + (n & 1) * up + (n >> 1) * over])
            before[4] = before[0] + shares[2 * row]
            before[5] = before[2] + shares[2 * (row + over)]
            before[6] = before[4] + shares[2 * row + 1]
            before[7] = before[1] + shares[2 * (row + up)] + shares[2 * (row + up) + 1]
            corner = 3 * (first_triangle + i64(starts[row]))
            words = tack.local_array(4, u64)
            nexts = tack.local_array(4, u64)
            coming = tack.local_array(4, u64)
            usable = tack.local_array(9, u64)
            _begin(bits, r, up, over, coming)
            for w in range(length):
                columns = lowest(nx - 1 - w * 64)
                _advance(bits, w, r, up, over, length, rows, coming, words, nexts)
                if crossed(words, nexts, columns) == 0:
                    continue
                find_usable(cells, w, r, j, up, over, ny, rows, usable)
                for n in range(4):
                    on[n] = (words[n] ^ nexts[n]) & columns & may(usable, n)
                for n in range(2):
                    on[4 + n] = (words[2 * n] ^ words[2 * n + 1]) & may(usable, 4 + n)
                    on[6 + n] = (words[n] ^ words[2 + n]) & may(usable, 6 + n)
                cut = cut_cells(words, nexts) & columns & inside & may(usable, 8)
                while cut:
                    i = tack.ctz(cut)
                    # The edges before the cell's own, and before those one further along x.
                    less = (u64(1) << i) - 1
                    rest = cases[case_of(words, nexts, i)] >> 4
                    while rest:
                        n = i32(rest >> 1 & 7)
                        behind = less if rest & 1 else less + less + 1
                        triangles[corner] = before[n] + tack.popcount(on[n] & behind)
                        corner += 1
                        rest >>= 4
                    cut &= cut - 1
                for axis in range(3):
                    n = 2 * axis + 2 if axis else 0
                    place = 3 * i64(before[n])
                    there = on[n]
                    while there:
                        i = w * 64 + tack.ctz(there)
                        points[place] = tack.bitcast(integer(4 * i + axis), coordinate)
                        points[place + 1] = tack.bitcast(integer(j), coordinate)
                        points[place + 2] = tack.bitcast(integer(first_plane + k), coordinate)
                        place += 3
                        there &= there - 1
                for n in range(8):
                    before[n] += tack.popcount(on[n])

    return write
