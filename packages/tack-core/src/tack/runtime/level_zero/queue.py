"""`Queue`: the command list of a backend, on which launches, copies and fills run in program order."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from tack.runtime.gpu.failures import failure_message, launched_since
from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero import driver
from tack.runtime.level_zero.api import ZeError
from tack.runtime.level_zero.events import Event, EventPool

if TYPE_CHECKING:
    from tack.runtime.level_zero.driver import Context, Features
    from tack.runtime.level_zero.program import ZeProgram
    from tack.runtime.level_zero.staging import Staging

__all__ = ["Queue"]

_FOREVER: Final = (1 << 64) - 1


class Queue:
    """An asynchronous immediate command list, in which a barrier follows each command.

    Commands are numbered. ``_appended`` is the number of the last one, ``_done`` that of the last one known
    to be done: so it is known whether something may still be used.

    Attributes:
        context: where it is.
        features: of its device.
        label: how messages write the device.
        lock: held while a command is put together, whose parts belong to the list or to a kernel.
        programs: the code loaded for it.
    """

    __slots__ = (
        *("__weakref__", "_appended", "_done", "_is_ordered", "_list", "_mark", "_pools", "_retired"),
        *("_staging", "context", "features", "label", "lock", "programs"),
    )

    def __init__(self, context: Context, features: Features, label: str) -> None:
        self.context = context
        self.features = features
        self.label = label
        self.lock = threading.RLock()
        self.programs: WeakSet[ZeProgram] = WeakSet()
        # A deque, since a finalizer may add to it in the middle of anything.
        self._retired: deque[tuple[int, Callable[[], None]]] = deque()
        self._staging: Staging | None = None
        self._appended = self._done = 0
        self._is_ordered = True  # whether a barrier follows the last command
        self._mark: tuple[int, Event] | None = None  # one that `collect` waits for
        self._pools = {timed: EventPool(context, timed) for timed in (False, True)}
        description = ze.structure(
            ze.QueueDesc, ordinal=features.queue_group, mode=ze.COMMAND_QUEUE_MODE_ASYNCHRONOUS
        )
        device = context.device.handle
        self._list = driver.api.make(
            "CommandListCreateImmediate", context.handle, device, ctypes.byref(description)
        )

    def __del__(self) -> None:
        if not hasattr(self, "_list") or self.context.is_stopped:
            return
        try:
            self.wait()
        except RuntimeError:
            return  # what is in flight must not be freed
        self._mark = None
        for pool in self._pools.values():
            pool.close()
        driver.api.status("CommandListDestroy", self._list)

    # Commands.

    def append(self, command: str, *args: Any) -> None:
        """Queues a command: the function ``zeCommandListAppend<command>``, without the events."""
        with self.lock:
            self.context.check_usable()
            self._order()
            self._appended += 1  # before the call, so that whoever looks meanwhile counts it
            self._call(f"CommandListAppend{command}", *args, None, 0, None)
            self._is_ordered = False
            self._order()

    def _order(self) -> None:
        """Appends the barrier that orders what follows after the last command."""
        if not self._is_ordered:
            self._call("CommandListAppendBarrier", None, 0, None)
            self._is_ordered = True

    def _call(self, function: str, *args: Any) -> None:
        try:
            driver.api.call(function, self._list, *args)
        except ZeError as error:
            raise (self.failed(error) if error.code in driver.STICKY else error) from None

    @property
    def number(self) -> int:
        """That of the last command."""
        return self._appended

    def record(self, timed: bool = False) -> Event:
        """An event that happens when all that is queued by now has been done."""
        with self.lock:
            self.context.check_usable()
            event = self._pools[timed].take()
            self._appended += 1
            self._call("CommandListAppendBarrier", event.handle, 0, None)
            event.is_queued = True
            self._is_ordered = True
            return event

    # Waiting.

    def wait(self) -> None:
        """Waits for all that is queued. Raises ``RuntimeError`` if something of it failed."""
        with self.lock:
            self.context.check_usable()
            event = None if self._is_done else self.record()
            number = self._appended
        if event is not None:
            self.wait_for(event)
            self._reached(number)
        self.collect()

    @property
    def _is_done(self) -> bool:
        """Whether it is known that nothing is queued."""
        return self._appended == self._done and self._is_ordered

    @contextlib.contextmanager
    def among(self, queues: Iterable[Queue]) -> Iterator[None]:
        """What is queued in the block runs after what other queues were given before it, and before what
        they are given after it, also if it fails on the way. The host waits.
        """
        others = [queue for queue in queues if queue is not self]
        for other in others:
            other.wait()
        try:
            yield
        finally:
            if others:
                self.wait()

    def wait_for(self, event: Event) -> None:
        """Waits for an event that has been recorded."""
        try:
            driver.api.call("EventHostSynchronize", event.handle, _FOREVER)
        except ZeError as error:
            raise self.failed(error) from error

    def marker(self) -> Callable[[], bool]:
        """What tells whether all that is queued by now has been done; it raises as `wait` does."""
        with self.lock:
            self.context.check_usable()
            if self._is_done:
                return lambda: True
            event = self.record()
            number = self._appended
        return lambda: self._has_happened(number, event)

    def _has_happened(self, number: int, event: Event) -> bool:
        self.context.check_usable()
        try:
            done = event.has_happened()
        except ZeError as error:
            raise self.failed(error) from error
        if done:
            self._reached(number)
        return done

    def _reached(self, number: int) -> None:
        self._done = max(self._done, number)

    def elapsed(self, first: Event, last: Event) -> float:
        """The seconds between two timed events; waits for the second."""
        self.wait_for(last)
        spans = []
        for event in (first, last):
            found = ze.TimestampResult()
            driver.api.call("EventQueryKernelTimestamp", event.handle, ctypes.byref(found))
            spans.append(found.global_)
        ticks = (spans[1].kernelStart - spans[0].kernelEnd) % (1 << self.features.clock)
        return float(ticks * self.features.tick / 1e9)

    # Errors.

    def failed(self, error: ZeError) -> RuntimeError:
        """The error of queued work as users get it, with the kernels that may have caused it."""
        names = launched_since(self.programs, self._done)
        message = failure_message(names, self.label, error, "debug mode")
        if error.code in driver.STICKY:
            self.context.failure = message
            self.context.is_stopped = True
        return RuntimeError(message)

    # Things that go when what is queued has been done.

    def retire(self, release: Callable[[], None]) -> None:
        """Calls ``release`` some time after all that is queued by now has been done."""
        self._retired.append((self._appended, release))
        # A finalizer may run in the middle of anything, also where another thread has to go on first.
        if self.lock.acquire(blocking=False):
            try:
                self.collect()
            finally:
                self.lock.release()

    def collect(self) -> None:
        """Releases what is no longer used."""
        if self.context.is_stopped:
            self._retired.clear()
            return
        with self.lock:
            if self._retired and self._retired[-1][0] > self._done:
                self._look()
            while self._retired and self._retired[0][0] <= self._done:
                self._retired.popleft()[1]()

    def _look(self) -> None:
        """Sees how far the device is, by one event at a time."""
        try:
            if self._mark is None or self._mark[0] <= self._done:  # whoever waited knows more
                event = self.record()
                self._mark = self._appended, event
            number, event = self._mark
            if event.has_happened():
                self._reached(number)
                self._mark = None
        except RuntimeError:  # the next call that waits has the error
            self._mark = None

    @property
    def staging(self) -> Staging:
        """The host memory that copies between host and device go through."""
        with self.lock:
            if self._staging is None:
                from tack.runtime.level_zero.staging import Staging

                self._staging = Staging(self)
            return self._staging
