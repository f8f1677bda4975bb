"""Memory of a device, and of the host where the device can address it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tack.runtime.backend import Buffer
from tack.runtime.cpu.memory import format_size
from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero import driver
from tack.runtime.level_zero.api import ZeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.level_zero.queue import Queue

__all__ = ["HostMemory", "ZeBuffer", "new_buffer"]

_ALIGNMENT: Final = 64
_SEED: Final = 64 << 10  # bytes of a pattern that the host writes; the device doubles them


def _allocate(queue: Queue, nbytes: int) -> int:
    """The address of ``nbytes`` of new device memory, at least one.

    Raises:
        MemoryError: with the size asked and the size free.
        RuntimeError: it failed for another reason.
    """
    context, most = queue.context, queue.features.largest
    description = ze.structure(ze.DeviceMemoryDesc)
    relaxed = ze.structure(ze.RelaxedLimitsDesc, flags=ze.RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE)
    if nbytes > most:
        description.pNext = ctypes.addressof(relaxed)
    given = (context.handle, ctypes.byref(description), nbytes, _ALIGNMENT, context.device.handle)
    for attempt in range(2):
        context.check_usable()
        try:
            address = driver.api.make("MemAllocDevice", *given)
        except ZeError as error:
            if error.code in driver.STICKY:
                raise queue.failed(error) from error
            if error.code not in driver.OUT_OF_MEMORY:
                raise RuntimeError(f"{queue.label} cannot allocate memory: {error}") from error
            if attempt == 0:
                queue.wait()  # which frees what is no longer used
        else:
            context.allocated += nbytes
            return address
    total = queue.features.memory
    free = format_size(max(0, total - context.allocated))
    raise MemoryError(
        f"cannot allocate {format_size(nbytes)} on {queue.label}: {free} of {format_size(total)} are free, "
        "but for what others use"
    )


def new_buffer(queue: Queue, nbytes: int) -> ZeBuffer:
    """A buffer of new device memory. Raises as `_allocate` does."""
    return ZeBuffer(queue, _allocate(queue, nbytes) if nbytes else 0, nbytes, owned=True)


class HostMemory:
    """Host memory that the device can address. It goes at once, so what uses it has to be done by then."""

    __slots__ = ("address", "context")

    def __init__(self, queue: Queue, nbytes: int) -> None:
        self.context = queue.context
        description = ze.structure(ze.HostMemoryDesc)
        given = (self.context.handle, ctypes.byref(description), nbytes, _ALIGNMENT)
        try:
            self.address = driver.api.make("MemAllocHost", *given)
        except ZeError as error:
            if error.code not in driver.OUT_OF_MEMORY:
                raise
            raise MemoryError(
                f"cannot allocate {format_size(nbytes)} of host memory for copies on {queue.label}"
            ) from error

    def __del__(self) -> None:
        if hasattr(self, "address") and not self.context.is_stopped:
            driver.api.status("MemFree", self.context.handle, self.address)


@final
class ZeBuffer(Buffer):
    """A range of a device's memory, or of memory that the device can address.

    Attributes:
        queue: where its copies and fills are queued.
    """

    __slots__ = ("queue",)

    def __init__(self, queue: Queue, address: int, nbytes: int, *, owned: bool, owner: object = None) -> None:
        super().__init__(address, nbytes, owned=owned, owner=owner)
        self.queue = queue
        self.foreign = bytearray([not owned])

    def __del__(self) -> None:
        context = self.queue.context
        if self.owned and self.address and not context.is_stopped:
            context.allocated -= self.nbytes
            self.queue.retire(context.destroyer("MemFree", context.handle, self.address))

    def read(self, offset: int, out: NDArray[Any]) -> None:
        if out.nbytes:
            self.queue.staging.read(self.queue, out.ctypes.data, self.address + offset, out.nbytes)

    def write(self, offset: int, source: NDArray[Any]) -> None:
        if source.nbytes:
            self.queue.staging.write(self.queue, self.address + offset, source.ctypes.data, source.nbytes)
            self._settle()

    def copy(self, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        """See `Buffer.copy`; ``source`` may be of another queue in the same context."""
        if not nbytes:
            return
        assert isinstance(source, ZeBuffer)
        queue, to, of = self.queue, self.address + offset, source.address + source_offset
        with queue.among((source.queue,)):
            if to < of + nbytes and of < to + nbytes and to != of:
                between = new_buffer(queue, nbytes)
                queue.append("MemoryCopy", between.address, of, nbytes)
                queue.append("MemoryCopy", to, between.address, nbytes)
            elif to != of:
                queue.append("MemoryCopy", to, of, nbytes)
        self._settle()
        source._settle()

    def fill(self, offset: int, count: int, value: np.generic) -> None:
        """Queues the fill: by the driver's own for patterns that it takes, by doubling for others."""
        if not count:
            return
        queue, at, nbytes, size = self.queue, self.address + offset, count * value.itemsize, value.itemsize
        if size & (size - 1) == 0 and size <= queue.features.fill:
            queue.append("MemoryFill", at, value.tobytes(), size, nbytes)
        else:
            seed = np.full(min(count, max(1, _SEED // size)), value)
            queue.staging.write(queue, at, seed.ctypes.data, seed.nbytes)
            done = seed.nbytes
            while done < nbytes:
                part = min(done, nbytes - done)
                queue.append("MemoryCopy", at + done, at, part)
                done += part
        self._settle()

    def _settle(self) -> None:
        """Waits for what was queued, if others may look at the memory."""
        if self.is_foreign:
            self.queue.wait()
