"""The passes of a contour on a CPU: rows are classified, counted and written one by one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tack
from tack.dtypes import DType, f64, i32, i64
from tack.vis.bits import classify_rows, row_words
from tack.vis.cube_cases import CUBE_CASES
from tack.vis.flying_edges import count_kernel, running_totals, write_kernel

__all__ = ["Rows", "edge_dtype"]


def edge_dtype(points: tack.Array) -> DType:
    """The integers that points hold before they have their positions: those of an edge."""
    return i64 if points.scalar is f64 else i32


class Rows:
    """The voxels' bits, how much of the surface each row has, and where it writes that."""

    __slots__ = ("_bits", "_nans", "_sizes", "_starts")

    def __init__(self, grid: tack.Array) -> None:
        nz, ny, _ = grid.shape
        self._bits: Any = None
        self._nans = np.zeros(1, np.int32)
        self._sizes = np.empty(3, np.int64)
        # Triangles, and three kinds of points: in all at most 8 for each voxel.
        self._starts = np.empty(4 * nz * ny + 1, np.int32 if 8 * grid.size <= i32.max else np.int64)

    def classify(self, grid: tack.Array, threshold: float | None) -> None:
        """Finds which voxels are at least ``threshold``; None is past all values."""
        nz, ny, nx = grid.shape
        words = row_words(nx)
        if threshold is None:
            self._bits = np.zeros(nz * ny * words, np.uint64)
            return
        self._bits = np.empty(nz * ny * words, np.uint64)
        classify_rows(grid.scalar)(grid, self._bits, self._nans, threshold, nz * ny, nx, words)

    def count(self, grid: tack.Array, usable: tuple[tack.Array, ...] | None) -> None:
        """Finds how much there is to write."""
        nz, ny, nx = grid.shape
        words = (self._bits, *(usable or (self._bits,) * 4), _cases())
        count_kernel(usable is not None)(*words, self._starts, nz, ny, nx, row_words(nx))
        running_totals(self._starts, self._nans, self._sizes, nz * ny)

    def sizes(self) -> list[int]:
        """How many triangles and points there are, and whether a voxel is NaN."""
        found: list[int] = self._sizes.tolist()
        return found

    def write(
        self, grid: tack.Array, usable: tuple[tack.Array, ...] | None,
        points: tack.Array, triangles: tack.Array, first: int, corner: int,
    ) -> None:  # fmt: skip
        """Writes triangles from number ``corner`` on, and the edges that points from ``first`` on are on."""
        nz, ny, nx = grid.shape
        words = (self._bits, *(usable or (self._bits,) * 4), _cases(), self._starts)
        write = write_kernel(usable is not None, points.scalar, edge_dtype(points), triangles.scalar)
        write(*words, points, triangles, first, corner, nz, ny, nx, row_words(nx))

    def drop_bits(self) -> None:
        """Gives the bits' memory back; they have to be found again before `write`."""
        self._bits = None

    def keep(self) -> None:
        """Does nothing: the host's memory is made fast enough."""


@cache
def _cases() -> Any:
    return np.array(CUBE_CASES, np.uint64)
