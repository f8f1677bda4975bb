"""Graphs of a driver: recorded once on a stream of their own, instantiated, and launched by one call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from tack.runtime.array import Array, new_array
from tack.runtime.gpu.launch import resolve
from tack.runtime.graph import Step
from tack.runtime.streams.buffer import memset, pattern_unit
from tack.runtime.streams.driver import NON_BLOCKING, Context, Driver
from tack.runtime.streams.program import StreamProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.streams.backend import StreamBackend
    from tack.runtime.streams.buffer import DeviceBuffer
    from tack.runtime.streams.queue import Queue

__all__ = ["copy_step", "fill_step", "graph", "launch_step"]


class _Launch(NamedTuple):
    program: StreamProgram
    slots: bytes
    grid: tuple[int, int, int]

    def record(self, driver: Driver, stream: Any) -> None:
        program = self.program
        driver.check(program.queue_on(stream, program.function, self.slots, self.grid, program.block))


class _Fill(NamedTuple):
    address: int
    unit: int
    number: int
    nbytes: int

    def record(self, driver: Driver, stream: Any) -> None:
        driver.check(memset(driver, self.address, self.unit, self.number, self.nbytes, stream))


class _Copy(NamedTuple):
    target: int
    source: int
    nbytes: int

    def record(self, driver: Driver, stream: Any) -> None:
        driver.check(driver.MemcpyDtoDAsync(self.target, self.source, self.nbytes, stream))


class _Several(NamedTuple):
    """Works one after the other, and an array that they need."""

    works: tuple[Any, ...]
    array: Array

    def record(self, driver: Driver, stream: Any) -> None:
        for work in self.works:
            work.record(driver, stream)


def launch_step(backend: StreamBackend, kernel: Kernel, args: tuple[Any, ...]) -> Step:
    call = resolve(backend, kernel, args, captured=True)
    program = cast("StreamProgram", call.program)
    work = _Launch(program, call.slots(), call.grid) if call.total else None
    return Step(work, call.arrays)


def fill_step(backend: StreamBackend, array: Array, element: NDArray[Any]) -> Any:
    unit, number = pattern_unit(element.tobytes())
    if unit:
        return _Fill(array.address, unit, number, array.nbytes)
    pattern = new_array(backend, array.dtype, array.shape)
    pattern._buffer.fill(0, array.size, np.void(element.tobytes()))
    return _Several((_Copy(array.address, pattern.address, array.nbytes),), pattern)


def copy_step(backend: StreamBackend, target: Array, source: Array) -> Any:
    nbytes = target.nbytes
    if not nbytes or target.address == source.address:
        return None
    if target.address < source.address + nbytes and source.address < target.address + nbytes:
        between = new_array(backend, target.dtype, target.shape)
        works = (
            _Copy(between.address, source.address, nbytes),
            _Copy(target.address, between.address, nbytes),
        )
        return _Several(works, between)
    return _Copy(target.address, source.address, nbytes)


def graph(backend: StreamBackend, steps: Sequence[Step]) -> Callable[[], None]:
    queue = backend.queue
    works = [step.work for step in steps if step.work is not None]
    # Of many launches of one kernel on the same arrays, one of each: all of them are looked at in each run.
    buffers = {cast("DeviceBuffer", array._buffer) for step in steps for array in step.arrays}
    programs = {work.program for work in works if type(work) is _Launch}
    executable = _Executable(queue, works)
    others = {buffer.queue for buffer in buffers} - {queue}

    def run() -> None:
        is_shared = any(buffer.is_foreign for buffer in buffers)
        with queue.among(others):
            if is_shared:
                queue.follow_default()
            for program in programs:
                program.note_launch()
            executable.launch()
        if is_shared:
            queue.wait()

    return run


class _Executable:
    """The driver's form of a graph."""

    __slots__ = ("_handle", "_queue", "_works")

    def __init__(self, queue: Queue, works: Sequence[Any]) -> None:
        self._queue = queue
        self._works = works  # with the code and the arrays that they need
        driver = queue.driver
        with queue.entered():
            stream = queue.check(driver.StreamCreate(NON_BLOCKING))
            try:
                queue.check(driver.StreamBeginCapture(stream, driver.relaxed))
                try:
                    for work in works:
                        work.record(driver, stream)
                except BaseException:
                    error, recorded = driver.StreamEndCapture(stream)
                    if not error:
                        driver.GraphDestroy(recorded)
                    raise
                recorded = queue.check(driver.StreamEndCapture(stream))
                instantiated = driver.GraphInstantiate(recorded, 0)
                driver.GraphDestroy(recorded)
                self._handle = queue.check(instantiated)
            finally:
                driver.StreamDestroy(stream)

    def launch(self) -> None:
        queue = self._queue
        with queue.entered():
            queue.check(queue.driver.GraphLaunch(self._handle, queue.stream))

    def __del__(self) -> None:
        if hasattr(self, "_handle") and not self._queue.context.stopped.value:
            destroy = self._queue.driver.GraphExecDestroy
            self._queue.retire(
                functools.partial(_destroy, self._queue.context, destroy, self._handle, self._works)
            )


def _destroy(context: Context, destroy: Any, handle: Any, works: Sequence[Any]) -> None:
    """``works`` have been kept until here, when no launch uses them any more."""
    context.release(destroy, handle)
