"""What a name in a kernel's source is bound to, by dictionary look-ups only.

Everything that lowering reads from Python beyond the source text goes through `Bindings`, so
that one place can record it for a cache: see `recorded`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["UNBOUND", "Bindings", "Reading", "attribute_of", "recorded"]

UNBOUND: Any = object()


# One look-up: the function whose name, or the module whose attribute was read; the name; its value.
Reading = tuple[FunctionType | ModuleType, str, Any]


_readings: ContextVar[list[Reading] | None] = ContextVar("readings", default=None)


@contextmanager
def recorded() -> Iterator[list[Reading]]:
    """Collects every look-up made inside, in order."""
    readings: list[Reading] = []
    token = _readings.set(readings)
    try:
        yield readings
    finally:
        _readings.reset(token)


def attribute_of(module: ModuleType, name: str) -> Any:
    """The attribute ``name`` of a module, or `UNBOUND`; no code of the module runs.

    Tack's own modules load some parts when first used, so those are asked with ``getattr``.
    """
    if module.__name__.partition(".")[0] == "tack":
        return getattr(module, name, UNBOUND)
    return vars(module).get(name, UNBOUND)


class Bindings:
    """The closure and globals of one function."""

    __slots__ = ("_cells", "_globals", "function")

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._globals = function.__globals__

    def name(self, name: str) -> Any:
        """The object that ``name`` is bound to, or `UNBOUND`."""
        value = self._name(name)
        readings = _readings.get()
        if readings is not None:
            readings.append((self.function, name, value))
        return value

    def _name(self, name: str) -> Any:
        cell = self._cells.get(name)
        if cell is not None:
            try:
                return cell.cell_contents
            except ValueError:  # assigned later in the enclosing function
                return UNBOUND
        if name in self._globals:
            return self._globals[name]
        return getattr(builtins, name, UNBOUND)

    def attribute(self, owner: Any, name: str) -> Any:
        """The attribute ``name`` of ``owner``, or `UNBOUND`, also where ``owner`` is no module."""
        if not isinstance(owner, ModuleType):
            return UNBOUND
        value = attribute_of(owner, name)
        readings = _readings.get()
        if readings is not None:
            readings.append((owner, name, value))
        return value

    def dotted(self, names: list[str]) -> Any:
        """What a dotted name means, or `UNBOUND`. For annotations, which no recording includes.

        What an annotation says is part of a function's content instead.
        """
        token = _readings.set(None)
        try:
            value = self.name(names[0])
            for name in names[1:]:
                value = self.attribute(value, name)
        finally:
            _readings.reset(token)
        return value

    def names(self) -> list[str]:
        """The names in reach, for suggestions."""
        return [*self._cells, *self._globals]
