"""The kernels of radix sort: counting the digits of a chunk of keys, and moving its elements to their places.

A pass reads a digit of eight bits. Elements either go straight to their places, which is what GPUs are left
with so far, or are first put in order in an array of the iteration's own. Then runs go to memory instead of
single elements, which is four times as fast on a CPU, whose cache holds the array. There, keys that fit one
chunk are sorted by one launch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import BLOCK
from tack.dtypes import DType, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from tack.lang.kernel import Func, Kernel

__all__ = [
    *("DIGITS", "SIGNED", "UNSIGNED", "bits_kernel", "chunk_kernel", "chunk_size", "count_kernel"),
    *("move_kernel", "ordered_key"),
]

DIGITS = tack.constant(256)

_MOST = 1 << 15  # elements of a chunk
_PLAIN = 1 << 11
UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64}
SIGNED = {8: i8, 16: i16, 32: i32, 64: i64}
_INFINITY = {f32: 0x7F800000, f64: 0x7FF0000000000000}  # the bits; those of NaN are greater


def chunk_size(itemsize: int, cache_size: int) -> int:
    """How many elements of ``itemsize`` bytes an iteration handles, half filling ``cache_size``; or some."""
    room = cache_size // 2 // itemsize
    return min(_MOST, 1 << (room.bit_length() - 1)) if room else _PLAIN


@cache
def bits_kernel(dtype: DType) -> Kernel:
    """The bits that some keys of each block have, and those that all have."""
    unsigned = UNSIGNED[dtype.bits]
    all_bits = tack.constant(unsigned.max)
    ordered = ordered_key(dtype)

    @tack.kernel
    def bits_of_blocks(keys: Any, union: Any, common: Any, n: Any, blocks: Any, descending: Any) -> None:
        for block in range(blocks):
            start = block * BLOCK
            some = unsigned(0)
            every = unsigned(all_bits)
            for j in range(min(BLOCK, n - start)):
                key = ordered(keys[start + j], descending)
                some |= key
                every &= key
            union[block] = some
            common[block] = every

    return bits_of_blocks


@cache
def count_kernel(dtype: DType, chunk_size: int) -> Kernel:
    """``counts[d, c]``: how often digit d occurs in chunk c."""
    chunk_length = tack.constant(chunk_size)
    find_digits, digit_at = _digits(dtype)

    @tack.kernel
    def count_digits(keys: Any, counts: Any, n: Any, chunks: Any, shift: Any, descending: Any) -> None:
        for chunk in range(chunks):
            bins = tack.local_array(DIGITS, i32)
            digits = tack.local_array(chunk_length, u8)
            for d in range(DIGITS):
                bins[d] = 0
            first = chunk * chunk_length
            length = min(chunk_length, n - first)
            find_digits(digits, keys, first, length, shift, descending)
            for j in range(length):
                bins[digit_at(digits, j, keys[first + j], shift, descending)] += 1
            for d in range(DIGITS):
                counts[d * chunks + chunk] = bins[d]

    return count_digits


@cache
def move_kernel(dtype: DType, value_dtype: DType | None, chunk_size: int, staged: bool) -> Kernel:
    """Moves keys, and values with them; those of digit d in chunk c start at ``places[d, c]``."""
    if not staged:
        return _move_keys(dtype, chunk_size) if value_dtype is None else _move_pairs(dtype, chunk_size)
    if value_dtype is None:
        return _stage_keys(dtype, chunk_size)
    return _stage_pairs(dtype, value_dtype, chunk_size)


def _move_keys(dtype: DType, chunk_size: int) -> Kernel:
    chunk_length = tack.constant(chunk_size)
    digit = _digit(dtype)

    @tack.kernel
    def move_keys(
        keys: Any, out: Any, counts: Any, places: Any, n: Any, chunks: Any, shift: Any, descending: Any
    ) -> None:
        for chunk in range(chunks):
            place = tack.local_array(DIGITS, i64)
            for d in range(DIGITS):
                place[d] = places[d * chunks + chunk]
            first = chunk * chunk_length
            for j in range(min(chunk_length, n - first)):
                key = keys[first + j]
                d = digit(key, shift, descending)
                out[place[d]] = key
                place[d] += 1

    return move_keys


def _move_pairs(dtype: DType, chunk_size: int) -> Kernel:
    chunk_length = tack.constant(chunk_size)
    digit = _digit(dtype)

    @tack.kernel
    def move_pairs(
        keys: Any, values: Any, out_keys: Any, out_values: Any, counts: Any, places: Any,
        n: Any, chunks: Any, shift: Any, descending: Any,
    ) -> None:  # fmt: skip
        for chunk in range(chunks):
            place = tack.local_array(DIGITS, i64)
            for d in range(DIGITS):
                place[d] = places[d * chunks + chunk]
            first = chunk * chunk_length
            for j in range(min(chunk_length, n - first)):
                key = keys[first + j]
                d = digit(key, shift, descending)
                out_keys[place[d]] = key
                out_values[place[d]] = values[first + j]
                place[d] += 1

    return move_pairs


@tack.func
def _starts(place: Any, counts: Any, chunk: Any, chunks: Any) -> None:
    """Where the elements of each digit start in the chunk."""
    total = 0
    for d in range(DIGITS):
        place[d] = total
        total += i32(counts[d * chunks + chunk])


@tack.func
def _write_runs(out: Any, staged: Any, place: Any, places: Any, chunk: Any, chunks: Any) -> None:
    """Write each digit's elements, which end at ``place[d]``, where those of the chunk belong."""
    start = 0
    for d in range(DIGITS):
        to = i64(places[d * chunks + chunk]) - start
        for k in range(start, place[d]):
            out[to + k] = staged[k]
        start = place[d]


def _stage_keys(dtype: DType, chunk_size: int) -> Kernel:
    chunk_length = tack.constant(chunk_size)
    find_digits, digit_at = _digits(dtype)

    @tack.kernel
    def stage_keys(
        keys: Any, out: Any, counts: Any, places: Any, n: Any, chunks: Any, shift: Any, descending: Any
    ) -> None:
        for chunk in range(chunks):
            staged = tack.local_array(chunk_length, dtype)
            digits = tack.local_array(chunk_length, u8)
            place = tack.local_array(DIGITS, i32)
            _starts(place, counts, chunk, chunks)
            first = chunk * chunk_length
            length = min(chunk_length, n - first)
            find_digits(digits, keys, first, length, shift, descending)
            for j in range(length):
                key = keys[first + j]
                d = digit_at(digits, j, key, shift, descending)
                staged[place[d]] = key
                place[d] += 1
            _write_runs(out, staged, place, places, chunk, chunks)

    return stage_keys


def _stage_pairs(dtype: DType, value_dtype: DType, chunk_size: int) -> Kernel:
    chunk_length = tack.constant(chunk_size)
    find_digits, digit_at = _digits(dtype)

    @tack.kernel
    def stage_pairs(
        keys: Any, values: Any, out_keys: Any, out_values: Any, counts: Any, places: Any,
        n: Any, chunks: Any, shift: Any, descending: Any,
    ) -> None:  # fmt: skip
        for chunk in range(chunks):
            staged_keys = tack.local_array(chunk_length, dtype)
            staged_values = tack.local_array(chunk_length, value_dtype)
            digits = tack.local_array(chunk_length, u8)
            place = tack.local_array(DIGITS, i32)
            _starts(place, counts, chunk, chunks)
            first = chunk * chunk_length
            length = min(chunk_length, n - first)
            find_digits(digits, keys, first, length, shift, descending)
            for j in range(length):
                key = keys[first + j]
                d = digit_at(digits, j, key, shift, descending)
                staged_keys[place[d]] = key
                staged_values[place[d]] = values[first + j]
                place[d] += 1
            _write_runs(out_keys, staged_keys, place, places, chunk, chunks)
            _write_runs(out_values, staged_values, place, places, chunk, chunks)

    return stage_pairs


@cache
def chunk_kernel(dtype: DType, chunk_size: int, with_values: bool) -> Kernel:
    """Sorts a single chunk of keys, and values with them, by one iteration: all passes in one launch."""
    chunk_length = tack.constant(chunk_size)
    passes = tack.constant(dtype.itemsize)
    bins = tack.constant(dtype.itemsize * int(DIGITS))
    find_digits, digit_at = _digits(dtype)

    @tack.func
    def find_starts(place: Any, keys: Any, n: Any, descending: Any) -> None:
        digits = tack.local_array(chunk_length, u8)
        for d in range(bins):
            place[d] = 0
        for number in range(passes):
            find_digits(digits, keys, 0, n, 8 * number, descending)
            for j in range(n):
                place[number * DIGITS + digit_at(digits, j, keys[j], 8 * number, descending)] += 1
            total = 0
            for d in range(DIGITS):
                count = place[number * DIGITS + d]
                place[number * DIGITS + d] = total
                total += count

    @tack.func
    def move_keys(keys: Any, out: Any, place: Any, n: Any, number: Any, descending: Any) -> None:
        digits = tack.local_array(chunk_length, u8)
        find_digits(digits, keys, 0, n, 8 * number, descending)
        for j in range(n):
            key = keys[j]
            bin = number * DIGITS + digit_at(digits, j, key, 8 * number, descending)
            out[place[bin]] = key
            place[bin] += 1

    @tack.func
    def move_pairs(
        keys: Any, values: Any, out: Any, out_values: Any, place: Any, n: Any, number: Any, descending: Any
    ) -> None:
        digits = tack.local_array(chunk_length, u8)
        find_digits(digits, keys, 0, n, 8 * number, descending)
        for j in range(n):
            key = keys[j]
            bin = number * DIGITS + digit_at(digits, j, key, 8 * number, descending)
            out[place[bin]] = key
            out_values[place[bin]] = values[j]
            place[bin] += 1

    @tack.kernel
    def sort_keys(keys: Any, out: Any, spare: Any, n: Any, descending: Any) -> None:
        for _ in range(1):
            place = tack.local_array(bins, i32)
            find_starts(place, keys, n, descending)
            if passes == 1:
                move_keys(keys, out, place, n, 0, descending)
            else:
                move_keys(keys, spare, place, n, 0, descending)
                for k in range(1, passes - 1, 2):
                    move_keys(spare, out, place, n, k, descending)
                    move_keys(out, spare, place, n, k + 1, descending)
                move_keys(spare, out, place, n, passes - 1, descending)

    @tack.kernel
    def sort_pairs(
        keys: Any, values: Any, out: Any, out_values: Any, spare: Any, spare_values: Any,
        n: Any, descending: Any,
    ) -> None:  # fmt: skip
        for _ in range(1):
            place = tack.local_array(bins, i32)
            find_starts(place, keys, n, descending)
            if passes == 1:
                move_pairs(keys, values, out, out_values, place, n, 0, descending)
            else:
                move_pairs(keys, values, spare, spare_values, place, n, 0, descending)
                for k in range(1, passes - 1, 2):
                    move_pairs(spare, spare_values, out, out_values, place, n, k, descending)
                    move_pairs(out, out_values, spare, spare_values, place, n, k + 1, descending)
                move_pairs(spare, spare_values, out, out_values, place, n, passes - 1, descending)

    return sort_pairs if with_values else sort_keys


def _digit(dtype: DType) -> Func:
    """The device function that gives eight bits of a key, from ``shift`` on."""
    ordered = ordered_key(dtype)

    @tack.func
    def digit(value: Any, shift: Any, descending: Any) -> Any:
        return i32((ordered(value, descending) >> shift) & 255)

    return digit


def _digits(dtype: DType) -> tuple[Func, Func]:
    """What finds the digits of a part of the keys, and what gives one of them.

    Those of floats take ten instructions, of which vector units do many at once. Those of integers are found
    one by one, since storing them would take longer.
    """
    digit = _digit(dtype)

    @tack.func
    def find_all(digits: Any, keys: Any, first: Any, count: Any, shift: Any, descending: Any) -> None:
        for j in range(count):
            digits[j] = digit(keys[first + j], shift, descending)

    @tack.func
    def find_none(digits: Any, keys: Any, first: Any, count: Any, shift: Any, descending: Any) -> None:
        return

    @tack.func
    def found(digits: Any, j: Any, key: Any, shift: Any, descending: Any) -> Any:
        return i32(digits[j])

    @tack.func
    def computed(digits: Any, j: Any, key: Any, shift: Any, descending: Any) -> Any:
        return digit(key, shift, descending)

    return (find_all, found) if dtype.is_float else (find_none, computed)


def ordered_key(dtype: DType) -> Func:
    """The device function that maps a number to an unsigned integer in the same order, NaN to the last."""
    unsigned = UNSIGNED[dtype.bits]
    sign = tack.constant(1 << (dtype.bits - 1))
    greatest = tack.constant(unsigned.max)
    signed = SIGNED[dtype.bits]
    magnitude = tack.constant(signed.max)
    last_bit = tack.constant(dtype.bits - 1)
    infinity = tack.constant(_INFINITY.get(dtype, 0))

    @tack.func
    def unsigned_key(value: Any, descending: Any) -> Any:
        return ~value if descending else value

    @tack.func
    def signed_key(value: Any, descending: Any) -> Any:
        key = unsigned(unsigned(value) ^ unsigned(sign))
        return ~key if descending else key

    @tack.func
    def float_key(value: Any, descending: Any) -> Any:
        bits = tack.bitcast(value, unsigned)
        negative = unsigned(tack.bitcast(bits, signed) >> last_bit)  # all bits, or none
        key = unsigned(bits ^ (negative | unsigned(sign)))
        if bits == unsigned(sign):  # -0.0 is 0.0
            key = unsigned(sign)
        if descending:
            key = ~key
        return unsigned(greatest) if (bits & unsigned(magnitude)) > unsigned(infinity) else key

    if dtype.is_float:
        return float_key
    return signed_key if dtype.is_signed else unsigned_key
