"""Volumes in the form that texture units sample, on drivers with streams."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tack.runtime.cpu.memory import format_size
from tack.runtime.streams.driver import DriverError

if TYPE_CHECKING:
    from tack.runtime.array import Array
    from tack.runtime.streams.queue import Queue

__all__ = ["StreamTextureImage"]


class StreamTextureImage(ABC):
    """A copy of an f32 volume in an array of texels, and the texture object through which kernels sample it.

    Attributes:
        handle: of the texture object, as kernels take it.
    """

    __slots__ = ("_memory", "_queue", "_shape", "_texture", "handle")

    def __init__(self, queue: Queue, shape: tuple[int, int, int]) -> None:
        """Room for (W, H, D) texels.

        Raises:
            MemoryError: there is not enough memory.
        """
        self._queue = queue
        self._shape = shape
        with queue.entered():
            try:
                self._memory = self.create_array(shape)
            except DriverError as error:
                if error.code != queue.driver.out_of_memory:
                    raise
                nbytes = 4 * shape[0] * shape[1] * shape[2]
                raise MemoryError(
                    f"cannot allocate a texture of {format_size(nbytes)} on {queue.label}"
                ) from error
            self._texture = self.create_texture(self._memory)
        self.handle = int(self._texture)

    @abstractmethod
    def create_array(self, shape: tuple[int, int, int]) -> Any:
        """A new array of (W, H, D) texels, of one f32 each."""

    @abstractmethod
    def create_texture(self, memory: Any) -> Any:
        """A new texture object: coordinates in texels, clamped, linear."""

    @abstractmethod
    def update(self, array: Array) -> None:
        """Queues a copy of ``array``, which has as many elements."""

    def __del__(self) -> None:
        queue = self._queue
        if queue.context.stopped.value:
            return
        driver = queue.driver
        for name, destroy in (("_texture", driver.TexObjectDestroy), ("_memory", driver.ArrayDestroy)):
            if hasattr(self, name):
                queue.retire(functools.partial(queue.context.release, destroy, getattr(self, name)))
