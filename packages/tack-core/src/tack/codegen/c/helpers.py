"""Functions that a translation unit gets when an operation needs one. Each gives the function's name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tack.dtypes import DType

if TYPE_CHECKING:
    from tack.codegen.c.emitter import Emitter, Unit

__all__ = [
    "float_floordiv",
    "float_mod",
    "float_power",
    "float_sign",
    "integer_abs",
    "integer_floordiv",
    "integer_mod",
    "integer_power",
    "integer_sign",
    "truncate",
]

# The bodies: {T} is the type, {U} the unsigned one that its arithmetic wraps in.
_FLOORDIV = """\
if (b == 0)
    return 0;
if (b == -1)
    return ({T}){negative};
{T} quotient = a / b;
{T} rest = a % b;
return rest != 0 && (rest ^ b) < 0 ? quotient - 1 : quotient;"""
_MOD = """\
if (b == 0 || b == -1)
    return 0;
{T} rest = a % b;
return rest != 0 && (rest ^ b) < 0 ? rest + b : rest;"""
_POWER = """\
{U} result = 1, base = a;
for (u64 rest = exponent; rest; rest >>= 1) {{
    if (rest & 1)
        result *= base;
    base *= base;
}}
{negative}return ({T})result;"""
# Read as unsigned, a negative exponent keeps its parity, which is right for 1 and -1.
_NEGATIVE = "if (exponent < 0 && a != 1{unless})\n    return 0;\n"
_FLOAT_MOD = """\
{T} rest = {fmod}(a, b);
if (rest == 0)
    return {copysign}({zero}, b);
return (rest < 0) != (b < 0) ? rest + b : rest;"""
# a - fmod(a, b) is a multiple of b up to rounding, so the division is nearly whole.
_FLOAT_FLOORDIV = """\
if (b == 0)
    return a / b;
{T} rest = {fmod}(a, b);
{T} quotient = (a - rest) / b;
if (rest != 0 && (rest < 0) != (b < 0))
    quotient -= 1;
if (quotient == 0)
    return {copysign}({zero}, a / b);
{T} whole = {floor}(quotient);
return quotient - whole > {half} ? whole + 1 : whole;"""


def _function(unit: Unit, name: str, head: str, body: str) -> str:
    def write(fn: Emitter) -> None:
        with fn.function(f"{fn.dialect.function} {head}"):
            for line in body.splitlines():
                fn.line(line)

    return unit.helper(name, write)


def _two(unit: Unit, name: str, dtype: DType, body: str) -> str:
    """A function of two numbers of one type."""
    return _function(unit, name, f"{dtype} {name}({dtype} a, {dtype} b)", body)


def _names(dtype: DType) -> dict[str, str]:
    return {"T": str(dtype), "U": f"u{max(dtype.bits, 32)}"}


def _float_names(unit: Unit, dtype: DType) -> dict[str, str]:
    functions = {name: unit.dialect.math(name, dtype) for name in ("fmod", "copysign", "floor")}
    suffix = "f" if dtype.bits == 32 else ""
    return {"T": str(dtype), "zero": f"0.0{suffix}", "half": f"0.5{suffix}", **functions}


# --- integers -----------------------------------------------------------------------------------


def integer_floordiv(unit: Unit, dtype: DType) -> str:
    """``a // b``; 0 if ``b`` is 0."""
    negative = unit.dialect.opaque(f"-({_names(dtype)['U']})a", dtype)
    body = (
        _FLOORDIV.format(**_names(dtype), negative=negative)
        if dtype.is_signed
        else "return b == 0 ? 0 : a / b;"
    )
    return _two(unit, f"tack_floordiv_{dtype}", dtype, body)


def integer_mod(unit: Unit, dtype: DType) -> str:
    """``a % b`` with the sign of ``b``; 0 if ``b`` is 0."""
    body = _MOD.format(**_names(dtype)) if dtype.is_signed else "return b == 0 ? 0 : a % b;"
    return _two(unit, f"tack_mod_{dtype}", dtype, body)


def integer_power(unit: Unit, dtype: DType, exponent: DType) -> str:
    """``a ** exponent`` modulo 2^N."""
    name = f"tack_pow_{dtype}_{exponent}"
    negative = _NEGATIVE.format(unless=" && a != -1" if dtype.is_signed else "") if exponent.is_signed else ""
    body = _POWER.format(**_names(dtype), negative=negative)
    return _function(unit, name, f"{dtype} {name}({dtype} a, {exponent} exponent)", body)


def integer_sign(unit: Unit, dtype: DType) -> str:
    name = f"tack_sign_{dtype}"
    body = "return (a > 0) - (a < 0);" if dtype.is_signed else "return a != 0;"
    return _function(unit, name, f"{dtype} {name}({dtype} a)", body)


def integer_abs(unit: Unit, dtype: DType) -> str:
    """|a|; the minimum stays as it is."""
    name = f"tack_abs_{dtype}"
    names = _names(dtype)
    negative = unit.dialect.opaque(f"-({names['U']})a", dtype)
    body = f"return a < 0 ? ({dtype}){negative} : a;"
    return _function(unit, name, f"{dtype} {name}({dtype} a)", body)


# --- floats -------------------------------------------------------------------------------------


def float_mod(unit: Unit, dtype: DType) -> str:
    """Python's ``a % b``; NaN if ``b`` is 0."""
    return _two(unit, f"tack_mod_{dtype}", dtype, _FLOAT_MOD.format(**_float_names(unit, dtype)))


def float_floordiv(unit: Unit, dtype: DType) -> str:
    """Python's ``a // b``; ``a / b`` if ``b`` is 0."""
    return _two(unit, f"tack_floordiv_{dtype}", dtype, _FLOAT_FLOORDIV.format(**_float_names(unit, dtype)))


def float_sign(unit: Unit, dtype: DType) -> str:
    """-1 or 1; zeros and NaN are their own signs."""
    name = f"tack_sign_{dtype}"
    return _function(unit, name, f"{dtype} {name}({dtype} a)", "return a > 0 ? 1 : a < 0 ? -1 : a;")


# Where the square overflows or is denormal, so is the power. pow(-inf, 0.5) is inf, and pow(-0.0, 0.5) is 0.
_ROOT = "isinf(a) ? a * a : {sqrt}(a) + 0"
_POWERS: dict[float, tuple[str, str]] = {
    2.0: ("square", "return a * a;"),
    3.0: ("cube", "return a * a * a;"),
    4.0: ("fourth", "{T} square = a * a;\nreturn square * square;"),
    -1.0: ("reciprocal", "return 1 / a;"),
    -2.0: ("reciprocal_square", "{T} inverse = 1 / a;\nreturn inverse * inverse;"),
    -3.0: ("reciprocal_cube", "{T} inverse = 1 / a;\nreturn inverse * inverse * inverse;"),
    -4.0: ("reciprocal_fourth", "{T} square = 1 / a * (1 / a);\nreturn square * square;"),
    0.5: ("root", "return {root};"),
    -0.5: ("reciprocal_root", "return 1 / ({root});"),
}


def float_power(unit: Unit, dtype: DType, exponent: float) -> str | None:
    """``a ** exponent`` for a small constant exponent."""
    if exponent not in _POWERS:
        return None
    kind, body = _POWERS[exponent]
    name = f"tack_{kind}_{dtype}"
    root = _ROOT.format(sqrt=unit.dialect.math("sqrt", dtype))
    return _function(unit, name, f"{dtype} {name}({dtype} a)", body.format(T=dtype, root=root))


def truncate(unit: Unit, source: DType, target: DType) -> str:
    """A float as an integer: cut off, saturated, and 0 for NaN."""
    name = f"tack_{target}_from_{source}"
    limit = math.ldexp(1.0, target.bits - (1 if target.is_signed else 0))
    suffix = "f" if source.bits == 32 else ""
    low = f"(-{target.max}{_suffix(unit, target)} - 1)" if target.is_signed else "0"
    least = f"{-limit if target.is_signed else 0.0}{suffix}"
    body = (
        f"if (a >= {limit}{suffix})\n    return {target.max}{_suffix(unit, target)};\n"
        f"if (a > {least})\n    return ({target})a;\n"
        f"return a != a ? 0 : {low};"
    )
    return _function(unit, name, f"{target} {name}({source} a)", body)


def _suffix(unit: Unit, dtype: DType) -> str:
    return unit.dialect.suffixes.get(dtype.name, "")
