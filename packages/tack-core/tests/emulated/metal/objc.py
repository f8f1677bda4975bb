"""The bridge's part of the fake: numbers for objects, and autorelease pools."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

_local = threading.local()


class error(Exception):
    """A call that Objective-C does not know."""


def retain(item: Any) -> Any:
    """An autoreleased object: the innermost pool keeps it."""
    pools = getattr(_local, "pools", None)
    if not pools:
        raise AssertionError("an autoreleased object would never be freed: no pool is open in this thread")
    pools[-1].append(item)
    return item


class autorelease_pool:
    """A ``with`` block that keeps what is autoreleased in it."""

    def __enter__(self) -> None:
        if not hasattr(_local, "pools"):
            _local.pools = []
        _local.pools.append([])

    def __exit__(self, *args: object) -> None:
        _local.pools.pop()


def pyobjc_id(item: Any) -> int:
    """The address of an object."""
    return id(item)


def objc_object(*, c_void_p: Any) -> Any:
    """The object at an address."""
    return ctypes.cast(c_void_p.value, ctypes.py_object).value


class varlist:
    """A pointer to bytes whose number the bridge does not know."""

    def __init__(self, memory: Any, length: int) -> None:
        self._memory = memory
        self._length = length

    def as_buffer(self, count: int) -> memoryview:
        """The first bytes, which share the memory."""
        assert count <= self._length, "a view past the end of a buffer"
        return memoryview(self._memory).cast("B")[:count]
