"""The Level Zero backend."""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final

from tack.dtypes import ALL_DTYPES, DType, f32, f64, i32, u32
from tack.ir.workgroups import WORKGROUP
from tack.runtime.backend import Buffer
from tack.runtime.cpu.memory import format_size
from tack.runtime.gpu.backend import GpuBackend, device_address
from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero import driver, ocloc
from tack.runtime.level_zero.driver import Context
from tack.runtime.level_zero.memory import ZeBuffer, new_buffer
from tack.runtime.level_zero.program import BUILD_FLAGS, ZeProgram, join
from tack.runtime.level_zero.queue import Queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.backend import TextureImage
    from tack.runtime.gpu.program import Program
    from tack.runtime.graph import Step

__all__ = ["BACKEND", "ZeBackend"]

_SPACES: Final = {
    ze.MEMORY_TYPE_DEVICE: "level_zero",
    ze.MEMORY_TYPE_SHARED: "shared",
    ze.MEMORY_TYPE_HOST: "host",
}


@final
class ZeBackend(GpuBackend):
    """An Intel GPU. Launches, copies and fills are queued, and run in program order.

    Options: ``external_context``, the context of another library to work in: a ``ze_context_handle_t`` as an
    int or a ``ctypes.c_void_p``, which is kept alive. Its driver must be that of the device.
    """

    name = "level_zero"
    display_name = "Level Zero"
    compiler = "ocloc"
    supported_dtypes: tuple[DType, ...] = ALL_DTYPES
    supported_atomic_dtypes = (i32, u32, f32)
    shared_memory = 48 << 10
    varies = ("supported_dtypes", "supports_device_reductions", "supports_workgroups", "texture_in_hardware")
    requires_alignment = True
    device_memory_spaces = ("level_zero", "shared", "host")
    device_options = ("external_context",)

    def __init__(self, ordinal: int = 0, *, external_context: object = None) -> None:
        found = driver.start()
        if ordinal >= len(found):
            known = ", ".join(f"'level_zero:{k}'" if k else "'level_zero'" for k in range(len(found)))
            raise ValueError(f"there is no device 'level_zero:{ordinal}'; there are: {known}")
        ocloc.find()
        options = {} if external_context is None else {"external_context": external_context}
        super().__init__(ordinal, **options)
        self.features = driver.features(found[ordinal])
        self.supported_dtypes = tuple(t for t in ALL_DTYPES if t is not f64 or self.features.f64)
        self.supports_workgroups = self.supports_device_reductions = self.features.group >= WORKGROUP
        context = Context(found[ordinal], external_context)
        self.queue = Queue(context, self.features, self.label)

    @classmethod
    def device_count(cls) -> int:
        ocloc.find()
        return driver.devices()

    @property
    def memory_domain(self) -> tuple[object, ...]:
        return self.name, self.ordinal, self.queue.context.handle

    @property
    def has_failed(self) -> bool:
        return self.queue.context.failure is not None

    def describe(self) -> dict[str, str]:
        features = self.features
        version = features.driver
        image = f"up to {features.image} texels along each axis" if features.image else "none"
        return {
            "name": features.name,
            "memory": format_size(features.memory),
            "driver": f"{version >> 24}.{version >> 16 & 255}.{version & 0xFFFF}",
            "images": image,
            "compiler": f"ocloc ({ocloc.find().version})",
        }

    # Memory.

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return new_buffer(self.queue, dtype.itemsize * math.prod(shape))

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        """See `Backend.wrap_ptr`; ``ptr`` may also be what ``int()`` takes."""
        nbytes = dtype.itemsize * math.prod(shape)
        address = device_address(ptr, dtype, nbytes, "Level Zero")
        return ZeBuffer(self.queue, address, nbytes, owned=False, owner=owner)

    def memory_space(self, ptr: int) -> str:
        """``"level_zero"`` for device memory, ``"shared"``, ``"host"`` for host memory that the device can
        address, else ``"cpu"``."""
        if not ptr:
            return "cpu"
        context = self.queue.context
        context.check_usable()
        about = ze.structure(ze.AllocationProperties)
        driver.api.call("MemGetAllocProperties", context.handle, ptr, about, None)
        return _SPACES.get(about.type, "cpu")

    # Textures.

    def texture_in_hardware(self, shape: tuple[int, int, int]) -> bool:
        return max(shape) <= self.features.image

    def create_texture_image(self, shape: tuple[int, int, int]) -> TextureImage:
        from tack.runtime.level_zero.texture import ZeTextureImage

        return ZeTextureImage(self.queue, shape)

    # Other libraries.

    def hand_out(self, array: Array, stream: Any) -> None:
        """Level Zero has no streams in DLPack: the memory is ready when this returns."""
        if stream not in (None, -1):
            raise BufferError(f"stream={stream!r}: Level Zero has no streams; pass stream=None")
        buffer = array._buffer
        assert buffer.foreign is not None
        buffer.foreign[0] = 1
        self.queue.wait()

    # Launches.

    def among(self, arrays: Iterable[Array]) -> contextlib.AbstractContextManager[None]:
        return self.queue.among({cast("ZeBuffer", array._buffer).queue for array in arrays})

    def stamp(self) -> Any:
        return self.queue.record(timed=True)

    def elapsed(self, first: Any, last: Any) -> float:
        return self.queue.elapsed(first, last)

    def synchronize(self) -> None:
        self.queue.wait()

    def completion(self) -> Callable[[], bool]:
        return self.queue.marker()

    # Graphs.

    def launch_step(self, kernel: Kernel, args: tuple[Any, ...]) -> Step:
        from tack.runtime.level_zero import graph

        return graph.launch_step(self, kernel, args)

    def fill_step(self, array: Array, element: NDArray[Any]) -> Any:
        from tack.runtime.level_zero import graph

        return graph.fill_step(array, element)

    def copy_step(self, target: Array, source: Array) -> Any:
        from tack.runtime.level_zero import graph

        return graph.copy_step(target, source)

    def graph(self, steps: Sequence[Step]) -> Callable[[], None]:
        from tack.runtime.level_zero import graph

        return graph.graph(self, steps)

    # Compiled code.

    @property
    def dialect(self) -> Any:
        from tack.codegen.c import OPENCL, OPENCL_WITHOUT_F64

        return OPENCL if self.features.f64 else OPENCL_WITHOUT_F64

    def compile_source(self, name: str, source: Any) -> bytes:
        f64_there = self.features.f64
        spirv = ocloc.compile_spirv(source.text, name, f64=f64_there, options=source.options)
        # SPIR-V does not carry the options, which are about accuracy: the driver is told as well.
        return join(" ".join((*BUILD_FLAGS, *source.options)), spirv)

    def make_program(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> Program:
        return ZeProgram(self.queue, about, artifact, checks)

    def variant_artifact(self, payload: Any) -> bytes | None:
        payload.artifact = payload.with_native()
        return super().variant_artifact(payload)

    def cache_target(self) -> tuple[tuple[str, str], ...] | None:
        features = self.features
        return (
            ("device", f"{features.name}, {features.number:#x}, {features.ip_version:#x}"),
            ("driver", str(features.driver)),
            ("ocloc", ocloc.find().version),
            ("options", " ".join((*ocloc.OPTIONS, *BUILD_FLAGS))),
            ("f64", str(features.f64)),
        )

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        """A typed kernel as OpenCL C (``"source"``), SPIR-V (``"optimized"``) or machine code (``"asm"``)."""
        from tack.runtime.gpu.launch import generate

        source = generate(self, ir, disjoint)
        if mode == "source":
            return str(source.text)
        if mode not in ("optimized", "asm"):
            return super().inspect(ir, mode, disjoint)
        spirv = ocloc.compile_spirv(source.text, ir.name, f64=self.features.f64, options=source.options)
        if mode == "asm":
            return ocloc.assembly(spirv, f"{self.features.number:#06x}", (*BUILD_FLAGS, *source.options))
        return _disassemble(spirv)


def _disassemble(spirv: bytes) -> str:
    """A module as text."""
    tool = shutil.which("spirv-dis")
    if tool is None:
        raise NotImplementedError(
            "SPIR-V is shown by spirv-dis, which is not installed (package spirv-tools)"
        )
    done = subprocess.run([tool, "-"], input=spirv, capture_output=True, check=True)
    return done.stdout.decode()


BACKEND: Final = ZeBackend
