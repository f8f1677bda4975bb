"""Drivers, devices and contexts of Level Zero. ``api`` is there once `start` has loaded the loader."""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero.api import Api, ZeError

__all__ = ["Context", "Device", "Features", "context_handle", "devices", "features", "start"]

api: Api = None  # type: ignore[assignment]
_devices: list[Device] = []
_contexts: Final[WeakSet[Context]] = WeakSet()
_forked = False  # whether this process is a child of one that used the driver

# After these the driver refuses every call.
STICKY: Final = frozenset({ze.DEVICE_LOST, 0x70000006})
OUT_OF_MEMORY: Final = frozenset({ze.OUT_OF_HOST_MEMORY, ze.OUT_OF_DEVICE_MEMORY, ze.UNSUPPORTED_SIZE})

_INSTALL: Final = "Debian's libze1 and libze-intel-gpu1"


class Device(NamedTuple):
    """Handles of a device and of its driver."""

    driver: int
    handle: int


def start() -> list[Device]:
    """Loads the loader and initializes the drivers, once; the GPUs.

    Raises:
        RuntimeError: the loader, a driver or a device is missing, which it says.
    """
    global api
    check_process()
    if api is None:
        try:
            loaded = Api()
        except OSError as error:
            raise RuntimeError(f"there is no Level Zero loader ({ze.LIBRARY}; {_INSTALL})") from error
        except AttributeError as error:
            raise RuntimeError(f"the Level Zero loader is too old: {error}") from error
        try:
            loaded.call("Init", ze.INIT_FLAG_GPU_ONLY)
        except ZeError as error:
            if error.code == ze.UNINITIALIZED:
                raise RuntimeError(f"the Level Zero loader finds no driver ({_INSTALL})") from error
            raise RuntimeError(f"the Level Zero drivers do not start: {error}") from error
        api = loaded
    if not _devices:
        try:
            drivers = api.handles("DriverGet")
            found = [
                Device(driver, handle) for driver in drivers for handle in api.handles("DeviceGet", driver)
            ]
            _devices[:] = [device for device in found if _is_gpu(device)]
        except ZeError as error:
            raise RuntimeError(f"the Level Zero drivers do not list their devices: {error}") from error
    if not _devices:
        raise RuntimeError("the Level Zero drivers find no GPU; may this user open /dev/dri/renderD*?")
    return _devices


def _is_gpu(device: Device) -> bool:
    about = api.ask("DeviceGetProperties", device.handle, ze.DeviceProperties)
    return bool(about.type == ze.DEVICE_TYPE_GPU)


def devices() -> int:
    """How many GPUs there are. Raises as `start` does."""
    return len(start())


def check_process() -> None:
    """Raises ``RuntimeError`` in a forked child, where the driver's state is not usable."""
    if _forked:
        raise RuntimeError(
            "Level Zero was in use when this process was forked, and does not work in the child; "
            'start processes with multiprocessing.get_context("spawn")'
        )


def _note_fork() -> None:
    global _forked
    _forked = api is not None
    _stop()


def _stop() -> None:
    """Leaves everything as it is: what is freed from now on is not told to the driver."""
    for context in list(_contexts):
        context.is_stopped = True


atexit.register(_stop)  # the driver goes before the last objects do
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


# --- devices ------------------------------------------------------------------------------------


class Features(NamedTuple):
    """What Tack asks of a device.

    Attributes:
        name: as the driver calls it.
        number: the vendor's for the model.
        ip_version: that of the architecture with its stepping; 0: the driver does not say.
        driver: the driver's version.
        f64, int64_atomics: whether it has them.
        group: work-items of a workgroup, at most.
        groups: workgroups of a launch along each axis, at most.
        image: the largest extent of a volume that is sampled in hardware; 0: none is.
        memory: bytes of the device's own memory.
        largest: bytes of an allocation whose limit is not lifted.
        tick: nanoseconds of its clock.
        clock: bits of a timestamp.
        queue_group: the ordinal of the queues that run kernels.
        fill: bytes of the longest pattern that it fills memory with.
    """

    name: str
    number: int
    ip_version: int
    driver: int
    f64: bool
    int64_atomics: bool
    group: int
    groups: tuple[int, int, int]
    image: int
    memory: int
    largest: int
    tick: int
    clock: int
    queue_group: int
    fill: int


def features(device: Device) -> Features:
    """The facts of a device."""
    handle = device.handle
    ip = ze.structure(ze.DeviceIpVersion)
    about = api.ask("DeviceGetProperties", handle, ze.DeviceProperties, pNext=ctypes.addressof(ip))
    compute = api.ask("DeviceGetComputeProperties", handle, ze.ComputeProperties)
    module = api.ask("DeviceGetModuleProperties", handle, ze.ModuleProperties)
    image = api.ask("DeviceGetImageProperties", handle, ze.ImageProperties)
    memory = api.list("DeviceGetMemoryProperties", handle, ze.MemoryProperties)
    groups = api.list("DeviceGetCommandQueueGroupProperties", handle, ze.QueueGroupProperties)
    compute_flag = ze.COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE
    ordinal = next((k for k, g in enumerate(groups) if g.flags & compute_flag and g.numQueues), None)
    if ordinal is None:
        raise RuntimeError("the device has no queue that runs kernels")
    return Features(
        about.name.decode(errors="replace"),
        about.deviceId,
        ip.ipVersion,
        api.ask("DriverGetProperties", device.driver, ze.DriverProperties).driverVersion,
        bool(module.flags & ze.DEVICE_MODULE_FLAG_FP64),
        bool(module.flags & ze.DEVICE_MODULE_FLAG_INT64_ATOMICS),
        min(compute.maxTotalGroupSize, compute.maxGroupSizeX),
        (compute.maxGroupCountX, compute.maxGroupCountY, compute.maxGroupCountZ),
        image.maxImageDims3D if image.maxSamplers and image.maxReadImageArgs else 0,
        sum(part.totalSize for part in memory),
        about.maxMemAllocSize,
        about.timerResolution,
        about.kernelTimestampValidBits,
        ordinal,
        groups[ordinal].maxMemoryFillPatternSize,
    )


# --- contexts -----------------------------------------------------------------------------------


class Context:
    """A context of a device's driver: one of its own, or somebody else's.

    Attributes:
        device: whose memory and queue are used in it.
        handle: the driver's.
        allocated: bytes of the device's memory that Tack has.
        failure: the error after which the driver refuses every call in it, or None.
        is_stopped: whether nothing may be freed any more, because of a failure, in a forked child, or when
            the interpreter ends.
    """

    __slots__ = ("__weakref__", "_borrowed", "allocated", "device", "failure", "handle", "is_stopped")

    def __init__(self, device: Device, external: object = None) -> None:
        self.device = device
        self.allocated = 0
        self.failure: str | None = None
        self.is_stopped = False
        self._borrowed = external  # kept alive
        if external is None:
            description = ze.structure(ze.ContextDesc)
            self.handle = api.make("ContextCreate", device.driver, ctypes.byref(description))
        else:
            self.handle = context_handle(external)
        _contexts.add(self)

    def __del__(self) -> None:
        if hasattr(self, "handle") and self._borrowed is None and not self.is_stopped:
            api.status("ContextDestroy", self.handle)

    def check_usable(self) -> None:
        """Raises ``RuntimeError`` if an earlier failure has made it unusable, or in a forked child."""
        if self.failure is not None:
            raise RuntimeError(f"{self.failure}; the device cannot be used in this process any more")
        check_process()

    def destroyer(self, function: str, *handles: int) -> Callable[[], None]:
        """What frees something in the context. Nobody could do anything about an error."""

        def release() -> None:
            if not self.is_stopped:
                api.status(function, *handles)

        return release


def context_handle(external: Any) -> int:
    """The handle of a foreign ``ze_context_handle_t``: an int, or what ``int()`` or ``.value`` gives.

    Raises:
        TypeError: it is none of these.
        ValueError: it is null.
    """
    found = external.value if isinstance(external, ctypes.c_void_p) else external
    if found is not None and (isinstance(found, bool | float | str) or not hasattr(type(found), "__int__")):
        raise TypeError(
            f"external_context is a ze_context_handle_t as an int or c_void_p, not {type(external).__name__}"
        )
    handle = 0 if found is None else int(found)
    if not 0 < handle < 1 << 64:
        raise ValueError(f"{handle} is not the handle of a Level Zero context")
    return handle
