"""The CUDA driver: what it calls things, devices, and contexts that any thread can use.

Nothing else of Tack imports ``cuda.bindings.driver``, which is ``DRIVER.module`` once `start` has loaded it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from types import TracebackType
from typing import Any, Final, NamedTuple

from tack.runtime.streams.driver import Context, Driver, DriverError

__all__ = [
    "DRIVER",
    "CudaContext",
    "Features",
    "context_for",
    "device_count",
    "features",
    "ordinal_of",
    "start",
]

_NO_DEVICE: Final = 100


class CudaDriver(Driver):
    """The driver API, as cuda-bindings gives it."""

    api = "CUDA"
    prefix = "cu"
    sticky = frozenset({214, 220, 700, 702, 708, 710, 714, 715, 716, 717, 718, 719})
    default_stream = 1  # the legacy one, which has no address
    blocking = "CUDA_LAUNCH_BLOCKING=1"

    def describe_error(self, code: int) -> tuple[str, str]:
        error = self.module.CUresult(code)
        _, name = self.GetErrorName(error)
        _, text = self.GetErrorString(error)
        return name.decode(), text.decode()

    def stream_at(self, address: int) -> Any:
        return self.module.CUstream(address)

    @property
    def relaxed(self) -> Any:
        return self.module.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED

    def create_pool(self, ordinal: int) -> Any:
        cu = self.module
        properties = cu.CUmemPoolProps()
        properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = ordinal
        return self.check(self.MemPoolCreate(properties))

    def keep_freed(self, pool: Any) -> None:
        cu = self.module
        attribute = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        self.check(self.MemPoolSetAttribute(pool, attribute, cu.cuuint64_t((1 << 64) - 1)))

    def open_pool(self, pool: Any, ordinal: int) -> None:
        cu = self.module
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = ordinal
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.check(self.MemPoolSetAccess(pool, [access], 1))

    def launch_calls(self) -> tuple[int, ...]:
        current = ("CtxGetCurrent", "CtxSetCurrent", "CtxPushCurrent", "CtxPopCurrent")
        return tuple(_address_of(f"cu{name}") for name in ("LaunchKernel", *current, "StreamQuery"))


DRIVER: Final = CudaDriver()


@functools.cache
def _address_of(name: str) -> int:
    """The address of a function of the driver, as it was in CUDA 12."""
    address, _ = DRIVER.check(DRIVER.GetProcAddress(name.encode(), 12000, 0))
    return int(address)


# --- starting -----------------------------------------------------------------------------------


def start() -> int:
    """Loads and initializes the driver, once; the number of devices.

    Raises:
        RuntimeError: cuda-bindings, the driver or a device is missing, which it says.
    """
    DRIVER.check_process()
    if DRIVER.module is None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise RuntimeError("the package cuda-bindings is not installed or does not load") from error
        DRIVER.module = driver
    try:
        DRIVER.check(DRIVER.Init(0))
        count = int(DRIVER.check(DRIVER.DeviceGetCount()))
    except DriverError as error:
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


def ordinal_of(address: int) -> int | None:
    """The device that an address is on, or None if it is not the driver's.

    Not by cuda-bindings, whose 13.3 says 0 for every device.
    """
    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_uint64)
    attribute = DRIVER.module.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    ordinal = ctypes.c_int()
    error = ask(_address_of("cuPointerGetAttribute"))(ctypes.byref(ordinal), int(attribute), address)
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
    attribute = DRIVER.module.CUdevice_attribute

    def ask(name: str) -> int:
        return int(
            DRIVER.check(DRIVER.DeviceGetAttribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))
        )

    return Features(
        DRIVER.check(DRIVER.DeviceGetName(128, device)).split(b"\0")[0].decode(),
        bytes(DRIVER.check(DRIVER.DeviceGetUuid(device)).bytes),
        ask("COMPUTE_CAPABILITY_MAJOR") * 10 + ask("COMPUTE_CAPABILITY_MINOR"),
        bool(ask("MEMORY_POOLS_SUPPORTED")),
        ask("MULTIPROCESSOR_COUNT"),
        (ask("MAXIMUM_TEXTURE3D_WIDTH"), ask("MAXIMUM_TEXTURE3D_HEIGHT"), ask("MAXIMUM_TEXTURE3D_DEPTH")),
        int(DRIVER.check(DRIVER.DriverGetVersion())),
    )


class _Pop:
    """Leaves a context that was entered over another one."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        DRIVER.CtxPopCurrent()


_POP: Final = _Pop()
_STAY: Final = contextlib.nullcontext()


class CudaContext(Context):
    """A context that the caller had current, or the primary one.

    Attributes:
        retained: whether this object holds a reference to the primary context.
    """

    __slots__ = ("retained",)

    def __init__(self, ordinal: int, device: Any, handle: Any, retained: bool) -> None:
        super().__init__(DRIVER, ordinal, device, handle, int(handle))
        self.retained = retained

    @property
    def is_usual(self) -> bool:
        """Whether it is the context that the CUDA runtime gives a thread that has none."""
        return self.retained and self.ordinal == 0

    def entered(self) -> contextlib.AbstractContextManager[None]:
        current = DRIVER.check(DRIVER.CtxGetCurrent())
        if int(current) == self.address:
            return _STAY
        DRIVER.check_process()
        if not int(current) and self.is_usual:
            DRIVER.check(DRIVER.CtxSetCurrent(self.peer))
            return _STAY
        DRIVER.check(DRIVER.CtxPushCurrent(self.peer))
        return _POP

    def __del__(self) -> None:
        if self.retained and not self.stopped.value:
            DRIVER.DevicePrimaryCtxRelease(self.device)


def context_for(ordinal: int, handle: Any = None) -> CudaContext:
    """The context ``handle`` of a device, else the thread's current one if it is the device's, else the
    primary one."""
    device = DRIVER.check(DRIVER.DeviceGet(ordinal))
    if handle is None:
        handle = _current_of(device)
    retained = handle is None
    if handle is None:
        handle = DRIVER.check(DRIVER.DevicePrimaryCtxRetain(device))
    found: Any = DRIVER.contexts.get(int(handle))
    if found is None:
        found = DRIVER.contexts[int(handle)] = CudaContext(ordinal, device, handle, retained)
    elif retained:
        if found.retained:
            DRIVER.DevicePrimaryCtxRelease(device)  # one reference is enough
        found.retained = True
    context: CudaContext = found
    return context


def _current_of(device: Any) -> Any:
    """The thread's current context, if it is one of ``device``."""
    current = DRIVER.check(DRIVER.CtxGetCurrent())
    if not int(current):
        return None
    return current if int(DRIVER.check(DRIVER.CtxGetDevice())) == int(device) else None
