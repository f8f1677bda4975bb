"""Scans and reductions that start anew at each segment of an array.

The segments are given by offsets, as rows are in a compressed sparse matrix: segment s is
``x[offsets[s]:offsets[s + 1]]``. Work is divided by elements, so that lengths of segments do not matter.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import (
    BLOCK,
    accumulator,
    apart,
    as_array,
    block_count,
    check_op,
    combiner,
    identity,
    prefix,
    result_array,
    same_device,
    target_dtype,
)
from tack.algorithms.groups.scan import scan_tiles
from tack.dtypes import i64, u8
from tack.lang.kernel import Kernel

__all__ = ["reduce_segments", "segmented_reduce", "segmented_scan"]

_INCLUSIVE, _EXCLUSIVE, _CARRIES = 0, 1, 2


def segmented_scan(
    x: Any,
    offsets: Any,
    op: str = "sum",
    *,
    exclusive: bool = False,
    n: int | None = None,
    out: Any = None,
    dtype: object = None,
) -> tack.Array:
    """The scan of each segment of the first ``n`` elements of ``x``, 1-D.

    Args:
        offsets: m + 1 integers that do not decrease, from 0 to the size of ``x``, for m segments; some may be
            empty. Elements in front of the first are a segment too, those after the last belong to the last,
            and a segment that goes past ``n`` ends there.
        op: ``"sum"``, ``"min"`` or ``"max"``.
        exclusive: whether an element's result leaves it out; the first of a segment gets the identity.
        out: takes the result; may be, or overlap, ``x``.
        dtype: of the result, the dtype of ``x`` unless given; sums are computed in i64, u64 or f64.
    """
    function = "segmented_scan"
    op = check_op(function, op)
    source = as_array(function, "x", x)
    starts = _offsets(function, offsets, source)
    source = source[: prefix(function, source.size, n)]
    target = target_dtype(function, dtype, out, source)
    result = result_array(function, out, source.size, target, source)
    heads = _heads(starts, source)
    _scan(apart(source, result, in_place=True), heads, result, op, _EXCLUSIVE if exclusive else _INCLUSIVE)
    return result


def segmented_reduce(
    x: Any, offsets: Any, op: str = "sum", *, n: int | None = None, out: Any = None
) -> tack.Array:
    """The reduction of each segment of ``x``, of shape (m,); an empty one gives the identity of ``op``.

    The arguments are those of `segmented_scan`. Sums of integers are i64 or u64, and wrap; other results have
    the dtype of ``x``.
    """
    function = "segmented_reduce"
    op = check_op(function, op)
    source = as_array(function, "x", x)
    starts = _offsets(function, offsets, source)
    source = source[: prefix(function, source.size, n)]
    wide = accumulator(source, op)
    target = source.scalar if wide.is_float else wide
    result = result_array(function, out, starts.size - 1, target, source)
    reduce_segments(source, apart(starts, result), result, op)
    return result


def reduce_segments(x: tack.Array, offsets: tack.Array, out: tack.Array, op: str) -> None:
    """Reduce the segments of 1-D ``x`` into ``out``."""
    wide = accumulator(x, op)
    start = tack.full(1, identity(op, wide), wide, device=x.device)
    rest = (offsets, start, out, x.size, offsets.size - 1)
    if x._backend.prefers_workgroups:
        running = tack.empty(x.size, wide, device=x.device)
        _scan(x, _heads(offsets, x), running, op, _INCLUSIVE)
        _segment_ends(running, *rest)
    else:
        carries = _carries(x, _heads(offsets, x), op) if x.size else start
        _segment_totals(op, wide.is_float)(x, carries, *rest)


def _offsets(function: str, offsets: Any, x: tack.Array) -> tack.Array:
    starts = as_array(function, "offsets", offsets)
    if starts.scalar.is_float:
        raise TypeError(f"{function}: offsets are integers, not {starts.dtype}")
    if not starts.size:
        raise ValueError(f"{function}: offsets has no element; m segments have m + 1 offsets")
    same_device(function, "offsets", starts, x)
    return starts


def _heads(offsets: tack.Array, x: tack.Array) -> tack.Array:
    """1 where a segment starts, else 0."""
    heads = tack.zeros(x.size, u8, device=x.device)
    _mark_heads(offsets, heads, x.size, offsets.size)
    return heads


def _scan(x: tack.Array, heads: tack.Array, out: tack.Array, op: str, mode: int) -> None:
    """Scan ``x`` into ``out``, starting anew where ``heads`` is not 0."""
    if not x.size:
        return
    if x._backend.prefers_workgroups:
        scan_tiles(x, out, x.size, op, mode == _EXCLUSIVE, heads)
        return
    wide = accumulator(x, op)
    start = tack.full(1, identity(op, wide), wide, device=x.device)
    carries = _carries(x, heads, op)
    _block_scans(op, wide.is_float)(x, heads, out, carries, start, x.size, carries.size, mode)


def _carries(x: tack.Array, heads: tack.Array, op: str) -> tack.Array:
    """What each block begins with, unless its first element is a head: the total since the last head.

    Blocks are combined by a scan: a block's total is that since its last head, and it is a head if it has
    one. What stands before a block is then the running total before its own head counts.
    """
    blocks = block_count(x.size)
    wide = accumulator(x, op)
    carries = tack.full(blocks, identity(op, wide), wide, device=x.device)
    if blocks > 1:
        flags = tack.empty(blocks, u8, device=x.device)
        _block_totals(op, wide.is_float)(x, heads, carries, flags, x.size, blocks)
        _scan(carries, flags, carries, op, _CARRIES)
    return carries


@cache
def _block_totals(op: str, is_float: bool) -> Kernel:
    combine = combiner(op, is_float)

    @tack.kernel
    def segment_totals(x: Any, heads: Any, totals: Any, flags: Any, n: Any, blocks: Any) -> None:
        for block in range(blocks):
            first = block * BLOCK
            start = totals[block]
            total = start
            flag = 0
            for j in range(min(BLOCK, n - first)):
                if heads[first + j] != 0:
                    total = start
                    flag = 1
                total = combine(total, x[first + j])
            totals[block] = total
            flags[block] = flag

    return segment_totals


@cache
def _block_scans(op: str, is_float: bool) -> Kernel:
    combine = combiner(op, is_float)

    @tack.kernel
    def segment_scans(
        x: Any, heads: Any, out: Any, carries: Any, start: Any, n: Any, blocks: Any, mode: Any
    ) -> None:
        for block in range(blocks):
            first = block * BLOCK
            total = carries[block]
            for j in range(min(BLOCK, n - first)):
                i = first + j
                before = total
                if heads[i] != 0:
                    total = start[0]
                    if mode != 2:
                        before = total
                total = combine(total, x[i])
                out[i] = total if mode == 0 else before

    return segment_scans


@cache
def _segment_totals(op: str, is_float: bool) -> Kernel:
    """Reduces segments: of each the elements in its last block, from what the block begins with."""
    combine = combiner(op, is_float)

    @tack.kernel
    def reduce_segments(
        x: Any, carries: Any, offsets: Any, start: Any, out: Any, n: Any, segments: Any
    ) -> None:
        for s in range(segments):
            first = i64(offsets[s])
            end = min(i64(offsets[s + 1]), n)
            total = start[0]
            if first >= 0 and first < end:
                block = (end - 1) // BLOCK
                if first < block * BLOCK:
                    first = block * BLOCK
                    total = carries[block]
                for j in range(first, end):
                    total = combine(total, x[j])
            out[s] = total

    return reduce_segments


@tack.kernel
def _mark_heads(offsets: Any, heads: Any, n: Any, count: Any) -> None:
    for s in range(count):
        first = i64(offsets[s])
        if first >= 0 and first < n:
            heads[first] = 1


@tack.kernel
def _segment_ends(running: Any, offsets: Any, start: Any, out: Any, n: Any, segments: Any) -> None:
    for s in range(segments):
        first = i64(offsets[s])
        end = min(i64(offsets[s + 1]), n)
        result = start[0]
        if first >= 0 and first < end:
            result = running[end - 1]
        out[s] = result
