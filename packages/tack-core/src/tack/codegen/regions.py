"""Splits the body of a kernel with barriers into regions, for processors that run lanes in a loop.

A *region* is a run of statements without a collective. Compiled code runs each region for all 256
lanes of a workgroup, one after the other, before it goes on to the next: so every lane has arrived
when a barrier is passed. A conditional or loop with a collective inside is decided once for the whole
workgroup, which participation allows: its condition is the same in every lane. This is the work-item
loop fission of MCUDA (Stratton, Stone and Hwu, LCPC 2008) and pocl (Jääskeläinen et al., IJPP 2015),
on structured code, where regions need no search for paths between barriers.

What a lane knows when it leaves a region and needs in another has to be kept per lane. A local that
is the same in all lanes and only assigned between regions is kept once; one that follows from the
lane's number at little cost, such as the column in a tile, is computed anew in each region, which also
shows the compiler which lanes access neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tack.ir.nodes import (
    Assign,
    Barrier,
    Binary,
    Block,
    BlockReduce,
    Break,
    Cast,
    Compare,
    Const,
    Continue,
    For,
    If,
    Kernel,
    LaneId,
    Leave,
    Local,
    LocalArray,
    Logical,
    Node,
    Parallel,
    Param,
    Select,
    Stmt,
    Unary,
    While,
)
from tack.ir.passes.localize import assigned, own_copies
from tack.ir.passes.participation import participation
from tack.ir.traversal import walk
from tack.ir.workgroups import has_collective
from tack.record import Record

__all__ = ["Once", "Plan", "Region", "Step", "Together", "prepared"]

# The largest expression that is computed anew.
_REMADE_NODES = 12

Target = Block | For | While | Parallel
Jump = Break | Continue | Leave


class Region(Record):
    """Statements that each lane runs in turn, then the operand of ``reduce`` if there is one.

    Lanes that left one of ``guards`` in an earlier region do not take part. ``exits`` are what its own
    jumps leave. ``loops`` counts the loops around it that the workgroup runs together.
    """

    body: tuple[Stmt, ...]
    reduce: BlockReduce | None
    guards: tuple[Target, ...]
    exits: tuple[Target, ...]
    loops: int


class Once(Record):
    """An assignment or jump that the workgroup makes as one."""

    stmt: Assign | Jump


class Together(Record):
    """A conditional, loop or block that the workgroup runs as one; ``orelse`` is a conditional's."""

    stmt: If | For | While | Block
    body: tuple[Step, ...]
    orelse: tuple[Step, ...] = ()


Step = Region | Once | Together


def prepared(kernel: Kernel) -> Kernel:
    """``kernel`` in the form that `Plan` takes: nothing assigns the parallel loop's variables, or a
    local that ``before`` assigned."""
    return own_copies(kernel, [*assigned(kernel.before), *kernel.loop.vars])


class Plan:
    """How a workgroup of a typed kernel runs.

    Attributes:
        steps: what it runs, in order.
        remade: the assignments of locals that each region that uses them makes anew, in order.
        per_lane: the locals that are kept for each lane between regions.
        lane_arrays: the local arrays that are kept for each lane between regions.
        masked: ids of the targets that some lanes leave while regions inside are still to come.

    Raises:
        ValueError: a barrier or block reduction that not all lanes are proven to reach.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.analysis = participation(kernel)
        self._single = self._kept_once(kernel)
        self._left: list[Target] = []  # targets that some lanes may have left on the way here
        self._enclosing: list[Target] = [kernel.loop]
        self._regions: list[Region] = []
        self.steps = self._split(kernel.loop.body)
        self.masked = {id(target) for region in self._regions for target in region.guards}
        places = self._places(kernel)
        self.remade = self._remade(kernel)
        lasting = {n for n, used in places.items() if len(used) > 1} - self._single - self.remade.keys()
        self.per_lane = sorted(n for n in assigned(kernel.loop.body) if n in lasting)
        self.lane_arrays = self._lane_arrays(kernel, places)

    # --- what the workgroup does together ---

    def _runs_together(self, s: Stmt) -> bool:
        """Whether ``s`` is not part of a region: it has a collective, or ends something that has one."""
        if has_collective(s):
            return True
        return id(s) in self.analysis.uniform and next(jumps_out(s), None) is not None

    def _together(self, body: Iterable[Stmt]) -> Iterator[Stmt]:
        """The statements that the workgroup meets outside regions, and those at the start of one."""
        for s in body:
            yield s
            if self._runs_together(s):
                for inner in bodies(s):
                    yield from self._together(inner)

    def _kept_once(self, kernel: Kernel) -> set[str]:
        """The uniform locals all of whose assignments the workgroup makes together."""
        total = assignments(kernel.loop.body)
        here: dict[str, int] = {}
        for s in self._together(kernel.loop.body):
            name = assigned_name(s)
            if name is not None and (isinstance(s, (Assign, BlockReduce)) or self._runs_together(s)):
                here[name] = here.get(name, 0) + 1
        return {n for n, count in here.items() if count == total[n] and n not in self.analysis.varying}

    # --- steps ---

    def _split(self, body: tuple[Stmt, ...]) -> tuple[Step, ...]:
        steps: list[Step] = []
        waiting: list[Stmt] = []  # the region that is being filled

        def close(reduce: BlockReduce | None = None) -> None:
            if waiting or reduce is not None:
                steps.append(self._region(tuple(waiting), reduce))
                waiting.clear()

        for s in body:
            if isinstance(s, Assign) and s.target in self._single:
                # Made before the region that is being filled, if that makes no difference to it.
                if any(depend(w, s) for w in waiting):
                    close()
                steps.append(Once(s))
            elif isinstance(s, BlockReduce):
                close(s)
            elif isinstance(s, Barrier):
                close()
            elif self._runs_together(s):
                close()
                steps.append(self._together_step(s))
            else:
                waiting.append(s)
        close()
        return tuple(steps)

    def _together_step(self, s: Stmt) -> Step:
        if isinstance(s, (Break, Continue, Leave)):
            return Once(s)
        if isinstance(s, If):
            return Together(s, self._split(s.then), self._split(s.orelse))
        assert isinstance(s, (For, While, Block))
        self._enclosing.append(s)
        steps = self._split(s.body)
        self._enclosing.pop()
        self._left = [target for target in self._left if target is not s]
        return Together(s, steps)

    def _region(self, body: tuple[Stmt, ...], reduce: BlockReduce | None) -> Region:
        loops = sum(isinstance(t, (For, While)) for t in self._enclosing)
        exits = list(dict.fromkeys(self._target(j) for s in body for j in jumps_out(s)))
        region = Region(body, reduce, tuple(self._left), tuple(exits), loops)
        self._regions.append(region)
        self._left += [target for target in exits if target not in self._left]
        return region

    def _target(self, jump: Jump) -> Target:
        inner = reversed(self._enclosing)
        if isinstance(jump, Leave):
            return next(t for t in inner if isinstance(t, Block) and t.label == jump.label)
        return next(t for t in inner if not isinstance(t, Block))

    # --- where names are used ---

    def _places(self, kernel: Kernel) -> dict[str, set[int]]:
        """For each local and array the numbers of the regions that name it; -1 is outside regions."""
        places: dict[str, set[int]] = {}

        def note(node: Node, place: int) -> None:
            for name in names_in(node):
                places.setdefault(name, set()).add(place)

        for number, region in enumerate(self._regions):
            for s in region.body:
                note(s, number)
            if region.reduce is not None:
                note(region.reduce.value, number)
        for s in self._together(kernel.loop.body):
            name = assigned_name(s)
            if isinstance(s, (If, For, While)) and self._runs_together(s):
                note(s.range if isinstance(s, For) else s.cond, -1)
            elif isinstance(s, Assign) and s.target in self._single:
                note(s.value, -1)
            if name is not None and (isinstance(s, BlockReduce) or self._runs_together(s)):
                places.setdefault(name, set()).add(-1)
        return places

    def _remade(self, kernel: Kernel) -> dict[str, Assign]:
        """Locals with one assignment, of a cheap function of what never changes in an iteration."""
        total = assignments(kernel.loop.body)
        remade: dict[str, Assign] = {}

        def fixed(name: str) -> bool:
            return name in remade or name not in total

        for s in (n for part in kernel.loop.body for n in walk(part)):
            if not isinstance(s, Assign) or total[s.target] > 1 or s.target not in self.analysis.varying:
                continue
            parts = list(walk(s.value))
            cheap = len(parts) <= _REMADE_NODES and all(map(_is_cheap, parts))
            if cheap and all(fixed(p.name) for p in parts if isinstance(p, Local)):
                remade[s.target] = s
        return remade

    def _lane_arrays(self, kernel: Kernel, places: dict[str, set[int]]) -> list[LocalArray]:
        """Arrays with contents that outlive a region, or a round of a loop around the only one."""
        found = []
        inside = {id(n): k for k, r in enumerate(self._regions) for s in r.body for n in walk(s)}
        for node in [*(n for s in kernel.before for n in walk(s)), *walk(kernel.loop)]:
            if isinstance(node, LocalArray) and not node.shared:
                used = places.get(node.name, set())
                once = not any(self._regions[k].loops for k in used)
                if len(used) > 1 or not (once or used == {inside.get(id(node))}):
                    found.append(node)
        return found


def _is_cheap(node: Node) -> bool:
    """Whether an operation costs no more than the load that it may save."""
    if isinstance(node, Binary) and node.op in ("div", "floordiv", "mod", "pow"):
        return isinstance(node.right, Const) and node.type is not None and node.type.is_integer
    return isinstance(node, (Const, Param, Local, LaneId, Unary, Binary, Compare, Logical, Cast, Select))


# --- questions about statements -----------------------------------------------------------------


def bodies(s: Stmt) -> list[tuple[Stmt, ...]]:
    """The statement lists directly in ``s``."""
    if isinstance(s, If):
        return [s.then, s.orelse]
    return [s.body] if isinstance(s, (For, While, Block)) else []


def jumps_out(s: Stmt) -> Iterator[Jump]:
    """The jumps in ``s`` to something that encloses it."""
    if isinstance(s, (Break, Continue, Leave)):
        yield s
    for inner in bodies(s):
        for jump in (j for t in inner for j in jumps_out(t)):
            ends = isinstance(s, (For, While)) and not isinstance(jump, Leave)
            ends |= isinstance(s, Block) and isinstance(jump, Leave) and jump.label == s.label
            if not ends:
                yield jump


def assigned_name(s: Node) -> str | None:
    """The local that a statement itself assigns."""
    name: str | None = s.var if isinstance(s, For) else getattr(s, "target", None)
    return name


def assignments(body: Iterable[Node]) -> dict[str, int]:
    """How many statements below ``body`` assign each local."""
    counts: dict[str, int] = {}
    for node in (n for s in body for n in walk(s)):
        name = assigned_name(node)
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    return counts


def names_in(node: Node) -> set[str]:
    """The locals and arrays that ``node`` reads, assigns or accesses."""
    names = set()
    for n in walk(node):
        if isinstance(n, Local):
            names.add(n.name)
        names |= {getattr(n, field) for field in ("array", "target", "var") if field in n._fields}
    return names - {None}


def depend(earlier: Stmt, s: Assign) -> bool:
    """Whether it matters that ``earlier`` runs before ``s``."""
    return s.target in names_in(earlier) or not names_in(s.value).isdisjoint(assigned([earlier]))
