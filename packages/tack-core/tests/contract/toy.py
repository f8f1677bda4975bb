"""A device type in one file, registered by the tests alone: docs/design/adding-a-backend.md goes through it.

The reference interpreter runs its kernels, in a thread that stands for the device, so launches are queued.
Its memory is the host's, at addresses that are none there.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, final

import numpy as np

import tack
from tack.dtypes import ALL_DTYPES, DType
from tack.ir import interpreter, semantics
from tack.runtime import debug
from tack.runtime.array import Array
from tack.runtime.backend import Backend, Buffer
from tack.runtime.cpu.memory import format_size
from tack.runtime.dispatch import register_type
from tack.runtime.gpu.backend import device_address
from tack.runtime.gpu.failures import failure_message
from tack.runtime.profile import running
from tack.runtime.slots import launch_range
from tack.runtime.variants import resolve_variant
from tack.runtime.workgroups import check_workgroup_launch

_TAG = 1 << 60  # is added to the host's addresses
_ARTIFACT = b"interpreted"


class Steering:
    """What tests ask of the toy; see `on_target.Steering`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.reset()

    @contextmanager
    def held(self) -> Iterator[None]:
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()

    def release(self) -> None:
        self.gate.set()

    def fail_run(self) -> None:
        self.fails = True

    def fail_launch(self) -> None:
        self.refuses = True

    def limit(self, nbytes: int) -> None:
        self.memory = nbytes

    def heal(self) -> None:
        self.fails = self.refuses = False

    def reset(self) -> None:
        self.release()
        self.heal()
        self.limit(1 << 30)

    def violations(self) -> list[str]:
        return []


STEERING = Steering()


@functools.cache
def install() -> Steering:
    """Registers the device type in this process."""
    register_type("toy", __name__, "it is among Tack's tests")
    return STEERING


class Queue:
    """What a thread does, one thing after the other."""

    def __init__(self) -> None:
        self.number = self.done = 0
        self.used = 0  # bytes
        self._process = os.getpid()
        self._work: deque[tuple[str, Callable[[], object]]] = deque()
        self._errors: list[str] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, name: str, work: Callable[[], object]) -> int:
        """Queues work, of the kernel ``name`` if that is not empty; its number."""
        self._check_process()
        with self._changed:
            self._work.append((name, work))
            self.number += 1
            self._changed.notify_all()
            return self.number

    def settle(self) -> None:
        """Waits for what is queued by now."""
        self._check_process()
        number = self.number
        with self._changed:
            self._changed.wait_for(lambda: self.done >= number)

    def wait(self) -> None:
        """The same, and raises what failed."""
        self.settle()
        self.raise_failure()

    def raise_failure(self) -> None:
        errors, self._errors = self._errors, []
        if errors:
            raise RuntimeError(errors[0])

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("Toy was in use when this process was forked, and has no thread in the child")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work)
                name, work = self._work.popleft()
            STEERING.gate.wait()
            try:
                if name and STEERING.fails:
                    STEERING.fails = False
                    raise RuntimeError("made to fail")
                work()
            except Exception as error:
                self._errors.append(failure_message([name], "Toy", error, "debug mode"))
            del work  # and what it uses
            with self._changed:
                self.done += 1
                self._changed.notify_all()


@final
class ToyBuffer(Buffer):
    __slots__ = ("memory", "queue")

    def __init__(
        self, queue: Queue, address: int, nbytes: int, memory: Any = None, owner: object = None
    ) -> None:
        super().__init__(address, nbytes, owned=memory is not None, owner=owner)
        self.queue = queue
        self.memory = memory
        self.foreign = bytearray([memory is None])
        if self.owned:
            queue.used += nbytes

    def __del__(self) -> None:
        if self.owned:
            self.queue.used -= self.nbytes

    def values(self, offset: int, dtype: Any, count: int) -> Any:
        """The elements as the device's thread sees them. It keeps the buffer that they are in."""
        view = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(self.address - _TAG + offset)
        view.buffer = self
        return np.frombuffer(view, dtype) if count else np.empty(0, dtype)

    def read(self, offset: int, out: Any) -> None:
        self.queue.wait()
        out.reshape(-1).view(np.uint8)[:] = self.values(offset, np.uint8, out.nbytes)

    def write(self, offset: int, source: Any) -> None:
        data = np.frombuffer(source.tobytes(), np.uint8)
        target = self.values(offset, np.uint8, data.size)
        self.queue.submit("", lambda: np.copyto(target, data))
        if self.is_foreign:
            self.queue.wait()

    def copy(self, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        assert isinstance(source, ToyBuffer)
        target, given = self.values(offset, np.uint8, nbytes), source.values(source_offset, np.uint8, nbytes)
        self.queue.submit("", lambda: np.copyto(target, given.copy()))
        if self.is_foreign:
            self.queue.wait()


@final
class ToyBackend(Backend):
    """The toy; there is one."""

    name = "toy"
    display_name = "Toy"
    supported_dtypes = ALL_DTYPES
    supported_atomic_dtypes = ALL_DTYPES
    supports_workgroups = True
    queues_launches = True
    requires_alignment = True
    device_memory_spaces = ("toy",)

    def __init__(self, ordinal: int = 0) -> None:
        if ordinal:
            raise ValueError(f"there is no device 'toy:{ordinal}'; there are: 'toy'")
        super().__init__(ordinal)
        self.queue = Queue()

    # Memory.

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        nbytes = dtype.itemsize * math.prod(shape)
        if nbytes > STEERING.memory - self.queue.used:
            self.queue.settle()  # what is in flight may hold memory that nobody else does
        free = STEERING.memory - self.queue.used
        if nbytes > free:
            raise MemoryError(
                f"cannot allocate {format_size(nbytes)} on {self.label}: {format_size(free)} is free"
            )
        memory = np.empty(nbytes + 64, np.uint8)
        start = memory.ctypes.data
        return ToyBuffer(self.queue, _TAG + start + -start % 64, nbytes, memory)

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        nbytes = dtype.itemsize * math.prod(shape)
        address = device_address(ptr, dtype, nbytes, self.display_name)
        return ToyBuffer(self.queue, address, nbytes, owner=owner)

    def memory_space(self, ptr: int) -> str:
        return "toy" if _TAG <= ptr < 2 * _TAG else "cpu"

    # Launches.

    def execute(self, kernel: Any, args: tuple[Any, ...]) -> Any:
        variant, accepted = resolve_variant(self, kernel, args, build)
        total, _ = launch_range(kernel, variant, accepted, self.label)
        check_workgroup_launch(kernel, variant, total)
        ranges, arguments = variant.launch_range(accepted), bind(variant.payload, accepted)
        lines: list[str] = []
        results: list[Any] = []
        with running(kernel, self):
            if STEERING.refuses:
                STEERING.refuses = False
                raise RuntimeError(f"Kernel '{kernel.__name__}' failed on {self.label}: refused")
            self.queue.submit(
                kernel.__name__,
                lambda: results.append(interpreter.run(variant.payload, arguments, ranges, lines.append)),
            )
        arrays = [a for a in accepted if type(a) is Array]
        waits = variant.payload.result is not None or has_print(variant.payload)
        if waits or any(a._buffer.is_foreign for a in arrays):
            self.queue.wait()
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return results[0] if variant.payload.result is not None else None

    def compile(self, kernel: Any, args: tuple[Any, ...]) -> None:
        resolve_variant(self, kernel, args, build)

    def synchronize(self) -> None:
        self.queue.wait()

    def completion(self) -> Callable[[], bool]:
        number = self.queue.number

        def is_done() -> bool:
            self.queue.raise_failure()
            return self.queue.done >= number

        return is_done

    def stamp(self) -> Any:
        times: list[float] = []
        self.queue.submit("", lambda: times.append(perf_counter()))
        return times

    def elapsed(self, first: Any, last: Any) -> float:
        self.queue.wait()
        return float(last[0] - first[0])

    # Compiled code: the typed kernel itself, which the disk cache keeps beside the artifact.

    def cache_target(self) -> tuple[tuple[str, str], ...]:
        return (("interpreter", tack.__version__),)

    def variant_artifact(self, payload: Any) -> bytes:
        return _ARTIFACT

    def load_variant(self, read: Callable[[], Any], artifact: bytes, args: tuple[Any, ...]) -> Any:
        return read() if artifact == _ARTIFACT else None


def build(kernel: Any, disjoint: bool) -> Any:
    """What a variant's payload is made of: here the typed kernel as it is."""
    if debug.enabled():
        raise RuntimeError("the interpreter has no debug mode")
    return kernel


def bind(kernel: Any, args: Sequence[Any]) -> dict[str, Any]:
    """The arguments as the interpreter takes them."""
    bound: dict[str, Any] = {}
    for param, arg in zip(kernel.params, args, strict=True):
        if type(arg) is Array:
            values = arg._buffer.values(arg._offset, arg.scalar.numpy, arg.size * math.prod(arg.components))
            # The components of vectors are in the last axis, as far as there is one: indices are flat.
            *others, last = arg.shape or (1,)
            shape = (*others, last * math.prod(arg.components)) if arg.shape else arg.components or ()
            bound[param.name] = values.reshape(shape)
        else:
            bound[param.name] = semantics.convert(arg, param.type)
    return bound


def has_print(kernel: Any) -> bool:
    from tack.codegen.llvm import print_sites

    return bool(print_sites(kernel))


BACKEND = ToyBackend
