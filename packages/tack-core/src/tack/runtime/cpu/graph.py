"""Graphs on the CPU: a list of launches and copies that C, or a plain loop, goes through."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tack.runtime import native
from tack.runtime.array import Array, new_array
from tack.runtime.cpu import launch
from tack.runtime.cpu.program import Program
from tack.runtime.graph import Step
from tack.runtime.slots import check_capturable, launch_range
from tack.runtime.workgroups import check_workgroup_launch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.cpu.backend import CpuBackend

__all__ = ["copy_step", "fill_step", "graph", "launch_step"]


class _Launch(NamedTuple):
    """A launch that is resolved: its code, its slots, and how many iterations."""

    program: Program
    slots: bytes
    total: int
    used: Any

    def run(self, backend: CpuBackend) -> None:
        launch.run(backend, self.program, self.slots, self.total, self.used)

    def row(self) -> tuple[int, int, int, int, int, int]:
        address = ctypes.cast(ctypes.c_char_p(self.slots), ctypes.c_void_p).value or 0
        work = min(self.total * self.program.cost, 1e18)
        return self.program.functions.address, address, self.total, self.program.group, int(work), 0


class _Copy(NamedTuple):
    """A copy of bytes from one array to another."""

    target: Array
    source: Array

    def run(self, backend: CpuBackend) -> None:
        self.target._buffer.copy(
            self.target._offset, self.source._buffer, self.source._offset, self.target.nbytes
        )

    def row(self) -> tuple[int, int, int, int, int, int]:
        return 0, self.target.address, self.source.address, self.target.nbytes, 0, 0


def launch_step(backend: CpuBackend, kernel: Kernel, args: tuple[Any, ...]) -> Step:
    variant, accepted = launch.prepare_launch(backend, kernel, args)
    program: Program = variant.payload
    check_capturable(kernel, program)
    total, spans = launch_range(kernel, variant, accepted, "the CPU")
    check_workgroup_launch(kernel, variant, total)
    arrays = tuple(a for a in accepted if type(a) is Array)
    return Step(_Launch(program, program.pack(accepted, spans, ()), total, accepted), arrays)


def fill_step(backend: CpuBackend, array: Array, element: NDArray[Any]) -> _Copy:
    pattern = new_array(backend, array.dtype, array.shape)
    pattern._buffer.fill(0, array.size, np.void(element.tobytes()))
    return _Copy(array, pattern)


def copy_step(target: Array, source: Array) -> _Copy:
    return _Copy(target, source)


def graph(backend: CpuBackend, steps: Sequence[Step]) -> Callable[[], None]:
    works = [step.work for step in steps]
    if native.module is None or backend.native_pool is None:

        def run() -> None:
            for work in works:
                work.run(backend)

        return run
    rows = np.array([work.row() for work in works], np.int64).reshape(-1, 6)
    run_rows, pool = native.module.run_rows, backend.native_pool
    return lambda: run_rows(pool, rows.ctypes.data, len(rows), works)
