"""`StreamBackend`: a GPU behind a driver with streams."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np

from tack.dtypes import ALL_DTYPES, DType, f32, f64, i32, i64, u32, u64
from tack.runtime.array import Array
from tack.runtime.backend import Buffer
from tack.runtime.gpu.backend import GpuBackend, device_address
from tack.runtime.streams.buffer import DeviceBuffer, Pool, pinned_buffer
from tack.runtime.streams.queue import Queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.graph import Step
    from tack.runtime.learn import Plan
    from tack.runtime.streams.driver import Context, Driver
    from tack.runtime.variants import Variant

__all__ = ["StreamBackend"]


_SCRATCH: Final = 128 << 10  # bytes of each thread, once it has asked for any


class StreamBackend(GpuBackend):
    """A GPU of CUDA or HIP. Launches, copies and fills are queued, and run in program order."""

    supported_dtypes = ALL_DTYPES
    supported_atomic_dtypes = (i32, u32, i64, u64, f32, f64)
    requires_alignment = True
    forward_progress = True
    shared_memory = 48 << 10
    device_options = ("stream",)
    driver: ClassVar[Driver]

    def start(self, context: Context, pools: bool, stream: object) -> None:
        """Makes what the backend consists of, in a context; ``pools``: it allocates in stream order."""
        self.queue = Queue(context, self.label, stream)
        self._pool = Pool(self.queue, pools)
        self._scratch = threading.local()

    @functools.cached_property
    def domain_number(self) -> int:
        """One of its own: the native dispatcher leaves launches on other backends' arrays to Python."""
        return -1 - self.serial

    @property
    def has_failed(self) -> bool:
        return self.queue.context.failure is not None

    # Memory.

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        nbytes = dtype.itemsize * math.prod(shape)
        address = self._pool.allocate(self.queue, nbytes) if nbytes else 0
        return DeviceBuffer(self.queue, self._pool, address, nbytes, owned=True)

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        """See `Backend.wrap_ptr`; ``ptr`` may also be what ``int()`` takes, such as a ``CUdeviceptr``."""
        nbytes = dtype.itemsize * math.prod(shape)
        address = device_address(ptr, dtype, nbytes, self.driver.api)
        return DeviceBuffer(self.queue, self._pool, address, nbytes, owned=False, owner=owner)

    def scratch(self, dtype: DType, count: int) -> Array:
        """Pinned host memory: kernels write to it as it is, and to read it the host has but to wait."""
        nbytes = dtype.itemsize * count
        block = getattr(self._scratch, "block", None)
        if block is None or block.nbytes < nbytes:
            block = self._scratch.block = pinned_buffer(self.queue, self._pool, max(nbytes, _SCRATCH))
        return Array(self, block, dtype, (count,))

    def telling(self, scratch: Array) -> Callable[[], NDArray[Any]]:
        """See `Backend.telling`."""
        wait, address = self.queue.waiter(), scratch.address

        def told() -> NDArray[Any]:
            wait()
            found = np.empty(scratch.shape, scratch.scalar.numpy)
            ctypes.memmove(found.ctypes.data, address, found.nbytes)
            return found

        return told

    # Other libraries.

    def lend(self, array: Array, stream: int | None) -> None:
        """Lets others use an array's memory: on a stream of theirs after what is queued by now.

        From now on launches that use it are done when they return. None: they need no order.
        """
        buffer: Any = array._buffer
        if stream is not None and stream != buffer.queue.address:
            buffer.queue.lead(stream)
        buffer.foreign[0] = 1

    # Launches.

    def among(self, arrays: Iterable[Array]) -> contextlib.AbstractContextManager[None]:
        buffers = [cast("DeviceBuffer", array._buffer) for array in arrays]
        if any(buffer.is_foreign for buffer in buffers):
            self.queue.follow_default()
        return self.queue.among({buffer.queue for buffer in buffers})

    def native_plan(self, kernel: Kernel, variant: Variant, args: Sequence[Any]) -> Plan | None:
        from tack.runtime.streams.program import native_plan

        return native_plan(kernel, variant, args, self.label)

    def stamp(self) -> Any:
        return self.queue.record(timed=True)

    def elapsed(self, first: Any, last: Any) -> float:
        return self.queue.elapsed(first, last)

    def synchronize(self) -> None:
        self.queue.wait()

    def completion(self) -> Callable[[], bool]:
        return self.queue.marker()

    # Graphs.

    def launch_step(self, kernel: Kernel, args: tuple[Any, ...]) -> Step:
        from tack.runtime.streams import graph

        return graph.launch_step(self, kernel, args)

    def fill_step(self, array: Array, element: NDArray[Any]) -> Any:
        from tack.runtime.streams import graph

        return graph.fill_step(self, array, element)

    def copy_step(self, target: Array, source: Array) -> Any:
        from tack.runtime.streams import graph

        return graph.copy_step(self, target, source)

    def graph(self, steps: Sequence[Step]) -> Callable[[], None]:
        from tack.runtime.streams import graph

        return graph.graph(self, steps)
