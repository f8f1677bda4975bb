"""Roots and powers."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tack.codegen.llvm.vector_math.exponentials import exp2, log2_positive

if TYPE_CHECKING:
    from llvmlite import ir

    from tack.codegen.llvm.vector_math.lanes import Lanes

__all__ = ["cbrt", "hypot", "pow32"]


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


def pow32(v: Lanes, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``2^(y log2(x))`` in f64, for f32."""
    wide = v.widened()
    exponent = wide.mul(v.widen(y), log2_positive(wide, v.widen(x)))
    result = v.narrow(exp2(wide, exponent))
    ordinary = v.both(v.both(v.less(0.0, x), v.less(x, inf)), v.less(v.abs(y), inf))
    return result, v.negated(ordinary)
