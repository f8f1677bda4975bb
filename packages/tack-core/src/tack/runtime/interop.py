"""Memory of other libraries as arrays, and arrays as memory for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tack.dtypes import ElementType, as_element_type
from tack.runtime.array import Array
from tack.runtime.backend import Backend
from tack.runtime.convert import dtype_of, is_element, is_masked
from tack.runtime.device import as_device
from tack.runtime.dispatch import default_backend, device, resolve_backend
from tack.runtime.shape import check_shape, parse_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "array_from_ptr",
    "as_argument",
    "backend_of",
    "dlpack_device",
    "export_dlpack",
    "from_dlpack",
    "is_importable",
    "memory_space",
    "share_numpy",
]


def as_argument(obj: object, backend: Backend, what: str = "the array") -> Array | None:
    """``obj`` as an array for a launch on ``backend``, without a copy; None if it is no array.

    Takes an `Array`, a NumPy array and objects that `is_importable` accepts. ``what`` names it in messages.

    Raises:
        TypeError: the element type is not one of Tack's.
        ValueError: it is not C-contiguous, or the backend cannot address its memory.
    """
    if isinstance(obj, np.ndarray):
        dtype_of(obj, what)
        if not backend.wraps_host_memory:
            raise ValueError(
                f"{what} is a NumPy array, which {backend.label} cannot address; "
                f"use tack.asarray(x, device=...)"
            )
        return share_numpy(obj, backend, what)
    if isinstance(obj, Array):
        return obj
    if is_importable(obj):
        if not hasattr(type(obj), "__dlpack__") and "cuda" not in backend.device_memory_spaces:
            raise ValueError(f"{what} is in CUDA memory, which {backend.label} cannot address")
        array = _import(obj, what)
        if array._backend.memory_domain != backend.memory_domain:
            raise ValueError(
                f"{what} is on {array._backend.label}, which {backend.label} cannot address; "
                f"use tack.from_dlpack(x, device=...)"
            )
        return array
    return None


def is_importable(obj: object) -> bool:
    """Whether it is of another library that shares memory: by DLPack, or as CUDA's libraries do."""
    kind = type(obj)
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__")


def share_numpy(
    values: NDArray[Any], backend: Backend, what: str = "the array", dtype: ElementType | None = None
) -> Array:
    """A NumPy array's memory as an array, read-only if the NumPy array is.

    ``dtype`` may group the last axes to vectors or matrices of the same scalars. Raises as `as_argument`
    does.
    """
    scalar = dtype_of(values, what)
    flags = values.flags
    if not flags.c_contiguous:
        raise ValueError(
            f"{what} has shape {values.shape} and strides {values.strides}, but must be C-contiguous; "
            f"pass np.ascontiguousarray(x)"
        )
    if is_masked(values):
        raise TypeError(f"{what} is a masked array, and Tack does not see its mask; pass x.filled(value)")
    buffer = backend.wrap_ptr(values, scalar, values.shape)
    array = Array(backend, buffer, scalar, values.shape, writable=flags.writeable)
    return array if dtype is None else array.view_as(dtype)


def array_from_ptr(
    ptr: Any,
    dtype: object,
    shape: object,
    *,
    device: object = None,
    writable: bool = False,
    owner: object = None,
) -> Array:
    """Foreign memory as an array of ``shape`` and ``dtype``, without a copy.

    The caller guarantees that the memory is that large, C-contiguous, and lives as long as the array
    and its views do; ``owner`` is kept alive that long. On the CPU ``ptr`` is an address or a
    C-contiguous NumPy array, on Metal an ``MTLBuffer``, on other devices a device address. ``device`` is the
    default device unless given.

    Raises:
        TypeError: ``ptr`` is not an address, or ``dtype`` or ``shape`` is not one.
        ValueError: the pointer is null or not in the device's memory; the NumPy array is strided or too
            small, or read-only while ``writable`` is set; the shape is negative or too large.
    """
    backend = resolve_backend(device)
    kind, extents = as_element_type(dtype), parse_shape(shape)
    backend.check_dtype(kind)
    check_shape(kind, extents)
    if writable and isinstance(ptr, np.ndarray) and not ptr.flags.writeable:
        raise ValueError("the NumPy array is read-only; leave out writable=True")
    if backend.device_memory_spaces:
        space = backend.memory_space(_as_address(ptr))
        if space not in backend.device_memory_spaces:
            raise ValueError(
                f"the pointer is in {space} memory; {backend.label} needs one in: "
                f"{', '.join(backend.device_memory_spaces)}"
            )
    buffer = backend.wrap_ptr(ptr, kind.scalar, extents + kind.components, owner)
    return Array(backend, buffer, kind, extents, writable=bool(writable))


def memory_space(ptr: Any, *, device: object = None) -> str:
    """Which memory a pointer is in, as the device (the default one) sees it: ``"cpu"`` for host memory.

    ``ptr`` is an array, or anything that ``int()`` takes.

    Raises:
        TypeError, ValueError: it is not an address.
    """
    if isinstance(ptr, Array) and device is None:
        return ptr._backend.memory_space(ptr.address)
    if isinstance(ptr, np.ndarray):
        ptr = ptr.ctypes.data
    elif isinstance(ptr, Array):
        ptr = ptr.address
    return resolve_backend(device).memory_space(_as_address(ptr))


def _as_address(ptr: Any) -> int:
    try:
        address = int(ptr)
    except TypeError:
        raise TypeError(f"a pointer is an integer address, not {type(ptr).__name__}") from None
    if not 0 <= address < 1 << 64:
        raise ValueError(f"{address} is not an address")
    return address


def from_dlpack(x: Any, *, device: object = None, copy: bool | None = None) -> Array:
    """An array over the memory of ``x``: an object with ``__dlpack__`` or ``__cuda_array_interface__``, or
    a DLPack capsule.

    It stays on its own device unless ``device`` says otherwise. ``copy=True`` always copies; None
    copies only to change the device. A shared array is read-only if the producer says so.

    Raises:
        TypeError: ``x`` is neither, or its element type is not one of Tack's.
        ValueError: the capsule was consumed before; the memory is null or strided; the device is
            unknown; or ``copy=False`` and a copy is needed.
        RuntimeError: the device cannot start.
        BufferError: the producer refuses.
    """
    array = _import(x, "the tensor")
    if device is not None and resolve_backend(device) is not array._backend:
        target = resolve_backend(device)
        if copy is False:
            raise ValueError(f"moving from {array._backend.label} to {target.label} needs a copy")
        return array.to(as_device(target))
    return array.copy() if copy else array


def _import(x: Any, what: str) -> Array:
    from tack.runtime.dlpack import open_capsule, request_capsule

    if isinstance(x, Array):
        return x.ravel().reshape(x.shape)
    if not hasattr(type(x), "__dlpack__") and hasattr(type(x), "__cuda_array_interface__"):
        from tack.runtime.cuda.interop import import_interface

        return import_interface(x, what)
    capsule = x
    if hasattr(type(x), "__dlpack__"):
        own = _backend_at(*x.__dlpack_device__()) if hasattr(type(x), "__dlpack_device__") else None
        capsule = request_capsule(x, None if own is None else own.dlpack_stream)
    tensor = open_capsule(capsule, what)
    backend = _backend_at(*tensor.device)
    buffer = backend.wrap_dlpack(tensor)
    return Array(backend, buffer, tensor.dtype, tensor.shape, writable=not tensor.read_only)


def _backend_at(kind: int, ordinal: int) -> Backend:
    """The backend for DLPack's device: the default one if that can address its memory."""
    from tack.runtime.dlpack import CPU, DEVICE_TYPES

    name = DEVICE_TYPES.get(int(kind))
    if name is None:
        raise ValueError(f"DLPack device type {kind} is none of Tack's")
    # Others number the memory of the host by what has pinned it.
    backend = device(name if name == DEVICE_TYPES[CPU] or not ordinal else f"{name}:{ordinal}")._backend
    default = default_backend()
    return default if default.memory_domain == backend.memory_domain else backend


def backend_of(obj: Any) -> Backend | None:
    """The backend whose memory ``obj`` is in, None if it is no array that a kernel takes."""
    if isinstance(obj, Array):
        return obj._backend
    if isinstance(obj, np.ndarray):
        # One without dimensions may stand for a number, which every device takes.
        return device("cpu")._backend if obj.ndim and is_element(obj.dtype) else None
    if hasattr(type(obj), "__dlpack_device__"):
        return _backend_at(*obj.__dlpack_device__())
    if hasattr(type(obj), "__cuda_array_interface__"):
        from tack.runtime.cuda import interop

        return interop.backend_of(obj)
    return None


def dlpack_device(backend: Backend) -> tuple[int, int]:
    """DLPack's device type and index of a backend's memory.

    Raises:
        BufferError: DLPack has no number for such devices.
    """
    from tack.runtime.dlpack import DEVICE_TYPES

    for kind, name in DEVICE_TYPES.items():
        if name == backend.name:
            return kind, backend.ordinal
    raise BufferError(f"DLPack knows no devices such as {backend.label}; pass arr.numpy()")


def export_dlpack(
    array: Array,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """See `Array.__dlpack__`. Host memory goes through NumPy, whose deleter outlives the interpreter."""
    view = array.host_view()
    if view is None:
        return _export_from_device(array, stream, max_version, dl_device, copy)
    if stream is not None:
        raise BufferError("CPU arrays have no stream; pass stream=None")
    if dl_device is not None and tuple(dl_device) != dlpack_device(array._backend):
        raise BufferError(
            f"the array is on {array._backend.label}; DLPack device {dl_device} needs arr.to(...)"
        )
    _check_read_only(array, max_version, copy)
    return view.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


def _check_read_only(array: Array, max_version: tuple[int, int] | None, copy: bool | None) -> None:
    versioned = max_version is not None and max_version[0] >= 1
    if not array.writable and not versioned and not copy:
        raise BufferError(
            "a read-only array can be exported only to a consumer that asks for DLPack 1.0 or newer; "
            "export arr.copy() instead"
        )


def _export_from_device(
    array: Array,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """`export_dlpack` of memory that the host cannot address."""
    from tack.runtime.cpu.buffer import Memory
    from tack.runtime.dlpack import CPU, relocate

    backend = array._backend
    own = dlpack_device(backend)
    if dl_device is not None and tuple(dl_device) != own:
        if tuple(dl_device) != (CPU, 0) or copy is False:
            raise BufferError(f"the array is on {backend.label}; DLPack device {dl_device} needs arr.to(...)")
        return array.numpy().__dlpack__(max_version=max_version)
    _check_read_only(array, max_version, copy)
    given = array.copy() if copy else array
    backend.hand_out(given, stream)
    # NumPy describes the memory, which it does not look at.
    memory = Memory(given._buffer, given.address, given.scalar.numpy, given.host_shape, given.writable)
    capsule = np.asarray(memory).__dlpack__(max_version=max_version)
    return relocate(capsule, own, *backend.dlpack_data(given))
