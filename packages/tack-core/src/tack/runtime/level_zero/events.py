"""Events of a context, which are used again: making one takes longer than the work between two."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING, Final

from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero import driver

if TYPE_CHECKING:
    from tack.runtime.level_zero.driver import Context

__all__ = ["Event", "EventPool"]

_COUNT: Final = 64  # events of one of the driver's pools


class Event:
    """A mark in a queue, which goes back to its pool in the end.

    Attributes:
        handle: the driver's.
        is_queued: whether a command will signal it, or has.
    """

    __slots__ = ("_pool", "handle", "is_queued")

    def __init__(self, pool: EventPool, handle: int) -> None:
        self._pool = pool
        self.handle = handle
        self.is_queued = False

    def __del__(self) -> None:
        self._pool.returned.append((self.handle, self.is_queued))

    def has_happened(self) -> bool:
        """Raises `ZeError`."""
        status = driver.api.status("EventQueryStatus", self.handle)
        if status not in (0, ze.NOT_READY):
            raise ze.ZeError(status, "EventQueryStatus")
        return status == 0


class EventPool:
    """Events that the host can wait for; ``timed``: and ask when they happened."""

    __slots__ = ("_context", "_events", "_flags", "_pools", "returned")

    def __init__(self, context: Context, timed: bool) -> None:
        self._context = context
        self._flags = ze.EVENT_POOL_FLAG_HOST_VISIBLE | (ze.EVENT_POOL_FLAG_KERNEL_TIMESTAMP if timed else 0)
        self._pools: list[int] = []
        self._events: list[int] = []
        # What nobody holds any more, and whether a command signals it: a deque, since finalizers add to it.
        self.returned: deque[tuple[int, bool]] = deque()

    def take(self) -> Event:
        """An event that has not happened. Raises `ZeError`."""
        for _ in range(min(2, len(self.returned))):
            handle, is_queued = self.returned.popleft()
            if not is_queued:
                return Event(self, handle)
            if driver.api.status("EventQueryStatus", handle) == 0:
                event = Event(self, handle)
                event.is_queued = True  # until it is reset
                driver.api.call("EventHostReset", handle)
                event.is_queued = False
                return event
            self.returned.append((handle, is_queued))
        return self._make()

    def _make(self) -> Event:
        context = self._context
        index = len(self._events) % _COUNT
        if len(self._events) == len(self._pools) * _COUNT:
            description = ze.structure(ze.EventPoolDesc, flags=self._flags, count=_COUNT)
            device = ctypes.c_void_p(context.device.handle)
            self._pools.append(
                driver.api.make(
                    *("EventPoolCreate", context.handle, ctypes.byref(description)), 1, ctypes.byref(device)
                )
            )
        scope = ze.EVENT_SCOPE_FLAG_HOST
        of = ze.structure(ze.EventDesc, index=index, signal=scope, wait=scope)
        handle = driver.api.make("EventCreate", self._pools[-1], ctypes.byref(of))
        self._events.append(handle)
        return Event(self, handle)

    def close(self) -> None:
        """Destroys all of them; no command signals one any more."""
        for handle in self._events:
            driver.api.status("EventDestroy", handle)
        for handle in self._pools:
            driver.api.status("EventPoolDestroy", handle)
        self._events.clear()
        self._pools.clear()
