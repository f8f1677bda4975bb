"""Machine code that a driver has loaded, and its launches on a stream."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tack.runtime.gpu.program import Program
from tack.runtime.slots import launch_range, pack
from tack.runtime.streams.driver import DriverError

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.learn import Plan
    from tack.runtime.streams.queue import Queue
    from tack.runtime.variants import Variant

__all__ = ["StreamProgram", "native_plan"]


class StreamProgram(Program):
    """A module of a driver.

    Attributes:
        queue: where its launches are queued.
        function: the driver's handle of the entry.
        result: the same for the return expression, or None.
        last: the number of its last launch in the queue, which the native dispatcher writes too.
    """

    __slots__ = ("_module", "_offsets", "function", "last", "queue", "result")

    def __init__(self, queue: Queue, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> None:
        super().__init__(about, artifact, checks)
        self.queue = queue
        driver = queue.driver
        with queue.entered():
            self._module = self.load_module(artifact)
            self.function = driver.check(driver.ModuleGetFunction(self._module, about["entry"].encode()))
            name = about["result"]
            self.result = (
                None if name is None else driver.check(driver.ModuleGetFunction(self._module, name.encode()))
            )
        self.last = ctypes.c_int64()
        count = self.slots.size // 8
        self._offsets = np.arange(0, 8 * (count + 1), 8, dtype=np.uint64)
        queue.programs.add(self)

    def load_module(self, artifact: bytes) -> Any:
        """The driver's handle of the machine code.

        Raises:
            RuntimeError: the driver refuses it.
        """
        try:
            return self.queue.check(self.queue.driver.ModuleLoadData(artifact))
        except DriverError as error:
            raise RuntimeError(f"the driver refuses the machine code: {error}") from error

    def __del__(self) -> None:
        if hasattr(self, "_module") and not self.queue.context.stopped.value:
            context, unload = self.queue.context, self.queue.driver.ModuleUnload
            self.queue.retire(functools.partial(context.release, unload, self._module))

    @property
    def launched(self) -> int:
        """The number of its last launch."""
        return self.last.value

    def note_launch(self) -> None:
        """Counts a launch that is about to be queued."""
        self.queue.launches.value += 1
        self.last.value = self.queue.launches.value

    def launch_failed(self, code: int) -> NoReturn:
        """Raises the error of a launch by the native dispatcher."""
        try:
            self.queue.check((code,))
        except DriverError as error:
            raise RuntimeError(f"Kernel '{self.name}' failed on {self.queue.label}: {error}") from error
        raise AssertionError(code)

    def launch(self, slots: bytes, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        self._launch(self.function, slots, grid, self.block)

    def evaluate(self, slots: bytes, out: Array, args: Sequence[Any]) -> None:
        self._launch(self.result, slots + struct.pack("=Q", out.address), (1, 1, 1), (1, 1, 1))

    def _launch(
        self, function: Any, slots: bytes, grid: tuple[int, int, int], block: tuple[int, int, int]
    ) -> None:
        self.note_launch()
        queue = self.queue
        with queue.entered():
            result = self.queue_on(queue.stream, function, slots, grid, block)
        if result[0]:
            self.launch_failed(int(result[0]))

    def queue_on(
        self,
        stream: Any,
        function: Any,
        slots: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
    ) -> tuple[Any, ...]:
        """Queues a launch on a stream; what the driver says of it."""
        address = ctypes.cast(ctypes.c_char_p(slots), ctypes.c_void_p).value or 0
        pointers = self._offsets + np.uint64(address)
        result: tuple[Any, ...] = self.queue.driver.LaunchKernel(
            function, *grid, *block, 0, stream, pointers.ctypes.data, 0
        )
        return result


def native_plan(kernel: Kernel, variant: Variant, args: Sequence[Any], label: str) -> Plan | None:
    """See `Backend.native_plan`. Launches that the host waits for are left to Python."""
    from tack.runtime.learn import Plan  # who asks is there

    program: StreamProgram = variant.payload
    if not program.is_plain:
        return None
    total, launch = launch_range(kernel, variant, args, label, program.most)
    context, queue = program.queue.context, program.queue
    try:
        calls = queue.driver.launch_calls()
    except RuntimeError:
        return None  # the driver is too old to tell
    gpu = (
        *calls,
        *(int(program.function), queue.address, context.address),
        *map(ctypes.addressof, (context.stopped, queue.launches, program.last, queue.waited)),
        queue.room,
        *(*program.block, *program.items, *program.most_blocks),
        *(program.most, program.flat, context.is_usual),
    )
    return Plan(0, 0, -1, True, 0.0, 1, pack(program.slots, args, launch, ()), total, gpu)
