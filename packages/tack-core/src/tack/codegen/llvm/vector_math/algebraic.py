"""Roots and remainders."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tack.codegen.llvm.vector_math.exponentials import exp2, log2_positive

if TYPE_CHECKING:
    from tack.codegen.llvm import ir
    from tack.codegen.llvm.vector_math.lanes import Lanes

__all__ = ["cbrt", "fmod", "hypot"]


def cbrt(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``2^(log2(x) / 3)``; in f64, whose logarithm is not exact enough, with one step of Newton's method."""
    size = v.abs(x)
    if v.bits == 32:
        wide = v.widened()
        root = v.narrow(exp2(wide, wide.mul(log2_positive(wide, v.widen(size)), 1 / 3)))
    else:
        root = exp2(v, v.mul(log2_positive(v, size), 1 / 3))
        square = v.mul(root, root)
        root = v.sub(root, v.div(v.fma(square, root, v.neg(size)), v.mul(3.0, square)))
    # Zero, infinity and NaN; and in f64 the denormal numbers.
    return v.copysign(root, x), v.negated(v.both(v.less(2.0 ** (1 - v.bias), size), v.less(size, inf)))


def hypot(v: Lanes, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    ax, ay = v.abs(x), v.abs(y)
    if v.bits == 32:
        wide = v.widened()
        a, b = v.widen(ax), v.widen(ay)
        length = v.narrow(wide.sqrt(wide.fma(a, a, wide.mul(b, b))))
        return length, v.negated(v.both(v.less(ax, inf), v.less(ay, inf)))
    steep = v.less(ax, ay)
    large, small = v.select(steep, ay, ax), v.select(steep, ax, ay)
    length = v.sqrt(v.fma(large, large, v.mul(small, small)))
    # The squares must neither overflow nor lose bits.
    return length, v.negated(v.both(v.less(2.0**-450, large), v.less(large, 2.0**510)))


def fmod(v: Lanes, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``x - y trunc(x / y)``, which is exact while the quotient is a whole number of the float."""
    ax, ay = v.abs(x), v.abs(y)
    ratio = v.div(ax, ay)
    quotient = v.intrinsic("trunc", ratio)
    rest = v.fma(v.neg(quotient), ay, ax)
    rest = v.select(v.less(rest, 0.0), v.add(rest, ay), rest)  # the division may have rounded up
    normal = v.both(v.less(2.0 ** (2 - v.bias), ay), v.less(ay, inf))
    return v.copysign(rest, x), v.negated(v.both(v.less(ratio, 2.0**v.mantissa), normal))
