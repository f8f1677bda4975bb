"""Walking and rewriting the IR: the one visitor that passes, checks and generators share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from tack.ir.nodes import Atomic, Expr, Kernel, Load, Node, Parallel, Print, Stmt, Store
from tack.record import replace

__all__ = ["Rewriter", "accesses", "children", "nodes_of", "replace", "walk", "walk_statements"]

N = TypeVar("N", bound=Node)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below ``node``, in evaluation order of its fields."""
    for field in node._children:
        value = getattr(node, field)
        if type(value) is tuple:
            for item in value:
                if isinstance(item, Node):
                    yield item
        elif value is not None:
            yield value


def walk(node: Node) -> list[Node]:
    """``node`` and every node below it, parents first."""
    found: list[Node] = []
    stack = [node]
    while stack:
        node = stack.pop()
        found.append(node)
        for field in node._backwards:
            value = getattr(node, field)
            if type(value) is not tuple:
                if value is not None:
                    stack.append(value)
            elif type(node) is Print:  # which has strings among its parts
                stack += [v for v in reversed(value) if isinstance(v, Node)]
            else:
                stack += value[::-1]
    return found


def nodes_of(kernel: Kernel, kind: type[N]) -> list[N]:
    """The nodes of a class anywhere in ``kernel``, in the order of `walk`.

    Many stages of a compile ask for some; one walk serves them all.
    """
    return _census(kernel).get(kind, [])  # type: ignore[return-value]


def accesses(kernel: Kernel) -> list[Load | Store | Atomic]:
    """All accesses to elements of arrays in ``kernel``."""
    return [*nodes_of(kernel, Load), *nodes_of(kernel, Store), *nodes_of(kernel, Atomic)]


@lru_cache(maxsize=4)  # kernels never change
def _census(kernel: Kernel) -> Mapping[type[Node], list[Node]]:
    found: dict[type[Node], list[Node]] = {}
    for node in walk(kernel):
        kind = type(node)
        if kind in found:
            found[kind].append(node)
        else:
            found[kind] = [node]
    return found


def walk_statements(node: Node) -> Iterator[Node]:
    """``node`` and the statements below it, outer ones first; expressions are passed over."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        for field in reversed(node._bodies):
            value = getattr(node, field)
            if type(value) is tuple:
                stack.extend(reversed(value))
            else:
                stack.append(value)


class Rewriter:
    """Rebuilds a tree bottom-up. A subclass overrides ``visit_<Class>`` for the nodes it changes.

    ``visit_<Class>`` takes a node and returns its replacement; for a statement it may also return
    a sequence of statements. `generic_visit` rewrites the children and shares the node if none of
    them changed.
    """

    def __init__(self) -> None:
        self._methods: dict[type, Callable[[Any], Any] | None] = {}

    def visit(self, node: Any) -> Any:
        cls = type(node)
        if cls not in self._methods:  # most nodes are leaves, which stay
            self._methods[cls] = getattr(
                self, f"visit_{cls.__name__}", self.generic_visit if cls._children else None
            )
        method = self._methods[cls]
        return node if method is None else method(node)

    def generic_visit(self, node: Any) -> Any:
        changes: dict[str, Any] = {}
        for field in node._children:
            value = getattr(node, field)
            if type(value) is tuple:
                new = self.visit_tuple(value)
            elif value is not None:
                new = self.visit(value)
            else:
                continue
            if new is not value:
                changes[field] = new
        return replace(node, **changes) if changes else node

    def visit_tuple(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        out: list[Any] = []
        changed = False
        for item in items:
            new = self.visit(item) if isinstance(item, Node) else item
            changed |= new is not item
            if isinstance(new, Node) or not isinstance(new, (list, tuple)):
                out.append(new)
            else:
                out.extend(new)
        return tuple(out) if changed else items

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return self.visit_tuple(body)


def map_bodies(kernel: Kernel, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Kernel:
    """``kernel`` with ``change`` applied to its three statement lists."""
    loop: Parallel = replace(kernel.loop, body=change(kernel.loop.body))
    return replace(kernel, before=change(kernel.before), loop=loop, after=change(kernel.after))


def expressions(node: Node) -> Iterator[Expr]:
    """Every expression below ``node``."""
    return (n for n in walk(node) if isinstance(n, Expr))
