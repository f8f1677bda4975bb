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
    "running_totals",
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
    """Counts each row's triangles, and behind them its points along x, y and z."""
    usable = usable_func(masked)

    @tack.kernel
    def count(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, cases: Any, counts: Any,
        nz: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        for k, j in tack.ndindex(nz, ny):
            r = k * ny + j
            rows = nz * ny
            up = 1 if j + 1 < ny else 0  # to the row that is next along y, or to the same
            over = ny if k + 1 < nz else 0
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
            counts[r] = triangles
            counts[rows + 3 * r] = x
            counts[rows + 3 * r + 1] = y
            counts[rows + 3 * r + 2] = z

    return count


@tack.kernel
def running_totals(counts: Any, nans: Any, sizes: Any, rows: Any) -> None:
    """Turns counts into where each row writes, one after the other.

    ``sizes`` gets how many triangles and points there are, and whether a voxel is NaN.
    """
    for _ in range(1):
        total = i64(0)
        triangles = i64(0)
        for r in range(4 * rows):
            here = counts[r]
            if r == rows:
                triangles = total
            counts[r] = total
            total += here
        sizes[0] = triangles
        sizes[1] = total - triangles
        sizes[2] = nans[0]


@cache
def write_kernel(masked: bool, coordinate: DType, integer: DType, index: DType) -> Kernel:
    """Writes the corners of the triangles, and for each point the grid edge that it is on.

    That takes the memory of the point's coordinates, as numbers of dtype ``integer``, which is as wide: 4 i +
    axis, j, k of the edge's first voxel. Corners are of dtype ``index``. ``starts`` is where each row's
    triangles and points begin. Points are numbered from ``first_point`` on, triangles from
    ``first_triangle``.
    """
    usable = usable_func(masked)

    @tack.kernel
    def write(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, cases: Any, starts: Any, points: Any,
        triangles: Any, first_point: Any, first_triangle: Any, nz: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        for k, j in tack.ndindex(nz, ny):
            r = k * ny + j
            rows = nz * ny
            up = 1 if j + 1 < ny else 0
            over = ny if k + 1 < nz else 0
            inside = ~u64(0) if up and over else u64(0)
            # The points on edges along x in the four rows, then along y here and next along z, then along z
            # here and next along y: how many come before, and on which of the word's edges there are some.
            before = tack.local_array(8, index)
            on = tack.local_array(8, u64)
            own = rows + 3 * r
            along_y = 3 if up else 0
            along_z = 3 * ny if over else 0
            start = index(first_point - starts[rows])
            before[0] = start + index(starts[own])
            before[1] = start + index(starts[own + along_y])
            before[2] = start + index(starts[own + along_z])
            before[3] = start + index(starts[own + along_y + along_z])
            before[4] = start + index(starts[own + 1])
            before[5] = start + index(starts[own + along_z + 1])
            before[6] = start + index(starts[own + 2])
            before[7] = start + index(starts[own + along_y + 2])
            corner = 3 * (first_triangle + i64(starts[r]))
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
                        for c in range(3):
                            edge = i32(rest) >> 4 * c & 15
                            n = edge >> 1
                            behind = less if edge & 1 else less + less + 1
                            triangles[corner + c] = before[n] + tack.popcount(on[n] & behind)
                        corner += 3
                        rest >>= 12
                    cut &= cut - 1
                for axis in range(3):
                    n = 2 * axis + 2 if axis else 0
                    place = 3 * i64(before[n])
                    there = on[n]
                    while there:
                        i = w * 64 + tack.ctz(there)
                        points[place] = tack.bitcast(integer(4 * i + axis), coordinate)
                        points[place + 1] = tack.bitcast(integer(j), coordinate)
                        points[place + 2] = tack.bitcast(integer(k), coordinate)
                        place += 3
                        there &= there - 1
                for n in range(8):
                    before[n] += tack.popcount(on[n])

    return write
