"""What users are told of queued work that failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

__all__ = ["failure_message", "launched_since"]

_SHOWN: Final = 4  # kernels that a message names


class _Launched(Protocol):
    """Code that knows when it was launched last, by any clock that goes on."""

    @property
    def name(self) -> str: ...

    @property
    def launched(self) -> int: ...


def launched_since(programs: Iterable[_Launched], when: int) -> list[str]:
    """The names of the kernels launched after ``when``, in their order."""
    recent = [p for p in list(programs) if p.launched > when]
    return list(dict.fromkeys(p.name for p in sorted(recent, key=lambda p: p.launched)))


def failure_message(names: Sequence[str], label: str, error: object, finder: str) -> str:
    """The message for an error that one of the kernels ``names`` caused; ``finder`` tells which."""
    if len(names) == 1:
        what = f"Kernel '{names[0]}' failed on {label}"
    elif names:
        shown = ", ".join(f"'{name}'" for name in names[-_SHOWN:])
        dots = "…, " if len(names) > _SHOWN else ""
        what = f"One of the kernels {dots}{shown} failed on {label}"
    else:
        what = f"Queued work failed on {label}"
    return f"{what}: {error}" + (f"; {finder} tells which" if len(names) > 1 else "")
