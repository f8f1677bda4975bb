"""Compiles kernels for CUDA and launches them."""

from __future__ import annotations

import ctypes
import functools
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import numpy as np

from tack.runtime.array import Array, new_array
from tack.runtime.cuda import driver, nvrtc
from tack.runtime.cuda.driver import CudaError, check
from tack.runtime.debug import HIDDEN, raise_violation
from tack.runtime.profile import running
from tack.runtime.slots import (
    DTYPES,
    join_artifact,
    launch_range,
    pack,
    print_line,
    print_site,
    print_template,
    slot_format,
    split_artifact,
)
from tack.runtime.variants import Variant, resolve_variant
from tack.runtime.workgroups import check_workgroup_launch

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.lang.kernel import Kernel
    from tack.runtime.cuda.backend import CudaBackend
    from tack.runtime.cuda.buffer import CudaBuffer
    from tack.runtime.cuda.queue import Queue
    from tack.runtime.learn import Plan

__all__ = [
    "Program",
    "build",
    "execute",
    "inspect",
    "load",
    "native_plan",
    "prepare_launch",
    "save",
    "target",
]

_MAX_BLOCKS: Final = ((1 << 31) - 1, 65_535, 65_535)
_PRINT_WORDS: Final = 1 << 17  # of the buffer for print
_NO_RECORD: Final = (1 << 64) - 1  # instead of a site's number: the rest did not fit


def describe(kernel: ir.Kernel, source: Any) -> dict[str, Any]:
    """What launches need of a typed kernel besides its machine code, as data for the disk cache."""
    from tack.codegen.llvm import check_sites, print_sites
    from tack.ir.workgroups import primitives

    geometry = source.geometry
    prints = [print_template(site) for site in print_sites(kernel)]
    return {
        "name": kernel.name,
        "slots": slot_format(kernel, bool(prints)),
        "entry": source.entry,
        "result": source.result,
        "result_dtype": None if kernel.result is None else str(kernel.result_type),
        "block": list(geometry.block),
        "items": list(geometry.items),
        "flat": geometry.flat,
        "strides": not primitives(kernel),
        "prints": prints,
        "textures": [k for k, p in enumerate(kernel.params) if p.texture],
        "record": [p.name for p in kernel.params].index(HIDDEN[1]) if check_sites(kernel) else None,
    }


class Program:
    """A variant's machine code: what ``Variant.payload`` is on CUDA.

    Attributes:
        about: what `describe` gives.
        artifact: the CUBIN, until it has been stored.
        function: the driver's handle of the entry.
        result: the same for the return expression, or None.
        name: the kernel's.
        clock: when it was launched last, which the native dispatcher writes too.
    """

    __slots__ = (
        *("__weakref__", "_module", "_offsets", "about", "artifact", "block", "checks", "clock", "flat"),
        *("function", "items", "most", "name", "prints", "queue", "record", "result", "result_dtype"),
        *("slots", "textures"),
    )

    def __init__(self, queue: Queue, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> None:
        self.queue = queue
        self.about = about
        self.artifact: bytes | None = artifact
        cu = driver.cu
        with queue.entered():
            self._module = _load_module(queue, artifact)
            self.function = check(cu.cuModuleGetFunction(self._module, about["entry"].encode()))
            name = about["result"]
            self.result = None if name is None else check(cu.cuModuleGetFunction(self._module, name.encode()))
        dtype = about["result_dtype"]
        self.result_dtype = None if dtype is None else DTYPES[dtype]
        self.block: tuple[int, int, int] = tuple(about["block"])
        self.items: tuple[int, int, int] = tuple(about["items"])
        self.flat: bool = about["flat"]
        self.most = (1 << 63) - 1 if about["strides"] else _MAX_BLOCKS[0] * self.block[0] * self.items[0]
        self.checks = checks
        self.record: int = about["record"] or 0
        self.prints = [print_site(template) for template in about["prints"]]
        self.slots = struct.Struct(about["slots"])
        self.textures: list[int] = about["textures"]
        self.name: str = about["name"]
        self.clock = ctypes.c_int64()
        count = self.slots.size // 8
        self._offsets = np.arange(0, 8 * (count + 1), 8, dtype=np.uint64)
        queue.programs.add(self)

    def __del__(self) -> None:
        if hasattr(self, "_module") and not self.queue.context.stopped.value:
            context, unload = self.queue.context, driver.cu.cuModuleUnload
            self.queue.retire(functools.partial(driver.release, context, unload, self._module))

    @property
    def launched(self) -> int:
        """When it was launched last, by `monotonic_ns`."""
        return self.clock.value

    def grid(self, launch: Sequence[int], total: int) -> tuple[int, int, int]:
        """The number of blocks along each axis; see `docs/design/cuda.md`."""
        counts = [total] if self.flat else list(launch[-1:0:-3])  # the last dimension first
        blocks = [
            min(-(-count // (size * items)), most)
            for count, size, items, most in zip(
                counts + [1] * (3 - len(counts)), self.block, self.items, _MAX_BLOCKS, strict=True
            )
        ]
        return blocks[0], blocks[1], blocks[2]

    def launch_failed(self, code: int) -> NoReturn:
        """Raises the error of a launch by the native dispatcher."""
        try:
            self.queue.check((code,))
        except CudaError as error:
            raise self._refused(error) from error
        raise AssertionError(code)

    def _refused(self, error: CudaError) -> RuntimeError:
        return RuntimeError(f"Kernel '{self.name}' failed on {self.queue.label}: {error}")

    def launch(self, queue: Queue, slots: bytes, grid: tuple[int, int, int]) -> None:
        """Queues a launch; ``slots`` are copied."""
        self.clock.value = monotonic_ns()
        self._launch(queue, self.function, slots, grid, self.block)

    def evaluate(self, queue: Queue, slots: bytes, out: int) -> None:
        """Queues the evaluation of the return expression to the device address ``out``."""
        self.clock.value = monotonic_ns()
        self._launch(queue, self.result, slots + struct.pack("=Q", out), (1, 1, 1), (1, 1, 1))

    def _launch(
        self,
        queue: Queue,
        function: Any,
        slots: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
    ) -> None:
        with queue.entered():
            result = self.queue_on(queue.stream, function, slots, grid, block)
        if result[0]:
            self.launch_failed(int(result[0]))

    def queue_on(
        self,
        stream: Any,
        function: Any,
        slots: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
    ) -> tuple[Any, ...]:
        """Queues a launch on a stream; what the driver says of it."""
        address = ctypes.cast(ctypes.c_char_p(slots), ctypes.c_void_p).value or 0
        pointers = self._offsets + np.uint64(address)
        result: tuple[Any, ...] = driver.cu.cuLaunchKernel(
            function, *grid, *block, 0, stream, pointers.ctypes.data, 0
        )
        return result


def _load_module(queue: Queue, image: bytes) -> Any:
    """The driver's handle of a CUBIN, or of PTX, which the driver compiles."""
    try:
        return queue.check(driver.cu.cuModuleLoadData(image + b"\0"))
    except CudaError as error:
        if image.startswith(b"\x7fELF"):
            raise RuntimeError(f"the driver refuses the machine code: {error}") from error
        raise RuntimeError(
            f"NVRTC {nvrtc.find().version} does not know the device's architecture, and the driver refuses "
            f"its PTX ({error}); install an NVRTC that knows it, or a newer driver"
        ) from error


# --- compiling --------------------------------------------------------------------------------


def build(backend: CudaBackend, kernel: ir.Kernel, disjoint: bool) -> Program:
    """Compiles a typed kernel."""
    from tack.codegen.llvm import check_sites
    from tack.stages import stage

    try:
        with stage("code generation"):
            source = generate(kernel, disjoint)
        with stage("NVRTC"):
            artifact = nvrtc.compile_cubin(
                source.text, f"{kernel.name}.cu", backend.features.arch, source.options
            )
        with stage("load"):
            return Program(backend.queue, describe(kernel, source), artifact, check_sites(kernel))
    except RuntimeError as error:
        if backend.queue.context.failure is not None:  # which was a launch before
            raise
        raise RuntimeError(f"Kernel '{kernel.name}' failed on {backend.label}: {error}") from error


def generate(kernel: ir.Kernel, disjoint: bool) -> Any:
    """The CUDA C of a typed kernel."""
    from tack.codegen.c import CUDA, generate

    return generate(kernel, CUDA, disjoint=disjoint)


def inspect(backend: CudaBackend, kernel: ir.Kernel, mode: str, disjoint: bool) -> str:
    """A typed kernel as CUDA C (``"source"``), PTX (``"optimized"``) or SASS (``"asm"``)."""
    source = generate(kernel, disjoint)
    text: str = source.text
    if mode == "source":
        return text
    arch = backend.features.arch
    if mode == "optimized":
        return nvrtc.compile_ptx(text, f"{kernel.name}.cu", arch, source.options).rstrip(b"\0").decode()
    return _disassemble(nvrtc.compile_cubin(text, f"{kernel.name}.cu", arch, source.options))


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


def save(program: Program) -> bytes:
    """A program as bytes."""
    assert program.artifact is not None
    return join_artifact(program.about, program.artifact)


def load(backend: CudaBackend, read: Callable[[], ir.Kernel], data: bytes) -> Program:
    """The program that `save` wrote; ``read`` gives the typed kernel, which debug mode's errors show."""
    about, code = split_artifact(data)
    checks: Sequence[Any] = ()
    if about["record"] is not None:
        from tack.codegen.llvm import check_sites

        checks = check_sites(read())
    program = Program(backend.queue, about, code, checks)
    program.artifact = None
    return program


def target(backend: CudaBackend) -> tuple[tuple[str, str], ...]:
    """The named parts of what machine code depends on besides the kernel.

    The driver's version is one because it decides whether it takes what a newer NVRTC makes.
    """
    return (
        ("architecture", str(backend.features.arch)),
        ("nvrtc", nvrtc.find().version),
        ("options", " ".join(nvrtc.OPTIONS)),
        ("driver", str(backend.features.driver)),
    )


# --- launching --------------------------------------------------------------------------------


def prepare_launch(backend: CudaBackend, kernel: Kernel, args: tuple[Any, ...]) -> tuple[Variant, list[Any]]:
    """The variant for a call, compiled if need be, and the arguments that it takes."""
    return resolve_variant(backend, kernel, args, lambda typed, disjoint: build(backend, typed, disjoint))


def execute(backend: CudaBackend, kernel: Kernel, args: tuple[Any, ...]) -> int | float | None:
    """Queues a launch of ``kernel``, and returns its result, for which it waits."""
    variant, accepted = prepare_launch(backend, kernel, args)
    program: Program = variant.payload
    total, launch = launch_range(kernel, variant, accepted, backend.label, program.most)
    check_workgroup_launch(kernel, variant, total)
    queue = backend.queue
    buffers = [cast("CudaBuffer", a._buffer) for a in accepted if type(a) is Array]
    others = {buffer.queue for buffer in buffers} - {queue}
    for other in others:
        queue.follow(other)
    output = _print_buffer(backend) if program.prints else None
    values = with_images(program, accepted) if program.textures else accepted
    slots = pack(program.slots, values, launch, () if output is None else (output.address,))
    with running(kernel, backend):
        if total:
            program.launch(queue, slots, program.grid(launch, total))
    result = None if program.result is None else _result(backend, program, slots)
    for other in others:
        other.follow(queue)
    if output is not None:
        sys.stdout.write(_printed(kernel, program, output))
    if any(buffer.is_foreign for buffer in buffers):
        queue.wait()
    if program.checks:
        raise_violation(variant.ir, program.checks, accepted[program.record], variant.launch_range(accepted))
    return result


def with_images(program: Program, args: list[Any]) -> list[Any]:
    """The arguments with the handles of the textures that are sampled in hardware."""
    return [a._image.handle if k in program.textures else a for k, a in enumerate(args)]


def _result(backend: CudaBackend, program: Program, slots: bytes) -> int | float:
    """The value of the kernel's return expression."""
    dtype = program.result_dtype
    assert dtype is not None
    out = new_array(backend, dtype, ())
    program.evaluate(backend.queue, slots, out.address)
    value: int | float = out[()]
    return value


def native_plan(kernel: Kernel, variant: Variant, args: Sequence[Any], label: str) -> Plan | None:
    """See `Backend.native_plan`. Launches that the host waits for are left to Python."""
    from tack.runtime.learn import Plan  # who asks is there

    program: Program = variant.payload
    if program.prints or program.checks or program.textures or program.result is not None:
        return None
    total, launch = launch_range(kernel, variant, args, label, program.most)
    context, queue = program.queue.context, program.queue
    gpu = (
        *driver.addresses(
            "cuLaunchKernel", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent"
        ),
        *(int(program.function), queue.address, context.address),
        *(ctypes.addressof(context.stopped), ctypes.addressof(program.clock)),
        *(*program.block, *program.items, *_MAX_BLOCKS),
        *(program.most, program.flat, context.is_usual),
    )
    return Plan(0, 0, -1, True, 0.0, 1, pack(program.slots, args, launch, ()), total, gpu)


# --- print ------------------------------------------------------------------------------------


def _print_buffer(backend: CudaBackend) -> Array:
    """An empty print buffer: see `docs/design/cuda.md`."""
    from tack.dtypes import u64

    buffer = new_array(backend, u64, (2 + _PRINT_WORDS,))
    buffer._buffer.write(0, np.array([0, _PRINT_WORDS], np.uint64))
    return buffer


def _printed(kernel: Kernel, program: Program, output: Array) -> str:
    """The lines of a launch, in the order in which they came."""
    claimed = int(output[0])
    words = output.numpy(2, 2 + min(claimed, _PRINT_WORDS)).tobytes()
    lines = []
    at = 0
    while at < len(words):
        (number,) = struct.unpack_from("<Q", words, at)
        if number == _NO_RECORD:
            break
        site = program.prints[number]
        size = 8 * (1 + sum(not isinstance(part, str) for part in site))
        lines.append(print_line(site, words[at + 8 : at + size]))
        at += size
    if claimed > _PRINT_WORDS:
        warnings.warn(
            f"kernel '{kernel.__name__}' printed more than the buffer of {8 * _PRINT_WORDS} bytes holds; "
            f"{8 * claimed} bytes came, and the rest is lost",
            RuntimeWarning,
            stacklevel=4,
        )
    return "".join(lines)
