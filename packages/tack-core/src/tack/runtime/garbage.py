"""No garbage collection while something compiles.

A compile makes tens of thousands of objects that all stay, so that looking for garbage among them, and
sometimes in the whole process, finds none. It took a tenth of the time.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]

_lock = threading.RLock()  # a signal handler may compile something
_under_way = 0  # blocks that threads are in
_resumes = False  # whether the last one to end turns collection on


@contextmanager
def uncollected() -> Iterator[None]:
    """Turns garbage collection off for a block, unless it is off; blocks may nest and overlap in time."""
    global _under_way, _resumes
    entered = False
    try:
        with _lock:
            if not _under_way and gc.isenabled():
                _resumes = True
                gc.disable()
            _under_way += 1
            entered = True  # or Ctrl-C came before
        yield
    finally:
        with _lock:
            _under_way -= entered
            if not _under_way:
                _resume()


def _resume() -> None:
    global _resumes
    if _resumes:
        _resumes = False
        gc.enable()


def _after_fork() -> None:
    """The threads that were in such blocks are the parent's."""
    global _lock, _under_way
    _lock, _under_way = threading.RLock(), 0
    _resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
