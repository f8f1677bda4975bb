"""What each typed operation computes, exactly, on Python numbers.

An integer is a Python int within its dtype's range; a float, f32 or f64, is a Python float. The
tables map an operation's name to a function of the operands and their dtype. Integer results are
exact. Float ``add sub mul div``, ``neg``, ``abs``, ``sqrt``, ``fma``, ``fmod``, the roundings and the
conversions are correctly rounded in the operands' precision; the other functions are the C
library's in f64, and for f32 are rounded once more from there. No function raises or warns for
any operands in range.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tack.dtypes import DType, f32, f64, i32
from tack.ir import nodes as ir
from tack.lang.builtins import BUILTINS

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "ATOMICS",
    "BINARY_OPS",
    "BLOCK_REDUCTIONS",
    "CALLS",
    "COMPARISONS",
    "UNARY_OPS",
    "binary",
    "bitcast",
    "call",
    "compare",
    "convert",
    "from_bits",
    "result_type",
    "round_to",
    "to_bits",
    "unary",
]

Number = int | float


def result_type(e: ir.Expr) -> DType | None:
    """The type of an operation whose operands have theirs, as the type table of the IR gives it.

    For a node without operands that fix it (`Const`, `Param`, `Local`, `Load`, `Lookup`, `Dim`) its own.
    """
    if isinstance(e, ir.Compare | ir.Logical | ir.LaneId):
        return i32
    if isinstance(e, ir.Binary):
        return e.left.type
    if isinstance(e, ir.Unary | ir.NonZero):
        return i32 if isinstance(e, ir.Unary) and e.op == "not" else e.operand.type
    if isinstance(e, ir.Cast | ir.Bitcast):
        return e.to
    if isinstance(e, ir.Select):
        return e.then.type
    if isinstance(e, ir.Call):
        return i32 if BUILTINS[e.function].rule in ("test", "truth", "bits") else e.args[-1].type
    return e.type


# --- rounding and conversion ------------------------------------------------------------------


def round_to(value: float, dtype: DType) -> float:
    """``value`` rounded to the nearest number of a float dtype, ties to even; overflow is infinite."""
    return ctypes.c_float(value).value if dtype is f32 else value


def _nearest(exact: Fraction, dtype: DType) -> float:
    """``exact``, which is not 0, rounded once."""
    from fractions import Fraction

    try:
        near = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    # Rounding twice goes wrong only if the first result looks like a tie: an odd last bit cannot.
    if dtype is f32 and Fraction(near) != exact and to_bits(near, f64) % 2 == 0:
        near = math.nextafter(near, math.inf if exact > near else -math.inf)
    return round_to(near, dtype)


def convert(value: Number, dtype: DType) -> Number:
    """The cast of a number to ``dtype``. The source's type does not matter: its value is exact."""
    if dtype.is_float:
        if isinstance(value, int) and abs(value) > 1 << 53:
            from fractions import Fraction

            return _nearest(Fraction(value), dtype)
        return round_to(float(value), dtype)
    return dtype.wrap(value) if isinstance(value, int) else dtype.saturate(value)


def to_bits(value: Number, dtype: DType) -> int:
    """The bit pattern of ``value``, as an unsigned integer."""
    if isinstance(value, int):
        return value & ((1 << dtype.bits) - 1)
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    if dtype is f64:
        return bits
    if value != value:  # keeps sign and payload, where a conversion would make a signaling NaN quiet
        return bits >> 32 & 0x8000_0000 | 0x7F80_0000 | bits >> 29 & 0x7F_FFFF
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits


def from_bits(bits: int, dtype: DType) -> Number:
    """The number of ``dtype`` with this bit pattern."""
    if dtype.is_integer:
        return dtype.wrap(bits)
    value: float
    if dtype is f32 and bits & 0x7FFF_FFFF <= 0x7F80_0000:
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        return value
    if dtype is f32:  # a NaN
        bits = (bits & 0x8000_0000) << 32 | 0x7FF0_0000_0000_0000 | (bits & 0x7F_FFFF) << 29
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


def bitcast(value: Number, source: DType, to: DType) -> Number:
    """The bits of ``value``, of type ``source``, read as ``to``, which has the same width."""
    return from_bits(to_bits(value, source), to)


# --- operators --------------------------------------------------------------------------------

_UNARY: Final[dict[str, Callable[[Any, DType], Number]]] = {
    "neg": lambda x, t: -x if t.is_float else t.wrap(-x),
    "invert": lambda x, t: t.wrap(~x),
    "not": lambda x, t: int(not x),
}

_COMPARE: Final[dict[str, Callable[[Number, Number], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _power(base: int, exponent: int, t: DType) -> int:
    if exponent >= 0:
        return pow(base, exponent, 1 << t.bits)
    if base == -1:
        return -1 if exponent % 2 else 1
    return int(base == 1)


# Integer operators give a number that `binary` then wraps.
_INTEGER: Final[dict[str, Callable[[int, int, DType], int]]] = {
    "add": lambda a, b, t: a + b,
    "sub": lambda a, b, t: a - b,
    "mul": lambda a, b, t: a * b,
    "floordiv": lambda a, b, t: a // b if b else 0,
    "mod": lambda a, b, t: a % b if b else 0,
    "pow": _power,
    "shl": lambda a, b, t: a << b % t.bits,
    "shr": lambda a, b, t: a >> b % t.bits,
    "bitand": lambda a, b, t: a & b,
    "bitor": lambda a, b, t: a | b,
    "bitxor": lambda a, b, t: a ^ b,
}


def _divide(a: float, b: float, t: DType = f64) -> float:
    """IEEE division."""
    if b:
        return round_to(a / b, t)
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _fmod(a: float, b: float) -> float:
    return math.nan if math.isinf(a) or b == 0 else math.fmod(a, b)


def _modulo(a: float, b: float, t: DType) -> float:
    rest = _fmod(a, b)
    if rest == 0:
        return math.copysign(0.0, b)
    return round_to(rest + b, t) if (rest < 0) != (b < 0) else rest


def _floor_divide(a: float, b: float, t: DType) -> float:
    """CPython's float ``//``, each step in the precision of ``t``."""
    if b == 0:
        return _divide(a, b)
    rest = _fmod(a, b)
    quotient = round_to(round_to(a - rest, t) / b, t)
    if rest and (rest < 0) != (b < 0):
        quotient = round_to(quotient - 1.0, t)
    if quotient == 0:
        return math.copysign(0.0, a / b)
    floor = _integral(math.floor, quotient)
    return round_to(floor + 1.0, t) if quotient - floor > 0.5 else floor


_FLOAT: Final[dict[str, Callable[[float, float, DType], float]]] = {
    "add": lambda a, b, t: round_to(a + b, t),
    "sub": lambda a, b, t: round_to(a - b, t),
    "mul": lambda a, b, t: round_to(a * b, t),
    "div": _divide,
    "floordiv": _floor_divide,
    "mod": _modulo,
    "pow": lambda a, b, t: round_to(_libm("pow", a, b), t),
}

UNARY_OPS: Final = tuple(_UNARY)
BINARY_OPS: Final = (*_INTEGER, "div")
COMPARISONS: Final = tuple(_COMPARE)


def unary(op: str, x: Number, t: DType) -> Number:
    """``op`` on an operand of type ``t``. The result has that type, or i32 for ``not``."""
    return _UNARY[op](x, t)


def binary(op: str, a: Number, b: Number, t: DType) -> Number:
    """``op`` on operands of type ``t``, the result's (an integer exponent has a type of its own)."""
    if t.is_float:
        return _FLOAT[op](a, b, t)
    return t.wrap(_INTEGER[op](a, b, t))  # type: ignore[arg-type]


def compare(op: str, a: Number, b: Number) -> int:
    """``op`` on two operands of one type: 0 or 1."""
    return int(_COMPARE[op](a, b))


# --- builtin functions ------------------------------------------------------------------------


def _libm(name: str, *args: float) -> float:
    """The C library's result. Python raises for a pole, domain error or overflow; NumPy does not."""
    try:
        result: float = getattr(math, name)(*args)
    except (ValueError, OverflowError):
        with np.errstate(all="ignore"):
            result = float(getattr(np, name)(*(np.float64(x) for x in args)))
    return result


def _integral(function: Callable[[float], int], x: float) -> float:
    """A rounding to an integer, which keeps infinities, NaN and the sign of zero."""
    return math.copysign(float(function(x)), x) if math.isfinite(x) else x


def _fma(a: float, b: float, c: float, t: DType) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return c if math.isfinite(a) and math.isfinite(b) else a * b + c
    from fractions import Fraction

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return _nearest(exact, t)
    return a * b + c if a == 0 or b == 0 else 0.0


def _sign(x: Number, t: DType) -> Number:
    return x if x == 0 or x != x else math.copysign(1.0, x) if t.is_float else (x > 0) - (x < 0)


def _lesser(a: Number, b: Number) -> Number:
    return b if a != a or b < a else a


def _greater(a: Number, b: Number) -> Number:
    return b if a != a or b > a else a


def _fold(function: Callable[[Number, Number], Number]) -> Callable[..., Number]:
    return lambda *args: functools.reduce(function, args[:-1])


def _rounding(function: Callable[[float], int]) -> Callable[[Any, DType], Number]:
    return lambda x, t: _integral(function, x) if t.is_float else x


def _in_f64(name: str) -> Callable[..., float]:
    """A function of the C library as f64 computes it, then rounded."""
    return lambda *args: round_to(_libm(name, *args[:-1]), args[-1])


# Python's math module and NumPy have these under the same names, but for functions that never raise.
_LIBM: Final = (
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "hypot"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
)


# Functions of the arguments and then the dtype of the last argument (see `call`).
CALLS: Final[dict[str, Callable[..., Number]]] = {
    **{name: _in_f64(name) for name in _LIBM},
    "rsqrt": lambda x, t: _divide(1.0, _libm("sqrt", x), t),
    "fmod": lambda a, b, t: _fmod(a, b),
    "copysign": lambda a, b, t: math.copysign(a, b),
    "fma": _fma,
    "floor": _rounding(math.floor),
    "ceil": _rounding(math.ceil),
    "round": _rounding(round),
    "trunc": _rounding(math.trunc),
    "sign": _sign,
    "abs": lambda x, t: abs(x) if t.is_float else t.wrap(abs(x)),
    "min": _fold(_lesser),
    "max": _fold(_greater),
    "isnan": lambda x, t: int(x != x),
    "isinf": lambda x, t: int(math.isinf(x)),
    "isfinite": lambda x, t: int(math.isfinite(x)),
    "any": lambda x, t: int(bool(x)),
    "all": lambda x, t: int(bool(x)),
    "popcount": lambda x, t: to_bits(x, t).bit_count(),
    "clz": lambda x, t: t.bits - to_bits(x, t).bit_length(),
    "ctz": lambda x, t: (x & -x).bit_length() - 1 if x else t.bits,
    "where": lambda cond, a, b, t: a if cond else b,
}


def call(function: str, args: tuple[Number, ...], t: DType) -> Number:
    """A builtin's result; ``t`` is the dtype of the last argument, which all but a condition share."""
    return CALLS[function](*args, t)


# --- atomics ----------------------------------------------------------------------------------

# The new value of an element, from the old one, the operands and the array's dtype.
ATOMICS: Final[dict[str, Callable[..., Number]]] = {
    "add": lambda old, x, t: binary("add", old, x, t),
    "sub": lambda old, x, t: binary("sub", old, x, t),
    "min": lambda old, x, t: _lesser(old, x),
    "max": lambda old, x, t: _greater(old, x),
    "and": lambda old, x, t: old & x,
    "or": lambda old, x, t: old | x,
    "xor": lambda old, x, t: old ^ x,
    "exchange": lambda old, x, t: x,
    "cas": lambda old, expected, desired, t: desired if old == expected else old,
    "load": lambda old, t: old,
}


# --- block reductions -------------------------------------------------------------------------


def _extreme(pick: Callable[[Number, Number], Number], zero_sign: float) -> Callable[..., Number]:
    """Minimum or maximum in which a NaN wins, and of two zeros the one with this sign."""

    def combine(a: Number, b: Number, t: DType) -> Number:
        if a != a or b != b:
            return math.nan
        if t.is_float and a == b == 0.0:
            return a if math.copysign(1.0, a) == zero_sign else b
        return pick(a, b)

    return combine


# Two values combined into one, given their dtype.
BLOCK_REDUCTIONS: Final[dict[str, Callable[[Number, Number, DType], Number]]] = {
    "sum": lambda a, b, t: binary("add", a, b, t),
    "min": _extreme(min, -1.0),
    "max": _extreme(max, 1.0),
}
