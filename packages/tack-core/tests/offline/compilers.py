"""The compilers: each gives the messages of a text for one architecture, or says what is missing."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from emulated import amd, msl

__all__ = ["COMPILERS", "Compiler", "required"]

_CLANG = "clang-19"
# What nobody wrote: a float as an integer, and f32 as f64.
_WARNINGS = (*amd.WARNINGS, "-Wfloat-conversion", "-Wdouble-promotion")

Messages = tuple[bool, str]
"""Whether it compiled, and what the compiler wrote."""


class Compiler(NamedTuple):
    """One of them, for the sources of one language of `tack.codegen.c`.

    ``nbytes`` is how much text it gets at once.
    """

    name: str
    language: str
    architectures: tuple[str, ...]
    missing: Callable[[], str | None]
    version: Callable[[], str]
    compile: Callable[[str, str, Sequence[str]], Messages]
    nbytes: int = 200_000


def _run(command: Sequence[str], text: str) -> Messages:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr + done.stdout


def _missing(command: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(command) else f"there is no {command}"


def _version(command: str) -> Callable[[], str]:
    def version() -> str:
        text = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
        return text.splitlines()[0].strip()

    return version


# --- NVRTC ---------------------------------------------------------------------------------------


def _nvrtc_missing() -> str | None:
    from tack.runtime.cuda import nvrtc

    try:
        nvrtc.find()
    except RuntimeError as error:
        return str(error)
    return None


def _nvrtc_version() -> str:
    from tack.runtime.cuda import nvrtc

    return f"NVRTC {nvrtc.find().version}"


def _nvrtc(text: str, arch: str, options: Sequence[str]) -> Messages:
    """Machine code, so `ptxas` has its say too."""
    from tack.runtime.cuda import nvrtc

    library = nvrtc._load()
    program = ctypes.c_void_p()
    library.check("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    given = [f"--gpu-architecture={arch}", *nvrtc.OPTIONS, *options]
    array = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
    status = library.call("nvrtcCompileProgram", program, len(given), array)
    log = library.text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
    library.call("nvrtcDestroyProgram", ctypes.byref(program))
    return status == 0, log


# --- AMD -----------------------------------------------------------------------------------------


def _hiprtc(text: str, arch: str, options: Sequence[str]) -> Messages:
    from tack.runtime.hip import hiprtc

    library = hiprtc._load()
    status, program = library.hiprtcCreateProgram(text.encode(), b"kernel.hip", 0, None, None)
    assert not status
    given = [o.encode() for o in (f"--offload-arch={arch}", *hiprtc.OPTIONS, *options, *_WARNINGS)]
    (status,) = library.hiprtcCompileProgram(program, len(given), given)
    log = bytearray(library.hiprtcGetProgramLogSize(program)[1])
    if log:
        library.hiprtcGetProgramLog(program, log)
    library.hiprtcDestroyProgram(program.createRef())
    return not status, log.rstrip(b"\0").decode(errors="replace")


@functools.cache
def _hiprtc_version() -> str:
    return "hipRTC {}.{}".format(*amd.hiprtc_version())


def _clang_amd(text: str, arch: str, options: Sequence[str]) -> Messages:
    return _run(amd.command(arch, (*options, *_WARNINGS)), amd.unit(text))


# --- Intel ---------------------------------------------------------------------------------------


def _ocloc_missing() -> str | None:
    from tack.runtime.level_zero import ocloc

    try:
        ocloc.find()
    except RuntimeError as error:
        return str(error)
    return None if shutil.which("spirv-val") else "there is no spirv-val (Debian's spirv-tools)"


@functools.cache
def _ocloc_version() -> str:
    from tack.runtime.level_zero import ocloc

    return f"ocloc ({ocloc.find().version.split(' of ')[0]}), spirv-val"


def _ocloc(text: str, device: str, options: Sequence[str]) -> Messages:
    """Machine code for a device, and whether the SPIR-V on the way is valid."""
    from tack.runtime.level_zero import ocloc

    given = " ".join((*ocloc.OPTIONS, *options, "-cl-intel-greater-than-4GB-buffer-required"))
    arguments = ("compile", "-file", "k.cl", "-device", device, "-output", "k", "-options", given)
    status, files = ocloc.invoke(arguments, {"k.cl": text.encode() + b"\0"})
    log = files.get("stdout.log", b"").decode(errors="replace")
    if status:
        return False, log
    spirv = next(data for name, data in files.items() if name.endswith(".spv"))
    command = ["spirv-val", "--target-env", "spv1.4", "-"]
    done = subprocess.run(command, input=spirv, capture_output=True, check=False)
    errors = done.stderr.decode(errors="replace")
    # The translator of LLVM 14 leaves constant tables out of an entry's variables, as before SPIR-V 1.4.
    return done.returncode == 0 or "but is not listed as an interface" in errors, log + errors


def _clang_opencl(text: str, arch: str, options: Sequence[str]) -> Messages:
    """For its warnings, of which ocloc has few."""
    flags = ("-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-Xclang", "-finclude-default-header")
    return _run([_CLANG, *flags, "-fsyntax-only", *_WARNINGS, "-"], text)


# --- Apple ---------------------------------------------------------------------------------------


def _clang_msl(text: str, arch: str, options: Sequence[str]) -> Messages:
    """As C++ for OpenCL, whose address spaces are MSL's, with the header that the emulation has."""
    return _run((*msl.CHECK, *_WARNINGS), msl.checked_unit(text))


COMPILERS = (
    Compiler("nvrtc", "CUDA-C", ("sm_75", "sm_90", "sm_121"), _nvrtc_missing, _nvrtc_version, _nvrtc),
    Compiler(
        "hiprtc", "HIP-C", ("gfx90a", "gfx1030"), amd.hiprtc_missing, _hiprtc_version, _hiprtc, nbytes=400_000
    ),
    Compiler(
        "clang-amd", "HIP-C", ("gfx90a", "gfx942", "gfx1100"), _missing(_CLANG), _version(_CLANG), _clang_amd
    ),
    Compiler("ocloc", "OpenCL-C", ("pvc",), _ocloc_missing, _ocloc_version, _ocloc, 50_000),
    Compiler("ocloc", "OpenCL-C-without-f64", ("tgllp",), _ocloc_missing, _ocloc_version, _ocloc, 50_000),
    *(
        Compiler("clang-opencl", language, ("spir64",), _missing(_CLANG), _version(_CLANG), _clang_opencl)
        for language in ("OpenCL-C", "OpenCL-C-without-f64")
    ),
    Compiler("clang-msl", "MSL", ("spir64",), _missing(_CLANG), _version(_CLANG), _clang_msl),
)


def required() -> set[str]:
    """The compilers that ``TACK_REQUIRE_COMPILERS`` names: without one of them, what needs it fails.

    Raises:
        ValueError: it names something else.
    """
    names = set(os.environ.get("TACK_REQUIRE_COMPILERS", "").replace(",", " ").split())
    unknown = names - {compiler.name for compiler in COMPILERS}
    if unknown:
        raise ValueError(f"TACK_REQUIRE_COMPILERS: unknown {', '.join(sorted(unknown))}")
    return names
