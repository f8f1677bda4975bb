"""The emulated Level Zero loader: building it, putting it in the place of the real one, and steering it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["TARGETS", "Loader", "build", "install"]

_HERE = Path(__file__).parent
_LOADER = _HERE / "libze_loader.cpp"
# What runs the kernels, by target; and the headers of Debian's packages that it needs.
_ENGINES = {"opencl-emu": _HERE / "native.hpp", "opencl-pocl": _HERE / "pocl.hpp"}
TARGETS = tuple(_ENGINES)
_LEVEL_ZERO = ("/usr/include/level_zero/ze_api.h", "libze-dev")
_OPENCL = ("/usr/include/CL/cl.h", "opencl-c-headers")
_HEADERS = {"opencl-emu": (_LEVEL_ZERO,), "opencl-pocl": (_LEVEL_ZERO, _OPENCL)}
_FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")
# Nothing of the C++ library is for others to see.
_STATIC = ("-static-libstdc++", "-static-libgcc")
_EXPORTED = "{ global: ze*; emu_*; local: *; };"
_LIVE = ("contexts", "lists", "pools", "events", "modules", "kernels", "images", "logs", "device", "host")
# Whether devices have it unless a test says otherwise.
_F64 = os.environ.get("TACK_TEST_F64") != "0"
# What the emulation's modules are made from; see libze_loader.cpp.
_SPIRV = b"SPIR-V of the emulation\n"
_DEVICE_LOST, _INVALID_ARGUMENT = 0x70000001, 0x78000004


def build(target: str) -> Path:
    """The compiled loader, which is kept beside what other emulations compile."""
    from emulated import compiler

    engine = _ENGINES[target]
    parts = [source.read_bytes() for source in (_LOADER, _HERE / "engine.hpp", engine)]
    parts.append(repr((_FLAGS, _STATIC, _EXPORTED)).encode())
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    library = compiler.store() / f"level-zero-{digest}" / "libze_loader.so.1"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=library.parent)
        os.close(handle)
        names = ("-Wl,-soname,libze_loader.so.1", "-Wl,--version-script=/dev/stdin", "-o", made)
        flags = (*_FLAGS, f'-DENGINE="{engine.name}"', *_STATIC)
        command = ["g++", *flags, *names, str(_LOADER), "-ldl"]
        subprocess.run(command, check=True, text=True, input=_EXPORTED)
        os.replace(made, library)
    return library


class Loader:
    """What tests ask of the emulated loader."""

    def __init__(self, library: Path) -> None:
        # Once it is loaded, whoever asks for libze_loader.so.1 gets it.
        self._library = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        self._library.emu_calls.restype = self._library.emu_live.restype = ctypes.c_long
        self._library.emu_violations.restype = self._library.emu_missing.restype = ctypes.c_char_p

    def missing(self) -> str | None:
        """What the emulation needs and does not find."""
        found = self._library.emu_missing()
        return None if found is None else found.decode()

    def devices(self, count: int) -> None:
        """How many there are."""
        self._library.emu_devices(count)

    def limit(self, nbytes: int = 4 << 30, largest: int = 2 << 30) -> None:
        """The memory of each device, and the largest allocation whose limit is not lifted."""
        self._library.emu_limit(ctypes.c_uint64(nbytes), ctypes.c_uint64(largest))

    def features(
        self,
        *,
        f64: bool = _F64,
        samplers: bool = True,
        group: int = 1024,
        groups: int = (1 << 32) - 1,
        image: int = 2048,
    ) -> None:
        """What devices that start from now on report: ``group`` work-items make one, of which a launch has at
        most ``groups`` along each axis."""
        self._library.emu_features(int(f64), int(samplers), group, ctypes.c_uint32(groups), image)

    def revision(self, number: int) -> None:
        """Of the driver, which refuses the machine code of others."""
        self._library.emu_revision(number)

    def pace(self, delay: int = 0) -> None:
        """How many microseconds a command list waits before each piece of work."""
        self._library.emu_delay(delay)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A block in which no command list begins with more work."""
        self._library.emu_gate(1)
        try:
            yield
        finally:
            self._library.emu_gate(0)

    def release(self) -> None:
        """Opens the gate inside `held`."""
        self._library.emu_gate(0)

    def fail(self, function: str, code: int, call: int = 1) -> None:
        """Makes a call of a function fail, the first from now on or a later one.

        ``"run"`` stands for the execution of a kernel, whose failure loses the device.
        """
        self._library.emu_fail(function.encode(), ctypes.c_long(call), ctypes.c_uint(code))

    def heal(self) -> None:
        """Takes back planned failures, and a device's loss."""
        from tack.runtime.level_zero import driver

        self._library.emu_heal()
        for context in driver._contexts:
            context.failure = None
            context.is_stopped = False

    def fail_run(self) -> None:
        """Makes the next kernel that runs fail."""
        self.fail("run", _DEVICE_LOST)

    def fail_launch(self) -> None:
        """Makes the driver refuse the next launch."""
        self.fail("zeCommandListAppendLaunchKernel", _INVALID_ARGUMENT)

    def reset(self) -> None:
        """Takes back all that tests may have asked for."""
        self.release()
        self.pace()
        self.heal()
        self.limit()
        self.features()
        self.revision(1)

    def calls(self, function: str) -> int:
        """How often a function has been called."""
        return int(self._library.emu_calls(function.encode()))

    def alive(self) -> dict[str, int]:
        """How many handles of each kind there are, and allocations of device and of host memory."""
        return {kind: int(self._library.emu_live(kind.encode())) for kind in _LIVE}

    def violations(self) -> list[str]:
        """The rules of the API that have been broken since this was asked last."""
        return str(self._library.emu_violations().decode()).splitlines()


@functools.cache
def install(target: str) -> Loader:
    """The emulated loader in the place of the real one, for this process, and a compiler that it understands.

    ``target`` says what runs the kernels: ``"opencl-emu"``, the system's C++ compiler, or ``"opencl-pocl"``.
    With ``TACK_TEST_F64=0`` in the environment devices have no f64 at first.

    Raises:
        RuntimeError: something that this needs is not installed, or a loader is in use already.
    """
    from tack.runtime.level_zero import driver, ocloc

    if driver.api is not None:
        raise RuntimeError("another Level Zero loader is in use in this process")
    for needed in ("g++", "ld"):
        if shutil.which(needed) is None:
            raise RuntimeError(f"the emulation needs {needed}")
    for header, package in _HEADERS[target]:
        if not os.path.exists(header):
            raise RuntimeError(f"the emulation needs {header} (package {package})")
    found = Loader(build(target))
    missing = found.missing()
    if missing is not None:
        raise RuntimeError(f"the emulation needs {missing} (packages pocl-opencl-icd and ocl-icd-libopencl1)")
    found.features()
    replaced: Any = ocloc
    replaced.find = lambda: ocloc.Library("", "emulated")
    replaced.compile_spirv = _compile_native if target == "opencl-emu" else _keep_source
    return found


def _keep_source(text: str, name: str, *, f64: bool, options: Sequence[str] = ()) -> bytes:
    """What `tack.runtime.level_zero.ocloc.compile_spirv` is with PoCL: a module that the loader takes."""
    return _SPIRV + text.encode()


def _compile_native(text: str, name: str, *, f64: bool, options: Sequence[str] = ()) -> bytes:
    """The same with the C++ compiler."""
    from emulated import opencl

    return _SPIRV + opencl.compile(text)
