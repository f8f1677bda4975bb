"""Integer and float semantics from Python integers, exact fractions and NumPy.

Written from the specification alone: nothing here reads Tack's own tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
FLOATS = ("f32", "f64")
DTYPES = INTEGERS + FLOATS


@functools.cache
def bits(name: str) -> int:
    return int(name[1:])


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(f"{name[0]}{bits(name) // 8}")


@functools.cache
def limits(name: str) -> tuple[int, int]:
    """The range of an integer type."""
    n = bits(name)
    return (-(2 ** (n - 1)), 2 ** (n - 1) - 1) if name[0] == "i" else (0, 2**n - 1)


def wrap(name: str, value: int) -> int:
    """``value`` modulo 2**N, two's complement."""
    n = bits(name)
    value %= 2**n
    return value - 2**n if name[0] == "i" and value >= 2 ** (n - 1) else value


@functools.cache
def promote(a: str, b: str) -> str | None:
    """The narrowest type that holds both ranges; None for a signed type beside u64."""
    if "f" in (a[0], b[0]):
        return "f64" if "f64" in (a, b) else "f32"
    for name in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"):
        low, high = limits(name)
        if all(low <= limits(t)[0] and limits(t)[1] <= high for t in (a, b)):
            # Equal signedness keeps its signedness.
            if a[0] == b[0] and name[0] != a[0]:
                continue
            return name
    return None


def int_power(base: int, exponent: int, name: str) -> int:
    if exponent < 0:
        return {1: 1, -1: 1 if exponent % 2 == 0 else -1}.get(base, 0)
    return wrap(name, pow(base, exponent, 2 ** bits(name)))


def shift_left(name: str, a: int, count: int) -> int:
    return wrap(name, a << (count % bits(name)))


def shift_right(name: str, a: int, count: int) -> int:
    return a >> (count % bits(name))  # Python's >> is arithmetic, and logical for non-negative


EXACT: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
}
_COMPARISON: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
ARITHMETIC = tuple(EXACT)
COMPARISONS = tuple(_COMPARISON)


@functools.cache
def int_operator(op: str, ta: str, tb: str) -> Callable[[int, int], int]:
    """``op`` on two integers of the given types, giving the value of the result's type."""
    if op in _COMPARISON:
        test = _COMPARISON[op]
        return lambda a, b: int(test(a, b))
    if op == "<<":
        return lambda a, b: shift_left(ta, a, b)
    if op == ">>":
        return lambda a, b: shift_right(ta, a, b)
    if op == "**":
        return lambda a, b: int_power(a, b, ta)
    result = promote(ta, tb)
    assert result is not None
    exact, low, mask = EXACT[op], limits(result)[0], 2 ** bits(result) - 1
    return lambda a, b: ((exact(a, b) - low) & mask) + low


def int_binary(op: str, ta: str, a: int, tb: str, b: int) -> int:
    return int_operator(op, ta, tb)(a, b)


@functools.cache
def interesting_integers(name: str) -> list[int]:
    """Boundary values of an integer type, and a few between."""
    low, high = limits(name)
    near = {low, low + 1, high, high - 1, high // 2, high // 3, 0, 1, 2, 3, 5, 7, 10, 31, 64, 100}
    if low:
        near |= {-1, -2, -3, -7, -10, -100, low // 2}
    return sorted(v for v in near if low <= v <= high)


# --- floats -----------------------------------------------------------------------------------


def round_to(name: str, value: Fraction | int) -> float:
    """``value`` correctly rounded (to nearest, ties to even) to f32 or f64, as a Python float."""
    value = Fraction(value)
    if value == 0:
        return 0.0
    digits, low, high = {"f32": (24, -149, 128), "f64": (53, -1074, 1024)}[name]
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = Fraction(2) ** max(exponent - digits + 1, low)
    rounded = round(magnitude / quantum) * quantum  # Fraction rounds half to even
    result = math.inf if rounded >= Fraction(2) ** high else float(rounded)
    return -result if value < 0 else result


def float_to_int(name: str, value: float) -> int:
    """Truncates, saturates, and maps NaN to 0."""
    if math.isnan(value):
        return 0
    low, high = limits(name)
    if math.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, int(value)))


def floor_divmod(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """CPython's float ``//`` and ``%`` in the precision of the operands, elementwise.

    A zero divisor gives ``a / b`` and NaN, where Python raises.
    """
    one, half, zero = a.dtype.type(1), a.dtype.type(0.5), a.dtype.type(0)
    with np.errstate(all="ignore"):
        mod = np.fmod(a, b)
        div = (a - mod) / b
        differ = (mod != 0) & ((b < 0) != (mod < 0))
        div = np.where(differ, div - one, div)
        mod = np.where(differ, mod + b, mod)
        mod = np.where(mod == 0, np.copysign(zero, b), mod)
        floor = np.floor(div)
        floor = np.where(div - floor > half, floor + one, floor)
        quotient = np.where(div == 0, np.copysign(zero, a / b), floor)
        quotient = np.where(np.isnan(div), div, quotient)
        quotient = np.where(b == 0, a / b, quotient)
        mod = np.where(b == 0, a.dtype.type(np.nan), mod)
    return quotient, mod


def interesting_floats(name: str) -> list[float]:
    """Zeros, denormals, extremes, infinities, NaN, and ordinary values, exact in ``name``."""
    dtype = numpy_dtype(name)
    info = np.finfo(dtype)
    tiny, small, big = float(info.smallest_subnormal), float(info.tiny), float(info.max)
    ordinary = [1.0, 0.5, 1.5, 2.0, 2.5, 3.0, 7.0, 0.1, 1e-3, 10.0, 1e10, 123456.789, 1 + float(info.eps)]
    found = [0.0, tiny, 3 * tiny, small, small - tiny, big, big / 3, math.inf, *ordinary]
    return [*(float(dtype.type(v)) for v in found), *(-float(dtype.type(v)) for v in found), math.nan]
