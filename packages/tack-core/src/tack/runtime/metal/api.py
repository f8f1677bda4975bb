"""Apple's Metal through PyObjC: the modules, the default device, and what it can do."""

from __future__ import annotations

import atexit
import os
import platform
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tack.runtime.metal.queue import Queue

__all__ = ["Error", "check_process", "describe_error", "metal", "objc", "pool", "queues", "start"]

metal: Any = None  # the modules, once the backend has started
objc: Any = None
queues: Final[weakref.WeakSet[Queue]] = weakref.WeakSet()
_forked = False


class Error(RuntimeError):
    """What Metal says of something that it refuses."""


def start() -> Any:
    """The default ``MTLDevice``.

    Raises:
        RuntimeError: there is none, or none that can run what Tack generates.
    """
    global metal, objc
    check_process()
    if metal is None:
        try:
            import Metal
            import objc as bridge
        except ImportError as error:
            where = "" if platform.system() == "Darwin" else ", which exists on macOS only,"
            raise RuntimeError(
                f"the package pyobjc-framework-Metal{where} is not installed or does not load"
            ) from error
        metal, objc = Metal, bridge
        os.register_at_fork(after_in_child=_note_fork)
        atexit.register(_finish)
    device = metal.MTLCreateSystemDefaultDevice()
    if device is None:
        raise RuntimeError("Metal finds no GPU; a process without a login session sees none")
    if not device.supportsFamily_(metal.MTLGPUFamilyMetal3):
        raise RuntimeError(
            f"{device.name()} lacks Metal 3, of macOS 13 and GPUs since 2017, which Tack needs"
        )
    return device


@contextmanager
def pool() -> Iterator[None]:
    """For a ``with`` block: what its calls return and nobody keeps goes at its end, in any thread.

    What Objective-C throws in it is an `Error`.
    """
    try:
        with objc.autorelease_pool():
            yield
    except objc.error as error:
        raise Error(f"Metal refuses a call: {error}") from error


def check_process() -> None:
    """Raises ``RuntimeError`` in a forked child, where the driver's state is not usable."""
    if _forked:
        raise RuntimeError(
            "Metal was in use when this process was forked, and does not work in the child; "
            'start processes with multiprocessing.get_context("spawn")'
        )


def describe_error(error: Any) -> str:
    """The text of an ``NSError``."""
    return "no reason is given" if error is None else str(error.localizedDescription())


def _note_fork() -> None:
    global _forked
    _forked = True


def _finish() -> None:
    """Lets work end that is queued, since an encoder must not go while it is open."""
    if not _forked:
        for queue in list(queues):
            queue.close()
