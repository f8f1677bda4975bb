"""Graphs: resolved launches, fills and copies that are queued one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.runtime.gpu.launch import resolve
from tack.runtime.graph import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.level_zero.backend import ZeBackend

__all__ = ["copy_step", "fill_step", "graph", "launch_step"]


def launch_step(backend: ZeBackend, kernel: Kernel, args: tuple[Any, ...]) -> Step:
    call = resolve(backend, kernel, args, captured=True)
    launch = functools.partial(call.program.launch, call.slots(), call.grid, call.args)
    return Step(launch if call.total else None, call.arrays)


def fill_step(array: Array, element: NDArray[Any]) -> Callable[[], None]:
    value = np.void(element.tobytes())
    return functools.partial(array._buffer.fill, array._offset, array.size, value)


def copy_step(target: Array, source: Array) -> Callable[[], None]:
    of = (source._buffer, source._offset, target.nbytes)
    return functools.partial(target._buffer.copy, target._offset, *of)


def graph(backend: ZeBackend, steps: Sequence[Step]) -> Callable[[], None]:
    works = [step.work for step in steps if step.work is not None]
    arrays = list({id(array._buffer): array for step in steps for array in step.arrays}.values())

    def run() -> None:
        with backend.among(arrays):
            for work in works:
                work()
        if any(array._buffer.is_foreign for array in arrays):
            backend.synchronize()

    return run
