"""What a kernel is made of, as data that is equal in two processes exactly if the kernels are.

A content is made of strings, numbers, None and lists of these, so that it can be written as JSON.
None as the content of a value means that there is no stable one: it cannot be cached.
"""

from __future__ import annotations

import builtins
import importlib
import struct
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tack.constants import ConstantFloat, ConstantInt, ConstantTable
from tack.dtypes import DType, VectorType
from tack.lang.annotations import annotated_types, return_type
from tack.lang.bindings import UNBOUND
from tack.lang.builtins import meaning_of
from tack.lang.device_class import Layout
from tack.lang.kernel import Func
from tack.lang.source import Source
from tack.runtime.native import module as native

__all__ = [
    "Content",
    "blake2b",
    "checksum",
    "class_funcs",
    "digest",
    "function_content",
    "layout_content",
    "value_content",
]

Content = Any

# Whether the extension knows this Python's table of lines, which it reads in a fiftieth of the time.
_READS_LINES = hasattr(native, "last_line") and sys.version_info < (3, 15)
_READ = (Func, int, float, np.number, np.bool_, ConstantTable)


def _own(module: str, name: str) -> Callable[..., Any]:
    """The interpreter's own hash function, which needs no OpenSSL and so loads at once."""
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError:
        found = getattr(importlib.import_module("hashlib"), name)
    function: Callable[..., Any] = found
    return function


_sha256 = _own("_sha2" if sys.version_info >= (3, 12) else "_sha256", "sha256")
blake2b = _own("_blake2", "blake2b")  # takes a third of that one's time, which counts for much data


def checksum(data: bytes | memoryview) -> bytes:
    """The SHA-256 hash of data."""
    found: bytes = _sha256(data).digest()
    return found


def digest(text: str) -> str:
    """The `checksum` of a text, in hexadecimal."""
    return checksum(text.encode()).hex()


# --- functions --------------------------------------------------------------------------------


def definition_text(source: Source) -> str:
    """The lines of a function, from its first decorator on, without parsing them."""
    lines = source.lines
    start = source._definition()
    last = _last_line(source.code) or start + 1
    first = lines[start]
    # The first line indented no deeper ends a function, unless it is inside a bracket or a string
    # of the function, whose code then goes on behind it.
    possible = source._possible_ends(start, len(first) - len(first.lstrip()))
    end = next((n for n in possible if n >= last), len(lines))
    while end > last and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return "".join(lines[source.first - 1 : end])


def _last_line(code: CodeType) -> int:
    """The last line that a function's instructions come from; 0 if none has a line."""
    if _READS_LINES and native is not None:
        last: int = native.last_line(code.co_linetable, code.co_firstlineno)
        return last
    ends = {end for _, end, _, _ in code.co_positions() if end is not None}
    return max(ends or {line for _, _, line in code.co_lines() if line is not None}, default=0)


def function_content(function: FunctionType, source: Source, outer: tuple[Any, ...] = ()) -> Content:
    """The content of a kernel's or device function's Python function; None if a cell has none.

    Names that it reads beyond its closure are not part of it: lowering records those.
    """
    cells = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            value = UNBOUND
        content = value_content(value, (*outer, function))
        if content is None:
            return None
        cells.append([name, content])
    kinds = [[name, str(kind)] for name, kind in annotated_types(function).items()]
    defaults = [value_content(v) or ["other", type(v).__name__] for v in function.__defaults__ or ()]
    result = return_type(function)
    if source.digest is None:
        source.digest = digest(definition_text(source))
    return [
        source.name,
        source.digest,
        kinds,
        None if result is None else result.name,
        defaults,
        cells,
    ]


# --- values -----------------------------------------------------------------------------------


def value_content(value: Any, outer: tuple[Any, ...] = ()) -> Content:
    """The content of what a name in a kernel's source is bound to, or None."""
    if value is UNBOUND:
        return ["unbound"]
    meaning = meaning_of(value)
    if meaning is not None:
        return ["builtin", meaning.name]
    if isinstance(value, Func):
        if value.function in outer:
            return ["func", "recursive"]
        content = function_content(value.function, value.source, outer)
        return None if content is None else ["func", digest(repr(content))]
    if isinstance(value, ModuleType):
        return ["module", value.__name__]
    if isinstance(value, (ConstantInt, ConstantFloat)):
        return ["constant", str(value.dtype), *number_content(value)]
    if isinstance(value, ConstantTable):
        numbers = [number_content(v) for v in value.values]
        return ["table", str(value.dtype), list(value.shape), digest(repr(numbers))]
    if isinstance(value, (DType, VectorType)):
        return ["dtype", value.name]
    if isinstance(value, (int, float, np.number, np.bool_)):
        return ["number", *number_content(value)]
    return _host_content(value)


def _host_content(value: Any) -> Content:
    """The content of another function or type of the host that has a meaning in kernels."""
    kind = getattr(value, "__self__", None)
    if isinstance(kind, VectorType):  # vec3.identity
        return ["method", kind.name, value.__name__]
    if isinstance(value, type) and issubclass(value, np.generic):
        return ["numpy", np.dtype(value).str]
    if isinstance(value, np.dtype):
        return ["numpy", value.str]
    name = getattr(value, "__name__", None)
    if isinstance(name, str):
        if getattr(builtins, name, None) is value:
            return ["python", name]
        module = getattr(value, "__module__", None)
        if isinstance(module, str) and module.partition(".")[0] == "tack":
            return ["tack", module, name]
    return None


def number_content(value: Any) -> list[str]:
    """A number by type and bit pattern: 0.0 and -0.0 differ, and a NaN equals itself."""
    if isinstance(value, (float, np.floating)):
        return [type(value).__name__, struct.pack("!d", value).hex()]
    return [type(value).__name__, str(int(value))]


# --- device classes ---------------------------------------------------------------------------


def class_funcs(layout: Layout) -> list[Func]:
    """The device functions that a layout brings, nested ones included, in the order of its content."""
    found = [func for _, func in _members(layout) if isinstance(func, Func)]
    found += layout.funcs.values()
    for part in layout.parts.values():
        found += class_funcs(part)
    return found


def _members(layout: Layout) -> list[tuple[str, Any]]:
    """The attributes of a class and its bases that lowering may look up, as `class.name`."""
    found = []
    for base in layout.owner.__mro__[:-1]:
        for name, value in vars(base).items():
            if name == "__tack_iterate__" or not name.startswith("__"):
                plain = value.__func__ if isinstance(value, staticmethod) else value
                found.append((f"{base.__qualname__}.{name}", plain))
    return found


def layout_content(layout: Layout) -> Content:
    """What lowering reads of an instance of a device class; None if a part has no stable content."""
    members = []
    for name, value in _members(layout):
        # Only what lowering may read; to ask anything else for its name could run code.
        content = value_content(value) if isinstance(value, _READ) else None
        if content is None:
            if isinstance(value, Func):
                return None
            content = ["other", type(value).__name__]
            if name.endswith(".__tack_iterate__") and isinstance(value, (str, tuple, list)):
                content = ["iterate", [str(v) for v in ((value,) if isinstance(value, str) else value)]]
        members.append([name, content])
    funcs = [[name, value_content(func)] for name, func in layout.funcs.items()]
    parts = [[name, layout_content(part)] for name, part in layout.parts.items()]
    if any(content is None for _, content in (*funcs, *parts)):
        return None
    bases = [f"{base.__module__}.{base.__qualname__}" for base in layout.owner.__mro__[:-1]]
    return [
        ["bases", bases],
        ["members", members],
        ["constants", [[k, value_content(v)] for k, v in layout.constants.items()]],
        ["scalars", list(layout.scalars)],
        ["arrays", [[k, list(v)] for k, v in layout.arrays.items()]],
        ["funcs", funcs],
        ["parts", parts],
    ]
