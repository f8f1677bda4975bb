"""The passes of a contour on a CPU: rows are classified, counted and written one by one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tack
from tack.dtypes import DType, f64, i32, i64, u16
from tack.vis.bits import classify_rows, row_words
from tack.vis.cube_cases import CUBE_CASES
from tack.vis.flying_edges import count_kernel, write_kernel

__all__ = ["Rows", "edge_dtype"]

_SPARE = 0.095  # a tenth of the volume's memory, and something is left for small things
_LEAST = 1 << 16  # bytes; less is not worth saving


def edge_dtype(points: tack.Array) -> DType:
    """The integers that points hold before they have their positions: those of an edge."""
    return i64 if points.scalar is f64 else i32


class Rows:
    """The voxels' bits, how much of the surface each row has, and where it writes that.

    Bits are kept from counting to writing where `_SPARE` of the volume's memory holds them. Else they are
    found for some planes at a time, a *slab*, and once more for writing.
    """

    __slots__ = ("_about", "_bits", "_nans", "_shares", "_slabs", "_starts", "_threshold")

    def __init__(self, grid: tack.Array) -> None:
        nz, ny, nx = grid.shape
        length = row_words(nx)
        self._about = nz, ny, nx, length
        self._bits: Any = None
        self._threshold: float | None = None
        self._nans = np.zeros(1, np.int32)
        # Triangles and points are at most 8 for each voxel.
        self._starts = np.empty(2 * nz * ny + 1, np.int32 if 8 * grid.size <= i32.max else np.int64)
        self._shares = np.empty(2 * nz * ny, np.uint16 if nx <= u16.max else np.int32)
        self._slabs = [(0, nz, nz)]  # of each: its first plane, how many it has, and how many with the next
        plane = 8 * ny * length
        if nz * plane > _LEAST:
            spare = max(_SPARE * grid.nbytes - self._starts.nbytes - self._shares.nbytes, _LEAST)
            step = max(int(spare / plane) - 1, -(-nz // 8))
            if nz * plane > spare:
                firsts = range(0, nz, step)
                self._slabs = [(k, min(step, nz - k), min(step + 1, nz - k)) for k in firsts]

    def classify(self, grid: tack.Array, threshold: float | None) -> None:
        """Says which voxels are inside: those that are at least ``threshold``; None is past all values."""
        self._threshold = threshold
        self._bits = None

    def count(self, grid: tack.Array, usable: tuple[tack.Array, ...] | None) -> None:
        """Finds how much there is to write."""
        nz = self._about[0]
        if usable and len(self._slabs) > 1:  # they take more, and are not divided
            self._slabs, self._bits = [(0, nz, nz)], None
        count = count_kernel(usable is not None)
        for slab in self._slabs:
            bits = self._slab_bits(grid, slab)
            words = (bits, *(usable or (bits,) * 4), _cases())
            count(*words, self._starts, self._shares, *slab, *self._about)
        self._starts[0] = 0
        np.add.accumulate(self._starts, out=self._starts)

    def sizes(self) -> list[int]:
        """How many triangles and points there are, and whether a voxel is NaN."""
        triangles = int(self._starts[self._starts.size // 2])
        return [triangles, int(self._starts[-1]) - triangles, int(self._nans[0])]

    def write(
        self, grid: tack.Array, usable: tuple[tack.Array, ...] | None,
        points: tack.Array, triangles: tack.Array, first: int, corner: int,
    ) -> None:  # fmt: skip
        """Writes triangles from number ``corner`` on, and the edges that points from ``first`` on are on."""
        write = write_kernel(usable is not None, points.scalar, edge_dtype(points), triangles.scalar)
        to = (self._starts, self._shares, points, triangles, first, corner)
        for slab in self._slabs:
            bits = self._slab_bits(grid, slab)
            write(bits, *(usable or (bits,) * 4), _cases(), *to, *slab, *self._about)

    def _slab_bits(self, grid: tack.Array, slab: tuple[int, int, int]) -> Any:
        """A bit for each voxel of a slab and of the plane behind it, which its cells need."""
        first, _, depth = slab
        nz, ny, nx, length = self._about
        if self._bits is None:
            self._bits = np.empty(max(depth for *_, depth in self._slabs) * ny * length, np.uint64)
        elif len(self._slabs) == 1:
            return self._bits  # found for counting
        bits = self._bits[: depth * ny * length]
        if self._threshold is None:
            bits.fill(0)
        else:
            part = grid if depth == nz else grid[first : first + depth]
            classify_rows(grid.scalar)(part, bits, self._nans, self._threshold, depth * ny, nx, length)
        return bits

    def drop_bits(self) -> None:
        """Gives the bits' memory back; they are found again when they are needed."""
        self._bits = None

    def keep(self) -> None:
        """Does nothing: the host's memory is made fast enough."""


@cache
def _cases() -> Any:
    return np.array(CUBE_CASES, np.uint64)
