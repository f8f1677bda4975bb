"""Stream compaction by workgroups: the chosen elements of a tile are counted, then written side by side."""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.groups.tiles import LANES, items_of_lane, lane_scan, tile_count
from tack.dtypes import i32, i64, u8, u16
from tack.lang.kernel import Func, Kernel

__all__ = ["count_tiles", "write_elements", "write_indices"]


def _items(device: tack.Device) -> int:
    return items_of_lane(u8.itemsize + u16.itemsize, device)


def count_tiles(mask: tack.Array, n: int) -> tack.Array:
    """How many of the first ``n`` > 0 elements are not zero in each tile, i64."""
    items = _items(mask.device)
    counts = tack.empty(tile_count(n, items), i64, device=mask.device)
    _count_kernel(items)(mask, counts, n, counts.size * int(LANES))
    return counts


def write_elements(x: tack.Array, mask: tack.Array, places: tack.Array, out: tack.Array, n: int) -> None:
    """Write the chosen elements of each tile from its place on."""
    _write_kernel(_element, _items(mask.device))(x, mask, places, out, n, places.size * int(LANES))


def write_indices(mask: tack.Array, places: tack.Array, out: tack.Array, n: int) -> None:
    """Write the indices of the chosen elements of each tile from its place on."""
    _write_kernel(_index, _items(mask.device))(mask, mask, places, out, n, places.size * int(LANES))


@cache
def _count_kernel(items: int) -> Kernel:
    item_count, tile_size = tack.constant(items), tack.constant(items * int(LANES))

    @tack.kernel
    def count_chosen(mask: Any, counts: Any, n: Any, lanes: Any) -> None:
        for i in range(lanes):
            lane = tack.thread_id()
            first = i // LANES * tile_size + lane
            total = 0
            for k in range(item_count):
                if first + k * LANES < n:
                    total += 1 if mask[first + k * LANES] != 0 else 0
            total = tack.block_sum(total)
            if lane == 0:
                counts[i // LANES] = total

    return count_chosen


_add_lanes = lane_scan("sum", i32)


@tack.func
def _element(x: Any, at: Any) -> Any:
    return x[at]


@tack.func
def _index(x: Any, at: Any) -> Any:
    return at


@cache
def _write_kernel(chosen: Func, items: int) -> Kernel:
    """Writes what ``chosen`` gives for each chosen index."""
    item_count, tile_size = tack.constant(items), tack.constant(items * int(LANES))

    @tack.kernel
    def write_chosen(x: Any, mask: Any, places: Any, out: Any, n: Any, lanes: Any) -> None:
        for i in range(lanes):
            marks = tack.shared(tile_size, u8)
            found = tack.shared(tile_size, u16)
            sums = tack.shared((2, LANES), i32)
            lane = tack.thread_id()
            first = i // LANES * tile_size
            for k in range(item_count):
                at = k * LANES + lane
                marks[at] = 0
                if first + at < n:
                    marks[at] = 1 if mask[first + at] != 0 else 0
            tack.barrier()
            own = 0
            for k in range(item_count):
                own += marks[lane * item_count + k]
            place, count = _add_lanes(own, sums, lane)
            for k in range(item_count):
                if marks[lane * item_count + k] != 0:
                    found[place] = lane * item_count + k
                    place += 1
            tack.barrier()
            start = places[i // LANES]
            for k in range(item_count):
                at = k * LANES + lane
                if at < count:
                    out[start + at] = chosen(x, first + found[at])

    return write_chosen
