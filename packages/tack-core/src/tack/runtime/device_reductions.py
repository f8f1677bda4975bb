"""Reductions of whole arrays on devices with workgroups, as Tack kernels.

Each iteration reduces every n-th element, each workgroup its iterations, and NumPy the workgroups'
values. How many there are depends on the array's size alone, so the same array gives the same bits on
every run. What the results are is said in `tack.runtime.reductions`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tack import barrier, block_max, block_min, block_sum, isfinite, shared, thread_id
from tack.constants import constant
from tack.dtypes import DType, f32, f64, i32, i64, u64
from tack.ir.workgroups import WORKGROUP
from tack.lang.kernel import Kernel, func, kernel
from tack.runtime.array import Array
from tack.runtime.reductions import combine_sums, exact_sum, extreme

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.backend import Number

__all__ = ["reduce_on_device"]

# Enough groups to keep the memory of the largest devices busy, and few enough for the host to combine.
_MAX_GROUPS = 4096
# How many elements an iteration has in flight at once.
BATCH = constant(8)

_SIGNED = {4: i32, 8: i64}


def reduce_on_device(array: Array, op: str) -> Number:
    """``tack.runtime.reductions.reduce`` of a non-empty array of scalars: waits for the result."""
    if op in ("min", "max"):
        return extreme(_extremes(array), op)
    if array.scalar.is_float:
        if array.scalar is f64:
            parts = _partials(_sum_f64, array, f64, 1)
        elif array._backend.supports_f64:
            parts = _partials(_sum_in(f64), array, f64, 1)
        else:
            parts = _partials(_sum_pairs, array, f32, 2)
        total = combine_sums(parts)
        return total / array.size if op == "mean" else total
    if array.itemsize < 8:
        exact = exact_sum(_partials(_sum_in(i64), array, i64, 1))
    else:
        low, high = _partials(_sum_halves, array, i64, 2).reshape(2, -1)
        exact = exact_sum(low) + (exact_sum(high) << 32)
    if op == "mean":
        return exact / array.size
    return (i64 if array.scalar.is_signed else u64).wrap(exact)


def _partials(kernel: Kernel, array: Array, dtype: DType, count: int) -> NDArray[Any]:
    """What the workgroups of ``kernel`` give for ``array``: ``count`` values each, kind by kind."""
    x = array if array.ndim == 1 else array.ravel()
    groups = min(-(-x.size // (WORKGROUP * int(BATCH))), _MAX_GROUPS)
    iterations = groups * WORKGROUP
    batched = x.size - x.size % (iterations * int(BATCH))
    out = x._backend.scratch(dtype, count * groups)
    kernel(x, batched, x.size, out, iterations)
    return out.numpy()


def _extremes(array: Array) -> NDArray[Any]:
    """Values of the array that have its minimum and maximum, and a NaN if it has one."""
    if not array.scalar.is_float:
        wide = i32 if array.itemsize < 4 else array.scalar
        return _partials(_extremes_in(wide), array, array.scalar, 2)
    bits = _SIGNED[array.itemsize]
    as_bits = Array(array._backend, array._buffer, bits, (array.size,), offset=array._offset)
    keys = _partials(_float_extremes(bits), as_bits, bits, 2)
    keys ^= (keys >> (bits.bits - 1)) & bits.numpy.type(bits.max)
    return keys.view(array.scalar.numpy)


# Each kernel takes the array, how many of its elements are read in whole batches, its size, what receives
# the workgroups' values, and the number of iterations.


@cache
def _sum_in(wide: DType) -> Kernel:
    """A kernel that adds up in the type ``wide``."""

    @kernel
    def sums(x: Any, batched: Any, n: Any, out: Any, iterations: Any) -> None:
        for i in range(iterations):
            total = wide(0)
            for first in range(i, batched, BATCH * iterations):
                for k in range(BATCH):
                    total += wide(x[first + k * iterations])
            for k in range(batched + i, n, iterations):
                total += wide(x[k])
            total = block_sum(total)
            if thread_id() == 0:
                out[i // 256] = total

    return sums


@func
def _added(total: Any, error: Any, value: Any) -> Any:
    """A sum and its rounding errors with ``value`` added, after D. E. Knuth's two-sum."""
    after = total + value
    added = after - total
    return after, error + ((total - (after - added)) + (value - added))


@kernel
def _sum_f64(x: Any, batched: Any, n: Any, sums: Any, iterations: Any) -> None:
    """With the rounding error of each addition added up beside the sum."""
    for i in range(iterations):
        total = f64(0)
        error = f64(0)
        for first in range(i, batched, BATCH * iterations):
            for k in range(BATCH):
                total, error = _added(total, error, x[first + k * iterations])
        for k in range(batched + i, n, iterations):
            total, error = _added(total, error, x[k])
        total = block_sum(total)
        error = block_sum(error)
        # After an overflow the errors are NaN, and the sum is right as it is.
        if thread_id() == 0:
            sums[i // 256] = total + error if isfinite(error) else total


@kernel
def _sum_pairs(x: Any, batched: Any, n: Any, sums: Any, iterations: Any) -> None:
    """Of f32 on devices without f64: sums and their rounding errors, also across the workgroup."""
    for i in range(iterations):
        totals = shared(256, f32)
        errors = shared(256, f32)
        total = f32(0)
        error = f32(0)
        for first in range(i, batched, BATCH * iterations):
            for k in range(BATCH):
                total, error = _added(total, error, x[first + k * iterations])
        for k in range(batched + i, n, iterations):
            total, error = _added(total, error, x[k])
        lane = thread_id()
        totals[lane] = total
        errors[lane] = error
        barrier()
        for step in range(8):
            other = lane + (128 >> step)
            if other < 256 >> step:
                total, error = _added(totals[lane], errors[lane] + errors[other], totals[other])
                totals[lane] = total
                errors[lane] = error
            barrier()
        if lane == 0:
            sums[i // 256] = total
            # After an overflow the errors are NaN, and the sum is right as it is.
            sums[(i + iterations) // 256] = error if isfinite(error) else f32(0)


@func
def _halves(low: Any, high: Any, value: Any) -> Any:
    return low + i64(value & 0xFFFFFFFF), high + i64(value >> 32)


@kernel
def _sum_halves(x: Any, batched: Any, n: Any, sums: Any, iterations: Any) -> None:
    """Of 64-bit integers, whose sum may need more bits."""
    for i in range(iterations):
        low = i64(0)
        high = i64(0)
        for first in range(i, batched, BATCH * iterations):
            for k in range(BATCH):
                low, high = _halves(low, high, x[first + k * iterations])
        for k in range(batched + i, n, iterations):
            low, high = _halves(low, high, x[k])
        low = block_sum(low)
        high = block_sum(high)
        if thread_id() == 0:
            sums[i // 256] = low
            sums[(i + iterations) // 256] = high


@cache
def _extremes_in(wide: DType) -> Kernel:
    """A kernel that compares integers in the type ``wide``, which workgroups can reduce."""

    @func
    def widened(value: Any) -> Any:
        return wide(value)

    return _extremes_of(widened)


@cache
def _float_extremes(bits: DType) -> Kernel:
    """A kernel on the bits of floats, read as signed integers.

    With the magnitude of negative ones inverted, the integers are in the order of the floats, -0.0
    before 0.0, and NaNs come first and last. So one of the two is a NaN if there is any.
    """
    sign, magnitude = constant(bits.bits - 1), constant(bits.max)

    @func
    def key(value: Any) -> Any:
        return value ^ ((value >> sign) & magnitude)

    return _extremes_of(key)


def _extremes_of(key: Any) -> Kernel:
    """A kernel that finds the least and the greatest of what ``key`` makes of the elements."""

    @kernel
    def extremes(x: Any, batched: Any, n: Any, found: Any, iterations: Any) -> None:
        for i in range(iterations):
            low = key(x[min(i, n - 1)])
            high = low
            for first in range(i, batched, BATCH * iterations):
                for k in range(BATCH):
                    value = key(x[first + k * iterations])
                    low = min(low, value)
                    high = max(high, value)
            for k in range(batched + i, n, iterations):
                value = key(x[k])
                low = min(low, value)
                high = max(high, value)
            low = block_min(low)
            high = block_max(high)
            if thread_id() == 0:
                found[i // 256] = low
                found[(i + iterations) // 256] = high

    return extremes
