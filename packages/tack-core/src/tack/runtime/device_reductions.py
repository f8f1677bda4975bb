"""Reductions of whole arrays on devices with workgroups, as Tack kernels.

Each iteration reduces every n-th element, each workgroup its iterations, and NumPy the workgroups'
values. How many there are depends on the array's size alone, so the same array gives the same bits on
every run. What the results are is said in `tack.runtime.reductions`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tack import block_max, block_min, block_sum, isfinite, thread_id
from tack.constants import constant
from tack.dtypes import DType, f32, f64, i32, i64, u64
from tack.ir.workgroups import WORKGROUP
from tack.lang.kernel import Kernel, func, kernel
from tack.runtime.array import Array, new_array
from tack.runtime.reductions import combine_sums, exact_sum, extreme

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.backend import Backend, Number

__all__ = ["reduce_on_device"]

# Enough groups to keep the memory of the largest devices busy, and few enough for the host to combine.
_MAX_GROUPS = 4096
_ELEMENTS = 8  # of each iteration, before there are more groups

_SIGNED = {4: i32, 8: i64}


def reduce_on_device(backend: Backend, array: Array, op: str) -> Number:
    """``tack.runtime.reductions.reduce`` of a non-empty array of scalars: waits for the result."""
    x = array.ravel()
    if op in ("min", "max"):
        return extreme(_extremes(backend, x), op)
    if array.scalar.is_float:
        (sums,) = _partials(backend, _sum_f32 if array.scalar is f32 else _sum_f64, x, f64, 1)
        total = combine_sums(sums)
        return total / array.size if op == "mean" else total
    if x.itemsize < 8:
        exact = exact_sum(_partials(backend, _sum_integers, x, i64, 1)[0])
    else:
        low, high = _partials(backend, _sum_halves, x, i64, 2)
        exact = exact_sum(low) + (exact_sum(high) << 32)
    if op == "mean":
        return exact / array.size
    return (i64 if array.scalar.is_signed else u64).wrap(exact)


def _partials(backend: Backend, kernel: Kernel, x: Array, dtype: DType, count: int) -> NDArray[Any]:
    """``count`` rows of what the workgroups of ``kernel`` give for ``x``."""
    groups = min(-(-x.size // (WORKGROUP * _ELEMENTS)), _MAX_GROUPS)
    out = new_array(backend, dtype, (count, groups))
    backend.execute(kernel, (x, x.size, *(out[k : k + 1].ravel() for k in range(count)), groups * WORKGROUP))
    return out.numpy()


def _extremes(backend: Backend, x: Array) -> NDArray[Any]:
    """Values of the array that have its minimum and maximum, and a NaN if it has one."""
    if not x.scalar.is_float:
        wide = i32 if x.itemsize < 4 else x.scalar
        return _partials(backend, _extremes_in(wide), x, x.scalar, 2).reshape(-1)
    bits = _SIGNED[x.itemsize]
    as_bits = Array(x._backend, x._buffer, bits, x.shape, offset=x._offset)
    keys = _partials(backend, _float_extremes(bits), as_bits, bits, 2).reshape(-1)
    keys ^= (keys >> (bits.bits - 1)) & bits.numpy.type(bits.max)
    return keys.view(x.scalar.numpy)


@kernel
def _sum_f32(x: Any, n: Any, sums: Any, iterations: Any) -> None:
    """In double precision."""
    for i in range(iterations):
        total = f64(0)
        for k in range(i, n, iterations):
            total += f64(x[k])
        total = block_sum(total)
        if thread_id() == 0:
            sums[i // 256] = total


@kernel
def _sum_f64(x: Any, n: Any, sums: Any, iterations: Any) -> None:
    """With the rounding error of each addition added up beside the sum."""
    for i in range(iterations):
        total = f64(0)
        error = f64(0)
        for k in range(i, n, iterations):
            value = x[k]
            after = total + value
            added = after - total
            error += (total - (after - added)) + (value - added)
            total = after
        total = block_sum(total)
        error = block_sum(error)
        # After an overflow the errors are NaN, and the sum is right as it is.
        if thread_id() == 0:
            sums[i // 256] = total + error if isfinite(error) else total


@kernel
def _sum_integers(x: Any, n: Any, sums: Any, iterations: Any) -> None:
    for i in range(iterations):
        total = i64(0)
        for k in range(i, n, iterations):
            total += i64(x[k])
        total = block_sum(total)
        if thread_id() == 0:
            sums[i // 256] = total


@kernel
def _sum_halves(x: Any, n: Any, low: Any, high: Any, iterations: Any) -> None:
    """Of 64-bit integers, whose sum may need more bits."""
    for i in range(iterations):
        lower = i64(0)
        upper = i64(0)
        for k in range(i, n, iterations):
            value = x[k]
            lower += i64(value & 0xFFFFFFFF)
            upper += i64(value >> 32)
        lower = block_sum(lower)
        upper = block_sum(upper)
        if thread_id() == 0:
            low[i // 256] = lower
            high[i // 256] = upper


@cache
def _extremes_in(wide: DType) -> Kernel:
    """A kernel that compares integers in the type ``wide``, which workgroups can reduce."""

    @kernel
    def extremes(x: Any, n: Any, least: Any, most: Any, iterations: Any) -> None:
        for i in range(iterations):
            low = wide(x[min(i, n - 1)])
            high = low
            for k in range(i, n, iterations):
                value = wide(x[k])
                low = min(low, value)
                high = max(high, value)
            low = block_min(low)
            high = block_max(high)
            if thread_id() == 0:
                least[i // 256] = low
                most[i // 256] = high

    return extremes


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

    @kernel
    def float_extremes(x: Any, n: Any, least: Any, most: Any, iterations: Any) -> None:
        for i in range(iterations):
            low = key(x[min(i, n - 1)])
            high = low
            for k in range(i, n, iterations):
                value = key(x[k])
                low = min(low, value)
                high = max(high, value)
            low = block_min(low)
            high = block_max(high)
            if thread_id() == 0:
                least[i // 256] = low
                most[i // 256] = high

    return float_extremes
