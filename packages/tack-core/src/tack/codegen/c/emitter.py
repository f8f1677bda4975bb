"""The state of one translation unit and of one function while they are written, and what all rules share.

Rules live in tables by node class, operator or function name: `expressions.VALUES`, `operators.UNARY`
and `BINARY`, `builtins.CALLS`, `statements.STATEMENTS`. Each rule takes the `Emitter` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tack.codegen.c.dialect import Dialect
from tack.codegen.c.exits import Exits
from tack.codegen.c.names import Names
from tack.codegen.c.scopes import Declarations
from tack.codegen.c.terms import Term
from tack.dtypes import ALL_DTYPES, DType, i64
from tack.ir.nodes import Array, Kernel

if TYPE_CHECKING:
    from tack.lang.source import Loc

__all__ = ["Emitter", "Unit"]


class Unit:
    """One translation unit: its names, tables, and the helper functions that it uses so far."""

    def __init__(self, kernel: Kernel, dialect: Dialect, sites: dict[int, int]) -> None:
        self.kernel = kernel
        self.dialect = dialect
        self.sites = sites  # id(Print, Bounds or NonZero) -> site number
        self.names = Names(dialect.reserved)
        self.pieces: dict[str, str] = {}  # tables and helper functions, in the order of their definition
        self.arrays: dict[str, DType] = {
            p.name: p.type.dtype for p in kernel.params if isinstance(p.type, Array)
        }
        self.shared: set[str] = set()  # the arrays of workgroups
        self.table_bytes = 0

    def helper(self, name: str, write: Callable[[Emitter], None]) -> str:
        """``name``, after ``write`` has written the function when it was first asked for."""
        if name not in self.pieces:
            fn = Emitter(self)
            write(fn)
            self.pieces[name] = fn.text()
        return name

    def text(self, functions: Sequence[str]) -> str:
        """The whole text, given the functions that launches call."""
        d = self.dialect
        names = [t.name for t in ALL_DTYPES if t.name in d.types]
        types = "".join(f"typedef {d.types[name]} {name}{d.may_alias};\n" for name in names)
        parts = [*self.pieces.values(), *functions]
        for name, text in reversed(d.library.items()):
            if any(f"{name}(" in part for part in parts):
                parts.insert(0, text)
        return "\n".join([d.prelude + types, *parts])


class Emitter:
    """Writes one function."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.dialect = unit.dialect
        self._lines: list[str] = []
        self._depth = 0
        self.declarations = Declarations(set(), set(), [])
        self.labels: dict[str, str] = {}
        self.exits = Exits()
        self.loops = 0  # around the current statement, but for those over the parallel range
        self.loaded: dict[int, str] = {}  # id(Load) -> the variable that has its value
        self.lane = ""  # the expression for the lane's number, in a kernel that uses workgroups
        self.iteration: str | None = None  # that for the iteration's number, where checks need it
        self.temporaries: list[str] = []
        self._remarked: tuple[object, int] | None = None

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text if text else "")

    def remark(self, loc: Loc | None) -> None:
        """The source line at ``loc``, as a comment before what is made of it."""
        if loc is None or self._remarked == (loc.source, loc.line):
            return
        self._remarked = loc.source, loc.line
        if loc.line <= len(loc.source.lines):
            text = loc.source.lines[loc.line - 1].strip()
            if not text.isprintable():
                text = "".join(c if c.isprintable() else " " for c in text)
            self.line(f"// {text}".rstrip("\\ "))  # a backslash would continue the comment

    @property
    def position(self) -> int:
        """Where the next line comes, for `insert`."""
        return len(self._lines)

    def insert(self, position: int, text: str) -> None:
        """A line before those that have come since, as deep as these are now."""
        self._lines.insert(position, "    " * self._depth + text)

    def label(self, name: str) -> None:
        self._lines.append("    " * (self._depth - 1) + f"{name}:;")

    @contextmanager
    def braces(self, head: str = "", tail: str = "") -> Iterator[None]:
        """Lines in braces after ``head``."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}" + tail)

    @contextmanager
    def orelse(self) -> Iterator[None]:
        """The second arm of the conditional whose first has just been closed."""
        self._lines.pop()
        with self.braces("} else"):
            yield

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        """The body of a loop of the kernel's."""
        self.loops += 1
        with self.exits.target(self, head):
            yield
        self.loops -= 1

    def name(self, name: str) -> str:
        return self.unit.names[name]

    def local_type(self, name: str) -> DType:
        return self.unit.kernel.locals.get(name, i64)

    def temporary(self, dtype: DType) -> str:
        """A variable for a step within an expression, declared where the function's body starts."""
        name = f"tack_t{len(self.temporaries)}"
        self.temporaries.append(f"{dtype} {name};")
        return name

    @contextmanager
    def function(self, head: str) -> Iterator[None]:
        """A function's lines, with the temporaries that they turn out to need in front."""
        with self.braces(head):
            start = len(self._lines)
            yield
            self._lines[start:start] = ["    " * self._depth + line for line in self.temporaries]
            self.temporaries = []

    def element(self, array: str, at: Term) -> Term:
        return Term(f"{self.name(array)}[{at.text}]")
