"""CPU memory: NumPy's for new arrays, anybody's for wrapped ones."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tack.runtime.backend import Buffer
from tack.runtime.cpu.memory import format_size, free_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ALIGNMENT", "CpuBuffer", "Memory", "allocate"]

ALIGNMENT = 64
_CHECKED = 1 << 26  # smaller allocations are not compared with the free memory


@final
class CpuBuffer(Buffer):
    """A range of the process's memory."""

    __slots__ = ()

    def read(self, offset: int, out: NDArray[Any]) -> None:
        ctypes.memmove(out.ctypes.data, self.address + offset, out.nbytes)

    def write(self, offset: int, source: NDArray[Any]) -> None:
        ctypes.memmove(self.address + offset, source.ctypes.data, source.nbytes)

    def copy(self, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        ctypes.memmove(self.address + offset, source.address + source_offset, nbytes)

    def fill(self, offset: int, count: int, value: np.generic) -> None:
        self.host_view(offset, value.dtype, (count,), True)[...] = value

    def host_view(
        self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], writable: bool
    ) -> NDArray[Any]:
        return np.asarray(Memory(self, self.address + offset, dtype, shape, writable))


class Memory:
    """What NumPy makes a view of; the view holds it, and so the buffer."""

    __slots__ = ("__array_interface__", "buffer")

    def __init__(
        self, buffer: Buffer, address: int, dtype: np.dtype[Any], shape: tuple[int, ...], writable: bool
    ) -> None:
        self.buffer = buffer
        self.__array_interface__ = {
            "version": 3,
            "data": (address, not writable),
            "typestr": dtype.str,
            "shape": shape,
        }


def allocate(nbytes: int) -> CpuBuffer:
    """New memory, aligned to ``ALIGNMENT`` bytes; its contents are unspecified.

    Raises:
        MemoryError: there is less free memory than that.
    """
    if nbytes >= _CHECKED:
        free = free_memory()
        if free is not None and nbytes > free:
            raise _out_of_memory(nbytes, free)
    try:
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):  # ValueError: more than NumPy can address
        raise _out_of_memory(nbytes, free_memory()) from None
    start = memory.__array_interface__["data"][0]  # in half the time of memory.ctypes.data
    return CpuBuffer(start + -start % ALIGNMENT, nbytes, owned=True, owner=memory)


def _out_of_memory(nbytes: int, free: int | None) -> MemoryError:
    left = "an unknown amount" if free is None else format_size(free)
    return MemoryError(f"cannot allocate {format_size(nbytes)} on the CPU: {left} is free")
