"""How kernels and device functions travel to other processes: by name, or else with all that they read.

By name is how Python pickles functions, and enough where the other process can import the module. A
function of ``__main__`` (a script, a notebook) or of another function's scope brings its code, its
source text and what its names are bound to, so that a worker of Dask, say, needs nothing but Tack.
"""

from __future__ import annotations

import ast
import importlib
import marshal
import os
import re
import sys
import threading
from collections import OrderedDict
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tack.lang.portable import Portable
from tack.lang.source import Source

__all__ = ["reduced"]

_KEPT = 256  # functions that arrived last, so that one that arrives again is not compiled again


def reduced(value: Portable) -> Any:
    """What ``__reduce__`` gives for a kernel or a device function."""
    if value.__module__ != "__main__" and _named(value.__module__, value.__qualname__) is value:
        return value.__qualname__
    if value._ticket is None:
        value._ticket = os.urandom(16).hex()
        _remember(value)
    # The state comes apart from the arguments, so that functions may name each other in a circle.
    code = marshal.dumps(value.function.__code__)
    arguments = (type(value), value._ticket, value.__module__, value.__qualname__, _version(), code)
    return _arrived, arguments, _Contents.of(value)


class _Module(NamedTuple):
    """Stands for a module, which not every pickler takes."""

    name: str


class _Contents(NamedTuple):
    """What a function consists of, besides its code. ``cells`` are empty tuples where they are empty."""

    names: dict[str, Any]
    cells: tuple[tuple[Any, ...], ...]
    defaults: tuple[Any, ...] | None
    kwdefaults: dict[str, Any] | None
    annotations: dict[str, Any]
    kind: str
    lines: list[str]
    options: dict[str, Any]

    @classmethod
    def of(cls, value: Portable) -> _Contents:
        function, source = value.function, value.source
        scope = function.__globals__
        names = {n: _packed(scope[n]) for n in sorted(_names_read(source.tree, function)) if n in scope}
        cells = tuple(map(_cell_content, function.__closure__ or ()))
        annotations = {name: _packed(kind) for name, kind in function.__annotations__.items()}
        lines = source.lines[source.first - 1 : source.tree.end_lineno]
        return cls(
            *(names, cells, function.__defaults__, function.__kwdefaults__, annotations),
            *(source.kind, lines, value._options()),
        )

    def complete(self, value: Portable) -> None:
        """Makes what `_arrived` gave a function, unless it was one."""
        if "function" not in vars(value):
            code = marshal.loads(vars(value).pop("_code"))
            value._adopt(*self._rebuilt(code, value), self.options)
            _remember(value)

    def _rebuilt(self, code: Any, value: Portable) -> tuple[FunctionType, Source]:
        scope = {name: _unpacked(bound) for name, bound in self.names.items()}
        scope["__name__"] = value.__module__
        cells = tuple(CellType(*map(_unpacked, content)) for content in self.cells)
        function = FunctionType(code, scope, code.co_name, self.defaults, cells)
        function.__kwdefaults__ = self.kwdefaults
        function.__annotations__ = {name: _unpacked(kind) for name, kind in self.annotations.items()}
        function.__module__, function.__qualname__ = value.__module__, value.__qualname__
        # Lines keep their numbers, which errors name.
        lines = ["\n"] * (code.co_firstlineno - 1) + self.lines
        return function, Source(function, self.kind, lines)


def _packed(value: Any) -> Any:
    return _Module(value.__name__) if isinstance(value, ModuleType) else value


def _unpacked(value: Any) -> Any:
    return importlib.import_module(value.name) if isinstance(value, _Module) else value


def _cell_content(cell: CellType) -> tuple[Any, ...]:
    try:
        return (_packed(cell.cell_contents),)
    except ValueError:  # assigned later in the enclosing function
        return ()


def _names_read(tree: ast.FunctionDef, function: FunctionType) -> set[str]:
    """The names that a function may look up beyond its own, in its body and its annotations."""
    names = set()
    arguments = (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)
    annotations = [node for node in (*(a.annotation for a in arguments), tree.returns) if node is not None]
    for part in (*tree.body, *annotations):
        for node in ast.walk(part):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and part in annotations:
                names.update(re.findall(r"[^\W\d]\w*", node.value))
    local = {*function.__code__.co_varnames, *function.__code__.co_freevars}
    return {name for name in names if name not in local}


def _named(module: str, qualname: str) -> Any:
    """What a qualified name means in a module that has been imported, or None."""
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found


def _version() -> str:
    return sys.implementation.cache_tag or ""


# --- arriving ---------------------------------------------------------------------------------

_known: OrderedDict[str, Portable] = OrderedDict()
_lock = threading.Lock()


def _remember(value: Portable) -> None:
    assert value._ticket is not None
    with _lock:
        _known[value._ticket] = value
        while len(_known) > _KEPT:
            _known.popitem(last=False)


def _arrived(
    kind: type[Portable], ticket: str, module: str, qualname: str, version: str, code: bytes
) -> Portable:
    """The function if this process has it, else an object that `Portable.__setstate__` completes."""
    if version != _version():
        raise RuntimeError(
            f"'{qualname}' was pickled by {version} and cannot be used by {_version()}: a function of a "
            "script or of another function needs the same Python. Put it in a module, and import that"
        )
    with _lock:
        known = _known.get(ticket)
        if known is not None:
            _known.move_to_end(ticket)
            return known
    here = _named(module, qualname)  # in a spawned process, which has run the script as a module
    if type(here) is kind and marshal.dumps(here.function.__code__) == code:
        return here
    made = kind.__new__(kind)
    made._ticket, made.__module__, made.__qualname__ = ticket, module, qualname
    vars(made)["_code"] = code
    return made
