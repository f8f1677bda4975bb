"""Many translation units as one, since compilers take longer to start than to compile a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Unit", "batches", "definitions", "joined", "read", "read_unit"]

# What is defined at file scope: functions, kernels, tables, structures and samplers, by the first name of
# their line that has a bracket or a body behind it and is not an attribute's.
_ATTRIBUTES = "always_inline|reqd_work_group_size|max_total_threads_per_threadgroup|__\\w+"
_DEFINED = re.compile(
    rf"^(?!typedef|template|using)[\w\[](?:.*?\W)??(?!(?:{_ATTRIBUTES})\b)(\w+)(?:[(\[]| = | \{{)",
    re.MULTILINE,
)
_TYPEDEF = re.compile(r"^typedef .*;$", re.MULTILINE)


class Unit(NamedTuple):
    """A source that `offline.recording` wrote."""

    name: str
    text: str
    options: tuple[str, ...]


def read_unit(path: Path) -> Unit:
    head, text = path.read_text().split("\n", 1)
    return Unit(path.stem, text, tuple(head.removeprefix("// options:").split()))


def read(folder: Path) -> list[Unit]:
    """The units of a folder, by name."""
    return [read_unit(path) for path in sorted(folder.glob("*.txt"))]


def batches(units: Sequence[Unit], nbytes: int) -> Iterator[list[Unit]]:
    """Units of the same options, together up to a size if they are more than one."""
    for options in sorted({unit.options for unit in units}):
        batch: list[Unit] = []
        size = 0
        for unit in units:
            if unit.options == options:
                if batch and size + len(unit.text) > nbytes:
                    yield batch
                    batch, size = [], 0
                batch.append(unit)
                size += len(unit.text)
        yield batch


def definitions(text: str) -> set[str]:
    """The names that a unit defines at file scope, but for types that all have."""
    return set(_DEFINED.findall(text))


def joined(batch: Sequence[Unit]) -> str:
    """One text of several. What each defines gets a name of its own, and messages name the unit."""
    if len(batch) == 1:
        return f'#line 1 "{batch[0].name}"\n{batch[0].text}'
    parts = []
    for number, unit in enumerate(batch):
        names = sorted(definitions(unit.text))
        parts += [f"#define {name} {name}_{number}" for name in names]
        # C before C11 takes a typedef once.
        text = _TYPEDEF.sub("", unit.text) if number else unit.text
        parts += [f'#line 1 "{unit.name}"', text]
        parts += [f"#undef {name}" for name in names]
    return "\n".join(parts)
