"""Rules for statements, by node class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tack.codegen.llvm import ir
from tack.codegen.llvm.checks import check_race
from tack.codegen.llvm.emitter import Emitter, Jump
from tack.codegen.llvm.expressions import condition, dtype_of, element, factors, value
from tack.codegen.llvm.types import I64, LLVM_TYPES, constant, index
from tack.dtypes import DType, i64
from tack.ir.nodes import (
    Assign,
    Atomic,
    Block,
    Bounds,
    Break,
    Const,
    Continue,
    Expr,
    For,
    If,
    Leave,
    Local,
    LocalArray,
    Param,
    Print,
    Range,
    Stmt,
    Store,
    While,
)

__all__ = [
    "STATEMENTS",
    "block",
    "branch",
    "counted_loop",
    "for_loop",
    "is_constant",
    "local_array_size",
    "statements",
    "while_loop",
]


def statements(fn: Emitter, body: Iterable[Stmt]) -> None:
    """The statements of ``body``, up to the first after which none can run."""
    for statement in body:
        STATEMENTS[type(statement)](fn, statement)
        if fn.builder.block.is_terminated:
            return


# --- memory -------------------------------------------------------------------------------------


def _assign(fn: Emitter, node: Assign) -> None:
    if fn.is_fused(node.target):
        fn.assign_product(node.target, *factors(fn, node.value))
        return
    fn.assign(node.target, value(fn, node.value), dtype_of(node.value))


def _store(fn: Emitter, node: Store) -> None:
    stored = value(fn, node.value)
    if node.array in fn.lines:
        fn.builder.store(stored, fn.lines[node.array])
        return
    with guarded(fn, node) as (address, _):
        fn.access(node.array, fn.builder.store(stored, address, align=1))


@contextmanager
def guarded(fn: Emitter, node: Store | Atomic) -> Iterator[tuple[ir.Value, DType]]:
    """The address and type of the element to change; in debug mode only where it is in range."""
    if not isinstance(node.index[0], Bounds):
        yield element(fn, node.array, node.index)
        return
    b = fn.builder
    at = value(fn, node.index[0])
    inside, done = fn.block("inside"), fn.block("inside.end")
    b.cbranch(b.icmp_signed(">=", at, index(0)), inside, done)
    fn.at(inside)
    yield fn.element(node.array, at)
    if isinstance(node, Store):
        check_race(fn, node.array, node.index[0], at)
    b.branch(done)
    fn.at(done)


def _local_array(fn: Emitter, node: LocalArray) -> None:
    kind = ir.ArrayType(LLVM_TYPES[node.dtype], local_array_size(node))
    if node.name not in fn.arrays:
        fn.arrays[node.name] = fn.stack(kind, node.name), node.dtype
        fn.local_arrays.add(node.name)


def local_array_size(node: LocalArray) -> int:
    """The number of elements of a local array; its shape is constants in a typed kernel."""
    size = node.width
    for extent in node.shape:
        assert isinstance(extent, Const)
        size *= int(extent.value)
    return size


def _atomic(fn: Emitter, node: Atomic) -> None:
    operands = [value(fn, operand) for operand in node.operands]
    b = fn.builder
    dtype = fn.arrays[node.array][1]
    if node.target is not None and isinstance(node.index[0], Bounds):
        fn.assign(node.target, constant(dtype, 0), dtype)  # what an index out of range gives
    with guarded(fn, node) as (address, _):
        if node.op == "cas":
            pair = b.cmpxchg(address, operands[0], operands[1], "monotonic", "monotonic")
            fn.access(node.array, pair)
            old = b.extract_value(pair, 0)
        elif node.op == "load":
            old = b.load_atomic(address, "monotonic", dtype.itemsize, typ=LLVM_TYPES[dtype])
            fn.access(node.array, old)
        else:
            old = b.atomic_rmw(_atomic_name(node.op, dtype), address, operands[0], "monotonic")
            fn.access(node.array, old)
        if node.target is not None:
            fn.assign(node.target, old, dtype)


def _atomic_name(op: str, dtype: DType) -> str:
    """LLVM's name of an atomic operation on a type."""
    if op == "exchange":
        return "xchg"
    if dtype.is_float:
        return f"f{op}"
    return f"u{op}" if op in ("min", "max") and not dtype.is_signed else op


# --- loops --------------------------------------------------------------------------------------


def is_constant(node: Expr, expected: int) -> bool:
    return isinstance(node, Const) and node.value == expected


def counted_loop(
    fn: Emitter,
    first: ir.Value,
    end: ir.Value,
    body: Callable[[ir.Value, Jump], None],
    *,
    can_break: bool,
    signed: bool = True,
) -> None:
    """Calls ``body`` to fill a loop over the counter values [first, end).

    The test is at the end, as LLVM's vectorizer wants it; the caller has checked that the loop
    runs at least once, and goes on in the block where the loop ends.
    """
    b = fn.builder
    before, loop = b.block, fn.block("loop")
    step, done = fn.block("loop.step"), fn.block("loop.end")
    b.branch(loop)
    fn.at(loop)
    counter = b.phi(I64)
    body(counter, Jump(step, done if can_break else None))
    fn.goto(step)
    fn.at(step)
    following = b.add(counter, index(1), flags=("nsw",) if signed else ("nuw",))
    less = b.icmp_signed if signed else b.icmp_unsigned
    b.cbranch(less("<", following, end), loop, done)
    counter.add_incoming(first, before)
    counter.add_incoming(following, step)
    fn.at(done)


def _for(fn: Emitter, node: For) -> None:
    def round(at: ir.Value) -> None:
        fn.assign(node.var, at, i64)
        statements(fn, node.body)

    for_loop(fn, node.range, round)


# LLVM's vectorizer can come to two opinions on the best width of a loop that it knows a small bound of; with
# assertions, as llvmlite's wheels have them, it then ends the process. So it does not see such bounds, except
# for loops so short that they are unrolled.
_UNROLLED: Final = 24
_OPAQUE: Final = ir.InlineAsm(ir.FunctionType(I64, [I64]), "", "=r,0")


def _has_visible_bound(stop: Expr) -> bool:
    if isinstance(stop, Const):
        return stop.value > _UNROLLED
    return not isinstance(stop, (Local, Param))


def for_loop(fn: Emitter, bounds: Range, round: Callable[[ir.Value], None]) -> None:
    """A loop over a range; ``round`` fills it, given the loop variable's value."""
    known = bounds.step.value if isinstance(bounds.step, Const) else None
    if known is not None and known < 1:
        return
    start, stop = value(fn, bounds.start), value(fn, bounds.stop)
    step = value(fn, bounds.step)
    b = fn.builder
    if _has_visible_bound(bounds.stop):
        stop = b.call(_OPAQUE, [stop])
    enter, skip = fn.block("for"), fn.block("for.end")
    runs = b.icmp_signed("<", start, stop)
    if known is None:
        runs = b.and_(runs, b.icmp_signed(">", step, index(0)))
    by_one = known == 1
    b.cbranch(runs, enter, skip)
    fn.at(enter)
    first, end = start, stop
    if not by_one:
        # Counting iterations cannot overflow where start + step could.
        span = b.sub(b.sub(stop, start), index(1))
        first, end = index(0), b.add(b.udiv(span, step), index(1))

    def body(counter: ir.Value, jump: Jump) -> None:
        fn.loops.append(jump)
        round(counter if by_one else b.add(start, b.mul(counter, step)))
        fn.loops.pop()

    counted_loop(fn, first, end, body, can_break=True, signed=by_one)
    fn.goto(skip)
    fn.at(skip)


def _while(fn: Emitter, node: While) -> None:
    while_loop(fn, lambda: condition(fn, node.cond), lambda: statements(fn, node.body))


def while_loop(fn: Emitter, test: Callable[[], ir.Value], round: Callable[[], None]) -> None:
    """A loop while ``test`` gives true; ``round`` fills it."""
    head, body, done = fn.block("while"), fn.block("while.body"), fn.block("while.end")
    fn.builder.branch(head)
    fn.at(head)
    fn.builder.cbranch(test(), body, done)
    fn.at(body)
    fn.loops.append(Jump(head, done))
    round()
    fn.loops.pop()
    fn.goto(head)
    fn.at(done)


# --- control ------------------------------------------------------------------------------------


def _if(fn: Emitter, node: If) -> None:
    orelse = (lambda: statements(fn, node.orelse)) if node.orelse else None
    branch(fn, condition(fn, node.cond), lambda: statements(fn, node.then), orelse)


def branch(
    fn: Emitter, cond: ir.Value, fill_then: Callable[[], None], fill_else: Callable[[], None] | None
) -> None:
    """A conditional whose arms the callables fill."""
    then, done = fn.block("if"), fn.block("if.end")
    orelse = fn.block("else") if fill_else else done
    fn.builder.cbranch(cond, then, orelse)
    fn.at(then)
    fill_then()
    fn.goto(done)
    if fill_else:
        fn.at(orelse)
        fill_else()
        fn.goto(done)
    fn.at(done)


def _break(fn: Emitter, node: Break) -> None:
    target = fn.loops[-1].on_break
    assert target is not None
    fn.builder.branch(target)


def _continue(fn: Emitter, node: Continue) -> None:
    fn.builder.branch(fn.loops[-1].on_continue)


def _block(fn: Emitter, node: Block) -> None:
    block(fn, node.label, lambda: statements(fn, node.body))


def block(fn: Emitter, label: str, fill: Callable[[], None]) -> None:
    """A block with a label, which ``fill`` fills."""
    done = fn.block("block.end")
    fn.blocks[label] = done
    fill()
    fn.goto(done)
    fn.at(done)


def _leave(fn: Emitter, node: Leave) -> None:
    fn.builder.branch(fn.blocks[node.label])


# --- print --------------------------------------------------------------------------------------


def _print(fn: Emitter, node: Print) -> None:
    parts = [part for part in node.parts if isinstance(part, Expr)]
    values = [value(fn, part) for part in parts]
    slots = fn.stack(ir.ArrayType(I64, len(values)))
    b = fn.builder
    for position, part in enumerate(values):
        b.store(part, b.gep(slots, [index(position)], source_etype=I64))
    assert fn.print_callback is not None
    b.call(fn.print_callback, [index(fn.unit.sites[id(node)]), slots])


STATEMENTS: dict[type[Stmt], Callable[[Emitter, Any], None]] = {
    Assign: _assign,
    Store: _store,
    LocalArray: _local_array,
    Atomic: _atomic,
    For: _for,
    While: _while,
    If: _if,
    Break: _break,
    Continue: _continue,
    Block: _block,
    Leave: _leave,
    Print: _print,
}
