"""Kernels of the flying-edges method, with one bit for each voxel.

    W. Schroeder, R. Maynard, B. Geveci: "Flying edges: a high-performance scalable isocontouring algorithm",
    IEEE Symposium on Large Data Analysis and Visualization, 2015

As there, one pass over the rows of the volume finds out what is inside, a second counts the points and
triangles of each row, a scan tells where each row writes, and a last pass writes, without any search for
points that neighbours share. Here a row's classification is 64 voxels to a word: crossed edges are the
exclusive or of two words and are counted by population count, cells that the surface cuts are what is
neither inside nor outside as a whole, and 64 cells that it misses cost what one does. The bits take 1/32 of
an f32 volume.

A row is (k, j), all voxels along x, the last axis. It owns the edges that start in it: along x, along y to
row (k, j + 1), along z to row (k + 1, j). Points are numbered row by row, and in a row by axis.

Bits of cells and edges that may not be used come as further words, in the variant for masked volumes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Kernel, i32, i64, u64
from tack.vis.cube_cases import CUBE_CASES

__all__ = ["classify_kernel", "count_kernel", "usable_cells", "usable_edges", "validity", "write_kernel"]

CASES = tack.constant(CUBE_CASES, u64)  # the number of triangles, then their corners, four bits each


@cache
def classify_kernel(dtype: DType) -> Kernel:
    """Sets the bits of voxels that are at least ``threshold``; marks rows with NaNs, behind the counts."""

    @tack.kernel
    def classify(volume: Any, bits: Any, counts: Any, threshold: Any, rows: Any, nx: Any, words: Any) -> None:
        for r in range(rows):
            least = dtype(threshold)
            nans = i32(0)
            for w in range(words):
                word = u64(0)
                first = r * nx + w * 64
                if w * 64 + 64 <= nx:  # two loops, each of which has vectors of one width
                    for b in range(64):
                        word |= u64(volume[first + b] >= least) << b
                    for b in range(64):
                        nans |= volume[first + b] != volume[first + b]
                else:
                    for b in range(nx - w * 64):
                        value = volume[first + b]
                        word |= u64(value >= least) << b
                        nans |= value != value
                bits[r * words + w] = word
            counts[4 * rows + r] = nans

    return classify


@tack.func
def _lowest(n: Any) -> Any:
    """A word whose n lowest bits are set; none for n < 0, all for n > 64."""
    word = ~u64(0)
    if n < 64:
        word = (u64(1) << n) - 1
    return u64(0) if n <= 0 else word


@tack.func
def _next(bits: Any, at: Any) -> Any:
    """The bits of the voxels one further along x.

    The last bit is the first of the word behind, which is wrong at a row's end; but no edge starts there. So
    arrays of bits have a word more.
    """
    return bits[at] >> 1 | bits[at + 1] << 63


@tack.func
def _previous(bits: Any, at: Any, more: Any) -> Any:
    """The bits of the voxels one less along x, of which a row's word before has the first."""
    word = bits[at] << 1
    if more:
        word |= bits[at - 1] >> 63
    return word


@tack.func
def _case(a: Any, ax: Any, b: Any, bx: Any, c: Any, cx: Any, d: Any, dx: Any, i: Any) -> Any:
    """The case of cell i, from the words of the four rows around it."""
    one = u64(1)
    low = ((a >> i) & one) | (((ax >> i) & one) << 1) | (((b >> i) & one) << 2) | (((bx >> i) & one) << 3)
    high = ((c >> i) & one) | (((cx >> i) & one) << 1) | (((d >> i) & one) << 2) | (((dx >> i) & one) << 3)
    return i32(low | (high << 4))


@tack.func
def _everything(words: Any, at: Any) -> Any:
    return ~u64(0)


@tack.func
def _some(words: Any, at: Any) -> Any:
    return words[at]


@cache
def count_kernel(masked: bool) -> Kernel:
    """Counts each row's triangles, and behind them its points along x, y and z."""
    usable = _some if masked else _everything

    @tack.kernel
    def count(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, counts: Any, nz: Any, ny: Any, nx: Any, words: Any
    ) -> None:
        for k, j in tack.ndindex(nz, ny):
            rows = nz * ny
            r = k * ny + j
            up = words if j + 1 < ny else 0  # to the row that is next along y, or to the same
            over = ny * words if k + 1 < nz else 0
            inside = ~u64(0) if up and over else u64(0)  # whether the row has cells
            x = 0
            y = 0
            z = 0
            triangles = 0
            for w in range(words):
                at = r * words + w
                columns = _lowest(nx - 1 - w * 64)
                a = bits[at]
                b = bits[at + up]
                c = bits[at + over]
                d = bits[at + up + over]
                ax = _next(bits, at)
                bx = _next(bits, at + up)
                cx = _next(bits, at + over)
                dx = _next(bits, at + up + over)
                x += tack.popcount((a ^ ax) & columns & usable(xs, at))
                y += tack.popcount((a ^ b) & usable(ys, at))
                z += tack.popcount((a ^ c) & usable(zs, at))
                cut = (a | ax | b | bx | c | cx | d | dx) & ~(a & ax & b & bx & c & cx & d & dx)
                cut &= columns & inside & usable(cells, at)
                while cut:
                    case = _case(a, ax, b, bx, c, cx, d, dx, tack.ctz(cut))
                    triangles += i32(CASES[case] & 15)
                    cut &= cut - 1
            counts[r] = triangles
            counts[rows + 3 * r] = x
            counts[rows + 3 * r + 1] = y
            counts[rows + 3 * r + 2] = z

    return count


@tack.func
def _write_edges(crossed: Any, edges: Any, first: Any, voxel: Any, axis: Any) -> Any:
    """Write the numbers of crossed edges from ``first`` on: 4 times the first voxel, and the axis."""
    place = first
    rest = crossed
    while rest:
        edges[place] = 4 * (voxel + tack.ctz(rest)) + axis
        place += 1
        rest &= rest - 1
    return place


@cache
def write_kernel(masked: bool) -> Kernel:
    """Writes the edges on which points lie, and the corners of the triangles.

    ``starts`` are the counts' running totals. Points are numbered from ``first_point`` on, triangles from
    ``first_triangle``.
    """
    usable = _some if masked else _everything

    @tack.kernel
    def write(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, starts: Any, edges: Any, triangles: Any,
        first_point: Any, first_triangle: Any, nz: Any, ny: Any, nx: Any, words: Any,
    ) -> None:  # fmt: skip
        for k, j in tack.ndindex(nz, ny):
            rows = nz * ny
            r = k * ny + j
            up = words if j + 1 < ny else 0
            over = ny * words if k + 1 < nz else 0
            inside = ~u64(0) if up and over else u64(0)
            # Where the points of this row and of its neighbours start: b is next along y, c along z, d both.
            start = first_point - starts[rows]
            own = rows + 3 * r
            along_y = own + (3 if up else 0)
            along_z = own + (3 * ny if over else 0)
            x = start + starts[own]
            y = start + starts[own + 1]
            z = start + starts[own + 2]
            xb = start + starts[along_y]
            zb = start + starts[along_y + 2]
            xc = start + starts[along_z]
            yc = start + starts[along_z + 1]
            xd = start + starts[along_z + along_y - own]
            corner = 3 * (first_triangle + starts[r])
            for w in range(words):
                at = r * words + w
                columns = _lowest(nx - 1 - w * 64)
                a = bits[at]
                b = bits[at + up]
                c = bits[at + over]
                d = bits[at + up + over]
                ax = _next(bits, at)
                bx = _next(bits, at + up)
                cx = _next(bits, at + over)
                dx = _next(bits, at + up + over)
                on_x = (a ^ ax) & columns & usable(xs, at)
                on_y = (a ^ b) & usable(ys, at)
                on_z = (a ^ c) & usable(zs, at)
                on_xb = (b ^ bx) & columns & usable(xs, at + up)
                on_zb = (b ^ d) & usable(zs, at + up)
                on_xc = (c ^ cx) & columns & usable(xs, at + over)
                on_yc = (c ^ d) & usable(ys, at + over)
                on_xd = (d ^ dx) & columns & usable(xs, at + up + over)
                if (on_x | on_y | on_z | on_xb | on_zb | on_xc | on_yc | on_xd) == 0:
                    continue
                cut = (a | ax | b | bx | c | cx | d | dx) & ~(a & ax & b & bx & c & cx & d & dx)
                cut &= columns & inside & usable(cells, at)
                while cut:
                    i = tack.ctz(cut)
                    before = (u64(1) << i) - 1
                    through = (u64(2) << i) - 1
                    points = tack.local_array(12, i64)  # of the cell's edges
                    points[0] = x + tack.popcount(on_x & before)
                    points[1] = xb + tack.popcount(on_xb & before)
                    points[2] = xc + tack.popcount(on_xc & before)
                    points[3] = xd + tack.popcount(on_xd & before)
                    points[4] = y + tack.popcount(on_y & before)
                    points[5] = y + tack.popcount(on_y & through)
                    points[6] = yc + tack.popcount(on_yc & before)
                    points[7] = yc + tack.popcount(on_yc & through)
                    points[8] = z + tack.popcount(on_z & before)
                    points[9] = z + tack.popcount(on_z & through)
                    points[10] = zb + tack.popcount(on_zb & before)
                    points[11] = zb + tack.popcount(on_zb & through)
                    rest = CASES[_case(a, ax, b, bx, c, cx, d, dx, i)]
                    for _ in range(3 * i32(rest & 15)):
                        rest >>= 4
                        triangles[corner] = points[i32(rest & 15)]
                        corner += 1
                    cut &= cut - 1
                voxel = r * nx + w * 64
                x = _write_edges(on_x, edges, x, voxel, 0)
                y = _write_edges(on_y, edges, y, voxel, 1)
                z = _write_edges(on_z, edges, z, voxel, 2)
                xb += tack.popcount(on_xb)
                zb += tack.popcount(on_zb)
                xc += tack.popcount(on_xc)
                yc += tack.popcount(on_yc)
                xd += tack.popcount(on_xd)

    return write


# --- masked volumes ---------------------------------------------------------------------------


@tack.kernel
def validity(volume: Any, mask: Any, valid: Any, rows: Any, nx: Any, words: Any) -> None:
    """The bits of voxels that have a value, and whose mask is not zero."""
    for r in range(rows):
        for w in range(words):
            word = u64(0)
            for b in range(min(64, nx - w * 64)):
                voxel = r * nx + w * 64 + b
                value = volume[voxel]
                word |= u64(value == value and mask[voxel] != 0) << b
            valid[r * words + w] = word


@tack.kernel
def usable_cells(valid: Any, cells: Any, nz: Any, ny: Any, nx: Any, words: Any) -> None:
    """The bits of cells whose eight voxels are valid."""
    for k, j in tack.ndindex(nz, ny):
        for w in range(words):
            at = (k * ny + j) * words + w
            word = u64(0)
            if j + 1 < ny and k + 1 < nz:
                word = _lowest(nx - 1 - w * 64)
                for corner in range(4):
                    place = at + (corner % 2) * words + (corner // 2) * ny * words
                    word &= valid[place] & _next(valid, place)
            cells[at] = word


@tack.kernel
def usable_edges(cells: Any, xs: Any, ys: Any, zs: Any, nz: Any, ny: Any, words: Any) -> None:
    """The bits of edges, by axis, that a usable cell has."""
    for k, j in tack.ndindex(nz, ny):
        for w in range(words):
            at = (k * ny + j) * words + w
            x = u64(0)
            y = u64(0)
            z = u64(0)
            for below in range(2):
                for behind in range(2):
                    if j >= behind and k >= below:
                        place = at - (below * ny + behind) * words
                        x |= cells[place]
                        both = cells[place] | _previous(cells, place, w > 0)
                        if behind == 0:
                            y |= both
                        if below == 0:
                            z |= both
            xs[at] = x
            ys[at] = y
            zs[at] = z
