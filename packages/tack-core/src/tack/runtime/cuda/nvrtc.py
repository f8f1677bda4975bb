"""NVRTC: CUDA C to machine code for one architecture.

The library is found without being loaded, so that the disk cache's keys can name its version: a
program whose kernels are all cached never loads it. What is found is what is then loaded, by its path.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import shutil
import threading
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final, NamedTuple

__all__ = ["OPTIONS", "Library", "compile_cubin", "compile_ptx", "find", "find_tool"]

# Besides the architecture; `tack.runtime.cuda.launch.target` puts them into the keys of the cache.
OPTIONS: Final = ("--std=c++17",)

_PACKAGES: Final = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_ROOTS: Final = ("/usr/local/cuda", "/opt/cuda")
_lock = threading.Lock()  # NVRTC is thread-safe, but its first call in a process is not worth a race


class Library(NamedTuple):
    """Where NVRTC is, and which version."""

    path: str
    version: str


@functools.cache
def find() -> Library:
    """The NVRTC that kernels are compiled with: the installed package's, else a CUDA toolkit's.

    Raises:
        RuntimeError: there is none.
    """
    for name in _PACKAGES:
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for file in package.files or ():
            path = str(package.locate_file(file))
            if file.name.startswith("libnvrtc.so") and os.path.exists(path):
                return Library(path, package.version)
    for root in _roots():
        for path in sorted(glob.glob(os.path.join(root, "lib64", "libnvrtc.so*")), reverse=True):
            real = os.path.realpath(path)  # libnvrtc.so.13.0.88
            return Library(real, f"{os.path.basename(real)} of {os.path.getsize(real)} bytes")
    raise RuntimeError("NVRTC, which compiles the kernels, is not installed (nvidia-cuda-nvrtc)")


def _roots() -> list[str]:
    """Where a CUDA toolkit may be."""
    return [*(os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)), *_ROOTS]


class _Nvrtc:
    """The functions of the library."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise RuntimeError(f"NVRTC does not load: {error}") from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *args: Any) -> int:
        status: int = getattr(self._library, name)(*args)
        return status

    def check(self, name: str, *args: Any) -> None:
        status = self.call(name, *args)
        if status:
            raise RuntimeError(f"{name}: {self._library.nvrtcGetErrorString(status).decode()}")

    def text(self, program: ctypes.c_void_p, what: str) -> bytes:
        """What ``nvrtcGet<what>`` gives of a program, whose size another function gives."""
        size = ctypes.c_size_t()
        self.check(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.check(f"nvrtcGet{what}", program, text)
        return text.raw


@functools.cache
def _load() -> _Nvrtc:
    return _Nvrtc(find().path)


def architecture(arch: int) -> str:
    """The option for machine code of a device's architecture; the newest PTX if NVRTC does not know it.

    Of the architectures that it knows, code for an older one of the same major version runs as well.
    """
    library = _load()
    count = ctypes.c_int()
    library.check("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    known = (ctypes.c_int * count.value)()
    library.check("nvrtcGetSupportedArchs", known)
    if arch in known:
        return f"sm_{arch}"
    same = [k for k in known if k // 10 == arch // 10 and k < arch]
    if same:
        return f"sm_{max(same)}"
    older = [k for k in known if k < arch]
    if older:
        return f"compute_{max(older)}"
    raise RuntimeError(
        f"NVRTC {find().version} compiles for compute capability {min(known) / 10} and newer, "
        f"and the device has {arch / 10}"
    )


def compile_cubin(text: str, name: str, arch: int, options: Sequence[str] = ()) -> bytes:
    """Machine code (CUBIN) of a translation unit for a device's architecture, or PTX if NVRTC is older.

    ``options`` are those of this text alone.

    Raises:
        RuntimeError: it does not compile; with the compiler's errors.
    """
    with _lock:
        target = architecture(arch)
    return _compile(text, name, target, options)


def compile_ptx(text: str, name: str, arch: int, options: Sequence[str] = ()) -> bytes:
    """PTX of a translation unit, which is for people to read. Raises as `compile_cubin` does."""
    with _lock:
        target = architecture(arch).replace("sm_", "compute_")
    return _compile(text, name, target, options)


def find_tool(name: str) -> str | None:
    """The path of a program of the CUDA toolkit, if it is installed."""
    found = shutil.which(name)
    folders = [os.path.join(root, "bin") for root in _roots()]
    package = os.path.dirname(os.path.dirname(find().path))  # where the packages of PyPI have theirs
    for folder in (*folders, os.path.join(package, "bin")):
        found = found or shutil.which(name, path=folder)
    return found


def _compile(text: str, name: str, target: str, options: Sequence[str]) -> bytes:
    library = _load()
    program = ctypes.c_void_p()
    library.check("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    try:
        given = [f"--gpu-architecture={target}", *OPTIONS, *options]
        array = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
        status = library.call("nvrtcCompileProgram", program, len(given), array)
        if status:
            log = library.text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise RuntimeError(f"NVRTC refuses the generated code:\n{_errors(log)}")
        if target.startswith("sm_"):
            return library.text(program, "CUBIN")
        return library.text(program, "PTX")
    finally:
        library.call("nvrtcDestroyProgram", ctypes.byref(program))


def _errors(log: str) -> str:
    """The errors of a compiler's log, without its warnings and the source that it repeats."""
    lines = [line for line in log.splitlines() if "error" in line]
    return "\n".join(lines[:10] or log.splitlines()[:10])
