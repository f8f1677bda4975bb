"""The innermost parallel loop with streaming stores, which go past the caches.

Whole cache lines are computed, into local arrays that LLVM keeps in registers, and then stored, which needs
aligned addresses. A plain loop does the iterations before the first aligned one and those that are left.
"""

from __future__ import annotations

from collections.abc import Callable

from tack.codegen.llvm import ir
from tack.codegen.llvm.emitter import Emitter, Jump
from tack.codegen.llvm.expressions import element
from tack.codegen.llvm.jit import has_streaming_stores
from tack.codegen.llvm.statements import counted_loop
from tack.codegen.llvm.types import I64, LLVM_TYPES, index
from tack.codegen.streaming import streamed_stores
from tack.dtypes import DType
from tack.ir.nodes import Kernel, Store

__all__ = ["streamed", "streaming_loop"]

_LINE = 64  # bytes of a cache line, or half of one


def streamed(kernel: Kernel) -> list[Store]:
    """The stores of a typed kernel that streaming code writes past the caches."""
    return streamed_stores(kernel) if has_streaming_stores() else []


def streaming_loop(
    fn: Emitter,
    first: ir.Value,
    end: ir.Value,
    enter: Callable[[ir.Value], None],
    body: Callable[[ir.Value, Jump], None],
    stores: list[Store],
) -> None:
    """A loop over [first, end), of which there is at least one, in which these stores are streaming.

    ``enter`` sets the loop variable of an iteration, and ``body`` fills the loop, as in `counted_loop`.
    """
    b = fn.builder
    width = _LINE // min(fn.arrays[s.array][1].itemsize for s in stores)
    enter(first)
    head = _until_aligned(fn, stores, b.sub(end, first))
    start = b.add(first, head)
    whole = b.lshr(b.sub(end, start), index(width.bit_length() - 1))
    stop = b.add(start, b.mul(whole, index(width)))
    start = b.select(b.icmp_signed("==", whole, index(0)), end, start)

    # Twice round: the plain loop up to the lines, and the lines; the plain loop for the rest.
    before, again, plain, skip = b.block, fn.block("part"), fn.block("plain"), fn.block("plain.end")
    lines, done = fn.block("lines"), fn.block("parts.end")
    b.branch(again)
    fn.at(again)
    at, bound = b.phi(I64), b.phi(I64)
    at.add_incoming(first, before)
    bound.add_incoming(start, before)
    b.cbranch(b.icmp_signed("<", at, bound), plain, skip)
    fn.at(plain)
    counted_loop(fn, at, bound, body, can_break=False)
    fn.goto(skip)
    fn.at(skip)
    b.cbranch(b.icmp_signed("<", bound, end), lines, done)
    fn.at(lines)
    counted_loop(fn, index(0), whole, _line(fn, stores, start, width, enter, body), can_break=False)
    at.add_incoming(stop, b.block)
    bound.add_incoming(end, b.block)
    b.branch(again)
    fn.at(done)


def _until_aligned(fn: Emitter, stores: list[Store], count: ir.Value) -> ir.Value:
    """How many of ``count`` iterations come before the one whose elements all start a line.

    All of them if there is none such, which is so for arrays at odd addresses. The loop variable
    is that of the first iteration.
    """
    b = fn.builder
    head: ir.Value | None = None
    aligned: ir.Value | None = None
    for store in stores:
        place, dtype = element(fn, store.array, store.index)
        address = b.ptrtoint(place, I64)
        if head is None:
            missing = b.and_(b.neg(address), index(_LINE - 1))
            head = b.lshr(missing, index(dtype.itemsize.bit_length() - 1))
        rest = b.and_(b.add(address, b.mul(head, index(dtype.itemsize))), index(_LINE - 1))
        aligned = rest if aligned is None else b.or_(aligned, rest)
    assert head is not None
    assert aligned is not None
    usable = b.and_(b.icmp_signed("==", aligned, index(0)), b.icmp_signed("<", head, count))
    return b.select(usable, head, count)


def _line(
    fn: Emitter,
    stores: list[Store],
    start: ir.Value,
    width: int,
    enter: Callable[[ir.Value], None],
    body: Callable[[ir.Value, Jump], None],
) -> Callable[[ir.Value, Jump], None]:
    """Fills the loop over lines: one iteration is ``width`` of the parallel loop."""
    b = fn.builder
    dtypes = [fn.arrays[s.array][1] for s in stores]
    buffers = [fn.stack(ir.ArrayType(LLVM_TYPES[d], width), "line") for d in dtypes]

    def line(number: ir.Value, _: Jump) -> None:
        at = b.add(start, b.mul(number, index(width)))

        def into_buffers(lane: ir.Value, jump: Jump) -> None:
            for store, buffer, dtype in zip(stores, buffers, dtypes, strict=True):
                fn.lines[store.array] = b.gep(buffer, [lane], inbounds=True, source_etype=LLVM_TYPES[dtype])
            body(b.add(at, lane), jump)
            fn.lines.clear()

        counted_loop(fn, index(0), index(width), into_buffers, can_break=False)
        enter(at)
        for store, buffer, dtype in zip(stores, buffers, dtypes, strict=True):
            _copy(fn, store, buffer, dtype, width)

    return line


def _copy(fn: Emitter, store: Store, buffer: ir.Value, dtype: DType, width: int) -> None:
    """The streaming stores of one array's buffer, a vector register at a time."""
    b = fn.builder
    lanes = min(width, fn.unit.vector_bits // dtype.bits)
    kind = ir.VectorType(LLVM_TYPES[dtype], lanes)
    place, _ = element(fn, store.array, store.index)
    hint = fn.unit.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
    for skipped in range(0, width, lanes):
        source = b.gep(buffer, [index(skipped)], inbounds=True, source_etype=LLVM_TYPES[dtype])
        target = b.gep(place, [index(skipped)], inbounds=True, source_etype=LLVM_TYPES[dtype])
        stored = b.store(b.load(source, align=1, typ=kind), target, align=kind.count * dtype.itemsize)
        fn.access(store.array, stored).set_metadata("nontemporal", hint)
