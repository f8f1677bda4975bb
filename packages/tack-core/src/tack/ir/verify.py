"""Checks that a kernel keeps the invariants of the IR (`docs/design/ir.md`), in one walk."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from tack.dtypes import DType, f32, i64, u32, u64
from tack.ir import nodes as ir
from tack.ir.printer import to_text
from tack.ir.semantics import (
    ATOMICS,
    BINARY_OPS,
    BLOCK_REDUCTIONS,
    COMPARISONS,
    UNARY_OPS,
    result_type,
    round_to,
)
from tack.ir.workgroups import BLOCK_DTYPES
from tack.lang.builtins import BUILTINS

__all__ = ["VerificationError", "verify"]

_NAME = re.compile(r"[^\W\d][\w.]*")
_INTEGER_ONLY = frozenset(("shl", "shr", "bitand", "bitor", "bitxor"))


class VerificationError(RuntimeError):
    """A kernel breaks an invariant of the IR: the pass that made it, or lowering, has a bug."""


def verify(kernel: ir.Kernel) -> None:
    """Checks every invariant of the kernel's stage.

    Raises:
        VerificationError: one does not hold; the message says which, and shows the node.
    """
    _Verifier(kernel).kernel()


class _Verifier:
    """The state of the walk: what is declared, what was read, and what encloses the node at hand."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.k = kernel
        self.typed = kernel.typed
        self.locals = kernel.locals
        self.scalars: dict[str, DType | None] = {}
        self.arrays: dict[str, DType | None] = {}
        self.shared: set[str] = set()
        self.assigned: set[str] = set()
        self.read: dict[str, ir.Node] = {}  # each local that is read, and where first
        self.labels: list[str] = []
        self.loop: str | None = None  # the innermost: "parallel" or "sequential"
        self.effects = False

    def fail(self, message: str, node: ir.Node | None = None) -> NoReturn:
        where = f"\n  {to_text(node)}" if node is not None else ""
        raise VerificationError(f"kernel '{self.k.name}': {message}{where}")

    # --- the kernel ---

    def kernel(self) -> None:
        k = self.k
        self.declarations()
        self.body(k.before)
        self.parallel(k.loop)
        self.body(k.after)
        if (k.result is None) != (k.result_type is None):
            self.fail("a result and its type come together")
        if k.result is not None:
            self.expr(k.result)
        for name, node in self.read.items():
            if name not in self.assigned:
                self.fail(f"local '{name}' is read but never assigned", node)

    def declarations(self) -> None:
        k = self.k
        if not self.typed and k.locals:
            self.fail("a template declares no locals")
        seen: set[str] = set()
        for p in k.params:
            self.new_name(p.name, seen)
            if p.type is None and self.typed:
                self.fail(f"parameter '{p.name}' of a typed kernel has no type", p)
            if isinstance(p.type, ir.Array):
                if p.pinned is not None or p.type.ndim < 0:
                    self.fail(f"array parameter '{p.name}' is pinned or has no valid ndim", p)
                self.arrays[p.name] = p.type.dtype
            else:
                self.scalars[p.name] = p.type
            if not self.typed:  # a use as the other kind is the user's mistake, which inference reports
                self.scalars.setdefault(p.name)
                self.arrays.setdefault(p.name)
        for name in k.locals:
            self.new_name(name, seen)
        for name, table in k.tables.items():
            self.new_name(name, seen)
            if not table.values:
                self.fail(f"table '{name}' is empty", table)

    def new_name(self, name: str, seen: set[str]) -> None:
        if not _NAME.fullmatch(name):
            self.fail(f"{name!r} is not a name: letters, digits, _ and ., and a letter or _ first")
        if name in seen:
            self.fail(f"the name '{name}' is declared twice")
        seen.add(name)

    def parallel(self, loop: ir.Parallel) -> None:
        if not 1 <= len(loop.vars) == len(loop.ranges) <= 6 or len(set(loop.vars)) < len(loop.vars):
            self.fail("the parallel loop has 1 to 6 distinct variables, with a range each")
        typed, self.typed = self.typed, False  # the host evaluates them from their template form
        for r in loop.ranges:
            self.exprs(r.start, r.stop, r.step)
        self.typed = typed
        for var in loop.vars:
            self.assign(var, i64, loop.ranges[loop.vars.index(var)])
        self.loop, self.effects = "parallel", True
        self.body(loop.body)
        self.loop, self.effects = None, False

    # --- statements ---

    def body(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            check = _STATEMENTS.get(type(s))
            if check is None:
                raise VerificationError(f"kernel '{self.k.name}': {type(s).__name__} is not a statement")
            check(self, s)

    def assign(self, name: str, dtype: DType | None, node: ir.Node) -> None:
        """A value of type ``dtype`` goes to the local ``name``."""
        self.assigned.add(name)
        if name in self.scalars or name in self.arrays or name in self.k.tables:
            self.fail(f"'{name}' is assigned as a local, but is a parameter, array or table", node)
        if self.typed:
            declared = self.locals.get(name)
            if declared is None:
                self.fail(f"local '{name}' is not declared", node)
            if declared is not dtype:
                self.fail(f"local '{name}' is {declared}, its new value {dtype}", node)
        elif not _NAME.fullmatch(name):
            self.fail(f"{name!r} is not a name", node)

    def assignment(self, s: ir.Assign) -> None:
        self.expr(s.value)
        self.assign(s.target, s.value.type, s)

    def store(self, s: ir.Store) -> None:
        self.effect(s)
        self.expr(s.value)
        self.element(s, (s.value,))

    def atomic(self, s: ir.Atomic) -> None:
        self.effect(s)
        self.exprs(*s.operands)
        if s.op not in ATOMICS:
            self.fail(f"'{s.op}' is not an atomic operation", s)
        if len(s.operands) != {"cas": 2, "load": 0}.get(s.op, 1):
            self.fail(f"atomic_{s.op} with {len(s.operands)} operands", s)
        dtype = self.element(s, s.operands)
        shared = s.op == "add" and s.array in self.shared and dtype is u32
        if s.array not in {p.name for p in self.k.params} and not shared:
            self.fail(f"the target of an atomic, '{s.array}', is not a parameter", s)
        integers = s.op in ("and", "or", "xor", "cas", "load")
        if self.typed and dtype is not None and dtype.is_float and integers:
            self.fail(f"atomic_{s.op} on {dtype}", s)
        if s.target is not None:
            self.assign(s.target, dtype, s)

    def effect(self, s: ir.Stmt) -> None:
        if not self.effects:
            self.fail("an effect outside the parallel loop", s)

    def element(self, node: ir.Load | ir.Store | ir.Atomic, values: tuple[ir.Expr, ...] = ()) -> DType | None:
        """Checks an access and the types of what is written; the dtype of the array's elements."""
        array, index = node.array, node.index
        self.exprs(*index)
        if node.component is not None:
            self.expr(node.component)
        if array not in self.arrays:
            self.fail(f"'{array}' is not a declared array", node)
        dtype = self.arrays[array]
        if self.typed:
            if len(index) != 1 or index[0].type is not i64 or node.component is not None:
                self.fail("an access of a typed kernel has one i64 index", node)
            for value in values:
                if value.type is not dtype:
                    self.fail(f"a value of type {value.type} for array '{array}' of {dtype}", node)
        return dtype

    def local_array(self, s: ir.LocalArray) -> None:
        self.exprs(*s.shape)
        if s.name in self.scalars or s.name in self.arrays or s.name in self.k.tables:
            self.fail(f"array '{s.name}' has the name of another array, parameter or table", s)
        if s.name in self.locals or not _NAME.fullmatch(s.name):
            self.fail(f"array '{s.name}' has the name of a local, or none", s)
        if not s.shape:
            self.fail("a local array has one dimension or more", s)
        if self.typed:
            for extent in s.shape:
                if not isinstance(extent, ir.Const) or extent.type is not i64 or extent.value < 0:
                    self.fail("the extents of a local array are i64 constants", s)
        self.arrays[s.name] = s.dtype
        if s.shared:
            self.shared.add(s.name)

    def collective(self, s: ir.Barrier | ir.BlockReduce) -> None:
        self.effect(s)
        if isinstance(s, ir.BlockReduce):
            self.expr(s.value)
            if s.op not in BLOCK_REDUCTIONS:
                self.fail(f"'{s.op}' is not a block reduction", s)
            if self.typed and s.value.type not in BLOCK_DTYPES:
                self.fail(f"a block reduction of {s.value.type}", s)
            self.assign(s.target, s.value.type, s)

    def for_loop(self, s: ir.For) -> None:
        parts = (s.range.start, s.range.stop, s.range.step)
        self.exprs(*parts)
        if self.typed and any(e.type is not i64 for e in parts):
            self.fail("the range of a for loop is i64", s.range)
        self.assign(s.var, i64, s.range)
        self.loop_body(s.body)

    def while_loop(self, s: ir.While) -> None:
        self.expr(s.cond)
        self.loop_body(s.body)

    def loop_body(self, body: tuple[ir.Stmt, ...]) -> None:
        outer, self.loop = self.loop, "sequential"
        self.body(body)
        self.loop = outer

    def branch(self, s: ir.If) -> None:
        self.expr(s.cond)
        self.body(s.then)
        self.body(s.orelse)

    def break_(self, s: ir.Break) -> None:
        if self.loop != "sequential":
            self.fail("a break outside a sequential loop", s)

    def continue_(self, s: ir.Continue) -> None:
        if self.loop is None:
            self.fail("a continue outside a loop", s)

    def block(self, s: ir.Block) -> None:
        if s.label in self.labels or not _NAME.fullmatch(s.label):
            self.fail(f"block '{s.label}' has the label of an enclosing one, or none", s)
        self.labels.append(s.label)
        self.body(s.body)
        self.labels.pop()

    def leave(self, s: ir.Leave) -> None:
        if s.label not in self.labels:
            self.fail(f"leave names no enclosing block '{s.label}'", s)

    def sample(self, s: ir.Sample) -> None:
        self.texture(s, s.texture, s.position)
        if self.typed:
            self.fail("a sample in a typed kernel", s)
        self.body(s.body)
        if s.target not in self.assigned:
            self.fail(f"a sample whose body does not assign its target '{s.target}'", s)

    def print(self, s: ir.Print) -> None:
        self.effect(s)
        for part in s.parts:
            if not isinstance(part, str):
                self.expr(part)

    # --- expressions ---

    def exprs(self, *found: ir.Expr) -> None:
        for e in found:
            self.expr(e)

    def expr(self, e: ir.Expr) -> None:
        check = _EXPRESSIONS.get(type(e))
        if check is None:
            raise VerificationError(f"kernel '{self.k.name}': {type(e).__name__} is not an expression")
        check(self, e)
        if self.typed:
            if not isinstance(e.type, DType):
                self.fail("an expression of a typed kernel without a type", e)
            if e.type is not result_type(e):
                self.fail(f"an expression of type {e.type} whose parts make it {result_type(e)}", e)

    def const(self, e: ir.Const) -> None:
        value, dtype = e.value, e.type
        if type(value) not in (int, float):
            self.fail(f"a constant is an int or a float, not {type(value).__name__}", e)
        if self.typed and dtype is not None:
            if isinstance(value, float) != dtype.is_float:
                self.fail(f"a constant of type {dtype} is {'a float' if dtype.is_float else 'an int'}", e)
            if isinstance(value, int) and not dtype.holds(value):
                self.fail(f"{dtype} does not hold this constant", e)
            if dtype is f32 and value == value and round_to(value, f32) != value:
                self.fail("an f32 constant that is not rounded", e)

    def param(self, e: ir.Param) -> None:
        if e.name not in self.scalars:
            self.fail(f"'{e.name}' is not a scalar parameter", e)
        if self.typed and e.type is not self.scalars[e.name]:
            self.fail(f"parameter '{e.name}' is {self.scalars[e.name]}, read as {e.type}", e)

    def local(self, e: ir.Local) -> None:
        self.read.setdefault(e.name, e)
        if self.typed and e.type is not self.locals.get(e.name):
            self.fail(f"local '{e.name}' is {self.locals.get(e.name)}, read as {e.type}", e)

    def dim(self, e: ir.Dim) -> None:
        if self.typed:
            self.fail("an extent in a typed kernel is a constant", e)
        if e.array not in self.arrays:
            self.fail(f"'{e.array}' is not a declared array", e)
        if not isinstance(e.axis, int) and e.axis not in ("size", "ndim", "len"):
            self.fail(f"'{e.axis}' is not an axis", e)

    def load(self, e: ir.Load) -> None:
        dtype = self.element(e)
        if self.typed and e.type is not dtype:
            self.fail(f"array '{e.array}' is {dtype}, read as {e.type}", e)

    def bounds(self, e: ir.Bounds) -> None:
        self.exprs(*e.index, *e.extents, *e.strides)
        if not len(e.index) == len(e.extents) == len(e.strides):
            self.fail("a checked index needs an extent and a stride for each axis", e)
        if self.typed and any(part.type is not i64 for part in (*e.index, *e.extents, *e.strides, e)):
            self.fail("a checked index is i64", e)

    def nonzero(self, e: ir.NonZero) -> None:
        self.expr(e.operand)
        if self.typed and e.type is not e.operand.type:
            self.fail("a checked divisor keeps its type", e)

    def meet(self, e: ir.Meet) -> None:
        self.exprs(e.value, *e.others)
        if self.typed:
            self.fail("a meet in a typed kernel is a conversion", e)

    def lookup(self, e: ir.Lookup) -> None:
        self.expr(e.index)
        if e.table not in self.k.tables:
            self.fail(f"'{e.table}' is not a table of the kernel", e)
        if self.typed and e.index.type is not i64:
            self.fail("the index of a table is i64", e)

    def fetch(self, e: ir.Fetch) -> None:
        self.texture(e, e.texture, e.position)
        if self.typed and any(part.type is not f32 for part in e.position):
            self.fail("the position in a texture is f32", e)

    def texture(self, node: ir.Node, name: str, position: tuple[ir.Expr, ...]) -> None:
        self.exprs(*position)
        if not any(p.name == name and p.texture for p in self.k.params):
            self.fail(f"'{name}' is not a texture", node)
        if len(position) != 3:
            self.fail("the position in a texture has three parts", node)

    def lane_id(self, e: ir.LaneId) -> None:
        if not self.effects:
            self.fail("a lane's number outside the parallel loop", e)

    def unary(self, e: ir.Unary) -> None:
        self.expr(e.operand)
        self.operator(e.op, UNARY_OPS, e)
        if e.op == "invert":
            self.need(e.operand.type, "integer", e)

    def binary(self, e: ir.Binary) -> None:
        self.exprs(e.left, e.right)
        self.operator(e.op, BINARY_OPS, e)
        left, right = e.left.type, e.right.type
        if e.op == "pow" and left is not None and left.is_integer:
            if self.typed and right not in (i64, u64):
                self.fail("the exponent of an integer power is i64 or u64", e)
            return
        self.same(e, left, right)
        if e.op == "div":
            self.need(left, "float", e)
        elif e.op in _INTEGER_ONLY:
            self.need(left, "integer", e)

    def compare(self, e: ir.Compare) -> None:
        self.exprs(e.left, e.right)
        self.operator(e.op, COMPARISONS, e)
        self.same(e, e.left.type, e.right.type)

    def logical(self, e: ir.Logical) -> None:
        self.exprs(e.left, e.right)
        self.operator(e.op, ("and", "or"), e)

    def select(self, e: ir.Select) -> None:
        self.exprs(e.cond, e.then, e.orelse)
        self.same(e, e.then.type, e.orelse.type)

    def call(self, e: ir.Call) -> None:
        self.exprs(*e.args)
        builtin = BUILTINS.get(e.function)
        if builtin is None:
            self.fail(f"'{e.function}' is not a builtin function", e)
        count = len(e.args)
        if count < builtin.min_args or (builtin.max_args is not None and count > builtin.max_args):
            self.fail(f"call.{e.function} with {count} arguments", e)
        types = [a.type for a in e.args]
        self.same(e, *types[builtin.rule == "where" :])
        if builtin.rule == "float":
            self.need(types[0], "float", e)
        elif builtin.rule == "bits":
            self.need(types[0], "integer", e)

    def cast(self, e: ir.Cast) -> None:
        self.expr(e.operand)

    def bitcast(self, e: ir.Bitcast) -> None:
        self.expr(e.operand)
        if self.typed and (e.operand.type is None or e.operand.type.bits != e.to.bits):
            self.fail(f"a bitcast of {e.operand.type} to {e.to}, of another width", e)

    def operator(self, op: str, known: tuple[str, ...], e: ir.Expr) -> None:
        if op not in known:
            self.fail(f"'{op}' is not an operator of {type(e).__name__}", e)

    def same(self, e: ir.Expr, *types: DType | None) -> None:
        if self.typed and any(t is not types[0] for t in types):
            self.fail(f"operands of different types: {', '.join(map(str, types))}", e)

    def need(self, dtype: DType | None, kind: str, e: ir.Expr) -> None:
        if self.typed and dtype is not None and dtype.is_float != (kind == "float"):
            self.fail(f"an operation on {kind}s, applied to {dtype}", e)


_STATEMENTS: dict[type, Callable[[_Verifier, Any], None]] = {
    ir.Assign: _Verifier.assignment,
    ir.Store: _Verifier.store,
    ir.Atomic: _Verifier.atomic,
    ir.LocalArray: _Verifier.local_array,
    ir.Barrier: _Verifier.collective,
    ir.BlockReduce: _Verifier.collective,
    ir.For: _Verifier.for_loop,
    ir.While: _Verifier.while_loop,
    ir.If: _Verifier.branch,
    ir.Break: _Verifier.break_,
    ir.Continue: _Verifier.continue_,
    ir.Block: _Verifier.block,
    ir.Leave: _Verifier.leave,
    ir.Print: _Verifier.print,
    ir.Sample: _Verifier.sample,
}
_EXPRESSIONS: dict[type, Callable[[_Verifier, Any], None]] = {
    ir.Const: _Verifier.const,
    ir.Param: _Verifier.param,
    ir.Local: _Verifier.local,
    ir.Dim: _Verifier.dim,
    ir.Load: _Verifier.load,
    ir.Lookup: _Verifier.lookup,
    ir.Fetch: _Verifier.fetch,
    ir.Meet: _Verifier.meet,
    ir.Bounds: _Verifier.bounds,
    ir.NonZero: _Verifier.nonzero,
    ir.LaneId: _Verifier.lane_id,
    ir.Unary: _Verifier.unary,
    ir.Binary: _Verifier.binary,
    ir.Compare: _Verifier.compare,
    ir.Logical: _Verifier.logical,
    ir.Select: _Verifier.select,
    ir.Call: _Verifier.call,
    ir.Cast: _Verifier.cast,
    ir.Bitcast: _Verifier.bitcast,
}
