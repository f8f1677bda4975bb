"""Powers: ``x^y = 2^(y log2 x)``, with the exponent in more digits than the result has.

In f64 that takes a logarithm and a product as sums of two floats, since an error of the exponent becomes a
relative error of the result that is up to a thousand times as large. Source of the arithmetic on
such sums: Dekker, Numerische Mathematik 18 (1971).
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

from tack.codegen.llvm.vector_math import coefficients as table
from tack.codegen.llvm.vector_math.exponentials import decompose, exp2, exp2_of_sum, log2_positive

if TYPE_CHECKING:
    from tack.codegen.llvm import ir
    from tack.codegen.llvm.vector_math.lanes import Lanes

__all__ = ["pow"]

_THIRD = (1 / 3, 2.0**-54 / 3)
_TWO_LOG2E = (2 * table.LOG2E_F64[0], 2 * table.LOG2E_F64[1])
_LARGEST = 1100.0  # exponents past which the result is zero or infinity


class _Sum(NamedTuple):
    """``high + low``, where ``low`` is small."""

    high: ir.Value
    low: ir.Value


def _product(v: Lanes, a: _Sum, b: _Sum | tuple[float, float]) -> _Sum:
    high = v.mul(a.high, b[0])
    rest = v.fma(a.high, b[0], v.neg(high))
    return _Sum(high, v.fma(a.high, b[1], v.fma(a.low, b[0], rest)))


def pow(v: Lanes, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    size = v.abs(x)
    if v.bits == 32:
        wide = v.widened()
        exponent = wide.mul(v.widen(y), log2_positive(wide, v.widen(size)))
        result = v.narrow(exp2(wide, exponent))
    else:
        result = _power(v, size, y)
    # Of a negative number: negative for an odd exponent, and none for one that is not whole.
    half = v.mul(y, 0.5)
    whole, even = v.equal(v.intrinsic("trunc", y), y), v.equal(v.intrinsic("trunc", half), half)
    signed = v.select(whole, v.select(even, result, v.neg(result)), nan)
    result = v.select(v.less(x, 0.0), signed, result)
    ordinary = v.both(v.both(v.less(0.0, size), v.less(size, inf)), v.less(v.abs(y), inf))
    return result, v.negated(ordinary)


def _power(v: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """``x^y`` of positive numbers in f64."""
    log = _log2(v, x)
    high = v.mul(y, log.high)
    low = v.fma(y, log.low, v.fma(y, log.high, v.neg(high)))
    bounded = v.less(v.abs(high), _LARGEST)
    high = v.at_least(v.at_most(high, _LARGEST), -_LARGEST)
    low = v.select(bounded, low, 0.0)
    k, whole = v.nearest(high, 1.0)
    return exp2_of_sum(v, whole, v.add(v.sub(high, k), low))


def _log2(v: Lanes, x: ir.Value) -> _Sum:
    """``k + 2 atanh(s) / ln 2`` for ``x = 2^k (1 + f)``, ``s = f / (2 + f)``."""
    k, f = decompose(v, x)
    above = v.add(2.0, f)
    rest = v.sub(f, v.sub(above, 2.0))
    ratio = v.div(f, above)
    missing = v.fma(v.neg(ratio), rest, v.fma(v.neg(ratio), above, f))
    s = _Sum(ratio, v.div(missing, above))
    square = _product(v, s, s)
    cube = _product(v, s, square)
    third = _product(v, cube, _THIRD)
    tail = v.mul(v.mul(cube.high, square.high), v.polynomial(square.high, table.LOG_TAIL_F64))
    high = v.add(s.high, third.high)
    low = v.add(v.add(v.sub(s.high, high), third.high), v.add(s.low, v.add(third.low, tail)))
    log = _product(v, _Sum(high, low), _TWO_LOG2E)
    total = v.add(k, log.high)
    return _Sum(total, v.add(v.add(v.sub(k, total), log.high), log.low))
