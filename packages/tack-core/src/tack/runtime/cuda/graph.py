"""Graphs on CUDA: recorded once on a stream of their own, instantiated, and launched by one call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from tack.runtime.array import Array, new_array
from tack.runtime.cuda import driver, launch
from tack.runtime.cuda.buffer import memset, pattern_unit
from tack.runtime.cuda.driver import Context, check
from tack.runtime.graph import Step
from tack.runtime.slots import check_capturable, launch_range, pack
from tack.runtime.workgroups import check_workgroup_launch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.cuda.backend import CudaBackend
    from tack.runtime.cuda.buffer import CudaBuffer
    from tack.runtime.cuda.queue import Queue

__all__ = ["copy_step", "fill_step", "graph", "launch_step"]

_NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING: others may use the default stream meanwhile


class _Launch(NamedTuple):
    program: launch.Program
    slots: bytes
    grid: tuple[int, int, int]

    def record(self, stream: Any) -> None:
        check(self.program.queue_on(stream, self.program.function, self.slots, self.grid, self.program.block))


class _Fill(NamedTuple):
    address: int
    unit: int
    number: int
    nbytes: int

    def record(self, stream: Any) -> None:
        check(memset(self.address, self.unit, self.number, self.nbytes, stream))


class _Copy(NamedTuple):
    target: int
    source: int
    nbytes: int

    def record(self, stream: Any) -> None:
        check(driver.cu.cuMemcpyDtoDAsync(self.target, self.source, self.nbytes, stream))


class _Several(NamedTuple):
    """Works one after the other, and an array that they need."""

    works: tuple[Any, ...]
    array: Array

    def record(self, stream: Any) -> None:
        for work in self.works:
            work.record(stream)


def launch_step(backend: CudaBackend, kernel: Kernel, args: tuple[Any, ...]) -> Step:
    variant, accepted = launch.prepare_launch(backend, kernel, args)
    program: launch.Program = variant.payload
    check_capturable(kernel, program)
    total, spans = launch_range(kernel, variant, accepted, backend.label, program.most)
    check_workgroup_launch(kernel, variant, total)
    slots = pack(program.slots, launch.with_images(program, accepted), spans, ())
    work = _Launch(program, slots, program.grid(spans, total)) if total else None
    return Step(work, tuple(a for a in accepted if type(a) is Array))


def fill_step(backend: CudaBackend, array: Array, element: NDArray[Any]) -> Any:
    unit, number = pattern_unit(element.tobytes())
    if unit:
        return _Fill(array.address, unit, number, array.nbytes)
    pattern = new_array(backend, array.dtype, array.shape)
    pattern._buffer.fill(0, array.size, np.void(element.tobytes()))
    return _Several((_Copy(array.address, pattern.address, array.nbytes),), pattern)


def copy_step(backend: CudaBackend, target: Array, source: Array) -> Any:
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


def graph(backend: CudaBackend, steps: Sequence[Step]) -> Callable[[], None]:
    queue = backend.queue
    works = [step.work for step in steps if step.work is not None]
    # Of many launches of one kernel on the same arrays, one of each: all of them are looked at in each run.
    buffers = {cast("CudaBuffer", array._buffer) for step in steps for array in step.arrays}
    programs = {work.program for work in works if type(work) is _Launch}
    executable = _Executable(queue, works)
    others = {buffer.queue for buffer in buffers} - {queue}

    def run() -> None:
        for other in others:
            queue.follow(other)
        now = monotonic_ns()
        for program in programs:
            program.clock.value = now
        executable.launch()
        for other in others:
            other.follow(queue)
        if any(buffer.is_foreign for buffer in buffers):
            queue.wait()

    return run


class _Executable:
    """The driver's form of a graph."""

    __slots__ = ("_handle", "_queue", "_works")

    def __init__(self, queue: Queue, works: Sequence[Any]) -> None:
        self._queue = queue
        self._works = works  # with the code and the arrays that they need
        cu = driver.cu
        with queue.entered():
            stream = queue.check(cu.cuStreamCreate(_NON_BLOCKING))
            try:
                mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
                queue.check(cu.cuStreamBeginCapture(stream, mode))
                try:
                    for work in works:
                        work.record(stream)
                finally:
                    ended = cu.cuStreamEndCapture(stream)
                recorded = queue.check(ended)
                instantiated = cu.cuGraphInstantiate(recorded, 0)
                cu.cuGraphDestroy(recorded)
                self._handle = queue.check(instantiated)
            finally:
                cu.cuStreamDestroy(stream)

    def launch(self) -> None:
        queue = self._queue
        with queue.entered():
            queue.check(driver.cu.cuGraphLaunch(self._handle, queue.stream))

    def __del__(self) -> None:
        if hasattr(self, "_handle") and not self._queue.context.stopped.value:
            destroy = driver.cu.cuGraphExecDestroy
            self._queue.retire(
                functools.partial(_destroy, self._queue.context, destroy, self._handle, self._works)
            )


def _destroy(context: Context, destroy: Any, handle: Any, works: Sequence[Any]) -> None:
    """``works`` have been kept until here, when no launch uses them any more."""
    driver.release(context, destroy, handle)
