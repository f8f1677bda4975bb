"""What kernels for workgroups share. A workgroup handles a *tile* of consecutive elements.

Lanes read and write memory side by side, and in between each has consecutive elements of the tile, for which
shared memory is the place of exchange. How many a lane has is odd, so that lanes that read theirs at once use
different banks of that memory.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import combiner, identity
from tack.dtypes import DType
from tack.ir.workgroups import WORKGROUP
from tack.lang.builtins import CONSTRUCTS
from tack.lang.kernel import Func

__all__ = ["LANES", "items_of_lane", "lane_scan", "shared_add", "tile_count"]

shared_add = CONSTRUCTS["shared_add"]

LANES = tack.constant(WORKGROUP)

_SHARED = 32 << 10  # bytes of shared memory for the elements of a tile, at the most
_BESIDE = 16 << 10  # bytes that a kernel may need besides
_MOST = 31  # elements of a lane


def items_of_lane(itemsize: int, device: tack.Device) -> int:
    """How many elements of a tile a lane has, if one takes ``itemsize`` bytes of shared memory."""
    limit = device._backend.shared_memory
    room = min(_SHARED, limit - _BESIDE) if limit else _SHARED
    return max(1, min(_MOST, (room // WORKGROUP // itemsize - 1) | 1))


def tile_count(n: int, items: int) -> int:
    """How many tiles hold ``n`` elements."""
    return -(-n // (items * WORKGROUP))


@cache
def lane_scan(op: str, dtype: DType) -> Func:
    """A device function that scans the lanes' values in their order.

    It gives what stands before the lane and what all lanes have, and takes a shared array of two rows to work
    in. The order of the operations is fixed, and all lanes have to take part.
    """
    combine = combiner(op, dtype.is_float)
    nothing = tack.constant(identity(op, dtype), dtype)

    @tack.func
    def scanned(value: Any, sums: Any, lane: Any) -> Any:
        sums[0, lane] = value
        tack.barrier()
        for step in range(4):  # after which a lane has the last 4, 16, 64 and 256 values
            reach = 1 << (2 * step)
            found = sums[step % 2, lane]
            for k in range(1, 4):
                if lane >= k * reach:
                    found = combine(sums[step % 2, lane - k * reach], found)
            sums[(step + 1) % 2, lane] = found
            tack.barrier()
        before = dtype(nothing)
        if lane > 0:
            before = sums[0, lane - 1]
        return before, sums[0, LANES - 1]

    return scanned
