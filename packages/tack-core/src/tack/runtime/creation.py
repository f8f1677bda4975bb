"""Functions that make arrays and copy between them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.dtypes import DType, ElementType, as_dtype, as_element_type, f32, i32, integer_dtype_of, u64
from tack.runtime.array import Array, new_array
from tack.runtime.backend import Backend
from tack.runtime.convert import convert_array, dtype_of, element_shape, is_masked
from tack.runtime.dispatch import resolve_backend
from tack.runtime.graph import recording
from tack.runtime.interop import from_dlpack, is_importable, share_numpy
from tack.runtime.shape import parse_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "arange",
    "asarray",
    "concat",
    "copyto",
    "empty",
    "empty_like",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

_CHUNK = 1 << 16  # elements computed at a time


def empty(shape: object, dtype: object = f32, *, device: object = None, shareable: bool = False) -> Array:
    """A new array with unspecified contents.

    ``shape`` is an int or a tuple of ints; ``()`` is a 0-d array. ``dtype`` may be a vector or matrix type:
    ``tack.empty(n, tack.vec3)`` has n elements of three components. ``device`` is the default device
    unless given. ``shareable=True`` takes memory that `Array.share` can give to others.

    Raises:
        TypeError: the shape holds something else than ints, or the device lacks the dtype.
        ValueError: a negative extent, more than 64 dimensions, or more than 2**63 bytes.
        MemoryError: with the size asked and the size free.
        RuntimeError: ``shareable``, and the device has no such memory.
    """
    kind = as_element_type(dtype)
    return new_array(resolve_backend(device), kind, parse_shape(shape), shareable=shareable)


def zeros(shape: object, dtype: object = f32, *, device: object = None) -> Array:
    """A new array of zeros. Raises as `empty` does."""
    return _zeroed(empty(shape, dtype, device=device))


def _zeroed(out: Array) -> Array:
    """A new array, filled with zeros unless its memory starts so."""
    if not out._buffer.starts_zeroed:
        out.fill(0)
    return out


def ones(shape: object, dtype: object = f32, *, device: object = None) -> Array:
    """A new array of ones. Raises as `empty` does."""
    return full(shape, 1, dtype, device=device)


def full(shape: object, value: object, dtype: object = f32, *, device: object = None) -> Array:
    """A new array with every element set to ``value``, as `Array.fill` takes it.

    Raises as `empty` and `Array.fill` do.
    """
    out = empty(shape, dtype, device=device)
    out.fill(value)
    return out


def empty_like(a: Any, dtype: object = None, *, shape: object = None, device: object = None) -> Array:
    """A new array with the shape and dtype of ``a`` (an `Array` or NumPy array) unless they are given.

    It is on the device of ``a``, or on the default device for a NumPy array. Raises as `empty` does.
    """
    if not isinstance(a, Array | np.ndarray):
        raise TypeError(f"expected an Array or a NumPy array, not {type(a).__name__}")
    backend = a._backend if isinstance(a, Array) and device is None else resolve_backend(device)
    kind: ElementType
    if dtype is not None:
        kind = as_element_type(dtype)
    else:
        kind = a.dtype if isinstance(a, Array) else dtype_of(a, "the array")
    return new_array(backend, kind, a.shape if shape is None else parse_shape(shape))


def zeros_like(a: Any, dtype: object = None, *, shape: object = None, device: object = None) -> Array:
    """A new array of zeros, with shape and dtype as `empty_like`."""
    return _zeroed(empty_like(a, dtype, shape=shape, device=device))


def ones_like(a: Any, dtype: object = None, *, shape: object = None, device: object = None) -> Array:
    """A new array of ones, with shape and dtype as `empty_like`."""
    return full_like(a, 1, dtype, shape=shape, device=device)


def full_like(
    a: Any, value: object, dtype: object = None, *, shape: object = None, device: object = None
) -> Array:
    """A new array filled with ``value``, with shape and dtype as `empty_like`."""
    out = empty_like(a, dtype, shape=shape, device=device)
    out.fill(value)
    return out


def arange(
    start: object, stop: object = None, step: object = 1, dtype: object = None, *, device: object = None
) -> Array:
    """``start``, ``start + step``, … below ``stop`` (above it for a negative step), 1-D.

    With one limit that is ``stop``, and ``start`` is 0. ints give i32, floats f32, unless ``dtype`` says
    otherwise. Element i is ``start + i * step``, exact for ints and in double precision for floats.

    Raises:
        TypeError: a limit is not a real number.
        ValueError: the step is zero, or a limit is infinite or NaN.
        OverflowError: the dtype does not hold the first or the last element.
    """
    if stop is None:
        start, stop = 0, start
    limits = [_number(value) for value in (start, stop, step)]
    backend = resolve_backend(device)
    if limits[2] == 0:
        raise ValueError("the step of arange must not be zero")
    if all(isinstance(value, int) for value in limits):
        return _int_range(range(*limits), i32 if dtype is None else as_dtype(dtype), backend)  # type: ignore[arg-type]
    first, last, by = (float(value) for value in limits)
    if not all(math.isfinite(value) for value in (first, last, by)):
        raise ValueError(f"the limits of arange must be finite: {first}, {last}, {by}")
    count = (last - first) / by
    if math.isinf(count):
        raise ValueError(f"arange({first}, {last}, {by}) has too many elements")
    out = new_array(backend, f32 if dtype is None else as_dtype(dtype), (max(0, math.ceil(count)),))
    _generate(out, lambda lo, hi: first + np.arange(lo, hi) * by)
    return out


def _int_range(values: range, dtype: DType, backend: Backend) -> Array:
    if not values:
        return new_array(backend, dtype, (0,))
    for value in (values[0], values[-1]):
        fits = dtype.holds(value) if dtype.is_integer else integer_dtype_of(value) is not None
        if not fits:
            raise OverflowError(f"arange reaches {value}, which {dtype} does not hold; pass a wider dtype")
    # Two's complement makes u64 arithmetic exact for both kinds; the sign matters only in the end.
    word = np.uint64 if max(values[0], values[-1]) >= 1 << 63 else np.int64
    first, step = np.uint64(values.start % (1 << 64)), np.uint64(values.step % (1 << 64))

    def block(lo: int, hi: int) -> NDArray[Any]:
        return (first + np.arange(lo, hi, dtype=np.uint64) * step).view(word)

    out = new_array(backend, dtype, ((values[-1] - values[0]) // values.step + 1,))
    _generate(out, block)
    return out


def linspace(
    start: object,
    stop: object,
    num: object = 50,
    dtype: object = f32,
    *,
    endpoint: bool = True,
    device: object = None,
) -> Array:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, which is left out if not ``endpoint``.

    They are computed in double precision.

    Raises:
        TypeError: a limit is not a real number, or ``num`` not an int.
        ValueError: ``num`` is negative.
    """
    first, last = float(_number(start)), float(_number(stop))
    (count,) = parse_shape(num)
    if count < 0:
        raise ValueError(f"linspace cannot make {count} numbers")
    out = new_array(resolve_backend(device), as_dtype(dtype), (count,))
    gaps = count - 1 if endpoint else count
    step = (last - first) / gaps if gaps > 0 else 0.0

    def block(lo: int, hi: int) -> NDArray[Any]:
        values = first + np.arange(lo, hi) * step
        if endpoint and count > 1 and hi == count:
            values[-1] = last
        return values

    _generate(out, block)
    return out


def _number(value: object) -> int | float:
    """A real number as Python's int or float."""
    if getattr(value, "ndim", None) == 0:
        value = value[()]  # type: ignore[index]
    if isinstance(value, float | np.floating):
        return float(value)
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"expected a real number, not {type(value).__name__}") from None


def _generate(out: Array, block: Callable[[int, int], NDArray[Any]]) -> None:
    """Fill a 1-D array with ``block(lo, hi)``, a part at a time."""
    for lo in range(0, out.size, _CHUNK):
        values = convert_array(block(lo, min(lo + _CHUNK, out.size)), out.scalar)
        out._buffer.write(out._offset + lo * out.itemsize, values)


def asarray(obj: Any, dtype: object = None, *, device: object = None, copy: bool | None = None) -> Array:
    """``obj`` as an array: an `Array`, a NumPy array, an object with ``__dlpack__``, a number or a sequence.

    The dtype is the one NumPy gives the object, unless told. A vector or matrix type takes the last axes of
    the object as the components: one of shape (n, 3) becomes n elements of ``tack.vec3``. In the same way an
    `Array` of vectors becomes one of scalars with more axes. ``copy=None`` shares memory where the
    device can address it and neither dtype nor strides need a copy, ``copy=True`` never shares, and
    ``copy=False`` always does. An `Array` or DLPack object stays on its device unless told.

    Raises:
        TypeError: the elements have no Tack dtype.
        ValueError: ``copy=False``, and a copy is needed; a ragged sequence; or the last axes are not
            those of the vector type.
    """
    kind = None if dtype is None else as_element_type(dtype)
    if not isinstance(obj, Array | np.ndarray | np.generic) and is_importable(obj):
        obj = from_dlpack(obj)
    if isinstance(obj, Array):
        return _asarray_device(obj, kind, device, copy)
    if is_masked(obj):
        raise TypeError("Tack does not see the mask of a masked array; pass x.filled(value)")
    values = np.asarray(obj)
    if kind is not None and kind.scalar.is_integer and values.dtype == np.float64 and values is not obj:
        values = _exact_integers(obj, values)
    backend = resolve_backend(device)
    target = kind or dtype_of(values, "the object")
    shape = element_shape(values.shape, target, "the object")
    # An array that NumPy has just made is nobody's: there is nothing to share.
    shareable = (
        backend.wraps_host_memory
        and (values is obj or not values.flags.owndata)
        and values.flags.c_contiguous
        and values.dtype == target.scalar.numpy
    )
    if shareable and not copy:
        return share_numpy(values, backend, dtype=target)
    if copy is False:
        raise ValueError(
            f"copy=False, but {type(obj).__name__} to {target} on {backend.label} needs a copy: only a "
            f"C-contiguous array in host memory with the same dtype can be shared"
        )
    out = new_array(backend, target, shape)
    _write(out, values)
    return out


def _exact_integers(obj: Any, values: NDArray[Any]) -> NDArray[Any]:
    """The low 64 bits of integers that NumPy made floats of, because none of its types holds them all."""
    exact = np.asarray(obj, object)
    if not all(isinstance(value, int | np.integer) for value in exact.flat):
        return values
    return np.asarray(np.frompyfunc(u64.wrap, 1, 1)(exact)).astype(np.uint64)


def _asarray_device(array: Array, dtype: ElementType | None, device: object, copy: bool | None) -> Array:
    backend = array._backend if device is None else resolve_backend(device)
    target = dtype or array.dtype
    element_shape(array.host_shape, target, "the array")  # before anything is copied
    same = backend is array._backend and target.scalar is array.scalar
    if copy is False and not same:
        raise ValueError(f"copy=False, but {array.dtype} on {array._backend.label} has to be converted")
    found = array
    if same:
        found = array.copy() if copy else array
    elif target.scalar is not array.scalar:
        found = array.astype(target.scalar)
    if target is not found.dtype:
        found = found.view_as(target)
    return found if device is None else found.to(device)


def concat(arrays: Sequence[Any]) -> Array:
    """The arrays joined along the first axis, on the device of the first.

    Raises:
        ValueError: there are none, their other extents or devices differ, or one is 0-d.
        TypeError: their dtypes differ.
    """
    parts = [asarray(a) for a in arrays]
    if not parts:
        raise ValueError("concat needs at least one array")
    first = parts[0]
    for i, part in enumerate(parts):
        if part.dtype is not first.dtype:
            raise TypeError(
                f"concat needs arrays of one dtype: the first is {first.dtype}, "
                f"number {i + 1} is {part.dtype}; convert with tack.asarray(x, dtype=...)"
            )
        if part.ndim == 0 or part.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"concat joins along the first axis: shapes {first.shape} and {part.shape} do not fit"
            )
        if part._backend.memory_domain != first._backend.memory_domain:
            raise ValueError(
                f"concat needs arrays on one device: the first is on {first._backend.label}, "
                f"number {i + 1} on {part._backend.label}; move it with .to(device)"
            )
    out = new_array(first._backend, first.dtype, (sum(len(part) for part in parts), *first.shape[1:]))
    at = 0
    for part in parts:
        out._buffer.copy(at, part._buffer, part._offset, part.nbytes)
        at += part.nbytes
    return out


def copyto(dst: Any, src: Any) -> None:
    """Copy the elements of ``src`` to ``dst``, converting the dtype as a store in a kernel does.

    Each is an `Array`, on any device, or a NumPy array. They may overlap. An array of vectors or matrices
    counts as one of scalars whose last axes are the components.

    Raises:
        TypeError: one is something else, or has elements that Tack does not know.
        ValueError: the shapes differ, or ``dst`` is read-only.
    """
    for name, value in (("dst", dst), ("src", src)):
        if not isinstance(value, Array | np.ndarray):
            raise TypeError(
                f"copyto: {name} is an Array or a NumPy array, not {type(value).__name__}"
                + ("; use tack.asarray(src), or dst.fill(value) for one number" if name == "src" else "")
            )
    to, of = (a.host_shape if isinstance(a, Array) else a.shape for a in (dst, src))
    if to != of:
        note = next((a.dtype for a in (dst, src) if isinstance(a, Array) and a.components), None)
        hint = "" if note is None else f"; the last axes of an array of {note} are its components"
        raise ValueError(f"copyto: the shapes differ: dst {to}, src {of}{hint}")
    if isinstance(dst, np.ndarray):
        if not dst.flags.writeable:
            raise ValueError("copyto: the NumPy array dst is read-only")
        if isinstance(src, Array) and dst.dtype == src.scalar.numpy and dst.flags.c_contiguous:
            src._buffer.read(src._offset, dst)
            return
        values = src.host_values() if isinstance(src, Array) else src
        native = as_dtype(dst.dtype.newbyteorder("="))
        dst[...] = convert_array(values, native, "copyto: src")
        return
    dst.check_writable("copy to")
    if (
        isinstance(src, Array)
        and src.scalar is dst.scalar
        and (src._backend.memory_domain == dst._backend.memory_domain or dst._buffer.copies_from(src._buffer))
    ):
        graph = recording()
        if graph is not None:
            graph.record_copy(dst, src)
        else:
            dst._buffer.copy(dst._offset, src._buffer, src._offset, src.nbytes)
        return
    _write(dst, src.host_values() if isinstance(src, Array) else src)


def _write(dst: Array, values: NDArray[Any]) -> None:
    """Store NumPy values of the shape that ``dst`` has in NumPy, converted."""
    converted = convert_array(values, dst.scalar, "the source")
    view = dst.host_view()
    if view is not None:
        view[...] = converted  # any strides; NumPy minds overlaps
    else:
        dst._buffer.write(dst._offset, np.ascontiguousarray(converted))
