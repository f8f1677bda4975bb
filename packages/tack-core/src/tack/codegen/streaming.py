"""Which stores of a kernel could be streaming stores, which go past the caches.

They are to arrays that each iteration writes once, without a condition and along the fastest axis of the
parallel loop, and that none reads: what such a loop writes is not needed again soon.
"""

from __future__ import annotations

from tack.ir.nodes import (
    Array,
    Assign,
    Binary,
    Cast,
    Const,
    Expr,
    Kernel,
    Local,
    Param,
    Store,
    Unary,
)
from tack.ir.traversal import accesses
from tack.ir.workgroups import primitives

__all__ = ["streamed_stores", "stride"]


def streamed_stores(kernel: Kernel) -> list[Store]:
    """Such stores of a typed kernel; none if its iterations are more than straight-line code."""
    loop = kernel.loop
    step = loop.ranges[-1].step
    straight = all(isinstance(s, (Assign, Store)) for s in loop.body)
    if not straight or primitives(kernel) or not (isinstance(step, Const) and step.value == 1):
        return []
    axis = loop.vars[-1]
    assigned = {s.target for s in loop.body if isinstance(s, Assign)}
    if axis in assigned:
        return []
    arrays = {p.name for p in kernel.params if isinstance(p.type, Array)}
    accessed = [n.array for n in accesses(kernel)]
    return [
        s
        for s in loop.body
        if isinstance(s, Store)
        and s.array in arrays
        and accessed.count(s.array) == 1
        and stride(s.index[0], axis, assigned | {axis}) == 1
    ]


def stride(index: Expr, axis: str, changing: set[str]) -> int | None:
    """How far ``index`` moves from one value of the local ``axis`` to the next; None: that is not known.

    ``changing`` are the locals that differ along a row in any way, ``axis`` among them.
    """
    if isinstance(index, Local):
        return 1 if index.name == axis else None if index.name in changing else 0
    if isinstance(index, (Const, Param)):
        return 0
    if isinstance(index, (Unary, Cast)):
        return 0 if stride(index.operand, axis, changing) == 0 else None
    if isinstance(index, Binary):
        return _combined(index, stride(index.left, axis, changing), stride(index.right, axis, changing))
    return None


def _combined(index: Binary, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    if index.op in ("add", "sub"):
        return left + right if index.op == "add" else left - right
    if index.op == "mul" and isinstance(index.right, Const):
        return left * int(index.right.value)
    return 0 if left == right == 0 else None
