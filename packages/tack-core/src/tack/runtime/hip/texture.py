"""Volumes in the form that AMD's texture units sample."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tack.runtime.hip.driver import DRIVER
from tack.runtime.streams.texture import StreamTextureImage

if TYPE_CHECKING:
    from tack.runtime.array import Array

__all__ = ["HipTextureImage"]

# hip-python has no access to some members of these structures.
_FLOAT: Final = 0x20  # HIP_AD_FORMAT_FLOAT
_CLAMP, _LINEAR, _ARRAY = 1, 1, 0


class _Layout(ctypes.Structure):  # HIP_ARRAY3D_DESCRIPTOR
    _fields_: ClassVar = [
        *((name, ctypes.c_size_t) for name in ("width", "height", "depth")),
        *((name, ctypes.c_uint) for name in ("format", "channels", "flags")),
    ]


class _Resource(ctypes.Structure):  # HIP_RESOURCE_DESC of an array
    _fields_: ClassVar = [
        ("kind", ctypes.c_int),
        ("array", ctypes.c_void_p),
        ("rest", ctypes.c_uint8 * 120),
        ("flags", ctypes.c_uint),
    ]


class _Sampler(ctypes.Structure):  # HIP_TEXTURE_DESC
    _fields_: ClassVar = [
        ("address", ctypes.c_int * 3),
        ("filter", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("rest", ctypes.c_uint8 * 84),
    ]


class _Place(ctypes.Structure):
    _fields_: ClassVar = [
        *((name, ctypes.c_size_t) for name in ("x", "y", "z", "lod")),
        ("kind", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in ("host", "device", "array")),
        *((name, ctypes.c_size_t) for name in ("pitch", "height")),
    ]


class _Copy(ctypes.Structure):  # HIP_MEMCPY3D
    _fields_: ClassVar = [
        *((name, _Place) for name in ("source", "target")),
        *((name, ctypes.c_size_t) for name in ("width", "height", "depth")),
    ]


class HipTextureImage(StreamTextureImage):
    """See `StreamTextureImage`."""

    __slots__ = ()

    def create_array(self, shape: tuple[int, int, int]) -> Any:
        layout = _Layout(*shape, _FLOAT, 1, 0)
        return self._queue.check(DRIVER.Array3DCreate(ctypes.addressof(layout)))

    def create_texture(self, memory: Any) -> Any:
        resource = _Resource(kind=_ARRAY, array=int(memory))
        sampler = _Sampler((_CLAMP, _CLAMP, _CLAMP), _LINEAR)  # coordinates in texels
        return self._queue.check(
            DRIVER.TexObjectCreate(ctypes.addressof(resource), ctypes.addressof(sampler), None)
        )

    def update(self, array: Array) -> None:
        width, height, depth = self._shape
        kinds = DRIVER.module.hipMemoryType
        copy = _Copy(width=4 * width, height=height, depth=depth)
        copy.source.kind, copy.source.device = int(kinds.hipMemoryTypeDevice), array.address
        copy.source.pitch, copy.source.height = 4 * width, height
        copy.target.kind, copy.target.array = int(kinds.hipMemoryTypeArray), int(self._memory)
        with self._queue.entered():
            self._queue.check(DRIVER.DrvMemcpy3DAsync(ctypes.addressof(copy), self._queue.stream))
