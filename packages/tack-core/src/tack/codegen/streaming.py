"""Which stores of a kernel could be streaming stores, which go past the caches.

They are to arrays that each iteration writes once, without a condition and along the fastest axis of the
parallel loop, and that none reads: what such a loop writes is not needed again soon.
"""

from __future__ import annotations

from tack.ir.nodes import (
    Array,
    Assign,
    Atomic,
    Binary,
    Cast,
    Const,
    Expr,
    Kernel,
    Load,
    Local,
    Param,
    Store,
    Unary,
)
from tack.ir.traversal import walk
from tack.ir.workgroups import primitives

__all__ = ["streamed_stores"]


def streamed_stores(kernel: Kernel) -> list[Store]:
    """Such stores of a typed kernel; none if its iterations are more than straight-line code."""
    loop = kernel.loop
    step = loop.ranges[-1].step
    straight = all(isinstance(s, Assign | Store) for s in loop.body)
    if not straight or primitives(kernel) or not (isinstance(step, Const) and step.value == 1):
        return []
    axis = loop.vars[-1]
    assigned = {s.target for s in loop.body if isinstance(s, Assign)}
    if axis in assigned:
        return []
    arrays = {p.name for p in kernel.params if isinstance(p.type, Array)}
    accesses = [n.array for n in walk(loop) if isinstance(n, Load | Store | Atomic)]
    return [
        s
        for s in loop.body
        if isinstance(s, Store)
        and s.array in arrays
        and accesses.count(s.array) == 1
        and _follows(s.index[0], axis, assigned | {axis})
    ]


def _follows(index: Expr, axis: str, changing: set[str]) -> bool:
    """Whether ``index`` is the local ``axis`` plus something that is the same along a row."""
    if isinstance(index, Local):
        return index.name == axis
    if not isinstance(index, Binary) or index.op not in ("add", "sub"):
        return False
    if _is_fixed(index.right, changing):
        return _follows(index.left, axis, changing)
    return index.op == "add" and _is_fixed(index.left, changing) and _follows(index.right, axis, changing)


def _is_fixed(index: Expr, changing: set[str]) -> bool:
    """Whether ``index`` is arithmetic on numbers that are the same along a row."""
    nodes = list(walk(index))
    plain = all(isinstance(n, Const | Param | Local | Binary | Unary | Cast) for n in nodes)
    return plain and not any(isinstance(n, Local) and n.name in changing for n in nodes)
