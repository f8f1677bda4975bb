"""The HIP backend."""

from __future__ import annotations

import operator
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from tack.runtime.cpu.memory import format_size
from tack.runtime.hip import driver, hiprtc
from tack.runtime.hip.driver import DRIVER, context_for
from tack.runtime.streams.backend import StreamBackend
from tack.runtime.streams.queue import stream_handle

if TYPE_CHECKING:
    from tack.runtime.array import Array
    from tack.runtime.backend import TextureImage
    from tack.runtime.gpu.program import Program

__all__ = ["BACKEND", "HipBackend"]


@final
class HipBackend(StreamBackend):
    """An AMD GPU. Launches, copies and fills are queued, and run in program order.

    Options: ``stream``, the stream of another library to queue on: a handle as an int, or an object with
    ``.cuda_stream`` (as in PyTorch) or ``.ptr``, or of hip-python, which is kept alive.
    """

    name = "hip"
    display_name = "HIP"
    compiler = "hipRTC"
    driver = DRIVER
    device_memory_spaces = ("hip", "managed", "pinned")
    shared_memory = 64 << 10
    varies = ("texture_in_hardware",)

    def __init__(self, ordinal: int = 0, *, stream: object = None) -> None:
        count = driver.start()
        if ordinal >= count:
            known = ", ".join(f"'hip:{k}'" if k else "'hip'" for k in range(count))
            raise ValueError(f"there is no device 'hip:{ordinal}'; there are: {known}")
        hiprtc.version()
        super().__init__(ordinal, **({} if stream is None else {"stream": stream}))
        if stream is not None:
            _check_stream(stream, ordinal)
        self.features = driver.features(ordinal)
        self.start(context_for(ordinal), self.features.pools, stream)
        self.dlpack_stream = self.queue.address or DRIVER.default_stream

    @classmethod
    def device_count(cls) -> int:
        hiprtc.version()
        return driver.device_count()

    def describe(self) -> dict[str, str]:
        with self.queue.entered():
            free, total = self.queue.check(DRIVER.MemGetInfo())
        major, minor = hiprtc.version()
        return {
            "name": self.features.name,
            "architecture": self.features.arch,
            "memory": f"{format_size(int(total))}, of which {format_size(int(free))} is free",
            "driver": f"ROCm runtime {self.features.runtime}, driver {self.features.driver}",
            "compiler": f"hipRTC {major}.{minor}",
        }

    # Memory.

    def memory_space(self, ptr: int) -> str:
        """``"hip"`` for device memory, ``"managed"``, ``"pinned"`` for host memory that the device can
        address, else ``"cpu"``."""
        kinds = DRIVER.module.hipMemoryType
        with self.queue.entered():
            found = DRIVER.filled("PointerGetAttributes", "hipPointerAttribute_t", ptr)
            if int(found[0]) == DRIVER.invalid_value:  # HIP 5 knows nothing of it
                return "cpu"
            about = self.queue.check(found)
        if about.isManaged or about.type == kinds.hipMemoryTypeManaged:
            return "managed"
        return {kinds.hipMemoryTypeDevice: "hip", kinds.hipMemoryTypeHost: "pinned"}.get(about.type, "cpu")

    # Textures.

    def texture_in_hardware(self, shape: tuple[int, int, int]) -> bool:
        """Not on accelerators without texture units, such as gfx90a, and not past the largest extents."""
        fits = all(extent <= most for extent, most in zip(shape, self.features.texture, strict=True))
        return self.features.images and fits

    def create_texture_image(self, shape: tuple[int, int, int]) -> TextureImage:
        from tack.runtime.hip.texture import HipTextureImage

        return HipTextureImage(self.queue, shape)

    # Other libraries.

    def hand_out(self, array: Array, stream: Any) -> None:
        """See `Backend.hand_out`. On ROCm, 0 or None is the default stream, and -1 needs no order."""
        handle = DRIVER.default_stream if stream is None else stream
        if (
            isinstance(handle, bool)
            or not hasattr(handle, "__index__")
            or operator.index(handle) in (1, 2, -2)
        ):
            raise BufferError(f"stream={stream!r} is no HIP stream; DLPack takes None, -1, 0 or a handle")
        number = operator.index(handle)
        self.lend(array, None if number == -1 else number)

    # Compiled code.

    @property
    def dialect(self) -> Any:
        from tack.codegen.c import HIP

        return HIP

    def compile_source(self, name: str, source: Any) -> bytes:
        return hiprtc.compile_code(source.text, f"{name}.hip", self.features.arch, source.options)

    def make_program(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> Program:
        from tack.runtime.hip.program import HipProgram

        return HipProgram(self.queue, about, artifact, checks)

    def cache_target(self) -> tuple[tuple[str, str], ...]:
        """See `Backend.cache_target`. Devices of one architecture with and without texture units have
        other features in its name."""
        import hip

        return (
            ("device", self.features.name),
            ("architecture", self.features.arch),
            ("runtime", str(self.features.runtime)),
            ("driver", str(self.features.driver)),
            ("hiprtc", "{}.{}".format(*hiprtc.version())),
            ("hip-python", str(hip.VERSION)),
            ("options", " ".join(hiprtc.OPTIONS)),
        )

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        """A typed kernel as HIP C (``"source"``) or machine code (``"asm"``)."""
        from tack.runtime.gpu.launch import generate

        source = generate(self, ir, disjoint)
        if mode == "source":
            text: str = source.text
            return text
        if mode == "asm":
            return _disassemble(self.compile_source(ir.name, source))
        return super().inspect(ir, mode, disjoint)


def _check_stream(stream: object, ordinal: int) -> None:
    """Raises ``ValueError`` if a foreign stream is on another device."""
    handle = stream_handle(stream, DRIVER.api)
    if handle > 2:  # the others are the default streams, which every device has
        found = int(DRIVER.check(DRIVER.StreamGetDevice(DRIVER.stream_at(handle))))
        if found != ordinal:
            raise ValueError(f"the stream is on device {found}, and not on 'hip:{ordinal}'")


def _disassemble(image: bytes) -> str:
    """The machine code of a code object as text."""
    root = os.path.join(os.environ.get("ROCM_PATH", "/opt/rocm"), "llvm", "bin")
    tool = shutil.which("llvm-objdump", path=root) or shutil.which("llvm-objdump")
    if tool is None:
        raise NotImplementedError(
            "HIP's machine code is shown by llvm-objdump, which is not installed (ROCm)"
        )
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        file.write(image)
        file.flush()
        done = subprocess.run([tool, "-d", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"llvm-objdump: {done.stderr.strip()}")
    return done.stdout


BACKEND: Final = HipBackend
