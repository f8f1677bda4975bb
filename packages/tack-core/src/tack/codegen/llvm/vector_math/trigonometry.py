"""Trigonometric functions and their inverses.

An argument is reduced by the nearest multiple of pi or pi / 2, which is subtracted as a sum of four floats
(Cody and Waite, Software Manual for the Elementary Functions, 1980). Past ``_LIMIT`` the C library's
function takes over, with the reduction of Payne and Hanek.
"""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, Final

from tack.codegen.llvm.vector_math import coefficients as table

if TYPE_CHECKING:
    from tack.codegen.llvm import ir
    from tack.codegen.llvm.vector_math.lanes import Lanes

__all__ = ["acos", "asin", "atan", "atan2", "cos", "sin", "tan"]

# The largest argument that is reduced here: the multiple of pi must be found without an error. For tan, its
# product with the short part of pi must also be exact.
_LIMIT: Final = {32: 2.0**16, 64: 2.0**25}
_TAN_LIMIT: Final = {32: 2.0**15, 64: 2.0**25}
_PI: Final = {32: table.PI_PARTS_F32, 64: table.PI_PARTS_F64}
_HALF_PI: Final = {32: table.HALF_PI_F32, 64: table.HALF_PI_F64}
_SIN: Final = {32: table.SIN_F32, 64: table.SIN_F64}
_TAN_SIN: Final = {32: table.TAN_SIN_F32, 64: table.TAN_SIN_F64}
_TAN_COS: Final = {32: table.TAN_COS_F32, 64: table.TAN_COS_F64}
_ASIN: Final = {32: table.ASIN_F32, 64: table.ASIN_F64}
_ATAN: Final = {32: table.ATAN_F32, 64: table.ATAN_F64}

_TAN_EIGHTH: Final = 0.41421356237309503  # tan(pi / 8)


def _reduced(v: Lanes, x: ir.Value, k: ir.Value, units: float) -> ir.Value:
    """``x - k * units * pi``, which may be much smaller than ``x``.

    The first step is exact. So is the second where its result is small, since its constant is short:
    nothing is lost where the argument is close to a multiple of pi.
    """
    minus_k = v.neg(k)
    for part in _PI[v.bits]:
        x = v.fma(minus_k, part * units, x)
    return x


def _reduced_sum(v: Lanes, x: ir.Value, k: ir.Value, units: float) -> tuple[ir.Value, ir.Value]:
    """As `_reduced`, as a sum of two floats, the second of which is small."""
    minus_k = v.neg(k)
    first, second, third, fourth = (part * units for part in _PI[v.bits])
    x = v.fma(minus_k, first, x)
    high = v.fma(minus_k, second, x)
    low = v.fma(minus_k, second, v.sub(x, high))
    low = v.fma(minus_k, fourth, v.fma(minus_k, third, low))
    r = v.add(high, low)
    return r, v.add(v.sub(high, r), low)


def _sine(v: Lanes, r: ir.Value) -> ir.Value:
    """sin(r) for |r| up to pi / 2, where rounding must not lead past one."""
    z = v.mul(r, r)
    y = v.fma(v.mul(r, z), v.polynomial(z, _SIN[v.bits]), r)
    return v.at_least(v.at_most(y, 1.0), -1.0)


def sin(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    size = v.abs(x)
    k, whole = v.nearest(size, 1 / pi)
    y = _sine(v, _reduced(v, size, k, 1))
    return v.with_sign_of(v.flip_sign(y, whole), x), v.less(_LIMIT[v.bits], size)


def cos(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    size = v.abs(x)
    # cos(k pi + pi / 2 + r) = sin(-r) where k is even, sin(r) where it is odd.
    k, whole = v.nearest(v.fma(size, 1 / pi, -0.5), 1.0)
    r = _reduced(v, size, v.fma(k, 2.0, 1.0), 0.5)
    y = _sine(v, r)
    return v.flip_sign(y, v.iadd(whole, 1)), v.less(_LIMIT[v.bits], size)


def tan(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    size = v.abs(x)
    k, whole = v.nearest(size, 2 / pi)
    r, low = _reduced_sum(v, size, k, 0.5)
    z = v.mul(r, r)
    sine = v.add(r, v.fma(v.mul(r, z), v.polynomial(z, _TAN_SIN[v.bits]), low))
    cosine = v.fma(v.mul(z, z), v.polynomial(z, _TAN_COS[v.bits]), v.fma(z, -0.5, 1.0))
    odd = v.odd(whole)
    y = v.div(v.select(odd, cosine, sine), v.select(odd, sine, cosine))
    return v.with_sign_of(v.flip_sign(y, whole), x), v.less(_TAN_LIMIT[v.bits], size)


def _arcsine(v: Lanes, size: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Whether ``size`` is past 1/2, and ``asin(t) = t + rest`` for ``t = size`` or sqrt((1 - size) / 2)."""
    large = v.less(0.5, size)
    z = v.select(large, v.fma(size, -0.5, 0.5), v.mul(size, size))
    t = v.select(large, v.sqrt(z), size)
    return large, t, v.mul(v.mul(t, z), v.polynomial(z, _ASIN[v.bits]))


def asin(v: Lanes, x: ir.Value) -> ir.Value:
    high, low = _HALF_PI[v.bits]
    large, t, rest = _arcsine(v, v.abs(x))
    p = v.add(t, rest)
    y = v.select(large, v.sub(high, v.fma(2.0, p, -low)), p)
    return v.copysign(y, x)


def acos(v: Lanes, x: ir.Value) -> ir.Value:
    high, low = _HALF_PI[v.bits]
    large, t, rest = _arcsine(v, v.abs(x))
    p = v.add(t, rest)
    twice = v.add(p, p)
    far = v.select(v.less(x, 0.0), v.sub(2 * high, v.sub(twice, 2 * low)), twice)
    near = v.sub(high, v.sub(v.copysign(t, x), v.sub(low, v.copysign(rest, x))))
    return v.select(large, far, near)


def _arctangent(v: Lanes, t: ir.Value, base: ir.Value | float, low: ir.Value | float) -> ir.Value:
    """``base + low + atan(t)`` for |t| <= tan(pi / 8)."""
    z = v.mul(t, t)
    return v.add(base, v.add(t, v.fma(v.mul(t, z), v.polynomial(z, _ATAN[v.bits]), low)))


def _of_ratio(v: Lanes, small: ir.Value, large: ir.Value) -> ir.Value:
    """``atan(small / large)`` for 0 <= small <= large."""
    high, low = _HALF_PI[v.bits]
    middle = v.less(v.mul(large, _TAN_EIGHTH), small)  # nearer to pi / 4 than to zero
    over = v.select(middle, v.sub(small, large), small)
    under = v.select(middle, v.add(small, large), large)
    return _arctangent(v, v.div(over, under), v.select(middle, high / 2, 0.0), v.select(middle, low / 2, 0.0))


def atan(v: Lanes, x: ir.Value) -> ir.Value:
    high, low = _HALF_PI[v.bits]
    size = v.abs(x)
    inverted = v.less(1 / _TAN_EIGHTH, size)
    middle = v.less(_TAN_EIGHTH, size)
    over = v.select(inverted, -1.0, v.select(middle, v.sub(size, 1.0), size))
    under = v.select(inverted, size, v.select(middle, v.add(size, 1.0), 1.0))
    base = v.select(inverted, high, v.select(middle, high / 2, 0.0))
    rest = v.select(inverted, low, v.select(middle, low / 2, 0.0))
    return v.copysign(_arctangent(v, v.div(over, under), base, rest), x)


def atan2(v: Lanes, y: ir.Value, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    high, low = _HALF_PI[v.bits]
    ax, ay = v.abs(x), v.abs(y)
    steep = v.less(ax, ay)
    small, large = v.select(steep, ax, ay), v.select(steep, ay, ax)
    angle = _of_ratio(v, small, large)
    angle = v.select(steep, v.sub(high, v.sub(angle, low)), angle)
    angle = v.select(v.negative(x), v.sub(2 * high, v.sub(angle, 2 * low)), angle)
    # Infinities, a pair of zeros, and sums that overflow or lose bits go to the C library.
    ordinary = v.both(v.less(2.0 ** (2 - v.bias + v.mantissa), large), v.less(large, 2.0 ** (v.bias - 2)))
    return v.copysign(angle, y), v.negated(ordinary)
