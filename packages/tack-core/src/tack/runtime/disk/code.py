"""Kernels in both forms of the IR as sections of an entry: their text, and the places in source.

The text leaves positions out. They are kept beside it, counted from the first line of the function
that they are in, so that an entry fits the function wherever it has moved to in its file.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tack.lang.source import Loc, Source
from tack.runtime.disk.fastjson import dumps, loads

if TYPE_CHECKING:
    from tack.ir import nodes as ir

__all__ = ["from_sections", "to_sections"]


def to_sections(kernel: ir.Kernel, sources: Sequence[Source | None]) -> list[bytes] | None:
    """A kernel's text and places; None if a place is in a function that is not among ``sources``."""
    from tack.ir.printer import to_text
    from tack.ir.traversal import walk

    writer = _Writer(sources)
    try:
        places = [writer.place(node.loc) for node in walk(kernel)]
    except LookupError:
        return None
    about = {"own": writer.own, "locs": writer.locs, "places": places}
    return [to_text(kernel).encode(), dumps(about).encode()]


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


def from_sections(sections: Sequence[bytes], sources: Sequence[Source | None]) -> ir.Kernel:
    """The kernel that `to_sections` wrote; ``sources`` are this process's."""
    from tack.ir.parser import parse
    from tack.ir.traversal import walk

    kernel = parse(sections[0].decode())
    about = loads(sections[1].decode())
    own = [getattr(importlib.import_module(module), name).source for module, name in about["own"]]
    everything = [*sources, *own]
    locs: list[Loc] = []
    for source, line, col, end_line, end_col, caller in about["locs"]:
        found = everything[source]
        outer = locs[caller] if caller >= 0 else None
        locs.append(Loc(found, line + found.first, col, end_line + found.first, end_col, outer))
    for node, place in zip(walk(kernel), about["places"], strict=True):
        node.loc = locs[place] if place >= 0 else None
    return kernel
