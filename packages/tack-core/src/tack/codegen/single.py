"""Which locals are plain values: set in one place, which every read comes after.

Most locals are such, parameters of inlined functions above all. They need no memory, which LLVM would have to
take apart again: two thirds of a large kernel's instructions would be loads and stores of locals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tack.ir.nodes import Assign, Atomic, BlockReduce, For, Kernel, Local, Node, Parallel, Stmt
from tack.ir.traversal import walk

__all__ = ["single_valued"]


def single_valued(kernel: Kernel) -> set[str]:
    """The locals of a typed kernel that one `Assign` or loop sets, and nothing reads but what comes after.

    "After" is in the list of statements that the assignment stands in, and below: its value reaches them all.
    """
    scan = _Scan()
    scan.statements(kernel.before)
    scan.node(kernel.loop)
    scan.statements(kernel.after)
    if kernel.result is not None:
        scan.reads(kernel.result)
    return {name for name, count in scan.sets.items() if count == 1} - scan.early


class _Scan:
    """Looks at nodes in the order in which they run."""

    def __init__(self) -> None:
        self.sets: Counter[str] = Counter()
        self.early: set[str] = set()  # read where they may not have been set
        self.known: set[str] = set()  # set on every way here

    def node(self, node: Stmt | Parallel) -> None:
        bodies = node._bodies
        for field in node._children:
            if field not in bodies:
                self.reads(getattr(node, field))
        if isinstance(node, Assign):
            self.set(node.target)
        elif isinstance(node, (Atomic, BlockReduce)) and node.target is not None:
            self.sets[node.target] += 2  # in debug mode in two places
        for field in bodies:
            before = set(self.known)
            if isinstance(node, For):
                self.set(node.var)
            elif isinstance(node, Parallel):
                for name in node.vars:
                    self.set(name)
            self.statements(getattr(node, field))
            self.known = before

    def statements(self, body: Iterable[Stmt]) -> None:
        for statement in body:
            self.node(statement)

    def set(self, name: str) -> None:
        self.sets[name] += 1
        self.known.add(name)

    def reads(self, part: Node | tuple[Node, ...] | None) -> None:
        for each in part if isinstance(part, tuple) else () if part is None else (part,):
            if isinstance(each, Node):
                for node in walk(each):
                    if type(node) is Local and node.name not in self.known:
                        self.early.add(node.name)
