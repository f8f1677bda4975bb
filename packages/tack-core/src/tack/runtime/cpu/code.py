"""Machine code in memory, and what it depends on, without LLVM wherever that can be.

LLVM takes tens of milliseconds to load, and a process whose kernels are all in the disk cache needs it for
nothing but this.
"""

from __future__ import annotations

import os
import struct
import sys
from functools import cache
from importlib.machinery import PathFinder
from typing import Any, Protocol, final

from tack.runtime.native import module as native

__all__ = [
    "CODEGEN",
    "PASSES",
    "TUNING",
    "Code",
    "Image",
    "llvm",
    "load",
    "loads_images",
    "processor",
    "target",
]

# What LLVM is asked for. docs/design/cpu-code.md has the measurements behind these levels, and behind
# compiling without interleaving: loops get vectorized all the same, in two thirds of the time.
PASSES = 2
CODEGEN = 2
TUNING = {"loop_vectorization": True, "slp_vectorization": True, "loop_interleaving": False}


class Code(Protocol):
    """Machine code in memory, which is freed with this object."""

    def address(self, name: str) -> int:
        """The address of an exported function; KeyError if there is none of this name."""


@final
class Image:
    """An image that `tack.codegen.llvm.image` linked, in memory. ``about`` is what it said of it."""

    __slots__ = ("_exports", "_memory")

    def __init__(self, data: bytes, about: dict[str, Any]) -> None:
        assert native is not None
        self._memory = native.Code(data, tuple(about["imports"]))
        self._exports: dict[str, int] = about["exports"]

    def address(self, name: str) -> int:
        address: int = self._memory.address + self._exports[name]
        return address


def loads_images() -> bool:
    """Whether this process can load images; otherwise LLVM loads objects."""
    return hasattr(native, "Code")


def load(data: bytes, about: dict[str, Any] | None) -> Code:
    """Loads an image, or, where ``about`` is None, an object.

    Neither is checked: ``data`` must be what was compiled, as a digest can tell.

    Raises:
        LookupError: a function that an image calls is not there.
        OSError: there is no memory for it.
    """
    if about is not None:
        return Image(data, about)
    from tack.codegen.llvm.jit import load_object

    return load_object(data)


@cache
def target() -> tuple[tuple[str, str], ...]:
    """The named parts of what machine code depends on besides the kernel: one answer for a process."""
    tuning = ",".join(f"{name}={value}" for name, value in TUNING.items())
    kind = "image" if loads_images() else "object"
    return (
        ("llvm", llvm()),
        ("cpu", processor()),
        ("options", f"passes={PASSES},codegen={CODEGEN},{tuning}"),
        ("platform", f"{sys.platform} {struct.calcsize('P') * 8} {kind}"),
    )


def processor() -> str:
    """What tells the processor and its features from others: what it says of itself, or LLVM of it."""
    if native is not None and loads_images():
        numbers: bytes = native.processor()
        return numbers.hex()
    from tack.codegen.llvm.jit import host_cpu

    return host_cpu()


def llvm() -> str:
    """Which LLVM compiles: the digest of llvmlite's library, which pip recorded, or else its version."""
    try:
        recorded = _recorded()
    except OSError:
        recorded = None
    if recorded is not None:
        return recorded
    from tack.codegen.llvm.jit import llvm_version

    return llvm_version()


def _recorded() -> str | None:
    """The line about the library in llvmlite's RECORD, if llvmlite is in a folder with one."""
    loaded = sys.modules.get("llvmlite")
    spec = PathFinder.find_spec("llvmlite") if loaded is None else loaded.__spec__
    if spec is None or spec.origin is None:
        return None
    site = os.path.dirname(os.path.dirname(spec.origin))
    records = [n for n in os.listdir(site) if n.startswith("llvmlite-") and n.endswith(".dist-info")]
    if len(records) != 1:
        return None
    with open(os.path.join(site, records[0], "RECORD"), "rb") as file:
        lines = file.read().split(b"\n")
    own = [line.strip() for line in lines if line.startswith(b"llvmlite/binding/")]
    found = [line for line in own if line.partition(b",")[0].endswith((b".so", b".dylib", b".dll"))]
    return found[0].decode(errors="replace") if len(found) == 1 and b"sha256=" in found[0] else None
