"""Histograms by workgroups, which count in shared memory and add up their counts at the end."""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.groups.tiles import LANES, shared_add
from tack.dtypes import DType, i32, u32
from tack.lang.kernel import Func, Kernel

__all__ = ["count_cells", "most_cells"]

_FEW_EDGES = 1 << 11  # which do as well
BATCH = tack.constant(8)  # elements that a lane has in flight at once
_MAX_GROUPS = 2048


def most_cells(device: tack.Device) -> int:
    """Of how many cells the counters fit in shared memory, and a few bytes more."""
    limit = device._backend.shared_memory
    return (1 << 13) - 1 if not limit or limit >= 48 << 10 else (1 << 12) - 1


def count_cells(
    find: Func, x: tack.Array, edges: tack.Array, counts: tack.Array, scale: float, cells: int, n: int
) -> None:
    """Add to ``counts`` how many of the first ``n`` > 0 elements ``find`` places in each of the ``cells``."""
    groups = min(-(-n // int(LANES * BATCH * 4)), _MAX_GROUPS)
    size = 1 << max(8, cells.bit_length())
    _count_kernel(find, size, edges.scalar)(x, edges, counts, scale, cells, n, groups * int(LANES))


@cache
def _count_kernel(find: Func, size: int, dtype: DType) -> Kernel:
    """Counts in ``size`` counters, with the edges in shared memory too if they are few."""
    room = tack.constant(size)
    few = size <= _FEW_EDGES
    edge_room = tack.constant(size if few else 1)

    @tack.func
    def find_near(value: Any, near: Any, edges: Any, scale: Any, cells: Any) -> Any:
        return find(value, near, scale, cells)

    @tack.func
    def find_far(value: Any, near: Any, edges: Any, scale: Any, cells: Any) -> Any:
        return find(value, edges, scale, cells)

    @tack.func
    def bring(near: Any, edges: Any, cells: Any, lane: Any) -> None:
        for edge in range(lane, cells + 1, LANES):
            near[edge] = edges[edge]

    @tack.func
    def leave(near: Any, edges: Any, cells: Any, lane: Any) -> None:
        pass

    place, prepare = (find_near, bring) if few else (find_far, leave)

    @tack.kernel
    def count_elements(x: Any, edges: Any, counts: Any, scale: Any, cells: Any, n: Any, lanes: Any) -> None:
        for i in range(lanes):
            found = tack.shared(room, u32)
            near = tack.shared(edge_room, dtype)
            places = tack.local_array(BATCH, i32)
            lane = tack.thread_id()
            prepare(near, edges, cells, lane)
            for cell in range(lane, cells, LANES):
                found[cell] = 0
            tack.barrier()
            for first in range(i, n, BATCH * lanes):
                for k in range(BATCH):
                    at = first + k * lanes
                    places[k] = place(x[at], near, edges, scale, cells) if at < n else -1
                for k in range(BATCH):
                    if places[k] >= 0:
                        shared_add(found, places[k], 1)
            tack.barrier()
            for cell in range(lane, cells, LANES):
                if found[cell] != 0:
                    tack.atomic_add(counts, cell, found[cell])

    return count_elements
