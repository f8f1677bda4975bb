"""The passes of a contour on a GPU: the memory that they need, their launches, and the wait for the sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

import tack
from tack.algorithms.groups.tiles import LANES
from tack.dtypes import DType, i32, i64, u32, u64
from tack.vis.bits import classify_groups, row_words, usable_cells, validity
from tack.vis.cube_cases import CUBE_CASES
from tack.vis.groups import ABOUT, BATCH, BIN, SLOTS
from tack.vis.groups_count import count_kernel, sum_tiles
from tack.vis.groups_place import SIDE, corner_kernel, finish_kernel, place_kernel
from tack.vis.rows import Mask, edge_dtype

__all__ = ["Tiles", "tiles_for"]

_KEPT: Final = 64 << 20  # the most bytes that stay allocated for the next contour
_SPARE: Final = 0.095  # a tenth of the volume's memory, and something is left for small things
_LEAST: Final = 2 << 20  # bytes; less is not worth saving, and what drivers allocate at a time
_kept = threading.local()


def tiles_for(grid: tack.Array) -> Tiles:
    """What the thread's last contour has kept, if it was of such a grid, or new memory."""
    found: Tiles | None = _kept.__dict__.pop("tiles", None)
    if found is not None and found.key == _key(grid):
        return found
    return Tiles(grid)


def _key(grid: tack.Array) -> tuple[Any, ...]:
    return grid._backend.serial, grid.shape, grid.scalar


class _Slab(NamedTuple):
    """Planes that are counted and written together."""

    start: int  # the first that has words
    depth: int  # how many have
    skip: int  # those before its own
    planes: int  # its own


class _Shape(NamedTuple):
    """How rows of a length are divided among workgroups."""

    ny: int
    nx: int
    length: int  # words of a row
    shift: int  # the logarithm of the rows of a tile
    parts: int  # tiles of a row; one if tiles have several

    def wide(self, rows: int) -> DType:
        """The integers that count the words of ``rows``, and what is by row and batch."""
        most = max(self.length, 3 * self.batches) + 2
        return i32 if rows * most <= i32.max else i64

    @property
    def batches(self) -> int:
        """How many batches of words a row has."""
        return -(-self.length // int(BATCH))

    def tiles(self, rows: int) -> int:
        """How many tiles hold ``rows``."""
        return ((rows - 1 >> self.shift) + 1) * self.parts


class _Memory:
    """What is allocated for a slab, besides volume and mesh."""

    __slots__ = (
        *("about", "before", "bits", "cells", "firsts", "halves", "listed", "nans", "starts", "totals"),
        "written",
    )

    def __init__(self, grid: tack.Array, shape: _Shape, rows: int, masked: bool) -> None:
        size, tiles = rows * shape.length, shape.tiles(rows)
        self.bits = tack.empty(size, u64)
        where = grid._backend, self.bits._buffer, u32, (2 * size,)
        self.halves = tack.Array(*where, offset=self.bits._offset)
        self.cells = tack.empty(size if masked else 0, u64)
        self.before = tack.empty(size, u32)
        self.starts = tack.empty(3 * shape.batches * rows, i32)
        self.listed = tack.empty(tiles * min(int(SLOTS), shape.length << shape.shift), u32)
        self.about = tack.empty(int(ABOUT) * tiles, i32)
        self.totals = tack.empty(2 + 2 * -(-tiles // int(BIN)), u64)
        self.firsts = tack.empty(tiles, i64)
        self.nans = tack.zeros(1, i32)  # the passes leave it so
        self.written = tack.empty(2, i64)

    @property
    def nbytes(self) -> int:
        arrays = (
            self.bits,
            self.cells,
            self.before,
            self.starts,
            self.listed,
            self.about,
            self.firsts,
        )
        return sum(array.nbytes for array in arrays)


class Tiles:
    """The voxels' bits, how much of the surface each row and tile has, and where it writes that.

    Launches are queued; `sizes` waits for those that say how much there is. Where `_SPARE` of the volume's
    memory does not hold what is needed, it is found for some planes at a time, a *slab*, and once more for
    writing.

    Attributes:
        key: what a grid has to have in common with the next one that uses what is kept.
        last: how many triangles and points the last surface had, if its bits are those of the whole volume.
    """

    __slots__ = (
        *("_counted", "_depth", "_found", "_masked", "_memory", "_nans", "_shape"),
        *("_slabs", "_tell", "_threshold", "key", "last"),
    )

    def __init__(self, grid: tack.Array) -> None:
        self.key = _key(grid)
        self.last = 0, 0
        self._depth, ny, nx = grid.shape
        length = row_words(nx)
        parts = -(-length // int(SLOTS))
        shift = min(int(SLOTS) // min(length, int(SLOTS)), int(LANES)).bit_length() - 1
        self._shape = _Shape(ny, nx, length, shift, parts)
        self._threshold: float | None = None
        self._memory: Any = None
        self._tell: Callable[[], Any]
        self._found: list[tuple[int, int]] = []
        self._nans = 0
        self._masked = self._counted = False
        self._slabs = self._divided(grid.nbytes)

    @property
    def whole(self) -> bool:
        """Whether the volume is not divided."""
        return len(self._slabs) == 1

    def classify(self, threshold: float | None) -> None:
        """Says which voxels are inside: those that are at least ``threshold``; None is past all values."""
        self._threshold = threshold
        self._counted = False

    def count(self, grid: tack.Array, mask: Mask | None) -> None:
        """Finds how much there is to write."""
        if self._masked != (mask is not None):
            self._change(grid, mask)
        self._begin()
        if not grid.size:
            self._found = [(0, 0)]
            return
        for slab in self._slabs:
            self._count_slab(grid, mask, slab)
            if not self.whole:
                self._wait()

    def sizes(self) -> list[int]:
        """How many triangles and points there are, and whether a voxel is NaN."""
        if self.whole and not self._found:
            self._wait()
            self.last = self._found[0]
        triangles, points = (sum(column) for column in zip(*self._found, strict=True))
        return [triangles, points, self._nans]

    def write(
        self, grid: tack.Array, mask: Mask | None,
        points: tack.Array, triangles: tack.Array, first: int, corner: int,
    ) -> None:  # fmt: skip
        """Writes triangles from number ``corner`` on, and the edges that points from ``first`` on are on."""
        for slab, (triangle_count, point_count) in zip(self._slabs, self._found, strict=True):
            if not self._counted:
                self._count_slab(grid, mask, slab)
            self._place(slab, points, triangles, first, corner)
            memory, shape, rows = self._memory, self._shape, slab.depth * self._shape.ny
            corners = corner_kernel(self._masked, shape.wide(rows), triangles.scalar)
            corners(
                memory.bits, memory.cells, memory.before, memory.starts, memory.firsts, triangles, first,
                corner, corner + triangle_count, rows, shape.ny, shape.shift, shape.parts,
            )  # fmt: skip
            corner, first = corner + triangle_count, first + point_count

    def finish(
        self, grid: tack.Array, axes: tack.Array, level: float, points: tack.Array, triangles: tack.Array
    ) -> None:
        """Writes triangles and points of a whole volume that `count` is queued for, without a mask.

        Before `sizes` is known, it does nothing if there is not room for all.
        """
        slab, shape, memory = self._slabs[0], self._shape, self._memory
        self._place(slab, points, triangles, 0, 0)
        rows, many = slab.depth * shape.ny, int(SIDE)
        lanes = 3 * many * max(-(-triangles.shape[0] // (2 * many)), -(-points.shape[0] // many))
        about = shape.ny, shape.nx, shape.shift, shape.parts, lanes
        dtypes = edge_dtype(points), shape.wide(rows), triangles.scalar
        finish_kernel(axes.scalar, *dtypes)(
            grid, axes, memory.bits, memory.before, memory.starts, memory.firsts, triangles, points,
            memory.written, level, rows, *about,
        )  # fmt: skip

    def drop_bits(self) -> None:
        """Gives the memory back; what is in it is found again when it is needed."""
        self._memory = None
        self._counted = False

    def keep(self) -> None:
        """Leaves the memory to the thread's next contour, if it is not too much."""
        if self.whole and self._memory is not None and self._memory.nbytes <= _KEPT:
            _kept.__dict__["tiles"] = self

    def _divided(self, nbytes: int) -> list[_Slab]:
        """Slabs that are so small that what there is at a time fits."""
        nz, shape = self._depth, self._shape
        plane = shape.ny * ((24 if self._masked else 16) * shape.length + 12 * shape.batches)  # bytes
        spare = max(_SPARE * nbytes, _LEAST)
        around = 2 + self._masked  # two planes behind a slab, for their numbers, and with a mask one before
        step = max(int(spare / max(plane, 1)) - around, -(-nz // 8))
        if nz * plane <= spare or step + around >= nz:  # then slabs save nothing
            return [_Slab(0, nz, 0, nz)]
        slabs = []
        for first in range(0, nz, step):
            skip = int(self._masked and first > 0)
            planes = min(step, nz - first)
            slabs.append(_Slab(first - skip, min(skip + planes + 2, nz - first + skip), skip, planes))
        return slabs

    def _change(self, grid: tack.Array, mask: Mask | None) -> None:
        """Begins anew with a mask, or without."""
        self._masked = mask is not None
        self._slabs = self._divided(grid.nbytes + (mask[0].nbytes if mask else 0))
        self.drop_bits()

    def _begin(self) -> None:
        self._found = []
        self._nans = 0

    def _count_slab(self, grid: tack.Array, mask: Mask | None, slab: _Slab) -> None:
        """Finds the bits of a slab's voxels and, with a mask, of its usable cells, and how much it has."""
        shape, rows = self._shape, slab.depth * self._shape.ny
        ny, nx, length, *_ = shape
        if self._memory is None:
            most = max(other.depth for other in self._slabs)
            self._memory = _Memory(grid, shape, most * ny, self._masked)
        memory, part, adds = self._memory, _planes(grid, slab), u64 in grid._backend.supported_atomic_dtypes
        if mask is not None:  # the bits' memory is first that of the valid voxels
            chosen, step = mask
            validity(part, _planes(chosen, slab) if step else chosen, step, memory.bits, rows, nx, length)
            usable_cells(memory.bits, memory.cells, slab.depth, ny, nx, length)
        if self._threshold is None:
            memory.bits.fill(0)
            memory.totals.fill(0)
        else:
            across = -(-nx // int(LANES))
            blank = memory.totals, memory.totals.size if adds else 0
            where = memory.halves, memory.nans, self._threshold, rows, nx, length, across
            lanes = -(-rows // 32) * across * int(LANES)
            classify_groups(grid.scalar)(part, *where, *blank, lanes)
        sizes = grid._backend.scratch(i64, 3)
        extents = self._extents(slab)
        count_kernel(self._masked, adds, shape.wide(rows))(
            memory.bits, memory.cells, _cases(grid.device), memory.before, memory.starts, memory.listed,
            memory.about, memory.totals, sizes, memory.nans, *extents,
        )  # fmt: skip
        if not adds:
            sum_tiles(memory.about, memory.totals, sizes, memory.nans, shape.tiles(rows), int(LANES))
        self._tell = grid._backend.telling(sizes)
        self._counted = self.whole

    def _place(self, slab: _Slab, points: tack.Array, triangles: tack.Array, first: int, corner: int) -> None:
        """Writes which triangles and points a slab has."""
        memory = self._memory
        about = self._shape.wide(slab.depth * self._shape.ny), points.scalar, edge_dtype(points)
        place_kernel(self._masked, *about)(
            memory.bits, memory.cells, _cases(points.device), memory.before, memory.starts, memory.listed,
            memory.about, memory.totals, memory.firsts, memory.written, points, triangles, first, corner,
            points.shape[0] - first, triangles.shape[0] - corner, slab.start, *self._extents(slab),
        )  # fmt: skip

    def _extents(self, slab: _Slab) -> tuple[int, ...]:
        """A slab's rows, and how they are divided, as kernels take them."""
        ny, *about = self._shape
        rows = slab.depth * ny
        tiles = self._shape.tiles(rows)
        own = slab.skip * ny, (slab.skip + slab.planes) * ny
        return *own, rows, ny, *about, tiles, tiles * int(LANES)

    def _wait(self) -> None:
        triangles, points, nans = self._tell().tolist()
        self._found.append((triangles, points))
        self._nans |= nans


def _planes(grid: tack.Array, slab: _Slab) -> tack.Array:
    """The part of a volume that a slab has words of."""
    return grid if slab.depth == grid.shape[0] else grid[slab.start : slab.start + slab.depth]


@cache
def _cases(device: tack.Device) -> tack.Array:
    return tack.asarray(np.array(CUBE_CASES, np.uint64), device=device)
