"""Volumes in the form that CUDA's texture units sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tack.runtime.cuda.driver import DRIVER
from tack.runtime.streams.texture import StreamTextureImage

if TYPE_CHECKING:
    from tack.runtime.array import Array

__all__ = ["CudaTextureImage"]


class CudaTextureImage(StreamTextureImage):
    """See `StreamTextureImage`."""

    __slots__ = ()

    def create_array(self, shape: tuple[int, int, int]) -> Any:
        cu = DRIVER.module
        layout = cu.CUDA_ARRAY3D_DESCRIPTOR()
        layout.Width, layout.Height, layout.Depth = shape
        layout.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
        layout.NumChannels = 1
        return self._queue.check(DRIVER.Array3DCreate(layout))

    def create_texture(self, memory: Any) -> Any:
        cu = DRIVER.module
        resource = cu.CUDA_RESOURCE_DESC()
        resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        resource.res.array.hArray = memory
        sampler = cu.CUDA_TEXTURE_DESC()  # coordinates in texels
        sampler.addressMode = [cu.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP] * 3
        sampler.filterMode = cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR
        return self._queue.check(DRIVER.TexObjectCreate(resource, sampler, None))

    def update(self, array: Array) -> None:
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
