"""The passes of a contour on a CPU: rows are classified, counted and written one by one."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

import tack
from tack.dtypes import DType, f64, i32, i64, u16
from tack.vis.bits import classify_rows, row_words, usable_cells, validity
from tack.vis.cube_cases import CUBE_CASES
from tack.vis.flying_edges import count_kernel, write_kernel

__all__ = ["Mask", "Rows", "edge_dtype"]

_SPARE = 0.095  # a tenth of the volume's memory, and something is left for small things
_LEAST = 1 << 16  # bytes; less is not worth saving


def edge_dtype(points: tack.Array) -> DType:
    """The integers that points hold before they have their positions: those of an edge."""
    return i64 if points.scalar is f64 else i32


Mask = tuple[tack.Array, int]  # a mask and 1, or a number for all voxels and 0


class _Slab(NamedTuple):
    """Planes that are counted and written together."""

    first: int
    planes: int
    counted: int  # its planes, and one more if the starts are of this slab alone
    place: int  # of its first plane in the starts
    held: int  # how many planes the starts are of
    skip: int  # planes before it that have words
    depth: int  # planes that have words


class Rows:
    """The voxels' bits, how much of the surface each row has, and where it writes that: its starts.

    Where `_SPARE` of the volume's memory does not hold the bits, they are found for some planes at a time, a
    *slab*, and once more for writing; so are the starts where it does not hold those of all rows.
    """

    __slots__ = (
        *("_about", "_before", "_bits", "_cells", "_index", "_keeps_starts", "_masked", "_nans", "_share"),
        *("_shares", "_slabs", "_spare", "_starts", "_threshold", "_total", "_values"),
    )

    def __init__(self, grid: tack.Array, values: int = 1) -> None:
        """``values`` is how many surfaces of the grid have their starts at a time."""
        nz, ny, nx = grid.shape
        self._about = nz, ny, nx, row_words(nx)
        self._spare = max(_SPARE * grid.nbytes, _LEAST)
        self._values = values
        # Triangles and points are at most 8 for each voxel.
        self._index = i32 if 8 * grid.size <= i32.max else i64
        self._share = u16 if nx <= u16.max else i32
        self._threshold: float | None = None
        self._nans = np.zeros(1, np.int32)
        self._bits: Any
        self._cells: Any
        self._starts: Any
        self._shares: Any
        self._divide(masked=False)

    def _divide(self, masked: bool) -> None:
        """Divides the volume into slabs, so that what there is at a time fits."""
        nz, ny, _, length = self._about
        words = 8 * ny * length * (2 if masked else 1)  # bytes of a plane
        starts = 2 * ny * (self._index.itemsize + self._share.itemsize)
        spare = self._spare - self._values * nz * starts
        ahead = (
            2 if masked else 1
        )  # how many planes behind a slab need words; with a mask one before it does, too
        step, keeps = nz, True
        if nz * words > spare:
            step = max(int(spare / words) - ahead - masked, -(-nz // 8))
            keeps = (step + ahead + masked) * words <= spare
            if not keeps:
                ahead += 1
                step = int(self._spare / (words + starts)) - ahead - masked
            if not 1 <= step < nz - ahead:  # then slabs save nothing
                step, keeps = nz, True
        self._masked, self._keeps_starts = masked, keeps
        self._bits = self._cells = self._starts = self._shares = None
        if step == nz:
            self._slabs = [_Slab(0, nz, nz, 0, nz, 0, nz)]
            return
        self._slabs = []
        for first in range(0, nz, step):
            planes = min(step, nz - first)
            counted = planes if keeps else min(planes + 1, nz - first)
            place, held = (first, nz) if keeps else (0, counted)
            skip = int(masked and first > 0)
            depth = min(first + planes + ahead, nz) - first + skip
            self._slabs.append(_Slab(first, planes, counted, place, held, skip, depth))

    def classify(self, threshold: float | None) -> None:
        """Says which voxels are inside: those that are at least ``threshold``; None is past all values."""
        self._threshold = threshold
        self.drop_bits()

    def count(self, grid: tack.Array, mask: Mask | None) -> None:
        """Finds how much there is to write."""
        if self._masked != (mask is not None):
            self._divide(mask is not None)
        triangles = points = 0
        self._before = []
        for slab in self._slabs:
            self._before.append((triangles, points))
            self._count_slab(grid, mask, slab)
            if not self._keeps_starts or slab is self._slabs[-1]:
                found = self._sum(slab)
                triangles, points = triangles + found[0], points + found[1]
        self._total = triangles, points

    def sizes(self) -> list[int]:
        """How many triangles and points there are, and whether a voxel is NaN."""
        return [*self._total, int(self._nans[0])]

    def write(
        self, grid: tack.Array, mask: Mask | None,
        points: tack.Array, triangles: tack.Array, first: int, corner: int,
    ) -> None:  # fmt: skip
        """Writes triangles from number ``corner`` on, and the edges that points from ``first`` on are on."""
        write = write_kernel(mask is not None, points.scalar, edge_dtype(points), triangles.scalar)
        for slab, (corners_before, points_before) in zip(self._slabs, self._before, strict=True):
            if self._keeps_starts:
                words = self._words(grid, mask, slab)
            else:
                words = self._count_slab(grid, mask, slab)
                self._sum(slab)
            to = points, triangles, first + points_before, corner + corners_before, slab.first
            about = slab.place, slab.skip, slab.planes, slab.depth, slab.held, *self._about[1:]
            write(*words, self._starts, self._shares, *to, *about)

    def drop_bits(self) -> None:
        """Gives the bits' memory back; they are found again when they are needed."""
        self._bits = self._cells = None
        if not self._keeps_starts:
            self._starts = self._shares = None

    def keep(self) -> None:
        """Does nothing: the host's memory is made fast enough."""

    def _count_slab(self, grid: tack.Array, mask: Mask | None, slab: _Slab) -> tuple[Any, ...]:
        """Counts what each row of a slab has, and returns the slab's words."""
        words = self._words(grid, mask, slab)
        _, ny, nx, length = self._about
        rows = slab.held * ny
        if self._starts is None or self._starts.size != 2 * rows + 1:
            self._starts = self._shares = None
            self._starts = np.empty(2 * rows + 1, self._index.numpy)
            self._shares = np.empty(2 * rows, self._share.numpy)
        about = slab.place, slab.skip, slab.counted, slab.depth, slab.held, ny, nx, length
        count_kernel(mask is not None)(*words, self._starts, self._shares, *about)
        return words

    def _sum(self, slab: _Slab) -> tuple[int, int]:
        """Makes counts starts, and returns how many triangles and points come before the slab's end."""
        starts = self._starts
        starts[0] = 0
        np.add.accumulate(starts, out=starts)
        end = (slab.place + slab.planes) * self._about[1]
        middle = starts.size // 2
        return int(starts[end]), int(starts[middle + end]) - int(starts[middle])

    def _words(self, grid: tack.Array, mask: Mask | None, slab: _Slab) -> tuple[Any, ...]:
        """The bits of the slab's voxels and, with a mask, of usable cells, and the cases."""
        nz, ny, nx, length = self._about
        if self._bits is None:
            size = ny * length * max(other.depth for other in self._slabs)
            self._bits = np.empty(size, np.uint64)
            self._cells = self._bits if mask is None else np.empty(size, np.uint64)
        elif len(self._slabs) == 1:
            return self._bits, self._cells, _cases()  # found for counting
        depth, rows = slab.depth, slab.depth * ny
        part, bits, cells = grid, self._bits, self._cells
        start = slab.first - slab.skip
        if depth < nz:
            part, bits, cells = grid[start : start + depth], bits[: rows * length], cells[: rows * length]
        if mask is not None:  # the bits' memory is first that of the valid voxels
            chosen, step = mask
            chosen = chosen[start : start + depth] if step and depth < nz else chosen
            validity(part, chosen, step, bits, rows, nx, length)
            usable_cells(bits, cells, depth, ny, nx, length)
        if self._threshold is None:
            bits.fill(0)
        else:
            classify_rows(grid.scalar)(part, bits, self._nans, self._threshold, rows, nx, length)
        return bits, cells, _cases()


@cache
def _cases() -> Any:
    return np.array(CUBE_CASES, np.uint64)
