"""Rules for expressions, by node class. C's ``?:``, ``&&`` and ``||`` are as lazy as the language's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tack.codegen.c.builtins import CALLS
from tack.codegen.c.emitter import Emitter
from tack.codegen.c.operators import BINARY, UNARY_OPERATORS, bitcast, compare, constant, convert
from tack.codegen.c.tables import table
from tack.codegen.c.terms import ADD, AND, COND, EQUAL, MUL, OR, SHIFT, UNARY, Term, binary, exact, within
from tack.dtypes import DType
from tack.ir.nodes import (
    Binary,
    Bitcast,
    Bounds,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fetch,
    LaneId,
    Load,
    Local,
    Logical,
    Lookup,
    NonZero,
    Param,
    Select,
    Unary,
)

__all__ = ["VALUES", "dtype_of", "exact_value", "text", "truth", "value"]


def dtype_of(node: Expr) -> DType:
    """The type of an expression of a typed kernel."""
    assert node.type is not None, node
    return node.type


def value(fn: Emitter, node: Expr) -> Term:
    """The value of ``node``."""
    return VALUES[type(node)](fn, node)


def exact_value(fn: Emitter, node: Expr) -> Term:
    """The value in the type of ``node`` itself, not its unsigned counterpart."""
    return exact(value(fn, node), dtype_of(node))


def truth(fn: Emitter, node: Expr) -> Term:
    """The value as a condition, which is true if it is nonzero, as NaN is too.

    OpenCL C takes no float for that of a ``?:``, and elsewhere compilers warn of a conversion.
    """
    found = value(fn, node)
    return binary("!=", EQUAL, found, Term("0")) if dtype_of(node).is_float else found


def text(fn: Emitter, node: Expr) -> str:
    """The value where C converts it to the type of what receives it."""
    return value(fn, node).text


# --- leaves -------------------------------------------------------------------------------------


def _const(fn: Emitter, node: Const) -> Term:
    return constant(fn, dtype_of(node), node.value)


def _named(fn: Emitter, node: Param | Local) -> Term:
    return Term(fn.name(node.name))


def _load(fn: Emitter, node: Load) -> Term:
    if id(node) in fn.loaded:
        return Term(fn.loaded[id(node)])
    at = value(fn, node.index[0])
    if not isinstance(node.index[0], Bounds):
        return fn.element(node.array, at)
    # In debug mode, 0 where the index is out of range.
    checked = fn.temporary(dtype_of(node.index[0]))
    element = fn.element(node.array, Term(checked))
    return Term(f"({checked} = {at.text}, {checked} < 0 ? 0 : {element.text})")


def _lookup(fn: Emitter, node: Lookup) -> Term:
    return table(fn, node.table, dtype_of(node), value(fn, node.index))


def _fetch(fn: Emitter, node: Fetch) -> Term:
    if fn.dialect.sampler:
        fn.unit.pieces.setdefault("tack_sampler", fn.dialect.sampler)
    return Term(fn.dialect.fetch(fn.name(node.texture), [within(value(fn, e), ADD) for e in node.position]))


def _lane_id(fn: Emitter, node: LaneId) -> Term:
    return Term(fn.lane)


# --- operators ----------------------------------------------------------------------------------


def _unary(fn: Emitter, node: Unary) -> Term:
    if node.op == "not":
        return Term(f"!{within(truth(fn, node.operand), UNARY)}", UNARY)
    return UNARY_OPERATORS[node.op](fn, dtype_of(node), value(fn, node.operand))


def _binary(fn: Emitter, node: Binary) -> Term:
    return BINARY[node.op](fn, dtype_of(node), value(fn, node.left), value(fn, node.right), node.right)


def _compare(fn: Emitter, node: Compare) -> Term:
    return compare(fn, node.op, dtype_of(node.left), value(fn, node.left), value(fn, node.right))


def _logical(fn: Emitter, node: Logical) -> Term:
    symbol, level = ("&&", AND) if node.op == "and" else ("||", OR)
    return binary(symbol, level, truth(fn, node.left), truth(fn, node.right))


def _select(fn: Emitter, node: Select) -> Term:
    cond, then, orelse = truth(fn, node.cond), exact_value(fn, node.then), exact_value(fn, node.orelse)
    return Term(f"{within(cond, OR)} ? {within(then, COND)} : {within(orelse, COND)}", COND)


def _call(fn: Emitter, node: Call) -> Term:
    if node.function == "where":
        args = [truth(fn, node.args[0]), *(value(fn, a) for a in node.args[1:])]
    else:
        args = [exact_value(fn, a) for a in node.args]
    return CALLS[node.function](fn, dtype_of(node.args[-1]), args)


def _cast(fn: Emitter, node: Cast) -> Term:
    return convert(fn, value(fn, node.operand), dtype_of(node.operand), node.to)


def _bitcast(fn: Emitter, node: Bitcast) -> Term:
    return bitcast(fn, value(fn, node.operand), dtype_of(node.operand), node.to)


# --- checks of debug mode -----------------------------------------------------------------------


def _bounds(fn: Emitter, node: Bounds) -> Term:
    """The flat index; the first axis whose index is out of range is recorded, and the value is -1."""
    from tack.codegen.c.checks import violation

    site = fn.unit.sites[id(node)]
    names = [fn.temporary(dtype_of(part)) for part in node.index]
    flat = Term("0")
    for name, stride in zip(names, node.strides, strict=True):
        scaled = binary("*", MUL, Term(f"(u64){name}", UNARY), value(fn, stride))
        flat = scaled if flat.text == "0" else binary("+", ADD, flat, scaled)
    found = f"(i64)({flat.text})"
    for axis in reversed(range(len(names))):
        name, at, extent = names[axis], value(fn, node.index[axis]), exact_value(fn, node.extents[axis])
        bad = violation(fn, site, str(axis), name, extent.text)
        inside = f"0 <= {name} && {name} < {within(extent, SHIFT)}"
        found = f"({name} = {at.text}, {inside} ? {found} : {bad})"
    return Term(found)


def _nonzero(fn: Emitter, node: NonZero) -> Term:
    from tack.codegen.c.checks import violation

    divisor = fn.temporary(dtype_of(node))
    bad = violation(fn, fn.unit.sites[id(node)], "0", "0", "0")
    return Term(f"({divisor} = {text(fn, node.operand)}, {divisor} == 0 ? {bad} : 0, {divisor})")


VALUES: dict[type[Expr], Callable[[Emitter, Any], Term]] = {
    Const: _const,
    Param: _named,
    Local: _named,
    Load: _load,
    Lookup: _lookup,
    Fetch: _fetch,
    LaneId: _lane_id,
    Unary: _unary,
    Binary: _binary,
    Compare: _compare,
    Logical: _logical,
    Select: _select,
    Call: _call,
    Cast: _cast,
    Bitcast: _bitcast,
    Bounds: _bounds,
    NonZero: _nonzero,
}
