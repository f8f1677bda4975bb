"""Statistics of all elements. Sums accumulate in f64, as accurately as pairwise, and in i64 for integers."""

from __future__ import annotations

import math
import numbers
from functools import cache
from typing import Any

import numpy as np

import tack
from tack.algorithms.common import BLOCK, accumulator, as_array, block_count, prefix, same_device
from tack.algorithms.groups.reduce import sum_terms
from tack.algorithms.selection import as_mask, count_blocks
from tack.dtypes import DType, f32, f64, i64
from tack.lang.kernel import Func, Kernel

__all__ = ["absmax", "count_nonzero", "dot", "norm", "std", "var"]

# A block's sum is one of sums of PART elements, which keeps rounding errors near those of pairwise summation.
PART = tack.constant(256)
PARTS = tack.constant(4096 // 256)


def var(x: Any, *, ddof: float = 0, n: int | None = None) -> float:
    """The variance of the first ``n`` elements: squared distances from the mean, divided by n - ``ddof``.

    NaN if n <= ``ddof``.
    """
    return _variance("var", x, ddof, n)


def std(x: Any, *, ddof: float = 0, n: int | None = None) -> float:
    """The standard deviation, the square root of `var`."""
    return math.sqrt(_variance("std", x, ddof, n))


def _variance(function: str, x: Any, ddof: float, n: int | None) -> float:
    source = as_array(function, "x", x)
    count = prefix(function, source.size, n)
    if not isinstance(ddof, numbers.Real):
        raise TypeError(f"{function}: ddof is a number, not {type(ddof).__name__}")
    if not count > ddof:
        return math.nan
    calm, unit = _calm(source, count)
    return _sum(_squared_distance, calm, calm, count, calm[:count].mean()) * unit * unit / (count - ddof)


def norm(x: Any, order: float = 2, *, n: int | None = None) -> float:
    """The 1-, 2- or infinity-norm (``math.inf``) of the first ``n`` elements; 0 for none."""
    if np.ndim(order) or order not in (1, 2, math.inf):
        raise ValueError(f"norm: order is 1, 2 or math.inf, not {order!r}")
    source = as_array("norm", "x", x)
    count = prefix("norm", source.size, n)
    if order == math.inf:
        return float(absmax(source, n=count)) if count else 0.0
    if order == 1:
        return _sum(_magnitude, source, source, count)
    calm, unit = _calm(source, count)
    return math.sqrt(_sum(_product, calm, calm, count)) * unit


def absmax(x: Any, *, n: int | None = None) -> float | int:
    """The greatest magnitude among the first ``n`` elements; NaN if there is one.

    Raises:
        ValueError: there are no elements.
    """
    source = as_array("absmax", "x", x)
    part = source[: prefix("absmax", source.size, n)]
    if not part.size:
        raise ValueError("absmax: of no elements")
    low, high = part.min(), part.max()
    return abs(low) if low != low else max(abs(low), abs(high))  # type: ignore[no-any-return]


def dot(x: Any, y: Any, *, n: int | None = None) -> float | int:
    """The sum of products ``x[i] * y[i]`` of the first ``n`` elements.

    Of integers it is an int, modulo 2^64.

    Raises:
        TypeError: one has signed integers and the other u64.
    """
    left, right = as_array("dot", "x", x), as_array("dot", "y", y)
    if left.size != right.size:
        raise ValueError(f"dot: x has {left.size} elements, y has {right.size}")
    same_device("dot", "y", right, left)
    count = prefix("dot", left.size, n)
    if left.scalar.is_float or right.scalar.is_float:
        return _sum(_product, left, right, count)
    wide = accumulator(left, "sum")
    if accumulator(right, "sum") is not wide:
        if "u64" in (left.scalar.name, right.scalar.name):
            raise TypeError(f"dot: x is of {left.dtype}, y of {right.dtype}; convert one with tack.asarray")
        wide = i64
    return int(_block_sums(_product, left, right, count, wide).sum())


def count_nonzero(x: Any, *, n: int | None = None) -> int:
    """How many of the first ``n`` elements are not zero; NaN is not."""
    source = as_mask("count_nonzero", x, "x")
    return int(count_blocks(source, prefix("count_nonzero", source.size, n)).sum())


def _calm(x: tack.Array, n: int) -> tuple[tack.Array, float]:
    """Numbers whose squares can be added up where a device has no f64, and what they are multiples of."""
    if x._backend.supports_f64 or not n:
        return x, 1.0
    greatest = absmax(x, n=n)
    if not 0 < greatest < math.inf or 2.0**-40 < greatest < 2.0**40:
        return x, 1.0
    unit = math.ldexp(1.0, max(-100, min(100, math.frexp(greatest)[1])))  # f32 holds it and its reciprocal
    out = tack.empty(n, f32, device=x.device)
    _multiply(x, out, 1 / unit, n)
    return out, unit


@tack.kernel
def _multiply(x: Any, out: Any, by: Any, n: Any) -> None:
    for i in range(n):
        out[i] = f32(x[i]) * f32(by)


def _sum(term: Func, x: tack.Array, y: tack.Array, n: int, shift: float = 0.0) -> float:
    """The sum of ``term(x[i], y[i], shift)`` in floating point."""
    wide = f64 if x._backend.supports_f64 else f32
    return float(np.sum(_block_sums(term, x, y, n, wide, shift).host_values(), dtype=np.float64))


def _block_sums(
    term: Func, x: tack.Array, y: tack.Array, n: int, wide: DType, shift: float = 0.0
) -> tack.Array:
    """The sum of each block, or of what each workgroup takes, of ``wide`` numbers."""
    if x._backend.prefers_workgroups:
        return sum_terms(term, x, y, n, wide, shift)
    sums = tack.empty(block_count(n), wide, device=x.device)
    _sum_kernel(term, wide)(x, y, sums, shift, n, sums.size)
    return sums


@cache
def _sum_kernel(term: Func, wide: DType) -> Kernel:
    @tack.kernel(fastmath=True)  # so that sums vectorize
    def block_sums(x: Any, y: Any, sums: Any, shift: Any, n: Any, blocks: Any) -> None:
        for block in range(blocks):
            total = wide(0)
            for part in range(PARTS):
                first = block * BLOCK + part * PART
                subtotal = wide(0)
                for j in range(min(PART, n - first)):
                    subtotal += term(wide(x[first + j]), wide(y[first + j]), wide(shift))
                total += subtotal
            sums[block] = total

    return block_sums


@tack.func
def _product(a: Any, b: Any, shift: Any) -> Any:
    return a * b


@tack.func
def _magnitude(a: Any, b: Any, shift: Any) -> Any:
    return abs(a)


@tack.func
def _squared_distance(a: Any, b: Any, shift: Any) -> Any:
    return (a - shift) * (a - shift)
