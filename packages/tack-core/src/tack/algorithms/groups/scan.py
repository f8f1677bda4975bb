"""Scans by workgroups, of whole arrays and of segments.

Where a workgroup that waits for another one is sure to see it go on (`Backend.forward_progress`), a scan
reads and writes each element once, and a tile finds what stands before it by look-back. Elsewhere the totals
of tiles are scanned first, in the same way.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import accumulator, combiner, identity
from tack.algorithms.groups import lookback
from tack.algorithms.groups.tiles import LANES, items_of_lane, lane_scan, tile_count
from tack.dtypes import DType, i32, u8
from tack.lang.kernel import Func, Kernel

__all__ = ["scan_tiles"]


def scan_tiles(
    x: tack.Array, out: tack.Array, n: int, op: str, exclusive: bool, heads: tack.Array | None = None
) -> tack.Array:
    """Scan the first ``n`` > 0 elements of 1-D ``x`` into ``out``, which may be ``x``.

    Args:
        heads: not 0 where the scan starts anew, which an exclusive one does with the identity.

    Returns:
        An array of one element, the total in the accumulator's dtype; of segments, that of the last.
    """
    wide = accumulator(x, op)
    total = tack.empty(1, wide, device=x.device)
    marks = x if heads is None else heads
    apart = 0 if out.scalar is x.scalar else out.scalar.itemsize
    items = items_of_lane(x.scalar.itemsize + apart + int(heads is not None), x.device)
    form = (op, wide, x.scalar, out.scalar, heads is not None, items)
    tiles = tile_count(n, items)
    lanes = tiles * int(LANES)
    if x._backend.forward_progress:
        words = lookback.words_for(tiles, x.device)
        _scan_kernel(*form, True)(x, marks, out, words, total, n, lanes, int(exclusive))
        return total
    carries = tack.empty(tiles, wide, device=x.device)
    if tiles > 1:
        flags = tack.empty(tiles, u8, device=x.device)
        _total_kernel(*form)(x, marks, carries, flags, n, lanes)
        scan_tiles(carries, carries, tiles, op, False, flags if heads is not None else None)
    _scan_kernel(*form, False)(x, marks, out, carries, total, n, lanes, int(exclusive))
    return total


@cache
def _scan_kernel(
    op: str, wide: DType, source: DType, target: DType, segmented: bool, items: int, looking: bool
) -> Kernel:
    """Scans tiles; with ``looking``, ``carries`` are the words of the look-back, else scanned totals."""
    item_count, tile_size = tack.constant(items), tack.constant(items * int(LANES))
    result_size = tack.constant(items * int(LANES) if target is not source else 1)
    head_size = tack.constant(items * int(LANES) if segmented else 1)
    combine = combiner(op, wide.is_float)
    nothing = tack.constant(identity(op, wide), wide)
    load, is_head = _load(op, source, items, segmented), _is_head(segmented)
    totals = _totals(op, wide, items, segmented)
    number = lookback.ticket if looking else _own_number
    before = lookback.look_back(op, wide) if looking else _carried(op, wide)

    @tack.func
    def write_apart(staged: Any, results: Any, marks: Any, running: Any, lane: Any, exclusive: Any) -> None:
        for k in range(item_count):
            at = lane * item_count + k
            previous = running
            if is_head(marks, at):
                previous = wide(nothing)
            running = combine(previous, wide(staged[at]))
            results[at] = previous if exclusive else running

    @tack.func
    def write_over(staged: Any, results: Any, marks: Any, running: Any, lane: Any, exclusive: Any) -> None:
        write_apart(staged, staged, marks, running, lane, exclusive)

    write, result_of = (write_over, _first) if target is source else (write_apart, _second)

    @tack.kernel
    def scan_tiles(
        x: Any, heads: Any, out: Any, carries: Any, total: Any, n: Any, lanes: Any, exclusive: Any
    ) -> None:
        for i in range(lanes):
            staged = tack.shared(tile_size, source)
            results = tack.shared(result_size, target)
            marks = tack.shared(head_size, u8)
            lane = tack.thread_id()
            tile = number(carries, i // LANES, lane)
            first = tile * tile_size
            load(x, heads, staged, marks, first, n, lane)
            tack.barrier()
            in_front, restarts, aggregate, complete = totals(staged, marks, lane)
            carry = before(carries, tile, aggregate, complete, lane)
            running = in_front if restarts else combine(carry, in_front)
            write(staged, results, marks, running, lane, exclusive)
            if lane == 0 and first + tile_size >= n:
                total[0] = aggregate if complete else combine(carry, aggregate)
            tack.barrier()
            for k in range(item_count):
                at = k * LANES + lane
                if first + at < n:
                    out[first + at] = result_of(staged, results, at)

    return scan_tiles


@cache
def _total_kernel(op: str, wide: DType, source: DType, target: DType, segmented: bool, items: int) -> Kernel:
    """The totals of tiles, of segments since the last head, and whether there was one."""
    tile_size = tack.constant(items * int(LANES))
    head_size = tack.constant(items * int(LANES) if segmented else 1)
    load, totals = _load(op, source, items, segmented), _totals(op, wide, items, segmented)

    @tack.kernel
    def tile_totals(x: Any, heads: Any, sums: Any, flags: Any, n: Any, lanes: Any) -> None:
        for i in range(lanes):
            staged = tack.shared(tile_size, source)
            marks = tack.shared(head_size, u8)
            lane = tack.thread_id()
            load(x, heads, staged, marks, i // LANES * tile_size, n, lane)
            tack.barrier()
            _in_front, _restarts, aggregate, complete = totals(staged, marks, lane)
            if lane == 0:
                sums[i // LANES] = aggregate
                flags[i // LANES] = complete

    return tile_totals


@cache
def _load(op: str, source: DType, items: int, segmented: bool) -> Func:
    """Reads a tile into shared memory; behind the last element is the identity."""
    item_count, tile_size = tack.constant(items), tack.constant(items * int(LANES))
    nothing = tack.constant(identity(op, source), source)
    mark = _mark if segmented else _mark_nothing

    @tack.func
    def load(x: Any, heads: Any, staged: Any, marks: Any, first: Any, n: Any, lane: Any) -> None:
        if first + tile_size <= n:
            for k in range(item_count):
                at = k * LANES + lane
                staged[at] = x[first + at]
                mark(marks, heads, at, first)
        else:
            for k in range(item_count):
                at = k * LANES + lane
                staged[at] = source(nothing)
                if first + at < n:
                    staged[at] = x[first + at]
                    mark(marks, heads, at, first)
                else:
                    unmark(marks, at)

    unmark = _unmark if segmented else _unmark_nothing
    return load


@cache
def _totals(op: str, wide: DType, items: int, segmented: bool) -> Func:
    """A device function for what stands before a lane's elements in the tile, whether a segment starts there,
    so that nothing before the tile counts, and the same of the whole tile."""
    item_count = tack.constant(items)
    combine = combiner(op, wide.is_float)
    nothing = tack.constant(identity(op, wide), wide)
    scanned = _segment_scan(op, wide) if segmented else lane_scan(op, wide)

    @tack.func
    def plain(staged: Any, marks: Any, lane: Any) -> Any:
        sum_of_lane = wide(nothing)
        for k in range(item_count):
            sum_of_lane = combine(sum_of_lane, wide(staged[lane * item_count + k]))
        sums = tack.shared((2, LANES), wide)
        in_front, aggregate = scanned(sum_of_lane, sums, lane)
        return in_front, 0, aggregate, 0

    @tack.func
    def segments(staged: Any, marks: Any, lane: Any) -> Any:
        sum_of_lane = wide(nothing)
        flag = 0
        for k in range(item_count):
            if marks[lane * item_count + k] != 0:
                sum_of_lane = wide(nothing)
                flag = 1
            sum_of_lane = combine(sum_of_lane, wide(staged[lane * item_count + k]))
        return scanned(sum_of_lane, flag, lane)

    return segments if segmented else plain


def _segment_scan(op: str, dtype: DType) -> Func:
    """`lane_scan` that starts anew after lanes with a flag."""
    combine = combiner(op, dtype.is_float)
    nothing = tack.constant(identity(op, dtype), dtype)

    @tack.func
    def scanned(value: Any, flag: Any, lane: Any) -> Any:
        sums = tack.shared((2, LANES), dtype)
        flags = tack.shared((2, LANES), i32)
        sums[0, lane] = value
        flags[0, lane] = flag
        tack.barrier()
        for step in range(8):
            reach = 1 << step
            found = sums[step % 2, lane]
            starts = flags[step % 2, lane]
            if lane >= reach and starts == 0:
                found = combine(sums[step % 2, lane - reach], found)
                starts = flags[step % 2, lane - reach]
            sums[(step + 1) % 2, lane] = found
            flags[(step + 1) % 2, lane] = starts
            tack.barrier()
        before = dtype(nothing)
        starts_before = 0
        if lane > 0:
            before = sums[0, lane - 1]
            starts_before = flags[0, lane - 1]
        return before, starts_before, sums[0, LANES - 1], flags[0, LANES - 1]

    return scanned


@cache
def _carried(op: str, wide: DType) -> Func:
    nothing = tack.constant(identity(op, wide), wide)

    @tack.func
    def carried(carries: Any, tile: Any, aggregate: Any, complete: Any, lane: Any) -> Any:
        carry = wide(nothing)
        if tile > 0:
            carry = carries[tile - 1]
        return carry

    return carried


@tack.func
def _own_number(carries: Any, group: Any, lane: Any) -> Any:
    return group


def _is_head(segmented: bool) -> Func:
    return _marked if segmented else _never


@tack.func
def _marked(marks: Any, at: Any) -> Any:
    return marks[at] != 0


@tack.func
def _never(marks: Any, at: Any) -> Any:
    return 0


@tack.func
def _mark(marks: Any, heads: Any, at: Any, first: Any) -> None:
    marks[at] = heads[first + at]


@tack.func
def _mark_nothing(marks: Any, heads: Any, at: Any, first: Any) -> None:
    pass


@tack.func
def _unmark(marks: Any, at: Any) -> None:
    marks[at] = 0


@tack.func
def _unmark_nothing(marks: Any, at: Any) -> None:
    pass


@tack.func
def _first(a: Any, b: Any, at: Any) -> Any:
    return a[at]


@tack.func
def _second(a: Any, b: Any, at: Any) -> Any:
    return b[at]
