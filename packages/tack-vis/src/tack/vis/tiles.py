"""The passes of a contour on a GPU: the memory that they need, their launches, and the wait for the sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

import tack
from tack.dtypes import i32, i64, u32, u64
from tack.vis.bits import classify_groups, row_words, usable_cells, usable_edges, validity
from tack.vis.cube_cases import CUBE_CASES
from tack.vis.groups import GROUP, LANES, TILE, count_kernel, sum_tiles, write_kernel
from tack.vis.rows import edge_dtype

__all__ = ["Tiles", "tiles_for", "usable_words"]

_KEPT: Final = 64 << 20  # the most bytes that stay allocated for the next contour
_kept = threading.local()


def tiles_for(grid: tack.Array) -> Tiles:
    """What the thread's last contour has kept, if it was of such a grid, or new memory."""
    found: Tiles | None = _kept.__dict__.pop("tiles", None)
    if found is not None and found.key == _key(grid):
        return found
    return Tiles(grid)


def _key(grid: tack.Array) -> tuple[Any, ...]:
    return grid._backend.serial, grid.shape


class Tiles:
    """The voxels' bits, how much of the surface each row and tile has, and where it writes that.

    Launches are queued; `sizes` waits for those that say how much there is.

    Attributes:
        key: the device and the shape of the grid.
        last: how many triangles and points the last surface had; at first 0.
        written: how many points `write` has written, on the device.
    """

    __slots__ = (
        *("_bases", "_bits", "_halves", "_launch", "_nans", "_starts", "_tell", "_totals"),
        *("key", "last", "written"),
    )

    def __init__(self, grid: tack.Array) -> None:
        nz, ny, nx = grid.shape
        rows, length = nz * ny, row_words(nx)
        tiles = -(-rows // int(TILE))
        stride = tiles * int(TILE)
        self.key = _key(grid)
        self.last = 0, 0
        self._tell: Callable[[], Any]
        self._nans = tack.zeros(1, i32)  # `sum_tiles` leaves it so
        self._starts = tack.empty(4 * stride, i32)
        self._totals = tack.empty(2 * tiles, i64)
        self._bases = tack.empty(2 * tiles + 2, i64)
        self.written = tack.empty(1, i64)
        self._launch = (rows, ny, nx, length, stride, tiles * int(LANES))
        self._bits: Any = None
        self._halves: Any = None

    def classify(self, grid: tack.Array, threshold: float | None) -> None:
        """Finds which voxels are at least ``threshold``; None is past all values."""
        rows, _, nx, length, *_ = self._launch
        if self._bits is None:
            self._bits = tack.empty(rows * length, u64)
            about = self._bits._buffer, u32, (2 * self._bits.size,)
            self._halves = tack.Array(grid._backend, *about, offset=self._bits._offset)
        if threshold is None:
            self._bits.fill(0)
            return
        across = -(-nx // int(LANES))
        lanes = -(-rows // 32) * across * int(LANES)
        classify = classify_groups(grid.scalar)
        classify(grid, self._halves, self._nans, threshold, rows, nx, length, across, lanes)

    def count(self, grid: tack.Array, usable: tuple[tack.Array, ...] | None) -> None:
        """Finds how much there is to write."""
        words = (self._bits, *(usable or (self._bits,) * 4), _cases(grid.device))
        count_kernel(usable is not None)(*words, self._starts, self._totals, *self._launch)
        sizes = grid._backend.scratch(i64, 3)
        sum_tiles(self._totals, self._nans, self._bases, sizes, self._totals.size // 2, int(LANES))
        self._tell = grid._backend.telling(sizes)

    def sizes(self) -> list[int]:
        """How many triangles and points there are, and whether a voxel is NaN."""
        found: list[int] = self._tell().tolist()
        self.last = found[0], found[1]
        return found

    def write(
        self, grid: tack.Array, usable: tuple[tack.Array, ...] | None,
        points: tack.Array, triangles: tack.Array, first: int, corner: int,
    ) -> None:  # fmt: skip
        """Writes triangles from number ``corner`` on, and the edges that points from ``first`` on are on.

        Does nothing if there is not room for all.
        """
        words = (self._bits, *(usable or (self._bits,) * 4), _cases(grid.device), self._starts, self._bases)
        room = points.shape[0] - first, triangles.shape[0] - corner
        write = write_kernel(usable is not None, points.scalar, edge_dtype(points), triangles.scalar)
        *about, stride, _ = self._launch
        lanes = stride // int(GROUP) * int(LANES)
        write(*words, points, triangles, self.written, first, corner, *room, *about, stride, lanes)

    def drop_bits(self) -> None:
        """Gives the bits' memory back; they have to be found again before `write`."""
        self._bits = self._halves = None

    def keep(self) -> None:
        """Leaves the memory to the thread's next contour, if it is not too much."""
        if self._bits is not None and self._bits.nbytes <= _KEPT:
            _kept.__dict__["tiles"] = self


@cache
def _cases(device: tack.Device) -> tack.Array:
    return tack.asarray(np.array(CUBE_CASES, np.uint64), device=device)


def usable_words(grid: tack.Array, mask: tack.Array, step: int) -> tuple[tack.Array, ...]:
    """The bits of usable edges along x, y and z, and of usable cells. With ``step`` 0 all have mask[0]."""
    nz, ny, nx = grid.shape
    words = row_words(nx)
    xs, ys, zs, cells = (tack.empty(nz * ny * words, u64, device=grid.device) for _ in range(4))
    validity(grid, mask, step, xs, nz * ny, nx, words)  # the edges' memory is first that of the valid voxels
    usable_cells(xs, cells, nz, ny, nx, words)
    usable_edges(cells, xs, ys, zs, nz, ny, words)
    return xs, ys, zs, cells
