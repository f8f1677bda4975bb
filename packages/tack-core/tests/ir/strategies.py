"""Hypothesis strategies for valid IR kernels of both stages, and for arguments to run typed ones.

Typed kernels can be run: every loop ends, every index is in bounds, every local is assigned before
it is read. Iterations of the parallel loop may race, so results are defined in sequential order.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tack.dtypes import ALL_DTYPES, DType, f32, i32, i64, u64
from tack.ir import nodes as ir
from tack.ir.semantics import BINARY_OPS, COMPARISONS
from tack.ir.workgroups import BLOCK_DTYPES
from tack.lang.builtins import BUILTINS

__all__ = [
    "arguments",
    "generated",
    "generated_kernels",
    "kernels",
    "launches",
    "numbers",
    "same",
    "templates",
]

# Tests draw the same examples in every run. TACK_TEST_EXAMPLES=N draws N others, for a longer run by hand.
_EXAMPLES = os.environ.get("TACK_TEST_EXAMPLES")
generated = settings(
    max_examples=int(_EXAMPLES or 80),
    derandomize=_EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
generated_kernels = settings(generated, max_examples=int(_EXAMPLES or 40))  # these take longer to draw

INTEGER_ONLY = ("shl", "shr", "bitand", "bitor", "bitxor")
SHAPES: dict[int, tuple[int, ...]] = {0: (), 1: (6,), 2: (2, 3), 3: (1, 3, 2)}


@functools.cache
def numbers(dtype: DType) -> st.SearchStrategy[int | float]:
    """The numbers of ``dtype``, with its extremes, small ones, infinities and NaN often among them."""
    if dtype.is_float:
        small = st.sampled_from(
            [0.0, -0.0, 0.5, 1.0, -1.0, -1.5, 2.0, 3.0, 1e10, math.inf, -math.inf, math.nan]
        )
        return small | st.floats(width=32 if dtype is f32 else 64)
    edges = [
        n for n in (dtype.min, dtype.min + 1, -1, 0, 1, 2, 7, dtype.max - 1, dtype.max) if dtype.holds(n)
    ]
    return st.sampled_from(edges) | st.integers(dtype.min, dtype.max)


def same(a: Any, b: Any) -> bool:
    """Whether two trees are equal but for positions; -0.0 differs from 0.0, and a NaN equals a NaN."""
    if isinstance(a, ir.Node):
        return type(a) is type(b) and all(same(getattr(a, f), getattr(b, f)) for f in a._fields if f != "loc")
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return isinstance(b, float) and repr(a) == repr(b) and math.copysign(1, a) == math.copysign(1, b)
    return bool(type(a) is type(b) and a == b)


@st.composite
def kernels(
    draw: st.DrawFn,
    dtypes: Sequence[DType] = ALL_DTYPES,
    functions: Sequence[str] = tuple(BUILTINS),
    binary: Sequence[str] = BINARY_OPS,
    workgroups: bool = False,
) -> ir.Kernel:
    """Valid typed kernels whose data have ``dtypes`` and which use these builtins and operators.

    With ``workgroups`` they also have barriers and the like, anywhere, and cannot be run.
    """
    builder = _Builder(draw, dtypes, functions, binary)
    builder.workgroups = workgroups
    return builder.kernel()


@st.composite
def templates(draw: st.DrawFn) -> ir.Kernel:
    """Valid templates. They need not pass type inference."""
    return _TemplateBuilder(draw, ALL_DTYPES, tuple(BUILTINS), BINARY_OPS).kernel()


@st.composite
def arguments(draw: st.DrawFn, kernel: ir.Kernel) -> dict[str, Any]:
    """Arguments that a kernel from `kernels` runs with."""
    args: dict[str, Any] = {}
    for p in kernel.params:
        if isinstance(p.type, ir.Array):
            shape = SHAPES[p.type.ndim]
            size = math.prod(shape)
            values = draw(st.lists(numbers(p.type.dtype), min_size=size, max_size=size))
            args[p.name] = np.array(values, p.type.dtype.numpy).reshape(shape)
        else:
            assert p.type is not None
            args[p.name] = draw(numbers(p.type))
    return args


@st.composite
def launches(draw: st.DrawFn, kernel: ir.Kernel) -> list[tuple[int, int, int]]:
    """Start, step and count of each dimension of the kernel's parallel loop."""
    part = st.tuples(st.integers(-3, 3), st.integers(1, 3), st.integers(0, 3))
    return [draw(part) for _ in kernel.loop.vars]


# Strategies are slow to make, and a kernel draws hundreds of numbers.
_upto = functools.cache(lambda n: st.integers(0, n))


class _Builder:
    """Draws a typed kernel top-down. Expressions are drawn for the type that their place needs."""

    typed = True
    workgroups = False

    def __init__(
        self, draw: st.DrawFn, dtypes: Sequence[DType], functions: Sequence[str], binary: Sequence[str]
    ) -> None:
        self.draw = draw
        self.dtypes = list(dtypes)
        self.functions = functions
        self.binary = binary
        self.locals: dict[str, DType] = {}
        self.variables: dict[str, DType] = {}  # those of the locals that statements may assign
        self.readable: dict[str, DType] = {}
        self.scalars: dict[str, DType] = {}
        self.arrays: dict[str, tuple[DType, int, int]] = {}  # dtype, size, ndim
        self.parameters: set[str] = set()  # names of the arrays that are parameters
        self.tables: dict[str, ir.Table] = {}
        self.labels: list[str] = []
        self.loop: str | None = None
        self.effects = False
        self.fuel = 4  # statements left
        self.nodes = 80  # operations left
        self.shared = 0  # shared arrays declared

    # --- draws ---

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.upto(len(choices) - 1)]

    def upto(self, n: int) -> int:
        return self.draw(_upto(n)) if n else 0

    def dtype(self) -> DType:
        found: DType = self.pick(self.dtypes)
        return found

    # --- the kernel ---

    def kernel(self) -> ir.Kernel:
        params = tuple(self.parameter(n) for n in range(1 + self.upto(3)))
        for n in range(self.upto(2)):
            dtype = self.dtype()
            values = tuple(self.draw(st.lists(numbers(dtype), min_size=1, max_size=3)))
            self.tables[f"m.T{n}"] = ir.Table(values, self.pick([None, dtype]))
        before = [self.initial(f"v{n}{self.pick(['', '.f.2'])}") for n in range(1 + self.upto(3))]
        ranges = tuple(self.host_range() for _ in range(1 + self.upto(2)))
        before += self.body(depth=1)
        vars = tuple(f"i{n}" for n in range(len(ranges)))
        outer = dict(self.readable)
        for var in vars:
            self.declare(var, i64)
        self.loop, self.effects, self.fuel = "parallel", True, 10
        body = self.body(depth=3)
        self.loop, self.effects, self.fuel = None, False, 2
        self.readable = outer
        after = self.body(depth=1)
        result_type = self.pick([None, self.dtype()])
        result = None if result_type is None else self.expr(self.dtype(), 2)
        return ir.Kernel(
            *("k", params, tuple(before), ir.Parallel(vars, ranges, body), after, result, result_type),
            *(self.locals if self.typed else {}, self.tables, self.typed, self.pick([False, False, True])),
        )

    def parameter(self, n: int) -> ir.Parameter:
        dtype = self.dtype()
        if self.upto(2):
            ndim = self.upto(3)
            self.arrays[f"x{n}"] = dtype, math.prod(SHAPES[ndim]), ndim
            self.parameters.add(f"x{n}")
            return ir.Parameter(f"x{n}", ir.Array(dtype, ndim))
        self.scalars[f"p{n}"] = dtype
        return ir.Parameter(f"p{n}", dtype, self.pick([None, dtype]))

    def host_range(self) -> ir.Range:
        return ir.Range(self.host(2), self.host(2), ir.Const(1 + self.upto(2)))

    def host(self, depth: int) -> ir.Expr:
        """An expression of the parallel loop's range, in template form."""
        choice = self.upto(4) if depth else 0
        if choice == 1 and self.arrays:
            name = self.pick(sorted(self.arrays))
            return ir.Dim(name, self.pick(["size", "ndim", "len", 0, -1]))
        if choice == 2 and self.scalars:
            return ir.Param(self.pick(sorted(self.scalars)))
        if choice == 3:
            return ir.Binary(self.pick(["add", "sub", "mul"]), self.host(depth - 1), self.host(depth - 1))
        if choice == 4:
            return ir.Call(self.pick(["min", "max"]), (self.host(depth - 1), self.host(depth - 1)))
        return ir.Const(self.upto(9))

    def declare(self, name: str, dtype: DType) -> None:
        self.locals[name] = self.readable[name] = dtype

    def initial(self, name: str) -> ir.Stmt:
        dtype = self.dtype()
        statement = ir.Assign(name, self.const(dtype))
        self.declare(name, dtype)
        self.variables[name] = dtype
        return statement

    # --- statements ---

    def body(self, depth: int) -> tuple[ir.Stmt, ...]:
        """Statements in a scope of their own for arrays and loop variables."""
        arrays, readable = dict(self.arrays), dict(self.readable)
        found: list[ir.Stmt] = []
        while self.fuel and self.upto(4):
            self.fuel -= 1
            found += self.statement(depth)
        self.arrays, self.readable = arrays, readable
        return tuple(found)

    def statement(self, depth: int) -> Sequence[ir.Stmt]:
        kinds: list[Callable[[int], Sequence[ir.Stmt]]] = [self.assign]
        if self.effects:
            kinds += [self.store, self.store, self.atomic, self.print, self.local_array]
            kinds += [self.jump] if self.loop or self.labels else []
            kinds += [self.collective] if self.workgroups else []
        if depth:
            kinds += [self.branch, self.for_loop, self.while_loop, self.block]
        found: Sequence[ir.Stmt] = self.pick(kinds)(depth)
        return found

    def assign(self, depth: int) -> list[ir.Stmt]:
        name = self.pick(sorted(self.variables))
        return [ir.Assign(name, self.expr(self.variables[name], 3))]

    def store(self, depth: int) -> list[ir.Stmt]:
        if not self.arrays:
            return self.assign(depth)
        name = self.pick(sorted(self.arrays))
        dtype, _, _ = self.arrays[name]
        return [ir.Store(name, self.index(name), self.expr(dtype, 3))]

    def atomic(self, depth: int) -> list[ir.Stmt]:
        targets = sorted(self.parameters)
        if not targets:
            return self.assign(depth)
        name = self.pick(targets)
        dtype, _, _ = self.arrays[name]
        ops = ["add", "sub", "min", "max", "exchange"] + (
            [] if dtype.is_float else ["and", "or", "xor", "cas"]
        )
        op = self.pick(ops)
        operands = tuple(self.expr(dtype, 2) for _ in range(2 if op == "cas" else 1))
        receivers = [v for v, t in self.variables.items() if t is dtype or not self.typed]
        return [ir.Atomic(self.pick([None, *receivers]), op, name, self.index(name), operands)]

    def print(self, depth: int) -> list[ir.Stmt]:
        strings = ["", "a b", '"', "//", "\\", "\n\t", "é\U0001f600", "\ud800"]
        parts = [
            self.pick(strings) if self.upto(1) else self.expr(self.dtype(), 2) for _ in range(self.upto(3))
        ]
        return [ir.Print(tuple(parts))]

    def local_array(self, depth: int) -> list[ir.Stmt]:
        """An array and the loop that gives its elements values, which makes them readable."""
        name, var, dtype = f"t{len(self.locals)}", f"j{len(self.locals)}", self.dtype()
        shape = tuple(1 + self.upto(2) for _ in range(1 + self.upto(1)))
        size = math.prod(shape)
        self.locals[var] = i64
        fill = ir.Store(name, (ir.Local(var, type=self.type(i64)),), self.expr(dtype, 2))
        self.arrays[name] = dtype, size, 1
        return [
            ir.LocalArray(name, tuple(self.integer(n) for n in shape), dtype),
            ir.For(var, ir.Range(self.integer(0), self.integer(size), self.integer(1)), (fill,)),
        ]

    def collective(self, depth: int) -> list[ir.Stmt]:
        name = self.pick(sorted(self.variables))
        dtype = self.variables[name]
        if dtype not in BLOCK_DTYPES or not self.upto(2):
            shape = (self.integer(1 + self.upto(2)),)
            self.shared += 1
            return [ir.LocalArray(f"s{self.shared}", shape, dtype, 1, True), ir.Barrier()]
        op = self.pick(["sum", "min", "max"])
        return [ir.BlockReduce(name, op, self.expr(dtype, 2))]

    def jump(self, depth: int) -> list[ir.Stmt]:
        choices: list[ir.Stmt] = [ir.Leave(label) for label in self.labels]
        if self.loop:
            choices.append(ir.Continue())
        if self.loop == "sequential":
            choices.append(ir.Break())
        return [self.pick(choices)]

    def branch(self, depth: int) -> list[ir.Stmt]:
        return [ir.If(self.expr(self.dtype(), 3), self.body(depth - 1), self.body(depth - 1))]

    def for_loop(self, depth: int) -> list[ir.Stmt]:
        var = f"j{len(self.locals)}"
        start = self.upto(4) - 2
        bounds = ir.Range(
            self.integer(start), self.integer(start + self.upto(4) - 1), self.integer(self.upto(3) - 1)
        )
        self.declare(var, i64)
        body = self.loop_body(depth - 1)
        self.readable.pop(var)
        return [ir.For(var, bounds, body)]

    def while_loop(self, depth: int) -> list[ir.Stmt]:
        """A loop that a counter ends after three iterations at most."""
        var = f"w{len(self.locals)}"
        self.declare(var, i64)
        counter = ir.Local(var, type=self.type(i64))
        step = ir.Assign(var, ir.Binary("add", counter, self.integer(1), type=self.type(i64)))
        body = self.loop_body(depth - 1)
        more = ir.Compare("lt", counter, self.integer(3), type=self.type(i32))
        cond = ir.Logical("and", more, self.expr(self.dtype(), 2), type=self.type(i32))
        return [ir.Assign(var, self.integer(0)), ir.While(cond, (step, *body))]

    def loop_body(self, depth: int) -> tuple[ir.Stmt, ...]:
        outer, self.loop = self.loop, "sequential"
        body = self.body(depth)
        self.loop = outer
        return body

    def block(self, depth: int) -> list[ir.Stmt]:
        label = f"f.{len(self.labels)}"
        self.labels.append(label)
        body = self.body(depth - 1)
        self.labels.pop()
        return [ir.Block(label, body)]

    # --- expressions ---

    def type(self, dtype: DType) -> DType | None:
        """``dtype`` as the type of a node, which a template leaves open."""
        return dtype if self.typed else None

    def integer(self, n: int) -> ir.Const:
        return ir.Const(n, type=self.type(i64))

    def const(self, dtype: DType) -> ir.Const:
        return ir.Const(self.draw(numbers(dtype)), type=dtype)

    def index(self, array: str) -> tuple[ir.Expr, ...]:
        _, size, _ = self.arrays[array]
        return (self.below(size),)

    def below(self, size: int) -> ir.Expr:
        """An i64 in [0, size)."""
        if self.upto(1):
            return ir.Const(self.upto(size - 1), type=i64)
        return ir.Binary("mod", self.expr(i64, 1), ir.Const(size, type=i64), type=i64)

    def expr(self, dtype: DType, depth: int) -> ir.Expr:
        kinds: list[Callable[[DType, int], ir.Expr | None]] = [self.leaf]
        if depth and self.nodes > 0:
            self.nodes -= 1
            kinds += [self.operator, self.operator, self.call, self.conversion, self.select]
            kinds += [self.truth] if dtype is i32 else []
        return self.pick(kinds)(dtype, depth - 1) or self.leaf(dtype, depth)

    def leaf(self, dtype: DType, depth: int) -> ir.Expr:
        choices: list[Callable[[], ir.Expr]] = [lambda: self.const(dtype)]
        choices += [lambda n=n: ir.Local(n, type=dtype) for n, t in self.readable.items() if t is dtype]
        choices += [lambda n=n: ir.Param(n, type=dtype) for n, t in self.scalars.items() if t is dtype]
        if self.workgroups and self.effects and dtype is i32:
            choices.append(lambda: ir.LaneId(type=i32))
        if depth > 0:
            choices += [
                lambda n=n: ir.Load(n, self.index(n), type=dtype)
                for n, (t, _, _) in self.arrays.items()
                if t is dtype
            ]
            choices += [
                lambda n=n: ir.Lookup(n, self.below(len(self.tables[n].values)), type=dtype)
                for n in self.tables
            ]
        found: ir.Expr = self.pick(choices)()
        return found

    def operator(self, dtype: DType, depth: int) -> ir.Expr:
        unary = ["neg"] if dtype.is_float else ["neg", "invert"]
        excluded = INTEGER_ONLY if dtype.is_float else ("div",)
        op = self.pick(unary + [op for op in self.binary if op not in excluded])
        if op in unary:
            return ir.Unary(op, self.expr(dtype, depth), type=dtype)
        right = self.pick([i64, u64]) if op == "pow" and dtype.is_integer else dtype
        return ir.Binary(op, self.expr(dtype, depth), self.expr(right, depth), type=dtype)

    def truth(self, dtype: DType, depth: int) -> ir.Expr:
        kind, operand = self.upto(2), self.dtype()
        if kind == 0:
            return ir.Unary("not", self.expr(operand, depth), type=i32)
        if kind == 1:
            other = self.expr(self.dtype(), depth)
            return ir.Logical(self.pick(["and", "or"]), self.expr(operand, depth), other, type=i32)
        op = self.pick(COMPARISONS)
        return ir.Compare(op, self.expr(operand, depth), self.expr(operand, depth), type=i32)

    def call(self, dtype: DType, depth: int) -> ir.Expr | None:
        operand = {"keep": dtype, "promote": dtype, "where": dtype}
        if dtype.is_float:
            operand["float"] = dtype
        if dtype is i32:
            operand |= {"test": self.dtype(), "truth": self.dtype()}
            integers = [t for t in self.dtypes if t.is_integer]
            operand |= {"bits": self.pick(integers)} if integers else {}
        names = [n for n in self.functions if BUILTINS[n].rule in operand]
        if not names:
            return None
        builtin = BUILTINS[self.pick(names)]
        count = builtin.min_args + (self.upto(2) if builtin.max_args is None else 0)
        args = [self.expr(operand[builtin.rule], depth) for _ in range(count)]
        if builtin.rule == "where":
            args[0] = self.expr(self.dtype(), depth)
        return ir.Call(builtin.name, tuple(args), type=dtype)

    def conversion(self, dtype: DType, depth: int) -> ir.Expr:
        if self.upto(1):
            return ir.Cast(self.expr(self.dtype(), depth), dtype, type=dtype)
        source = self.pick([dtype, *(t for t in self.dtypes if t.bits == dtype.bits)])
        return ir.Bitcast(self.expr(source, depth), dtype, type=dtype)

    def select(self, dtype: DType, depth: int) -> ir.Expr:
        cond = self.expr(self.dtype(), depth)
        return ir.Select(cond, self.expr(dtype, depth), self.expr(dtype, depth), type=dtype)


class _TemplateBuilder(_Builder):
    """Draws a template: the same statements, any expressions, and as many indices as dimensions."""

    typed = False
    workgroups = True

    def parameter(self, n: int) -> ir.Parameter:
        typed = super().parameter(n)
        if self.upto(1):  # most templates leave it to the call what is an array
            return typed
        return ir.Parameter(typed.name, None, typed.pinned)

    def const(self, dtype: DType) -> ir.Const:
        return ir.Const(self.draw(numbers(dtype)), type=self.pick([None, dtype]))

    def index(self, array: str) -> tuple[ir.Expr, ...]:
        _, _, ndim = self.arrays[array]
        return tuple(self.expr(i64, 1) for _ in range(self.pick([1, ndim])))

    def expr(self, dtype: DType, depth: int) -> ir.Expr:
        self.nodes -= 1
        deeper = depth and self.nodes > 0 and self.upto(2)
        return self.node(dtype, depth - 1) if deeper else self.leaf(dtype, depth)

    def leaf(self, dtype: DType, depth: int) -> ir.Expr:
        choices: list[Callable[[], ir.Expr]] = [lambda: self.const(self.dtype())]
        choices += [lambda n=n: ir.Local(n) for n in self.readable]
        choices += [lambda n=n: ir.Param(n) for n in self.scalars]
        choices += [lambda n=n: ir.Dim(n, self.pick(["size", "ndim", "len", 0, -2])) for n in self.arrays]
        choices += [ir.LaneId] if self.effects else []
        if depth > 0:
            choices += [lambda n=n: ir.Load(n, self.index(n)) for n in self.arrays]
            choices += [lambda n=n: ir.Lookup(n, self.expr(i64, depth - 1)) for n in self.tables]
        found: ir.Expr = self.pick(choices)()
        return found

    def node(self, dtype: DType, depth: int) -> ir.Expr:
        def operand() -> ir.Expr:
            return self.expr(dtype, depth)

        choices: list[Callable[[], ir.Expr]] = [
            lambda: ir.Unary(self.pick(["neg", "invert", "not"]), operand()),
            lambda: ir.Binary(self.pick(self.binary), operand(), operand()),
            lambda: ir.Compare(self.pick(COMPARISONS), operand(), operand()),
            lambda: ir.Logical(self.pick(["and", "or"]), operand(), operand()),
            lambda: ir.Select(operand(), operand(), operand()),
            lambda: ir.Cast(operand(), self.dtype()),
            lambda: ir.Bitcast(operand(), self.dtype()),
            lambda: self.builtin(operand),
        ]
        found: ir.Expr = self.pick(choices)()
        return found

    def builtin(self, operand: Callable[[], ir.Expr]) -> ir.Expr:
        builtin = BUILTINS[self.pick(self.functions)]
        count = builtin.min_args + (self.upto(2) if builtin.max_args is None else 0)
        return ir.Call(builtin.name, tuple(operand() for _ in range(count)))
