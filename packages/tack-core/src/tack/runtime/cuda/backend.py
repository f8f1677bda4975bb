"""The CUDA backend."""

from __future__ import annotations

import math
import operator
import subprocess
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from tack.runtime.cpu.memory import format_size
from tack.runtime.cuda import driver, nvrtc
from tack.runtime.cuda.driver import DRIVER, context_for
from tack.runtime.streams.backend import StreamBackend
from tack.runtime.streams.queue import stream_handle

if TYPE_CHECKING:
    from tack.dtypes import DType
    from tack.runtime.array import Array
    from tack.runtime.backend import Buffer, TextureImage
    from tack.runtime.gpu.program import Program
    from tack.runtime.sharing import SharedMemory

__all__ = ["BACKEND", "CudaBackend"]


@final
class CudaBackend(StreamBackend):
    """An NVIDIA GPU. Launches, copies and fills are queued, and run in program order.

    Options: ``stream``, the stream of another library to queue on: a handle as an int, or an object with
    ``__cuda_stream__``, ``.cuda_stream`` or ``.ptr``, which is kept alive.
    """

    name = "cuda"
    display_name = "CUDA"
    compiler = "NVRTC"
    driver = DRIVER
    device_memory_spaces = ("cuda", "managed", "pinned")

    def __init__(self, ordinal: int = 0, *, stream: object = None) -> None:
        count = driver.start()
        if ordinal >= count:
            known = ", ".join(f"'cuda:{k}'" if k else "'cuda'" for k in range(count))
            raise ValueError(f"there is no device 'cuda:{ordinal}'; there are: {known}")
        nvrtc.find()
        super().__init__(ordinal, **({} if stream is None else {"stream": stream}))
        context = context_for(ordinal, None if stream is None else _context_of(stream))
        self.features = driver.features(context.device)
        self.start(context, self.features.pools, stream)
        self.dlpack_stream = self.queue.address or DRIVER.default_stream

    @classmethod
    def device_count(cls) -> int:
        nvrtc.find()
        return driver.device_count()

    def describe(self) -> dict[str, str]:
        version = self.features.driver
        with self.queue.entered():
            free, total = self.queue.check(DRIVER.MemGetInfo())
        return {
            "name": self.features.name,
            "compute capability": str(self.features.arch / 10),
            "memory": f"{format_size(int(total))}, of which {format_size(int(free))} is free",
            "driver": f"CUDA {version // 1000}.{version % 1000 // 10}",
            "compiler": f"NVRTC {nvrtc.find().version}",
        }

    # Memory.

    def memory_space(self, ptr: int) -> str:
        """``"cuda"`` for device memory, ``"managed"``, ``"pinned"`` for host memory that the device can
        address, else ``"cpu"``."""
        kinds = DRIVER.module.CUpointer_attribute
        with self.queue.entered():
            found = DRIVER.PointerGetAttribute(
                kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, DRIVER.module.CUdeviceptr(ptr)
            )
            if int(found[0]) == DRIVER.invalid_value:  # the driver knows nothing of it
                return "cpu"
            kind = self.queue.check(found)
            managed = DRIVER.check(
                DRIVER.PointerGetAttribute(
                    kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, DRIVER.module.CUdeviceptr(ptr)
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
        """See `Backend.hand_out`. None or 1 is the legacy default stream, 2 that of each thread, and -1 needs
        no order."""
        handle = DRIVER.default_stream if stream is None else stream
        if isinstance(handle, bool) or not hasattr(handle, "__index__") or operator.index(handle) in (0, -2):
            raise BufferError(f"stream={stream!r} is no CUDA stream; DLPack takes None, -1, 1, 2 or a handle")
        number = operator.index(handle)
        self.lend(array, None if number == -1 else number)

    def allocate_shareable(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        from tack.runtime.cuda import sharing

        return sharing.shareable_buffer(self.queue, self._pool, dtype.itemsize * math.prod(shape))

    def share(self, array: Array) -> SharedMemory:
        from tack.runtime.cuda import sharing

        return sharing.share(array, self.features.uuid)

    def cuda_array_interface(self, array: Array) -> dict[str, Any] | None:
        from tack.runtime.cuda import interop

        return interop.export_interface(array)

    # Compiled code.

    @property
    def dialect(self) -> Any:
        from tack.codegen.c import CUDA

        return CUDA

    def compile_source(self, name: str, source: Any) -> bytes:
        return nvrtc.compile_cubin(source.text, f"{name}.cu", self.features.arch, source.options)

    def make_program(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> Program:
        from tack.runtime.cuda.program import CudaProgram

        return CudaProgram(self.queue, about, artifact, checks)

    def cache_target(self) -> tuple[tuple[str, str], ...]:
        """See `Backend.cache_target`. The driver decides whether it takes what a newer NVRTC makes."""
        return (
            ("architecture", str(self.features.arch)),
            ("nvrtc", nvrtc.find().version),
            ("options", " ".join(nvrtc.OPTIONS)),
            ("driver", str(self.features.driver)),
        )

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        """A typed kernel as CUDA C (``"source"``), PTX (``"optimized"``) or SASS (``"asm"``)."""
        from tack.runtime.gpu.launch import generate

        source = generate(self, ir, disjoint)
        text: str = source.text
        if mode == "source":
            return text
        if mode == "optimized":
            ptx = nvrtc.compile_ptx(text, f"{ir.name}.cu", self.features.arch, source.options)
            return ptx.rstrip(b"\0").decode()
        return _disassemble(self.compile_source(ir.name, source))


def _context_of(stream: object) -> Any:
    """The context of a foreign stream; None for the default streams, which are in any."""
    handle = stream_handle(stream, DRIVER.api)
    if handle <= 2:
        return None
    found = DRIVER.check(DRIVER.StreamGetCtx(DRIVER.stream_at(handle)))
    return found[0] if isinstance(found, tuple) else found


def _disassemble(image: bytes) -> str:
    """The machine code of a CUBIN as text."""
    tool = nvrtc.find_tool("nvdisasm")
    if tool is None:
        raise NotImplementedError(
            "CUDA's machine code is shown by nvdisasm, which is not installed (nvidia-cuda-nvdisasm)"
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


BACKEND: Final = CudaBackend
