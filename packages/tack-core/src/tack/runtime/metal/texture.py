"""Volumes in the form that texture units sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tack.runtime.cpu.memory import format_size
from tack.runtime.metal import api

if TYPE_CHECKING:
    from tack.runtime.array import Array
    from tack.runtime.metal.buffer import MetalBuffer
    from tack.runtime.metal.queue import Queue

__all__ = ["MAX_EXTENT", "MetalTextureImage"]

MAX_EXTENT: Final = 2048  # along each axis of a volume


class MetalTextureImage:
    """A copy of an f32 volume in an ``MTLTexture``.

    Attributes:
        handle: what stands in a launch's slots, without meaning: textures are bound apart.
        texture: the ``MTLTexture``.
    """

    __slots__ = ("_queue", "_shape", "handle", "texture")

    def __init__(self, queue: Queue, shape: tuple[int, int, int]) -> None:
        """Room for (W, H, D) texels.

        Raises:
            MemoryError: there is not enough memory.
        """
        metal = api.metal
        self._queue = queue
        self._shape = shape
        self.handle = 0
        with api.pool():
            about = metal.MTLTextureDescriptor.alloc().init()
            about.setTextureType_(metal.MTLTextureType3D)
            about.setPixelFormat_(metal.MTLPixelFormatR32Float)
            about.setWidth_(shape[0])
            about.setHeight_(shape[1])
            about.setDepth_(shape[2])
            about.setStorageMode_(metal.MTLStorageModePrivate)
            about.setUsage_(metal.MTLTextureUsageShaderRead)
            self.texture: Any = queue.device.newTextureWithDescriptor_(about)
        if self.texture is None:
            nbytes = 4 * shape[0] * shape[1] * shape[2]
            raise MemoryError(f"cannot allocate a texture of {format_size(nbytes)} on {queue.label}")

    def update(self, array: Array) -> None:
        """Queues a copy of ``array``, which has as many elements."""
        metal, (width, height, depth) = api.metal, self._shape
        buffer = cast("MetalBuffer", array._buffer)
        at = buffer.start + array.address - buffer.address

        def encode(encoder: Any) -> None:
            copy = "copyFromBuffer_sourceOffset_sourceBytesPerRow_sourceBytesPerImage_sourceSize_"
            copy += "toTexture_destinationSlice_destinationLevel_destinationOrigin_"
            getattr(encoder, copy)(
                *(buffer.memory, at, 4 * width, 4 * width * height, metal.MTLSize(width, height, depth)),
                *(self.texture, 0, 0, metal.MTLOrigin(0, 0, 0)),
            )

        self._queue.blit(encode, (buffer,), self.texture)
