"""Generated kernels with barriers: compiled code against the interpreter, which runs lane by lane.

``python -m codegen.fuzz_workgroups 1000``, run in the tests' folder, tries that many kernels, with a
second argument on another target, as `codegen.fuzz` has them.
"""

from __future__ import annotations

import faulthandler
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ir.strategies import _Builder, numbers

from codegen.fuzz import EXACT, FLOAT_OPERATORS, TARGETS, same
from tack.dtypes import DType, f32, f64, i8, i32, i64, u64
from tack.ir import interpreter
from tack.ir import nodes as ir
from tack.ir.passes.participation import participation
from tack.ir.printer import to_text
from tack.ir.verify import verify
from tack.ir.workgroups import WORKGROUP

DIMENSIONS: list[list[tuple[int, int, int]]] = [
    [(0, 1, 256)],
    [(-3, 2, 512)],
    [(0, 1, 2), (5, 3, 128)],
    [(1, 1, 3), (0, 1, 16), (0, 2, 16)],
]


class GroupBuilder(_Builder):
    """Draws kernels without races: a lane writes its own elements, and reads others' after a barrier."""

    def __init__(self, draw: st.DrawFn, launch: Sequence[tuple[int, int, int]], real: DType) -> None:
        super().__init__(draw, [i32, u64, i8, real], EXACT, FLOAT_OPERATORS)
        self.real = real
        self.launch = launch
        self.size = math.prod(count for _, _, count in launch)
        self.uniform_only = False
        self.uniforms: dict[str, DType] = {}
        self.names = 0

    def kernel(self) -> ir.Kernel:
        params = []
        for n, dtype in enumerate((i32, self.real, u64)):
            self.arrays[f"own{n}"] = dtype, self.size, 1
            params.append(ir.Parameter(f"own{n}", ir.Array(dtype, 1)))
            self.scalars[f"p{n}"] = dtype
            params.append(ir.Parameter(f"p{n}", dtype))
        self.parameters = {"own0", "own1", "own2"}
        self.arrays["fixed"] = i32, 7, 1
        params.append(ir.Parameter("fixed", ir.Array(i32, 1)))
        before = [self.initial("outer")]
        vars = tuple(f"i{n}" for n in range(len(self.launch)))
        ranges = tuple(ir.Range(ir.Const(a), ir.Const(a + b * c), ir.Const(b)) for a, b, c in self.launch)
        for var in vars:
            self.declare(var, i64)
        body: list[ir.Stmt] = []
        for n, dtype in enumerate(self.dtypes):
            body.append(ir.Assign(f"v{n}", self.const(dtype)))
            self.declare(f"v{n}", dtype)
            self.variables[f"v{n}"] = dtype
            body.append(ir.Assign(f"u{n}", self.uniform(dtype, 1)))
            self.declare(f"u{n}", dtype)
            self.uniforms[f"u{n}"] = dtype
            body.append(ir.LocalArray(f"s{n}", (self.integer(WORKGROUP),), dtype, shared=True))
            body.append(ir.Assign(f"r{n}", self.expr(dtype, 2)))
            self.declare(f"r{n}", dtype)
        self.loop, self.effects, self.fuel = "parallel", True, 16
        body += self.group(3)
        if not self.upto(3):
            body += self.leaving(ir.Continue(), 1)
        body += [
            ir.Store(f"own{n}", (self.own(),), ir.Local(f"v{k}", type=t))
            for n, k, t in ((0, 0, i32), (1, 3, self.real), (2, 1, u64))
        ]
        return ir.Kernel(
            *("k", tuple(params), tuple(before), ir.Parallel(vars, ranges, tuple(body)), (), None, None),
            *(self.locals, {}, True, False),
        )

    # --- values ---

    def own(self) -> ir.Expr:
        """The number of the iteration, from its indices."""
        number: ir.Expr = self.integer(0)
        for n, (start, step, count) in enumerate(self.launch):
            shifted = ir.Binary("sub", ir.Local(f"i{n}", type=i64), self.integer(start), type=i64)
            at = ir.Binary("floordiv", shifted, self.integer(step), type=i64)
            scaled = ir.Binary("mul", number, self.integer(count), type=i64)
            number = ir.Binary("add", scaled, at, type=i64)
        return number

    def lane(self) -> ir.Expr:
        return ir.Cast(ir.LaneId(type=i32), i64, type=i64)

    def index(self, array: str) -> tuple[ir.Expr, ...]:
        return (self.own(),) if array in self.parameters else super().index(array)

    def leaf(self, dtype: DType, depth: int) -> ir.Expr:
        if self.uniform_only:
            choices: list[ir.Expr] = [self.const(dtype)]
            choices += [ir.Local(n, type=t) for n, t in self.uniforms.items() if t is dtype]
            choices += [ir.Param(n, type=t) for n, t in self.scalars.items() if t is dtype]
            found: ir.Expr = self.pick(choices)
            return found
        if dtype is i32 and not self.upto(4):
            return ir.LaneId(type=i32)
        return super().leaf(dtype, depth)

    def uniform(self, dtype: DType, depth: int = 2) -> ir.Expr:
        self.uniform_only = True
        found = self.expr(dtype, depth)
        self.uniform_only = False
        return found

    def conversion(self, dtype: DType, depth: int) -> ir.Expr:
        return ir.Cast(self.expr(self.dtype(), depth), dtype, type=dtype)  # bits would show a NaN's sign

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # --- statements ---

    def statement(self, depth: int) -> Sequence[ir.Stmt]:
        """A statement of a region."""
        kinds: list[Callable[[int], Sequence[ir.Stmt]]] = [self.assign, self.store, self.local_array]
        kinds += [self.branch, self.for_loop, self.while_loop, self.block] if depth else []
        kinds += [self.jump] if not self.upto(3) else []
        found: Sequence[ir.Stmt] = self.pick(kinds)(depth)
        return found

    def store(self, depth: int) -> list[ir.Stmt]:
        name = self.pick(sorted(n for n in self.arrays if n != "fixed"))
        return [ir.Store(name, self.index(name), self.expr(self.arrays[name][0], 3))]

    def group(self, depth: int) -> list[ir.Stmt]:
        """Statements that the workgroup runs together, in a scope of their own."""
        arrays, readable = dict(self.arrays), dict(self.readable)
        found: list[ir.Stmt] = []
        while self.fuel and self.upto(5):
            self.fuel -= 1
            kinds: list[Callable[[int], Sequence[ir.Stmt]]] = [self.exchange, self.reduce, self.set_uniform]
            kinds += [self.statement, self.statement, self.local_array]
            if depth:
                kinds += [self.group_if, self.group_for, self.group_while, self.group_block]
            found += self.pick(kinds)(depth)
        self.arrays, self.readable = arrays, readable
        return found

    def exchange(self, depth: int) -> list[ir.Stmt]:
        """Each lane hands a value to another."""
        k = self.upto(len(self.dtypes) - 1)
        dtype, name = self.dtypes[k], f"s{k}"
        shifted = ir.Binary("add", self.lane(), ir.Const(self.upto(300), type=i64), type=i64)
        other = ir.Binary("mod", shifted, self.integer(WORKGROUP), type=i64)
        return [
            ir.Store(name, (self.lane(),), self.expr(dtype, 2)),
            ir.Barrier(),
            ir.Assign(f"v{k}", ir.Load(name, (other,), type=dtype)),
            ir.Barrier(),
        ]

    def reduce(self, depth: int) -> list[ir.Stmt]:
        targets = {
            n: t for n, t in {**self.variables, **self.uniforms}.items() if n != "outer" and t is not i8
        }
        name = self.pick(sorted(targets))
        return [ir.BlockReduce(name, self.pick(["sum", "min", "max"]), self.expr(targets[name], 2))]

    def set_uniform(self, depth: int) -> list[ir.Stmt]:
        name = self.pick(sorted(self.uniforms))
        return [ir.Assign(name, self.uniform(self.uniforms[name]))]

    def group_if(self, depth: int) -> list[ir.Stmt]:
        cond = self.uniform(self.dtype())
        return [ir.If(cond, tuple(self.group(depth - 1)), tuple(self.group(depth - 1)))]

    def group_for(self, depth: int) -> list[ir.Stmt]:
        var = self.fresh("g")
        self.declare(var, i64)
        return [
            ir.For(
                var,
                ir.Range(self.integer(0), self.integer(self.upto(3)), self.integer(1)),
                self.group_loop(depth),
            )
        ]

    def group_while(self, depth: int) -> list[ir.Stmt]:
        var = self.fresh("w")
        self.declare(var, i64)
        counter = ir.Local(var, type=i64)
        step = ir.Assign(var, ir.Binary("add", counter, self.integer(1), type=i64))
        more = ir.Compare("lt", counter, self.integer(3), type=i32)
        cond = ir.Logical("and", more, self.uniform(self.dtype()), type=i32)
        return [ir.Assign(var, self.integer(0)), ir.While(cond, (step, *self.group_loop(depth)))]

    def leaving(self, jump: ir.Stmt, depth: int) -> list[ir.Stmt]:
        """Some lanes jump out of a conditional that has a barrier, and miss what follows it."""
        self.fuel += 3
        arrays = dict(self.arrays)
        then = [ir.Barrier(), *self.statement(0), ir.If(self.expr(i32, 2), (jump,), ()), *self.statement(0)]
        self.arrays = dict(arrays)
        after = [*self.statement(depth), *self.statement(0)]
        self.arrays = arrays
        return [ir.If(self.uniform(i32), tuple(then), ()), *after]

    def group_loop(self, depth: int) -> tuple[ir.Stmt, ...]:
        outer, self.loop = self.loop, "sequential"
        body = self.group(depth - 1)
        if not self.upto(3):
            body.append(ir.If(self.uniform(i32), (self.pick([ir.Break(), ir.Continue()]),), ()))
            body += self.group(depth - 1)
        if not self.upto(2):
            body += self.leaving(ir.Continue(), depth - 1)
        self.loop = outer
        return tuple(body)

    def group_block(self, depth: int) -> list[ir.Stmt]:
        label = self.fresh("b")
        self.labels.append(label)
        body = self.group(depth - 1)
        if not self.upto(2):
            body.append(ir.If(self.uniform(i32), (ir.Leave(label),), ()))
            body += self.group(depth - 1)
        if not self.upto(1):
            body += self.leaving(ir.Leave(label), depth - 1)
        self.labels.pop()
        return [ir.Block(label, tuple(body))]


@st.composite
def workgroup_kernels(draw: st.DrawFn, real: DType = f64) -> tuple[ir.Kernel, list[tuple[int, int, int]]]:
    """Kernels and their launches; ``real`` is the float type that they have."""
    launch = draw(st.sampled_from(DIMENSIONS))
    return GroupBuilder(draw, launch, real).kernel(), launch


def group_arguments(
    data: st.DataObject, launch: Sequence[tuple[int, int, int]], real: DType
) -> dict[str, Any]:
    size = math.prod(count for _, _, count in launch)
    args: dict[str, Any] = {}
    seed = np.random.default_rng(data.draw(st.integers(0, 9)))
    for n, dtype in enumerate((i32, real, u64)):
        args[f"own{n}"] = seed.integers(0, 9, size).astype(dtype.numpy)
        args[f"p{n}"] = data.draw(numbers(dtype))
    args["fixed"] = np.arange(7, dtype=np.int32) - 3
    return args


def proven(kernel: ir.Kernel) -> bool:
    """Whether the analysis proves participation; kernels with a jump that may be harmful are drawn too."""
    try:
        participation(kernel)
    except ValueError:
        return False
    return True


def check(
    kernel: ir.Kernel, launch: Sequence[tuple[int, int, int]], data: st.DataObject, generator: Any
) -> None:
    args = group_arguments(data, launch, next(p.type for p in kernel.params if p.name == "p1"))
    expected = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in args.items()}
    interpreter.run(kernel, expected, launch)
    generator(kernel)(args, launch)
    for name in ("own0", "own1", "own2"):
        assert same(args[name], expected[name]), name


def main(count: int, target: str = "cpu") -> None:
    @settings(
        max_examples=count,
        derandomize=count < 100,  # the tests draw the same each time
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],  # to make a failing kernel smaller takes minutes
    )
    @given(workgroup_kernels(f32 if target == "metal" else f64), st.data())
    def run(drawn: tuple[ir.Kernel, list[tuple[int, int, int]]], data: st.DataObject) -> None:
        nonlocal agreed
        kernel, launch = drawn
        verify(kernel)
        if not proven(kernel):
            return
        try:
            check(kernel, launch, data, TARGETS[target])
        except Exception:
            print(to_text(kernel), launch)
            raise
        agreed += 1

    agreed = 0
    faulthandler.enable()
    run()
    print(f"{agreed} kernels agree")
    assert agreed > count / 4, "too few kernels could be compared"


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
