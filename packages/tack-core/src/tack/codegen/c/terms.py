"""Pieces of C expressions, and what keeps them exact when they are put together."""

from __future__ import annotations

from typing import NamedTuple

from tack.dtypes import DType

__all__ = [
    "ADD",
    "AND",
    "BITAND",
    "BITOR",
    "BITXOR",
    "CALL",
    "COMPARE",
    "COND",
    "EQUAL",
    "MUL",
    "OR",
    "SHIFT",
    "UNARY",
    "Term",
    "binary",
    "called",
    "cast",
    "exact",
    "unsigned_name",
    "within",
]

# Precedence levels of C, but for the comma, which always has parentheses.
COND, OR, AND, BITOR, BITXOR, BITAND, EQUAL, COMPARE, SHIFT, ADD, MUL, UNARY, CALL = range(13)


class Term(NamedTuple):
    """The text of an expression, and the level of its outermost operator.

    Signed arithmetic that may overflow is done on unsigned numbers. ``raw`` says that the text is such
    a result: it has the right bits, and the unsigned type of the value's width.
    """

    text: str
    level: int = CALL
    raw: bool = False


def within(term: Term, level: int) -> str:
    """The text where operators below ``level`` need parentheses."""
    return term.text if term.level >= level else f"({term.text})"


def called(function: str, *args: Term) -> Term:
    return Term(f"{function}({', '.join(a.text for a in args)})")


def binary(op: str, level: int, left: Term, right: Term, *, raw: bool = False) -> Term:
    """A left-associative operator."""
    return Term(f"{within(left, level)} {op} {within(right, level + 1)}", level, raw)


def cast(name: str, term: Term, *, raw: bool = False) -> Term:
    return Term(f"({name}){within(term, UNARY)}", UNARY, raw)


def exact(term: Term, dtype: DType) -> Term:
    """``term`` in its own type, where the sign of its type matters."""
    return cast(str(dtype), term) if term.raw else term


def unsigned_name(dtype: DType) -> str:
    """The unsigned type in which arithmetic of ``dtype`` wraps."""
    return f"u{max(dtype.bits, 32)}"
