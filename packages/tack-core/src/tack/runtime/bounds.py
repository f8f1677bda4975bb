"""The range of the parallel loop, evaluated on the host at each launch.

The ranges of a template, and the statements before the loop that they depend on, become a Python
function: Python's integers are the exact arithmetic that the language asks for here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tack.dtypes import DType
from tack.errors import UnsupportedSyntaxError, diagnostic
from tack.ir.nodes import (
    Array,
    Assign,
    Binary,
    Block,
    Break,
    Call,
    Cast,
    Compare,
    Const,
    Continue,
    Dim,
    Expr,
    For,
    If,
    Kernel,
    Leave,
    Local,
    Logical,
    Meet,
    Node,
    Param,
    Range,
    Sample,
    Stmt,
    Unary,
    While,
)
from tack.ir.traversal import children, walk

__all__ = ["Bounds", "LaunchRange", "check_bound_types", "compile_bounds"]

# Start, step and count of each dimension.
LaunchRange = tuple[tuple[int, int, int], ...]
Bounds = Callable[[Sequence[Any]], LaunchRange]

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LIMIT = 1 << 63


def needed_statements(kernel: Kernel) -> tuple[set[str], list[Stmt]]:
    """The locals that the ranges depend on, and the statements of ``before`` that set them.

    A statement with a body is taken whole if anything in it sets such a local: the path through
    it decides what runs.
    """
    wanted = {n.name for r in kernel.loop.ranges for n in walk(r) if isinstance(n, Local)}
    while True:
        kept = [s for s in kernel.before if _sets(s) & wanted]
        found = wanted | {n.name for s in kept for n in walk(s) if isinstance(n, Local)}
        if found == wanted:
            return wanted, kept
        wanted = found


def _sets(stmt: Stmt) -> set[str]:
    return {n.target if isinstance(n, Assign) else n.var for n in walk(stmt) if isinstance(n, (Assign, For))}


class _Writer:
    """Writes the Python function."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.params = {p.name: k for k, p in enumerate(kernel.params)}
        self.locals: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.names: dict[str, Any] = {"_cast": _cast, "_count": _count, "_kernel": kernel}
        self.lines: list[str] = []

    def function(self) -> Bounds:
        self.lines.append("def bounds(args):")
        wanted, statements = needed_statements(self.kernel)
        self.body(statements, wanted, 1)
        parts = []
        for k, part in enumerate(self.kernel.loop.ranges):
            start, stop, step = self.expr(part.start), self.expr(part.stop), self.expr(part.step)
            if isinstance(part.start, Const) and isinstance(part.step, Const) and part.step.value == 1:
                name = f"stop{k}"
                self.lines.append(f"  {name} = {stop}")
                less = f"{name} - {start}" if part.start.value else name
                parts.append(f"({start}, 1, {less} if {name} > {start} else 0)")
            else:
                parts.append(f"_count(_kernel.loop.ranges[{k}], {start}, {stop}, {step})")
        self.lines.append(f"  return ({', '.join(parts)},)")
        exec("\n".join(self.lines), self.names)
        bounds: Bounds = self.names["bounds"]
        return bounds

    def body(self, body: Iterable[Stmt], wanted: set[str], depth: int) -> None:
        start = len(self.lines)
        for stmt in body:
            self.stmt(stmt, wanted, depth)
        if len(self.lines) == start:
            self.lines.append("  " * depth + "pass")

    def stmt(self, stmt: Stmt, wanted: set[str], depth: int) -> None:
        pad = "  " * depth
        add = self.lines.append
        if isinstance(stmt, Assign):
            if stmt.target in wanted:
                add(f"{pad}{self.local(stmt.target)} = {self.condition(stmt.value)}")
        elif isinstance(stmt, If):
            add(f"{pad}if {self.condition(stmt.cond)}:")
            self.body(stmt.then, wanted, depth + 1)
            add(f"{pad}else:")
            self.body(stmt.orelse, wanted, depth + 1)
        elif isinstance(stmt, While):
            add(f"{pad}while {self.condition(stmt.cond)}:")
            self.body(stmt.body, wanted, depth + 1)
        elif isinstance(stmt, For):
            r = stmt.range
            parts = ", ".join(map(self.expr, (r.start, r.stop, r.step)))
            add(f"{pad}for {self.local(stmt.var)} in range({parts}):")
            self.body(stmt.body, wanted, depth + 1)
        elif isinstance(stmt, Sample):
            self.body(stmt.body, wanted, depth)
        elif isinstance(stmt, Block):
            label = self.labels[stmt.label] = f"Leave{len(self.labels)}"
            self.names[label] = type(label, (Exception,), {})
            add(f"{pad}try:")
            self.body(stmt.body, wanted, depth + 1)
            add(f"{pad}except {label}: pass")
        elif isinstance(stmt, (Break, Continue)):
            add(pad + type(stmt).__name__.lower())
        elif isinstance(stmt, Leave):
            add(f"{pad}raise {self.labels[stmt.label]}")

    def local(self, name: str) -> str:
        return self.locals.setdefault(name, f"local{len(self.locals)}")

    def condition(self, node: Expr) -> str:
        """What a statement before the loop computes, which may be a truth value too."""
        if isinstance(node, Compare):
            return f"({self.expr(node.left)} {_COMPARE[node.op]} {self.expr(node.right)})"
        if isinstance(node, Logical):
            return f"bool({self.condition(node.left)} {node.op} {self.condition(node.right)})"
        if isinstance(node, Unary) and node.op == "not":
            return f"(not {self.condition(node.operand)})"
        return self.expr(node)

    def expr(self, node: Expr) -> str:
        if isinstance(node, Const):
            if isinstance(node.value, float):
                hint = "convert it: int(...)"
                raise diagnostic(
                    TypeError, "the bound of the parallel loop must be an integer", node.loc, hint=hint
                )
            return f"({node.value})" if node.value < 0 else str(node.value)
        if isinstance(node, Param):
            return f"args[{self.params[node.name]}]"
        if isinstance(node, Local):
            return self.local(node.name)
        if isinstance(node, Dim) and node.array in self.params:
            array = f"args[{self.params[node.array]}]"
            if node.axis in ("size", "ndim"):
                return f"{array}.{node.axis}"
            return f"{array}.shape[{0 if node.axis == 'len' else node.axis}]"
        if isinstance(node, Meet):
            return self.expr(node.value)
        if isinstance(node, Unary) and node.op == "neg":
            return f"(-{self.expr(node.operand)})"
        if isinstance(node, Binary) and node.op in _ARITHMETIC:
            return f"({self.expr(node.left)} {_ARITHMETIC[node.op]} {self.expr(node.right)})"
        if isinstance(node, Call) and node.function in ("min", "max"):
            return f"{node.function}({', '.join(map(self.expr, node.args))})"
        if (
            isinstance(node, Cast)
            and node.to.is_integer
            and isinstance(node.operand, (Param, Const, Local, Cast))
        ):
            name = f"dtype_{node.to}"
            self.names[name] = node.to
            operand = node.operand
            value = repr(operand.value) if isinstance(operand, Const) else self.expr(operand)
            return f"_cast({value}, {name})"
        raise diagnostic(
            UnsupportedSyntaxError,
            "the host computes the bound of the parallel loop, and it cannot compute this part",
            node.loc,
            hint="a bound is made of constants, integer arguments, shapes, + - * // min and max; "
            "compute anything else before the call and pass it as an argument",
        )


def _cast(value: Any, dtype: DType) -> int:
    return dtype.saturate(float(value)) if isinstance(value, float) else dtype.wrap(int(value))


def _count(part: Range, start: int, stop: int, step: int) -> tuple[int, int, int]:
    if step <= 0:
        message = f"the step of the parallel loop is {step}, and it must be positive"
        raise diagnostic(
            ValueError, message, part.step.loc, hint="count upwards, and compute the index: n - 1 - i"
        )
    return start, step, max(0, (stop - start + step - 1) // step)


def compile_bounds(template: Kernel) -> Bounds:
    """A function from a call's arguments to the launch range of its parallel loop.

    Raises:
        UnsupportedSyntaxError: the bound has a part that the host cannot compute.
    """
    return _Writer(template).function()


def check_bound_types(kernel: Kernel, types: Mapping[str, Array | DType | None]) -> None:
    """Checks that the bound uses arrays as arrays, and no float without a conversion.

    Raises:
        TypeError: with the place.
    """
    _, statements = needed_statements(kernel)
    for root in (*kernel.loop.ranges, *statements):
        _check(root, types, cast=False)


def _check(node: Node, types: Mapping[str, Array | DType | None], cast: bool) -> None:
    if isinstance(node, Param):
        kind = types[node.name]
        if isinstance(kind, Array):
            hint = f"use {node.name}.shape[0]"
            raise diagnostic(TypeError, f"array '{node.name}' is used as a number", node.loc, hint=hint)
        if kind is not None and kind.is_float and not cast:
            message = f"the bound of the parallel loop must be an integer, and '{node.name}' is {kind}"
            raise diagnostic(TypeError, message, node.loc, hint=f"convert it: int({node.name})")
    if isinstance(node, Dim):
        array = types[node.array]
        if not isinstance(array, Array):
            raise diagnostic(TypeError, f"'{node.array}' is a number, which has no shape", node.loc)
        axis = 0 if node.axis == "len" else node.axis
        if isinstance(axis, int) and not -array.ndim <= axis < array.ndim:
            message = f"'{node.array}' has {array.ndim} dimensions, so no shape[{axis}]"
            raise diagnostic(TypeError, message, node.loc)
    for child in children(node):
        _check(child, types, isinstance(node, Cast))
