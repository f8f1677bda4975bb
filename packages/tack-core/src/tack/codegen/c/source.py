"""What code generation gives to a runtime: the text, and how to launch it."""

from __future__ import annotations

from tack.record import Record

__all__ = ["Geometry", "Source"]


class Geometry(Record):
    """The shape of a launch.

    ``block`` is the number of threads of a block along x, y and z, and ``items`` the number of
    iterations that a thread takes along each. In a ``flat`` grid x covers the row-major linear range
    of the iterations; in another, x covers the last dimension of the loop, y the one before, and so on.
    """

    block: tuple[int, int, int]
    items: tuple[int, int, int]
    flat: bool


class Source(Record):
    """One translation unit.

    ``entry`` is the name of the kernel function and ``result`` that of the one that writes the return
    expression's value, if there is one. ``prints`` says whether they take a print buffer. ``options`` are
    what the compiler is told for this kernel alone.
    """

    text: str
    entry: str
    result: str | None
    geometry: Geometry
    prints: bool
    options: tuple[str, ...]
