"""`Driver` and `Context`: the calls that CUDA and HIP have in common, their errors, and their life.

A driver's functions are attributes: ``driver.StreamCreate`` is ``cuStreamCreate`` of cuda-bindings, and
``hipStreamCreateWithFlags`` of hip-python. Both give a tuple that begins with the error.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

__all__ = ["NON_BLOCKING", "Context", "Driver", "DriverError"]

NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING, hipStreamNonBlocking


class DriverError(RuntimeError):
    """A call of a driver failed.

    Attributes:
        code: the driver's number for the error.
        name: its name, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``.
    """

    def __init__(self, code: int, name: str, text: str = "") -> None:
        self.code = code
        self.name = name
        super().__init__(f"{name}{f': {text}' if text else ''}")


class Driver(ABC):
    """A driver of one vendor, of which a process has one.

    Attributes:
        api: its name, for people.
        prefix: of its functions.
        renamed: the whole names of functions that one would not find by their CUDA name.
        invalid_value, out_of_memory, not_ready: errors that mean something.
        sticky: errors of a kernel after which it refuses every call in the context.
        default_stream: the address of the stream that other libraries use unless told otherwise.
        blocking: what in the environment makes launches wait, for people who look for the one that failed.
        module: its Python bindings, once it is started.
        contexts: those in use, by their address.
        forked: whether this process is a child of one that used it.
    """

    api: ClassVar[str]
    prefix: ClassVar[str]
    renamed: ClassVar[dict[str, str]] = {}
    invalid_value: ClassVar[int] = 1
    out_of_memory: ClassVar[int] = 2
    not_ready: ClassVar[int] = 600
    sticky: ClassVar[frozenset[int]]
    default_stream: ClassVar[int]
    blocking: ClassVar[str]

    def __init__(self) -> None:
        self.module: Any = None
        self.contexts: WeakValueDictionary[int, Context] = WeakValueDictionary()
        self.forked = False
        atexit.register(self._stop)  # the driver goes before the last objects do
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._note_fork)

    def __getattr__(self, name: str) -> Any:
        """Finds a function at its first use."""
        module = self.__dict__.get("module")
        if module is None or not name[0].isupper():
            raise AttributeError(name)
        found = getattr(module, self.renamed.get(name, self.prefix + name))
        self.__dict__[name] = found
        return found

    # Errors.

    @abstractmethod
    def describe_error(self, code: int) -> tuple[str, str]:
        """The name and the meaning of an error. May raise if the driver does not know the number."""

    def error(self, code: int) -> DriverError:
        with contextlib.suppress(Exception):
            return DriverError(code, *self.describe_error(code))
        return DriverError(code, f"{self.api} error {code}")

    def check(self, result: tuple[Any, ...]) -> Any:
        """What a call gave: nothing, a value, or a tuple of several. Raises `DriverError`."""
        if result[0]:
            raise self.error(int(result[0]))
        return result[1] if len(result) == 2 else result[1:]

    def is_done(self, result: tuple[Any, ...]) -> bool:
        """Whether a query found the work done. Raises `DriverError`."""
        if result[0] and int(result[0]) != self.not_ready:
            raise self.error(int(result[0]))
        return not result[0]

    # What the bindings want in another form.

    @property
    @abstractmethod
    def relaxed(self) -> Any:
        """The mode of a capture that forbids nothing else meanwhile."""

    @abstractmethod
    def stream_at(self, address: int) -> Any:
        """The handle of a stream from its address."""

    @abstractmethod
    def create_pool(self, ordinal: int) -> Any:
        """A new pool of a device's memory."""

    @abstractmethod
    def keep_freed(self, pool: Any) -> None:
        """Makes a pool keep what is freed."""

    @abstractmethod
    def open_pool(self, pool: Any, ordinal: int) -> None:
        """Lets a device read and write a pool's memory."""

    @abstractmethod
    def launch_calls(self) -> tuple[int, ...]:
        """The addresses of what ``native/gpu.c`` calls: the launch, what gets, sets, pushes and pops the
        context that is current, and what asks whether a stream is done."""

    # Processes.

    def check_process(self) -> None:
        """Raises ``RuntimeError`` in a forked child, where the driver's state is not usable."""
        if self.forked:
            raise RuntimeError(
                f"{self.api} was in use when this process was forked, and does not work in the child; "
                'start processes with multiprocessing.get_context("spawn")'
            )

    def _note_fork(self) -> None:
        self.forked = self.module is not None
        self._stop()

    def _stop(self) -> None:
        """Leaves everything as it is: what is freed from now on is not told to the driver."""
        for context in list(self.contexts.values()):
            context.stopped.value = 1


class Context(ABC):
    """Where a device is used from.

    Attributes:
        driver: the device's.
        ordinal: which device.
        device: the driver's handle of it.
        peer: what copies between devices name it by.
        address: what is current in a thread that uses it, as an int.
        failure: the error after which the driver refuses every call in it, or None.
        stopped: one byte, which the native dispatcher reads too: not 0 once nothing may be queued any
            more, nor freed, because of a failure, in a forked child, or when the interpreter ends.
    """

    __slots__ = ("__weakref__", "address", "device", "driver", "failure", "ordinal", "peer", "stopped")

    def __init__(self, driver: Driver, ordinal: int, device: Any, peer: Any, address: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.device = device
        self.peer = peer
        self.address = address
        self.failure: str | None = None
        self.stopped = ctypes.c_uint8()

    @property
    @abstractmethod
    def is_usual(self) -> bool:
        """Whether it is what a thread that has none gets from the vendor's runtime."""

    @abstractmethod
    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Makes it current in this thread, for a ``with`` block.

        A thread that uses another one gets that back at the end; one that has none keeps the usual one.
        """

    def release(self, call: Any, *args: Any) -> None:
        """Calls what frees something in it. Nobody could do anything about an error."""
        with contextlib.suppress(RuntimeError), self.entered():
            call(*args)
