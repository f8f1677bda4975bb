"""What Tack uses of the Level Zero API: structures, constants, functions, and its errors as exceptions.

All of it is as in ``ze_api.h``, version 1.4, with which later ones are compatible.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar, Final

__all__ = ["FUNCTIONS", "LIBRARY", "STRUCTURES", "Api", "ZeError", "structure"]

LIBRARY: Final = "libze_loader.so.1"

# --- constants, by the header's names without ZE_ -----------------------------------------------

NOT_READY: Final = 1
DEVICE_LOST: Final = 0x70000001
OUT_OF_HOST_MEMORY: Final = 0x70000002
OUT_OF_DEVICE_MEMORY: Final = 0x70000003
MODULE_BUILD_FAILURE: Final = 0x70000004
UNINITIALIZED: Final = 0x78000001
UNSUPPORTED_SIZE: Final = 0x78000009

RESULTS: Final = {
    NOT_READY: "NOT_READY",
    DEVICE_LOST: "ERROR_DEVICE_LOST",
    OUT_OF_HOST_MEMORY: "ERROR_OUT_OF_HOST_MEMORY",
    OUT_OF_DEVICE_MEMORY: "ERROR_OUT_OF_DEVICE_MEMORY",
    MODULE_BUILD_FAILURE: "ERROR_MODULE_BUILD_FAILURE",
    0x70000005: "ERROR_MODULE_LINK_FAILURE",
    0x70000006: "ERROR_DEVICE_REQUIRES_RESET",
    0x70000007: "ERROR_DEVICE_IN_LOW_POWER_STATE",
    0x70010000: "ERROR_INSUFFICIENT_PERMISSIONS",
    0x70010001: "ERROR_NOT_AVAILABLE",
    0x70020000: "ERROR_DEPENDENCY_UNAVAILABLE",
    UNINITIALIZED: "ERROR_UNINITIALIZED",
    0x78000002: "ERROR_UNSUPPORTED_VERSION",
    0x78000003: "ERROR_UNSUPPORTED_FEATURE",
    0x78000004: "ERROR_INVALID_ARGUMENT",
    0x78000005: "ERROR_INVALID_NULL_HANDLE",
    0x78000006: "ERROR_HANDLE_OBJECT_IN_USE",
    0x78000007: "ERROR_INVALID_NULL_POINTER",
    0x78000008: "ERROR_INVALID_SIZE",
    UNSUPPORTED_SIZE: "ERROR_UNSUPPORTED_SIZE",
    0x7800000A: "ERROR_UNSUPPORTED_ALIGNMENT",
    0x7800000B: "ERROR_INVALID_SYNCHRONIZATION_OBJECT",
    0x7800000C: "ERROR_INVALID_ENUMERATION",
    0x7800000D: "ERROR_UNSUPPORTED_ENUMERATION",
    0x7800000E: "ERROR_UNSUPPORTED_IMAGE_FORMAT",
    0x7800000F: "ERROR_INVALID_NATIVE_BINARY",
    0x78000010: "ERROR_INVALID_GLOBAL_NAME",
    0x78000011: "ERROR_INVALID_KERNEL_NAME",
    0x78000012: "ERROR_INVALID_FUNCTION_NAME",
    0x78000013: "ERROR_INVALID_GROUP_SIZE_DIMENSION",
    0x78000014: "ERROR_INVALID_GLOBAL_WIDTH_DIMENSION",
    0x78000015: "ERROR_INVALID_KERNEL_ARGUMENT_INDEX",
    0x78000016: "ERROR_INVALID_KERNEL_ARGUMENT_SIZE",
    0x78000017: "ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE",
    0x78000018: "ERROR_INVALID_MODULE_UNLINKED",
    0x78000019: "ERROR_INVALID_COMMAND_LIST_TYPE",
    0x7800001A: "ERROR_OVERLAPPING_REGIONS",
    0x7FFFFFFE: "ERROR_UNKNOWN",
}

INIT_FLAG_GPU_ONLY: Final = 1
DEVICE_TYPE_GPU: Final = 1
DEVICE_MODULE_FLAG_FP64: Final = 2
DEVICE_MODULE_FLAG_INT64_ATOMICS: Final = 4
COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE: Final = 1
COMMAND_QUEUE_MODE_ASYNCHRONOUS: Final = 2
EVENT_POOL_FLAG_HOST_VISIBLE: Final = 1
EVENT_POOL_FLAG_KERNEL_TIMESTAMP: Final = 4
EVENT_SCOPE_FLAG_HOST: Final = 4
MODULE_FORMAT_IL_SPIRV: Final = 0
MODULE_FORMAT_NATIVE: Final = 1
MEMORY_TYPE_UNKNOWN: Final = 0
MEMORY_TYPE_HOST: Final = 1
MEMORY_TYPE_DEVICE: Final = 2
MEMORY_TYPE_SHARED: Final = 3
RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE: Final = 1
IMAGE_TYPE_3D: Final = 4
IMAGE_FORMAT_LAYOUT_32: Final = 2
IMAGE_FORMAT_TYPE_FLOAT: Final = 4
IMAGE_FORMAT_SWIZZLE_R: Final = 0
IMAGE_FORMAT_SWIZZLE_0: Final = 4
IMAGE_FORMAT_SWIZZLE_1: Final = 5

_MAX_DEVICE_NAME: Final = 256
_MAX_UUID: Final = 16
_MAX_SUBGROUP_SIZES: Final = 8

# --- structures ---------------------------------------------------------------------------------

_HEAD: Final = (("stype", c_int32), ("pNext", c_void_p))


class Uuid(ctypes.Structure):
    _fields_: ClassVar = [("id", c_uint8 * _MAX_UUID)]


class DriverProperties(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("uuid", Uuid), ("driverVersion", c_uint32)]


class DeviceProperties(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("type", c_int32),
        ("vendorId", c_uint32),
        ("deviceId", c_uint32),
        ("flags", c_uint32),
        ("subdeviceId", c_uint32),
        ("coreClockRate", c_uint32),
        ("maxMemAllocSize", c_uint64),
        ("maxHardwareContexts", c_uint32),
        ("maxCommandQueuePriority", c_uint32),
        ("numThreadsPerEU", c_uint32),
        ("physicalEUSimdWidth", c_uint32),
        ("numEUsPerSubslice", c_uint32),
        ("numSubslicesPerSlice", c_uint32),
        ("numSlices", c_uint32),
        ("timerResolution", c_uint64),
        ("timestampValidBits", c_uint32),
        ("kernelTimestampValidBits", c_uint32),
        ("uuid", Uuid),
        ("name", c_char * _MAX_DEVICE_NAME),
    ]


class DeviceIpVersion(ctypes.Structure):
    """``ze_device_ip_version_ext_t`` of later headers, which drivers that do not know it leave as it is."""

    _fields_: ClassVar = [*_HEAD, ("ipVersion", c_uint32)]


class ComputeProperties(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("maxTotalGroupSize", c_uint32),
        ("maxGroupSizeX", c_uint32),
        ("maxGroupSizeY", c_uint32),
        ("maxGroupSizeZ", c_uint32),
        ("maxGroupCountX", c_uint32),
        ("maxGroupCountY", c_uint32),
        ("maxGroupCountZ", c_uint32),
        ("maxSharedLocalMemory", c_uint32),
        ("numSubGroupSizes", c_uint32),
        ("subGroupSizes", c_uint32 * _MAX_SUBGROUP_SIZES),
    ]


class ModuleProperties(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("spirvVersionSupported", c_uint32),
        ("flags", c_uint32),
        ("fp16flags", c_uint32),
        ("fp32flags", c_uint32),
        ("fp64flags", c_uint32),
        ("maxArgumentsSize", c_uint32),
        ("printfBufferSize", c_uint32),
        ("nativeKernelSupported", Uuid),
    ]


class ImageProperties(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("maxImageDims1D", c_uint32),
        ("maxImageDims2D", c_uint32),
        ("maxImageDims3D", c_uint32),
        ("maxImageBufferSize", c_uint64),
        ("maxImageArraySlices", c_uint32),
        ("maxSamplers", c_uint32),
        ("maxReadImageArgs", c_uint32),
        ("maxWriteImageArgs", c_uint32),
    ]


class MemoryProperties(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("flags", c_uint32),
        ("maxClockRate", c_uint32),
        ("maxBusWidth", c_uint32),
        ("totalSize", c_uint64),
        ("name", c_char * _MAX_DEVICE_NAME),
    ]


class QueueGroupProperties(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("flags", c_uint32),
        ("maxMemoryFillPatternSize", c_size_t),
        ("numQueues", c_uint32),
    ]


class AllocationProperties(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("type", c_int32), ("id", c_uint64), ("pageSize", c_uint64)]


class ContextDesc(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("flags", c_uint32)]


class QueueDesc(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("ordinal", c_uint32),
        ("index", c_uint32),
        ("flags", c_uint32),
        ("mode", c_int32),
        ("priority", c_int32),
    ]


class EventPoolDesc(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("flags", c_uint32), ("count", c_uint32)]


class EventDesc(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("index", c_uint32), ("signal", c_uint32), ("wait", c_uint32)]


class DeviceMemoryDesc(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("flags", c_uint32), ("ordinal", c_uint32)]


class HostMemoryDesc(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("flags", c_uint32)]


class RelaxedLimitsDesc(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("flags", c_uint32)]


class ModuleDesc(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("format", c_int32),
        ("inputSize", c_size_t),
        ("pInputModule", c_void_p),
        ("pBuildFlags", c_char_p),
        ("pConstants", c_void_p),
    ]


class KernelDesc(ctypes.Structure):
    _fields_: ClassVar = [*_HEAD, ("flags", c_uint32), ("pKernelName", c_char_p)]


class ImageFormat(ctypes.Structure):
    _fields_: ClassVar = [(name, c_int32) for name in ("layout", "type", "x", "y", "z", "w")]


class ImageDesc(ctypes.Structure):
    _fields_: ClassVar = [
        *_HEAD,
        ("flags", c_uint32),
        ("type", c_int32),
        ("format", ImageFormat),
        ("width", c_uint64),
        ("height", c_uint32),
        ("depth", c_uint32),
        ("arraylevels", c_uint32),
        ("miplevels", c_uint32),
    ]


class GroupCount(ctypes.Structure):
    _fields_: ClassVar = [(f"groupCount{axis}", c_uint32) for axis in "XYZ"]


class TimestampData(ctypes.Structure):
    _fields_: ClassVar = [("kernelStart", c_uint64), ("kernelEnd", c_uint64)]


class TimestampResult(ctypes.Structure):
    # The second is ``context`` there, which a structure of ctypes has no room for under that name.
    _fields_: ClassVar = [("global_", TimestampData), ("context_", TimestampData)]


# The structures with a type number, which is what the header says of them.
STRUCTURES: Final[dict[type[ctypes.Structure], int]] = {
    DriverProperties: 0x1,
    DeviceProperties: 0x3,
    ComputeProperties: 0x4,
    ModuleProperties: 0x5,
    QueueGroupProperties: 0x6,
    MemoryProperties: 0x7,
    ImageProperties: 0xA,
    ContextDesc: 0xD,
    QueueDesc: 0xE,
    EventPoolDesc: 0x10,
    EventDesc: 0x11,
    ImageDesc: 0x13,
    DeviceMemoryDesc: 0x15,
    HostMemoryDesc: 0x16,
    AllocationProperties: 0x17,
    ModuleDesc: 0x1B,
    KernelDesc: 0x1D,
    RelaxedLimitsDesc: 0x00020001,
    DeviceIpVersion: 0x0001000F,
}


def structure(kind: type[ctypes.Structure], **fields: Any) -> Any:
    """A structure of its type number, zero but for ``fields``."""
    return kind(stype=STRUCTURES[kind], **fields)


# --- functions ----------------------------------------------------------------------------------

_EVENTS: Final = (c_void_p, c_uint32, POINTER(c_void_p))  # to signal, and to wait for
_HANDLE: Final = POINTER(c_void_p)
_COUNT: Final = POINTER(c_uint32)

# The parameters of each function without the beginning of its name, ``ze``; each returns a ze_result_t.
FUNCTIONS: Final[dict[str, Sequence[Any]]] = {
    "Init": (c_uint32,),
    "DriverGet": (_COUNT, _HANDLE),
    "DriverGetProperties": (c_void_p, POINTER(DriverProperties)),
    "DeviceGet": (c_void_p, _COUNT, _HANDLE),
    "DeviceGetProperties": (c_void_p, POINTER(DeviceProperties)),
    "DeviceGetComputeProperties": (c_void_p, POINTER(ComputeProperties)),
    "DeviceGetModuleProperties": (c_void_p, POINTER(ModuleProperties)),
    "DeviceGetImageProperties": (c_void_p, POINTER(ImageProperties)),
    "DeviceGetMemoryProperties": (c_void_p, _COUNT, POINTER(MemoryProperties)),
    "DeviceGetCommandQueueGroupProperties": (c_void_p, _COUNT, POINTER(QueueGroupProperties)),
    "ContextCreate": (c_void_p, POINTER(ContextDesc), _HANDLE),
    "ContextDestroy": (c_void_p,),
    "CommandListCreateImmediate": (c_void_p, c_void_p, POINTER(QueueDesc), _HANDLE),
    "CommandListDestroy": (c_void_p,),
    "CommandListAppendBarrier": (c_void_p, *_EVENTS),
    "CommandListAppendMemoryCopy": (c_void_p, c_void_p, c_void_p, c_size_t, *_EVENTS),
    "CommandListAppendMemoryFill": (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, *_EVENTS),
    "CommandListAppendImageCopyFromMemory": (c_void_p, c_void_p, c_void_p, c_void_p, *_EVENTS),
    "CommandListAppendLaunchKernel": (c_void_p, c_void_p, POINTER(GroupCount), *_EVENTS),
    "EventPoolCreate": (c_void_p, POINTER(EventPoolDesc), c_uint32, _HANDLE, _HANDLE),
    "EventPoolDestroy": (c_void_p,),
    "EventCreate": (c_void_p, POINTER(EventDesc), _HANDLE),
    "EventDestroy": (c_void_p,),
    "EventHostSynchronize": (c_void_p, c_uint64),
    "EventQueryStatus": (c_void_p,),
    "EventHostReset": (c_void_p,),
    "EventQueryKernelTimestamp": (c_void_p, POINTER(TimestampResult)),
    "ImageCreate": (c_void_p, c_void_p, POINTER(ImageDesc), _HANDLE),
    "ImageDestroy": (c_void_p,),
    "MemAllocDevice": (c_void_p, POINTER(DeviceMemoryDesc), c_size_t, c_size_t, c_void_p, _HANDLE),
    "MemAllocHost": (c_void_p, POINTER(HostMemoryDesc), c_size_t, c_size_t, _HANDLE),
    "MemFree": (c_void_p, c_void_p),
    "MemGetAllocProperties": (c_void_p, c_void_p, POINTER(AllocationProperties), _HANDLE),
    "ModuleCreate": (c_void_p, c_void_p, POINTER(ModuleDesc), _HANDLE, _HANDLE),
    "ModuleDestroy": (c_void_p,),
    "ModuleBuildLogGetString": (c_void_p, POINTER(c_size_t), c_void_p),
    "ModuleBuildLogDestroy": (c_void_p,),
    "ModuleGetNativeBinary": (c_void_p, POINTER(c_size_t), c_void_p),
    "KernelCreate": (c_void_p, POINTER(KernelDesc), _HANDLE),
    "KernelDestroy": (c_void_p,),
    "KernelSetGroupSize": (c_void_p, c_uint32, c_uint32, c_uint32),
    "KernelSetArgumentValue": (c_void_p, c_uint32, c_size_t, c_void_p),
}


class ZeError(RuntimeError):
    """A call failed.

    Attributes:
        code: the ``ze_result_t``.
        call: the function.
    """

    def __init__(self, code: int, call: str) -> None:
        self.code = code & 0xFFFFFFFF
        self.call = call
        super().__init__(f"ZE_RESULT_{RESULTS.get(self.code, f'{self.code:#x}')} in ze{call}")


class Api:
    """The functions of the loader. Each raises `ZeError` unless it succeeds."""

    def __init__(self, path: str = LIBRARY) -> None:
        """Raises ``OSError`` or ``AttributeError`` where the loader or a function of it is missing."""
        self._library = ctypes.CDLL(path)
        self._functions: dict[str, Any] = {}
        for name, parameters in FUNCTIONS.items():
            function = getattr(self._library, f"ze{name}")
            function.argtypes = parameters
            self._functions[name] = function

    def status(self, name: str, *args: Any) -> int:
        """The result of a call."""
        found: int = self._functions[name](*args)
        return found & 0xFFFFFFFF

    def call(self, name: str, *args: Any) -> None:
        """Makes a call. Raises `ZeError`."""
        code = self._functions[name](*args)
        if code:
            raise ZeError(code, name)

    def make(self, name: str, *args: Any) -> int:
        """The handle that a call gives through its last parameter."""
        handle = c_void_p()
        self.call(name, *args, ctypes.byref(handle))
        return handle.value or 0

    def ask(self, name: str, handle: int, kind: type[ctypes.Structure], **fields: Any) -> Any:
        """The properties that a call gives of a handle."""
        found = structure(kind, **fields)
        self.call(name, handle, ctypes.byref(found))
        return found

    def handles(self, name: str, *args: Any) -> list[int]:
        """The handles that a call lists."""
        count = c_uint32()
        self.call(name, *args, ctypes.byref(count), None)
        found = (c_void_p * count.value)()
        self.call(name, *args, ctypes.byref(count), found)
        return [handle or 0 for handle in found]

    def list(self, name: str, handle: int, kind: type[ctypes.Structure]) -> list[Any]:
        """The structures that a call lists."""
        count = c_uint32()
        self.call(name, handle, ctypes.byref(count), None)
        found = (kind * count.value)()
        for item in found:
            item.stype = STRUCTURES[kind]
        self.call(name, handle, ctypes.byref(count), found)
        return list(found)
