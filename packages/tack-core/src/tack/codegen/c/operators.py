"""Rules for operators and conversions: one for each, in tables by name.

A rule takes the emitter, the type and the operands' terms. Integer operations wrap and never trap;
`docs/design/ir.md` gives their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tack.codegen.c import helpers
from tack.codegen.c.terms import (
    ADD,
    BITAND,
    BITOR,
    BITXOR,
    CALL,
    COMPARE,
    EQUAL,
    MUL,
    SHIFT,
    UNARY,
    Term,
    binary,
    called,
    cast,
    exact,
    unsigned_name,
    within,
)
from tack.dtypes import DType, f32
from tack.ir.nodes import Const, Expr

if TYPE_CHECKING:
    from tack.codegen.c.emitter import Emitter

__all__ = ["BINARY", "UNARY_OPERATORS", "bitcast", "compare", "constant", "convert", "power"]

UnaryRule = Callable[["Emitter", DType, Term], Term]
# The right operand's node shows whether it is a constant.
BinaryRule = Callable[["Emitter", DType, Term, Term, Expr], Term]

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


# --- constants ----------------------------------------------------------------------------------


def constant(fn: Emitter, dtype: DType, value: int | float) -> Term:
    """A literal of exactly this value and type."""
    if dtype.is_float:
        return _float(fn, dtype, float(value))
    number = int(value)
    suffix = fn.dialect.suffixes.get(dtype.name, "")
    if number >= 0:
        return Term(f"{number}{suffix}")
    if number == dtype.min and dtype.bits >= 32:  # its magnitude has no literal
        return Term(f"-{-number - 1}{suffix} - 1", ADD)
    return Term(f"{number}{suffix}", UNARY)


def _float(fn: Emitter, dtype: DType, value: float) -> Term:
    if not math.isfinite(value):
        from tack.ir.semantics import to_bits

        bits = to_bits(value, dtype)
        digits = f"0x{bits:0{dtype.bits // 4}x}{fn.dialect.suffixes[f'u{dtype.bits}']}"
        return Term(fn.dialect.bitcast(digits, _integer_of(dtype), dtype))
    text = str(dtype.numpy.type(value)) if dtype is f32 else repr(value)
    if "." not in text and "e" not in text:
        text += ".0"
    return Term(f"{text}{'f' if dtype is f32 else ''}", UNARY if text[0] == "-" else CALL)


def _integer_of(dtype: DType) -> DType:
    from tack.dtypes import u32, u64

    return u32 if dtype.bits == 32 else u64


def _known(node: Expr) -> int | None:
    return int(node.value) if isinstance(node, Const) else None


# --- comparison and conversion ------------------------------------------------------------------


def compare(fn: Emitter, op: str, dtype: DType, left: Term, right: Term) -> Term:
    """A comparison; NaN is unequal to everything."""
    level = EQUAL if op in ("eq", "ne") else COMPARE
    return binary(_COMPARISONS[op], level, exact(left, dtype), exact(right, dtype))


def convert(fn: Emitter, term: Term, source: DType, target: DType) -> Term:
    """``term`` of ``source`` as ``target``: floats saturate, integers keep their low bits."""
    if source is target:
        return term
    if source.is_float and not target.is_float:
        function = fn.dialect.truncate(source, target) or helpers.truncate(fn.unit, source, target)
        return called(function, term)
    if target.bits > source.bits or target.is_float:
        term = exact(term, source)
    return cast(str(target), term)


def bitcast(fn: Emitter, term: Term, source: DType, target: DType) -> Term:
    """The bits of ``term`` read as ``target``, which has the same width."""
    if source.is_float == target.is_float:
        return convert(fn, term, source, target)
    found = Term(fn.dialect.bitcast(term.text, source, target))
    return cast(str(target), found) if not target.is_float and not target.is_signed else found


# --- unary --------------------------------------------------------------------------------------


def _neg(fn: Emitter, dtype: DType, term: Term) -> Term:
    if dtype.is_float:
        return Term(f"-{_operand(term)}", UNARY)
    negative = Term(f"-{_operand(_unsigned(dtype, term))}", UNARY)
    return _wrapped(dtype, _opaque(fn, dtype, negative) if dtype.bits < 32 else negative)


def _opaque(fn: Emitter, dtype: DType, term: Term) -> Term:
    text = fn.dialect.opaque(term.text, dtype)
    return term if text == term.text else Term(text)


def _invert(fn: Emitter, dtype: DType, term: Term) -> Term:
    found = Term(f"~{within(term, UNARY)}", UNARY, term.raw)
    return cast(str(dtype), found) if dtype.bits < 32 else found


def _operand(term: Term) -> str:
    """What a minus may stand before; two would be a decrement."""
    text = within(term, UNARY)
    return f"({text})" if text[0] == "-" else text


UNARY_OPERATORS: dict[str, UnaryRule] = {"neg": _neg, "invert": _invert}


# --- wrapping arithmetic ------------------------------------------------------------------------


def _unsigned(dtype: DType, term: Term) -> Term:
    """``term`` in the unsigned type in which arithmetic of ``dtype`` wraps."""
    if term.raw or (dtype.bits >= 32 and not dtype.is_signed):
        return term
    return cast(unsigned_name(dtype), term)


def _wrapped(dtype: DType, term: Term) -> Term:
    """The result of arithmetic in that type."""
    if dtype.bits < 32:
        return cast(str(dtype), term)
    return term._replace(raw=dtype.is_signed)


def _arithmetic(symbol: str, level: int) -> BinaryRule:
    def rule(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
        if dtype.is_float:
            return binary(symbol, level, left, right)
        known = _known(right_node)
        if dtype.bits < 32 and (symbol, known) == ("*", -1):
            return _neg(fn, dtype, left)
        if dtype.bits < 32 and (symbol, left.text) in (("-", "0"), ("*", "-1")):
            return _neg(fn, dtype, right)
        if known is not None and dtype.bits >= 32 and dtype.is_signed and not left.raw:
            return _with_constant(fn, dtype, symbol, level, left, known)
        if not right.raw:  # one unsigned operand makes the operation unsigned
            left = _unsigned(dtype, left)
        found = binary(symbol, level, left, right)
        if dtype.bits < 32 and symbol == "-":  # the left may turn out to be 0
            found = _opaque(fn, dtype, found)
        return _wrapped(dtype, found)

    return rule


def _with_constant(fn: Emitter, dtype: DType, symbol: str, level: int, left: Term, known: int) -> Term:
    """Signed arithmetic with a constant, which is written as an unsigned one: ``i - 1u``."""
    suffix = fn.dialect.suffixes[unsigned_name(dtype)]
    if symbol != "*" and known < 0:
        symbol, known = {"+": "-", "-": "+"}[symbol], -known
    term = Term(f"{known}{suffix}") if known >= 0 else Term(f"-{-known}{suffix}", UNARY)
    return binary(symbol, level, left, term, raw=True)


def _div(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
    return binary("/", MUL, left, right)


def _bitwise(symbol: str, level: int) -> BinaryRule:
    def rule(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
        return binary(symbol, level, left, right, raw=left.raw or right.raw)

    return rule


# --- shifts and division ------------------------------------------------------------------------


def _count(dtype: DType, right: Term, right_node: Expr) -> Term:
    """A shift count modulo the width."""
    known = _known(right_node)
    if known is not None:
        return Term(str(known % dtype.bits))
    return binary("&", BITAND, right, Term(str(dtype.bits - 1)))


def _shl(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
    count = _count(dtype, right, right_node)
    return _wrapped(dtype, binary("<<", SHIFT, _unsigned(dtype, left), count))


def _shr(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
    return binary(">>", SHIFT, exact(left, dtype), _count(dtype, right, right_node))


def _power_of_two(node: Expr) -> int | None:
    """The exponent, if ``node`` is a constant power of two."""
    known = _known(node)
    return known.bit_length() - 1 if known is not None and known > 0 and known & (known - 1) == 0 else None


def _floordiv(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
    left, right = exact(left, dtype), exact(right, dtype)
    if dtype.is_float:
        return called(helpers.float_floordiv(fn.unit, dtype), left, right)
    shift = _power_of_two(right_node)
    if shift is not None:
        return binary(">>", SHIFT, left, Term(str(shift)))
    if not dtype.is_signed and _known(right_node):
        return binary("/", MUL, left, right)
    return called(helpers.integer_floordiv(fn.unit, dtype), left, right)


def _mod(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
    left, right = exact(left, dtype), exact(right, dtype)
    if dtype.is_float:
        return called(helpers.float_mod(fn.unit, dtype), left, right)
    if _power_of_two(right_node) is not None:
        return binary("&", BITAND, left, constant(fn, dtype, (_known(right_node) or 1) - 1))
    if not dtype.is_signed and _known(right_node):
        return binary("%", MUL, left, right)
    return called(helpers.integer_mod(fn.unit, dtype), left, right)


# --- powers -------------------------------------------------------------------------------------


def power(fn: Emitter, dtype: DType, left: Term, right: Term, right_node: Expr) -> Term:
    """``pow``: correct to the bounds on floats, exact modulo 2^N on integers."""
    left = exact(left, dtype)
    if dtype.is_float:
        value = right_node.value if isinstance(right_node, Const) else None
        special = None if value is None else helpers.float_power(fn.unit, dtype, float(value))
        if special is not None:
            return called(special, left)
        return called(fn.dialect.math("pow", dtype), left, right)
    exponent = right_node.type
    assert exponent is not None
    return called(helpers.integer_power(fn.unit, dtype, exponent), left, exact(right, exponent))


BINARY: dict[str, BinaryRule] = {
    "add": _arithmetic("+", ADD),
    "sub": _arithmetic("-", ADD),
    "mul": _arithmetic("*", MUL),
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "shl": _shl,
    "shr": _shr,
    "bitand": _bitwise("&", BITAND),
    "bitor": _bitwise("|", BITOR),
    "bitxor": _bitwise("^", BITXOR),
    "pow": power,
}
