"""A few neighbouring iterations at once, in kernels whose inner loops all of them run alike.

Each run of statements between loops is done for all lanes before the next one, in a loop of constant
length over the lanes, which LLVM vectorizes and unrolls. What a lane's locals are in between is in local
arrays, which LLVM then keeps in vector registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tack.codegen.llvm import ir
from tack.codegen.llvm.emitter import Emitter, Jump
from tack.codegen.llvm.statements import counted_loop, for_loop, statements
from tack.codegen.llvm.types import LLVM_TYPES, index
from tack.dtypes import DType, i64
from tack.ir.nodes import Assign, For, Local, Node, Stmt
from tack.ir.passes.localize import assigned
from tack.ir.traversal import walk

__all__ = ["loop_in_step"]

# Vector registers that a local of 32 bits takes: enough to have several additions under way, but not so
# many that they are all in use.
_REGISTERS, _FEW_LOCALS = (2, 4), 2


def loop_in_step(
    fn: Emitter,
    first: ir.Value,
    end: ir.Value,
    enter: Callable[[ir.Value], None],
    body: Callable[[ir.Value, Jump], None],
    own: set[str],
) -> None:
    """A loop over [first, end), of which there is at least one.

    ``enter`` sets the loop variable of an iteration, and ``body`` fills the loop, as in `counted_loop`.
    ``own`` are the locals that differ between iterations.
    """
    b = fn.builder
    kept = _kept(fn.unit.kernel.loop.body, own)
    fn.in_memory(kept)  # from where a lane's values are fetched and put back
    lanes = _REGISTERS[len(kept) <= _FEW_LOCALS] * fn.unit.vector_bits // 32
    whole = b.lshr(b.sub(end, first), index(lanes.bit_length() - 1))
    stop = b.add(first, b.mul(whole, index(lanes)))
    together, together_end = fn.block("together"), fn.block("together.end")
    alone, done = fn.block("alone"), fn.block("alone.end")
    b.cbranch(b.icmp_signed(">", whole, index(0)), together, together_end)
    fn.at(together)
    step = _Step(fn, lanes, kept, enter)
    counted_loop(
        fn,
        index(0),
        whole,
        lambda number, _: step.run(b.add(first, b.mul(number, index(lanes)))),
        can_break=False,
    )
    fn.goto(together_end)
    fn.at(together_end)
    b.cbranch(b.icmp_signed("<", stop, end), alone, done)
    fn.at(alone)
    counted_loop(fn, stop, end, body, can_break=False)
    fn.goto(done)
    fn.at(done)


class _Step:
    """The code for ``lanes`` iterations."""

    def __init__(self, fn: Emitter, lanes: int, kept: list[str], enter: Callable[[ir.Value], None]) -> None:
        self.fn = fn
        self.lanes = lanes
        self.enter = enter
        self.body = fn.unit.kernel.loop.body
        self.base: ir.Value = index(0)
        self.kept = {name: self.lane_array(fn.local(name)[1]) for name in kept}

    def lane_array(self, dtype: DType) -> ir.Value:
        return self.fn.stack(ir.ArrayType(LLVM_TYPES[dtype], self.lanes), "lanes")

    def run(self, base: ir.Value) -> None:
        self.base = base
        self.statements(self.body)

    def statements(self, body: Iterable[Stmt]) -> None:
        for part in _parts(body):
            if isinstance(part, For):
                self.loop(part)
            else:
                self.region(part)

    def loop(self, node: For) -> None:
        def round(at: ir.Value) -> None:
            self.fn.assign(node.var, at, i64)
            self.statements(node.body)

        for_loop(self.fn, node.range, round)

    def region(self, body: list[Stmt]) -> None:
        """Statements that each lane runs in turn."""
        fn, b = self.fn, self.fn.builder
        used = sorted(_names(body) & self.kept.keys())
        changed = sorted(assigned(body).keys() & self.kept.keys())

        def lane(number: ir.Value, _: Jump) -> None:
            self.enter(b.add(self.base, number))
            for name in used:
                slot, dtype = fn.local(name)
                b.store(b.load(self.place(name, number), typ=LLVM_TYPES[dtype]), slot)
            statements(fn, body)
            for name in changed:
                b.store(fn.read(name), self.place(name, number))

        counted_loop(fn, index(0), index(self.lanes), lane, can_break=False)

    def place(self, name: str, lane: ir.Value) -> ir.Value:
        dtype = self.fn.local(name)[1]
        return self.fn.builder.gep(self.kept[name], [lane], inbounds=True, source_etype=LLVM_TYPES[dtype])


def _parts(body: Iterable[Stmt]) -> Iterator[For | list[Stmt]]:
    """Loops, and the runs of other statements between them."""
    run: list[Stmt] = []
    for statement in body:
        if not isinstance(statement, For):
            run.append(statement)
            continue
        if run:
            yield run
        run = []
        yield statement
    if run:
        yield run


def _regions(body: Iterable[Stmt]) -> Iterator[list[Stmt]]:
    for part in _parts(body):
        if isinstance(part, For):
            yield from _regions(part.body)
        else:
            yield part


def _locals(node: Node) -> set[str]:
    return {n.name for n in walk(node) if isinstance(n, Local)}


def _names(body: Iterable[Stmt]) -> set[str]:
    """The locals that statements read or assign."""
    return set(assigned(body)).union(*map(_locals, body))


def _kept(body: Iterable[Stmt], own: set[str]) -> list[str]:
    """The locals that a lane's regions know from each other, or a region from its last round."""
    used = [(region, _names(region)) for region in _regions(body)]
    return sorted(name for name in own if not _is_passing(name, [r for r, names in used if name in names]))


def _is_passing(name: str, regions: list[list[Stmt]]) -> bool:
    """Whether a local lives within one region: that starts by assigning it."""
    if len(regions) > 1:
        return False
    first = next(s for s in regions[0] if name in _names([s]))
    return isinstance(first, Assign) and first.target == name and name not in _locals(first.value)
