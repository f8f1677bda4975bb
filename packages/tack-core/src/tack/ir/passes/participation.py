"""Which values and which control flow are the same in every lane of a workgroup, proven conservatively.

A value is *uniform* if all lanes that compute it in step get the same: constants, scalar parameters,
results of block reductions, and pure functions of these. Indices, loads, lane ids and atomics vary.
A local is uniform if every assignment gives it a uniform value where control is uniform.

Control is uniform where all lanes are sure to be: outside conditionals and loops whose condition or
bounds vary, and not between a jump that only some lanes may take and the place that it goes to. A
loop that some lanes may leave early is not uniform as a whole, as the others go round again.

Locals and loops start as uniform and are found to vary until nothing changes: a greatest fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tack.errors import diagnostic
from tack.ir.nodes import (
    Assign,
    Barrier,
    Binary,
    Bitcast,
    Block,
    BlockReduce,
    Break,
    Call,
    Cast,
    Compare,
    Const,
    Continue,
    Expr,
    For,
    If,
    Kernel,
    Leave,
    Local,
    Logical,
    Lookup,
    Node,
    NonZero,
    Parallel,
    Param,
    Range,
    Select,
    Stmt,
    Unary,
    While,
)
from tack.ir.traversal import children
from tack.ir.workgroups import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Participation", "participation"]

_PURE = (Const, Param, Lookup, Unary, Binary, Compare, Logical, Select, Call, Cast, Bitcast, NonZero)

Target = Block | For | While | Parallel


class Participation:
    """The analysis of one kernel.

    Attributes:
        varying: the locals that may differ between lanes.
        uniform: ids of the statements that all lanes of a workgroup reach together; of those, the
            conditionals and loops also have a uniform condition or range, and are left together.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.varying: set[str] = set(kernel.loop.vars)
        self.uniform: set[int] = set()
        self._split: dict[int, Node] = {}  # loops that only some lanes may leave early, and a jump that does
        self._enclosing: list[Target] = []
        self._pending: dict[int, Node] = {}  # targets of jumps that only some lanes took
        self._because: list[Node] = []  # what makes control here not uniform
        self._changed = True
        while self._changed:
            self._changed = False
            self._body(kernel.before)
            self._parallel(kernel.loop)

    def is_uniform(self, node: Expr | Range) -> bool:
        """Whether a value, or the range of a loop, is the same in every lane."""
        if isinstance(node, Local):
            return node.name not in self.varying
        if not isinstance(node, (*_PURE, Range)):
            return False
        return all(self.is_uniform(e) for e in children(node) if isinstance(e, Expr))

    # --- control ---

    @property
    def _reason(self) -> Node | None:
        """Why control here is not uniform; None if it is."""
        if self._because:
            return self._because[-1]
        return next(iter(self._pending.values()), None)

    @contextmanager
    def _under(self, reason: Node | None) -> Iterator[None]:
        """Control that ``reason``, if there is one, makes vary."""
        if reason is not None:
            self._because.append(reason)
        yield
        if reason is not None:
            self._because.pop()

    @contextmanager
    def _within(self, target: Target) -> Iterator[None]:
        """The statements from which jumps go to ``target``; they meet at its end."""
        self._enclosing.append(target)
        yield
        self._enclosing.pop()
        self._pending.pop(id(target), None)

    def _parallel(self, loop: Parallel) -> None:
        self.uniform.clear()
        with self._within(loop):
            self._body(loop.body)

    def _body(self, body: Iterable[Stmt]) -> None:
        for s in body:
            self._statement(s)

    def _statement(self, s: Stmt) -> None:
        if self._reason is None:
            self.uniform.add(id(s))
        if isinstance(s, If):
            varies = None if self.is_uniform(s.cond) else s.cond
            if varies is not None:
                self.uniform.discard(id(s))
            with self._under(varies):
                self._body(s.then)
                self._body(s.orelse)
        elif isinstance(s, (For, While)):
            self._loop(s)
        elif isinstance(s, Block):
            with self._within(s):
                self._body(s.body)
        elif isinstance(s, (Break, Continue, Leave)):
            self._jump(s)
        elif isinstance(s, BlockReduce):
            self._assign(s.target, self._reason is not None)
        elif isinstance(s, Assign):
            self._assign(s.target, self._reason is not None or not self.is_uniform(s.value))
        elif getattr(s, "target", None) is not None:
            self._assign(s.target, True)  # type: ignore[attr-defined]

    def _loop(self, s: For | While) -> None:
        bounds = s.range if isinstance(s, For) else s.cond
        varies: Node | None = None if self.is_uniform(bounds) else bounds
        varies = varies or self._split.get(id(s))
        if varies is not None:
            self.uniform.discard(id(s))
        if isinstance(s, For):
            self._assign(s.var, varies is not None or self._reason is not None)
        # A jump to the next iteration is over at the end of the body, but so is one out of the loop.
        with self._under(varies), self._within(s):
            self._body(s.body)

    def _jump(self, s: Break | Continue | Leave) -> None:
        reason = self._reason
        if reason is None:
            return
        target = self._target(s)
        if id(target) not in self._pending:
            self._pending[id(target)] = reason
        inner = self._enclosing[self._enclosing.index(target) :]
        loops = [t for t in inner if isinstance(t, (For, While))]
        for loop in loops[1:] if isinstance(s, Continue) else loops:
            if id(loop) not in self._split:
                self._split[id(loop)] = s
                self._changed = True

    def _target(self, s: Break | Continue | Leave) -> Target:
        if isinstance(s, Leave):
            return next(t for t in self._enclosing if isinstance(t, Block) and t.label == s.label)
        return next(t for t in reversed(self._enclosing) if not isinstance(t, Block))

    def _assign(self, name: str, varies: bool) -> None:
        if varies and name not in self.varying:
            self.varying.add(name)
            self._changed = True


class _Checker(Participation):
    """Reports a collective that not all lanes are proven to reach."""

    def __init__(self, kernel: Kernel) -> None:
        self.checking = False
        super().__init__(kernel)
        self.checking = True
        self._parallel(kernel.loop)

    def _statement(self, s: Stmt) -> None:
        if self.checking and isinstance(s, COLLECTIVES) and self._reason is not None:
            raise self.error(s, self._reason)
        super()._statement(s)

    def error(self, s: Stmt, reason: Node) -> ValueError:
        what = "a barrier" if isinstance(s, Barrier) else f"a block reduction (block_{s.op})"  # type: ignore[attr-defined]
        notes = (("this may differ between them", reason.loc),) if reason.loc is not None else ()
        return diagnostic(
            ValueError,
            f"{what} that not all iterations of a workgroup are certain to reach",
            s.loc,
            kernel=self.kernel.name,
            hint="move it out; a condition around it may depend on constants, scalar arguments, extents and "
            "results of block reductions only",
            notes=notes,
        )


def participation(kernel: Kernel) -> Participation:
    """The analysis of a typed kernel, after `localize`.

    Raises:
        ValueError: a barrier or block reduction that not all lanes are proven to reach, at its place.
    """
    return _Checker(kernel)
