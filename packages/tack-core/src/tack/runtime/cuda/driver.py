"""The CUDA driver: its errors as exceptions, devices, and contexts that any thread can use.

``cu`` is ``cuda.bindings.driver`` once `start` has loaded it. Nothing else of Tack imports it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
from types import TracebackType
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

__all__ = [
    "Context",
    "CudaError",
    "Features",
    "addresses",
    "check",
    "context_for",
    "device_count",
    "ordinal_of",
    "release",
    "start",
]

cu: Any = None  # cuda.bindings.driver
_contexts: Final[WeakValueDictionary[int, Context]] = WeakValueDictionary()
_forked = False  # whether this process is a child of one that used the driver


class CudaError(RuntimeError):
    """A call of the driver failed.

    Attributes:
        code: the driver's number for the error.
        name: its name, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``.
    """

    def __init__(self, code: int, call: str = "") -> None:
        self.code = code
        self.name, text = _describe(code)
        super().__init__(f"{self.name}{f' in {call}' if call else ''}{f': {text}' if text else ''}")


INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
_DEINITIALIZED, _NO_DEVICE, _NOT_READY = 4, 100, 600
# Errors of a kernel after which the driver refuses every call in the context.
STICKY: Final = frozenset({214, 220, 700, 702, 708, 710, 714, 715, 716, 717, 718, 719})


def _describe(code: int) -> tuple[str, str]:
    """The name and the meaning of an error."""
    with contextlib.suppress(Exception):  # a number that this driver does not know
        error = cu.CUresult(code)
        _, name = cu.cuGetErrorName(error)
        _, text = cu.cuGetErrorString(error)
        return name.decode(), text.decode()
    return f"CUDA error {code}", ""


def check(result: tuple[Any, ...]) -> Any:
    """What a call of the driver gave: nothing, a value, or a tuple of several. Raises `CudaError`."""
    if result[0]:
        raise CudaError(int(result[0]))
    return result[1] if len(result) == 2 else result[1:]


def release(context: Context, call: Any, *args: Any) -> None:
    """Calls what frees something in a context. Nobody could do anything about an error."""
    with contextlib.suppress(RuntimeError), context.entered():
        call(*args)


def is_done(result: tuple[Any, ...]) -> bool:
    """Whether a query found the work done. Raises `CudaError`."""
    if result[0] and int(result[0]) != _NOT_READY:
        raise CudaError(int(result[0]))
    return not result[0]


# --- starting -----------------------------------------------------------------------------------


def start() -> int:
    """Loads and initializes the driver, once; the number of devices.

    Raises:
        RuntimeError: cuda-bindings, the driver or a device is missing, which it says.
    """
    global cu
    check_process()
    if cu is None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise RuntimeError("the package cuda-bindings is not installed or does not load") from error
        cu = driver
    try:
        check(cu.cuInit(0))
        count = int(check(cu.cuDeviceGetCount()))
    except CudaError as error:
        if error.code == _NO_DEVICE:
            raise RuntimeError("the NVIDIA driver finds no CUDA device") from error
        raise RuntimeError(f"the NVIDIA driver does not start: {error}") from error
    except RuntimeError as error:  # of cuda-bindings: no libcuda.so.1, or one without what is called
        raise RuntimeError("there is no NVIDIA driver, or one that is too old (libcuda.so.1)") from error
    if not count:
        raise RuntimeError("the NVIDIA driver finds no CUDA device")
    return count


def device_count() -> int:
    """How many CUDA devices there are. Raises as `start` does."""
    return start()


def check_process() -> None:
    """Raises ``RuntimeError`` in a forked child, where the driver's state is not usable."""
    if _forked:
        raise RuntimeError(
            "CUDA was in use when this process was forked, and does not work in the child; "
            'start processes with multiprocessing.get_context("spawn")'
        )


def _note_fork() -> None:
    global _forked
    _forked = cu is not None
    _stop()


def _stop() -> None:
    """Leaves everything as it is: what is freed from now on is not told to the driver."""
    for context in list(_contexts.values()):
        context.stopped.value = 1


atexit.register(_stop)  # the driver goes before the last objects do
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


@functools.cache
def addresses(*names: str) -> tuple[int, ...]:
    """The addresses of functions of the driver, as they were in CUDA 12."""
    found = []
    for name in names:
        address, _ = check(cu.cuGetProcAddress(name.encode(), 12000, 0))
        found.append(int(address))
    return tuple(found)


def ordinal_of(address: int) -> int | None:
    """The device that an address is on, or None if it is not the driver's.

    Not by cuda-bindings, whose 13.3 says 0 for every device.
    """
    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_uint64)
    attribute = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    (function,) = addresses("cuPointerGetAttribute")
    ordinal = ctypes.c_int()
    error = ask(function)(ctypes.byref(ordinal), int(attribute), address)
    return None if error else ordinal.value


# --- devices ------------------------------------------------------------------------------------


class Features(NamedTuple):
    """What Tack asks of a device.

    Attributes:
        name: as the driver calls it.
        uuid: 16 bytes that name it in every process.
        arch: major * 10 + minor of its compute capability.
        pools: whether it allocates in stream order.
        multiprocessors: how many there are.
        texture: the largest extents of a 3-D texture, (W, H, D).
        driver: version of the CUDA interface that the driver has, 13000 for 13.0.
    """

    name: str
    uuid: bytes
    arch: int
    pools: bool
    multiprocessors: int
    texture: tuple[int, int, int]
    driver: int


def features(device: Any) -> Features:
    """The facts of a device, which has been found by `cuDeviceGet`."""
    attribute = cu.CUdevice_attribute

    def ask(name: str) -> int:
        return int(check(cu.cuDeviceGetAttribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device)))

    return Features(
        check(cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode(),
        bytes(check(cu.cuDeviceGetUuid(device)).bytes),
        ask("COMPUTE_CAPABILITY_MAJOR") * 10 + ask("COMPUTE_CAPABILITY_MINOR"),
        bool(ask("MEMORY_POOLS_SUPPORTED")),
        ask("MULTIPROCESSOR_COUNT"),
        (ask("MAXIMUM_TEXTURE3D_WIDTH"), ask("MAXIMUM_TEXTURE3D_HEIGHT"), ask("MAXIMUM_TEXTURE3D_DEPTH")),
        int(check(cu.cuDriverGetVersion())),
    )


class _Pop:
    """Leaves a context that was entered over another one."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cu.cuCtxPopCurrent()


_POP: Final = _Pop()
_STAY: Final = contextlib.nullcontext()


class Context:
    """The context in which a device is used: one that the caller had current, or the primary one.

    Attributes:
        ordinal: which device.
        device: the driver's handle of it.
        handle: the driver's handle of the context.
        address: the same as an int.
        retained: whether this object holds a reference to the primary context.
        failure: the error after which the driver refuses every call in it, or None.
        stopped: one byte, which the native dispatcher reads too: not 0 once nothing may be queued any
            more, nor freed, because of a failure, in a forked child, or when the interpreter ends.
    """

    __slots__ = ("__weakref__", "address", "device", "failure", "handle", "ordinal", "retained", "stopped")

    def __init__(self, ordinal: int, device: Any, handle: Any, retained: bool) -> None:
        self.ordinal = ordinal
        self.device = device
        self.handle = handle
        self.address = int(handle)
        self.retained = retained
        self.failure: str | None = None
        self.stopped = ctypes.c_uint8()

    @property
    def is_usual(self) -> bool:
        """Whether it is the context that the CUDA runtime gives a thread that has none."""
        return self.retained and self.ordinal == 0

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Makes the context current in this thread, for a ``with`` block.

        A thread that uses another context gets that back at the end; one that has none keeps the usual one.
        """
        current = check(cu.cuCtxGetCurrent())
        if int(current) == self.address:
            return _STAY
        check_process()
        if not int(current) and self.is_usual:
            check(cu.cuCtxSetCurrent(self.handle))
            return _STAY
        check(cu.cuCtxPushCurrent(self.handle))
        return _POP

    def __del__(self) -> None:
        if self.retained and not self.stopped.value:
            cu.cuDevicePrimaryCtxRelease(self.device)


def context_for(ordinal: int, handle: Any = None) -> Context:
    """The context ``handle`` of a device, else the thread's current one if it is the device's, else the
    primary one."""
    device = check(cu.cuDeviceGet(ordinal))
    if handle is None:
        handle = _current_of(device)
    retained = handle is None
    if handle is None:
        handle = check(cu.cuDevicePrimaryCtxRetain(device))
    found = _contexts.get(int(handle))
    if found is None:
        found = _contexts[int(handle)] = Context(ordinal, device, handle, retained)
    elif retained:
        if found.retained:
            cu.cuDevicePrimaryCtxRelease(device)  # one reference is enough
        found.retained = True
    return found


def _current_of(device: Any) -> Any:
    """The thread's current context, if it is one of ``device``."""
    current = check(cu.cuCtxGetCurrent())
    if not int(current):
        return None
    return current if int(check(cu.cuCtxGetDevice())) == int(device) else None
