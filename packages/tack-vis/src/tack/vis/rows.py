"""The passes of a contour on a CPU: rows are classified, counted and written one by one."""

from __future__ import annotations

from collections.abc import Iterator
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

    __slots__ = ("_bits", "_nans", "_shares", "_starts", "_step", "_threshold")

    def __init__(self, grid: tack.Array) -> None:
        nz, ny, nx = grid.shape
        self._bits: Any = None
        self._threshold: float | None = None
        self._nans = np.zeros(1, np.int32)
        # Triangles and points are at most 8 for each voxel.
        self._starts = np.empty(2 * nz * ny + 1, np.int32 if 8 * grid.size <= i32.max else np.int64)
        self._shares = np.empty(2 * nz * ny, np.uint16 if nx <= u16.max else np.int32)
        plane = 8 * ny * row_words(nx)
        spare = max(_SPARE * grid.nbytes - self._starts.nbytes - self._shares.nbytes, _LEAST)
        self._step = max(1, nz if nz * plane <= spare else max(int(spare / plane) - 1, -(-nz // 8)))

    def classify(self, grid: tack.Array, threshold: float | None) -> None:
        """Says which voxels are inside: those that are at least ``threshold``; None is past all values."""
        self._threshold = threshold
        self._bits = None

    def count(self, grid: tack.Array, usable: tuple[tack.Array, ...] | None) -> None:
        """Finds how much there is to write."""
        nz, ny, nx = grid.shape
        if usable and self._step < nz:  # they take more, and are not divided
            self._step, self._bits = nz, None
        count = count_kernel(usable is not None)
        for slab in self._slabs(nz):
            words = self._words(grid, slab, usable)
            count(*words, self._starts, self._shares, *slab, nz, ny, nx, row_words(nx))
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
        nz, ny, nx = grid.shape
        write = write_kernel(usable is not None, points.scalar, edge_dtype(points), triangles.scalar)
        about = (self._starts, self._shares, points, triangles, first, corner)
        for slab in self._slabs(nz):
            write(*self._words(grid, slab, usable), *about, *slab, nz, ny, nx, row_words(nx))

    def _slabs(self, nz: int) -> Iterator[tuple[int, int, int]]:
        """The first plane of each slab, how many it has, and how many with the next, which its cells need."""
        for first in range(0, nz, self._step):
            planes = min(self._step, nz - first)
            yield first, planes, min(planes + 1, nz - first)

    def _words(
        self, grid: tack.Array, slab: tuple[int, int, int], usable: tuple[tack.Array, ...] | None
    ) -> tuple[Any, ...]:
        """What the passes read of a slab: bits of voxels, of usable edges and cells; and the cases."""
        bits = self._bits
        if bits is None or self._step < grid.shape[0]:
            bits = self._voxel_bits(grid, *slab)
        return bits, *(usable or (bits,) * 4), _cases()

    def _voxel_bits(self, grid: tack.Array, first: int, _: int, depth: int) -> Any:
        """A bit for each voxel of a slab and of the plane behind it."""
        nz, ny, nx = grid.shape
        words = row_words(nx)
        if self._bits is None:
            self._bits = np.empty(min(self._step + 1, nz) * ny * words, np.uint64)
        bits = self._bits[: depth * ny * words]
        if self._threshold is None:
            bits.fill(0)
        else:
            part = grid if depth == nz else grid[first : first + depth]
            classify_rows(grid.scalar)(part, bits, self._nans, self._threshold, depth * ny, nx, words)
        return bits

    def drop_bits(self) -> None:
        """Gives the bits' memory back; they are found again when they are needed."""
        self._bits = None

    def keep(self) -> None:
        """Does nothing: the host's memory is made fast enough."""


@cache
def _cases() -> Any:
    return np.array(CUBE_CASES, np.uint64)
