"""`Texture3D`: volumes that kernels sample at fractional positions."""

from __future__ import annotations

import math
from typing import Any

from tack.dtypes import f32
from tack.runtime.array import Array
from tack.runtime.creation import asarray, copyto, empty
from tack.runtime.graph import recording

__all__ = ["Texture3D"]


class Texture3D:
    """A volume of f32 that kernels sample with ``tex.sample(u, v, w)``.

    It is a snapshot: later changes of the array are not seen until `update`. Coordinates are
    normalised, with 0 and 1 at the centres of the first and the last texel, and clamped; between
    texels the value is interpolated linearly along each axis.

    Args:
        array: an f32 array, or what `tack.asarray` makes one of. A 3-D array is (D, H, W) in memory.
        shape: (W, H, D), x the fastest; without it, the array's shape reversed.
        interp: ``"linear"``, the only one there is.

    Attributes:
        shape_3d: (W, H, D).

    Raises:
        ValueError: the array is not f32, the shape is not three positive extents whose product is
            the array's size, or another ``interp``.
    """

    __slots__ = ("__weakref__", "_source", "interp", "shape_3d", "storage")

    def __init__(self, array: Any, shape: tuple[int, int, int] | None = None, interp: str = "linear") -> None:
        source = array if isinstance(array, Array) else asarray(array)
        if source.dtype is not f32:
            raise ValueError(
                f"a texture needs an f32 array, not {source.dtype}; convert with .astype(tack.f32)"
            )
        if interp != "linear":
            raise ValueError(f"interp {interp!r} is not known; the only one is 'linear'")
        extents = tuple(reversed(source.shape)) if shape is None else tuple(shape)
        if len(extents) != 3 or any(not isinstance(n, int) or n < 1 for n in extents):
            raise ValueError(f"a texture has three positive extents (W, H, D), not {extents}")
        if math.prod(extents) != source.size:
            raise ValueError(
                f"a texture of shape {extents} has {math.prod(extents)} texels, the array {source.size}"
            )
        width, height, depth = extents
        self.shape_3d = (width, height, depth)
        self.interp = interp
        self._source = source
        self.storage = empty((depth, height, width), f32, device=source.device)
        backend = self.storage._backend
        if backend.texture_in_hardware(self.shape_3d):
            self.storage._image = backend.create_texture_image(self.shape_3d)
        self.update()

    def update(self) -> None:
        """Takes the array's present values.

        Raises:
            RuntimeError: inside a ``tack.capture``, where copies wait for the graph's launch.
        """
        if recording() is not None:
            raise RuntimeError("a texture takes its values at once, and not in a capture; do it before that")
        copyto(self.storage, self._source.reshape(self.storage.shape))
        if self.storage._image is not None:
            self.storage._image.update(self.storage)

    def __repr__(self) -> str:
        return f"tack.Texture3D(shape={self.shape_3d}, device={self.storage.device})"
