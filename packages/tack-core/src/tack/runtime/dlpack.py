"""Reading DLPack capsules.

The capsule is checked before it is consumed: one that is refused keeps its memory, and its own
destructor frees that as if nobody had looked.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, Final, NamedTuple

from tack.dtypes import ALL_DTYPES, DType
from tack.runtime.shape import MAX_NDIM

__all__ = ["CPU", "DEVICE_TYPES", "Import", "open_capsule", "relocate", "request_capsule"]

CPU: Final = 1
_CODES: Final = {"i": 0, "u": 1, "f": 2}
_DTYPES: Final = {(_CODES[dtype.kind], dtype.bits): dtype for dtype in ALL_DTYPES}
_CODE_NAMES: Final = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool"}

# DLPack's device types, and which of ours addresses their memory.
DEVICE_TYPES: Final = {
    CPU: "cpu",
    2: "cuda",
    3: "cpu",  # host memory pinned by CUDA
    8: "metal",
    10: "hip",
    11: "cpu",  # host memory pinned by ROCm
    13: "cuda",  # managed
    14: "level_zero",
}

_VERSION: Final = (1, 0)  # the newest that we read
_READ_ONLY: Final = 1  # a flag of versioned tensors


class _Device(ctypes.Structure):
    _fields_: ClassVar = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_: ClassVar = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_: ClassVar = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


# Kept alive here: a capsule stores only a pointer to its name.
_PLAIN: Final = b"dltensor"
_PLAIN_USED: Final = b"used_dltensor"
_VERSIONED: Final = b"dltensor_versioned"
_VERSIONED_USED: Final = b"used_dltensor_versioned"

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes, _get_pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int


class Import(NamedTuple):
    """A tensor taken out of its capsule. Its memory lives as long as ``owner``.

    ``data`` is an address or, on some devices, an object, and the tensor starts ``offset`` bytes into it.
    """

    data: int
    offset: int
    dtype: DType
    shape: tuple[int, ...]
    device: tuple[int, int]
    read_only: bool
    owner: object

    @property
    def address(self) -> int:
        """Of the first element, where ``data`` is an address."""
        return self.data + self.offset


class _Owner:
    """Holds a consumed tensor; gives it back to its producer once, when it is dropped."""

    __slots__ = ("_deleter", "_managed")

    def __init__(self, managed: int, deleter: int | None) -> None:
        self._managed = managed
        self._deleter = _Deleter(deleter) if deleter else None

    def __del__(self) -> None:
        if self._deleter is not None:
            self._deleter(self._managed)


def request_capsule(producer: Any, stream: int | None = None) -> Any:
    """The capsule of an object with ``__dlpack__``, versioned if it can.

    The producer orders what it has queued before what is queued on ``stream`` from now on.
    """
    wanted = {} if stream is None else {"stream": stream}
    try:
        return producer.__dlpack__(max_version=_VERSION, **wanted)
    except TypeError:  # from before versions
        return producer.__dlpack__(**wanted)


def relocate(capsule: Any, device: tuple[int, int], data: int, offset: int) -> Any:
    """A capsule of NumPy's, whose memory is said to be on ``device``, at ``offset`` into ``data``, instead.

    So NumPy's deleter frees it, which unlike one written in Python may run when the interpreter has ended.
    """
    versioned = bool(_is_valid(capsule, _VERSIONED))
    pointer = _get_pointer(capsule, _VERSIONED if versioned else _PLAIN)
    managed = (_ManagedVersioned if versioned else _Managed).from_address(pointer)
    managed.tensor.device.type, managed.tensor.device.id = device
    managed.tensor.data, managed.tensor.byte_offset = data, offset
    return capsule


def open_capsule(capsule: object, what: str = "the tensor") -> Import:
    """Consume a DLPack capsule. ``what`` names the tensor in messages.

    Raises:
        TypeError: it is not a capsule of DLPack's, or its element type is not one of Tack's.
        ValueError: it was consumed before, its memory is null or strided, it is of a newer major version,
            or its device is unknown.
    """
    versioned = bool(_is_valid(capsule, _VERSIONED))
    if not versioned and not _is_valid(capsule, _PLAIN):
        if _is_valid(capsule, _PLAIN_USED) or _is_valid(capsule, _VERSIONED_USED):
            raise ValueError(f"{what}: the DLPack capsule was consumed before; export it again")
        raise TypeError(f"{what}: expected a DLPack capsule, not {type(capsule).__name__}")
    pointer = _get_pointer(capsule, _VERSIONED if versioned else _PLAIN)
    read_only = False
    managed: _Managed | _ManagedVersioned
    if versioned:
        managed = _ManagedVersioned.from_address(pointer)
        if managed.major != _VERSION[0]:
            raise ValueError(f"{what}: DLPack version {managed.major}.{managed.minor} is not supported")
        read_only = bool(managed.flags & _READ_ONLY)
    else:
        managed = _Managed.from_address(pointer)
    tensor = managed.tensor
    dtype = _dtype(tensor.dtype, what)
    shape = _shape(tensor, what)
    if tensor.device.type not in DEVICE_TYPES:
        raise ValueError(f"{what}: DLPack device type {tensor.device.type} is none of Tack's")
    if not tensor.data and 0 not in shape:
        raise ValueError(f"{what}: the DLPack tensor's memory is null")
    _set_name(capsule, _VERSIONED_USED if versioned else _PLAIN_USED)
    return Import(
        tensor.data or 0,
        tensor.byte_offset,
        dtype,
        shape,
        (tensor.device.type, tensor.device.id),
        read_only,
        _Owner(pointer, managed.deleter),
    )


def _dtype(given: _DataType, what: str) -> DType:
    found = _DTYPES.get((given.code, given.bits))
    if found is None or given.lanes != 1:
        name = f"{_CODE_NAMES.get(given.code, f'code {given.code} of ')}{given.bits}"
        lanes = f" with {given.lanes} lanes" if given.lanes != 1 else ""
        accepted = ", ".join(dtype.numpy.name for dtype in ALL_DTYPES)
        remedy = "; x.view(uint8) is accepted" if name == "bool8" else ""
        raise TypeError(f"{what}: DLPack dtype {name}{lanes} has no Tack type; accepted: {accepted}{remedy}")
    return found


def _shape(tensor: _Tensor, what: str) -> tuple[int, ...]:
    """The shape of a C-contiguous tensor."""
    ndim = tensor.ndim
    if not 0 <= ndim <= MAX_NDIM or (ndim and not tensor.shape):
        raise ValueError(f"{what}: a DLPack tensor of {ndim} dimensions is not valid")
    shape: tuple[int, ...] = tuple(tensor.shape[:ndim]) if ndim else ()
    if any(n < 0 for n in shape):
        raise ValueError(f"{what}: a DLPack tensor of shape {shape} is not valid")
    if tensor.strides and ndim and 0 not in shape:
        strides = tuple(tensor.strides[:ndim])
        step = 1
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            if extent != 1 and stride != step:
                raise ValueError(
                    f"{what}: the DLPack tensor of shape {shape} has strides {strides}; "
                    f"make it C-contiguous first, with .contiguous() or numpy.ascontiguousarray"
                )
            step *= extent
    return shape
