"""Rules for expressions, by node class.

A truth value has two forms: i32 0 or 1 as the language has it, and i1 as LLVM branches on.
`condition` gives the second without a detour where the expression is a test itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tack.codegen.fusing import is_product, is_sum
from tack.codegen.llvm import ir
from tack.codegen.llvm.builtins import CALLS, CHEAP, TESTS
from tack.codegen.llvm.emitter import Emitter
from tack.codegen.llvm.operators import BINARY, UNARY, compare, convert, power, truth
from tack.codegen.llvm.types import FLAG, LLVM_TYPES, constant, flag
from tack.dtypes import DType, i32, i64
from tack.ir.nodes import (
    Binary,
    Bitcast,
    Bounds,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    LaneId,
    Load,
    Local,
    Logical,
    Lookup,
    Node,
    NonZero,
    Param,
    Select,
    Unary,
)
from tack.ir.traversal import children

__all__ = ["VALUES", "condition", "element", "factors", "value"]

# The largest expression that is evaluated whether or not it is needed.
_SPECULATED_NODES = 12
_NOT_SPECULATED = (Load, Lookup, Bounds, NonZero)


def dtype_of(node: Expr) -> DType:
    """The type of an expression of a typed kernel."""
    assert node.type is not None, node
    return node.type


def value(fn: Emitter, node: Expr) -> ir.Value:
    """The value of ``node``, in the LLVM type of ``node.type``."""
    rule = VALUES.get(type(node))
    if rule is not None:
        return rule(fn, node)
    return fn.builder.zext(condition(fn, node), LLVM_TYPES[i32])


def condition(fn: Emitter, node: Expr) -> ir.Value:
    """Whether ``node`` is nonzero, as an i1."""
    if isinstance(node, Compare):
        dtype = dtype_of(node.left)
        return compare(fn, node.op, dtype, value(fn, node.left), value(fn, node.right))
    if isinstance(node, Logical):
        return _logical(fn, node)
    if isinstance(node, Unary) and node.op == "not":
        return fn.builder.not_(condition(fn, node.operand))
    if isinstance(node, Call) and node.function in TESTS:
        argument = node.args[0]
        return TESTS[node.function](fn, dtype_of(argument), [value(fn, argument)])
    if isinstance(node, Const):
        return flag(node.value != 0)
    return truth(fn, value(fn, node), dtype_of(node))


def element(fn: Emitter, array: str, at: tuple[Expr, ...]) -> tuple[ir.Value, DType]:
    """The address and type of an element, given its one flat index."""
    return fn.element(array, value(fn, at[0]))


# --- leaves -------------------------------------------------------------------------------------


def _const(fn: Emitter, node: Const) -> ir.Value:
    return constant(dtype_of(node), node.value)


def _param(fn: Emitter, node: Param) -> ir.Value:
    return fn.scalars[node.name]


def _local(fn: Emitter, node: Local) -> ir.Value:
    return fn.read(node.name)


def _load(fn: Emitter, node: Load) -> ir.Value:
    if isinstance(node.index[0], Bounds):
        return _checked_load(fn, node)
    address, dtype = element(fn, node.array, node.index)
    loaded = fn.access(node.array, fn.builder.load(address, align=1, typ=LLVM_TYPES[dtype]))
    return fn.freeze(loaded) if node.array in fn.local_arrays else loaded


def _checked_load(fn: Emitter, node: Load) -> ir.Value:
    """A load in debug mode: 0 where the index is out of range."""
    b = fn.builder
    at = value(fn, node.index[0])
    inside, done = fn.block("load.inside"), fn.block("load.end")
    before = b.block
    b.cbranch(b.icmp_signed(">=", at, constant(i64, 0)), inside, done)
    fn.at(inside)
    address, dtype = fn.element(node.array, at)
    loaded = fn.access(node.array, b.load(address, align=1, typ=LLVM_TYPES[dtype]))
    b.branch(done)
    fn.at(done)
    return _joined(fn, LLVM_TYPES[dtype], [(constant(dtype, 0), before), (loaded, inside)])


def _lookup(fn: Emitter, node: Lookup) -> ir.Value:
    dtype = dtype_of(node)
    kind = LLVM_TYPES[dtype]
    address = fn.builder.gep(
        fn.unit.table(node.table, dtype), [value(fn, node.index)], inbounds=True, source_etype=kind
    )
    return fn.builder.load(address, typ=kind)


def _lane_id(fn: Emitter, node: LaneId) -> ir.Value:
    assert fn.lane_id is not None
    return fn.lane_id


# --- operators ----------------------------------------------------------------------------------


def _unary(fn: Emitter, node: Unary) -> ir.Value:
    if node.op == "not":
        return fn.builder.zext(condition(fn, node), LLVM_TYPES[i32])
    return UNARY[node.op](fn, dtype_of(node), value(fn, node.operand))


def _takes_factors(fn: Emitter, node: Expr) -> bool:
    """Whether a sum that takes ``node`` is fused with it."""
    if isinstance(node, Unary) and node.op == "neg":
        node = node.operand
    return fn.is_fused(node.name) if isinstance(node, Local) else is_product(node)


def factors(fn: Emitter, node: Expr) -> tuple[ir.Value, ir.Value]:
    """The two factors of a product, of its negative, or of a local that is one."""
    if isinstance(node, Unary):
        left, right = factors(fn, node.operand)
        return fn.builder.fneg(left), right
    if isinstance(node, Local):
        return fn.factors(node.name)
    assert isinstance(node, Binary)
    return value(fn, node.left), value(fn, node.right)


def _fused(fn: Emitter, node: Binary) -> ir.Value | None:
    """A sum with one of its operands, a product, in one rounding; None if neither is one."""
    b = fn.builder
    if _takes_factors(fn, node.right):
        other = value(fn, node.left)
        left, right = factors(fn, node.right)
        if node.op == "sub":
            left = b.fneg(left)
    elif _takes_factors(fn, node.left):
        left, right = factors(fn, node.left)
        other = value(fn, node.right)
        if node.op == "sub":
            other = b.fneg(other)
    else:
        return None
    return fn.intrinsic("fma", dtype_of(node), left, right, other)


def _binary(fn: Emitter, node: Binary) -> ir.Value:
    if fn.unit.fuses and is_sum(node):
        fused = _fused(fn, node)
        if fused is not None:
            return fused
    left, right = value(fn, node.left), value(fn, node.right)
    if node.op == "pow":
        return power(fn, node, left, right)
    return BINARY[node.op](fn, dtype_of(node), left, right)


def _call(fn: Emitter, node: Call) -> ir.Value:
    if node.function in TESTS:
        return fn.builder.zext(condition(fn, node), LLVM_TYPES[i32])
    if node.function == "where":
        chosen, then, orelse = node.args
        return fn.builder.select(condition(fn, chosen), value(fn, then), value(fn, orelse))
    return CALLS[node.function](fn, dtype_of(node.args[0]), [value(fn, a) for a in node.args])


def _cast(fn: Emitter, node: Cast) -> ir.Value:
    return convert(fn, value(fn, node.operand), dtype_of(node.operand), node.to)


def _bitcast(fn: Emitter, node: Bitcast) -> ir.Value:
    operand, kind = value(fn, node.operand), LLVM_TYPES[node.to]
    return operand if operand.type == kind else fn.builder.bitcast(operand, kind)


# --- lazy expressions ---------------------------------------------------------------------------


def _logical(fn: Emitter, node: Logical) -> ir.Value:
    left = condition(fn, node.left)
    b = fn.builder
    if _is_speculatable(node.right):
        right = condition(fn, node.right)
        return b.and_(left, right) if node.op == "and" else b.or_(left, right)
    more, done = fn.block("logical.right"), fn.block("logical.end")
    first = b.block
    b.cbranch(left, *((more, done) if node.op == "and" else (done, more)))
    fn.at(more)
    right = condition(fn, node.right)
    second = b.block
    b.branch(done)
    fn.at(done)
    return _joined(fn, FLAG, [(flag(node.op == "or"), first), (right, second)])


def _select(fn: Emitter, node: Select) -> ir.Value:
    chosen = condition(fn, node.cond)
    b = fn.builder
    if _is_speculatable(node.then) and _is_speculatable(node.orelse):
        return b.select(chosen, value(fn, node.then), value(fn, node.orelse))
    then, orelse, done = fn.block("select.then"), fn.block("select.else"), fn.block("select.end")
    b.cbranch(chosen, then, orelse)
    arms = []
    for block, arm in ((then, node.then), (orelse, node.orelse)):
        fn.at(block)
        arms.append((value(fn, arm), b.block))
        b.branch(done)
    fn.at(done)
    return _joined(fn, LLVM_TYPES[dtype_of(node)], arms)


def _joined(fn: Emitter, kind: ir.Type, arms: list[tuple[ir.Value, ir.Block]]) -> ir.Value:
    phi = fn.builder.phi(kind)
    for arm, block in arms:
        phi.add_incoming(arm, block)
    return phi


def _is_speculatable(node: Expr) -> bool:
    """Whether evaluating ``node`` when it is not needed is harmless and about as cheap as a branch.

    A branch would keep LLVM from vectorizing some loops.
    """
    pending: list[Node] = [node]
    for _ in range(_SPECULATED_NODES):
        part = pending.pop()
        if (
            isinstance(part, _NOT_SPECULATED)
            or (isinstance(part, Binary) and part.op in ("div", "floordiv", "mod", "pow"))
            or (isinstance(part, Call) and part.function not in CHEAP)
        ):
            return False
        pending += children(part)
        if not pending:
            return True
    return False


# A Compare or Logical has no rule here: its value is its condition, widened.
VALUES: dict[type[Expr], Callable[[Emitter, Any], ir.Value]] = {
    Const: _const,
    Param: _param,
    Local: _local,
    Load: _load,
    LaneId: _lane_id,
    Lookup: _lookup,
    Unary: _unary,
    Binary: _binary,
    Call: _call,
    Cast: _cast,
    Bitcast: _bitcast,
    Select: _select,
}
