"""Workgroups: a loop over the lanes for each region of the body (`tack.codegen.regions`).

In a region everything works as in an ordinary kernel. Before it a lane's locals are fetched from
their arrays of 256 into the usual slots, and after it they are put back, so that inside the loop over
the lanes LLVM sees plain values, and vectorizes over the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tack.codegen.llvm import ir
from tack.codegen.llvm.emitter import Emitter, Jump, Unit
from tack.codegen.llvm.expressions import condition, dtype_of, value
from tack.codegen.llvm.operators import convert
from tack.codegen.llvm.statements import (
    STATEMENTS,
    block,
    branch,
    counted_loop,
    for_loop,
    local_array_size,
    statements,
    while_loop,
)
from tack.codegen.llvm.types import ADDRESS, LLVM_TYPES, constant, index
from tack.codegen.regions import Once, Plan, Region, Step, Target, Together, names_in
from tack.dtypes import DType, i8, i32, i64
from tack.ir.nodes import Assign, Block, BlockReduce, For, If, Node, While
from tack.ir.passes.localize import assigned
from tack.ir.workgroups import WORKGROUP, requires_full_workgroups

__all__ = ["lane_bytes", "run_workgroups"]

# The loop variables' values in the iteration with this number in the row-major range.
Variables = Callable[[ir.Value], list[ir.Value]]


def lane_bytes(plan: Plan, locals: dict[str, DType]) -> int:
    """The stack space that the state of 256 lanes takes between regions."""
    scalars = sum(locals.get(name, i64).itemsize for name in plan.per_lane)
    arrays = sum(local_array_size(node) * node.dtype.itemsize for node in plan.lane_arrays)
    return WORKGROUP * (scalars + arrays + len(plan.masked))


def run_workgroups(fn: Emitter, plan: Plan, low: ir.Value, high: ir.Value, variables: Variables) -> None:
    """The iterations [low, high), of which there is at least one; ``low`` is a multiple of 256."""
    b = fn.builder
    size = index(WORKGROUP)
    first = b.sdiv(low, size)
    end = b.sdiv(b.add(high, index(WORKGROUP - 1)), size)

    def group(number: ir.Value, jump: Jump) -> None:
        base = b.mul(number, size)
        lanes: ir.Value = size
        if not requires_full_workgroups(fn.unit.kernel):
            rest = b.sub(high, base)
            lanes = b.select(b.icmp_signed("<", rest, size), rest, size)
        _Workgroup(fn, plan, base, lanes, variables).run(jump)

    counted_loop(fn, first, end, group, can_break=False)


class _Workgroup:
    """Builds the code for one workgroup."""

    def __init__(
        self, fn: Emitter, plan: Plan, base: ir.Value, lanes: ir.Value, variables: Variables
    ) -> None:
        self.fn = fn
        self.base = base
        self.lanes = lanes
        self.variables = variables
        self.steps = plan.steps
        self.remade = plan.remade
        self.loop = fn.unit.kernel.loop
        self.kept = {name: self.lane_array(fn.local(name)[1]) for name in plan.per_lane}
        self.masks = {key: self.lane_array(i8) for key in plan.masked}
        self.scratch: dict[DType, ir.Value] = {}
        for node in plan.lane_arrays:
            kind = ir.ArrayType(LLVM_TYPES[node.dtype], local_array_size(node) * WORKGROUP)
            fn.arrays[node.name] = fn.stack(kind, node.name), node.dtype
            fn.local_arrays.add(node.name)
            fn.lane_arrays.add(node.name)

    def lane_array(self, dtype: DType) -> ir.Value:
        return self.fn.stack(ir.ArrayType(LLVM_TYPES[dtype], WORKGROUP))

    def at_lane(self, array: ir.Value, dtype: DType, lane: ir.Value) -> ir.Value:
        return self.fn.builder.gep(array, [lane], inbounds=True, source_etype=LLVM_TYPES[dtype])

    # --- steps ---

    def run(self, jump: Jump) -> None:
        self.fn.iteration = self.base  # a check of what all lanes have in common reports the first
        self.enter(self.loop)
        self.fn.loops.append(jump)
        self.run_steps(self.steps)
        self.fn.loops.pop()

    def run_steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Region):
                self.region(step)
            elif isinstance(step, Once):
                if isinstance(step.stmt, Assign):
                    self.fetch_first(step.stmt.value)
                STATEMENTS[type(step.stmt)](self.fn, step.stmt)
            else:
                self.together(step)
            if self.fn.builder.block.is_terminated:
                return

    def together(self, step: Together) -> None:
        fn, node = self.fn, step.stmt
        if isinstance(node, If):
            self.fetch_first(node.cond)
            orelse = (lambda: self.run_steps(step.orelse)) if step.orelse else None
            branch(fn, condition(fn, node.cond), lambda: self.run_steps(step.body), orelse)
        elif isinstance(node, Block):
            self.enter(node)
            block(fn, node.label, lambda: self.run_steps(step.body))
        elif isinstance(node, For):
            self.fetch_first(node.range)
            for_loop(fn, node.range, lambda at: self.round(node, step, at))
        else:
            while_loop(fn, lambda: self.test(node), lambda: self.round(node, step))

    def test(self, node: While) -> ir.Value:
        self.fetch_first(node.cond)
        return condition(self.fn, node.cond)

    def round(self, node: For | While, step: Together, at: ir.Value | None = None) -> None:
        if isinstance(node, For) and at is not None:
            self.assign_all(node.var, at, i64)
        self.enter(node)
        self.run_steps(step.body)

    def enter(self, target: Target) -> None:
        """All lanes are in ``target`` again."""
        mask = self.masks.get(id(target))
        if mask is not None:
            self.each_lane(lambda lane: self.set_lane(mask, i8, lane, constant(i8, 0)))

    # --- what is kept for each lane ---

    def each_lane(self, body: Callable[[ir.Value], None]) -> None:
        counted_loop(self.fn, index(0), self.lanes, lambda lane, _: body(lane), can_break=False)

    def set_lane(self, array: ir.Value, dtype: DType, lane: ir.Value, new: ir.Value) -> None:
        self.fn.builder.store(new, self.at_lane(array, dtype, lane))

    def fetch(self, names: Iterable[str], lane: ir.Value) -> None:
        for name in names:
            slot, dtype = self.fn.local(name)
            kept = self.at_lane(self.kept[name], dtype, lane)
            self.fn.builder.store(self.fn.builder.load(kept, typ=LLVM_TYPES[dtype]), slot)

    def fetch_first(self, node: Node) -> None:
        """Makes the locals in a uniform expression readable: those of one lane are those of all."""
        self.fetch(sorted(names_in(node) & self.kept.keys()), index(0))

    def assign_all(self, name: str, new: ir.Value, dtype: DType) -> None:
        """Assigns a local in every lane."""
        target = self.fn.local(name)[1]
        new = convert(self.fn, new, dtype, target)
        if name in self.kept:
            self.each_lane(lambda lane: self.set_lane(self.kept[name], target, lane, new))
        else:
            self.fn.assign(name, new, target)

    # --- regions ---

    def region(self, region: Region) -> None:
        fn = self.fn
        loops, blocks, before = fn.loops, fn.blocks, fn.builder.block

        def lane(number: ir.Value, jump: Jump) -> None:
            # A counter of its own, not the other one cut off: LLVM sees what is linear in it.
            fn.lane, fn.lane_id = number, fn.builder.phi(LLVM_TYPES[i32])
            following = fn.builder.add(fn.lane_id, constant(i32, 1), flags=("nuw", "nsw"))
            fn.lane_id.add_incoming(constant(i32, 0), before)
            fn.lane_id.add_incoming(following, jump.on_continue)
            self.lane(region, number, jump)

        counted_loop(fn, index(0), self.lanes, lane, can_break=False)
        fn.loops, fn.blocks = loops, blocks
        fn.lane = fn.lane_id = None
        fn.iteration = self.base
        if region.reduce is not None:
            self.reduce(region.reduce)

    def lane(self, region: Region, lane: ir.Value, jump: Jump) -> None:
        """The body of the loop over the lanes."""
        fn, b = self.fn, self.fn.builder
        for target in region.guards:
            stays = fn.block("lane.stays")
            gone = b.load(self.at_lane(self.masks[id(target)], i8, lane), typ=LLVM_TYPES[i8])
            b.cbranch(b.icmp_unsigned("!=", gone, constant(i8, 0)), jump.on_continue, stays)
            fn.at(stays)
        used = set().union(*(names_in(s) for s in (*region.body, region.reduce) if s is not None))
        for name in reversed(self.remade):  # a later one may use an earlier one
            used |= names_in(self.remade[name].value) if name in used else set()
        number = b.add(self.base, lane)
        fn.iteration = number
        if used & set(self.loop.vars):
            for name, at in zip(self.loop.vars, self.variables(number), strict=True):
                fn.assign(name, at, i64)
        statements(fn, [self.remade[name] for name in self.remade if name in used])
        self.fetch(sorted(used & self.kept.keys()), lane)
        done = fn.block("lane.done")
        exits = {id(target): fn.block("lane.exit") for target in region.exits}
        fn.loops = [Jump(exits.get(id(t)) or done, None) for t in region.exits if not isinstance(t, Block)]
        fn.blocks = {t.label: exits[id(t)] for t in region.exits if isinstance(t, Block)}
        statements(fn, region.body)
        if region.reduce is not None and not b.block.is_terminated:
            operand = value(fn, region.reduce.value)
            dtype = dtype_of(region.reduce.value)
            self.set_lane(self.scratch_for(dtype), dtype, lane, operand)
        fn.goto(done)
        for key, landing in exits.items():
            fn.at(landing)
            if key in self.masks:
                self.set_lane(self.masks[key], i8, lane, constant(i8, 1))
            b.branch(done)
        fn.at(done)
        for name in sorted(assigned(region.body).keys() & self.kept.keys()):
            slot, dtype = fn.local(name)
            self.set_lane(self.kept[name], dtype, lane, b.load(slot, typ=LLVM_TYPES[dtype]))

    # --- block reductions ---

    def scratch_for(self, dtype: DType) -> ir.Value:
        """Room for a value of each lane, which every block reduction of the type uses."""
        if dtype not in self.scratch:
            self.scratch[dtype] = self.lane_array(dtype)
        return self.scratch[dtype]

    def reduce(self, node: BlockReduce) -> None:
        dtype = dtype_of(node.value)
        function = block_reduction(self.fn.unit, node.op, dtype)
        result = self.fn.builder.call(function, [self.scratch_for(dtype)])
        self.assign_all(node.target, result, dtype)


def block_reduction(unit: Unit, op: str, dtype: DType) -> ir.Function:
    """Reduces 256 values in place: lane l with lane l + 128, then with l + 64, and so on."""
    kind = LLVM_TYPES[dtype]

    def build(fn: Emitter) -> None:
        b = fn.builder
        values = fn.function.args[0]
        values.add_attribute("noalias")

        def address(at: ir.Value) -> ir.Value:
            return b.gep(values, [at], inbounds=True, source_etype=kind)

        def pair(lane: ir.Value, width: int) -> None:
            other = b.load(address(b.add(lane, index(width))), typ=kind)
            b.store(_combined(fn, op, dtype, b.load(address(lane), typ=kind), other), address(lane))

        width = WORKGROUP // 2
        while width:
            half = width
            counted_loop(fn, index(0), index(half), lambda lane, _, w=half: pair(lane, w), can_break=False)  # type: ignore[misc]
            width //= 2
        b.ret(b.load(values, typ=kind))

    return unit.helper(f"tack.block_{op}.{dtype}", kind, [ADDRESS], build)


def _combined(fn: Emitter, op: str, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    b = fn.builder
    if op == "sum":
        return b.fadd(left, right) if dtype.is_float else b.add(left, right)
    if dtype.is_float:  # a NaN wins, and zeros are ordered
        return fn.intrinsic(f"{op}imum", dtype, left, right)
    return fn.intrinsic(f"{'s' if dtype.is_signed else 'u'}{op}", dtype, left, right)
