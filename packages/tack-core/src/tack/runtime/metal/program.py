"""Compiled kernels: their MSL, and the pipelines that Metal's compiler makes of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, cast, final

from tack.runtime.array import Array
from tack.runtime.gpu.program import Program
from tack.runtime.metal import api

if TYPE_CHECKING:
    from tack.runtime.metal.buffer import MetalBuffer
    from tack.runtime.metal.queue import Queue

__all__ = ["OPTIONS", "MetalProgram", "artifact_of", "compile_library"]

MAX_ITERATIONS: Final = 1 << 32  # of a launch
# What a kernel with fastmath=True starts with, in the artifact.
_RELAXED: Final = "// relaxed\n"
OPTIONS: Final = "MSL 3.0, safe math"


def artifact_of(source: Any) -> bytes:
    """The artifact of a `tack.codegen.c.Source`: its text, since macOS keeps what it makes of that."""
    text: str = source.text
    return ((_RELAXED if "relaxed" in source.options else "") + text).encode()


def compile_library(device: Any, artifact: bytes) -> Any:
    """The ``MTLLibrary`` of an artifact.

    Raises:
        RuntimeError: the compiler refuses it; with its errors.
    """
    text = artifact.decode()
    options = api.metal.MTLCompileOptions.alloc().init()
    if hasattr(options, "setMathMode_"):  # from macOS 15 on, as 3.2, which has a fence for the device
        options.setLanguageVersion_(api.metal.MTLLanguageVersion3_2)
        relaxed = text.startswith(_RELAXED)
        options.setMathMode_(api.metal.MTLMathModeRelaxed if relaxed else api.metal.MTLMathModeSafe)
    else:
        options.setLanguageVersion_(api.metal.MTLLanguageVersion3_0)
        options.setFastMathEnabled_(False)
    library, error = device.newLibraryWithSource_options_error_(text, options, None)
    if library is None:
        raise api.Error(_errors(api.describe_error(error)))
    return library


def _errors(text: str) -> str:
    """The lines of a compiler's report that are errors, or all."""
    found = [line for line in text.splitlines() if re.search(r"\berror:", line)]
    return "\n".join(found) or text


@final
class MetalProgram(Program):
    """A variant's pipelines.

    Attributes:
        queue: where its launches are encoded.
        pipeline: of the entry.
        result: of the return expression, or None.
    """

    __slots__ = ("pipeline", "queue", "result")

    def __init__(self, queue: Queue, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> None:
        super().__init__(about, artifact, checks)
        self.queue = queue
        self.most = min(self.most, MAX_ITERATIONS)
        with api.pool():
            library = compile_library(queue.device, artifact)
            self.pipeline = self._pipeline(library, about["entry"], prod(self.block))
            name = about["result"]
            self.result = None if name is None else self._pipeline(library, name, 1)

    def _pipeline(self, library: Any, name: str, threads: int) -> Any:
        device = self.queue.device
        function = library.newFunctionWithName_(name)
        if function is None:
            raise api.Error(f"the compiled source has no function '{name}'")
        pipeline, error = device.newComputePipelineStateWithFunction_error_(function, None)
        if pipeline is None:
            raise api.Error(api.describe_error(error))
        most = pipeline.maxTotalThreadsPerThreadgroup()
        if most < threads:
            raise api.Error(f"the GPU runs {most} threads of it at a time, and it needs {threads}")
        return pipeline

    def launch(self, slots: bytes, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        self._launch(self.pipeline, slots, grid, self.block, args)

    def evaluate(self, slots: bytes, out: Array, args: Sequence[Any]) -> None:
        arguments = slots + out.address.to_bytes(8, "little")
        self._launch(self.result, arguments, (1, 1, 1), (1, 1, 1), [*args, out])

    def _launch(
        self,
        pipeline: Any,
        slots: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[Any],
    ) -> None:
        textures = [args[k]._image.texture for k in self.textures]
        # A texture's array is not sampled itself; but for its image it is an argument like others.
        buffers = [cast("MetalBuffer", a._buffer) for a in args if type(a) is Array]
        try:
            self.queue.launch(self.name, pipeline, slots, grid, block, buffers, textures)
        except api.Error as error:
            raise RuntimeError(f"Kernel '{self.name}' failed on {self.queue.label}: {error}") from error
