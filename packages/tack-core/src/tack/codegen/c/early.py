"""Loads that a thread makes for several iterations before it computes anything.

Iterations have no order, so those of one may come before the stores of another. Within an iteration a load
stays before the stores that follow it, and is made only if the iteration makes it whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator

from tack.codegen.c.scopes import reads
from tack.ir.nodes import Assign, Expr, If, Kernel, Load, Logical, Select, Stmt, Store
from tack.ir.passes.localize import assigned
from tack.ir.printer import to_text
from tack.ir.traversal import children, walk_statements

__all__ = ["early_loads"]


def early_loads(kernel: Kernel, disjoint: bool) -> list[list[Load]]:
    """The loads that can be made early, those that load the same together."""
    body = kernel.loop.body
    changing = assigned(body).keys()
    found: dict[str, list[Load]] = {}
    stored: set[str] = set()
    for statement in body:
        for load in _certain(statement):
            after_store = load.array in stored if disjoint else bool(stored)
            if not after_store and not reads(load) & changing:
                found.setdefault(to_text(load), []).append(load)
        stored |= {n.array for n in walk_statements(statement) if isinstance(n, Store)}
        if not isinstance(statement, Assign | Store):  # it may end the iteration
            break
    return list(found.values())


def _certain(statement: Stmt) -> Iterator[Load]:
    """The loads that a statement makes for certain, outer ones only."""
    if isinstance(statement, Assign | Store):
        parts = [n for n in children(statement) if isinstance(n, Expr)]
    else:
        parts = [statement.cond] if isinstance(statement, If) else []
    pending = parts[::-1]
    while pending:
        node = pending.pop()
        if isinstance(node, Load):
            yield node
        elif isinstance(node, Select):
            pending.append(node.cond)
        elif isinstance(node, Logical):
            pending.append(node.left)
        else:
            pending += [n for n in children(node) if isinstance(n, Expr)][::-1]
