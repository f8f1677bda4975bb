"""The state of a lowering, and what all its parts need: names, places, errors, emitted statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, overload

from tack.errors import UnsupportedSyntaxError, diagnostic
from tack.ir.nodes import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Const,
    Expr,
    Load,
    Local,
    Param,
    Print,
    Stmt,
    Store,
    Table,
)
from tack.ir.traversal import walk
from tack.lang.scope import Callee, Frame
from tack.lang.source import Loc
from tack.lang.values import Aggregate, Value, describe, map_parts, parts_of

if TYPE_CHECKING:
    from tack.lang.kernel import Func

__all__ = ["Context"]

E = TypeVar("E", bound=Exception)
V = TypeVar("V", Expr, Aggregate, Value)

_EFFECTS = (Store, Atomic, Print, Barrier, BlockReduce)
# What may be evaluated again at no cost, and has the same value each time.
_CHEAP = (Const, Local, Param)


class Captured:
    """What `Context.captured` gives. A generator would do, but there are many."""

    __slots__ = ("context", "outer")

    def __init__(self, context: Context) -> None:
        self.context = context

    def __enter__(self) -> list[Stmt]:
        self.outer, self.context.block = self.context.block, []
        return self.context.block

    def __exit__(self, *_: object) -> None:
        self.context.block = self.outer


class Context:
    """Lowers into ``block``, on behalf of the function in ``frame``."""

    _rules: ClassVar[dict[type[ast.AST], Callable[[Any, Any], Any] | None]] = {}

    def __init__(self, frame: Frame, reserved: Sequence[str]) -> None:
        self.frame = frame
        self.block: list[Stmt] = []
        self.tables: dict[str, Table] = {}
        self.textures: set[str] = set()
        self.inlining: list[Func] = []
        self.callees: dict[Func, Callee] = {}
        # "before", "loop" or "after": where in the kernel this is.
        self.region = "before"
        self._used = dict.fromkeys(reserved, 0)

    def rule(self, prefix: str, node: ast.AST) -> Callable[[Any, Any], Any] | None:
        """The function for a class of nodes, such as ``expr_BinOp``, if there is one."""
        kind = type(node)
        if kind not in self._rules:
            self._rules[kind] = getattr(type(self), f"{prefix}_{kind.__name__}", None)
        return self._rules[kind]

    # --- places and errors ---

    def loc(self, node: ast.AST) -> Loc:
        frame = self.frame
        source = frame.source
        line: int = node.lineno  # type: ignore[attr-defined]
        end_line: int = node.end_lineno  # type: ignore[attr-defined]
        col: int = node.col_offset  # type: ignore[attr-defined]
        end_col: int = node.end_col_offset  # type: ignore[attr-defined]
        if not source.is_ascii:  # ast counts UTF-8 bytes
            col = len(source.lines[line - 1].encode()[:col].decode())
            end_col = len(source.lines[end_line - 1].encode()[:end_col].decode())
        return Loc(source, line, col + 1, end_line, end_col + 1, frame.caller)

    def error(
        self,
        kind: type[E],
        message: str,
        node: ast.AST,
        hint: str | None = None,
        notes: Sequence[tuple[str, ast.AST]] = (),
    ) -> E:
        placed = tuple((text, self.loc(place)) for text, place in notes)
        return diagnostic(kind, message, self.loc(node), hint=hint, notes=placed)

    def unsupported(self, message: str, node: ast.AST, hint: str | None = None) -> NoReturn:
        raise self.error(UnsupportedSyntaxError, message, node, hint)

    # --- names ---

    def unique(self, name: str) -> str:
        """``name`` for the IR, with the frame's prefix, and a number where it is taken."""
        name = self.frame.prefix + name
        count = self._used.get(name)
        if count is None:
            self._used[name] = 0
            return name
        self._used[name] = count + 1
        return self.unique_suffix(name, count + 1)

    def unique_suffix(self, name: str, count: int) -> str:
        while f"{name}.{count}" in self._used:
            count += 1
        self._used[f"{name}.{count}"] = 0
        return f"{name}.{count}"

    # --- statements ---

    def emit(self, stmt: Stmt) -> None:
        self.block.append(stmt)

    def captured(self) -> Captured:
        """Collects what is emitted inside in a list of its own."""
        return Captured(self)

    @overload
    def saved(self, value: Aggregate) -> Aggregate: ...
    @overload
    def saved(self, value: Expr) -> Expr: ...
    def saved(self, value: Value) -> Value:
        """``value`` in fresh locals, but for constants."""
        return map_parts(value, self.temp)

    @overload
    def once(self, value: Aggregate) -> Aggregate: ...
    @overload
    def once(self, value: Expr) -> Expr: ...
    def once(self, value: Value) -> Value:
        """``value`` in a form that may be used several times: what costs something is saved."""
        return map_parts(value, lambda part: part if isinstance(part, _CHEAP) else self.temp(part))

    def temp(self, value: Expr, name: str = "tmp") -> Expr:
        """``value`` in a fresh local, unless it is a constant."""
        if isinstance(value, Const):
            return value
        target = self.unique(name)
        self.emit(Assign(target, value, loc=value.loc))
        return Local(target, loc=value.loc)

    def settle(self, values: list[V], marks: list[int]) -> list[V]:
        """Operands in their order of evaluation, although later ones emitted statements.

        ``marks[k]`` is the length of the block once ``values[k]`` was lowered. A value that reads
        memory is saved in a local before any effect that was emitted after it.
        """
        if not marks or marks[0] == len(self.block):
            return values
        for k in reversed(range(len(values))):
            later = self.block[marks[k] :]
            if later and any(map(_reads_memory, parts_of(values[k]))) and any(map(_has_effect, later)):
                with self.captured() as saving:
                    values[k] = self.saved(values[k])
                self.block[marks[k] : marks[k]] = saving
        return values

    def in_order(self, nodes: Sequence[Any]) -> list[Expr]:
        """The scalar values of several expressions, evaluated left to right."""
        return self._evaluated(nodes, self.expr)

    def values_in_order(self, nodes: Sequence[Any]) -> list[Value]:
        """The values of several expressions, evaluated left to right."""
        return self._evaluated(nodes, self.value)

    def _evaluated(self, nodes: Sequence[Any], evaluate: Callable[[Any], V]) -> list[V]:
        values: list[V] = []
        marks: list[int] = []
        for node in nodes:
            values.append(evaluate(node))
            marks.append(len(self.block))
        return self.settle(values, marks)

    # --- provided by the subclasses ---

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; its effects are emitted."""
        raise NotImplementedError

    def expr(self, node: ast.expr) -> Expr:
        """The value of an expression that must be a scalar."""
        value = self.value(node)
        if isinstance(value, Aggregate):
            hint = "take a component, such as v.x, or use any(...) or all(...) of a mask"
            raise self.error(TypeError, f"{describe(value.shape)} where a number is needed", node, hint)
        return value

    def statements(self, body: list[ast.stmt]) -> None:
        """Emits statements."""
        raise NotImplementedError


def _reads_memory(value: Expr) -> bool:
    return not isinstance(value, (Const, Local)) and any(isinstance(n, Load) for n in walk(value))


def _has_effect(stmt: Stmt) -> bool:
    return any(isinstance(n, _EFFECTS) for n in walk(stmt))
