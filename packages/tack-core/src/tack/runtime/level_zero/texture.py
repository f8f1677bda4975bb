"""Volumes in the form that samplers read."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from tack.runtime.cpu.memory import format_size
from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero import driver
from tack.runtime.level_zero.api import ZeError

if TYPE_CHECKING:
    from tack.runtime.array import Array
    from tack.runtime.level_zero.queue import Queue

__all__ = ["ZeTextureImage"]


class ZeTextureImage:
    """A copy of an f32 volume in an image. The sampler is part of the kernels' code.

    Attributes:
        handle: of the image, as kernels take it.
    """

    __slots__ = ("_queue", "handle")

    def __init__(self, queue: Queue, shape: tuple[int, int, int]) -> None:
        """Room for (W, H, D) texels.

        Raises:
            MemoryError: there is not enough memory.
        """
        self._queue = queue
        context = queue.context
        context.check_usable()
        texel = ze.ImageFormat(
            *(ze.IMAGE_FORMAT_LAYOUT_32, ze.IMAGE_FORMAT_TYPE_FLOAT, ze.IMAGE_FORMAT_SWIZZLE_R),
            *(ze.IMAGE_FORMAT_SWIZZLE_0, ze.IMAGE_FORMAT_SWIZZLE_0, ze.IMAGE_FORMAT_SWIZZLE_1),
        )
        width, height, depth = shape
        description = ze.structure(
            ze.ImageDesc, type=ze.IMAGE_TYPE_3D, format=texel, width=width, height=height, depth=depth
        )
        try:
            self.handle = driver.api.make(
                "ImageCreate", context.handle, context.device.handle, ctypes.byref(description)
            )
        except ZeError as error:
            if error.code not in driver.OUT_OF_MEMORY:
                raise
            nbytes = format_size(4 * width * height * depth)
            raise MemoryError(f"cannot allocate a texture of {nbytes} on {queue.label}") from error

    def __del__(self) -> None:
        context = self._queue.context
        if hasattr(self, "handle") and not context.is_stopped:
            self._queue.retire(context.destroyer("ImageDestroy", self.handle))

    def update(self, array: Array) -> None:
        """Queues a copy of ``array``, which has as many elements."""
        self._queue.append("ImageCopyFromMemory", self.handle, array.address, None)
