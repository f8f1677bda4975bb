"""Pinned host memory through which copies between host and device go.

A copy from memory that is not pinned may return before the driver has read it, and is slow. So each
copy goes through a ring of pinned blocks: the host fills one while the device reads another.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tack.runtime.streams.queue import Event, Queue

__all__ = ["Pinned", "Staging"]

_PORTABLE: Final = 1  # to all devices: CU_MEMHOSTALLOC_PORTABLE, hipHostMallocPortable
_BLOCK: Final = 4 << 20  # bytes
_BLOCKS: Final = 4
_ALIGNMENT: Final = 64
_DIRECT: Final = 64 << 10  # reads up to this size go without staging


class Pinned:
    """Host memory that devices can address, for copies and as it is."""

    __slots__ = ("address", "context")

    def __init__(self, queue: Queue, nbytes: int) -> None:
        self.context = queue.context
        with queue.entered():
            found = queue.check(queue.driver.MemHostAlloc(nbytes, _PORTABLE))
        self.address = int(found)

    def __del__(self) -> None:
        if hasattr(self, "address") and not self.context.stopped.value:
            # It waits for the copies that use it.
            self.context.release(self.context.driver.MemFreeHost, self.address)


class _Block(Pinned):
    """How much of a block is taken, and the event after which that is free again."""

    __slots__ = ("event", "used")

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, _BLOCK)
        self.used = 0
        self.event: Event | None = None


class Staging:
    """The blocks of one queue. Any thread may copy; their parts take turns."""

    def __init__(self, queue: Queue) -> None:
        self._context = queue.context
        self._blocks: list[_Block] = []
        self._at = 0
        self._lock = threading.RLock()

    def write(self, queue: Queue, target: int, source: int, nbytes: int) -> None:
        """Queues a copy from host memory, which may change as soon as this returns."""
        driver = queue.driver
        done = 0
        with self._lock, queue.entered():
            while done < nbytes:
                block, size = self._room(queue, nbytes - done)
                at = block.address + block.used
                block.used += -(-size // _ALIGNMENT) * _ALIGNMENT
                ctypes.memmove(at, source + done, size)
                queue.check(driver.MemcpyHtoDAsync(target + done, at, size, queue.stream))
                done += size

    def _room(self, queue: Queue, wanted: int) -> tuple[_Block, int]:
        """A block with room, and how much of it to use."""
        if not self._blocks:
            self._blocks.append(_Block(queue))
        block = self._blocks[self._at]
        if block.used >= _BLOCK:
            block.event = queue.record()
            self._at = (self._at + 1) % _BLOCKS
            if self._at == len(self._blocks):
                self._blocks.append(_Block(queue))
            block = self._blocks[self._at]
            if block.event is not None:
                queue.check(queue.driver.EventSynchronize(block.event.handle))
            block.event, block.used = None, 0
        return block, min(wanted, _BLOCK - block.used)

    def read(self, queue: Queue, target: int, source: int, nbytes: int) -> None:
        """Copies to host memory, after what is queued by now."""
        driver = queue.driver
        if nbytes <= _DIRECT:
            with queue.entered():
                queue.check(driver.MemcpyDtoHAsync(target, source, nbytes, queue.stream))
            queue.wait()
            return
        with self._lock, queue.entered():
            pending: list[tuple[_Block, Event, int, int]] = []
            for start, size in _parts(nbytes):
                if len(pending) == 2:
                    _finish(queue, target, pending.pop(0))
                block = self._fresh(queue)
                queue.check(driver.MemcpyDtoHAsync(block.address, source + start, size, queue.stream))
                pending.append((block, queue.record(), start, size))
            for part in pending:
                _finish(queue, target, part)
        queue.wait()  # for the error of a launch before

    def _fresh(self, queue: Queue) -> _Block:
        """A whole block, marked as taken."""
        if self._blocks:
            self._blocks[self._at].used = _BLOCK
        block, _ = self._room(queue, _BLOCK)
        block.used = _BLOCK
        return block


def _parts(nbytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, nbytes, _BLOCK):
        yield start, min(_BLOCK, nbytes - start)


def _finish(queue: Queue, target: int, part: tuple[Any, Event, int, int]) -> None:
    block, event, start, size = part
    queue.check(queue.driver.EventSynchronize(event.handle))
    ctypes.memmove(target + start, block.address, size)
