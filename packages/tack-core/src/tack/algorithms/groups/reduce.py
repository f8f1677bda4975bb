"""Reductions by workgroups: of lines of neighbours, and of terms that are made of the elements."""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import accumulator, combiner, identity
from tack.algorithms.groups.tiles import LANES
from tack.dtypes import DType, i32
from tack.lang.kernel import Func, Kernel

__all__ = ["reduce_lines", "sum_terms"]

PART = tack.constant(1 << 13)  # elements of a line that a workgroup reduces
BATCH = tack.constant(8)  # elements that a lane has in flight at once
_MAX_GROUPS = 4096


def reduce_lines(x: tack.Array, out: tack.Array, op: str, lines: int, extent: int) -> None:
    """Reduce each of the ``lines`` of ``extent`` > 0 neighbours in ``x`` into ``out``."""
    wide = accumulator(x, op)
    while True:
        parts = -(-extent // int(PART))
        to = out if parts == 1 else tack.empty(lines * parts, wide, device=x.device)
        _line_kernel(op, wide)(x, to, extent, parts, lines * parts * int(LANES))
        if parts == 1:
            return
        x, extent = to, parts


@cache
def _line_kernel(op: str, wide: DType) -> Kernel:
    held = i32 if wide.bits < 32 else wide  # what workgroups can reduce
    combine, together = combiner(op, wide.is_float), _GROUP[op]
    nothing = tack.constant(identity(op, wide), held)

    @tack.kernel
    def reduce_parts(x: Any, out: Any, extent: Any, parts: Any, lanes: Any) -> None:
        for i in range(lanes):
            values = tack.local_array(BATCH, held)
            group = i // LANES
            line = group // parts
            start = group % parts * PART
            end = min(start + PART, extent)
            total = held(nothing)
            for first in range(start + tack.thread_id(), end, LANES * BATCH):
                for k in range(BATCH):
                    at = first + k * LANES
                    values[k] = held(x[line * extent + at]) if at < end else held(nothing)
                for k in range(BATCH):
                    total = combine(total, values[k])
            total = together(total)
            if tack.thread_id() == 0:
                out[group] = total

    return reduce_parts


@tack.func
def _group_sum(value: Any) -> Any:
    return tack.block_sum(value)


@tack.func
def _group_min(value: Any) -> Any:
    return tack.block_min(value)


@tack.func
def _group_max(value: Any) -> Any:
    return tack.block_max(value)


_GROUP = {"sum": _group_sum, "min": _group_min, "max": _group_max}


def sum_terms(term: Func, x: tack.Array, y: tack.Array, n: int, wide: DType, shift: float) -> tack.Array:
    """Sums of ``term(x[i], y[i], shift)`` in ``wide``, whose sum is that for all i < n."""
    groups = min(-(-n // int(LANES * BATCH)), _MAX_GROUPS)
    sums = tack.empty(groups, wide, device=x.device)
    if groups:
        _term_kernel(term, wide, x is y)(x, y, sums, shift, n, groups * int(LANES))
    return sums


@cache
def _term_kernel(term: Func, wide: DType, unary: bool) -> Kernel:
    @tack.func
    def of_one(x: Any, y: Any, at: Any, shift: Any) -> Any:
        value = wide(x[at])
        return term(value, value, wide(shift))

    @tack.func
    def of_two(x: Any, y: Any, at: Any, shift: Any) -> Any:
        return term(wide(x[at]), wide(y[at]), wide(shift))

    term_at = of_one if unary else of_two

    @tack.kernel
    def sums_of_terms(x: Any, y: Any, sums: Any, shift: Any, n: Any, lanes: Any) -> None:
        for i in range(lanes):
            terms = tack.local_array(BATCH, wide)
            total = wide(0)
            for first in range(i, n, BATCH * lanes):
                for k in range(BATCH):
                    at = first + k * lanes
                    terms[k] = term_at(x, y, at, shift) if at < n else wide(0)
                for k in range(BATCH):
                    total += terms[k]
            total = tack.block_sum(total)
            if tack.thread_id() == 0:
                sums[i // LANES] = total

    return sums_of_terms
