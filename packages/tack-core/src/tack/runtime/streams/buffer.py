"""Device memory: the pool's for new arrays, anybody's for wrapped ones."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import numpy as np

from tack.runtime.backend import Buffer
from tack.runtime.cpu.memory import format_size
from tack.runtime.streams.driver import DriverError
from tack.runtime.streams.staging import Pinned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.streams.driver import Context, Driver
    from tack.runtime.streams.queue import Queue

__all__ = ["DeviceBuffer", "Pool", "memset", "pattern_unit", "pinned_buffer"]

Taken = TypeVar("Taken")
_SEED: Final = 64 << 10  # bytes of a pattern that the host writes; the device doubles them


class Pool:
    """Where a queue's memory comes from: a pool of ours, or the driver's plain allocations.

    The pool keeps what is freed, so that a program that allocates in a loop does so once.
    """

    __slots__ = ("_peers", "context", "handle")

    def __init__(self, queue: Queue, has_pools: bool) -> None:
        self.context = queue.context
        self._peers = {self.context.ordinal}
        self.handle: Any = None
        if has_pools:
            with queue.entered():
                self.handle = queue.driver.create_pool(self.context.ordinal)
                queue.driver.keep_freed(self.handle)

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None and not self.context.stopped.value:
            # It stays until its last allocation is freed.
            self.context.release(self.context.driver.MemPoolDestroy, self.handle)

    def allocate(self, queue: Queue, nbytes: int) -> int:
        """The address of ``nbytes`` of new memory, at least one. Raises as `retried` does."""
        return self.retried(queue, nbytes, lambda: self._take(queue, nbytes))

    def retried(self, queue: Queue, nbytes: int, take: Callable[[], Taken]) -> Taken:
        """What ``take`` gives of ``nbytes`` of memory, if need be after the pool has given back what is free.

        Raises:
            MemoryError: with the size asked and the size free.
            RuntimeError: it failed for another reason.
        """
        with queue.entered():
            for attempt in range(2):
                try:
                    return take()
                except DriverError as error:
                    if error.code != queue.driver.out_of_memory:
                        raise RuntimeError(f"{queue.label} cannot allocate memory: {error}") from error
                    if attempt == 0:
                        self.trim(queue)
            free, _ = queue.driver.check(queue.driver.MemGetInfo())
        raise MemoryError(
            f"cannot allocate {format_size(nbytes)} on {queue.label}: {format_size(int(free))} is free"
        )

    def _take(self, queue: Queue, nbytes: int) -> int:
        if self.handle is None:
            return int(queue.check(queue.driver.MemAlloc(nbytes)))
        return int(queue.check(queue.driver.MemAllocFromPoolAsync(nbytes, self.handle, queue.stream)))

    def open_to(self, peer: Context) -> None:
        """Lets another device read and write the pool's memory, where the hardware links the two.

        Where that fails too, the driver copies between them by way of the host.
        """
        if peer.ordinal in self._peers or self.handle is None:
            return
        self._peers.add(peer.ordinal)
        driver = self.context.driver
        with contextlib.suppress(DriverError):
            if int(driver.check(driver.DeviceCanAccessPeer(peer.device, self.context.device))):
                driver.open_pool(self.handle, peer.ordinal)

    def trim(self, queue: Queue) -> None:
        """Gives what is free back to the driver."""
        queue.wait()
        if self.handle is not None:
            queue.driver.check(queue.driver.MemPoolTrimTo(self.handle, 0))

    def free(self, queue: Queue, address: int, is_shared: bool = False) -> None:
        """Frees memory after what is queued by now, also by others if it was shared with them."""
        if self.context.stopped.value:
            return
        if self.handle is None or queue.is_closed:
            self.context.release(queue.driver.MemFree, address)  # which waits for the device
        else:
            if is_shared:
                try:
                    queue.follow_default()
                except RuntimeError:
                    default = queue.driver.stream_at(queue.driver.default_stream)
                    self.context.release(queue.driver.StreamSynchronize, default)
            self.context.release(queue.driver.MemFreeAsync, address, queue.stream)


@final
class DeviceBuffer(Buffer):
    """A range of a device's memory, or of memory that the device can address.

    Attributes:
        queue: where its copies and fills are queued.
        is_pinned: whether it is host memory, which the device can address.
        pool: where it, or memory that copies need, comes from.
    """

    __slots__ = ("is_pinned", "pool", "queue")

    def __init__(
        self, queue: Queue, pool: Pool, address: int, nbytes: int, *, owned: bool, owner: object = None
    ) -> None:
        """Memory of the pool, which gets it back in the end, or foreign memory."""
        super().__init__(address, nbytes, owned=owned, owner=owner)
        self.queue = queue
        self.pool = pool
        self.is_pinned = False
        self.foreign = bytearray([not owned])

    def __del__(self) -> None:
        if self.owned and self.address:
            self.pool.free(self.queue, self.address, self.is_foreign)

    def read(self, offset: int, out: NDArray[Any]) -> None:
        self._join()
        if self.is_pinned:
            self.queue.wait()
            ctypes.memmove(out.ctypes.data, self.address + offset, out.nbytes)
        elif out.nbytes:
            self.queue.staging.read(self.queue, out.ctypes.data, self.address + offset, out.nbytes)

    def write(self, offset: int, source: NDArray[Any]) -> None:
        if source.nbytes:
            queue = self.queue
            self._join()
            queue.staging.write(queue, self.address + offset, source.ctypes.data, source.nbytes)
            self._settle()

    def copies_from(self, source: Buffer) -> bool:
        return isinstance(source, DeviceBuffer) and source.queue.driver is self.queue.driver

    def copy(self, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        """See `Buffer.copy`; ``source`` may also be on another device of the driver."""
        if not nbytes:
            return
        assert isinstance(source, DeviceBuffer)
        queue, other = self.queue, source.queue
        to, of = self.address + offset, source.address + source_offset
        with queue.among((other,)):
            self._join()
            source._join(queue)
            if queue.context.ordinal != other.context.ordinal:
                self.pool.open_to(other.context)
                source.pool.open_to(queue.context)
                with queue.entered():
                    peers = queue.context.peer, other.context.peer
                    queue.check(
                        queue.driver.MemcpyPeerAsync(to, peers[0], of, peers[1], nbytes, queue.stream)
                    )
            elif to < of + nbytes and of < to + nbytes and to != of:
                self._copy_overlapping(to, of, nbytes)
            else:
                _copy_within(queue, to, of, nbytes)
        self._settle()
        source._settle()

    def _copy_overlapping(self, to: int, of: int, nbytes: int) -> None:
        temporary = self.pool.allocate(self.queue, nbytes)
        try:
            _copy_within(self.queue, temporary, of, nbytes)
            _copy_within(self.queue, to, temporary, nbytes)
        finally:
            self.pool.free(self.queue, temporary)

    def fill(self, offset: int, count: int, value: np.generic) -> None:
        """Queues the fill: by the driver's own for patterns up to 4 bytes, by doubling for longer ones."""
        if not count:
            return
        queue, at, nbytes = self.queue, self.address + offset, count * value.itemsize
        unit, number = pattern_unit(value.tobytes())
        self._join()
        if unit:
            with queue.entered():
                queue.check(memset(queue.driver, at, unit, number, nbytes, queue.stream))
        else:
            seed = np.full(min(count, max(1, _SEED // value.itemsize)), value)
            queue.staging.write(queue, at, seed.ctypes.data, seed.nbytes)
            done = seed.nbytes
            while done < nbytes:
                size = min(done, nbytes - done)
                _copy_within(queue, at + done, at, size)
                done += size
        self._settle()

    def _join(self, queue: Queue | None = None) -> None:
        """Orders what is queued from now on after others' work on the memory, if they may use it."""
        if self.is_foreign:
            (queue or self.queue).follow_default()

    def _settle(self) -> None:
        """Waits for what was queued, if others may look at the memory."""
        if self.is_foreign:
            self.queue.wait()


def pinned_buffer(queue: Queue, pool: Pool, nbytes: int) -> DeviceBuffer:
    """New host memory that the device can address."""
    block = Pinned(queue, nbytes)
    buffer = DeviceBuffer(queue, pool, block.address, nbytes, owned=False, owner=block)
    buffer.is_pinned = True
    buffer.foreign = None  # nobody else has it
    return buffer


def _copy_within(queue: Queue, to: int, of: int, nbytes: int) -> None:
    with queue.entered():
        queue.check(queue.driver.MemcpyDtoDAsync(to, of, nbytes, queue.stream))


def memset(driver: Driver, address: int, unit: int, number: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
    """Queues a fill with a number of ``unit`` bytes; what the driver says of it."""
    fill = {1: driver.MemsetD8Async, 2: driver.MemsetD16Async, 4: driver.MemsetD32Async}[unit]
    result: tuple[Any, ...] = fill(address, number, nbytes // unit, stream)
    return result


def pattern_unit(pattern: bytes) -> tuple[int, int]:
    """The size of the unit of at most 4 bytes that ``pattern`` repeats, and its number; 0: there is none."""
    for size in (1, 2, 4):
        if len(pattern) % size == 0 and pattern[:size] * (len(pattern) // size) == pattern:
            return size, int.from_bytes(pattern[:size], "little")
    return 0, 0
