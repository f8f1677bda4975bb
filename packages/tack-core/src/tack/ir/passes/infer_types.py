"""Gives every expression its type, makes conversions explicit and indices flat.

Each local has one type: the promotion of everything assigned to it, found as the least fixed
point over the kernel. Float literals are weak: an expression made of literals only is f64 where it
meets an f64 value and f32 otherwise; so is a local that is assigned nothing else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from tack.dtypes import DType, f32, f64, i32, i64, u64
from tack.errors import diagnostic
from tack.ir import nodes
from tack.ir.nodes import (
    Array,
    Assign,
    Atomic,
    Binary,
    Bitcast,
    BlockReduce,
    Bounds,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fetch,
    For,
    If,
    Kernel,
    LaneId,
    Load,
    Local,
    LocalArray,
    Logical,
    Lookup,
    Meet,
    Node,
    NonZero,
    Param,
    Parameter,
    Print,
    Select,
    Stmt,
    Store,
    Unary,
    While,
)
from tack.ir.passes.resolve_dims import local_shapes
from tack.ir.traversal import children, expressions, replace, walk, walk_statements
from tack.ir.typing import Ty, Types, join, known
from tack.ir.workgroups import BLOCK_DTYPES
from tack.lang.builtins import BUILTINS

__all__ = ["EXTENTS", "infer_types"]

# The hidden parameter that holds the extents of the arrays in debug mode (`tack.runtime.debug`).
EXTENTS = "debug.extents"


class _Solver(Types):
    """Finds the types of the locals."""

    def __init__(
        self, kernel: Kernel, shapes: Mapping[str, tuple[int, ...]], checks: Mapping[str, int] | None
    ) -> None:
        super().__init__(kernel, shapes)
        self.checks = checks

    def solve(self) -> None:
        self.assigning: list[Assign | Atomic | BlockReduce] = []
        parts = self.parts()
        for part in parts:
            self.declare(part)
        while True:
            self.stale = False
            for node in self.assigning:
                self.visit(node)
            if not self.stale and self.has_weak_locals() and self.has_f64():
                for part in parts:
                    self.demand_in(part)
            if not self.stale:
                break
        for name, ty in self.locals.items():  # what is still weak is f32
            final = known(ty.dtype if ty else i32, False, bool(ty and ty.natural))
            if final is not ty:
                self.set_local(name, final)

    def has_weak_locals(self) -> bool:
        return any(ty is not None and ty.weak for ty in self.locals.values())

    def has_f64(self) -> bool:
        """Whether anything in the kernel is an f64."""
        kernel = self.kernel
        types = (
            *(kernel.result_type, *self.arrays.values()),
            *(p.type for p in kernel.params),
            *(t.dtype for t in kernel.tables.values()),
        )
        return f64 in types or any(_given(n) is f64 for n in expressions(kernel))

    def parts(self) -> list[Node]:
        kernel = self.kernel
        return [*kernel.before, kernel.loop, *kernel.after]

    def declare(self, part: Node) -> None:
        loop = self.kernel.loop
        if part is loop:
            for var in loop.vars:
                self.locals[var] = known(i64, natural=True)
        for node in walk_statements(part):
            if isinstance(node, For):
                self.locals[node.var] = known(i64, natural=True)
            elif isinstance(node, (Assign, Atomic, BlockReduce)):
                if node.target is not None:
                    self.locals.setdefault(node.target, None)
                    self.assigning.append(node)
            elif isinstance(node, LocalArray):
                self.arrays[node.name] = node.dtype
                self.widths[node.name] = node.width

    def visit(self, node: Assign | Atomic | BlockReduce) -> None:
        """Joins into a local what an assignment gives it."""
        if isinstance(node, Assign):
            self.assign(node.target, self.trial(node.value))
        elif isinstance(node, BlockReduce):
            ty = self.trial(node.value)
            self.assign(node.target, ty and known(ty.dtype))
        elif node.target is not None:
            self.assign(node.target, known(self.array(node)))

    def trial(self, value: Expr) -> Ty | None:
        """The type of a value so far. A clash may resolve as types grow; the last pass reports it."""
        try:
            return self.of(value)
        except TypeError:
            return None

    def assign(self, name: str, ty: Ty | None) -> None:
        old = self.locals[name]
        new = old if ty is None else ty if old is None else join(old, ty)
        if new is not None and new is not old:
            self.stale |= self.set_local(name, new)

    # --- weak locals that meet f64 ---

    def demand_in(self, node: Node) -> None:
        """Settles as f64 the weak locals that meet an f64 value below ``node``."""
        for part in walk(node):
            try:
                if isinstance(part, Assign):
                    target = self.locals[part.target]
                    self.demand(part.value, target.dtype if target and not target.weak else None)
                elif isinstance(part, (Store, Atomic)):
                    values = (part.value,) if isinstance(part, Store) else part.operands
                    for value in values:
                        self.demand(value, self.array(part))
                elif isinstance(part, (Cast, Bitcast)):
                    self.demand(part.operand, part.to)
                elif isinstance(part, Expr):
                    self.demand_operands(part)
            except TypeError:
                continue

    def demand_operands(self, node: Expr) -> None:
        operands = _meeting(node)
        if any(ty and ty.dtype is f64 and not ty.weak for ty in map(self.of, operands)):
            for operand in operands:
                self.demand(operand, f64)

    def demand(self, value: Expr, dtype: DType | None) -> None:
        if dtype is not f64:
            return
        ty = self.of(value)
        if ty is None or not ty.weak:
            return
        if isinstance(value, Local):
            self.set_local(value.name, known(f64))
            self.stale = True
        for child in children(value):
            if isinstance(child, Expr):
                self.demand(child, f64)


def _given(node: Expr) -> DType | None:
    """The type that the template gives an expression."""
    return node.to if isinstance(node, (Cast, Bitcast)) else node.type


def _meeting(node: Expr) -> list[Expr]:
    """The operands of a node that take one common type."""
    if isinstance(node, (Binary, Compare)):
        return [node.left, node.right]
    if isinstance(node, Select):
        return [node.then, node.orelse]
    if isinstance(node, Meet):
        return [node.value, *node.others]
    if isinstance(node, Call):
        return list(node.args[1:] if node.function == "where" else node.args)
    return []


class _Builder(_Solver):
    """Builds the typed kernel once the locals' types are known."""

    def build(self) -> Kernel:
        self.solve()
        kernel = self.kernel
        loop = replace(kernel.loop, body=self.body(kernel.loop.body))
        before, after = self.body(kernel.before), self.body(kernel.after)
        result = None if kernel.result is None else self.value(kernel.result, kernel.result_type)
        types = {name: ty.dtype for name, ty in self.locals.items() if ty is not None}
        return replace(kernel, before=before, loop=loop, after=after, result=result, locals=types, typed=True)

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self.stmt(s) for s in body)

    def stmt(self, node: Stmt) -> Stmt:
        rule = _STATEMENTS.get(type(node))
        if rule is not None:
            made: Stmt = rule(self, node)
            return made
        if "body" in node._fields:
            return replace(node, body=self.body(node.body))  # type: ignore[attr-defined]
        return node

    def stmt_Assign(self, node: Assign) -> Stmt:
        target = self.locals[node.target]
        assert target is not None
        ty = self.of(node.value)
        if ty is not None and join(target, ty) is None:
            others = [n for n in self.assigning if n.target == node.target and n is not node and n.loc]
            name = node.target.rpartition(".")[2] if not node.target[-1].isdigit() else node.target
            notes = tuple(("it is also assigned here", n.loc) for n in others[:1] if n.loc)
            message = (
                f"'{name}' is assigned {ty.dtype} here and {target.dtype} elsewhere: a signed integer and u64"
            )
            raise diagnostic(TypeError, message, node.loc, hint="convert one of them", notes=notes)
        return Assign(node.target, self.value(node.value, target.dtype), loc=node.loc)

    def stmt_Store(self, node: Store) -> Stmt:
        dtype = self.array(node)
        return Store(node.array, self.flat(node), self.value(node.value, dtype), loc=node.loc)

    def stmt_BlockReduce(self, node: BlockReduce) -> Stmt:
        ty = self.of(node.value)
        if ty is not None and ty.dtype not in BLOCK_DTYPES:
            message = f"block_{node.op}() works on floats and on 32- and 64-bit integers, not on {ty.dtype}"
            raise self.error(node, message, "convert the value: tack.i32(...)")
        return replace(node, value=self.value(node.value))

    def stmt_Atomic(self, node: Atomic) -> Stmt:
        dtype = self.array(node)
        if node.op not in ("add", "min", "max") and dtype.is_float:
            hint = "use atomic_add with the negated value" if node.op == "sub" else None
            raise self.error(node, f"atomic_{node.op} works on integers, not {dtype}", hint)
        operands = tuple(self.value(v, dtype) for v in node.operands)
        return replace(node, index=self.flat(node), operands=operands, component=None)

    def stmt_For(self, node: For) -> Stmt:
        parts = ("start", "stop", "step")
        bounds = {part: self.integer(getattr(node.range, part), "a range") for part in parts}
        return replace(node, range=replace(node.range, **bounds), body=self.body(node.body))

    def stmt_While(self, node: While) -> Stmt:
        return replace(node, cond=self.value(node.cond), body=self.body(node.body))

    def stmt_If(self, node: If) -> Stmt:
        cond = self.value(node.cond)
        return If(cond, self.body(node.then), self.body(node.orelse), loc=node.loc)

    def stmt_Print(self, node: Print) -> Stmt:
        return replace(node, parts=tuple(p if isinstance(p, str) else self.value(p) for p in node.parts))

    def integer(self, node: Expr, what: str) -> Expr:
        """An index or a bound, as i64."""
        ty = self.of(node)
        if ty is not None and ty.dtype.is_float:
            raise self.error(node, f"{what} needs an integer, not {ty.dtype}", "convert it: int(...)")
        return self.value(node, i64)

    def flat(self, node: Load | Store | Atomic) -> tuple[Expr, ...]:
        """The one i64 index of an access: row-major over the array's shape."""
        parts = [self.integer(part, "an index") for part in node.index]
        extents = list(self.shapes[node.array][1 : len(parts)])
        if node.component is not None:
            parts.append(self.integer(node.component, "a component"))
            extents.append(self.widths[node.array])
        if not parts:
            return (Const(0, type=i64, loc=node.loc),)
        if self.checks is not None:
            return (self.checked(node, parts, extents),)
        flat = parts[0]
        for extent, part in zip(extents[-len(parts) + 1 :], parts[1:], strict=False):
            scaled = Binary("mul", flat, Const(extent, type=i64, loc=node.loc), type=i64, loc=node.loc)
            flat = Binary("add", scaled, part, type=i64, loc=node.loc)
        return (flat,)

    def checked(self, node: Load | Store | Atomic, parts: list[Expr], extents: list[int]) -> Bounds:
        """The index of an access in debug mode; the extents of arrays are read at run time."""
        loc = node.loc
        shape = self.shapes[node.array]
        first = self.checks.get(node.array) if self.checks is not None else None
        whole = len(node.index) == 1 and len(shape) != 1  # one flat index over all axes

        def extent(axis: int) -> Expr:
            if first is None:
                sizes = [prod(shape)] if whole else list(shape)
                return Const(sizes[axis], type=i64, loc=loc)
            at = first + (len(shape) if whole else axis)
            return Load(EXTENTS, (Const(at, type=i64, loc=loc),), type=i64, loc=loc)

        strides = [1]
        for size in reversed(extents[len(extents) - len(parts) + 1 :] if len(parts) > 1 else []):
            strides.insert(0, strides[0] * size)
        limits = [extent(k) for k in range(len(node.index))]
        if node.component is not None:
            limits.append(Const(self.widths[node.array], type=i64, loc=loc))
        consts = tuple(Const(s, type=i64, loc=loc) for s in strides)
        return Bounds(node.array, tuple(parts), tuple(limits), consts, type=i64, loc=loc)

    # --- expressions ---

    def value(self, node: Expr, want: DType | None = None) -> Expr:
        """The typed form of ``node``, converted to ``want`` if that is given."""
        ty = self.of(node)
        assert ty is not None
        dtype = ty.dtype
        if ty.weak:
            dtype = f64 if want is f64 else f32
        made = _EXPRESSIONS[type(node)](self, node, dtype)
        return made if want is None or made.type is want else convert(made, want)

    def make_Const(self, node: Const, dtype: DType) -> Expr:
        return _const(node.value, dtype, node)

    def make_Param(self, node: Param, dtype: DType) -> Expr:
        return Param(node.name, type=dtype, loc=node.loc)

    def make_Local(self, node: Local, dtype: DType) -> Expr:
        del dtype
        ty = self.locals[node.name]
        assert ty is not None
        return Local(node.name, type=ty.dtype, loc=node.loc)

    def make_Load(self, node: Load, dtype: DType) -> Expr:
        return Load(node.array, self.flat(node), type=dtype, loc=node.loc)

    def make_Lookup(self, node: Lookup, dtype: DType) -> Expr:
        return replace(node, index=self.integer(node.index, "an index"), type=dtype)

    def make_Fetch(self, node: Fetch, dtype: DType) -> Expr:
        return replace(node, position=tuple(self.value(e, f32) for e in node.position), type=dtype)

    def make_LaneId(self, node: LaneId, dtype: DType) -> Expr:
        return replace(node, type=dtype)

    def make_Unary(self, node: Unary, dtype: DType) -> Expr:
        operand = self.value(node.operand, None if node.op == "not" else dtype)
        return Unary(node.op, operand, type=dtype, loc=node.loc)

    def make_Binary(self, node: Binary, dtype: DType) -> Expr:
        right: DType = dtype
        if node.op == "pow" and dtype.is_integer:
            exponent = self.of(node.right)
            assert exponent is not None
            right = i64 if exponent.dtype.is_signed else u64
        divisor = self.value(node.right, right)
        if self.checks is not None and dtype.is_integer and node.op in ("floordiv", "mod"):
            divisor = NonZero(divisor, type=dtype, loc=node.loc)
        return Binary(node.op, self.value(node.left, dtype), divisor, type=dtype, loc=node.loc)

    def make_Compare(self, node: Compare, dtype: DType) -> Expr:
        both = self.joined(node, [node.left, node.right], "a comparison of")
        assert both is not None
        left, right = self.value(node.left, both.dtype), self.value(node.right, both.dtype)
        return Compare(node.op, left, right, type=dtype, loc=node.loc)

    def make_Logical(self, node: Logical, dtype: DType) -> Expr:
        return Logical(node.op, self.value(node.left), self.value(node.right), type=dtype, loc=node.loc)

    def make_Select(self, node: Select, dtype: DType) -> Expr:
        then, orelse = self.value(node.then, dtype), self.value(node.orelse, dtype)
        return Select(self.value(node.cond), then, orelse, type=dtype, loc=node.loc)

    def make_Call(self, node: Call, dtype: DType) -> Expr:
        rule = BUILTINS[node.function].rule
        if rule in ("test", "truth", "bits"):
            args = tuple(self.value(arg) for arg in node.args)
        elif rule == "where":
            args = (self.value(node.args[0]), *(self.value(arg, dtype) for arg in node.args[1:]))
        else:
            args = tuple(self.value(arg, dtype) for arg in node.args)
        return Call(node.function, args, type=dtype, loc=node.loc)

    def make_Meet(self, node: Meet, dtype: DType) -> Expr:
        return self.value(node.value, dtype)

    def make_Cast(self, node: Cast, dtype: DType) -> Expr:
        # A literal is converted from its exact value, not by way of f32.
        operand = self.of(node.operand)
        return convert(self.value(node.operand, f64 if operand and operand.weak else None), dtype)

    def make_Bitcast(self, node: Bitcast, dtype: DType) -> Expr:
        operand = self.value(node.operand, None)
        if operand.type is not None and operand.type.bits != dtype.bits:
            operand = self.value(node.operand, f64)
        return replace(node, operand=operand, type=dtype)


def _rules(prefix: str) -> dict[type, Callable[..., Any]]:
    """The builder's rules by class of node."""
    named = {k.removeprefix(prefix): rule for k, rule in vars(_Builder).items() if k.startswith(prefix)}
    return {getattr(nodes, name): rule for name, rule in named.items()}


_STATEMENTS = _rules("stmt_")
_EXPRESSIONS = _rules("make_")


def convert(node: Expr, to: DType) -> Expr:
    """A typed expression converted to ``to``; a constant is converted now."""
    if node.type is to:
        return node
    if isinstance(node, Const):
        return _const(node.value, to, node)
    return Cast(node, to, type=to, loc=node.loc)


def _const(value: int | float, dtype: DType, node: Expr) -> Const:
    if dtype.is_integer:
        value = dtype.wrap(value) if isinstance(value, int) else dtype.saturate(value)
    elif dtype is f64:
        value = float(value)
    else:
        value = _to_f32(value)
    return Const(value, type=dtype, loc=node.loc)


def _to_f32(value: int | float) -> float:
    # An int rounds once: to f64 it may round too, so its low bits are made sticky first.
    if isinstance(value, int) and abs(value) > 1 << 53:
        value = (value >> 11 << 11) | (1 << 11 if value & 0x7FF else 0)
    return ctypes.c_float(value).value


def infer_types(
    kernel: Kernel, shapes: Mapping[str, tuple[int, ...]], checks: Mapping[str, int] | None = None
) -> Kernel:
    """The typed form of a template whose parameters have types and whose extents are resolved.

    Args:
        shapes: of the array parameters.
        checks: in debug mode, where the extents of each array parameter start in the hidden array
            `EXTENTS`; behind them is the array's size. Indices and integer divisors are checked then.

    Raises:
        TypeError: operands, indices or assignments whose types do not go together.
    """
    return _Builder(kernel, {**shapes, **local_shapes(kernel)}, checks).build()


def bind_params(kernel: Kernel, types: Mapping[str, Array | DType]) -> Kernel:
    """``kernel`` with the types of this call's arguments on its parameters."""
    params: tuple[Parameter, ...] = tuple(replace(p, type=types[p.name]) for p in kernel.params)
    return replace(kernel, params=params)
