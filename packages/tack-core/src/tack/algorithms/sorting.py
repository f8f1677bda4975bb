"""Stable radix sort, eight bits of the key at a time, from the lowest.

Each pass counts the digits in every chunk, scans the counts, digit by digit and in it chunk by chunk, and
moves each element to the place that its digit and its chunk have reached.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tack
from tack.algorithms.common import (
    apart,
    as_array,
    block_count,
    index_dtype,
    prefix,
    result_array,
    same_device,
)
from tack.algorithms.groups.sort import RadixSort
from tack.algorithms.indexing import gather
from tack.algorithms.radix import (
    DIGITS,
    UNSIGNED,
    bits_kernel,
    chunk_kernel,
    chunk_size,
    count_kernel,
    move_kernel,
)
from tack.algorithms.scans import scan
from tack.dtypes import DType

__all__ = ["argsort", "sort", "sort_by_key"]


def sort(x: Any, *, descending: bool = False, n: int | None = None, out: Any = None) -> tack.Array:
    """The first ``n`` elements of ``x`` in order, 1-D; NaNs come last, also if ``descending``.

    Equal elements, such as 0.0 and -0.0, keep their order. ``out`` may be, or overlap, ``x``.
    """
    source = as_array("sort", "x", x)
    count = prefix("sort", source.size, n)
    result = result_array("sort", out, count, source.dtype, source)
    _sort([source], [result], count, descending)
    return result


def argsort(x: Any, *, descending: bool = False, n: int | None = None) -> tack.Array:
    """The indices that sort the first ``n`` elements of ``x`` as `sort` does, equal elements in order.

    They are i32, or i64 for more than 2^31 - 1 elements.
    """
    source = as_array("argsort", "x", x)
    count = prefix("argsort", source.size, n)
    indices = _numbers(count, source)
    sorted_keys = tack.empty(count, source.dtype, device=source.device)
    _sort([source, indices], [sorted_keys, indices], count, descending)
    return indices


def sort_by_key(
    keys: Any,
    values: Any,
    *,
    descending: bool = False,
    n: int | None = None,
    out: tuple[Any, Any] | None = None,
) -> tuple[tack.Array, tack.Array]:
    """The first ``n`` keys in the order of `sort`, and the values that belong to them, both 1-D.

    Args:
        values: as many numbers, vectors or matrices as there are keys.
        out: two arrays that take the results; they may be ``keys`` and ``values``. None for one makes it.
    """
    function = "sort_by_key"
    source = as_array(function, "keys", keys)
    payload = as_array(function, "values", values, vectors=True)
    if payload.size != source.size:
        raise ValueError(f"{function}: there are {source.size} keys and {payload.size} values")
    same_device(function, "values", payload, source)
    count = prefix(function, source.size, n)
    out_keys, out_values = (None, None) if out is None else _pair(function, out)
    sorted_keys = result_array(function, out_keys, count, source.dtype, source, name="out[0]")
    sorted_values = result_array(function, out_values, count, payload.dtype, source, name="out[1]")
    if payload.components:  # moved once
        order = _numbers(count, source)
        payload = apart(payload, sorted_keys)
        _sort([source, order], [sorted_keys, order], count, descending)
        gather(payload, order, out=sorted_values)
    else:
        _sort([source, payload], [sorted_keys, sorted_values], count, descending)
    return sorted_keys, sorted_values


def _pair(function: str, out: object) -> tuple[Any, Any]:
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise TypeError(f"{function}: out is a pair of arrays, for the keys and for the values")
    return out[0], out[1]


def _sort(arrays: list[tack.Array], outs: list[tack.Array], n: int, descending: bool) -> None:
    """Sort the first ``n`` keys, and values if given, into ``outs``, which may be the same arrays."""
    if n == 0:
        return
    keys = arrays[0]
    value_dtype = arrays[1].scalar if len(arrays) > 1 else None
    fast = keys._backend.iteration_cache
    length = chunk_size(sum(a.itemsize for a in arrays), fast)
    if fast and n <= length:
        arrays, spares = _room(arrays, outs, n, keys.itemsize)
        kernel = chunk_kernel(keys.scalar, length, value_dtype is not None)
        kernel(*arrays, *outs, *spares, n, int(bool(descending)))
        return
    method = RadixSort if keys._backend.prefers_workgroups else ChunkedSort
    sorting = method(keys, value_dtype, n, descending)
    passes = sorting.digits
    arrays, spares = _room(arrays, outs, n, len(passes))
    if not passes:  # all keys are alike
        for a, out in zip(arrays, outs, strict=True):
            tack.copyto(out, a[:n])
    for k, number in enumerate(passes):
        to = outs if (len(passes) - k) % 2 else spares  # the last pass writes to outs
        sorting.move(arrays, to, number)
        arrays = to


def _room(
    arrays: list[tack.Array], outs: list[tack.Array], n: int, passes: int
) -> tuple[list[tack.Array], list[tack.Array]]:
    """Arrays to begin with, and spare ones: no pass moves elements to where it reads them."""
    if passes % 2 or not passes:  # the first thing is to write to outs
        arrays = [apart(a, *outs) for a in arrays]
    if passes < 2:
        return arrays, outs
    return arrays, [tack.empty(n, a.dtype, device=a.device) for a in arrays]


class ChunkedSort:
    """The passes over ``n`` > 0 keys, and values with them if there are any, by iterations for chunks.

    Attributes:
        digits: the numbers of those in which keys differ.
    """

    def __init__(self, keys: tack.Array, value_dtype: DType | None, n: int, descending: bool) -> None:
        fast = keys._backend.iteration_cache
        self.n, self.descending = n, int(bool(descending))
        length = chunk_size(keys.itemsize + (value_dtype.itemsize if value_dtype else 0), fast)
        self.chunks = -(-n // length)
        self.counts = tack.empty(self.chunks * int(DIGITS), index_dtype(n), device=keys.device)
        self.places = tack.empty_like(self.counts)
        self.count = count_kernel(keys.scalar, length)
        self.kernel = move_kernel(keys.scalar, value_dtype, length, fast > 0)
        bits = self._differing(keys)
        self.digits = [k for k in range(keys.itemsize) if bits >> 8 * k & 255]

    def _differing(self, keys: tack.Array) -> int:
        """The bits of keys that are not alike in all of them."""
        blocks = block_count(self.n)
        unsigned = UNSIGNED[keys.scalar.bits]
        union, common = (tack.empty(blocks, unsigned, device=keys.device) for _ in range(2))
        bits_kernel(keys.scalar)(keys, union, common, self.n, blocks, self.descending)
        return int(np.bitwise_or.reduce(union.host_values()) & ~np.bitwise_and.reduce(common.host_values()))

    def move(self, arrays: list[tack.Array], outs: list[tack.Array], number: int) -> None:
        """Sort ``arrays`` by the digit of a pass into ``outs``, which must not overlap them."""
        about = (self.n, self.chunks, 8 * number, self.descending)
        self.count(arrays[0], self.counts, *about)
        scan(self.counts, self.places, self.counts.size, "sum", True)
        self.kernel(*arrays, *outs, self.counts, self.places, *about)


def _numbers(n: int, like: tack.Array) -> tack.Array:
    """0, 1, ..., n - 1."""
    out = tack.empty(n, index_dtype(n), device=like.device)
    _count_up(out, n)
    return out


@tack.kernel
def _count_up(out: Any, n: Any) -> None:
    for i in range(n):
        out[i] = i
