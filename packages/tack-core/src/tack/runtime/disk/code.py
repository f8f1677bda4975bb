"""Kernels in both forms of the IR as sections of an entry: their text, and the places in source.

The text leaves positions out. They are kept beside it, counted from the first line of the function
that they are in, so that an entry fits the function wherever it has moved to in its file. There are as
many as nodes, so they are packed: a line of JSON says how, and integers follow.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tack.lang.source import Loc, Source
from tack.runtime.disk.fastjson import dumps, loads

if TYPE_CHECKING:
    from tack.ir import nodes as ir

__all__ = ["from_sections", "to_sections"]

_FIELDS = 6  # of a place: function, line, column, last line, last column, call


def to_sections(kernel: ir.Kernel, sources: Sequence[Source | None]) -> list[bytes] | None:
    """A kernel's text and places; None if a place is in a function that is not among ``sources``."""
    from tack.ir.printer import to_text
    from tack.ir.traversal import walk

    writer = _Writer(sources)
    try:
        places = [writer.place(node.loc) for node in walk(kernel)]
    except LookupError:
        return None
    return [to_text(kernel).encode(), _pack(writer.own, writer.locs, places)]


class _Writer:
    """Numbers the places, and the functions that they are in."""

    def __init__(self, sources: Sequence[Source | None]) -> None:
        self.sources = {source: k for k, source in enumerate(sources) if source is not None}
        self.count = len(sources)
        self.own: list[list[str]] = []  # device functions of Tack's that lowering itself brings in
        self.locs: list[list[int]] = []
        self.numbers: dict[int, int] = {}

    def place(self, loc: Loc | None) -> int:
        if loc is None:
            return -1
        number = self.numbers.get(id(loc))
        if number is None:
            caller = self.place(loc.caller)
            first = loc.source.first
            line, end_line = loc.line - first, loc.end_line - first
            row = [self.source(loc.source), line, loc.col, end_line, loc.end_col, caller]
            number = self.numbers[id(loc)] = len(self.locs)
            self.locs.append(row)
        return number

    def source(self, source: Source) -> int:
        if source not in self.sources:
            self.own.append(_own_function(source))
            self.sources[source] = self.count + len(self.own) - 1
        return self.sources[source]


def _own_function(source: Source) -> list[str]:
    """Where Tack has this device function; LookupError if it is not Tack's."""
    from tack.lang import sampling

    if getattr(sampling, source.name, None) is None or getattr(sampling, source.name).source is not source:
        raise LookupError(source.name)
    return [sampling.__name__, source.name]


def _pack(own: list[list[str]], locs: list[list[int]], places: list[int]) -> bytes:
    """Tack's own functions, the places, and for each node which one it is at."""
    numbers = [number for row in locs for number in row] + places
    kind = "h" if min(numbers) >= -(1 << 15) and max(numbers) < 1 << 15 else "i"
    return dumps([own, kind, len(locs)]).encode() + b"\n" + struct.pack(f"<{len(numbers)}{kind}", *numbers)


def _unpack(section: bytes) -> tuple[list[list[str]], list[tuple[int, ...]], tuple[int, ...]]:
    """What `_pack` packed."""
    head, _, packed = section.partition(b"\n")
    own, kind, count = loads(head.decode())
    numbers = struct.unpack(f"<{len(packed) // struct.calcsize(kind)}{kind}", packed)
    end = _FIELDS * count
    return own, [numbers[at : at + _FIELDS] for at in range(0, end, _FIELDS)], numbers[end:]


def from_sections(sections: Sequence[bytes | memoryview], sources: Sequence[Source | None]) -> ir.Kernel:
    """The kernel that `to_sections` wrote; ``sources`` are this process's."""
    from tack.ir.parser import parse
    from tack.ir.traversal import walk

    kernel = parse(str(sections[0], "utf-8"))
    names, rows, places = _unpack(bytes(sections[1]))
    own = [getattr(importlib.import_module(module), name).source for module, name in names]
    everything = [*sources, *own]
    locs: list[Loc] = []
    for source, line, col, end_line, end_col, caller in rows:
        found = everything[source]
        outer = locs[caller] if caller >= 0 else None
        locs.append(Loc(found, line + found.first, col, end_line + found.first, end_col, outer))
    for node, place in zip(walk(kernel), places, strict=True):
        node.loc = locs[place] if place >= 0 else None
    return kernel
