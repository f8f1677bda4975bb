"""AMD's compilers, which need no GPU: clang's AMDGPU target, and hipRTC as Tack calls it."""

from __future__ import annotations

import atexit
import functools
import glob
import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

__all__ = [
    *("WARNINGS", "clang", "clang_missing", "command", "hiprtc", "hiprtc_missing", "hiprtc_version"),
    *("environment", "require", "root", "unit"),
]

_HEADER = Path(__file__).with_name("hip_device.h")
# Parameters are the slots of a launch, and helpers what a unit may need, so some of either are not used.
_UNUSED = ("-Wno-unused", "-Wno-unused-parameter", "-Wno-unused-but-set-parameter")
WARNINGS = ("-Wall", "-Wextra", *_UNUSED)
_FLAGS = ("-x", "hip", "--offload-device-only", "-nogpulib", "-nogpuinc", "-std=c++17", "-O3")


def require(reason: str | None) -> None:
    """Skips a test for lack of something, or fails it where ``TACK_REQUIRE_TARGETS`` names hip-emu."""
    if reason is not None:
        if "hip-emu" in os.environ.get("TACK_REQUIRE_TARGETS", "").replace(",", " ").split():
            pytest.fail(f"TACK_REQUIRE_TARGETS names hip-emu, but {reason}")
        pytest.skip(reason)


# --- clang --------------------------------------------------------------------------------------


@functools.cache
def _clang() -> str | None:
    return shutil.which("clang-19") or shutil.which("clang++-19")


def clang_missing() -> str | None:
    return None if _clang() else "there is no clang-19"


def command(arch: str, options: Sequence[str]) -> list[str]:
    """clang's command for the assembly of a `unit`, which it reads and writes."""
    return [str(_clang()), *_FLAGS, f"--offload-arch={arch}", *options, "-S", "-o", "-", "-"]


def unit(text: str) -> str:
    """HIP C with what it uses of AMD's headers in front."""
    return f'{_HEADER.read_text()}\n#line 1 "kernel.hip"\n{text}'


def clang(text: str, arch: str, options: Sequence[str] = (), *, strict: bool = True) -> str:
    """The assembly of HIP C. An ``AssertionError`` if it does not compile, or, if ``strict``, warns."""
    given = command(arch, ((*WARNINGS, "-Werror") if strict else ("-w",)) + tuple(options))
    done = subprocess.run(given, input=unit(text), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return done.stdout


# --- hipRTC -------------------------------------------------------------------------------------


@functools.cache
def _libraries() -> dict[str, str]:
    """The newest of each of ROCm's libraries; HIP 5 has hipRTC in the runtime's."""
    found = {}
    for name in ("libamdhip64.so", "libhiprtc.so"):
        for folder in ("/usr/lib/*-linux-gnu", "/opt/rocm/lib"):
            for path in sorted(glob.glob(f"{folder}/{name}*")):
                found[name] = path
    if "libamdhip64.so" in found:
        found.setdefault("libhiprtc.so", found["libamdhip64.so"])
    return found


@functools.cache
def hiprtc_missing() -> str | None:
    if not _libraries():
        return "there is no hipRTC (libamdhip64-dev)"
    try:
        import hip
    except ImportError:
        return "there is no hip-python"
    return None if hip else "there is no hip-python"


@functools.cache
def root() -> str:
    """A folder with ROCm's libraries, for hip-python, which looks where ``ROCM_PATH`` says."""
    folder = tempfile.mkdtemp(prefix="tack-rocm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.mkdir(f"{folder}/lib")
    for name, path in _libraries().items():
        os.symlink(path, f"{folder}/lib/{name}")
    return folder


def environment() -> dict[str, str]:
    """What makes a process one of these libraries."""
    return {"ROCM_PATH": root()} if _libraries() else {}


def _start(environment: dict[str, str]) -> None:
    os.environ.update(environment)


@functools.cache
def _worker() -> ProcessPoolExecutor:
    """A process of its own, which a hipRTC that ends it does not end the tests with."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(environment(),))


def _compile(text: str, arch: str, options: Sequence[str]) -> bytes:
    from tack.runtime.hip import hiprtc

    return hiprtc.compile_code(text, "kernel.hip", arch, options)


def _version() -> tuple[int, int]:
    from tack.runtime.hip import hiprtc

    return hiprtc.version()


def hiprtc(text: str, arch: str, options: Sequence[str] = ()) -> bytes:
    """The code object of a unit; raises as `tack.runtime.hip.hiprtc.compile_code` does."""
    return _worker().submit(_compile, text, arch, tuple(options)).result()


def hiprtc_version() -> tuple[int, int]:
    return _worker().submit(_version).result()
