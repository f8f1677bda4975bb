"""The source text of a decorated function, its syntax tree, and places in it."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import threading
from collections.abc import Iterator
from types import FunctionType
from typing import Any

__all__ = ["Loc", "Source", "parse"]

_ATTEMPTS = 100

_parsing = threading.Lock()


def _renew_lock() -> None:
    global _parsing
    _parsing = threading.Lock()


if hasattr(os, "register_at_fork"):  # a thread of the parent may have held it
    os.register_at_fork(after_in_child=_renew_lock)


def parse(text: str, mode: str = "exec") -> Any:
    """`ast.parse`, from any thread.

    CPython 3.11 counts the depth of a tree for all threads together. Garbage that is collected while it
    makes one lets another thread run, and if that one parses too, it raises `SystemError`.
    """
    with _parsing:
        for _ in range(_ATTEMPTS):  # threads that are not ours may parse too; each attempt counts anew
            try:
                return ast.parse(text, mode=mode)
            except SystemError:
                continue
    return ast.parse(text, mode=mode)


class Source:
    """Where a kernel's or device function's text is.

    The file's lines are taken at decoration, so that an edit of the file afterwards cannot pair
    this function with other text; they are parsed when first needed. The function itself is not
    kept: compiled code refers to its source for error messages, and must not keep alive the
    globals that may hold the kernel.
    """

    __slots__ = (
        *("_returns", "_tree", "code", "digest", "filename", "first", "is_ascii", "kind", "lines"),
        "name",
    )

    def __init__(self, function: FunctionType, kind: str, lines: list[str] | None = None) -> None:
        """``lines`` are the file's if they are known, as after a journey to another process."""
        code = function.__code__
        self.code = code
        self.kind = kind  # "kernel" or "func"
        # A method is known by its class too, as in Torus.distance.
        self.name = (
            function.__name__ if kind == "kernel" else function.__qualname__.rpartition("<locals>.")[2]
        )
        self.filename = code.co_filename
        self.first = code.co_firstlineno
        self.lines = linecache.getlines(code.co_filename, function.__globals__) if lines is None else lines
        self._tree: ast.FunctionDef | None = None
        self._returns: list[ast.Return] | None = None
        self.is_ascii = False  # the definition's text, once it is parsed
        self.digest: str | None = None  # of the definition's text, once the disk cache asked for it
        if len(self.lines) < self.first:
            self.lines = self._lines_elsewhere(function)

    def _lines_elsewhere(self, function: FunctionType) -> list[str]:
        """The lines as `inspect` finds them: the REPL's and ``python -c``'s, from Python 3.13."""
        try:
            return inspect.findsource(function)[0]
        except (OSError, TypeError, IndexError):
            raise self._no_source() from None

    def _no_source(self) -> RuntimeError:
        return RuntimeError(
            f"{self.kind} '{self.name}': Tack compiles a function from its source text, and none was "
            f"found for {self.filename!r} (line {self.first}). Put the function in a file or a notebook "
            "cell; for code run with exec(), first add its text to linecache.cache[filename]; "
            "`python -c` and the interactive prompt keep their text from Python 3.13 on"
        )

    @property
    def tree(self) -> ast.FunctionDef:
        """The function's definition, with lines and columns counted as in its file."""
        if self._tree is None:
            self._tree = self._parse()
        return self._tree

    @property
    def returns(self) -> list[ast.Return]:
        """The function's return statements, looked for once however often it is inlined."""
        if self._returns is None:
            self._returns = [
                n for stmt in self.tree.body for n in ast.walk(stmt) if isinstance(n, ast.Return)
            ]
        return self._returns

    def _parse(self) -> ast.FunctionDef:
        start = self._definition()
        first = self.lines[start]
        indent = len(first) - len(first.lstrip())
        # Under `if 1:` an indented block is a valid module with its columns unchanged.
        # Empty lines before it make its line numbers those of the file.
        head = "\n" * (start - 1) + "if 1:\n" if indent else "\n" * start
        for end in self._possible_ends(start, indent):
            text = head + "".join(self.lines[start:end])
            try:
                module = parse(text)
            except SyntaxError:
                continue
            top = module.body[0]
            node = top.body[0] if isinstance(top, ast.If) and indent else top
            self.is_ascii = text.isascii()
            code = self.code
            if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
                break
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if tuple(names) != code.co_varnames[: len(names)]:
                break
            return node
        raise self._no_source()

    def _definition(self) -> int:
        """The index of the line with ``def``, behind any decorators."""
        name = self.code.co_name
        for number in range(self.first - 1, len(self.lines)):
            word, *rest = self.lines[number].split(None, 1)[:2] or [""]
            if word == "def" and rest and rest[0].startswith(name):
                following = rest[0][len(name) : len(name) + 1]
                if not (following.isalnum() or following == "_"):
                    return number
        raise self._no_source()

    def _possible_ends(self, start: int, indent: int) -> Iterator[int]:
        """Line counts at which the definition may end: before each line indented no deeper.

        The first that parses is the end; a later one is needed only where such a line is inside
        a bracket or a multi-line string.
        """
        for number in range(start + 1, len(self.lines)):
            line = self.lines[number]
            text = line.lstrip()
            if text and not text.startswith("#") and len(line) - len(text) <= indent:
                yield number
        yield len(self.lines)


class Loc:
    """A place in source: where a construct starts and ends, and the call it was inlined at.

    Lines and columns are 1-based; ``end_col`` is one past the last column.
    """

    __slots__ = ("caller", "col", "end_col", "end_line", "line", "source")

    def __init__(
        self, source: Source, line: int, col: int, end_line: int, end_col: int, caller: Loc | None = None
    ) -> None:
        self.source = source
        self.line = line
        self.col = col
        self.end_line = end_line
        self.end_col = end_col
        self.caller = caller

    @property
    def root(self) -> Loc:
        """The place in the kernel itself from which the inlined calls lead here."""
        loc = self
        while loc.caller is not None:
            loc = loc.caller
        return loc

    @property
    def text(self) -> str:
        """The source line, as in the file."""
        lines = self.source.lines
        return lines[self.line - 1] if 0 < self.line <= len(lines) else ""

    @property
    def place(self) -> str:
        """``file:line:column``, with the absolute path."""
        import os

        name = self.source.filename
        path = name if name.startswith("<") else os.path.abspath(name)
        return f"{path}:{self.line}:{self.col}"

    def __repr__(self) -> str:
        return self.place
