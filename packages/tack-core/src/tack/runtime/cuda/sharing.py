"""Device memory that other processes and graphics can import: by a file descriptor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tack.runtime.cuda.driver import DRIVER
from tack.runtime.sharing import SharedMemory
from tack.runtime.streams.buffer import DeviceBuffer

if TYPE_CHECKING:
    from tack.runtime.array import Array
    from tack.runtime.streams.buffer import Pool
    from tack.runtime.streams.queue import Queue

__all__ = ["Shareable", "share", "shareable_buffer"]

_POSIX_FD: Final = "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"


class Shareable:
    """An allocation by the driver's virtual memory interface: memory mapped to addresses of its own.

    Memory of the pool has no handle for graphics, and one for processes names the whole pool.

    Attributes:
        address: where it is mapped.
        size: bytes, a multiple of the driver's granularity.
    """

    __slots__ = ("_handle", "_queue", "_undo", "address", "size")

    def __init__(self, queue: Queue, nbytes: int) -> None:
        cu = DRIVER.module
        where = cu.CUmemLocation()
        where.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        where.id = queue.context.ordinal
        about = cu.CUmemAllocationProp()
        about.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        about.requestedHandleTypes = getattr(cu.CUmemAllocationHandleType, _POSIX_FD)
        about.location = where
        access = cu.CUmemAccessDesc()
        access.location = where
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._queue = queue
        self._undo: list[Callable[[], Any]] = []
        with queue.entered():
            minimum = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
            unit = int(queue.check(DRIVER.MemGetAllocationGranularity(about, minimum)))
            self.size = -(-max(nbytes, 1) // unit) * unit
            self._handle = queue.check(DRIVER.MemCreate(self.size, about, 0))
            self._undo.append(functools.partial(DRIVER.MemRelease, self._handle))
            self.address = int(queue.check(DRIVER.MemAddressReserve(self.size, 0, 0, 0)))
            self._undo.append(functools.partial(DRIVER.MemAddressFree, self.address, self.size))
            queue.check(DRIVER.MemMap(self.address, self.size, 0, self._handle, 0))
            self._undo.append(functools.partial(DRIVER.MemUnmap, self.address, self.size))
            queue.check(DRIVER.MemSetAccess(self.address, self.size, [access], 1))

    def __del__(self) -> None:
        if getattr(self, "_undo", None) and not self._queue.context.stopped.value:
            self._queue.retire(functools.partial(_undo, self._queue, self._undo))

    def export(self) -> int:
        """A new file descriptor."""
        kind = getattr(DRIVER.module.CUmemAllocationHandleType, _POSIX_FD)
        with self._queue.entered():
            return int(DRIVER.check(DRIVER.MemExportToShareableHandle(self._handle, kind, 0)))


def _undo(queue: Queue, steps: list[Callable[[], Any]]) -> None:
    for step in reversed(steps):
        queue.context.release(step)


def shareable_buffer(queue: Queue, pool: Pool, nbytes: int) -> DeviceBuffer:
    """See `Backend.allocate_shareable`."""
    memory = pool.retried(queue, nbytes, lambda: Shareable(queue, nbytes))
    buffer = DeviceBuffer(queue, pool, memory.address, nbytes, owned=False, owner=memory)
    buffer.foreign = bytearray(1)  # nobody else has it yet
    return buffer


def share(array: Array, uuid: bytes) -> SharedMemory:
    """See `Backend.share`."""
    buffer: Any = array._buffer
    memory = buffer.owner
    if not isinstance(memory, Shareable):
        raise RuntimeError(
            f"the memory of this array on {buffer.queue.label} cannot be shared; "
            "make it by tack.empty(shape, dtype, shareable=True) and fill it by tack.copyto"
        )
    buffer.foreign[0] = 1
    buffer.queue.wait()  # others may look from now on
    handle = memory.export()
    return SharedMemory(handle, "posix_fd", memory.size, uuid)
