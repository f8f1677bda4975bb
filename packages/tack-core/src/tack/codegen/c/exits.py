"""Ways out of loops and blocks in a language without ``goto``: flags that what lies in between looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tack.codegen.c.emitter import Emitter

__all__ = ["Exits"]


class _Target:
    """A loop, or a block of its ``label``, which is written as a loop that runs once."""

    def __init__(self, label: str | None) -> None:
        self.label = label
        self.flags: dict[str, str] = {}  # what is done here, and the flag that says so
        self.passing: list[tuple[_Target, str]] = []  # the ways out through here that are used


class Exits:
    """What encloses the statement that is being written, from the outside in."""

    def __init__(self) -> None:
        self._targets: list[_Target] = []
        self._count = 0

    @contextmanager
    def target(self, fn: Emitter, head: str, label: str | None = None) -> Iterator[None]:
        """The body of a loop with this ``head``, or with a ``label`` of a block."""
        target = _Target(label)
        self._targets.append(target)
        with fn.braces(head, "" if label is None else " while (false);"):
            start = fn.position
            yield
            for flag in target.flags.values():
                fn.insert(start, f"bool {flag} = false;")
        self._targets.pop()
        for to, action in target.passing:
            with fn.braces(f"if ({to.flags[action]})"):
                self._go(fn, to, action)

    def leave(self, fn: Emitter, action: str, label: str | None = None) -> None:
        """Writes a ``"break"`` or ``"continue"`` of the innermost loop, or a break of the block ``label``."""
        to = next(t for t in reversed(self._targets) if t.label == label)
        if to is not self._targets[-1]:
            if action not in to.flags:
                to.flags[action] = f"tack_exit{self._count}"
                self._count += 1
            fn.line(f"{to.flags[action]} = true;")
        self._go(fn, to, action)

    def _go(self, fn: Emitter, to: _Target, action: str) -> None:
        """Ends ``to``, or what is inside it and looks at the flag when it has ended."""
        innermost = self._targets[-1]
        if innermost is to:
            fn.line(f"{action};")
            return
        if (to, action) not in innermost.passing:
            innermost.passing.append((to, action))
        fn.line("break;")
