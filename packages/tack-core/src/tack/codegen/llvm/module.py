"""A module for one typed kernel: `launch` over a part of the iterations, and `result`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tack.codegen.llvm import ir
from tack.codegen.llvm.emitter import Emitter, Jump, Unit
from tack.codegen.llvm.expressions import dtype_of, value
from tack.codegen.llvm.jit import vector_bits
from tack.codegen.llvm.operators import convert
from tack.codegen.llvm.outer_loops import loop_in_step
from tack.codegen.llvm.statements import counted_loop, is_constant, local_array_size, statements
from tack.codegen.llvm.streaming import streamed, streaming_loop
from tack.codegen.llvm.types import ADDRESS, I64, LLVM_TYPES, VOID, index
from tack.codegen.outer_loops import lane_locals
from tack.codegen.single import single_valued
from tack.codegen.sites import check_sites, print_sites
from tack.dtypes import i64
from tack.errors import diagnostic
from tack.ir.nodes import (
    Array,
    Atomic,
    Kernel,
    LocalArray,
    Range,
    Store,
)
from tack.ir.passes.localize import assigned
from tack.ir.traversal import nodes_of
from tack.ir.workgroups import WORKGROUP, primitives

if TYPE_CHECKING:
    from tack.codegen.regions import Plan

__all__ = ["MAX_LOCAL_BYTES", "generate", "streamed"]

# Local arrays are on the stack, of which some threads have little.
MAX_LOCAL_BYTES = 1 << 20

# Fills the loop over [first, end): given what sets the loop variable of an iteration, and its body.
RowLoop = Callable[
    [Emitter, ir.Value, ir.Value, Callable[[ir.Value], None], Callable[[ir.Value, Jump], None]], None
]
# Fills the loop over a part [first, end) of a row, whose place in the other dimensions is given.
Row = Callable[[Sequence[ir.Value], ir.Value, ir.Value], None]

_PRINT = ir.FunctionType(VOID, [I64, ADDRESS])


def generate(kernel: Kernel, *, disjoint: bool = False, streaming: bool = False) -> ir.Module:
    """The LLVM module of a typed kernel.

    Args:
        kernel: a verified typed kernel.
        disjoint: whether no array that the kernel writes overlaps another of its arrays.
        streaming: whether to write arrays past the caches where the kernel allows it, see
            `tack.codegen.streaming`. Only with ``disjoint``; pays for large arrays.

    Raises:
        ValueError: the kernel's arrays and its lanes' state take more than ``MAX_LOCAL_BYTES``, or
            not all lanes are proven to reach a barrier.
    """
    plan = None
    if primitives(kernel):
        from tack.codegen.regions import Plan, prepared

        kernel = prepared(kernel)
        plan = Plan(kernel)
    _check_stack(kernel, plan)
    sites = [*enumerate(print_sites(kernel)), *enumerate(check_sites(kernel))]
    single = single_valued(kernel) if plan is None else ()
    unit = Unit(kernel, {id(site): number for number, site in sites}, vector_bits(), single)
    _launch(unit, disjoint, plan, streamed(kernel) if streaming else [])
    if kernel.result is not None:
        _result(unit)
    unit.finish()
    return unit.module


def _check_stack(kernel: Kernel, plan: Plan | None) -> None:
    """Refuses a kernel whose arrays and, with workgroups, whose lanes' state are too large."""
    kept: list[LocalArray] = []
    total = 0
    if plan is not None:
        from tack.codegen.llvm.workgroups import lane_bytes

        kept, total = plan.lane_arrays, lane_bytes(plan, kernel.locals)
    arrays = nodes_of(kernel, LocalArray)
    total += sum(local_array_size(node) * node.dtype.itemsize for node in arrays if node not in kept)
    if total > MAX_LOCAL_BYTES:
        message = f"local and shared arrays take {total} bytes; at most {MAX_LOCAL_BYTES} fit on the stack"
        hint = "pass an array argument with a part for each iteration instead"
        if kept:
            message = f"with copies for {WORKGROUP} lanes, as they outlive a barrier, {message}"
        place = (kept or arrays)[0].loc if arrays else kernel.loc
        raise diagnostic(ValueError, message, place, kernel=kernel.name, hint=hint)


# --- slots --------------------------------------------------------------------------------------


def _slot_types(kernel: Kernel) -> Iterator[ir.Type]:
    """The type of each slot: parameters, then start, step and count of each dimension, then print."""
    for parameter in kernel.params:
        kind = parameter.type
        assert kind is not None
        yield ADDRESS if isinstance(kind, Array) else LLVM_TYPES[kind]
    for _ in kernel.loop.ranges:
        yield from (I64, I64, I64)
    if print_sites(kernel):
        yield ADDRESS


def _load_slots(fn: Emitter, slots: ir.Value, kinds: Iterable[ir.Type]) -> list[ir.Value]:
    b = fn.builder
    return [
        b.load(b.gep(slots, [index(position)], source_etype=I64), typ=kind)
        for position, kind in enumerate(kinds)
    ]


def _bind(fn: Emitter, values: list[ir.Value]) -> list[tuple[ir.Value, ir.Value, ir.Value]]:
    """Gives the slots' values their names; returns start, step and count of each dimension."""
    kernel = fn.unit.kernel
    for parameter, argument in zip(kernel.params, values, strict=False):
        kind = parameter.type
        assert kind is not None
        if isinstance(kind, Array):
            fn.arrays[parameter.name] = argument, kind.dtype
        else:
            fn.scalars[parameter.name] = argument
    rest = iter(values[len(kernel.params) :])
    dimensions = [(next(rest), next(rest), next(rest)) for _ in kernel.loop.ranges]
    callback = next(rest, None)
    fn.print_callback = None if callback is None else ir.FunctionPointer(callback, _PRINT)
    return dimensions


# --- functions ----------------------------------------------------------------------------------


def _result(unit: Unit) -> None:
    """``result(slots, out)``: what the kernel returns, converted to its type, stored at ``out``."""
    kernel = unit.kernel
    function = ir.Function(unit.module, ir.FunctionType(VOID, [ADDRESS, ADDRESS]), "result")
    function.attributes["nounwind"] = None
    fn = Emitter(unit, function)
    _bind(fn, _load_slots(fn, function.args[0], _slot_types(kernel)))
    statements(fn, kernel.before)
    statements(fn, kernel.after)
    assert kernel.result is not None
    assert kernel.result_type is not None
    returned = value(fn, kernel.result)
    returned = convert(fn, returned, dtype_of(kernel.result), kernel.result_type)
    fn.builder.store(returned, function.args[1], align=1)
    fn.builder.ret_void()
    fn.finish()


def _launch(unit: Unit, disjoint: bool, plan: Plan | None, streaming: list[Store]) -> None:
    """``launch(slots, low, high)``: the iterations [low, high) of the row-major linear range."""
    kernel = unit.kernel
    function = ir.Function(unit.module, ir.FunctionType(VOID, [ADDRESS, I64, I64]), "launch")
    function.attributes["nounwind"] = None
    fn = Emitter(unit, function)
    slots, low, high = function.args
    dimensions = _bind(fn, _load_slots(fn, slots, _slot_types(kernel)))
    if disjoint:
        fn.facts = _alias_facts(unit)
    run, done = fn.block("run"), fn.block("done")
    b = fn.builder
    b.cbranch(b.icmp_signed("<", low, high), run, done)
    fn.at(run)
    statements(fn, kernel.before)
    if plan is None:
        _iterate(fn, dimensions, low, high, _row_loop(unit, disjoint, streaming))
    else:
        from tack.codegen.llvm.workgroups import run_workgroups

        run_workgroups(fn, plan, low, high, lambda number: _variables(fn, dimensions, number))
    if streaming:  # nothing else orders streaming stores on x86
        b.call(unit.declare("llvm.x86.sse.sfence", VOID, []), [])
    fn.goto(done)
    fn.at(done)
    b.ret_void()
    fn.finish()


def _alias_facts(unit: Unit) -> dict[str, dict[str, Any]]:
    """The metadata by which accesses to each array parameter cannot touch the others.

    Each array that the kernel writes is a scope. An access is in its array's, and not in the rest.
    """
    kernel, node = unit.kernel, unit.module.add_metadata
    written = {n.array for n in nodes_of(kernel, Store)} | {n.array for n in nodes_of(kernel, Atomic)}
    names = [p.name for p in kernel.params if isinstance(p.type, Array)]
    domain = node(["arrays"])
    scopes = {name: node([name, domain]) for name in names if name in written}
    facts: dict[str, dict[str, Any]] = {}
    for name in names:
        others = [scope for other, scope in scopes.items() if other != name]
        facts[name] = {"noalias": node(others)} if others else {}
        if name in scopes:
            facts[name]["alias.scope"] = node([scopes[name]])
    return facts


# --- the parallel loop --------------------------------------------------------------------------


def _row_loop(unit: Unit, disjoint: bool, streaming: list[Store]) -> RowLoop:
    """What fills the innermost loop."""
    if streaming:
        return functools.partial(streaming_loop, stores=streaming)
    own = lane_locals(unit.kernel) if disjoint and unit.vector_bits else None
    if own is not None:
        return functools.partial(loop_in_step, own=own)
    return lambda fn, first, end, _, body: counted_loop(fn, first, end, body, can_break=False)


def _iterate(
    fn: Emitter,
    dimensions: list[tuple[ir.Value, ir.Value, ir.Value]],
    low: ir.Value,
    high: ir.Value,
    row_loop: RowLoop,
) -> None:
    """The iterations [low, high), of which there is at least one."""
    loop = fn.unit.kernel.loop
    kept = [(name, fn.read(name)) for name in _carried(fn.unit.kernel)]

    def enter(positions: list[ir.Value]) -> None:
        for name, bounds, (start, step, _), position in zip(
            loop.vars, loop.ranges, dimensions, positions, strict=True
        ):
            fn.assign(name, _variable(fn, bounds, start, step, position), i64)

    def iteration(positions: list[ir.Value], jump: Jump) -> None:
        for name, saved in kept:
            fn.builder.store(saved, fn.local(name)[0])
        enter(positions)
        if check_sites(fn.unit.kernel):
            fn.iteration = _number(fn, positions, [count for _, _, count in dimensions])
        fn.loops.append(jump)
        statements(fn, loop.body)
        fn.loops.pop()

    def row(outer: Sequence[ir.Value], first: ir.Value, end: ir.Value) -> None:
        def body(at: ir.Value, jump: Jump) -> None:
            iteration([*outer, at], jump)

        row_loop(fn, first, end, lambda at: enter([*outer, at]), body)

    if len(dimensions) == 1:
        row([], low, high)
    else:
        _rows(fn, [count for _, _, count in dimensions], low, high, row)


def _variables(
    fn: Emitter, dimensions: list[tuple[ir.Value, ir.Value, ir.Value]], number: ir.Value
) -> list[ir.Value]:
    """The loop variables' values in an iteration, given its number in the row-major linear range."""
    positions: list[ir.Value] = []
    for _, _, count in reversed(dimensions[1:]):
        number, position = _divided(fn, number, count)
        positions.insert(0, position)
    return [
        _variable(fn, bounds, start, step, at)
        for bounds, (start, step, _), at in zip(
            fn.unit.kernel.loop.ranges, dimensions, [number, *positions], strict=True
        )
    ]


def _variable(fn: Emitter, bounds: Range, start: ir.Value, step: ir.Value, at: ir.Value) -> ir.Value:
    """A loop variable's value in its iteration number ``at``; the common cases cost nothing."""
    if not is_constant(bounds.step, 1):
        at = fn.builder.mul(at, step)
    return at if is_constant(bounds.start, 0) else fn.builder.add(at, start)


def _rows(fn: Emitter, counts: list[ir.Value], low: ir.Value, high: ir.Value, row_loop: Row) -> None:
    """Row by row: divisions find where the chunk starts, and none are needed after that."""
    b = fn.builder
    length = counts[-1]
    row, column = _divided(fn, low, length)
    outer: list[ir.Value] = []
    for count in reversed(counts[1:-1]):
        row, position = _divided(fn, row, count)
        outer.insert(0, position)
    outer.insert(0, row)

    before, loop, following = b.block, fn.block("row"), fn.block("row.next")
    done = fn.block("rows.end")
    b.branch(loop)
    fn.at(loop)
    start, first, *positions = phis = [b.phi(I64) for _ in (low, column, *outer)]
    # The row ends at its length or where the chunk ends, whichever is first.
    to_end = b.add(first, b.sub(high, start))
    end = b.select(b.icmp_signed("<", to_end, length), to_end, length)
    row_loop(positions, first, end)
    next_start = b.add(start, b.sub(end, first))
    b.cbranch(b.icmp_signed("<", next_start, high), following, done)

    fn.at(following)
    advanced: list[ir.Value] = []
    carry: ir.Value | None = None
    for position, count in zip(reversed(positions), reversed(counts[:-1]), strict=True):
        moved = b.add(position, index(1))
        at_end = b.icmp_signed("==", moved, count)
        moved = b.select(at_end, index(0), moved)
        advanced.insert(0, moved if carry is None else b.select(carry, moved, position))
        carry = at_end if carry is None else b.and_(carry, at_end)
    b.branch(loop)
    for phi, initial, later in zip(
        phis, (low, column, *outer), (next_start, index(0), *advanced), strict=True
    ):
        phi.add_incoming(initial, before)
        phi.add_incoming(later, following)
    fn.at(done)


def _number(fn: Emitter, positions: list[ir.Value], counts: list[ir.Value]) -> ir.Value:
    """An iteration's number in the row-major linear range."""
    number = positions[0]
    for position, count in zip(positions[1:], counts[1:], strict=True):
        number = fn.builder.add(fn.builder.mul(number, count), position)
    return number


def _divided(fn: Emitter, dividend: ir.Value, divisor: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Quotient and remainder of two non-negative numbers."""
    quotient = fn.builder.udiv(dividend, divisor)
    return quotient, fn.builder.sub(dividend, fn.builder.mul(quotient, divisor))


def _carried(kernel: Kernel) -> list[str]:
    """The locals that an iteration changes and that start each one as ``before`` left them."""
    return sorted(assigned(kernel.before).keys() & assigned(kernel.loop.body).keys())
