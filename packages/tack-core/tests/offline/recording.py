"""Writes the source of each GPU kernel that this process compiles into a folder."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["record", "write"]


def write(folder: Path, source: Any, dialect: Any) -> None:
    """One file for each text and options, in a folder of the dialect."""
    text = f"// options: {' '.join(source.options)}\n{source.text}"
    place = folder / dialect.name.replace(" ", "-")
    path = place / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.txt"
    if not path.exists():
        place.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: other processes write it too, and some tests end theirs.
        handle, made = tempfile.mkstemp(dir=place, suffix=".part")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(made, path)


@functools.cache
def record(folder: str) -> None:
    """From now on. What CUDA gets is written in HIP C and OpenCL C as well, and what Metal gets in OpenCL C
    without f64: those backends have the same kernels, and take longer to emulate."""
    from tack.codegen.c import CUDA, HIP, MSL, OPENCL, OPENCL_WITHOUT_F64, generate
    from tack.runtime.gpu import launch

    others = {CUDA: (HIP, OPENCL), MSL: (OPENCL_WITHOUT_F64,)}
    before = launch.generate

    def generate_and_write(backend: Any, kernel: Any, disjoint: bool) -> Any:
        source = before(backend, kernel, disjoint)
        write(Path(folder), source, backend.dialect)
        for other in others.get(backend.dialect, ()):
            if _atomic_dtypes(kernel) <= set(other.atomic_dtypes):
                with contextlib.suppress(ValueError):  # its arrays are larger than what that has
                    write(Path(folder), generate(kernel, other, disjoint=disjoint), other)
        return source

    replaced: Any = launch
    replaced.generate = generate_and_write


def _atomic_dtypes(kernel: Any) -> set[str]:
    """The element types of the kernel's atomics."""
    from tack.ir import nodes as ir
    from tack.ir.traversal import walk

    types = {param.name: param.type for param in kernel.params}
    return {types[n.array].dtype.name for n in walk(kernel) if isinstance(n, ir.Atomic) and n.array in types}
