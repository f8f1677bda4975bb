"""The native dispatcher, `tack._native`, or what stands in for it where it is not installed.

It is optional: `ArrayBase` and `KernelBase` are then plain Python classes, and every call takes the
Python path, `Kernel._call`, which defines what a call does. `tack.runtime.learn` turns it on, with the first
call that is worth learning.
"""

from __future__ import annotations

import contextlib
import os
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tack.runtime import settings

__all__ = [
    "ArrayBase",
    "KernelBase",
    "is_wanted",
    "module",
    "note_entered",
    "pause",
    "resume",
    "set_debug",
    "set_default",
    "start",
]

# The extension, or None; ``missing`` then says why.
module: ModuleType | None
missing: str | None = None
works: bool | None = None  # whether it has passed its self-check; None: not tried yet
_paused = 0  # how many profiles want to see each call
# Held while the first lesson imports what it needs, and by forks, whose child would wait for that for ever.
_starting = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
    )

try:
    from tack import _native as module
except ImportError as error:
    from importlib.util import find_spec

    module = None
    if find_spec("tack._native") is None:
        missing = "it is not installed; a C compiler and Python.h are needed when Tack is"
    else:
        missing = f"it does not load: {error}"

if TYPE_CHECKING:
    from tack._native import ArrayBase, KernelBase
elif module is not None:
    ArrayBase, KernelBase = module.ArrayBase, module.KernelBase
else:

    class ArrayBase:
        """The base of `Array`."""

        __slots__ = ()

        def _describe(self, *_: Any) -> None:
            """Tells C what dispatch reads of the array."""

    class KernelBase:
        """The base of `Kernel`."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self._call(*args, **kwargs)

        def _set_params(self, *_: Any) -> None:
            """Tells C how to bind positional arguments."""

        def _set_defaults(self, *_: Any) -> None:
            """Tells C how to bind others."""


def is_wanted() -> bool:
    """Whether ``TACK_DISPATCH`` lets calls be dispatched natively.

    Raises:
        ValueError: it has a bad value.
    """
    return settings.choice("TACK_DISPATCH", ("native", "python"), "native") == "native"


def start() -> None:
    """Makes native dispatch ready, if it is there and wanted. Raises as `is_wanted` does."""
    wanted = is_wanted() and not _paused
    if module is not None:
        module.arm(_learn if wanted and works is not False else None)
        module.enable(wanted and works is True)


def pause() -> None:
    """Leaves all calls to Python until `resume` has been called as often."""
    global _paused
    _paused += 1
    if module is not None:
        module.arm(None)
        module.enable(False)


def resume() -> None:
    global _paused
    _paused -= 1
    if not _paused:
        with contextlib.suppress(ValueError):  # every call raises that
            start()


def _learn(*call: Any) -> None:
    with _starting:
        from tack.runtime.learn import learn  # which the first calls do without

        if module is not None:
            module.arm(learn)
        learn(*call)


def set_debug(on: bool) -> None:
    """Says that debug mode is now on or off, whatever the environment says."""
    if module is not None:
        module.set_debug(int(on))


def set_default(serial: int) -> None:
    """Says which backend is the process's default; -1: that has to be asked for."""
    if module is not None:
        module.set_default(serial)


def note_entered() -> None:
    """Says that from now on a thread or task may have a default device of its own."""
    if module is not None:
        module.note_entered()
