"""hipRTC: HIP C to a code object for one architecture.

An old hipRTC ends the process if it is asked for an architecture that it does not know. So one that is
not on the list is first tried in another process.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["OPTIONS", "compile_code", "version"]

# Besides the architecture; `HipBackend.cache_target` puts them into the keys of the cache.
OPTIONS: Final = ("-std=c++17",)

# What hipRTC of these versions and newer compiles for, as tried.
_KNOWN: Final = (
    ((5, 2), frozenset({"gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030", "gfx1036"})),
    ((6, 4), frozenset({"gfx942", "gfx950", "gfx1100", "gfx1201"})),
)
_PROBE: Final = """
import sys
sys.path[:] = sys.argv[2:]
from tack.runtime.hip import hiprtc
hiprtc._compile('extern "C" __global__ void nothing() {}', "probe.hip", sys.argv[1], ())
"""
_PROBE_SECONDS: Final = 60
_lock = threading.Lock()  # compilations of one process, of which hipRTC 5 takes one at a time


@functools.cache
def _load() -> Any:
    """hip-python's module of hipRTC.

    Raises:
        RuntimeError: it is not installed.
    """
    try:
        from hip import hiprtc
    except ImportError as error:
        raise RuntimeError("the package hip-python is not installed or does not load") from error
    return hiprtc


def _check(result: tuple[Any, ...], what: str) -> Any:
    if result[0]:
        library = _load()
        text = library.hiprtcGetErrorString(result[0])
        raise RuntimeError(f"{what}: {text.decode() if isinstance(text, bytes) else text}")
    return result[1] if len(result) == 2 else result[1:]


@functools.cache
def version() -> tuple[int, int]:
    """Which hipRTC there is: the version of the runtime that it came with, since its own is 9.0 in all.

    Raises:
        RuntimeError: there is none.
    """
    library = _load()
    from hip import hip

    runtime: Any = hip
    try:
        _check(library.hiprtcVersion(), "hiprtcVersion")  # which loads it
    except RuntimeError as error:
        raise RuntimeError("hipRTC, which compiles the kernels, does not load (libhiprtc.so)") from error
    status, number = runtime.hipRuntimeGetVersion()
    if status:
        raise RuntimeError(f"hipRuntimeGetVersion: {status.name}")
    return int(number) // 10_000_000, int(number) // 100_000 % 100


@functools.cache
def check_architecture(arch: str) -> None:
    """Raises ``RuntimeError`` if hipRTC does not compile for an architecture."""
    name = arch.split(":")[0]
    if any(name in names for since, names in _KNOWN if version() >= since):
        return
    command = [sys.executable, "-c", _PROBE, arch, *sys.path]
    try:
        subprocess.run(command, capture_output=True, check=True, timeout=_PROBE_SECONDS)
    except subprocess.SubprocessError as error:
        major, minor = version()
        raise RuntimeError(
            f"hipRTC {major}.{minor} does not compile for the device's architecture {name}; "
            "install the ROCm that came with the device's driver, or a newer one"
        ) from error


def compile_code(text: str, name: str, arch: str, options: Sequence[str] = ()) -> bytes:
    """The code object of a translation unit. ``options`` are those of this text alone.

    Raises:
        RuntimeError: it does not compile, with the compiler's errors; or the architecture is not known.
    """
    check_architecture(arch)
    return _compile(text, name, arch, options)


def _compile(text: str, name: str, arch: str, options: Sequence[str]) -> bytes:
    library = _load()
    given = [option.encode() for option in (f"--offload-arch={arch}", *OPTIONS, *options)]
    with _lock:
        program = _check(
            library.hiprtcCreateProgram(text.encode(), name.encode(), 0, None, None), "hiprtcCreateProgram"
        )
        try:
            (status,) = library.hiprtcCompileProgram(program, len(given), given)
            if status:
                log = bytearray(_check(library.hiprtcGetProgramLogSize(program), "hiprtcGetProgramLogSize"))
                _check(library.hiprtcGetProgramLog(program, log), "hiprtcGetProgramLog")
                raise RuntimeError(f"hipRTC refuses the generated code:\n{_errors(log)}")
            code = bytearray(_check(library.hiprtcGetCodeSize(program), "hiprtcGetCodeSize"))
            _check(library.hiprtcGetCode(program, code), "hiprtcGetCode")
            return bytes(code)
        finally:
            library.hiprtcDestroyProgram(program.createRef())


def _errors(log: bytearray) -> str:
    """The errors of a compiler's log, without its warnings and the source that it repeats."""
    lines = log.rstrip(b"\0").decode(errors="replace").splitlines()
    return "\n".join([line for line in lines if "error" in line][:10] or lines[:10])
