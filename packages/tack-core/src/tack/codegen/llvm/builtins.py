"""Rules for the builtin functions of `tack.lang.builtins`, one for each name.

A rule takes the emitter, the type of the arguments and their values. `CALLS` gives a value of the
call's type; `TESTS` gives an i1, which a condition uses as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf
from typing import TYPE_CHECKING

from tack.codegen.llvm import ir
from tack.codegen.llvm.operators import compare, convert, truth
from tack.codegen.llvm.types import constant, flag
from tack.dtypes import DType, i32

if TYPE_CHECKING:
    from tack.codegen.llvm.emitter import Emitter

__all__ = ["CALLS", "CHEAP", "TESTS"]

Rule = Callable[["Emitter", DType, Sequence[ir.Value]], ir.Value]


def _math(name: str) -> Rule:
    return lambda fn, dtype, args: fn.math(name, dtype, *args)


def _intrinsic(name: str) -> Rule:
    return lambda fn, dtype, args: fn.intrinsic(name, dtype, *args)


def _rounding(name: str) -> Rule:
    """A function to whole numbers, which is the identity on integers."""

    def rule(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
        return fn.intrinsic(name, dtype, args[0]) if dtype.is_float else args[0]

    return rule


def _rsqrt(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
    root = fn.intrinsic("sqrt", dtype, args[0], fast=True)
    return fn.builder.fdiv(constant(dtype, 1), root, flags=fn.unit.flags)


def _abs(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
    if dtype.is_float:
        return fn.intrinsic("fabs", dtype, args[0])
    if not dtype.is_signed:
        return args[0]
    return fn.intrinsic("abs", dtype, args[0], flag(False))  # the minimum stays as it is


def _extremum(name: str) -> Rule:
    def rule(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
        if dtype.is_float:
            return reduce(lambda a, b: _float_extremum(fn, name, dtype, a, b), args)
        intrinsic = f"{'s' if dtype.is_signed else 'u'}{name}"
        return reduce(lambda a, b: fn.intrinsic(intrinsic, dtype, a, b), args)

    return rule


def _float_extremum(fn: Emitter, name: str, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    """``min`` or ``max``, in which a number wins over a NaN.

    Where one is known to be a number, so is the result, and x86 has an instruction for this comparison.
    LLVM would find that too, but not without its passes, and of two zeros would then give the other one.
    """
    if _is_number(fn, left):
        left, right = right, left
    if not _is_number(fn, right):
        return fn.intrinsic(f"{name}num", dtype, left, right)
    chosen = fn.builder.select(compare(fn, "lt" if name == "min" else "gt", dtype, left, right), left, right)
    fn.numbers.add(id(chosen))
    return chosen


def _is_number(fn: Emitter, value: ir.Value) -> bool:
    """Whether a float is known not to be NaN, by what LLVM knows too."""
    if isinstance(value, ir.Constant):
        return bool(value.constant == value.constant)
    if not isinstance(value, ir.Instruction) or id(value) in fn.numbers:
        return id(value) in fn.numbers
    kind, operands = value.opname, value.operands
    if kind == "call" and value.callee.startswith(_KEEP_NUMBERS):
        kind = "fneg"
    if kind == "select":
        return all(_is_number(fn, operand) for operand in operands[1:])
    return kind in ("sitofp", "uitofp") or (
        kind in ("fneg", "fpext", "fptrunc") and _is_number(fn, operands[0])
    )


_KEEP_NUMBERS = tuple(f"llvm.{name}." for name in ("fabs", "copysign", "floor", "ceil", "trunc", "roundeven"))


def _sign(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
    b = fn.builder
    zero, one = constant(dtype, 0), constant(dtype, 1)
    positive = compare(fn, "gt", dtype, args[0], zero)
    negative = compare(fn, "lt", dtype, args[0], zero)
    # What is neither positive nor negative is its own sign: zeros and NaN.
    return b.select(positive, one, b.select(negative, constant(dtype, -1), args[0]))


def _bit_count(name: str, *extra: ir.Value) -> Rule:
    def rule(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
        return convert(fn, fn.intrinsic(name, dtype, args[0], *extra), dtype, i32)

    return rule


CALLS: dict[str, Rule] = {
    **{
        name: _math(name)
        for name in (
            *("cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "atan2"),
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "hypot", "fmod"),
        )
    },
    "sqrt": lambda fn, dtype, args: fn.intrinsic("sqrt", dtype, args[0], fast=True),
    "rsqrt": _rsqrt,
    "copysign": _intrinsic("copysign"),
    "fma": _intrinsic("fma"),
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("roundeven"),
    "trunc": _rounding("trunc"),
    "sign": _sign,
    "abs": _abs,
    "min": _extremum("min"),
    "max": _extremum("max"),
    "popcount": _bit_count("ctpop"),
    "clz": _bit_count("ctlz", flag(False)),  # zero gives the width
    "ctz": _bit_count("cttz", flag(False)),
}


def _isnan(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
    return fn.builder.fcmp_unordered("uno", args[0], args[0]) if dtype.is_float else flag(False)


def _isinf(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
    return _magnitude(fn, "eq", dtype, args[0]) if dtype.is_float else flag(False)


def _isfinite(fn: Emitter, dtype: DType, args: Sequence[ir.Value]) -> ir.Value:
    return _magnitude(fn, "lt", dtype, args[0]) if dtype.is_float else flag(True)


def _magnitude(fn: Emitter, op: str, dtype: DType, value: ir.Value) -> ir.Value:
    """|value| compared with infinity."""
    return compare(fn, op, dtype, fn.intrinsic("fabs", dtype, value), constant(dtype, inf))


TESTS: dict[str, Rule] = {
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "any": lambda fn, dtype, args: truth(fn, args[0], dtype),
    "all": lambda fn, dtype, args: truth(fn, args[0], dtype),
}

# Calls that cost about as much as an addition: worth evaluating where a branch would be needed.
CHEAP = frozenset(
    (
        *("abs", "min", "max", "sign", "copysign", "floor", "ceil", "round", "trunc", "fma"),
        *("isnan", "isinf", "isfinite", "any", "all", "where", "popcount", "clz", "ctz"),
    )
)
