"""The emulated drivers: building them, putting them in the place of the vendors', and steering them."""

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
from typing import Any, NamedTuple

__all__ = ["APIS", "Api", "Driver", "build", "install"]

_SOURCES = Path(__file__).with_name("drivers")
# Nothing of the C++ library: what this exports is for all to see, and NVRTC would take it for its own.
_STATIC = ("-static-libstdc++", "-static-libgcc")
_FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")
_LIVE = (
    *("memory", "pinned", "streams", "events", "modules", "pools", "graphs", "execs", "arrays", "textures"),
    *("physicals", "reserved"),
)

_INVALID_VALUE, _ILLEGAL_ADDRESS = 1, 700  # of both APIs
_MEMORY = 16 << 30  # bytes of each device


class Api(NamedTuple):
    """One of the two that are emulated.

    ``package`` is the Python one that loads ``library``, ``prefix`` that of the functions, and
    ``architecture`` and ``version`` what devices are at first: gfx1030 has 32 lanes in a wavefront and
    texture units, gfx90a, which ``TACK_TEST_GFX`` may name, 64 and none.
    """

    name: str
    library: str
    prefix: str
    package: str
    architecture: str
    version: int


APIS = {
    "cuda": Api("cuda", "libcuda.so.1", "cu", "cuda", "90", 13000),
    "hip": Api("hip", "libamdhip64.so", "hip", "hip", os.environ.get("TACK_TEST_GFX", "gfx1030"), 60_300_000),
}


def build(api: Api) -> Path:
    """The compiled driver, which is kept beside the compiled kernels."""
    from emulated import compiler

    exported = f"{{ global: {api.prefix}*; emu_*; local: *; }};"
    digest = hashlib.sha256(repr((_FLAGS, _STATIC, exported)).encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    library = compiler.store() / f"{api.name}-{digest.hexdigest()[:16]}" / "lib" / api.library
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=library.parent)
        os.close(handle)
        names = [f"-Wl,-soname,{api.library}", "-Wl,--version-script=/dev/stdin", "-o", made]
        command = ["g++", *_FLAGS, *names, *_STATIC, str(_SOURCES / f"{api.name}.cpp"), "-ldl"]
        subprocess.run(command, check=True, text=True, input=exported)
        os.replace(made, library)
    return library


class Driver:
    """What tests ask of an emulated driver."""

    def __init__(self, api: Api, tacks: Any) -> None:
        """``tacks`` is Tack's `tack.runtime.streams.driver.Driver`."""
        library = build(api)
        # Once it is loaded, whoever asks for libcuda.so.1 gets it; hip-python looks here first.
        os.environ["ROCM_PATH"] = str(library.parent.parent)
        self.api = api
        self._tacks = tacks
        self._library = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        self._library.emu_calls.restype = self._library.emu_live.restype = ctypes.c_long
        self.version(api.architecture, api.version)

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

    def version(self, architecture: str, driver: int) -> None:
        """The architecture and the version that devices started from now on see."""
        self._library.emu_version(architecture.encode(), driver)

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
        for context in self._tacks.contexts.values():
            context.failure = None
            context.stopped.value = 0

    def fail_run(self) -> None:
        """Makes the next kernel that runs fail."""
        self.fail("run", _ILLEGAL_ADDRESS)

    def fail_launch(self) -> None:
        """Makes the driver refuse the next launch."""
        name = "LaunchKernel"
        self.fail(self._tacks.renamed.get(name, self.api.prefix + name), _INVALID_VALUE)

    def reset(self) -> None:
        """Takes back all that tests may have asked for."""
        self.release()
        self.pace()
        self.heal()
        self.limit(_MEMORY)
        self.pools(True)

    def violations(self) -> list[str]:
        """Rules that were broken; here such calls fail."""
        return []

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
def install(name: str = "cuda") -> Driver:
    """An emulated driver in the place of the vendor's, for this process, and a compiler that it understands.

    Raises:
        RuntimeError: something that this needs is not installed, or a driver is loaded already.
    """
    api = APIS[name]
    tacks, compiler = _install_cuda() if name == "cuda" else _install_hip()
    if tacks.module is not None:
        raise RuntimeError(f"another {tacks.api} driver is in use in this process")
    for needed in ("g++", "ld"):
        if shutil.which(needed) is None:
            raise RuntimeError(f"the emulation needs {needed}")
    if importlib.util.find_spec(api.package) is None:
        raise RuntimeError(f"the emulation needs the package {api.package}")
    found = Driver(api, tacks)
    compiler()
    return found


def _install_cuda() -> tuple[Any, Any]:
    from tack.runtime.cuda import nvrtc
    from tack.runtime.cuda.driver import DRIVER

    def replace() -> None:
        replaced: Any = nvrtc
        replaced.find = lambda: nvrtc.Library("", "emulated")
        replaced.compile_cubin = lambda text, name, arch, options=(): compile_image(text)

    return DRIVER, replace


def _install_hip() -> tuple[Any, Any]:
    from tack.runtime.hip import hiprtc
    from tack.runtime.hip.driver import DRIVER

    def compile_code(text: str, name: str, arch: str, options: Sequence[str] = ()) -> bytes:
        return compile_image(text, 64 if arch.startswith("gfx9") else 32)

    def replace() -> None:
        replaced: Any = hiprtc
        replaced.version = lambda: (6, 3)
        replaced.compile_code = compile_code

    return DRIVER, replace


def compile_image(text: str, wavefront: int | None = None) -> bytes:
    """What compiles here: an image that the emulated driver loads."""
    from emulated import compiler

    entries = re.findall(r'extern "C" __global__ void (?:__\w+\([^)]*\) )?(\w+)\(([^)]*)\)', text)
    assert entries, text
    counts = "".join(
        f'\nextern "C" __attribute__((visibility("default"))) unsigned emulate_{entry}_params;'
        f"\nunsigned emulate_{entry}_params = {len(params.split(',')) if params else 0};"
        for entry, params in entries
    )
    return compiler.compile(text + counts, [entry for entry, _ in entries], wavefront=wavefront)
