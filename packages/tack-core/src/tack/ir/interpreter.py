"""Runs a typed kernel in plain Python: the oracle that compiled kernels are compared with.

It is strict where the language leaves behaviour to the caller: an index out of bounds, a read of
a local variable before its assignment and of a local array's element before its store raise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tack.dtypes import DType, f32, i64
from tack.ir import nodes as ir
from tack.ir import semantics
from tack.ir.workgroups import primitives

__all__ = ["STATEMENTS", "Array", "Machine", "run"]

Number = int | float


def run(
    kernel: ir.Kernel,
    args: dict[str, np.ndarray[Any, Any] | int | float],
    launch: Sequence[tuple[int, int, int]],
    on_print: Callable[[str], object] | None = None,
) -> Number | None:
    """Runs a launch of a typed kernel, its iterations one after the other in row-major order.

    Those of a kernel that uses workgroups take turns at barriers (`tack.ir.lanes`).

    Args:
        kernel: a typed kernel that `tack.ir.verify.verify` accepts.
        args: the argument of each parameter by name. An array is C-contiguous and has the
            parameter's dtype and number of dimensions; it is updated in place, and may share memory
            with others. A scalar is a number that its parameter's dtype represents.
        launch: start, step and count of each dimension of the parallel loop.
        on_print: called with each line that the kernel prints, without its line break. By default
            lines go to ``sys.stdout``.

    Returns:
        The kernel's result, converted to its ``result_type``; None if it has none.

    Raises:
        ValueError: the kernel is a template, or arguments or launch do not fit it.
        IndexError: an index is out of its array's bounds.
        UnboundLocalError: a local, or an element of a local array, is read before it is assigned.
        RuntimeError: not all iterations of a workgroup take part in a barrier.
    """
    if not kernel.typed:
        raise ValueError(f"kernel '{kernel.name}' is a template; only a typed kernel runs")
    if len(launch) != len(kernel.loop.vars):
        raise ValueError(f"kernel '{kernel.name}' has {len(kernel.loop.vars)} dimensions, not {len(launch)}")
    machine = Machine(kernel, args, on_print or print)
    machine.body(kernel.before)
    outer = machine.locals
    if primitives(kernel):
        from tack.ir.lanes import run_workgroups

        run_workgroups(machine, kernel, launch)
    else:
        for index in itertools.product(*(range(count) for _, _, count in launch)):
            machine.enter(outer)
            for var, at, (start, step, _) in zip(kernel.loop.vars, index, launch, strict=True):
                machine.locals[var] = i64.wrap(start + at * step)
            machine.body(kernel.loop.body)
    machine.enter(outer)
    machine.body(kernel.after)
    if kernel.result is None or kernel.result_type is None:
        return None
    return semantics.convert(machine.value(kernel.result), kernel.result_type)


class Array:
    """The elements of an array by flat index; None stands for one that has no value yet."""

    def __init__(self, name: str, elements: Any, dtype: DType, shape: tuple[int, ...] = ()) -> None:
        self.name = name
        self.elements = elements
        self.dtype = dtype
        self.shape = shape

    def check(self, index: Number) -> Number:
        if not 0 <= index < len(self.elements):
            raise IndexError(
                f"array '{self.name}': index {index} is out of bounds for {len(self.elements)} elements"
            )
        return index

    def __getitem__(self, index: Number) -> Number:
        value: Number | None = self.elements[self.check(index)]
        if value is None:
            raise UnboundLocalError(f"array '{self.name}': element {index} is read before it is stored")
        return value

    def __setitem__(self, index: Number, value: Number) -> None:
        self.elements[self.check(index)] = value


def _argument(p: ir.Parameter, value: Any) -> Any:
    if isinstance(p.type, ir.Array):
        if (
            not isinstance(value, np.ndarray)
            or value.dtype != p.type.dtype.numpy
            or value.ndim != p.type.ndim
        ):
            raise ValueError(f"parameter '{p.name}' is an array of {p.type.dtype} with ndim {p.type.ndim}")
        if not value.flags.c_contiguous:
            raise ValueError(f"array '{p.name}' is not C-contiguous")
        # A memoryview has Python numbers.
        return Array(p.name, value.reshape(-1).data, p.type.dtype, value.shape)
    assert isinstance(p.type, DType)
    if isinstance(value, np.ndarray):
        raise ValueError(f"parameter '{p.name}' is a scalar of {p.type}")
    number = float(value) if p.type.is_float else int(value)
    if not (number != number or number == value == semantics.convert(number, p.type)):
        raise ValueError(f"parameter '{p.name}' of {p.type} does not represent {value!r}")
    return number


class Machine:
    """The state of the iteration that is running."""

    def __init__(self, kernel: ir.Kernel, args: dict[str, Any], on_print: Callable[[str], object]) -> None:
        if args.keys() != {p.name for p in kernel.params}:
            raise ValueError(
                f"kernel '{kernel.name}' has parameters {', '.join(p.name for p in kernel.params)}"
            )
        bound = {p.name: _argument(p, args[p.name]) for p in kernel.params}
        self.scalars: dict[str, Number] = {n: v for n, v in bound.items() if not isinstance(v, Array)}
        self.arrays: dict[str, Array] = {n: v for n, v in bound.items() if isinstance(v, Array)}
        self.locals: dict[str, Number] = {}
        self.lane = 0
        self.tables = kernel.tables
        self.on_print = on_print

    def enter(self, outer: dict[str, Number]) -> None:
        """Starts an iteration with the locals ``outer``; local arrays have no values yet."""
        self.locals = dict(outer)
        for array in self.arrays.values():
            if isinstance(array.elements, list):
                array.elements = [None] * len(array.elements)

    # --- statements: each returns the Break, Continue or Leave that ends what encloses it ---

    def body(self, body: tuple[ir.Stmt, ...]) -> ir.Stmt | None:
        for s in body:
            jump = STATEMENTS[type(s)](self, s)
            if jump is not None:
                return jump
        return None

    def jump(self, s: ir.Stmt) -> ir.Stmt:
        return s

    def assign(self, s: ir.Assign) -> None:
        self.locals[s.target] = self.value(s.value)

    def store(self, s: ir.Store) -> None:
        value = self.value(s.value)
        self.arrays[s.array][self.value(s.index[0])] = value

    def atomic(self, s: ir.Atomic) -> None:
        array, index = self.arrays[s.array], self.value(s.index[0])
        old = array[index]
        operands = [self.value(e) for e in s.operands]
        array[index] = semantics.ATOMICS[s.op](old, *operands, array.dtype)
        if s.target is not None:
            self.locals[s.target] = old

    def local_array(self, s: ir.LocalArray) -> None:
        size = s.width * math.prod(int(self.value(e)) for e in s.shape)
        self.arrays[s.name] = Array(s.name, [None] * size, s.dtype)

    def for_loop(self, s: ir.For) -> ir.Stmt | None:
        start, stop, step = (int(self.value(e)) for e in (s.range.start, s.range.stop, s.range.step))
        for i in range(start, stop, step) if step > 0 else ():
            self.locals[s.var] = i
            jump = self.body(s.body)
            if isinstance(jump, ir.Break):
                break
            if isinstance(jump, ir.Leave):
                return jump
        return None

    def while_loop(self, s: ir.While) -> ir.Stmt | None:
        while self.value(s.cond):
            jump = self.body(s.body)
            if isinstance(jump, ir.Break):
                break
            if isinstance(jump, ir.Leave):
                return jump
        return None

    def branch(self, s: ir.If) -> ir.Stmt | None:
        return self.body(s.then if self.value(s.cond) else s.orelse)

    def block(self, s: ir.Block) -> ir.Stmt | None:
        jump = self.body(s.body)
        return None if isinstance(jump, ir.Leave) and jump.label == s.label else jump

    def print(self, s: ir.Print) -> None:
        self.on_print("".join(p if isinstance(p, str) else _text(self.value(p), p.type) for p in s.parts))

    # --- expressions ---

    def value(self, e: ir.Expr) -> Number:
        return _EXPRESSIONS[type(e)](self, e)

    def local(self, e: ir.Local) -> Number:
        if e.name not in self.locals:
            raise UnboundLocalError(f"local '{e.name}' is read before it is assigned")
        return self.locals[e.name]

    def fetch(self, e: ir.Fetch) -> float:
        """Trilinear interpolation in f64; a texture unit is less precise."""
        texture = self.arrays[e.texture]
        axes = []
        for part, extent in zip(e.position, reversed(texture.shape), strict=True):
            at = min(max(self.value(part), 0.0), extent - 1.0)
            low = min(int(at), max(extent - 2, 0))
            axes.append(((low, 1 - (at - low)), (min(low + 1, extent - 1), at - low)))
        _, height, width = texture.shape
        value = sum(
            wx * wy * wz * texture[(z * height + y) * width + x]
            for (x, wx), (y, wy), (z, wz) in itertools.product(*axes)
        )
        return semantics.round_to(value, f32)

    def logical(self, e: ir.Logical) -> int:
        left = bool(self.value(e.left))
        return int(left if left == (e.op == "or") else bool(self.value(e.right)))


def _text(value: Number, dtype: DType | None) -> str:
    return str(np.float32(value)) if dtype is f32 else str(value)


STATEMENTS: dict[type, Callable[[Machine, Any], ir.Stmt | None]] = {
    ir.Assign: Machine.assign,
    ir.Store: Machine.store,
    ir.Atomic: Machine.atomic,
    ir.LocalArray: lambda m, s: m.local_array(s),
    ir.For: Machine.for_loop,
    ir.While: Machine.while_loop,
    ir.If: Machine.branch,
    ir.Break: Machine.jump,
    ir.Continue: Machine.jump,
    ir.Block: Machine.block,
    ir.Leave: Machine.jump,
    ir.Print: Machine.print,
}
_EXPRESSIONS: dict[type, Callable[[Machine, Any], Number]] = {
    ir.Const: lambda m, e: e.value,
    ir.Param: lambda m, e: m.scalars[e.name],
    ir.Local: Machine.local,
    ir.Load: lambda m, e: m.arrays[e.array][m.value(e.index[0])],
    ir.Lookup: lambda m, e: semantics.convert(m.tables[e.table].values[int(m.value(e.index))], e.type),
    ir.Fetch: Machine.fetch,
    ir.LaneId: lambda m, e: m.lane,
    ir.Unary: lambda m, e: semantics.unary(e.op, m.value(e.operand), e.operand.type),
    ir.Binary: lambda m, e: semantics.binary(e.op, m.value(e.left), m.value(e.right), e.type),
    ir.Compare: lambda m, e: semantics.compare(e.op, m.value(e.left), m.value(e.right)),
    ir.Logical: Machine.logical,
    ir.Select: lambda m, e: m.value(e.then if m.value(e.cond) else e.orelse),
    ir.Call: lambda m, e: semantics.call(e.function, tuple(m.value(a) for a in e.args), e.args[-1].type),
    ir.Cast: lambda m, e: semantics.convert(m.value(e.operand), e.to),
    ir.Bitcast: lambda m, e: semantics.bitcast(m.value(e.operand), e.operand.type, e.to),
}
