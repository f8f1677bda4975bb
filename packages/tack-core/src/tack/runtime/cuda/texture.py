"""Volumes in the form that texture units sample."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tack.runtime.cpu.memory import format_size
from tack.runtime.cuda.driver import DRIVER
from tack.runtime.streams.driver import DriverError

if TYPE_CHECKING:
    from tack.runtime.array import Array
    from tack.runtime.streams.queue import Queue

__all__ = ["CudaTextureImage"]


class CudaTextureImage:
    """A copy of an f32 volume in a CUDA array, and the texture object through which kernels sample it.

    Attributes:
        handle: of the texture object, as kernels take it.
    """

    __slots__ = ("_memory", "_queue", "_shape", "_texture", "handle")

    def __init__(self, queue: Queue, shape: tuple[int, int, int]) -> None:
        """Room for (W, H, D) texels.

        Raises:
            MemoryError: there is not enough memory.
        """
        cu = DRIVER.module
        self._queue = queue
        self._shape = shape
        layout = cu.CUDA_ARRAY3D_DESCRIPTOR()
        layout.Width, layout.Height, layout.Depth = shape
        layout.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
        layout.NumChannels = 1
        with queue.entered():
            try:
                self._memory = queue.check(DRIVER.Array3DCreate(layout))
            except DriverError as error:
                if error.code != DRIVER.out_of_memory:
                    raise
                nbytes = 4 * shape[0] * shape[1] * shape[2]
                raise MemoryError(
                    f"cannot allocate a texture of {format_size(nbytes)} on {queue.label}"
                ) from error
            resource = cu.CUDA_RESOURCE_DESC()
            resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
            resource.res.array.hArray = self._memory
            sampler = cu.CUDA_TEXTURE_DESC()  # coordinates in texels
            sampler.addressMode = [cu.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP] * 3
            sampler.filterMode = cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR
            self._texture = queue.check(DRIVER.TexObjectCreate(resource, sampler, None))
        self.handle = int(self._texture)

    def __del__(self) -> None:
        queue = self._queue
        if queue.context.stopped.value:
            return
        for name, destroy in (("_texture", DRIVER.TexObjectDestroy), ("_memory", DRIVER.ArrayDestroy)):
            if hasattr(self, name):
                queue.retire(functools.partial(queue.context.release, destroy, getattr(self, name)))

    def update(self, array: Array) -> None:
        """Queues a copy of ``array``, which has as many elements."""
        cu, (width, height, depth) = DRIVER.module, self._shape
        copy = cu.CUDA_MEMCPY3D()
        copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = array.address
        copy.srcPitch, copy.srcHeight = 4 * width, height
        copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
        copy.dstArray = self._memory
        copy.WidthInBytes, copy.Height, copy.Depth = 4 * width, height, depth
        with self._queue.entered():
            self._queue.check(DRIVER.Memcpy3DAsync(copy, self._queue.stream))
