"""Compiles generated CUDA C and HIP C to a shared object that runs it on the CPU.

The object exports ``emulate_<entry>(void **parameters, const unsigned grid[3], const unsigned block[3])``
for each entry: ``parameters`` are the addresses of the kernel's, as ``cuLaunchKernel`` and
``hipModuleLaunchKernel`` take them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from emulated import together

__all__ = ["CHECKED", "COMPILER", "OPTIONS", "build", "compile", "joined"]

HERE = Path(__file__).parent
COMPILER = os.environ.get("CXX", "g++")
# No fused operations and no assumptions, so that what the text says is what runs.
OPTIONS = (
    "-O1",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-w",
)
# More of them, with which undefined behaviour ends the process.
CHECKED = (
    *OPTIONS,
    *("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=alignment"),
    "-fsanitize-undefined-trap-on-error",
)
# What many kernels at once are compiled with: fast, and with undefined behaviour that ends the process.
_UNDEFINED = "signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow,bounds,return"
_QUICK = (
    *("clang-19", "-O0", "-fno-exceptions", "-fno-asynchronous-unwind-tables"),
    *(f"-fsanitize={_UNDEFINED}", "-fsanitize-trap=all"),
)
# One of so many such units is compiled with this instead, which makes use of undefined behaviour.
_OPTIMIZED, _RARELY = (COMPILER, "-O2"), 20


def compile(
    text: str, entry_names: Sequence[str], options: Sequence[str] = OPTIONS, wavefront: int | None = None
) -> bytes:
    """The shared object for a translation unit. Objects are kept, by their contents, in a store.

    ``wavefront`` is how many lanes of an AMD GPU run in step; None: it is CUDA's.

    Raises:
        RuntimeError: the compiler refuses the text; the message is its own.
    """
    meeting = int("__syncthreads" in text)
    entries = "".join(f"\nTACK_EMULATE({name}, {meeting})" for name in entry_names)
    return build(_header(), f'#line 1 "kernel.cu"\n{text}{entries}\n', options, wavefront)


def build(header: str, text: str, options: Sequence[str], wavefront: int | None = None) -> bytes:
    """The shared object of a unit in C++, with runtime.c in it; ``header`` is in front of the text.

    Tasks of `together.run` get one for all of them, without a look at the store.

    Raises:
        RuntimeError: the compiler refuses it.
    """
    command = (COMPILER, *options)
    if (shared := together.current()) is not None:
        found: bytes = shared.ask(_Units(header, tuple(options), wavefront), text)
        return found
    unit = f"{header}\n{text}"
    key = hashlib.sha256("\0".join((unit, _runtime(wavefront).name, *options)).encode()).hexdigest()
    kept = store() / key[:2] / f"{key}.so"
    try:
        return kept.read_bytes()
    except FileNotFoundError:
        made = _build(unit, command, wavefront)
        kept.parent.mkdir(parents=True, exist_ok=True)
        _write(kept, made)
        return made


class _Units(NamedTuple):
    """Compiles many texts as one unit, which each of them gets."""

    header: str
    options: tuple[str, ...]
    wavefront: int | None

    def __call__(self, texts: list[str]) -> list[bytes | RuntimeError]:
        unit = joined(self.header, texts)
        # The same texts are compiled in the same way.
        rarely = shutil.which(_QUICK[0]) is None or zlib.crc32(unit.encode()) % _RARELY == 0
        compiler, *how = _OPTIMIZED if rarely else _QUICK
        try:
            return [_build(unit, (compiler, *self.options, *how), self.wavefront)] * len(texts)
        except RuntimeError as error:
            if len(texts) == 1:
                return [error]
        return [found for text in texts for found in self([text])]  # which of them is it?


def joined(header: str, texts: Sequence[str]) -> str:
    """One unit of several, each in a namespace of its own. What they export has names of its own already."""
    parts = [header]
    for number, text in enumerate(texts):
        # In OpenCL C that is a name, of which the header makes another.
        parts += ['#pragma push_macro("namespace")', "#undef namespace", f"namespace unit_{number} {{"]
        parts += ['#pragma pop_macro("namespace")', text, "}"]
    return "\n".join(parts)


def store() -> Path:
    """The folder of compiled objects: ``TACK_TEST_OBJECTS``, or one in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tack-tests" / "emulated"
    return Path(os.environ.get("TACK_TEST_OBJECTS", default))


@functools.cache
def _header() -> str:
    return (HERE / "device.h").read_text()


def _run(command: Sequence[str], text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr}")


def _build(unit: str, command: Sequence[str], wavefront: int | None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        part, whole = f"{folder}/kernel.o", f"{folder}/kernel.so"
        _run([*command, "-x", "c++", "-c", "-", "-o", part], unit)
        # The linker itself: the compiler's way to it takes five times as long, and links what is not used.
        _run(["ld", "-shared", part, str(_runtime(wavefront)), "-l:libm.so.6", "-o", whole])
        return Path(whole).read_bytes()


@functools.cache
def _runtime(wavefront: int | None) -> Path:
    """The object file of runtime.c."""
    source = (HERE / "runtime.c").read_bytes()
    defined = [f"-DWARP={wavefront or 32}", f"-DALL_MEET={int(wavefront is None)}"]
    digest = hashlib.sha256(source + repr(defined).encode()).hexdigest()[:16]
    kept = store() / f"runtime-{digest}.o"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "runtime.o"
            flags = ["-O2", "-fPIC", "-fvisibility=hidden", *defined]
            _run(["gcc", *flags, "-c", str(HERE / "runtime.c"), "-o", str(made)])
            _write(kept, made.read_bytes())
    return kept


def _write(path: Path, data: bytes) -> None:
    """Puts a file in its place whole, whoever else does at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(name, path)
