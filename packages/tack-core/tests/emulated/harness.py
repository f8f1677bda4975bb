"""Runs a typed kernel's CUDA C, HIP C or MSL on the CPU, as the runtime does on a device, but without it."""

from __future__ import annotations

import ctypes
import math
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from emulated import compiler, msl
from tack.codegen.c import CUDA, HIP, MSL, Source, generate
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.traversal import walk_statements

__all__ = ["Emulated", "EmulatedMsl", "grid"]

Launch = Sequence[tuple[int, int, int]]


def grid(source: Source, counts: Sequence[int]) -> tuple[int, int, int]:
    """The blocks along each axis that cover the range, as a launch has them."""
    shape = source.geometry
    covered = [math.prod(counts)] if shape.flat else list(reversed(counts))
    covered += [1] * (3 - len(covered))
    blocks = [-(-n // (b * i)) for n, b, i in zip(covered, shape.block, shape.items, strict=True)]
    return blocks[0], min(blocks[1], 65535), min(blocks[2], 65535)


class Emulated:
    """A compiled kernel; a call runs it and gives its result. It is used as `codegen.harness.Compiled` is."""

    def __init__(
        self,
        kernel: ir.Kernel | str,
        *,
        disjoint: bool = False,
        options: Sequence[str] = compiler.OPTIONS,
        wavefront: int | None = None,
    ) -> None:
        """``wavefront``: HIP C, and how many lanes run in step; None: CUDA C."""
        self.kernel = parse(kernel) if isinstance(kernel, str) else kernel
        self.source = generate(self.kernel, HIP if wavefront else CUDA, disjoint=disjoint)
        self._load(compiler.compile(self.source.text, self._entries(), options, wavefront))

    def _entries(self) -> list[str]:
        return [self.source.entry, *([self.source.result] if self.source.result else [])]

    def _load(self, image: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(image)
            file.flush()
            library = ctypes.CDLL(file.name)
        self.entry, *self.result = [getattr(library, f"emulate_{name}") for name in self._entries()]

    def __call__(
        self,
        args: dict[str, Any],
        launch: Launch,
        splits: Sequence[int] | None = None,
        printed: list[tuple[int, list[int | float]]] | None = None,
        blocks: tuple[int, int, int] | None = None,
    ) -> int | float | None:
        """``splits`` are not for this target; ``blocks`` is a grid other than what covers the range."""
        slots = [self._slot(p, args[p.name]) for p in self.kernel.params]
        slots += [np.array(bound, np.int64) for dimension in launch for bound in dimension]
        sites = [n for n in walk_statements(self.kernel) if isinstance(n, ir.Print)]
        buffer = np.zeros(2 + 4096, np.uint64)
        buffer[1] = 4096
        if self.source.prints:
            slots.append(np.array(buffer.ctypes.data, np.uint64))
        counts = [count for _, _, count in launch]
        if math.prod(counts):
            self._run(self.entry, slots, blocks or grid(self.source, counts), self.source.geometry.block)
        if printed is not None:
            printed += _records(sites, buffer)
        if self.kernel.result_type is None:
            return None
        out = np.zeros(1, self.kernel.result_type.numpy)
        self._run(self.result[0], [*slots, np.array(out.ctypes.data, np.uint64)], (1, 1, 1), (1, 1, 1))
        result: int | float = out[0].item()
        return result

    def _slot(self, parameter: ir.Parameter, argument: Any) -> np.ndarray:
        if parameter.texture:  # a handle
            return np.array(argument, np.uint64)
        if isinstance(parameter.type, ir.Array):
            assert argument.dtype == parameter.type.dtype.numpy
            return np.array(argument.ctypes.data, np.uint64)
        assert parameter.type is not None
        return np.asarray(argument, parameter.type.numpy)

    def _run(self, entry: Any, slots: list[np.ndarray], grid: Sequence[int], block: Sequence[int]) -> None:
        addresses = (ctypes.c_void_p * len(slots))(*(slot.ctypes.data for slot in slots))
        entry(addresses, (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block))


class EmulatedMsl(Emulated):
    """The same for MSL, which has neither f64 nor ``print``. Kernels with textures are not for it."""

    def __init__(self, kernel: ir.Kernel | str, *, disjoint: bool = False) -> None:
        self.kernel = parse(kernel) if isinstance(kernel, str) else kernel
        self.source = generate(self.kernel, MSL, disjoint=disjoint)
        self._load(msl.compile(self.source.text))

    def _run(self, entry: Any, slots: list[np.ndarray], grid: Sequence[int], block: Sequence[int]) -> None:
        arguments = b"".join(slot.tobytes().ljust(8, b"\0") for slot in slots)
        super()._run(entry, [np.frombuffer(arguments, np.uint8)], grid, block)


def _records(sites: Sequence[ir.Print], buffer: np.ndarray) -> list[tuple[int, list[int | float]]]:
    """The records of a print buffer: site numbers and values."""
    claimed, size = int(buffer[0]), int(buffer[1])
    words, at, found = buffer[2:], 0, []
    while at < min(claimed, size) and words[at] != np.iinfo(np.uint64).max:
        site = int(words[at])
        parts = [part for part in sites[site].parts if isinstance(part, ir.Expr)]
        values = [
            np.frombuffer(words[at + k : at + k + 1].tobytes(), part.type.numpy, 1)[0].item()
            for k, part in enumerate(parts, start=1)
            if part.type is not None
        ]
        found.append((site, values))
        at += 1 + len(parts)
    return found
