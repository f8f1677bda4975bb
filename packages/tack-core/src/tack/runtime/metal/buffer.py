"""Memory that the host and the GPU share: new buffers, reused ones, and those of others."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np

from tack.runtime.backend import Buffer
from tack.runtime.cpu.memory import format_size
from tack.runtime.metal import api
from tack.runtime.metal.queue import host_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.metal.queue import Queue

__all__ = ["MetalBuffer", "Pool"]

_SEED: Final = 64 << 10  # bytes of a pattern that the host writes; the GPU doubles them
_UNIT: Final = 4  # of the offsets and sizes that the GPU copies and fills


class Pool:
    """Where a queue's memory comes from. Large buffers that are freed are kept for the next of their size."""

    __slots__ = ("_free", "_lock", "queue")

    # Bytes from which on freed memory is kept. Not a global: those are None when the last arrays go at exit.
    kept_from: ClassVar[int] = 1 << 20

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._lock = threading.RLock()
        self._free: dict[int, list[tuple[int, Any]]] = {}  # by size: last use, and the MTLBuffer

    def take(self, nbytes: int) -> tuple[Any, bool]:
        """An ``MTLBuffer`` of ``nbytes``, and whether it is new, so that all of its bytes are zero.

        Raises:
            MemoryError: with the size asked and the size free.
        """
        with self._lock:
            kept = self._free.get(nbytes)
            if kept:
                last_use, found = kept.pop()
            else:
                last_use, found = 0, None
        if found is not None:
            if last_use > self.queue.done:
                self.queue.wait(last_use)
            return found, False
        with api.pool():
            return self._make(nbytes), True

    def _make(self, nbytes: int) -> Any:
        device = self.queue.device
        largest = device.maxBufferLength()
        for attempt in range(2 if nbytes <= largest else 0):
            found = device.newBufferWithLength_options_(nbytes, api.metal.MTLResourceStorageModeShared)
            if found is not None:
                return found
            if attempt == 0:
                self.queue.wait()
                self.clear()
        free = max(0, device.recommendedMaxWorkingSetSize() - device.currentAllocatedSize())
        raise MemoryError(
            f"cannot allocate {format_size(nbytes)} on {self.queue.label}: {format_size(free)} is free, "
            f"and an array has at most {format_size(largest)}"
        )

    def give(self, memory: Any, nbytes: int, last_use: int) -> None:
        """Takes back what nobody has any more; queued work may still use it, and keeps it."""
        if nbytes >= self.kept_from:
            with self._lock:
                self._free.setdefault(nbytes, []).append((last_use, memory))

    def clear(self) -> None:
        """Gives what is kept back to Metal."""
        with self._lock:
            self._free.clear()


@final
class MetalBuffer(Buffer):
    """A part of an ``MTLBuffer``.

    Attributes:
        memory: the ``MTLBuffer``; None if there are no bytes.
        start: the part's first byte.
        last_use: the number of the last command buffer that uses it.
        starts_zeroed: see `Buffer`.
    """

    __slots__ = ("_bytes", "_pool", "last_use", "memory", "queue", "start", "starts_zeroed")

    def __init__(
        self,
        queue: Queue,
        memory: Any,
        nbytes: int,
        *,
        start: int = 0,
        pool: Pool | None = None,
        owner: object = None,
        is_new: bool = False,
    ) -> None:
        """``pool``: where the memory goes in the end; without one it is not ours."""
        address, found = 0, np.empty(0, np.uint8)
        if memory is not None:
            with api.pool():
                address = memory.gpuAddress() + start
                found = host_bytes(memory)[start : start + nbytes]
        super().__init__(address, nbytes, owned=pool is not None or memory is None, owner=owner)
        self.queue = queue
        self.memory = memory
        self.start = start
        self.last_use = 0
        self.starts_zeroed = is_new
        self.foreign = bytearray(1) if self.owned else bytearray(b"\1")
        self._pool = pool
        self._bytes = found

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None and not self.is_foreign:
            pool.give(self.memory, self.nbytes, self.last_use)

    def _settled(self) -> NDArray[np.uint8]:
        """The bytes, once what is queued has been done with them."""
        if self.last_use > self.queue.done:
            self.queue.wait(self.last_use)
        return self._bytes

    def _settle(self) -> None:
        """Waits for what was queued, if others may look at the memory."""
        if self.is_foreign:
            self.queue.wait(self.last_use)

    def read(self, offset: int, out: NDArray[Any]) -> None:
        if out.nbytes:
            source = self._settled()[offset : offset + out.nbytes]
            out.reshape(-1).view(np.uint8)[:] = source

    def write(self, offset: int, source: NDArray[Any]) -> None:
        if source.nbytes:
            self.starts_zeroed = False
            self._settled()[offset : offset + source.nbytes] = source.reshape(-1).view(np.uint8)

    def copy(self, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        """See `Buffer.copy`; queued, unless the parts overlap or are no multiples of 4 bytes."""
        if not nbytes:
            return
        assert isinstance(source, MetalBuffer)
        self.starts_zeroed = False
        to, of = self.start + offset, source.start + source_offset
        overlap = self.memory is source.memory and to < of + nbytes and of < to + nbytes
        if overlap or (to | of | nbytes) % _UNIT:
            part = source._settled()[source_offset : source_offset + nbytes]
            self._settled()[offset : offset + nbytes] = part.copy() if overlap else part
            return
        self.queue.blit(
            lambda encoder: encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
                source.memory, of, self.memory, to, nbytes
            ),
            (self, source),
        )
        self._settle()
        source._settle()

    def fill(self, offset: int, count: int, value: np.generic) -> None:
        """Queued, unless the part is no multiple of 4 bytes."""
        if not count:
            return
        self.starts_zeroed = False
        pattern, nbytes, at = value.tobytes(), count * value.itemsize, self.start + offset
        if (at | nbytes) % _UNIT:
            self._settled()[offset : offset + nbytes] = np.frombuffer(pattern * count, np.uint8)
            return
        if pattern == pattern[:1] * len(pattern) and pattern[0] < 128:  # PyObjC takes a signed char
            self.queue.blit(
                lambda encoder: encoder.fillBuffer_range_value_(self.memory, (at, nbytes), pattern[0]),
                (self,),
            )
        else:
            self._fill_by_copies(at, nbytes, pattern)
        self._settle()

    def _fill_by_copies(self, at: int, nbytes: int, pattern: bytes) -> None:
        """A seed from the host, which the GPU doubles."""
        whole = len(pattern) * _UNIT  # so that its copies begin at multiples of the unit
        seed = pattern * (max(1, min(_SEED, nbytes) // whole) * _UNIT)
        with api.pool():
            memory = self.queue.device.newBufferWithBytes_length_options_(
                seed, len(seed), api.metal.MTLResourceStorageModeShared
            )
        if memory is None:
            raise MemoryError(f"{self.queue.label} has no memory for the pattern of a fill")

        def encode(encoder: Any) -> None:
            copy = encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_
            done = min(len(seed), nbytes)
            copy(memory, 0, self.memory, at, done)
            while done < nbytes:
                size = min(done, nbytes - done)
                copy(self.memory, at, self.memory, at + done, size)
                done += size

        self.queue.blit(encode, (self,), memory)
