"""Rules for the builtin functions of `tack.lang.builtins`, one for each name.

A rule takes the emitter, the type of the arguments and their terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from tack.codegen.c import helpers
from tack.codegen.c.terms import (
    ADD,
    BITOR,
    COND,
    EQUAL,
    OR,
    Term,
    binary,
    called,
    cast,
    exact,
    within,
)
from tack.dtypes import DType

if TYPE_CHECKING:
    from tack.codegen.c.emitter import Emitter

__all__ = ["CALLS"]

Rule = Callable[["Emitter", DType, Sequence[Term]], Term]


def _math(name: str, function: str | None = None) -> Rule:
    """A function of C's ``math.h``."""
    return lambda fn, dtype, args: called(fn.dialect.math(function or name, dtype), *args)


def _rounding(name: str) -> Rule:
    """A function to whole numbers, which is the identity on integers."""

    def rule(fn: Emitter, dtype: DType, args: Sequence[Term]) -> Term:
        return called(fn.dialect.math(name, dtype), *args) if dtype.is_float else args[0]

    return rule


def _abs(fn: Emitter, dtype: DType, args: Sequence[Term]) -> Term:
    if dtype.is_float:
        return called(fn.dialect.math("fabs", dtype), *args)
    return called(helpers.integer_abs(fn.unit, dtype), *args) if dtype.is_signed else args[0]


def _sign(fn: Emitter, dtype: DType, args: Sequence[Term]) -> Term:
    return called((helpers.float_sign if dtype.is_float else helpers.integer_sign)(fn.unit, dtype), *args)


def _extremum(name: str) -> Rule:
    """``min`` or ``max``; a number wins over a NaN."""

    def rule(fn: Emitter, dtype: DType, args: Sequence[Term]) -> Term:
        function = fn.dialect.math(f"f{name}", dtype) if dtype.is_float else name
        if dtype.bits < 32:  # what the arguments have been promoted to
            args = [cast(str(dtype), a) for a in args]
        return reduce(lambda a, b: called(function, a, b), [exact(a, dtype) for a in args])

    return rule


def _test(name: str, on_integers: str) -> Rule:
    return lambda fn, dtype, args: called(name, *args) if dtype.is_float else Term(on_integers)


def _truth(fn: Emitter, dtype: DType, args: Sequence[Term]) -> Term:
    return binary("!=", EQUAL, args[0], Term("0"))


def _count(name: str) -> Rule:
    def rule(fn: Emitter, dtype: DType, args: Sequence[Term]) -> Term:
        term = args[0] if args[0].raw else cast(f"u{dtype.bits}", args[0])
        bits = max(dtype.bits, 32)
        if dtype.bits < 32 and name == "ctz":  # a zero has as many as the type has bits
            term = binary("|", BITOR, term, Term(f"{1 << dtype.bits}u"))
        found = Term(fn.dialect.count(name, term.text, bits))
        if dtype.bits < 32 and name == "clz":
            found = binary("-", ADD, found, Term(str(32 - dtype.bits)))
        return found

    return rule


def _where(fn: Emitter, dtype: DType, args: Sequence[Term]) -> Term:
    cond, then, orelse = args
    then, orelse = exact(then, dtype), exact(orelse, dtype)
    return Term(f"{within(cond, OR)} ? {within(then, COND)} : {within(orelse, COND)}", COND)


CALLS: dict[str, Rule] = {
    **{
        name: _math(name)
        for name in (
            *("sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc"),
            *("atan2", "hypot", "fmod", "copysign", "fma"),
        )
    },
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("rint"),  # half to even
    "trunc": _rounding("trunc"),
    "sign": _sign,
    "abs": _abs,
    "min": _extremum("min"),
    "max": _extremum("max"),
    "isnan": _test("isnan", "0"),
    "isinf": _test("isinf", "0"),
    "isfinite": _test("isfinite", "1"),
    "any": _truth,
    "all": _truth,
    "popcount": _count("popcount"),
    "clz": _count("clz"),
    "ctz": _count("ctz"),
    "where": _where,
}
