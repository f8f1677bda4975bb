"""Modules of a driver, and their launches."""

from __future__ import annotations

import contextlib
import ctypes
import re
import struct
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, final

from tack.runtime.array import Array
from tack.runtime.gpu.program import MAX_BLOCKS, Program
from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero import driver
from tack.runtime.level_zero.api import ZeError

if TYPE_CHECKING:
    from tack.runtime.level_zero.queue import Queue

__all__ = ["BUILD_FLAGS", "ZeProgram", "join"]

# Of every module: arrays may be larger than what 32-bit offsets reach.
BUILD_FLAGS: Final = ("-ze-opt-greater-than-4GB-buffer-required",)

_SIZES: Final = struct.Struct("<II")


def join(flags: str, spirv: bytes, native: bytes = b"") -> bytes:
    """An artifact: the flags of the module, its SPIR-V, and machine code if there is any."""
    data = flags.encode()
    return _SIZES.pack(len(data), len(spirv)) + data + spirv + native


def _split(artifact: bytes) -> tuple[bytes, bytes, bytes]:
    size, spirv = _SIZES.unpack_from(artifact)
    start = _SIZES.size + size
    return artifact[_SIZES.size : start], artifact[start : start + spirv], artifact[start + spirv :]


@final
class ZeProgram(Program):
    """A module of a Level Zero driver.

    Attributes:
        queue: where its launches are queued.
        launched: the number of the command that launched it last.
    """

    __slots__ = ("_entry", "_layout", "_module", "_result", "launched", "queue")

    def __init__(self, queue: Queue, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> None:
        x, y, z = map(min, MAX_BLOCKS, queue.features.groups)
        super().__init__(about, artifact, checks, (x, y, z))
        self.queue = queue
        self.launched = 0
        if prod(self.block) > queue.features.group:
            raise RuntimeError(
                f"the kernel runs in groups of {prod(self.block)} work-items, and the device has at most "
                f"{queue.features.group} in one"
            )
        # The sizes of the parameters, and where each is in the slots.
        fields = re.findall("[a-zA-Z](?:[0-9]x)?", about["slots"])
        self._layout = [(8 * k, struct.calcsize(field[0])) for k, field in enumerate(fields)]
        self._module = self._load(artifact)
        self._entry = self._kernel(about["entry"], self.block)
        self._result = 0 if about["result"] is None else self._kernel(about["result"], (1, 1, 1))
        queue.programs.add(self)

    def _load(self, artifact: bytes) -> int:
        """The handle of a module of the machine code, or of the SPIR-V if the driver refuses that."""
        flags, spirv, native = _split(artifact)
        if native:
            with contextlib.suppress(ZeError):
                return self._create(ze.MODULE_FORMAT_NATIVE, native, flags)
        return self._create(ze.MODULE_FORMAT_IL_SPIRV, spirv, flags)

    def _create(self, form: int, code: bytes, flags: bytes) -> int:
        context = self.queue.context
        context.check_usable()
        kept = ctypes.create_string_buffer(code, len(code))
        description = ze.structure(
            ze.ModuleDesc,
            format=form,
            inputSize=len(code),
            pInputModule=ctypes.addressof(kept),
            pBuildFlags=flags,
        )
        module, log = ctypes.c_void_p(), ctypes.c_void_p()
        given = (context.handle, context.device.handle, ctypes.byref(description))
        try:
            driver.api.call("ModuleCreate", *given, ctypes.byref(module), ctypes.byref(log))
        except ZeError as error:
            if error.code != ze.MODULE_BUILD_FAILURE:
                raise
            raise RuntimeError(f"the driver refuses the SPIR-V: {error}\n{_errors(log)}") from error
        finally:
            if log.value:
                driver.api.status("ModuleBuildLogDestroy", log)
        return module.value or 0

    def _kernel(self, name: str, block: tuple[int, int, int]) -> int:
        encoded = name.encode()
        description = ze.structure(ze.KernelDesc, pKernelName=encoded)
        kernel = driver.api.make("KernelCreate", self._module, ctypes.byref(description))
        try:
            driver.api.call("KernelSetGroupSize", kernel, *block)
        except ZeError:
            driver.api.status("KernelDestroy", kernel)
            raise
        return kernel

    def __del__(self) -> None:
        context = self.queue.context if hasattr(self, "queue") else None
        if context is None or context.is_stopped:
            return
        for slot, function in (
            ("_entry", "KernelDestroy"),
            ("_result", "KernelDestroy"),
            ("_module", "ModuleDestroy"),
        ):
            handle = getattr(self, slot, 0)
            if handle:
                self.queue.retire(context.destroyer(function, handle))

    def with_native(self) -> bytes:
        """The artifact with the machine code that the driver has made."""
        size = ctypes.c_size_t()
        assert self.artifact is not None
        flags, spirv, native = _split(self.artifact)
        if native:
            return self.artifact
        try:
            driver.api.call("ModuleGetNativeBinary", self._module, ctypes.byref(size), None)
            code = ctypes.create_string_buffer(size.value)
            driver.api.call("ModuleGetNativeBinary", self._module, ctypes.byref(size), code)
        except ZeError:  # the SPIR-V is enough
            return self.artifact
        return join(flags.decode(), spirv, code.raw)

    def launch(self, slots: bytes, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        self._launch(self._entry, slots, grid, args)

    def evaluate(self, slots: bytes, out: Array, args: Sequence[Any]) -> None:
        self._launch(self._result, slots + struct.pack("=Q", out.address), (1, 1, 1), args)

    def _launch(self, kernel: int, slots: bytes, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        queue = self.queue
        layout = self._layout if len(slots) == 8 * len(self._layout) else [*self._layout, (len(slots) - 8, 8)]
        # An array without memory has no address; a pointer's argument is then left out.
        empty = {k for k, arg in enumerate(args) if type(arg) is Array and not arg.address}
        address = ctypes.cast(ctypes.c_char_p(slots), ctypes.c_void_p).value or 0
        try:
            with queue.lock:
                queue.context.check_usable()
                for index, (offset, size) in enumerate(layout):
                    value = None if index in empty else address + offset
                    driver.api.call("KernelSetArgumentValue", kernel, index, size, value)
                self.launched = queue.number + 1
                queue.append("LaunchKernel", kernel, ctypes.byref(ze.GroupCount(*grid)))
        except ZeError as error:
            raise RuntimeError(f"Kernel '{self.name}' failed on {queue.label}: {error}") from error


def _errors(log: ctypes.c_void_p) -> str:
    """The text of a build log."""
    size = ctypes.c_size_t()
    if not log.value or driver.api.status("ModuleBuildLogGetString", log, ctypes.byref(size), None):
        return ""
    text = ctypes.create_string_buffer(size.value + 1)
    driver.api.status("ModuleBuildLogGetString", log, ctypes.byref(size), text)
    lines = text.value.decode(errors="replace").splitlines()
    return "\n".join([line for line in lines if "error" in line.lower()][:10] or lines[:10])
