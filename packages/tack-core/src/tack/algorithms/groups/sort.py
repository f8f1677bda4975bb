"""Radix sort by workgroups, eight bits of the key at a time, from the lowest.

A pass sorts each tile by its digit in shared memory, and then writes one run of neighbours for each digit.
Where the runs go depends on how often the digits occur in the tiles before. Where workgroups make progress
(`Backend.forward_progress`) that is found by look-back, so that a pass reads and writes each element once;
the digits of all passes have been counted before:

- A. Adinets, D. Merrill: *Onesweep: A Faster Least Significant Digit Radix Sort for GPUs*, arXiv:2206.01784.

Elsewhere each pass first counts the digits of tiles, and scans the counts.

The sort in shared memory is two of four bits. Each lane counts the digits of its elements in counters of its
own, of which there are then 16 × 256; a scan over these, digit by digit and lane by lane, tells each lane
where its elements of each digit go. So the sort is stable, and needs nothing but barriers:

- N. Satish, M. Harris, M. Garland: *Designing Efficient Sorting Algorithms for Manycore GPUs*, IPDPS 2009.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import index_dtype
from tack.algorithms.groups.lookback import AGGREGATE, PREFIX, atomic_load
from tack.algorithms.groups.tiles import LANES, items_of_lane, lane_scan, shared_add, tile_count
from tack.algorithms.radix import DIGITS, SIGNED, UNSIGNED, ordered_key
from tack.algorithms.scans import scan
from tack.dtypes import DType, i32, i64, u16, u32, u64
from tack.lang.kernel import Func, Kernel

__all__ = ["RadixSort"]

# A row of counters has two for each lane l < 128, of l and of l + 128, so that lanes side by side use
# different words, and an unused word after each 16, so that lanes that add up 16 lanes' counters do, too.
ROW = tack.constant(2 * 160)
# Elements that a lane counts, and how many it reads at once.
COUNTED, BATCH = tack.constant(64), tack.constant(8)


class RadixSort:
    """The passes over ``n`` > 0 keys, and values with them if there are any.

    Attributes:
        digits: the numbers of the passes.
    """

    def __init__(self, keys: tack.Array, value_dtype: DType | None, n: int, descending: bool) -> None:
        self.n, self.descending = n, int(descending)
        self.digits = range(keys.itemsize)
        self.dtype, self.values, self.device = keys.scalar, value_dtype, keys.device
        self.items = items_of_lane(keys.itemsize + (2 if value_dtype else 0), keys.device)
        self.tiles = tile_count(n, self.items)
        self.looking = keys._backend.forward_progress
        if self.looking:
            self._count_all(keys)
        else:
            shape = self.tiles * int(DIGITS)
            self.counts = tack.empty(shape, index_dtype(n), device=self.device)

    def _count_all(self, keys: tack.Array) -> None:
        """Where the elements of each digit start, for all passes."""
        passes, groups = keys.itemsize, tile_count(self.n, int(COUNTED))
        totals = tack.zeros(passes * int(DIGITS), i64, device=self.device)
        _count_kernel(self.dtype)(keys, totals, self.n, groups * int(LANES), self.descending)
        self.starts = tack.empty(totals.size, i64, device=self.device)
        _starts(totals, self.starts, totals.size)
        # A word has the state of a tile's digit in its two highest bits.
        self.word = u32 if self.n < 1 << 30 else u64
        self.words = tack.empty(self.tiles * int(DIGITS), self.word, device=self.device)
        self.number = tack.empty(1, u32, device=self.device)

    def move(self, arrays: list[tack.Array], outs: list[tack.Array], number: int) -> None:
        """Sort ``arrays`` by the digit of a pass into ``outs``, which must not overlap them."""
        lanes, about = self.tiles * int(LANES), (self.n, 8 * number, self.descending)
        if self.looking:
            self.words.fill(0)
            self.number.fill(0)
            places = [self.words, self.number, self.starts[number * int(DIGITS) :]]
        else:
            _tile_count_kernel(self.dtype, self.items)(arrays[0], self.counts, self.tiles, *about, lanes)
            scan(self.counts, self.counts, self.counts.size, "sum", True)
            places = [self.counts, self.counts, self.counts]
        kernel = _sweep_kernel(
            self.dtype, self.values is not None, self.items, self.word if self.looking else None
        )
        values, to = (arrays[1], outs[1]) if self.values else (arrays[0], outs[0])
        kernel(arrays[0], values, outs[0], to, *places, self.tiles, *about, lanes)


# --- digits ---------------------------------------------------------------------------------------


@cache
def _digit(dtype: DType) -> tuple[Func, Func]:
    """Device functions for some bits of a key, and for what is the same for all keys of a launch."""
    unsigned = UNSIGNED[dtype.bits]
    ordered = ordered_key(dtype)
    sign = tack.constant(1 << (dtype.bits - 1) if dtype.is_signed else 0)

    @tack.func
    def integer_digit(key: Any, shift: Any, mask: Any, flips: Any, descending: Any) -> Any:
        return (i32(unsigned(key) >> shift) & mask) ^ flips

    @tack.func
    def integer_flips(shift: Any, mask: Any, descending: Any) -> Any:
        flips = unsigned(sign)
        if descending:
            flips = ~flips
        return i32(flips >> shift) & mask

    @tack.func
    def float_digit(key: Any, shift: Any, mask: Any, flips: Any, descending: Any) -> Any:
        return i32(ordered(key, descending) >> shift) & mask

    @tack.func
    def float_flips(shift: Any, mask: Any, descending: Any) -> Any:
        return 0

    return (float_digit, float_flips) if dtype.is_float else (integer_digit, integer_flips)


@cache
def _last(dtype: DType) -> Func:
    """A key that comes after all others, whose digits are 255 in every pass."""
    nan = tack.constant((1 << (dtype.bits - 1)) - 1)
    least, greatest = tack.constant(dtype.min), tack.constant(dtype.max)
    bits = SIGNED[dtype.bits]

    @tack.func
    def last_float(descending: Any) -> Any:
        return tack.bitcast(bits(nan), dtype)

    @tack.func
    def last_integer(descending: Any) -> Any:
        return dtype(least) if descending else dtype(greatest)

    return last_float if dtype.is_float else last_integer


# --- counting -------------------------------------------------------------------------------------


@cache
def _count_kernel(dtype: DType) -> Kernel:
    """How often each digit of each pass occurs in all keys."""
    passes = tack.constant(dtype.itemsize)
    digit, flips_of = _digit(dtype)

    @tack.kernel
    def count_digits(keys: Any, totals: Any, n: Any, lanes: Any, descending: Any) -> None:
        for i in range(lanes):
            counts = tack.shared((passes, DIGITS), u32)
            own = tack.local_array(BATCH, dtype)
            lane = tack.thread_id()
            for k in range(passes):
                counts[k, lane] = 0
            tack.barrier()
            first = i // LANES * (LANES * COUNTED) + lane
            for start in range(first, min(first + LANES * COUNTED, n), LANES * BATCH):
                for k in range(BATCH):
                    own[k] = keys[start + k * LANES] if start + k * LANES < n else dtype(0)
                for k in range(BATCH):
                    if start + k * LANES < n:
                        for number in range(passes):
                            flips = flips_of(8 * number, 255, descending)
                            shared_add(counts, (number, digit(own[k], 8 * number, 255, flips, descending)), 1)
            tack.barrier()
            for k in range(passes):
                tack.atomic_add(totals, k * DIGITS + lane, i64(counts[k, lane]))

    return count_digits


_scan_counts = lane_scan("sum", i64)


@tack.kernel
def _starts(totals: Any, starts: Any, lanes: Any) -> None:
    for i in range(lanes):
        sums = tack.shared((2, LANES), i64)
        before, _ = _scan_counts(totals[i], sums, tack.thread_id())
        starts[i] = before


@cache
def _tile_count_kernel(dtype: DType, items: int) -> Kernel:
    """``counts[d, tile]``: how often digit d occurs in a tile."""
    item_count, tile_size = tack.constant(items), tack.constant(items * int(LANES))
    digit, flips_of = _digit(dtype)

    @tack.kernel
    def count_tile_digits(
        keys: Any, counts: Any, tiles: Any, n: Any, shift: Any, descending: Any, lanes: Any
    ) -> None:
        for i in range(lanes):
            found = tack.shared(DIGITS, u32)
            lane = tack.thread_id()
            found[lane] = 0
            tack.barrier()
            first = i // LANES * tile_size + lane
            flips = flips_of(shift, 255, descending)
            for k in range(item_count):
                if first + k * LANES < n:
                    shared_add(found, digit(keys[first + k * LANES], shift, 255, flips, descending), 1)
            tack.barrier()
            counts[lane * tiles + i // LANES] = found[lane]

    return count_tile_digits


# --- moving ---------------------------------------------------------------------------------------


@tack.func
def _counter(lane: Any) -> Any:
    """Where a row has the lane's counter."""
    word = lane % 128
    return 2 * (word + word // 16) + lane // 128


_add_lanes = lane_scan("sum", i32)


@tack.func
def _sum_counters(counters: Any, sums: Any, lane: Any) -> None:
    """Replaces each counter by the sum of those before it: where the lane's elements of the digit start."""
    row = lane // 16 * ROW
    total = 0
    for k in range(16):
        total += i32(counters[row + _counter(lane % 16 * 16 + k)])
    total, _ = _add_lanes(total, sums, lane)
    for k in range(16):
        at = row + _counter(lane % 16 * 16 + k)
        count = i32(counters[at])
        counters[at] = total
        total += count
    tack.barrier()


@cache
def _exchange(dtype: DType, items: int, pairs: bool) -> Func:
    """A device function that sorts a tile of keys, and their numbers, by four bits."""
    item_count = tack.constant(items)
    digit, flips_of = _digit(dtype)

    @tack.func
    def count(
        counters: Any, sums: Any, own: Any, staged: Any, shift: Any, descending: Any, lane: Any
    ) -> None:
        mine = _counter(lane)
        flips = flips_of(shift, 15, descending)
        for d in range(16):
            counters[d * ROW + mine] = 0
        for k in range(item_count):
            own[k] = staged[lane * item_count + k]
        for k in range(item_count):
            counters[digit(own[k], shift, 15, flips, descending) * ROW + mine] += 1
        tack.barrier()
        _sum_counters(counters, sums, lane)

    @tack.func
    def exchange_keys(
        staged: Any, numbers: Any, counters: Any, sums: Any, own: Any, held: Any,
        shift: Any, descending: Any, lane: Any,
    ) -> None:  # fmt: skip
        count(counters, sums, own, staged, shift, descending, lane)
        mine = _counter(lane)
        flips = flips_of(shift, 15, descending)
        for k in range(item_count):
            row = digit(own[k], shift, 15, flips, descending) * ROW + mine
            at = i32(counters[row])
            counters[row] = at + 1
            staged[at] = own[k]
        tack.barrier()

    @tack.func
    def exchange_pairs(
        staged: Any, numbers: Any, counters: Any, sums: Any, own: Any, held: Any,
        shift: Any, descending: Any, lane: Any,
    ) -> None:  # fmt: skip
        for k in range(item_count):
            held[k] = numbers[lane * item_count + k]
        count(counters, sums, own, staged, shift, descending, lane)
        mine = _counter(lane)
        flips = flips_of(shift, 15, descending)
        for k in range(item_count):
            row = digit(own[k], shift, 15, flips, descending) * ROW + mine
            at = i32(counters[row])
            counters[row] = at + 1
            staged[at] = own[k]
            numbers[at] = held[k]
        tack.barrier()

    return exchange_pairs if pairs else exchange_keys


@cache
def _look_back(word: DType) -> tuple[Func, Func]:
    """Device functions that publish how many elements of its digit a lane has, and find where they go."""
    shift, mask = tack.constant(word.bits - 2), tack.constant((1 << (word.bits - 2)) - 1)

    @tack.func
    def publish(words: Any, tile: Any, count: Any, lane: Any) -> None:
        state = word(PREFIX) if tile == 0 else word(AGGREGATE)
        tack.atomic_exchange(words, tile * DIGITS + lane, (state << shift) | word(count))

    @tack.func
    def place(words: Any, starts: Any, tile: Any, tiles: Any, count: Any, lane: Any) -> Any:
        own = tile * DIGITS + lane
        before = word(0)
        at = own - DIGITS
        while at >= 0:
            found = atomic_load(words, at)
            if found >> shift != 0:
                before += found & word(mask)
                at = at - DIGITS if found >> shift == word(AGGREGATE) else i64(-1)
        if tile > 0:
            tack.atomic_exchange(words, own, (word(PREFIX) << shift) | (before + word(count)))
        return starts[lane] + i64(before)

    return publish, place


@tack.func
def _keep(counts: Any, tile: Any, count: Any, lane: Any) -> None:
    pass


@tack.func
def _scanned_place(counts: Any, starts: Any, tile: Any, tiles: Any, count: Any, lane: Any) -> Any:
    return i64(counts[lane * tiles + tile])


@tack.func
def _ticket(number: Any, group: Any, lane: Any) -> Any:
    found = tack.shared(1, u32)
    if lane == 0:
        found[0] = tack.atomic_add(number, 0, 1)
    tack.barrier()
    return i64(found[0])


@tack.func
def _own_number(number: Any, group: Any, lane: Any) -> Any:
    return group


@cache
def _sweep_kernel(dtype: DType, pairs: bool, items: int, word: DType | None) -> Kernel:
    """Sorts tiles by a digit and moves them; without ``word``, ``places`` has the scanned counts of tiles."""
    item_count, tile_size = tack.constant(items), tack.constant(items * int(LANES))
    number_count, held_count = (
        tack.constant(items * int(LANES) if pairs else 1),
        tack.constant(items if pairs else 1),
    )
    with_values = tack.constant(int(pairs))
    digit, flips_of = _digit(dtype)
    last, exchange = _last(dtype), _exchange(dtype, items, pairs)
    number = _own_number if word is None else _ticket
    publish, place = (_keep, _scanned_place) if word is None else _look_back(word)

    @tack.kernel
    def sweep(
        keys: Any, values: Any, out: Any, out_values: Any, places: Any, next_tile: Any, starts: Any,
        tiles: Any, n: Any, shift: Any, descending: Any, lanes: Any,
    ) -> None:  # fmt: skip
        for i in range(lanes):
            staged = tack.shared(tile_size, dtype)
            numbers = tack.shared(number_count, u16)
            counters = tack.shared(16 * ROW, u16)
            sums = tack.shared((2, LANES), i32)
            counts = tack.shared(DIGITS, u32)
            shifted = tack.shared(DIGITS, i64)
            own = tack.local_array(item_count, dtype)
            held = tack.local_array(held_count, u16)
            lane = tack.thread_id()
            tile = number(next_tile, i // LANES, lane)
            first = tile * tile_size
            count = i32(min(n - first, tile_size))
            flips = flips_of(shift, 255, descending)
            counts[lane] = 0
            tack.barrier()
            for k in range(item_count):
                at = k * LANES + lane
                own[k] = keys[first + at] if at < count else last(descending)
            for k in range(item_count):
                at = k * LANES + lane
                staged[at] = own[k]
                if with_values:
                    numbers[at] = at
                if at < count:
                    shared_add(counts, digit(own[k], shift, 255, flips, descending), 1)
            tack.barrier()
            occurs = i32(counts[lane])
            publish(places, tile, occurs, lane)
            exchange(staged, numbers, counters, sums, own, held, shift, descending, lane)
            exchange(staged, numbers, counters, sums, own, held, shift + 4, descending, lane)
            start, _ = _add_lanes(occurs, sums, lane)
            shifted[lane] = place(places, starts, tile, tiles, occurs, lane) - start
            tack.barrier()
            for k in range(item_count):
                at = k * LANES + lane
                if at < count:
                    key = staged[at]
                    to = shifted[digit(key, shift, 255, flips, descending)] + at
                    out[to] = key
                    if with_values:
                        out_values[to] = values[first + numbers[at]]

    return sweep
