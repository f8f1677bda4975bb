"""`Queue`: the stream of a backend, on which launches, copies and fills run in program order."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from tack.runtime.convert import is_integer
from tack.runtime.gpu.failures import failure_message, launched_since
from tack.runtime.streams.driver import NON_BLOCKING, Context, DriverError

if TYPE_CHECKING:
    from tack.runtime.streams.program import StreamProgram
    from tack.runtime.streams.staging import Staging

__all__ = ["Queue", "stream_handle"]

_ROOM: Final = 256  # CUDA takes about a thousand
_NO_TIMING: Final = 2  # CU_EVENT_DISABLE_TIMING, hipEventDisableTiming


class Queue:
    """A stream in a context, and what has to be known of the work that it was given.

    Attributes:
        context: where it is.
        driver: whose calls it makes.
        stream: the driver's handle.
        address: the same as an int.
        label: how messages write the device.
        is_closed: whether the stream is gone: of objects that go together, a queue may be the first.
        launches: how many there were; the native dispatcher counts too.
        waited: the number of the last one that is known to be done; counted there too.
        room: how many the driver takes without making the caller wait.
        programs: the code loaded for it, of which each knows the number of its last launch.
    """

    __slots__ = (
        *("__weakref__", "_borrowed", "_lock", "_retired", "_staging", "address", "context", "driver"),
        *("is_closed", "label", "launches", "programs", "room", "stream", "waited"),
    )

    def __init__(self, context: Context, label: str, stream: Any = None) -> None:
        """With a stream of its own, or the foreign one ``stream``, an object or a handle."""
        self.context = context
        self.driver = context.driver
        self.label = label
        self.is_closed = False
        self.launches, self.waited = ctypes.c_int64(), ctypes.c_int64()
        self.room = _ROOM if stream is None else 0  # others may have filled theirs
        self.programs: WeakSet[StreamProgram] = WeakSet()
        self._borrowed = stream  # kept alive
        self._lock = threading.Lock()
        # A deque, since a finalizer may add to it in the middle of anything.
        self._retired: deque[tuple[Event, Callable[[], None]]] = deque()
        self._staging: Staging | None = None
        with context.entered():
            if stream is None:
                # One that keeps order with the default stream would cost each launch half a microsecond.
                self.stream = self.driver.check(self.driver.StreamCreate(NON_BLOCKING))
            else:
                self.stream = self.driver.stream_at(stream_handle(stream, self.driver.api))
        self.address = int(self.stream)

    def __del__(self) -> None:
        if not hasattr(self, "address") or self.context.stopped.value:
            return
        self.is_closed = True
        self.context.release(self.driver.StreamSynchronize, self.stream)
        for _, release in self._retired:
            release()
        if self._borrowed is None:
            self.context.release(self.driver.StreamDestroy, self.stream)

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Makes the context current, for a ``with`` block.

        Raises:
            RuntimeError: an earlier failure has made it unusable, or this is a forked child.
        """
        if self.context.failure is not None:
            raise RuntimeError(f"{self.context.failure}; the device cannot be used in this process any more")
        self.driver.check_process()
        return self.context.entered()

    # Waiting.

    def wait(self) -> None:
        """Waits for all that is queued. Raises ``RuntimeError`` if something of it failed."""
        last = self.launches.value
        with self.entered():
            try:
                self.driver.check(self.driver.StreamSynchronize(self.stream))
            except DriverError as error:
                raise self.failed(error) from error
            self._note_done(last)
            if self._retired:
                self.collect()

    def marker(self) -> Callable[[], bool]:
        """What tells whether all that is queued by now has been done; it raises as `wait` does."""
        last = self.launches.value
        event = self.record()

        def is_reached() -> bool:
            with self.entered():
                try:
                    done = self.driver.is_done(self.driver.EventQuery(event.handle))
                except DriverError as error:
                    raise self.failed(error) from error
            if done:
                self._note_done(last)
            return done

        return is_reached

    def waiter(self) -> Callable[[], None]:
        """What waits for what is queued by now, not for what comes later; it raises as `wait` does."""
        last = self.launches.value
        event = self.record()

        def wait() -> None:
            with self.entered():
                try:
                    self.driver.check(self.driver.EventSynchronize(event.handle))
                except DriverError as error:
                    raise self.failed(error) from error
            self._note_done(last)

        return wait

    def _note_done(self, last: int) -> None:
        self.waited.value = max(self.waited.value, last)

    def record(self, timed: bool = False) -> Event:
        """An event that happens when all that is queued by now has been done."""
        event = Event(self, timed)
        with self.entered():
            self.check(self.driver.EventRecord(event.handle, self.stream))
        return event

    def elapsed(self, first: Event, last: Event) -> float:
        """The seconds between two timed events; waits for the second."""
        with self.entered():
            self.check(self.driver.EventSynchronize(last.handle))
            milliseconds: float = self.check(self.driver.EventElapsedTime(first.handle, last.handle))
        return milliseconds / 1e3

    def follow(self, other: Queue) -> None:
        """What is queued from now on runs after what ``other`` was given until now."""
        if other is self or (other.address == self.address and other.context is self.context):
            return
        try:
            event = other.record()
            with self.entered():
                self.check(self.driver.StreamWaitEvent(self.stream, event.handle, 0))
        except RuntimeError:  # without order memory would go while it is used, so here the host waits
            other.wait()

    def among(self, queues: Iterable[Queue]) -> contextlib.AbstractContextManager[None]:
        """What is queued in the ``with`` block runs after what other queues were given before it, and before
        what they are given after it, also if it fails on the way.
        """
        others = [queue for queue in queues if queue is not self]
        return self._between(others) if others else contextlib.nullcontext()

    @contextlib.contextmanager
    def _between(self, others: Iterable[Queue]) -> Iterator[None]:
        for other in others:
            self.follow(other)
        try:
            yield
        finally:
            for other in others:
                other.follow(self)

    def lead(self, stream: int) -> None:
        """What is queued on a foreign stream from now on runs after what is queued here by now."""
        event = self.record()
        with self.entered():
            self.check(self.driver.StreamWaitEvent(self.driver.stream_at(stream), event.handle, 0))

    def follow_stream(self, stream: int) -> None:
        """What is queued here from now on runs after what a foreign stream was given until now."""
        if stream != self.address:
            event = Event(self)
            with self.entered():
                self.check(self.driver.EventRecord(event.handle, self.driver.stream_at(stream)))
                self.check(self.driver.StreamWaitEvent(self.stream, event.handle, 0))

    def follow_default(self) -> None:
        """What is queued from now on runs after what the default stream was given until now.

        It is where other libraries write memory that they share with us. A stream of theirs is left as it is.
        """
        if self._borrowed is None:
            self.follow_stream(self.driver.default_stream)

    # Errors.

    def check(self, result: tuple[Any, ...]) -> Any:
        """`Driver.check` for calls that also report what went wrong in the queue before."""
        if not result[0]:
            return result[1] if len(result) == 2 else result[1:]
        error = self.driver.error(int(result[0]))
        raise (self.failed(error) if error.code in self.driver.sticky else error)

    def failed(self, error: DriverError) -> RuntimeError:
        """The error of queued work as users get it, with the kernels that may have caused it."""
        names = launched_since(self.programs, self.waited.value)
        finder = f"{self.driver.blocking} in the environment, or debug mode,"
        message = failure_message(names, self.label, error, finder)
        if error.code in self.driver.sticky:
            self.context.failure = message
            self.context.stopped.value = 1
        return RuntimeError(message)

    # Things that go when what is queued has been done.

    def retire(self, release: Callable[[], None]) -> None:
        """Calls ``release`` some time after all that is queued by now has been done."""
        if self.is_closed:
            release()
            return
        try:
            event = self.record()
        except RuntimeError:
            if not self.context.stopped.value:
                self.context.release(self.driver.StreamSynchronize, self.stream)
                release()
            return
        self._retired.append((event, release))
        self.collect()

    def collect(self) -> None:
        """Releases what is no longer used."""
        for _ in range(len(self._retired)):
            try:
                event, release = self._retired.popleft()
            except IndexError:  # another thread was faster
                return
            if self.driver.EventQuery(event.handle)[0]:
                self._retired.append((event, release))
            else:
                release()

    @property
    def staging(self) -> Staging:
        """The pinned memory that copies between host and device go through."""
        if self._staging is None:
            from tack.runtime.streams.staging import Staging

            with self._lock:
                if self._staging is None:
                    self._staging = Staging(self)
        return self._staging


class Event:
    """A mark in a queue."""

    __slots__ = ("context", "handle")

    def __init__(self, queue: Queue, timed: bool = False) -> None:
        self.context = queue.context
        with queue.entered():
            self.handle = queue.check(queue.driver.EventCreate(0 if timed else _NO_TIMING))

    def __del__(self) -> None:
        if hasattr(self, "handle") and not self.context.stopped.value:
            # It goes at once, or when it has happened.
            self.context.release(self.context.driver.EventDestroy, self.handle)


def stream_handle(stream: Any, api: str) -> int:
    """The handle of a foreign stream: an int, or an object of torch, CuPy, Numba, cuda-python or hip-python.

    Raises:
        TypeError: it is none of these.
        ValueError: the handle is negative.
    """
    found = stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        _, found = protocol() if callable(protocol) else protocol
    else:
        for name in ("cuda_stream", "ptr", "handle"):
            if not is_integer(stream) and hasattr(stream, name):
                found = getattr(stream, name)
                break
    if hasattr(found, "value"):  # a ctypes pointer
        found = found.value or 0
    if isinstance(found, float) or not (is_integer(found) or hasattr(type(found), "__int__")):
        raise TypeError(
            f"a {api} stream is its handle as an int, or an object with __cuda_stream__, .cuda_stream or "
            f".ptr, not {type(stream).__name__}"
        )
    handle = operator.index(found) if is_integer(found) else int(found)
    if not 0 <= handle < 1 << 64:
        raise ValueError(f"{handle} is not the handle of a {api} stream")
    return handle
