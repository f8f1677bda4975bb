"""Graphs: launches, fills and copies that are resolved, and encoded again at each launch of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.runtime.gpu.launch import resolve
from tack.runtime.graph import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.metal.backend import MetalBackend

__all__ = ["copy_step", "fill_step", "graph", "launch_step"]


def launch_step(backend: MetalBackend, kernel: Kernel, args: tuple[Any, ...]) -> Step:
    call = resolve(backend, kernel, args, captured=True)
    slots, grid = call.slots(), call.grid

    def run() -> None:
        if call.total:
            call.program.launch(slots, grid, call.args)

    return Step(run, call.arrays)


def fill_step(array: Array, element: NDArray[Any]) -> Callable[[], None]:
    value = np.void(element.tobytes())
    return lambda: array._buffer.fill(array._offset, array.size, value)


def copy_step(target: Array, source: Array) -> Callable[[], None]:
    return lambda: target._buffer.copy(target._offset, source._buffer, source._offset, target.nbytes)


def graph(backend: MetalBackend, steps: Sequence[Step]) -> Callable[[], None]:
    works = [step.work for step in steps]
    foreign = [array._buffer for step in steps for array in step.arrays]

    def run() -> None:
        for work in works:
            work()
        if any(buffer.is_foreign for buffer in foreign):
            backend.synchronize()

    return run
