"""Memory of arrays for other processes and for graphics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tack.runtime.array import Array

__all__ = ["SharedMemory", "share"]


class SharedMemory(NamedTuple):
    """What other processes, Vulkan, OpenGL and the like import an array's memory by. See `Array.share`.

    Attributes:
        handle: the memory: a POSIX file descriptor, which is the caller's to close or to pass on, or an
            ``MTLBuffer``.
        handle_type: which of these it is: ``"posix_fd"`` or ``"mtl_buffer"``.
        size: bytes of the whole allocation, which an import has to name. The array is at its beginning.
        device_uuid: the 16 bytes that name the device in every API.
    """

    handle: Any
    handle_type: str
    size: int
    device_uuid: bytes


def share(array: Array) -> SharedMemory:
    """See `Array.share`."""
    if array.address != array._buffer.address:
        raise ValueError(
            "share() gives the memory from its first byte on, and this array is a view that begins "
            f"{array.address - array._buffer.address:,} bytes after it; share the array that it is a view of"
        )
    return array._backend.share(array)
