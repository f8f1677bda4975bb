"""Which kernels are vectorized over iterations although there are loops inside them.

LLVM vectorizes innermost loops, and the sums of most of those must not be reordered. Where all iterations
of a row run the same inner loops, a few of them can run these together instead, each with sums of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tack.codegen.streaming import stride
from tack.ir.nodes import Array, Assign, Const, Expr, For, If, Kernel, Load, Lookup, Range, Stmt, Store
from tack.ir.traversal import walk, walk_statements
from tack.ir.workgroups import primitives

__all__ = ["lane_locals"]

# Shorter loops of constant length LLVM unrolls, so that nothing is left to do here.
_UNROLLED_TRIPS = 8
# Elements from one iteration's access to the next one's: as for numbers, and components of small vectors.
_NEAR = (1, 2, 3, 4)


def lane_locals(kernel: Kernel) -> set[str] | None:
    """The locals that differ between neighbouring iterations of a typed kernel which run its loops together.

    None if they cannot, or gain nothing by it. The inner loops' ranges must be the same all along a row, and
    what they access in arrays next to each other for neighbouring iterations, or one element for all.
    """
    loop = kernel.loop
    step = loop.ranges[-1].step
    inner = [n for n in walk_statements(loop) if isinstance(n, For)]
    if not (isinstance(step, Const) and step.value == 1) or primitives(kernel):
        return None
    if all(_is_short(n.range) for n in inner):
        return None
    assignments = Counter(n.target for n in walk_statements(loop) if isinstance(n, Assign))
    variables = {*loop.vars, *(n.var for n in inner)}
    if variables & assignments.keys():
        return None
    check = _Check(kernel, assignments)
    return check.own - {loop.vars[-1]} if check.body(loop.body, inside=False) else None


def _is_short(bounds: Range) -> bool:
    parts = (bounds.start, bounds.stop, bounds.step)
    values = [int(p.value) for p in parts if isinstance(p, Const)]
    return len(values) == 3 and values[2] > 0 and len(range(*values)) <= _UNROLLED_TRIPS


class _Check:
    """Looks at statements in order. ``own`` are the locals that may differ along a row."""

    def __init__(self, kernel: Kernel, assignments: Counter[str]) -> None:
        self.axis = kernel.loop.vars[-1]
        self.own = {self.axis, *assignments}
        self.once = {name for name, count in assignments.items() if count == 1}
        self.arrays = {p.name for p in kernel.params if isinstance(p.type, Array)}

    def body(self, body: Iterable[Stmt], inside: bool) -> bool:
        return all(self.statement(s, inside) for s in body)

    def statement(self, node: Stmt, inside: bool) -> bool:
        if isinstance(node, For):
            bounds = (node.range.start, node.range.stop, node.range.step)
            return all(map(self.is_fixed, bounds)) and self.body(node.body, True)
        # What such an assignment reads has been assigned by now: so the lanes may do it one after the other.
        if isinstance(node, Assign) and node.target in self.once and self.is_fixed(node.value):
            self.own.discard(node.target)
        return self.plain(node) and (not inside or all(map(self.is_near, _accesses(node))))

    def plain(self, node: Stmt) -> bool:
        if isinstance(node, If):
            return all(map(self.plain, (*node.then, *node.orelse)))
        return isinstance(node, Assign) or (isinstance(node, Store) and node.array in self.arrays)

    def is_fixed(self, node: Expr) -> bool:
        return stride(node, self.axis, self.own) == 0

    def is_near(self, node: Load | Store | Lookup) -> bool:
        """Whether neighbouring iterations access neighbouring elements, or all read the same."""
        at = node.index if isinstance(node, Lookup) else node.index[0]
        found = stride(at, self.axis, self.own)
        return found in _NEAR if isinstance(node, Store) else found == 0 or found in _NEAR


def _accesses(node: Stmt) -> list[Load | Store | Lookup]:
    return [n for n in walk(node) if isinstance(n, (Load, Store, Lookup))]
