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

Bits of cells and edges that may not be used come as further words, in the variant for masked volumes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Func, Kernel, i32, i64, u64
from tack.vis.bits import ahead, lowest

__all__ = [
    "case_of",
    "count_kernel",
    "crossed",
    "cut_cells",
    "usable_func",
    "write_kernel",
]


@tack.func
def _everything(words: Any, at: Any) -> Any:
    return ~u64(0)


@tack.func
def _some(words: Any, at: Any) -> Any:
    return words[at]


def usable_func(masked: bool) -> Func:
    """The device function that gives which bits of a word may be used."""
    return _some if masked else _everything


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

    Rows are those of ``planes`` planes of the volume, of ``nz``, from ``first_plane`` on; ``bits`` has
    ``depth``, one more unless they are the last. What a row has is put one behind its place in ``counts``, so
    that running sums are where each row begins. ``shares`` gets how many of its points are along x and y.
    """
    usable = usable_func(masked)

    @tack.kernel
    def count(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, cases: Any, counts: Any, shares: Any,
        first_plane: Any, planes: Any, depth: Any, nz: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        for k, j in tack.ndindex(planes, ny):
            r = k * ny + j
            rows = depth * ny
            up = 1 if j + 1 < ny else 0  # to the row that is next along y, or to the same
            over = ny if k + 1 < depth else 0
            inside = ~u64(0) if up and over else u64(0)  # whether the row has cells
            x = 0
            y = 0
            z = 0
            triangles = 0
            words = tack.local_array(4, u64)
            nexts = tack.local_array(4, u64)
            coming = tack.local_array(4, u64)
            _begin(bits, r, up, over, coming)
            for w in range(length):
                at = w * rows + r
                columns = lowest(nx - 1 - w * 64)
                _advance(bits, w, r, up, over, length, rows, coming, words, nexts)
                if crossed(words, nexts, columns) == 0:
                    continue
                x += tack.popcount((words[0] ^ nexts[0]) & columns & usable(xs, at))
                y += tack.popcount((words[0] ^ words[1]) & usable(ys, at))
                z += tack.popcount((words[0] ^ words[2]) & usable(zs, at))
                cut = cut_cells(words, nexts) & columns & inside & usable(cells, at)
                while cut:
                    triangles += i32(cases[case_of(words, nexts, tack.ctz(cut))] & 15)
                    cut &= cut - 1
            row = first_plane * ny + r
            counts[row + 1] = triangles
            counts[nz * ny + row + 1] = x + y + z
            shares[2 * row] = x
            shares[2 * row + 1] = y

    return count


@cache
def write_kernel(masked: bool, coordinate: DType, integer: DType, index: DType) -> Kernel:
    """Writes the corners of the triangles, and for each point the grid edge that it is on.

    That takes the memory of the point's coordinates, as numbers of dtype ``integer``, which is as wide: 4 i +
    axis, j, k of the edge's first voxel. Corners are of dtype ``index``. ``starts`` is where each row's
    triangles and points begin. Points are numbered from ``first_point`` on, triangles from
    ``first_triangle``. The other arguments are those of `count_kernel`.
    """
    usable = usable_func(masked)

    @tack.kernel
    def write(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, cases: Any, starts: Any, shares: Any,
        points: Any, triangles: Any, first_point: Any, first_triangle: Any,
        first_plane: Any, planes: Any, depth: Any, nz: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        for k, j in tack.ndindex(planes, ny):
            r = k * ny + j
            rows = depth * ny
            up = 1 if j + 1 < ny else 0
            over = ny if k + 1 < depth else 0
            inside = ~u64(0) if up and over else u64(0)
            # The points on edges along x in the four rows, then along y here and next along z, then along z
            # here and next along y: how many come before, and on which of the word's edges there are some.
            before = tack.local_array(8, index)
            on = tack.local_array(8, u64)
            row = first_plane * ny + r
            own = nz * ny + row
            start = index(first_point - starts[nz * ny])
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
            _begin(bits, r, up, over, coming)
            for w in range(length):
                at = w * rows + r
                columns = lowest(nx - 1 - w * 64)
                _advance(bits, w, r, up, over, length, rows, coming, words, nexts)
                if crossed(words, nexts, columns) == 0:
                    continue
                for n in range(4):
                    on[n] = (words[n] ^ nexts[n]) & columns & usable(xs, at + (n & 1) * up + (n >> 1) * over)
                on[4] = (words[0] ^ words[1]) & usable(ys, at)
                on[5] = (words[2] ^ words[3]) & usable(ys, at + over)
                on[6] = (words[0] ^ words[2]) & usable(zs, at)
                on[7] = (words[1] ^ words[3]) & usable(zs, at + up)
                cut = cut_cells(words, nexts) & columns & inside & usable(cells, at)
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
