"""Work for later, which one thread in the background does unless somebody needs it earlier.

The thread ends when nothing is left. Before a fork what is under way is finished, since the child would have
half of it; what waits, both processes do. At the end of the interpreter all is finished if the disk cache
keeps it, and else what is under way.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from tack.runtime.disk.store import store

__all__ = ["Job", "finish_all", "resume", "submit"]


class Job:
    """Something that is done once, by the thread for it or by one that needs it now."""

    __slots__ = ("_error", "_lock", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._error: Exception | None = None
        self._lock = threading.RLock()  # a signal handler may ask for what it interrupts

    def finish(self) -> None:
        """Returns when it is done, and raises what that raised."""
        self.wait()
        self.check()

    def wait(self) -> None:
        """Returns when it is done, also if it raised something.

        Within the work itself, as in a signal handler, it returns at once.
        """
        with _counted():
            self._run()

    def check(self) -> None:
        """Raises what it raised, if it is done: a copy, since what is raised keeps the frames on its way."""
        if self._error is not None:
            from copy import copy

            raise copy(self._error)

    def _run(self) -> None:
        with self._lock:
            work, self._work = self._work, None
            if work is None:
                return
            try:
                work()
            except Exception as error:  # kept without its frames: a launch that did the work is among them
                error.__cause__ = error.__context__ = None
                self._error = error.with_traceback(None)
            except BaseException:  # Ctrl-C
                self._work = work
                raise


# Of all below. The `with` of a condition is Python, where Ctrl-C could leave it held.
_lock = threading.RLock()
_state = threading.Condition(_lock)
_queue: Final[deque[Job]] = deque()
_busy: Final[list[int]] = []  # the threads that are at a job
_forks = 0  # that wait for those
_thread: threading.Thread | None = None
_closed = False
_held: contextlib.AbstractContextManager[object] = contextlib.nullcontext()  # during a fork


def submit(job: Job) -> None:
    """Has a job done in the background, unless the interpreter is about to end."""
    with _lock:
        if not _closed:
            _queue.append(job)
    resume()


def finish_all() -> None:
    """Returns when nothing is left to do."""
    while _do_next():
        pass
    with _lock:
        _state.wait_for(_others_are_idle)


def resume() -> None:
    """Starts the thread if there is something for it to do: after a fork there is none."""
    global _thread
    if not _queue or _thread is not None:
        return
    with _lock:
        if _thread is None and not _closed:
            _thread = threading.Thread(target=_work, name="tack-optimize", daemon=True)
            try:
                _thread.start()
            except RuntimeError:  # no more threads: a launch that needs it does it
                _thread = None


def _work() -> None:
    global _thread
    while _do_next():
        pass
    with _lock:
        _thread = None
    resume()  # what came in between


def _do_next() -> bool:
    """Does the job that waits longest; whether there was one."""
    with _lock:
        if not _queue:
            return False
        _enter()
        job = _queue.popleft() if _queue else None
    try:
        if job is not None:
            job._run()
    finally:
        _leave()
    return True


@contextlib.contextmanager
def _counted() -> Iterator[None]:
    with _lock:
        _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    _state.wait_for(lambda: not _forks)
    _busy.append(threading.get_ident())


def _leave() -> None:
    with _lock:
        _busy.remove(threading.get_ident())
        _state.notify_all()


def _others_are_idle() -> bool:
    return all(thread == threading.get_ident() for thread in _busy)


# --- the end of the interpreter, and forks ---------------------------------------------------------


@atexit.register
def _close() -> None:
    global _closed
    with _lock:
        _closed = True
        if not (_queue and store().writes):
            _queue.clear()
    try:
        finish_all()
    finally:  # LLVM must not run while the process takes it down
        with _lock:
            _queue.clear()
            _state.wait_for(_others_are_idle)


def _llvm_lock() -> contextlib.AbstractContextManager[object]:
    """What llvmlite holds around its calls of LLVM, also where a thread ends or drops something."""
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    lock: contextlib.AbstractContextManager[object] | None = getattr(library, "_lock", None)
    return contextlib.nullcontext() if lock is None else lock


def _before_fork() -> None:
    global _forks, _held
    _state.acquire()
    _forks += 1
    _state.wait_for(_others_are_idle)
    _held = _llvm_lock()
    _held.__enter__()


def _after_fork_in_parent() -> None:
    global _forks
    _held.__exit__(None, None, None)
    _forks -= 1
    _state.notify_all()
    _state.release()


def _after_fork_in_child() -> None:
    global _forks, _lock, _state, _thread
    _held.__exit__(None, None, None)
    _lock = threading.RLock()
    _forks, _state, _thread = 0, threading.Condition(_lock), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
