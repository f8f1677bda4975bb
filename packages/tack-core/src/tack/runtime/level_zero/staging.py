"""Host memory of the context, through which copies between host and device go.

The device may not be able to address other host memory, and copies are asynchronous. So each copy goes
through a ring of blocks: the host fills one while the device reads another.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Final

from tack.runtime.level_zero.memory import HostMemory

if TYPE_CHECKING:
    from tack.runtime.level_zero.events import Event
    from tack.runtime.level_zero.queue import Queue

__all__ = ["Staging"]

_BLOCK: Final = 4 << 20  # bytes
_BLOCKS: Final = 3
_ALIGNMENT: Final = 64


class _Block:
    """A block, how much of it is taken, and the event after which that is free again."""

    __slots__ = ("event", "memory", "used")

    def __init__(self, queue: Queue) -> None:
        self.memory = HostMemory(queue, _BLOCK)
        self.used = 0
        self.event: Event | None = None


class Staging:
    """The blocks of one queue. Any thread may copy; their parts take turns."""

    __slots__ = ("_at", "_blocks", "_lock")

    def __init__(self, queue: Queue) -> None:
        self._blocks: list[_Block] = []
        self._at = 0
        self._lock = threading.RLock()

    def write(self, queue: Queue, target: int, source: int, nbytes: int) -> None:
        """Queues a copy from host memory, which may change as soon as this returns."""
        done = 0
        with self._lock:
            while done < nbytes:
                block = self._with_room(queue)
                size = min(nbytes - done, _BLOCK - block.used)
                at = block.memory.address + block.used
                block.used += -(-size // _ALIGNMENT) * _ALIGNMENT
                ctypes.memmove(at, source + done, size)
                queue.append("MemoryCopy", target + done, at, size)
                done += size

    def read(self, queue: Queue, target: int, source: int, nbytes: int) -> None:
        """Copies to host memory, after what is queued: a part travels while the one before is taken."""
        with self._lock:
            before: tuple[_Block, int, int, int] | None = None
            for start in range(0, nbytes, _BLOCK):
                size = min(nbytes - start, _BLOCK)
                block = self._with_room(queue, size)
                at = block.memory.address + block.used
                queue.append("MemoryCopy", at, source + start, size)
                block.used += size
                if before is not None:
                    _take(queue, *before)
                block.event = queue.record()
                before = block, target + start, at, size
            if before is not None:
                _take(queue, *before)
        queue.wait()  # for the error of a launch before

    def _with_room(self, queue: Queue, size: int = 1) -> _Block:
        """A block with at least ``size`` bytes of room, and nothing in flight behind what is taken."""
        if not self._blocks:
            self._blocks.append(_Block(queue))
        block = self._blocks[self._at]
        block.used = -(-block.used // _ALIGNMENT) * _ALIGNMENT
        if block.used + size > _BLOCK:
            block.event = queue.record()
            after = (self._at + 1) % _BLOCKS
            if after == len(self._blocks):
                self._blocks.append(_Block(queue))
            self._at = after
            block = self._blocks[after]
            if block.event is not None:
                queue.wait_for(block.event)
            block.event, block.used = None, 0
        return block


def _take(queue: Queue, block: _Block, target: int, source: int, size: int) -> None:
    assert block.event is not None
    queue.wait_for(block.event)
    ctypes.memmove(target, source, size)
