"""The CUDA backend."""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from tack.dtypes import ALL_DTYPES, DType, f32, f64, i32, i64, u32, u64
from tack.runtime.array import Array
from tack.runtime.backend import Backend, Buffer
from tack.runtime.convert import is_integer
from tack.runtime.cpu.memory import format_size
from tack.runtime.cuda import driver, nvrtc
from tack.runtime.cuda.buffer import CudaBuffer, Pool, pinned_buffer
from tack.runtime.cuda.driver import check, context_for
from tack.runtime.cuda.queue import Queue, stream_handle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.backend import Number, TextureImage
    from tack.runtime.graph import Step
    from tack.runtime.learn import Plan
    from tack.runtime.variants import Variant

__all__ = ["BACKEND", "CudaBackend"]


_SCRATCH: Final = 128 << 10  # bytes of each thread, once it has asked for any


@final
class CudaBackend(Backend):
    """An NVIDIA GPU. Launches, copies and fills are queued, and run in program order.

    Options: ``stream``, the stream of another library to queue on: a handle as an int, or an object with
    ``__cuda_stream__``, ``.cuda_stream`` or ``.ptr``, which is kept alive.
    """

    name = "cuda"
    display_name = "CUDA"
    supported_dtypes = ALL_DTYPES
    supported_atomic_dtypes = (i32, u32, i64, u64, f32, f64)
    supports_device_reductions = True
    supports_workgroups = True
    specializes_disjoint = True
    queues_launches = True
    requires_alignment = True
    device_memory_spaces = ("cuda", "managed", "pinned")
    device_options = ("stream",)

    def __init__(self, ordinal: int = 0, *, stream: object = None) -> None:
        count = driver.start()
        if ordinal >= count:
            known = ", ".join(f"'cuda:{k}'" if k else "'cuda'" for k in range(count))
            raise ValueError(f"there is no device 'cuda:{ordinal}'; there are: {known}")
        nvrtc.find()
        super().__init__(ordinal, **({} if stream is None else {"stream": stream}))
        context = context_for(ordinal, None if stream is None else _context_of(stream))
        self.features = driver.features(context.device)
        self.queue = Queue(context, self.label, stream)
        self.dlpack_stream = self.queue.address or 1  # 1: the legacy default stream
        self._pool = Pool(self.queue, self.features.pools)
        self._scratch = threading.local()

    @classmethod
    def device_count(cls) -> int:
        nvrtc.find()
        return driver.device_count()

    @functools.cached_property
    def domain_number(self) -> int:
        """One of its own: the native dispatcher leaves launches on other backends' arrays to Python."""
        return -1 - self.serial

    # Memory.

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        nbytes = dtype.itemsize * math.prod(shape)
        address = self._pool.allocate(self.queue, nbytes) if nbytes else 0
        return CudaBuffer(self.queue, self._pool, address, nbytes, owned=True)

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        """See `Backend.wrap_ptr`; ``ptr`` may also be a ``CUdeviceptr``."""
        nbytes = dtype.itemsize * math.prod(shape)
        if isinstance(ptr, float) or not (is_integer(ptr) or hasattr(type(ptr), "__int__")):
            raise TypeError(f"a CUDA pointer is a device address, not {type(ptr).__name__}")
        address = operator.index(ptr) if is_integer(ptr) else int(ptr)
        if not 0 <= address <= (1 << 64) - nbytes:
            raise ValueError(f"{address} is not an address of {nbytes} bytes")
        if address == 0 and nbytes:
            raise ValueError("the pointer is null")
        if address % dtype.itemsize:
            raise ValueError(
                f"the address {address:#x} is not a multiple of {dtype.itemsize}, the size of {dtype}, "
                "as CUDA needs; make a copy of the memory"
            )
        return CudaBuffer(self.queue, self._pool, address, nbytes, owned=False, owner=owner)

    def scratch(self, dtype: DType, count: int) -> Array:
        """Pinned host memory: kernels write to it as it is, and to read it the host has but to wait."""
        nbytes = dtype.itemsize * count
        block = getattr(self._scratch, "block", None)
        if block is None or block.nbytes < nbytes:
            block = self._scratch.block = pinned_buffer(self.queue, self._pool, max(nbytes, _SCRATCH))
        return Array(self, block, dtype, (count,))

    def memory_space(self, ptr: int) -> str:
        """``"cuda"`` for device memory, ``"managed"``, ``"pinned"`` for host memory that the device can
        address, else ``"cpu"``."""
        kinds = driver.cu.CUpointer_attribute
        with self.queue.entered():
            found = driver.cu.cuPointerGetAttribute(
                kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, driver.cu.CUdeviceptr(ptr)
            )
            if int(found[0]) == driver.INVALID_VALUE:  # the driver knows nothing of it
                return "cpu"
            kind = self.queue.check(found)
            managed = check(
                driver.cu.cuPointerGetAttribute(
                    kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, driver.cu.CUdeviceptr(ptr)
                )
            )
        if managed:
            return "managed"
        return "cuda" if int(kind) == 2 else "pinned"  # CU_MEMORYTYPE_DEVICE

    # Textures.

    def texture_in_hardware(self, shape: tuple[int, int, int]) -> bool:
        return all(extent <= most for extent, most in zip(shape, self.features.texture, strict=True))

    def create_texture_image(self, shape: tuple[int, int, int]) -> TextureImage:
        from tack.runtime.cuda.texture import CudaTextureImage

        return CudaTextureImage(self.queue, shape)

    # Other libraries.

    def hand_out(self, array: Array, stream: Any) -> None:
        from tack.runtime.cuda import interop

        interop.hand_out(array, stream)

    def cuda_array_interface(self, array: Array) -> dict[str, Any] | None:
        from tack.runtime.cuda import interop

        return interop.export_interface(array)

    # Launches.

    def execute(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        from tack.runtime.cuda import launch

        return launch.execute(self, kernel, args)

    def compile(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        from tack.runtime.cuda import launch

        launch.prepare_launch(self, kernel, args)

    def native_plan(self, kernel: Kernel, variant: Variant, args: Sequence[Any]) -> Plan | None:
        from tack.runtime.cuda import launch

        return launch.native_plan(kernel, variant, args, self.label)

    def stamp(self) -> Any:
        return self.queue.record(timed=True)

    def elapsed(self, first: Any, last: Any) -> float:
        return self.queue.elapsed(first, last)

    def describe(self) -> dict[str, str]:
        version = self.features.driver
        with self.queue.entered():
            free, total = self.queue.check(driver.cu.cuMemGetInfo())
        return {
            "name": self.features.name,
            "compute capability": str(self.features.arch / 10),
            "memory": f"{format_size(int(total))}, of which {format_size(int(free))} is free",
            "driver": f"CUDA {version // 1000}.{version % 1000 // 10}",
            "compiler": f"NVRTC {nvrtc.find().version}",
        }

    def synchronize(self) -> None:
        self.queue.wait()

    def completion(self) -> Callable[[], bool]:
        return self.queue.marker()

    def reduce_array(self, array: Array, op: str, deterministic: bool) -> Number:
        """See `Backend.reduce_array`; always deterministic."""
        from tack.runtime.device_reductions import reduce_on_device

        return reduce_on_device(array, op)

    # Graphs.

    def launch_step(self, kernel: Kernel, args: tuple[Any, ...]) -> Step:
        from tack.runtime.cuda import graph

        return graph.launch_step(self, kernel, args)

    def fill_step(self, array: Array, element: NDArray[Any]) -> Any:
        from tack.runtime.cuda import graph

        return graph.fill_step(self, array, element)

    def copy_step(self, target: Array, source: Array) -> Any:
        from tack.runtime.cuda import graph

        return graph.copy_step(self, target, source)

    def graph(self, steps: Sequence[Step]) -> Callable[[], None]:
        from tack.runtime.cuda import graph

        return graph.graph(self, steps)

    # Compiled code.

    def cache_target(self) -> tuple[tuple[str, str], ...] | None:
        from tack.runtime.cuda import launch

        return launch.target(self)

    def variant_artifact(self, payload: Any) -> bytes | None:
        from tack.runtime.cuda import launch

        data = launch.save(payload)
        payload.artifact = None  # the code itself stays loaded
        return data

    def load_variant(self, read: Callable[[], Any], artifact: bytes, args: tuple[Any, ...]) -> Any:
        from tack.runtime.cuda import launch

        return launch.load(self, read, artifact)

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        from tack.runtime.cuda import launch

        return launch.inspect(self, ir, mode, disjoint)


def _context_of(stream: object) -> Any:
    """The context of a foreign stream; None for the default streams, which are in any."""
    handle = stream_handle(stream)
    if handle <= 2:
        return None
    found = check(driver.cu.cuStreamGetCtx(driver.cu.CUstream(handle)))
    return found[0] if isinstance(found, tuple) else found


BACKEND: Final = CudaBackend
