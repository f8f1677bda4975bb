"""Exponentials and logarithms.

The exponentials split ``x = k ln 2 + r``, the logarithms ``x = 2^k (1 + f)`` with ``1 + f`` between
sqrt(1/2) and sqrt(2); a polynomial does the rest. The logarithm in f64 uses the odd series in ``s = f / (2
+ f)``. Source of the schemes: Muller, Elementary Functions, 3rd edition, chapters 5 and 11; Tang, ACM TOMS
15 (1989) and 16 (1990).
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, Final

from tack.codegen.llvm.vector_math import coefficients as table
from tack.record import Record

if TYPE_CHECKING:
    from tack.codegen.llvm import ir
    from tack.codegen.llvm.vector_math.lanes import Lanes

__all__ = [
    *("cosh", "decompose", "exp", "exp2", "exp2_of_sum", "expm1", "log", "log1p", "log2", "log2_positive"),
    *("log10", "sinh", "tanh"),
]


class _Constants(Record):
    """For one precision: ln 2 and others as sums of two floats, and where results leave the finite range."""

    ln2: tuple[float, float]
    log2e: tuple[float, float]
    log10e: tuple[float, float]
    log10_2: tuple[float, float]
    exp_range: tuple[float, float]  # outside: zero and infinity
    exp2_range: tuple[float, float]
    minus_one: float  # below, expm1 is -1
    tanh_one: float  # from here on, tanh(x / 2) is 1
    hyperbolic: float  # up to here, exp is finite
    exp: tuple[float, ...]
    expm1: tuple[float, ...]
    exp2: tuple[float, ...]
    log: tuple[float, ...]


_CONSTANTS: Final = {
    32: _Constants(
        ln2=table.LN2_F32,
        log2e=table.LOG2E_F32,
        log10e=table.LOG10E_F32,
        log10_2=table.LOG10_2_F32,
        exp_range=(-104.0, 89.0),
        exp2_range=(-151.0, 128.0),
        minus_one=-20.0,
        tanh_one=20.0,
        hyperbolic=88.0,
        exp=table.EXP_F32,
        expm1=table.EXPM1_F32,
        exp2=table.EXP2_F32,
        log=table.LOG_F32,
    ),
    64: _Constants(
        ln2=table.LN2_F64,
        log2e=table.LOG2E_F64,
        log10e=table.LOG10E_F64,
        log10_2=table.LOG10_2_F64,
        exp_range=(-746.0, 710.0),
        exp2_range=(-1076.0, 1024.0),
        minus_one=-40.0,
        tanh_one=40.0,
        hyperbolic=709.0,
        exp=table.EXP_F64,
        expm1=table.EXPM1_F64,
        exp2=table.EXP2_F64,
        log=table.LOG_F64,
    ),
}


def _clamp(v: Lanes, x: ir.Value, limits: tuple[float, float]) -> ir.Value:
    return v.at_least(v.at_most(x, limits[1]), limits[0])


def _split(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``r`` and the integer ``k`` of ``x = k ln 2 + r``."""
    c = _CONSTANTS[v.bits]
    k, whole = v.nearest(x, c.log2e[0])
    r = v.fma(v.neg(k), c.ln2[0], x)
    return v.fma(v.neg(k), c.ln2[1], r), whole


def _scale(v: Lanes, y: ir.Value, k: ir.Value) -> ir.Value:
    """``y * 2^k`` with one rounding, also to a denormal number: in two steps, the first of them exact."""
    half = v.sar(k, 1)
    return v.mul(v.mul(y, v.power_of_two(half)), v.power_of_two(v.isub(k, half)))


def exp(v: Lanes, x: ir.Value) -> ir.Value:
    c = _CONSTANTS[v.bits]
    r, k = _split(v, _clamp(v, x, c.exp_range))
    y = v.add(1.0, v.fma(v.mul(r, r), v.polynomial(r, c.exp), r))
    return _scale(v, y, k)


def exp2(v: Lanes, x: ir.Value) -> ir.Value:
    x = _clamp(v, x, _CONSTANTS[v.bits].exp2_range)
    k, whole = v.nearest(x, 1.0)
    return exp2_of_sum(v, whole, v.sub(x, k))


def exp2_of_sum(v: Lanes, whole: ir.Value, r: ir.Value) -> ir.Value:
    """``2^(whole + r)`` for an integer and a number between -1/2 and 1/2."""
    return _scale(v, v.fma(r, v.polynomial(r, _CONSTANTS[v.bits].exp2), 1.0), whole)


def expm1(v: Lanes, x: ir.Value) -> ir.Value:
    c = _CONSTANTS[v.bits]
    r, k = _split(v, _clamp(v, x, (c.minus_one, c.exp_range[1])))
    p = v.fma(v.mul(r, r), v.polynomial(r, c.expm1), r)
    # 2^k p + (2^k - 1), scaled down by 2^(k/2) so that nothing overflows before the last step.
    half = v.sar(k, 1)
    rest = v.isub(k, half)
    s = v.power_of_two(half)
    y = v.fma(s, p, v.sub(s, v.power_of_two(v.isub(v.whole(0), rest))))
    return v.copysign(v.mul(y, v.power_of_two(rest)), x)


def decompose(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``k``, as a float, and ``f`` of ``x = 2^k (1 + f)``."""
    smallest = 2.0 ** (1 - v.bias)
    up = v.mantissa + 1
    denormal = v.less(x, smallest)
    x = v.select(denormal, v.mul(x, 2.0**up), x)
    root = _ROOT_HALF[v.bits]
    bits = v.isub(v.as_int(x), root)
    k = v.small_to_float(v.sar(bits, v.mantissa))
    one_and_f = v.as_float(v.iadd(v.iand(bits, (1 << v.mantissa) - 1), root))
    return v.sub(k, v.select(denormal, float(up), 0.0)), v.sub(one_and_f, 1.0)


# The bits of sqrt(1/2).
_ROOT_HALF: Final = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}


def _log_of_f(v: Lanes, f: ir.Value, low: ir.Value | float) -> ir.Value:
    """``log(1 + f) + low``, for a small ``low``."""
    c = _CONSTANTS[v.bits]
    if v.bits == 32:
        z = v.mul(f, f)
        low = v.fma(v.mul(z, f), v.polynomial(f, c.log), low)
        return v.add(f, v.fma(z, -0.5, low))
    s = v.div(f, v.add(2.0, f))
    z = v.mul(s, s)
    half_square = v.mul(v.mul(f, 0.5), f)
    r = v.mul(z, v.polynomial(z, c.log))
    correction = v.fma(s, v.add(half_square, r), low)
    return v.sub(f, v.sub(half_square, correction))


def _at_edges(v: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """The logarithm ``y`` of ``x`` with the values of numbers that are not positive and finite."""
    y = v.select(v.less(x, inf), y, x)
    y = v.select(v.less(x, 0.0), nan, y)
    return v.select(v.equal(x, 0.0), -inf, y)


def log(v: Lanes, x: ir.Value) -> ir.Value:
    c = _CONSTANTS[v.bits]
    k, f = decompose(v, x)
    y = v.fma(k, c.ln2[0], _log_of_f(v, f, v.mul(k, c.ln2[1])))
    return _at_edges(v, x, y)


def log2(v: Lanes, x: ir.Value) -> ir.Value:
    return _at_edges(v, x, log2_positive(v, x))


def log2_positive(v: Lanes, x: ir.Value) -> ir.Value:
    c = _CONSTANTS[v.bits]
    k, f = decompose(v, x)
    y = _log_of_f(v, f, 0.0)
    return v.add(k, v.fma(y, c.log2e[0], v.mul(y, c.log2e[1])))


def log10(v: Lanes, x: ir.Value) -> ir.Value:
    if v.bits == 32:
        wide = v.widened()
        return v.narrow(log10(wide, v.widen(x)))
    c = _CONSTANTS[v.bits]
    k, f = decompose(v, x)
    y = _log_of_f(v, f, 0.0)
    low = v.fma(k, c.log10_2[1], v.mul(y, c.log10e[1]))
    return _at_edges(v, x, v.fma(k, c.log10_2[0], v.fma(y, c.log10e[0], low)))


def log1p(v: Lanes, x: ir.Value) -> ir.Value:
    c = _CONSTANTS[v.bits]
    u = v.add(1.0, x)
    lost = v.div(v.sub(x, v.sub(u, 1.0)), u)
    lost = v.select(v.less(u, 2.0**v.mantissa * 4), lost, 0.0)  # x - (u - 1) means nothing past that
    k, f = decompose(v, u)
    y = v.fma(k, c.ln2[0], _log_of_f(v, f, v.fma(k, c.ln2[1], lost)))
    return v.copysign(_at_edges(v, u, y), x)


def sinh(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    c = _CONSTANTS[v.bits]
    size = v.abs(x)
    e = expm1(v, size)
    y = v.mul(0.5, v.add(e, v.div(e, v.add(e, 1.0))))
    return v.copysign(y, x), v.less(c.hyperbolic, size)


def cosh(v: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    c = _CONSTANTS[v.bits]
    size = v.abs(x)
    e = exp(v, size)
    return v.fma(0.5, e, v.div(0.5, e)), v.less(c.hyperbolic, size)


def tanh(v: Lanes, x: ir.Value) -> ir.Value:
    c = _CONSTANTS[v.bits]
    size = v.abs(x)
    e = expm1(v, v.at_most(v.add(size, size), c.tanh_one))
    return v.copysign(v.div(e, v.add(e, 2.0)), x)
