"""ocloc, Intel's offline compiler: OpenCL C to SPIR-V, in this process.

The library is found without being loaded, so that a program whose kernels are all cached never loads it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import glob
import os
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

__all__ = ["OPTIONS", "Library", "assembly", "compile_spirv", "find", "invoke"]

# Of the language. They are in the keys of the cache, and so are those of the module (`program.BUILD_FLAGS`).
OPTIONS: Final = ("-cl-std=CL1.2",)
# SPIR-V is for every device; these stand for those that have f64, and for those that do not.
_DEVICES: Final = {True: "pvc", False: "tgllp"}

_FOLDERS: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib")
_LOG: Final = "stdout.log"
_lock = threading.Lock()  # it keeps state of its own


class Library(NamedTuple):
    """Where ocloc is, and which version."""

    path: str
    version: str


@functools.cache
def find() -> Library:
    """The libocloc that kernels are compiled with.

    Its version is that of the file: ocloc has no call that says which it is.

    Raises:
        RuntimeError: there is none.
    """
    paths = [
        path for folder in _FOLDERS for path in sorted(glob.glob(f"{folder}/libocloc.so*"), reverse=True)
    ]
    name = ctypes.util.find_library("ocloc")
    for path in paths + ([name] if name else []):
        real = os.path.realpath(path)
        if os.path.exists(real):
            status = os.stat(real)
            return Library(
                real, f"{os.path.basename(real)} of {status.st_size} bytes, {int(status.st_mtime)}"
            )
        return Library(path, path)
    raise RuntimeError(
        "ocloc, which compiles the kernels, is not installed (Debian's intel-ocloc or intel-opencl-icd)"
    )


@functools.cache
def _load() -> Any:
    try:
        return ctypes.CDLL(find().path)
    except OSError as error:
        raise RuntimeError(f"ocloc does not load: {error}") from error


def invoke(arguments: Sequence[str], sources: dict[str, bytes]) -> tuple[int, dict[str, bytes]]:
    """Runs a command of ocloc on files in memory: its status, and the files that it wrote, by name."""
    library = _load()
    count = len(sources)
    words = [b"ocloc", *(argument.encode() for argument in arguments)]
    outputs = ctypes.c_uint32()
    data = ctypes.POINTER(ctypes.POINTER(ctypes.c_uint8))()
    lengths = ctypes.POINTER(ctypes.c_uint64)()
    names = ctypes.POINTER(ctypes.c_char_p)()
    results = tuple(map(ctypes.byref, (outputs, data, lengths, names)))
    with _lock:
        status = library.oclocInvoke(
            ctypes.c_uint(len(words)),
            (ctypes.c_char_p * len(words))(*words),
            ctypes.c_uint32(count),
            (ctypes.c_char_p * count)(*sources.values()),
            (ctypes.c_uint64 * count)(*map(len, sources.values())),
            (ctypes.c_char_p * count)(*(name.encode() for name in sources)),
            *(ctypes.c_uint32(0), None, None, None),
            *results,
        )
        try:
            found = {
                names[k].decode(): ctypes.string_at(data[k], lengths[k]) if lengths[k] else b""
                for k in range(outputs.value)
            }
        finally:
            library.oclocFreeOutput(*results)
    return int(status), found


def compile_spirv(text: str, name: str, *, f64: bool, options: Sequence[str] = ()) -> bytes:
    """SPIR-V of a translation unit. ``f64``: whether it is for devices that have that.

    Raises:
        RuntimeError: it does not compile; with the compiler's errors.
    """
    given = " ".join((*OPTIONS, *options))
    arguments = ("compile", "-file", f"{name}.cl", "-device", _DEVICES[f64], "-spv_only", "-q")
    status, files = invoke(
        (*arguments, "-output_no_suffix", "-output", name, "-options", given),
        {f"{name}.cl": text.encode() + b"\0"},
    )
    spirv = next((data for file, data in files.items() if file.endswith(".spv")), None)
    if status or spirv is None:
        log = files.get(_LOG, b"").decode(errors="replace")
        raise RuntimeError(f"ocloc refuses the generated code:\n{_errors(log) or f'status {status}'}")
    return spirv


def assembly(spirv: bytes, device: str, options: Sequence[str] = ()) -> str:
    """The machine code of a module for a device, ``"pvc"`` or a number such as ``"0x0bd5"``, as text.

    Raises:
        NotImplementedError: ocloc finds no disassembler, or does not know the device.
    """
    given = (
        "-spirv_input",
        "-file",
        "k.spv",
        "-device",
        device,
        "-output",
        "k",
        "-options",
        " ".join(options),
    )
    _, files = invoke(("compile", *given), {"k.spv": spirv})
    code = next((data for file, data in files.items() if file.endswith(".bin")), None)
    if code is None:
        log = files.get(_LOG, b"").decode(errors="replace")
        raise NotImplementedError(f"ocloc makes no machine code for the device {device}:\n{_errors(log)}")
    _, files = invoke(("disasm", "-file", "k.bin", "-device", device, "-dump", "k"), {"k.bin": code})
    found = {file: data.decode() for file, data in files.items() if file.endswith(".asm")}
    if not found:
        raise NotImplementedError(
            "machine code is shown with libiga64.so, which ocloc does not find (Debian's package libigc-dev)"
        )
    names = {file: os.path.basename(file).removesuffix("_KernelHeap.asm") for file in found}
    return "\n".join(f"// {names[file]}\n{text}" for file, text in sorted(found.items()))


def _errors(log: str) -> str:
    """The errors of a compiler's log, without its warnings and the source that it repeats."""
    lines = [line for line in log.splitlines() if "error" in line.lower()]
    return "\n".join(lines[:10] or log.splitlines()[:10])
