"""The CPU backend."""

from __future__ import annotations

import math
import operator
import os
import threading
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tack.dtypes import ALL_DTYPES, DType
from tack.runtime.backend import Backend, Buffer
from tack.runtime.convert import is_integer
from tack.runtime.cpu import code, launch, program
from tack.runtime.cpu.buffer import CpuBuffer, allocate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.backend import Number
    from tack.runtime.cpu.pool import NativePool, Pool
    from tack.runtime.graph import Step
    from tack.runtime.learn import Plan
    from tack.runtime.variants import Variant

__all__ = ["BACKEND", "CpuBackend"]

_MAX_THREADS = 1024

_pool_lock = threading.Lock()


def _renew_lock() -> None:
    global _pool_lock
    _pool_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # a thread of the parent may have held it
    os.register_at_fork(after_in_child=_renew_lock)


@final
class CpuBackend(Backend):
    """The processor that this process runs on. Launches have finished when they return.

    Options: ``num_threads``, how many threads a launch may use; without it, what
    ``TACK_CPU_THREADS`` says, else one per physical core that the process may use.
    """

    name = "cpu"
    display_name = "CPU"
    supported_dtypes = ALL_DTYPES
    supported_atomic_dtypes = ALL_DTYPES
    supports_device_reductions = True
    supports_workgroups = True
    specializes_disjoint = True
    wraps_host_memory = True
    iteration_cache = 1 << 18  # about half of the second level
    device_options = ("num_threads",)

    def __init__(self, ordinal: int = 0, *, num_threads: object = None) -> None:
        if ordinal != 0:
            raise ValueError(f"there is one CPU device, 'cpu'; 'cpu:{ordinal}' does not exist")
        options = {} if num_threads is None else {"num_threads": _thread_count(num_threads)}
        super().__init__(ordinal, **options)
        self._num_threads = options.get("num_threads")
        self._pool: NativePool | Pool | None = None

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return allocate(dtype.itemsize * math.prod(shape))

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        """See `Backend.wrap_ptr`; ``ptr`` may also be a C-contiguous NumPy array, which is kept alive."""
        nbytes = dtype.itemsize * math.prod(shape)
        if isinstance(ptr, np.ndarray):
            if not ptr.flags.c_contiguous:
                raise ValueError(
                    f"the NumPy array has strides {ptr.strides}; pass np.ascontiguousarray of it"
                )
            if ptr.nbytes < nbytes:
                raise ValueError(
                    f"the NumPy array has {ptr.nbytes} bytes; {dtype}{list(shape)} takes {nbytes}"
                )
            return CpuBuffer(ptr.ctypes.data, nbytes, owned=False, owner=(ptr, owner))
        if not is_integer(ptr):
            raise TypeError(f"a CPU pointer is an integer address or a NumPy array, not {type(ptr).__name__}")
        address = operator.index(ptr)
        if not 0 <= address <= (1 << 64) - nbytes:
            raise ValueError(f"{address} is not an address of {nbytes} bytes")
        if address == 0 and nbytes:
            raise ValueError("the pointer is null")
        return CpuBuffer(address, nbytes, owned=False, owner=owner)

    def execute(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        return launch.execute(self, kernel, args)

    def compile(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        launch.prepare_launch(self, kernel, args)

    def native_plan(self, kernel: Kernel, variant: Variant, args: Sequence[Any]) -> Plan | None:
        from tack.runtime.cpu.launch import native_plan

        return native_plan(kernel, variant, args)

    @property
    def native_pool(self) -> Any:
        return self.pool.native

    def run_packed(self, variant: Variant, packed: bytes, total: int, used: object) -> None:
        from tack.runtime.cpu.launch import run

        run(self, variant.payload, packed, total, used)

    def launch_step(self, kernel: Kernel, args: tuple[Any, ...]) -> Step:
        from tack.runtime.cpu import graph

        return graph.launch_step(self, kernel, args)

    def fill_step(self, array: Array, element: NDArray[Any]) -> Any:
        from tack.runtime.cpu import graph

        return graph.fill_step(self, array, element)

    def copy_step(self, target: Array, source: Array) -> Any:
        from tack.runtime.cpu import graph

        return graph.copy_step(target, source)

    def graph(self, steps: Sequence[Step]) -> Callable[[], None]:
        from tack.runtime.cpu import graph

        return graph.graph(self, steps)

    def cache_target(self) -> tuple[tuple[str, str], ...] | None:
        return code.target()

    def when_final(self, payload: Any, then: Callable[[float], None]) -> None:
        if payload.upgrade is None:
            then(0.0)
        else:
            payload.upgrade.start(then)

    def is_final(self, payload: Any) -> bool:
        return payload.upgrade is None

    def variant_artifact(self, payload: Any) -> bytes | None:
        data = program.save(payload)
        payload.artifact = None  # the code itself stays loaded
        return data

    def load_variant(self, read: Callable[[], Any], artifact: bytes, args: tuple[Any, ...]) -> Any:
        return program.load(read, artifact)

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        return program.inspect(ir, mode, disjoint)

    def fill_array(self, array: Array, value: np.generic) -> bool:
        """Large fills run on the pool, so that the threads that will use the pages touch them first."""
        from tack.runtime.cpu import kernels

        if array.nbytes < kernels.MIN_FILL or not kernels.can_compile():
            return False
        kernels.fill(self, array, value)
        return True

    def reduce_array(self, array: Array, op: str, deterministic: bool) -> Number:
        """See `Backend.reduce_array`; always deterministic."""
        from tack.runtime.cpu import kernels

        return kernels.reduce(array, op)

    @property
    def pool(self) -> NativePool | Pool:
        """The threads that launches fan out to, started when first asked for."""
        pool = self._pool
        if pool is None:
            from tack.runtime.cpu.cores import default_threads
            from tack.runtime.cpu.pool import new_pool

            with _pool_lock:
                pool = self._pool
                if pool is None:
                    pool = self._pool = new_pool(self._num_threads or default_threads())
        return pool


def _thread_count(value: object) -> int:
    if not is_integer(value):
        raise TypeError(f"num_threads must be an integer, not {type(value).__name__}")
    count = operator.index(value)  # type: ignore[arg-type]
    if not 1 <= count <= _MAX_THREADS:
        raise ValueError(f"num_threads must be between 1 and {_MAX_THREADS}, not {count}")
    return count


BACKEND: Final = CpuBackend
