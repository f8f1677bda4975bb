"""Where the locals of a function are declared: at their first assignment, if that comes before all uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tack.ir.nodes import Assign, Atomic, BlockReduce, For, Local, Node, Stmt
from tack.ir.traversal import children, walk
from tack.record import Record

__all__ = ["Declarations", "declarations", "reads"]


class Declarations(Record):
    """``first`` has the ids of the assignments that declare their target, ``loops`` the names of variables
    that only live in loops over them, and ``top`` of those that are declared where the function starts."""

    first: set[int]
    loops: set[str]
    top: list[str]


def reads(node: Node) -> set[str]:
    """The locals that something in ``node`` reads."""
    return {n.name for n in walk(node) if isinstance(n, Local)}


def declarations(body: tuple[Stmt, ...], outer: Collection[str]) -> Declarations:
    """Where to declare the locals of ``body`` but for ``outer``, which have their values already."""
    scope = _Scope(body)
    names = [name for name in scope.names if name not in outer]
    escaping = _escaping(body)
    loops = {name for name in names if name not in escaping}
    found = Declarations(set(), loops, [])
    for name in names:
        if name not in loops:
            _place(scope, name, found)
    return found


class _Scope:
    """A list of statements: of each, the locals that it names itself, and the lists in it."""

    def __init__(self, body: tuple[Stmt, ...]) -> None:
        self.body = body
        self.own: list[dict[str, None]] = []
        self.inner: list[list[_Scope]] = []
        self.all: list[dict[str, None]] = []
        self.names: dict[str, None] = {}
        for s in body:
            own = dict.fromkeys(_targets(s))
            for part in children(s):
                if not isinstance(part, Stmt):
                    own |= dict.fromkeys(sorted(reads(part)))
            inner = [_Scope(getattr(s, field)) for field in s._bodies]
            names = dict(own)
            for scope in inner:
                names |= scope.names
            self.own.append(own)
            self.inner.append(inner)
            self.all.append(names)
            self.names |= names


def _targets(s: Stmt) -> Iterable[str]:
    if isinstance(s, For):
        return (s.var,)
    if isinstance(s, Assign | Atomic | BlockReduce) and s.target is not None:
        return (s.target,)
    return ()


def _place(scope: _Scope, name: str, found: Declarations) -> None:
    users = [k for k, names in enumerate(scope.all) if name in names]
    first = users[0]
    if len(users) == 1 and name not in scope.own[first]:
        holders = [inner for inner in scope.inner[first] if name in inner.names]
        if len(holders) == 1:
            _place(holders[0], name, found)
            return
    statement = scope.body[first]
    if isinstance(statement, Assign) and statement.target == name and name not in reads(statement.value):
        found.first.add(id(statement))
    else:
        found.top.append(name)


def _escaping(body: tuple[Stmt, ...]) -> set[str]:
    """The locals that are more than the variable of loops over them: read elsewhere, or assigned."""
    found: set[str] = set()

    def visit(node: Node, active: frozenset[str]) -> None:
        if isinstance(node, Local):
            if node.name not in active:
                found.add(node.name)
            return
        if isinstance(node, For):
            if node.var in active:
                found.add(node.var)
            visit(node.range, active)
            for s in node.body:
                visit(s, active | {node.var})
            return
        if isinstance(node, Stmt):
            found.update(_targets(node))
        for part in children(node):
            visit(part, active)

    for s in body:
        visit(s, frozenset())
    return found
