"""Fills and reductions of large arrays on the CPU, as Tack kernels, so that the pool runs them.

A reduction kernel reduces each block of `BLOCK` elements to one value; NumPy combines the values of
the blocks, and reduces the elements past the last whole block. Nothing of that depends on the number
of threads, so the same array always gives the same bits. A block has a part in each quarter of the array,
because a core reads four streams at once faster than one (docs/design/cpu-code.md has figures).
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tack import isfinite, local_array
from tack.constants import constant
from tack.dtypes import DType, f32, f64, i32, i64, u8, u16, u32, u64
from tack.lang.kernel import Kernel, func, kernel
from tack.runtime.array import Array
from tack.runtime.reductions import combine_sums, exact_sum, extreme, reduce_host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.backend import Number
    from tack.runtime.cpu.backend import CpuBackend

__all__ = ["MIN_FILL", "can_compile", "fill", "reduce"]

MIN_FILL = 1 << 21  # bytes; below, starting threads costs more than they save
MIN_SUM = 1 << 16  # elements; below, NumPy is as fast
MIN_EXTREMES = 1 << 19
PART = constant(1024)  # elements that a block has in each quarter
BLOCK = 4 * int(PART)
LANES = constant(4)  # independent sums in each quarter, enough to fill the vector units
STEPS = constant(1024 // 4)

_UNSIGNED = {1: u8, 2: u16, 4: u32, 8: u64}
_SIGNED = {4: i32, 8: i64}


@cache
def can_compile() -> bool:
    """Whether the compiler is installed; without it NumPy does what these kernels do."""
    return importlib.util.find_spec("llvmlite") is not None


def fill(backend: CpuBackend, array: Array, value: np.generic) -> None:
    """Set every element of ``array`` to ``value``, of the same dtype.

    The elements are written as bits, so that values such as NaNs stay as they are.
    """
    bits = _UNSIGNED[value.itemsize]
    pattern = int(np.asarray(value).view(bits.numpy)[()])
    backend.execute(_fill, (_reinterpret(array, bits, array.size), pattern))


def reduce(array: Array, op: str) -> Number:
    """``tack.runtime.reductions.reduce`` for the CPU."""
    least = MIN_EXTREMES if op in ("min", "max") else MIN_SUM
    if array.size < least or not can_compile():
        return reduce_host(array.host_values().reshape(-1), op)
    if array.ndim > 1:
        array = array.ravel()
    blocks = array.size // BLOCK
    tail = array.host_values()[blocks * BLOCK :]
    if op in ("min", "max"):
        return extreme(np.concatenate([_extremes(array, blocks), tail]), op)
    if array.scalar.is_float:
        sums = _partials(_sum_f32 if array.scalar is f32 else _sum_f64, array, blocks, f64)
        total = combine_sums(sums[0], tail) if tail.size else combine_sums(sums[0])
        return total / array.size if op == "mean" else total
    total = _integer_sum(array, blocks) + exact_sum(tail)
    if op == "mean":
        return total / array.size
    return (i64 if array.scalar.is_signed else u64).wrap(total)


def _partials(kernel: Kernel, array: Array, blocks: int, dtype: DType, count: int = 1) -> NDArray[Any]:
    """The ``count`` values of ``dtype`` that ``kernel`` gives for each block, as (count, blocks)."""
    outs = np.empty((count, blocks), dtype.numpy)
    kernel(array, blocks * int(PART), *outs)
    return outs


def _integer_sum(array: Array, blocks: int) -> int:
    """The exact sum of the whole blocks."""
    if array.itemsize < 8:
        return exact_sum(_partials(_sum_integers, array, blocks, i64)[0])
    low, high = _partials(_sum_halves, array, blocks, i64, 2)
    return exact_sum(low) + (exact_sum(high) << 32)


def _extremes(array: Array, blocks: int) -> NDArray[Any]:
    """Values of the array that have its minimum and maximum, and a NaN if it has one."""
    if not array.scalar.is_float:
        return _partials(_integer_extremes, array, blocks, array.scalar, 2).reshape(-1)
    bits = _SIGNED[array.itemsize]
    kernel = _f32_extremes if array.scalar is f32 else _f64_extremes
    keys = _partials(kernel, _reinterpret(array, bits, array.size), blocks, bits, 2).reshape(-1)
    magnitude = bits.numpy.type(bits.max)
    keys ^= (keys >> (bits.bits - 1)) & magnitude
    return keys.view(array.scalar.numpy)


def _reinterpret(array: Array, dtype: DType, size: int) -> Array:
    """The bits of ``array`` as a 1-D array of ``dtype``."""
    return Array(array._backend, array._buffer, dtype, (size,), offset=array._offset)


@kernel
def _fill(out: Any, value: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = value


@kernel
def _sum_integers(x: Any, quarter: Any, sums: Any) -> None:
    for block in range(sums.shape[0]):
        total = i64(0)
        for i in range(PART):
            for k in range(4):
                total += i64(x[block * PART + i + k * quarter])
        sums[block] = total


@kernel
def _sum_halves(x: Any, quarter: Any, low: Any, high: Any) -> None:
    """Of 64-bit integers, whose sum may need more bits."""
    for block in range(low.shape[0]):
        lower = i64(0)
        upper = i64(0)
        for i in range(PART):
            for k in range(4):
                value = x[block * PART + i + k * quarter]
                lower += i64(value & 0xFFFFFFFF)
                upper += i64(value >> 32)
        low[block] = lower
        high[block] = upper


@kernel(fastmath=True)
def _sum_f32(x: Any, quarter: Any, sums: Any) -> None:
    """In double precision; the vector units may take the elements of a block in any order."""
    for block in range(sums.shape[0]):
        total = f64(0)
        for i in range(PART):
            first = block * PART + i
            second = first + quarter
            third = second + quarter
            total += (f64(x[first]) + f64(x[second])) + (f64(x[third]) + f64(x[third + quarter]))
        sums[block] = total


@kernel
def _sum_f64(x: Any, quarter: Any, sums: Any) -> None:
    """With the rounding error of each addition added up beside the sum."""
    for block in range(sums.shape[0]):
        total = local_array(4 * LANES, f64)
        error = local_array(4 * LANES, f64)
        for lane in range(4 * LANES):
            total[lane] = 0.0
            error[lane] = 0.0
        for step in range(STEPS):
            for k in range(4):
                for lane in range(LANES):
                    value = x[block * PART + step * LANES + lane + k * quarter]
                    before = total[k * LANES + lane]
                    after = before + value
                    added = after - before
                    error[k * LANES + lane] += (before - (after - added)) + (value - added)
                    total[k * LANES + lane] = after
        result = f64(0)
        rest = f64(0)
        for lane in range(4 * LANES):
            result += total[lane]
            rest += error[lane]
        # After an overflow the errors are NaN, and the sum is right as it is.
        sums[block] = result + rest if isfinite(rest) else result


@kernel
def _integer_extremes(x: Any, quarter: Any, least: Any, most: Any) -> None:
    for block in range(least.shape[0]):
        low = x[block * PART]
        high = low
        for i in range(PART):
            for k in range(4):
                value = x[block * PART + i + k * quarter]
                low = min(low, value)
                high = max(high, value)
        least[block] = low
        most[block] = high


def _float_extremes(sign: int, magnitude: int) -> Kernel:
    """A kernel on the bits of floats, read as signed integers.

    With the magnitude of negative ones inverted, the integers are in the order of the floats, -0.0
    before 0.0, and NaNs come first and last. So one of the two is a NaN if there is any.
    """

    @func
    def key(bits: Any) -> Any:
        return bits ^ ((bits >> sign) & magnitude)

    @kernel
    def float_extremes(bits: Any, quarter: Any, least: Any, most: Any) -> None:
        for block in range(least.shape[0]):
            low = key(bits[block * PART])
            high = low
            for i in range(PART):
                for k in range(4):
                    value = key(bits[block * PART + i + k * quarter])
                    low = min(low, value)
                    high = max(high, value)
            least[block] = low
            most[block] = high

    return float_extremes


_f32_extremes = _float_extremes(constant(31), constant(i32.max))
_f64_extremes = _float_extremes(constant(63), constant(i64.max))
