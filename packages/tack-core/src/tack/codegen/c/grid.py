"""How the iterations of a launch are dealt out to threads, and the loops that each thread runs.

A thread takes several iterations where that lets their loads be in flight at once: in a short body without
loops. In one dimension they are a block's width apart, which keeps a warp's accesses side by side; in more
they follow each other along the outer axes, so that neighbours in a stencil are read once. A tile that is
whole runs without a test for each iteration, since loads do not move over tests. The figures are of an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from math import prod

from tack.codegen.c.emitter import Emitter
from tack.codegen.c.source import Geometry
from tack.ir.nodes import Atomic, Fetch, For, Kernel, Load, LocalArray, Node, Print, Store, While
from tack.ir.workgroups import WORKGROUP, primitives
from tack.record import Record

__all__ = ["Tile", "geometry", "iterations", "positions"]

# The blocks and a thread's iterations for each number of dimensions, if the body is short enough; x first.
_BLOCKS = {1: (128, 1, 1), 2: (128, 2, 1), 3: (128, 2, 1)}
_ITEMS = {1: (4, 1, 1), 2: (1, 4, 1), 3: (1, 2, 4)}
# The loads and stores of a body that is short enough.
_MAX_ACCESSES = 12


def geometry(kernel: Kernel, inside: Sequence[Node], checked: bool) -> Geometry:
    """The launch geometry of a kernel, given the nodes of its loop and whether it has debug mode's checks."""
    ndim = len(kernel.loop.vars)
    if ndim > 3 or checked or primitives(kernel):
        return Geometry((WORKGROUP, 1, 1), (1, 1, 1), True)
    items = _ITEMS[ndim] if _is_streaming(inside) else (1, 1, 1)
    return Geometry(_BLOCKS[ndim], items, ndim == 1)


def _is_streaming(nodes: Sequence[Node]) -> bool:
    """Whether a body of these nodes is short, and without loops."""
    if any(isinstance(n, For | While | Atomic | Print | LocalArray) for n in nodes):
        return False
    return 0 < sum(isinstance(n, Load | Store | Fetch) for n in nodes) <= _MAX_ACCESSES


class Tile:
    """What a thread does with its iterations; positions are one along each dimension of the loop."""

    def run(self, at: Sequence[str]) -> None:
        """Writes an iteration."""
        raise NotImplementedError

    def begin(self, items: int) -> bool:
        """Declares places for the values that ``items`` iterations load early; says whether there are any."""
        raise NotImplementedError

    def load(self, at: Sequence[str], item: str) -> None:
        """Writes the loads of one of them."""
        raise NotImplementedError

    def run_loaded(self, at: Sequence[str], item: str) -> None:
        """Writes an iteration whose loads have been made."""
        raise NotImplementedError


class _Axis(Record):
    """One dimension of the loop: the axis of the grid along which it is dealt out, and how."""

    number: int
    grid_axis: int
    count: str
    items: int
    block: str  # the threads of a block along it

    @property
    def position(self) -> str:
        return f"tack_at{self.number}"

    @property
    def first(self) -> str:
        """The position of the first of a thread's iterations."""
        return f"tack_first{self.number}" if self.items > 1 else self.position

    def item(self, k: str) -> str:
        """The position of a thread's iteration ``k``."""
        return f"{self.first} + {k}" + ("" if self.grid_axis else f" * {self.block}")


def iterations(fn: Emitter, shape: Geometry, counts: Sequence[str], tile: Tile) -> None:
    """The loops of a thread over its iterations."""
    last = len(counts) - 1
    names = [f"tack_at{number}" for number in range(last + 1)]
    with ExitStack() as loops:
        if shape.flat and last:
            fn.line(f"const i64 tack_total = {' * '.join(counts)};")
            whole = _Axis(0, 0, "tack_total", 1, str(shape.block[0]))
            loops.enter_context(_grid_loop(fn, whole, "tack_number"))
            positions(fn, counts, names, "tack_number")
            tile.run(names)
            return
        axes = []
        for number, count in enumerate(counts):
            along = last - number
            block = str(shape.block[along]) if shape.flat else fn.dialect.block_size(along)
            axes.append(_Axis(number, along, count, shape.items[along], block))
        for axis in axes:
            loops.enter_context(_grid_loop(fn, axis, axis.first))
        if max(shape.items) == 1:
            tile.run(names)
        else:
            _tile(fn, axes, tile)


def positions(fn: Emitter, counts: Sequence[str], names: Sequence[str], number: str) -> None:
    """Declares the position along each axis of an iteration, given its number in the row-major range."""
    for axis in range(len(counts) - 1, 0, -1):
        rows = f"tack_rows{axis}"
        fn.line(f"const i64 {rows} = (u64){number} / (u64){counts[axis]};")
        fn.line(f"const i64 {names[axis]} = {number} - {rows} * {counts[axis]};")
        number = rows
    fn.line(f"const i64 {names[0]} = {number};")


def _grid_loop(fn: Emitter, axis: _Axis, name: str) -> AbstractContextManager[None]:
    """The loop along one axis of the grid. Its first round is mostly the only one, so it is not unrolled."""
    d, along = fn.dialect, axis.grid_axis
    width, thread = axis.block, d.thread_index(along)
    if axis.items > 1:
        width = f"({width} * {axis.items})"
        thread = f"{thread} * {axis.items}" if along else thread
    fn.line(d.rolled)
    return fn.braces(
        f"for (i64 {name} = (i64){d.block_index(along)} * {width} + {thread}; "
        f"{name} < {axis.count}; {name} += (i64){d.grid_size(along)} * {width})"
    )


def _tile(fn: Emitter, axes: Sequence[_Axis], tile: Tile) -> None:
    """A thread's iterations, from the first along each axis."""
    several = [axis for axis in axes if axis.items > 1]
    whole = [f"{axis.item(str(axis.items - 1))} < {axis.count}" for axis in several]
    with fn.braces(f"if ({' && '.join(whole)})"):
        run = tile.run_loaded if tile.begin(prod(axis.items for axis in several)) else None
        if run is not None:  # a whole tile: its loads come first
            _each(fn, axes, fn.dialect.unrolled, tile.load)
        _each(fn, axes, fn.dialect.unrolled, run or (lambda at, _: tile.run(at)))
    with fn.orelse():
        _each(fn, axes, fn.dialect.rolled, lambda at, _: tile.run(at), guarded=True)


def _each(
    fn: Emitter,
    axes: Sequence[_Axis],
    pragma: str,
    body: Callable[[Sequence[str], str], None],
    *,
    guarded: bool = False,
) -> None:
    """Loops over a thread's iterations; ``body`` is given the position and the number of one."""
    item = ""
    with ExitStack() as loops:
        for axis in axes:
            if axis.items > 1:
                k = f"tack_k{axis.number}"
                fn.line(pragma)
                loops.enter_context(fn.braces(f"for (int {k} = 0; {k} < {axis.items}; ++{k})"))
                fn.line(f"const i64 {axis.position} = {axis.item(k)};")
                if guarded:
                    fn.line(f"if ({axis.position} >= {axis.count})")
                    fn.line("    break;")
                item = f"{item} * {axis.items} + {k}" if item else k
        body([axis.position for axis in axes], item)
