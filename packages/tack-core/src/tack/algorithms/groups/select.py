"""Stream compaction by workgroups: the chosen elements of a tile are counted, then written side by side."""

from __future__ import annotations

from typing import Any

import tack
from tack.algorithms.groups.tiles import LANES, items_of_lane, lane_scan, tile_count
from tack.dtypes import i32, i64, u8, u16
from tack.lang.kernel import Func, Kernel

__all__ = ["count_tiles", "write_elements", "write_indices"]

_ITEMS = items_of_lane(u8.itemsize + u16.itemsize)
ITEMS, TILE = tack.constant(_ITEMS), tack.constant(_ITEMS * int(LANES))


def count_tiles(mask: tack.Array, n: int) -> tack.Array:
    """How many of the first ``n`` > 0 elements are not zero in each tile, i64."""
    counts = tack.empty(tile_count(n, _ITEMS), i64, device=mask.device)
    _count(mask, counts, n, counts.size * int(LANES))
    return counts


def write_elements(x: tack.Array, mask: tack.Array, places: tack.Array, out: tack.Array, n: int) -> None:
    """Write the chosen elements of each tile from its place on."""
    _write_elements(x, mask, places, out, n, places.size * int(LANES))


def write_indices(mask: tack.Array, places: tack.Array, out: tack.Array, n: int) -> None:
    """Write the indices of the chosen elements of each tile from its place on."""
    _write_indices(mask, mask, places, out, n, places.size * int(LANES))


@tack.kernel
def _count(mask: Any, counts: Any, n: Any, lanes: Any) -> None:
    for i in range(lanes):
        lane = tack.thread_id()
        first = i // LANES * TILE + lane
        total = 0
        for k in range(ITEMS):
            if first + k * LANES < n:
                total += 1 if mask[first + k * LANES] != 0 else 0
        total = tack.block_sum(total)
        if lane == 0:
            counts[i // LANES] = total


_add_lanes = lane_scan("sum", i32)


@tack.func
def _element(x: Any, at: Any) -> Any:
    return x[at]


@tack.func
def _index(x: Any, at: Any) -> Any:
    return at


def _write_kernel(chosen: Func) -> Kernel:
    """Writes what ``chosen`` gives for each chosen index."""

    @tack.kernel
    def write_chosen(x: Any, mask: Any, places: Any, out: Any, n: Any, lanes: Any) -> None:
        for i in range(lanes):
            marks = tack.shared(TILE, u8)
            found = tack.shared(TILE, u16)
            sums = tack.shared((2, LANES), i32)
            lane = tack.thread_id()
            first = i // LANES * TILE
            for k in range(ITEMS):
                at = k * LANES + lane
                marks[at] = 0
                if first + at < n:
                    marks[at] = 1 if mask[first + at] != 0 else 0
            tack.barrier()
            own = 0
            for k in range(ITEMS):
                own += marks[lane * ITEMS + k]
            place, count = _add_lanes(own, sums, lane)
            for k in range(ITEMS):
                if marks[lane * ITEMS + k] != 0:
                    found[place] = lane * ITEMS + k
                    place += 1
            tack.barrier()
            start = places[i // LANES]
            for k in range(ITEMS):
                at = k * LANES + lane
                if at < count:
                    out[start + at] = chosen(x, first + found[at])

    return write_chosen


_write_elements = _write_kernel(_element)
_write_indices = _write_kernel(_index)
