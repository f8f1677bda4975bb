"""Gives each iteration its own copy of a local that is assigned both before and inside the loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tack.ir.nodes import Assign, Atomic, BlockReduce, For, Kernel, Local, Node
from tack.ir.traversal import Rewriter, replace, walk_statements

__all__ = ["localize"]

N = TypeVar("N", bound=Node)


class _Rename(Rewriter):
    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.names = names

    def visit_Local(self, node: Local) -> Local:
        name = self.names.get(node.name)
        return node if name is None else replace(node, name=name)

    def visit_Assign(self, node: Assign) -> Assign:
        return self.renamed(node, "target")

    def visit_Atomic(self, node: Atomic) -> Atomic:
        return self.renamed(node, "target")

    def visit_BlockReduce(self, node: BlockReduce) -> BlockReduce:
        return self.renamed(node, "target")

    def visit_For(self, node: For) -> For:
        return self.renamed(node, "var")

    def renamed(self, node: N, field: str) -> N:
        """``node``, rewritten below, with the local in ``field`` renamed too."""
        new: N = self.generic_visit(node)
        name = self.names.get(getattr(new, field))
        return new if name is None else replace(new, **{field: name})


def assigned(parts: Iterable[Node]) -> dict[str, None]:
    """The locals that something in ``parts`` assigns, in order."""
    found: dict[str, None] = {}
    for part in parts:
        for node in walk_statements(part):
            if isinstance(node, For):
                found[node.var] = None
            elif isinstance(node, (Assign, Atomic, BlockReduce)) and node.target is not None:
                found[node.target] = None
    return found


def localize(kernel: Kernel) -> Kernel:
    """``kernel`` whose iterations start from the values that ``before`` leaves, whatever ran earlier."""
    return own_copies(kernel, assigned(kernel.before))


def own_copies(kernel: Kernel, outer: Iterable[str]) -> Kernel:
    """``kernel`` whose iterations copy those of the locals ``outer`` that they assign, and use the copies."""
    changed = assigned(kernel.loop.body)
    shared = [name for name in outer if name in changed]
    if not shared:
        return kernel
    names = {name: f"{name}.own" for name in shared}
    copies = [
        Assign(own, Local(name, type=kernel.locals.get(name), loc=kernel.loop.loc), loc=kernel.loop.loc)
        for name, own in names.items()
    ]
    rename = _Rename(names)
    body = (*copies, *rename.body(kernel.loop.body))
    types = {names[n]: kernel.locals[n] for n in shared if n in kernel.locals}
    loop = replace(kernel.loop, body=body)
    return replace(kernel, loop=loop, locals={**kernel.locals, **types})
