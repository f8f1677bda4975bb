"""HIP: what it calls things, its devices, and which one a thread uses.

Nothing else of Tack imports ``hip``, which is ``DRIVER.module`` once `start` has loaded it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple

from tack.runtime.streams.driver import Context, Driver, DriverError

__all__ = ["DRIVER", "Features", "HipContext", "context_for", "device_count", "features", "start"]

_NO_DEVICE: Final = (100, 101)  # the second is what hipInit says
_ABI: Final = 600  # of the functions that `_address_of` finds
# What waits for a device, and how many arguments it takes, each of the size of a pointer.
_WAITING: Final = {
    "EventSynchronize": 1,
    "MemFree": 1,
    "MemcpyDtoHAsync": 4,
    "MemcpyHtoDAsync": 4,
    "StreamSynchronize": 1,
}


class HipDriver(Driver):
    """The HIP runtime, as hip-python gives it."""

    api = "HIP"
    prefix = "hip"
    renamed: ClassVar[dict[str, str]] = {
        "DeviceGetCount": "hipGetDeviceCount",
        "EventCreate": "hipEventCreateWithFlags",
        "GraphInstantiate": "hipGraphInstantiateWithFlags",
        "LaunchKernel": "hipModuleLaunchKernel",
        "MemAlloc": "hipMalloc",
        "MemAllocFromPoolAsync": "hipMallocFromPoolAsync",
        "MemFree": "hipFree",
        "MemFreeAsync": "hipFreeAsync",
        "MemFreeHost": "hipHostFree",
        "MemHostAlloc": "hipHostMalloc",
        "StreamCreate": "hipStreamCreateWithFlags",
    }
    sticky = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})
    default_stream = 0
    blocking = "AMD_SERIALIZE_KERNEL=3"

    def describe_error(self, code: int) -> tuple[str, str]:
        error = self.module.hipError_t(code)
        found = self.GetErrorString(error)
        return error.name, _text(found[-1] if isinstance(found, tuple) else found)

    def MemsetD32Async(self, address: int, number: int, count: int, stream: Any) -> tuple[Any, ...]:
        """The function, whose number has a sign."""
        signed = number - (1 << 32) if number >> 31 else number
        result: tuple[Any, ...] = self.module.hipMemsetD32Async(address, signed, count, stream)
        return result

    def release_gil(self) -> None:
        """Calls what waits through ctypes: hip-python before version 10 would stop all threads meanwhile."""

        def released(address: int, count: int) -> Callable[..., tuple[int]]:
            function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * count)(address)
            return lambda *args: (function(*map(int, args)),)

        with contextlib.suppress(RuntimeError):  # the runtime is older than what tells addresses
            for name, count in _WAITING.items():
                address = _address_of(self.renamed.get(name, self.prefix + name))
                setattr(self, name, released(address, count))

    def filled(self, name: str, kind: str, argument: Any) -> tuple[Any, ...]:
        """What a function that fills a structure gave: its error, and the structure.

        hip-python makes that from version 10 on, and takes it as the first argument before.
        """
        call = getattr(self, name)
        try:
            result: tuple[Any, ...] = call(argument)
        except TypeError:
            structure = getattr(self.module, kind)()
            result = call(structure, argument)[0], structure
        return result

    def stream_at(self, address: int) -> Any:
        return self.module.ihipStream_t(address)

    @property
    def relaxed(self) -> Any:
        return self.module.hipStreamCaptureMode.hipStreamCaptureModeRelaxed

    def create_pool(self, ordinal: int) -> Any:
        hip = self.module
        properties = hip.hipMemPoolProps()
        properties.allocType = hip.hipMemAllocationType.hipMemAllocationTypePinned
        properties.handleTypes = hip.hipMemAllocationHandleType.hipMemHandleTypeNone
        properties.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
        properties.location.id = ordinal
        return self.check(self.MemPoolCreate(properties))

    def keep_freed(self, pool: Any) -> None:
        attribute = self.module.hipMemPoolAttr.hipMemPoolAttrReleaseThreshold
        self.check(self.MemPoolSetAttribute(pool, attribute, ctypes.c_uint64((1 << 64) - 1)))

    def open_pool(self, pool: Any, ordinal: int) -> None:
        hip = self.module
        access = hip.hipMemAccessDesc()
        access.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
        access.location.id = ordinal
        access.flags = hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
        self.check(self.MemPoolSetAccess(pool, access, 1))

    def launch_calls(self) -> tuple[int, ...]:
        names = ("hipModuleLaunchKernel", "hipGetDevice", "hipSetDevice")
        return (*map(_address_of, names), 0, 0, _address_of("hipStreamQuery"))


DRIVER: Final = HipDriver()


@functools.cache
def _address_of(name: str) -> int:
    """The address of a function of the runtime.

    Raises:
        RuntimeError: the runtime is too old to tell.
    """
    try:
        address, _ = DRIVER.check(DRIVER.GetProcAddress(name.encode(), _ABI, 0))
    except TypeError:  # hip-python before version 10
        cell = ctypes.c_uint64()
        DRIVER.check(DRIVER.GetProcAddress(name.encode(), ctypes.addressof(cell), _ABI, 0))
        address = cell.value
    return int(address)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# --- starting -----------------------------------------------------------------------------------


def start() -> int:
    """Loads and initializes HIP, once; the number of devices.

    Raises:
        RuntimeError: hip-python, the ROCm runtime or a device is missing, which it says.
    """
    DRIVER.check_process()
    if DRIVER.module is None:
        try:
            import hip
            from hip import hip as module
        except ImportError as error:
            raise RuntimeError("the package hip-python is not installed or does not load") from error
        DRIVER.module = module
        if int(hip.VERSION.split(".")[0]) < 10:
            DRIVER.release_gil()
    try:
        DRIVER.check(DRIVER.Init(0))
        count = int(DRIVER.check(DRIVER.DeviceGetCount()))
    except DriverError as error:
        if error.code in _NO_DEVICE:
            raise RuntimeError("the ROCm runtime finds no HIP device") from error
        raise RuntimeError(f"the ROCm runtime does not start: {error}") from error
    except RuntimeError as error:  # of hip-python: no libamdhip64.so, or one without what is called
        raise RuntimeError("there is no ROCm runtime, or one that is too old (libamdhip64.so)") from error
    if not count:
        raise RuntimeError("the ROCm runtime finds no HIP device")
    return count


def device_count() -> int:
    """How many HIP devices there are. Raises as `start` does."""
    return start()


# --- devices ------------------------------------------------------------------------------------


class Features(NamedTuple):
    """What Tack asks of a device.

    Attributes:
        name: as the runtime calls it.
        arch: its architecture with the features that are on or off, such as ``gfx90a:sramecc+:xnack-``.
        pools: whether it allocates in stream order.
        images: whether it has texture units.
        texture: the largest extents of a 3-D texture, (W, H, D).
        runtime, driver: versions.
    """

    name: str
    arch: str
    pools: bool
    images: bool
    texture: tuple[int, int, int]
    runtime: int
    driver: int


def features(ordinal: int) -> Features:
    """The facts of a device."""
    attribute = DRIVER.module.hipDeviceAttribute_t

    def ask(name: str) -> int:
        """An attribute; 0 for one that the runtime or hip-python does not know."""
        number = getattr(attribute, f"hipDeviceAttribute{name}", None)
        if number is None:
            return 0
        error, *value = DRIVER.DeviceGetAttribute(number, ordinal)
        if int(error) == DRIVER.invalid_value:
            return 0
        return int(DRIVER.check((error, *value)))

    about = DRIVER.check(DRIVER.filled("GetDeviceProperties", "hipDeviceProp_t", ordinal))
    return Features(
        _text(about.name),
        _text(about.gcnArchName),
        bool(ask("MemoryPoolsSupported")),
        bool(ask("ImageSupport")),
        (ask("MaxTexture3DWidth"), ask("MaxTexture3DHeight"), ask("MaxTexture3DDepth")),
        int(DRIVER.check(DRIVER.RuntimeGetVersion())),
        int(DRIVER.check(DRIVER.DriverGetVersion())),
    )


class _Back:
    """Gives a thread the device back that it used before."""

    __slots__ = ("_ordinal",)

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        DRIVER.SetDevice(self._ordinal)


_STAY: Final = contextlib.nullcontext()


class HipContext(Context):
    """A device, which is what a thread has current: contexts are not HIP's."""

    __slots__ = ()

    def __init__(self, ordinal: int) -> None:
        super().__init__(DRIVER, ordinal, ordinal, ordinal, ordinal)

    @property
    def is_usual(self) -> bool:
        """Whether it is the device of a thread that has chosen none."""
        return self.ordinal == 0

    def entered(self) -> contextlib.AbstractContextManager[None]:
        current = int(DRIVER.check(DRIVER.GetDevice()))
        if current == self.ordinal:
            return _STAY
        DRIVER.check_process()
        DRIVER.check(DRIVER.SetDevice(self.ordinal))
        return _Back(current)


def context_for(ordinal: int) -> Context:
    """The context of a device, of which there is one."""
    found = DRIVER.contexts.get(ordinal)
    if found is None:
        found = DRIVER.contexts[ordinal] = HipContext(ordinal)
    return found
