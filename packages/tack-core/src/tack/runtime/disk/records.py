"""What lowering read from Python, recorded so that another process can tell whether it still holds.

A record is ``[owner, name, content, index]``: in which owner the name was looked up, what it was
bound to, and, if that is a device function or a module, which owner it is itself (-1 otherwise).
Owners are numbered in the order in which they were met: the kernel, the device functions of its
instances, then those that a record brought in.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tack.lang.bindings import Bindings, Reading, attribute_of
from tack.lang.kernel import Func, Kernel
from tack.runtime.disk.content import Content, value_content

__all__ = ["Owner", "Record", "first_difference", "records_of"]

Owner = Kernel | Func | ModuleType
Record = list[Any]


def _is_own(value: Any) -> bool:
    """Whether a function or module is Tack's, so that Tack's own fingerprint covers it."""
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return isinstance(name, str) and name.partition(".")[0] == "tack"


def records_of(owners: list[Owner], readings: Iterable[Reading]) -> list[Record] | None:
    """The records of a lowering; ``owners`` grows by those that it met.

    None if something that was read has no stable content.
    """
    index: dict[int, int] = {}
    for k, owner in enumerate(owners):
        index.setdefault(id(_key(owner)), k)
    records: list[Record] = []
    seen: set[tuple[int, str]] = set()
    for function, name, value in readings:
        at = index.get(id(function))
        if at is None:
            if _is_own(function):
                continue
            return None
        if (at, name) in seen:
            continue
        seen.add((at, name))
        content = value_content(value)
        if content is None:
            return None
        which = -1
        if isinstance(value, (Func, ModuleType)):
            which = index.setdefault(id(_key(value)), len(owners))
            if which == len(owners):
                owners.append(value)
        records.append([at, name, content, which])
    return records


def _key(value: Owner) -> Any:
    return value if isinstance(value, ModuleType) else value.function


def first_difference(owners: list[Owner], records: Iterable[Record]) -> str | None:
    """The name that no longer means what it did, or None; ``owners`` grows as it did then."""
    bindings: dict[int, Bindings] = {}
    functions: dict[Any, Content] = {}  # several owners may call one
    for at, name, content, which in records:
        owner = owners[at]
        if isinstance(owner, ModuleType):
            value = attribute_of(owner, name)
        else:
            if at not in bindings:
                bindings[at] = Bindings(owner.function)
            value = bindings[at].name(name)
        if not isinstance(value, Func):
            found = value_content(value)
        elif (found := functions.get(value)) is None:
            found = functions[value] = value_content(value)
        if found != content:
            return _label(owner, name)
        if which == len(owners):
            owners.append(value)
        elif which >= 0 and _key(owners[which]) is not _key(value):
            return _label(owner, name)
    return None


def _label(owner: Owner, name: str) -> str:
    return f"{owner.__name__}.{name}"
