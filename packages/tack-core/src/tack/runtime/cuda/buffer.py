"""Device memory: the pool's for new arrays, anybody's for wrapped ones."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tack.runtime.backend import Buffer
from tack.runtime.cpu.memory import format_size
from tack.runtime.cuda import driver
from tack.runtime.cuda.driver import CudaError, check
from tack.runtime.cuda.staging import Pinned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.cuda.driver import Context
    from tack.runtime.cuda.queue import Queue

__all__ = ["CudaBuffer", "Pool", "memset", "pattern_unit", "pinned_buffer"]

_SEED: Final = 64 << 10  # bytes of a pattern that the host writes; the device doubles them


class Pool:
    """Where a queue's memory comes from: a pool of ours, or the driver's plain allocations.

    The pool keeps what is freed, so that a program that allocates in a loop does so once.
    """

    __slots__ = ("_peers", "context", "handle")

    def __init__(self, queue: Queue, has_pools: bool) -> None:
        cu = driver.cu
        self.context = queue.context
        self._peers = {self.context.ordinal}
        self.handle: Any = None
        if has_pools:
            properties = cu.CUmemPoolProps()
            properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            properties.handleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
            properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            properties.location.id = self.context.ordinal
            with queue.entered():
                self.handle = check(cu.cuMemPoolCreate(properties))
                attribute = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
                check(cu.cuMemPoolSetAttribute(self.handle, attribute, cu.cuuint64_t((1 << 64) - 1)))

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None and not self.context.stopped.value:
            # It stays until its last allocation is freed.
            driver.release(self.context, driver.cu.cuMemPoolDestroy, self.handle)

    def allocate(self, queue: Queue, nbytes: int) -> int:
        """The address of ``nbytes`` of new memory, at least one.

        Raises:
            MemoryError: with the size asked and the size free.
        """
        with queue.entered():
            for attempt in range(2):
                try:
                    return self._take(queue, nbytes)
                except CudaError as error:
                    if error.code != driver.OUT_OF_MEMORY:
                        raise RuntimeError(f"{queue.label} cannot allocate memory: {error}") from error
                    if attempt == 0:
                        self.trim(queue)
            free, _ = check(driver.cu.cuMemGetInfo())
        raise MemoryError(
            f"cannot allocate {format_size(nbytes)} on {queue.label}: {format_size(int(free))} is free"
        )

    def _take(self, queue: Queue, nbytes: int) -> int:
        if self.handle is None:
            return int(queue.check(driver.cu.cuMemAlloc(nbytes)))
        return int(queue.check(driver.cu.cuMemAllocFromPoolAsync(nbytes, self.handle, queue.stream)))

    def open_to(self, peer: Context) -> None:
        """Lets another device read and write the pool's memory, where the hardware links the two.

        Where that fails too, the driver copies between them by way of the host.
        """
        if peer.ordinal in self._peers or self.handle is None:
            return
        self._peers.add(peer.ordinal)
        cu = driver.cu
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = peer.ordinal
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        with contextlib.suppress(CudaError):
            if int(check(cu.cuDeviceCanAccessPeer(peer.device, self.context.device))):
                check(cu.cuMemPoolSetAccess(self.handle, [access], 1))

    def trim(self, queue: Queue) -> None:
        """Gives what is free back to the driver."""
        queue.wait()
        if self.handle is not None:
            check(driver.cu.cuMemPoolTrimTo(self.handle, 0))

    def free(self, queue: Queue, address: int) -> None:
        """Frees memory after what is queued by now."""
        if self.context.stopped.value:
            return
        if self.handle is None or queue.is_closed:
            driver.release(self.context, driver.cu.cuMemFree, address)  # which waits for the device
        else:
            driver.release(self.context, driver.cu.cuMemFreeAsync, address, queue.stream)


@final
class CudaBuffer(Buffer):
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
            self.pool.free(self.queue, self.address)

    @property
    def is_foreign(self) -> bool:
        """Whether others than Tack may use the memory."""
        return bool(self.foreign and self.foreign[0])

    def read(self, offset: int, out: NDArray[Any]) -> None:
        if self.is_pinned:
            self.queue.wait()
            ctypes.memmove(out.ctypes.data, self.address + offset, out.nbytes)
        elif out.nbytes:
            self.queue.staging.read(self.queue, out.ctypes.data, self.address + offset, out.nbytes)

    def write(self, offset: int, source: NDArray[Any]) -> None:
        if source.nbytes:
            queue = self.queue
            queue.staging.write(queue, self.address + offset, source.ctypes.data, source.nbytes)
            self._settle()

    def copies_from(self, source: Buffer) -> bool:
        return isinstance(source, CudaBuffer)

    def copy(self, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        """See `Buffer.copy`; ``source`` may also be on another CUDA device."""
        if not nbytes:
            return
        assert isinstance(source, CudaBuffer)
        queue, other = self.queue, source.queue
        to, of = self.address + offset, source.address + source_offset
        queue.follow(other)
        if queue.context.ordinal != other.context.ordinal:
            self.pool.open_to(other.context)
            source.pool.open_to(queue.context)
            with queue.entered():
                contexts = (queue.context.handle, other.context.handle)
                queue.check(
                    driver.cu.cuMemcpyPeerAsync(to, contexts[0], of, contexts[1], nbytes, queue.stream)
                )
        elif to < of + nbytes and of < to + nbytes and to != of:
            self._copy_overlapping(to, of, nbytes)
        else:
            _copy_within(queue, to, of, nbytes)
        other.follow(queue)
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
        if unit:
            with queue.entered():
                queue.check(memset(at, unit, number, nbytes, queue.stream))
        else:
            seed = np.full(min(count, max(1, _SEED // value.itemsize)), value)
            queue.staging.write(queue, at, seed.ctypes.data, seed.nbytes)
            done = seed.nbytes
            while done < nbytes:
                size = min(done, nbytes - done)
                _copy_within(queue, at + done, at, size)
                done += size
        self._settle()

    def _settle(self) -> None:
        """Waits for what was queued, if others may look at the memory."""
        if self.is_foreign:
            self.queue.wait()


def pinned_buffer(queue: Queue, pool: Pool, nbytes: int) -> CudaBuffer:
    """New host memory that the device can address."""
    block = Pinned(queue, nbytes)
    buffer = CudaBuffer(queue, pool, block.address, nbytes, owned=False, owner=block)
    buffer.is_pinned = True
    buffer.foreign = None  # nobody else has it
    return buffer


def _copy_within(queue: Queue, to: int, of: int, nbytes: int) -> None:
    with queue.entered():
        queue.check(driver.cu.cuMemcpyDtoDAsync(to, of, nbytes, queue.stream))


def memset(address: int, unit: int, number: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
    """Queues a fill with a number of ``unit`` bytes; what the driver says of it."""
    cu = driver.cu
    fill = {1: cu.cuMemsetD8Async, 2: cu.cuMemsetD16Async, 4: cu.cuMemsetD32Async}[unit]
    result: tuple[Any, ...] = fill(address, number, nbytes // unit, stream)
    return result


def pattern_unit(pattern: bytes) -> tuple[int, int]:
    """The size of the unit of at most 4 bytes that ``pattern`` repeats, and its number; 0: there is none."""
    for size in (1, 2, 4):
        if len(pattern) % size == 0 and pattern[:size] * (len(pattern) // size) == pattern:
            return size, int.from_bytes(pattern[:size], "little")
    return 0, 0
