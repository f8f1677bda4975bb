"""The emulated CUDA driver: building it, putting it in the place of NVIDIA's, and steering it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Driver", "build", "compile_image", "install"]

_SOURCE = Path(__file__).with_name("libcuda.cpp")
# Nothing of the C++ library: what this exports is for all to see, and NVRTC would take it for its own.
_STATIC = ("-static-libstdc++", "-static-libgcc")
_EXPORTED = "{ global: cu*; emu_*; local: *; };"
_LIVE = (
    *("memory", "pinned", "streams", "events", "modules", "pools", "graphs", "execs"),
    *("physicals", "reserved"),
)


def build() -> Path:
    """The compiled driver, which is kept beside the compiled kernels."""
    from emulated import compiler

    digest = hashlib.sha256(_SOURCE.read_bytes() + repr((_STATIC, _EXPORTED)).encode()).hexdigest()[:16]
    library = compiler.store() / f"driver-{digest}" / "libcuda.so.1"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=library.parent)
        os.close(handle)
        flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
        command = [
            "g++",
            *flags,
            "-Wl,-soname,libcuda.so.1",
            "-Wl,--version-script=/dev/stdin",
            "-o",
            made,
            *_STATIC,
        ]
        subprocess.run([*command, str(_SOURCE), "-ldl"], check=True, text=True, input=_EXPORTED)
        os.replace(made, library)
    return library


class Driver:
    """What tests ask of the emulated driver."""

    def __init__(self, library: Path) -> None:
        # Once it is loaded, whoever asks for libcuda.so.1 gets it.
        self._library = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        self._library.emu_calls.restype = self._library.emu_live.restype = ctypes.c_long

    def devices(self, count: int) -> None:
        """How many devices `cuInit` finds from now on."""
        self._library.emu_devices(count)

    def limit(self, nbytes: int) -> None:
        """The memory of each device."""
        self._library.emu_limit(ctypes.c_uint64(nbytes))

    def pace(self, *, synchronous: bool = False, delay: int = 0) -> None:
        """Whether calls wait for their work; how many microseconds a stream waits before each piece of it."""
        self._library.emu_pace(int(synchronous), delay)

    def pools(self, on: bool) -> None:
        """Whether devices that start from now on allocate in stream order."""
        self._library.emu_pools(int(on))

    def version(self, arch: int, driver: int) -> None:
        """The architecture and the version that devices started from now on see."""
        self._library.emu_version(arch, driver)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A block in which no stream begins with more work."""
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

        ``"run"`` stands for the execution of a kernel, whose failure the context keeps.
        """
        self._library.emu_fail(function.encode(), ctypes.c_long(call), code)

    def heal(self) -> None:
        """Takes back planned and kept failures."""
        self._library.emu_forget_faults()
        self._library.emu_heal()
        from tack.runtime.cuda.driver import DRIVER

        for context in DRIVER.contexts.values():
            context.failure = None
            context.stopped.value = 0

    def calls(self, function: str) -> int:
        """How often a function has been called."""
        return int(self._library.emu_calls(function.encode()))

    def live(self, kind: str) -> int:
        """How many there are of ``"memory"`` (allocations), ``"streams"``, ``"events"``, …"""
        return int(self._library.emu_live(kind.encode()))

    def alive(self) -> dict[str, int]:
        """The same for every kind."""
        return {kind: self.live(kind) for kind in _LIVE}


@functools.cache
def install() -> Driver:
    """The emulated driver in the place of NVIDIA's, for this process, and a compiler that it understands.

    Raises:
        RuntimeError: something that this needs is not installed, or a driver is loaded already.
    """
    from tack.runtime.cuda import nvrtc
    from tack.runtime.cuda.driver import DRIVER

    if DRIVER.module is not None:
        raise RuntimeError("another CUDA driver is in use in this process")
    for needed in ("g++", "ld"):
        if shutil.which(needed) is None:
            raise RuntimeError(f"the emulation needs {needed}")
    if importlib.util.find_spec("cuda") is None:
        raise RuntimeError("the emulation needs the package cuda-bindings")
    found = Driver(build())
    replaced: Any = nvrtc
    replaced.find = lambda: nvrtc.Library("", "emulated")
    replaced.compile_cubin = compile_image
    return found


def compile_image(text: str, name: str, arch: int, options: Sequence[str] = ()) -> bytes:
    """What `tack.runtime.cuda.nvrtc.compile_cubin` is here: an image that the emulated driver loads."""
    from emulated import compiler

    entries = re.findall(r'extern "C" __global__ void (?:__\w+\([^)]*\) )?(\w+)\(([^)]*)\)', text)
    assert entries, text
    counts = "".join(
        f'\nextern "C" __attribute__((visibility("default"))) unsigned emulate_{entry}_params;'
        f"\nunsigned emulate_{entry}_params = {len(params.split(',')) if params else 0};"
        for entry, params in entries
    )
    return compiler.compile(text + counts, [entry for entry, _ in entries])
