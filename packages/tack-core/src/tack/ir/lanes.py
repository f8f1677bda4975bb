"""Runs the workgroups of a typed kernel for `tack.ir.interpreter`, lane by lane.

Each lane is a generator that stops at a barrier or block reduction; once all have stopped, and at
the same statement, all go on. It knows nothing of the analysis that proves participation, nor of
how compiled code splits a kernel at its barriers, so that it can be compared with both.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Generator, Sequence
from typing import Any

from tack.dtypes import i64
from tack.ir import nodes as ir
from tack.ir import semantics
from tack.ir.interpreter import STATEMENTS, Array, Machine
from tack.ir.traversal import walk
from tack.ir.workgroups import WORKGROUP, has_collective

__all__ = ["run_workgroups"]

# Yields the collectives that the lane meets; a block reduction is sent its result.
Steps = Generator[tuple[ir.Stmt, Any], Any, ir.Stmt | None]


def run_workgroups(machine: Machine, kernel: ir.Kernel, launch: Sequence[tuple[int, int, int]]) -> None:
    """Runs the iterations of a launch, one workgroup after the other.

    Raises:
        RuntimeError: the lanes of a workgroup do not all take part in a collective.
    """
    indices = itertools.product(*(range(start, start + step * count, step) for start, step, count in launch))
    outer = machine.locals
    together = {id(s) for s in walk(kernel.loop) if isinstance(s, ir.Stmt) and has_collective(s)}
    declared = [s for part in kernel.before for s in walk(part) if isinstance(s, ir.LocalArray)]
    while group := list(itertools.islice(indices, WORKGROUP)):
        shared: dict[str, Array] = {}
        lanes = []
        for number, index in enumerate(group):
            lane = _Lane.of(machine, number, shared, together)
            for s in declared:
                lane.local_array(s)
            lane.locals = {**outer, **{v: i64.wrap(i) for v, i in zip(kernel.loop.vars, index, strict=True)}}
            lanes.append(lane.steps(kernel.loop.body))
        _run_together(lanes)


def _run_together(lanes: list[Steps]) -> None:
    results: list[Any] = [None] * len(lanes)
    while True:
        met: list[Any] = []
        for lane, result in zip(lanes, results, strict=True):
            try:
                met.append(lane.send(result))
            except StopIteration:
                met.append(None)
        if all(m is None for m in met):
            return
        first = met[0] and met[0][0]
        if first is None or any(m is None or m[0] is not first for m in met) or len(met) != WORKGROUP:
            raise RuntimeError("the iterations of a workgroup do not all take part in a barrier")
        result = None
        if isinstance(first, ir.BlockReduce):
            result = block_reduce(first, [value for _, value in met])
        results = [result] * len(lanes)


def block_reduce(node: ir.BlockReduce, values: list[int | float]) -> int | float:
    """The values of 256 lanes combined: lane l with lane l + 128, then with l + 64, and so on."""
    combine, dtype = semantics.BLOCK_REDUCTIONS[node.op], node.value.type
    assert dtype is not None
    while len(values) > 1:
        half = len(values) // 2
        values = [combine(a, b, dtype) for a, b in zip(values[:half], values[half:], strict=True)]
    return values[0]


class _Lane(Machine):
    """One iteration. Statements with collectives in them run as generators, the others at once."""

    shared: dict[str, Array]
    together: set[int]  # ids of the statements with collectives in them

    @classmethod
    def of(cls, machine: Machine, number: int, shared: dict[str, Array], together: set[int]) -> _Lane:
        lane: _Lane = object.__new__(cls)
        lane.__dict__.update(copy.copy(machine.__dict__))
        lane.arrays = {n: a for n, a in machine.arrays.items() if not isinstance(a.elements, list)}
        lane.lane, lane.shared, lane.together = number, shared, together
        return lane

    def local_array(self, s: ir.LocalArray) -> None:
        if not s.shared:
            super().local_array(s)
            return
        if s.name not in self.shared:
            size = math.prod(int(self.value(e)) for e in s.shape)
            self.shared[s.name] = Array(s.name, [None] * size, s.dtype)
        self.arrays[s.name] = self.shared[s.name]

    def steps(self, body: tuple[ir.Stmt, ...]) -> Steps:
        for s in body:
            jump = (yield from self.step(s)) if id(s) in self.together else STATEMENTS[type(s)](self, s)
            if jump is not None:
                return jump
        return None

    def step(self, s: ir.Stmt) -> Steps:
        if isinstance(s, ir.BlockReduce):
            self.locals[s.target] = yield s, self.value(s.value)
        elif isinstance(s, ir.Barrier):
            yield s, None
        elif isinstance(s, ir.If):
            return (yield from self.steps(s.then if self.value(s.cond) else s.orelse))
        elif isinstance(s, ir.Block):
            jump = yield from self.steps(s.body)
            return None if isinstance(jump, ir.Leave) and jump.label == s.label else jump
        elif isinstance(s, (ir.For, ir.While)):
            for _ in self.rounds(s):
                jump = yield from self.steps(s.body)
                if isinstance(jump, ir.Break):
                    break
                if isinstance(jump, ir.Leave):
                    return jump
        return None

    def rounds(self, s: ir.For | ir.While) -> Generator[None, None, None]:
        """Stops before each round of a loop."""
        if isinstance(s, ir.While):
            while self.value(s.cond):
                yield
            return
        start, stop, step = (int(self.value(e)) for e in (s.range.start, s.range.stop, s.range.step))
        for i in range(start, stop, step) if step > 0 else ():
            self.locals[s.var] = i
            yield
