"""The Metal backend."""

from __future__ import annotations

import ctypes
import math
import operator
import platform
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final

from tack.dtypes import ALL_DTYPES, DType, f32, f64, i32, u32
from tack.runtime.cpu.memory import format_size
from tack.runtime.gpu.backend import GpuBackend
from tack.runtime.metal import api
from tack.runtime.metal.buffer import MetalBuffer, Pool
from tack.runtime.metal.queue import Queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.backend import Buffer, TextureImage
    from tack.runtime.dlpack import Import
    from tack.runtime.gpu.program import Program
    from tack.runtime.graph import Step
    from tack.runtime.sharing import SharedMemory

__all__ = ["BACKEND", "MetalBackend"]


@final
class MetalBackend(GpuBackend):
    """The default GPU of a Mac. Launches, copies and fills are queued; the host shares the memory.

    A foreign pointer is an ``MTLBuffer`` that the host can address, or a pair of one and an offset in bytes.
    """

    name = "metal"
    display_name = "Metal"
    compiler = "Metal's compiler"
    supported_dtypes = tuple(dtype for dtype in ALL_DTYPES if dtype is not f64)
    supported_atomic_dtypes = (i32, u32, f32)
    supports_print = False
    specializes_disjoint = False  # MSL has no restrict
    requires_alignment = True
    shared_memory = 32 << 10
    varies = ("texture_in_hardware",)

    def __init__(self, ordinal: int = 0) -> None:
        self.device = api.start()
        if ordinal:
            raise ValueError(f"there is no device 'metal:{ordinal}'; there are: 'metal'")
        super().__init__(ordinal)
        self.queue = Queue(self.device, self.label)
        self._pool = Pool(self.queue)

    def describe(self) -> dict[str, str]:
        with api.pool():
            name, total = str(self.device.name()), self.device.recommendedMaxWorkingSetSize()
            free = max(0, total - self.device.currentAllocatedSize())
        return {
            "name": name,
            "memory": f"{format_size(total)}, of which {format_size(free)} is free",
            "system": f"macOS {platform.mac_ver()[0]}",
        }

    # Memory.

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        nbytes = dtype.itemsize * math.prod(shape)
        if not nbytes:
            return MetalBuffer(self.queue, None, 0)
        memory, is_new = self._pool.take(nbytes)
        return MetalBuffer(self.queue, memory, nbytes, pool=self._pool, is_new=is_new)

    allocate_shareable = allocate_array

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        """See `Backend.wrap_ptr`; ``ptr`` is an ``MTLBuffer``, or a pair of one and an offset in bytes."""
        memory, start = ptr if isinstance(ptr, tuple) and len(ptr) == 2 else (ptr, 0)
        with api.pool():
            return self._wrap(memory, operator.index(start), dtype, shape, owner)

    def _wrap(self, memory: Any, start: int, dtype: DType, shape: tuple[int, ...], owner: object) -> Buffer:
        nbytes = dtype.itemsize * math.prod(shape)
        if memory is None and nbytes:
            raise ValueError("the pointer is null")
        if memory is not None and not (hasattr(memory, "contents") and hasattr(memory, "gpuAddress")):
            raise TypeError(f"a Metal pointer is an MTLBuffer, not {type(memory).__name__}")
        if not nbytes:
            return MetalBuffer(self.queue, None, 0, owner=owner)
        if memory.storageMode() != api.metal.MTLStorageModeShared:
            raise ValueError("the MTLBuffer is not in storage that the host shares (MTLStorageModeShared)")
        if start < 0 or start + nbytes > memory.length():
            raise ValueError(f"the MTLBuffer has {memory.length()} bytes, the array {start + nbytes}")
        if start % dtype.itemsize:
            raise ValueError(
                f"the array begins {start} bytes into the MTLBuffer, which is not a multiple of "
                f"{dtype.itemsize}, the size of {dtype}, as Metal needs; make a copy of the memory"
            )
        return MetalBuffer(self.queue, memory, nbytes, start=start, owner=owner)

    def memory_space(self, ptr: int) -> str:
        """``"cpu"``: the host addresses all of it."""
        return "cpu"

    # Textures.

    def texture_in_hardware(self, shape: tuple[int, int, int]) -> bool:
        from tack.runtime.metal.texture import MAX_EXTENT

        with api.pool():
            return max(shape) <= MAX_EXTENT and bool(self.device.supports32BitFloatFiltering())

    def create_texture_image(self, shape: tuple[int, int, int]) -> TextureImage:
        from tack.runtime.metal.texture import MetalTextureImage

        return MetalTextureImage(self.queue, shape)

    # Other libraries.

    def hand_out(self, array: Array, stream: Any) -> None:
        """Lets others use the array's memory, in which everything is done that was queued."""
        if stream is not None and stream != -1:
            raise BufferError("Metal arrays have no stream; pass stream=None")
        buffer = cast("MetalBuffer", array._buffer)
        assert buffer.foreign is not None
        buffer.foreign[0] = 1
        buffer.starts_zeroed = False
        self.queue.wait(buffer.last_use)

    def pointer(self, array: Array) -> Any:
        """The ``MTLBuffer``, and how many bytes into it the array begins."""
        self.hand_out(array, None)
        buffer = cast("MetalBuffer", array._buffer)
        return buffer.memory, buffer.start + array.address - buffer.address

    def dlpack_data(self, array: Array) -> tuple[int, int]:
        """DLPack's data on Metal is the ``MTLBuffer`` itself."""
        buffer = cast("MetalBuffer", array._buffer)
        if buffer.memory is None:
            return 0, 0
        return api.objc.pyobjc_id(buffer.memory), buffer.start + array.address - buffer.address

    def wrap_dlpack(self, tensor: Import) -> Buffer:
        address = ctypes.c_void_p(tensor.data)
        with api.pool():
            memory = api.objc.objc_object(c_void_p=address) if tensor.data else None
            return self._wrap(memory, tensor.offset, tensor.dtype, tensor.shape, (memory, tensor.owner))

    def share(self, array: Array) -> SharedMemory:
        from tack.runtime.sharing import SharedMemory

        self.hand_out(array, None)
        buffer = cast("MetalBuffer", array._buffer)
        if buffer.memory is None:
            raise RuntimeError("an array without elements has no memory to share")
        with api.pool():
            number, size = int(self.device.registryID()), int(buffer.memory.length())
        return SharedMemory(buffer.memory, "mtl_buffer", size, uuid.UUID(int=number).bytes)

    # Launches.

    def synchronize(self) -> None:
        self.queue.wait()

    def completion(self) -> Callable[[], bool]:
        number = self.queue.flush()
        return lambda: self.queue.is_done(number)

    def stamp(self) -> Any:
        return self.queue.stamp()

    def elapsed(self, first: Any, last: Any) -> float:
        return self.queue.elapsed(first, last)

    # Graphs.

    def launch_step(self, kernel: Kernel, args: tuple[Any, ...]) -> Step:
        from tack.runtime.metal import graph

        return graph.launch_step(self, kernel, args)

    def fill_step(self, array: Array, element: NDArray[Any]) -> Any:
        from tack.runtime.metal import graph

        return graph.fill_step(array, element)

    def copy_step(self, target: Array, source: Array) -> Any:
        from tack.runtime.metal import graph

        return graph.copy_step(target, source)

    def graph(self, steps: Sequence[Step]) -> Callable[[], None]:
        from tack.runtime.metal import graph

        return graph.graph(self, steps)

    # Compiled code.

    @property
    def dialect(self) -> Any:
        from tack.codegen.c import MSL

        return MSL

    def compile_source(self, name: str, source: Any) -> bytes:
        from tack.runtime.metal.program import artifact_of

        return artifact_of(source)

    def make_program(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> Program:
        from tack.runtime.metal.program import MetalProgram

        return MetalProgram(self.queue, about, artifact, checks)

    def cache_target(self) -> tuple[tuple[str, str], ...]:
        """See `Backend.cache_target`. macOS compiles the source, so its version is that of the compiler."""
        from tack.runtime.metal.program import OPTIONS

        with api.pool():
            name = str(self.device.name())
        return (("gpu", name), ("system", platform.mac_ver()[0]), ("options", OPTIONS))

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        """A typed kernel as MSL (``"source"``)."""
        from tack.runtime.gpu.launch import generate

        if mode != "source":
            return super().inspect(ir, mode, disjoint)
        text: str = generate(self, ir, disjoint).text
        return text


BACKEND: Final = MetalBackend
