"""How the iterations of a launch are dealt out to threads, and the loops that each thread runs.

A thread takes several iterations where their loads can be in flight at once: in a short body without
loops, if no array overlaps another, so that the loads of all of them may come before the stores. In one
dimension they are a block's width apart, which keeps a warp's accesses side by side; in more they follow
each other along an outer axis, so that neighbours in a stencil stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tack.codegen.c.emitter import Emitter
from tack.codegen.c.source import Geometry
from tack.ir.nodes import Atomic, Bounds, For, Kernel, Load, LocalArray, NonZero, Print, Store, While
from tack.ir.traversal import walk
from tack.ir.workgroups import primitives

__all__ = ["geometry", "iterations", "positions"]

_THREADS = 256
_BLOCKS = {1: (_THREADS, 1, 1), 2: (32, 8, 1), 3: (32, 4, 2)}
# A thread's iterations, and the loads and stores of a body that is short enough for them.
_ITEMS = 4
_MAX_ACCESSES = 12


def geometry(kernel: Kernel, disjoint: bool) -> Geometry:
    """The launch geometry of a kernel."""
    ndim = len(kernel.loop.vars)
    checked = any(isinstance(n, Bounds | NonZero) for n in walk(kernel))
    if ndim > 3 or checked or primitives(kernel):  # in debug mode the order of the loop finds the first
        return Geometry((_THREADS, 1, 1), (1, 1, 1), True)
    items = [1, 1, 1]
    if disjoint and _is_streaming(kernel):
        items[ndim - 1] = _ITEMS
    return Geometry(_BLOCKS[ndim], (items[0], items[1], items[2]), ndim == 1)


def _is_streaming(kernel: Kernel) -> bool:
    nodes = list(walk(kernel.loop))
    if any(isinstance(n, For | While | Atomic | Print | LocalArray) for n in nodes):
        return False
    return 0 < sum(isinstance(n, Load | Store) for n in nodes) <= _MAX_ACCESSES


def iterations(
    fn: Emitter, shape: Geometry, counts: Sequence[str], run: Callable[[Sequence[str]], None]
) -> None:
    """The loops of a thread over its iterations; ``run`` writes one, given its position along each axis."""
    last = len(counts) - 1
    names = [f"tack_at{axis}" for axis in range(last + 1)]
    if shape.flat and last:

        def divided() -> None:
            positions(fn, counts, names, "tack_number")
            run(names)

        fn.line(f"const i64 tack_total = {' * '.join(counts)};")
        _axis(fn, shape, 0, "tack_number", "tack_total", divided)
        return

    def nest(rest: Sequence[int]) -> None:
        if not rest:
            run(names)
            return
        axis = rest[0]
        _axis(fn, shape, last - axis, names[axis], counts[axis], lambda: nest(rest[1:]))

    # The loop over a thread's neighbouring iterations is the innermost.
    nest(sorted(range(last + 1), key=lambda axis: shape.items[last - axis]))


def positions(fn: Emitter, counts: Sequence[str], names: Sequence[str], number: str) -> None:
    """Declares the position along each axis of an iteration, given its number in the row-major range."""
    for axis in range(len(counts) - 1, 0, -1):
        rows = f"tack_rows{axis}"
        fn.line(f"const i64 {rows} = (u64){number} / (u64){counts[axis]};")
        fn.line(f"const i64 {names[axis]} = {number} - {rows} * {counts[axis]};")
        number = rows
    fn.line(f"const i64 {names[0]} = {number};")


def _axis(fn: Emitter, shape: Geometry, axis: int, name: str, count: str, run: Callable[[], None]) -> None:
    """The loop along one axis of the grid. Its first round is mostly the only one, so it is not unrolled."""
    d = fn.dialect
    block, items = shape.block[axis], shape.items[axis]
    # Iterations of a thread: a block's width apart along x, else next to each other.
    apart = block if axis == 0 else 1
    tile = block * items
    thread = d.thread_index(axis) if axis == 0 or items == 1 else f"{d.thread_index(axis)} * {items}"
    first = f"(i64){d.block_index(axis)} * {tile}" + (f" + {thread}" if block > 1 else "")
    stride = f"(i64){d.grid_size(axis)} * {tile}"
    start = name if items == 1 else f"tack_first{axis}"
    fn.line(d.rolled)
    with fn.braces(f"for (i64 {start} = {first}; {start} < {count}; {start} += {stride})"):
        if items == 1:
            run()
            return
        end = f"tack_end{axis}"
        step = f"{name} += {apart}" if apart > 1 else f"++{name}"
        with fn.braces(f"if ({start} + {(items - 1) * apart} < {count})"):  # no tests between them
            fn.line(f"const i64 {end} = {start} + {items * apart};")
            fn.line(d.unrolled)
            with fn.braces(f"for (i64 {name} = {start}; {name} < {end}; {step})"):
                run()
        with fn.orelse():
            fn.line(d.rolled)
            with fn.braces(f"for (i64 {name} = {start}; {name} < {count}; {step})"):
                run()
