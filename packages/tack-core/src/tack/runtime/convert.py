"""Conversions between dtypes on the host, by the rules that kernels follow when they store.

Integers keep their low bits, floats become integers by truncation with saturation and NaN gives 0,
and an integer becomes a float with one rounding.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tack.dtypes import ALL_DTYPES, DType, ElementType, integer_dtype_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "accepted_dtypes",
    "convert_array",
    "convert_element",
    "convert_scalar",
    "dtype_of",
    "element_shape",
    "is_element",
    "is_integer",
]

_BLOCK = 1 << 16  # elements converted at a time, so that the temporaries stay in cache
_BY_NUMPY = {dtype.numpy: dtype for dtype in ALL_DTYPES}


def accepted_dtypes() -> str:
    """The NumPy names of the ten dtypes, for messages."""
    return ", ".join(dtype.numpy.name for dtype in ALL_DTYPES)


def is_integer(value: object) -> bool:
    """Whether ``value`` counts as an integer in shapes, indices and addresses; bool does not."""
    return type(value) is int or (
        hasattr(value, "__index__") and not isinstance(value, bool | np.bool_ | np.ndarray)
    )


def is_element(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this NumPy dtype are arrays of Tack's."""
    return dtype in _BY_NUMPY


def is_masked(values: object) -> bool:
    """Whether it is one of NumPy's masked arrays; ``np.ma``, slow to import, is not for plain arrays."""
    return (
        isinstance(values, np.ndarray)
        and type(values) is not np.ndarray
        and isinstance(values, np.ma.MaskedArray)
    )


def dtype_of(values: NDArray[Any], what: str) -> DType:
    """The Tack dtype with the layout of ``values``' elements.

    Raises:
        TypeError: there is none. ``what`` names the array in the message.
    """
    found = _BY_NUMPY.get(values.dtype)
    if found is not None:
        return found
    native = values.dtype.newbyteorder("=")
    if native in _BY_NUMPY:
        raise TypeError(
            f"{what} has dtype {values.dtype.str}, which is not in this machine's byte order; "
            f"convert it with .astype({native.name!r})"
        )
    raise TypeError(
        f"{what} has dtype {values.dtype}, which Tack does not have; "
        f"convert it with .astype to one of: {accepted_dtypes()}"
    )


def element_shape(shape: tuple[int, ...], dtype: ElementType, what: str = "the array") -> tuple[int, ...]:
    """The shape of an array of ``dtype`` whose NumPy form has ``shape``, with the components' axes last.

    Raises:
        ValueError: the last axes are not those of an element. ``what`` names the array in the message.
    """
    rank = len(shape) - len(dtype.components)
    if rank < 0 or shape[rank:] != dtype.components:
        raise ValueError(
            f"{what} has shape {shape}; as an array of {dtype} its last axes must be {dtype.components}, "
            f"so reshape it to (..., {', '.join(map(str, dtype.components))})"
        )
    return shape[:rank]


def convert_array(values: NDArray[Any], dtype: DType, what: str = "the array") -> NDArray[Any]:
    """``values`` as an array of ``dtype``; ``values`` itself if it is one already.

    Sources may also be bool (0 and 1), float16 and of either byte order.

    Raises:
        TypeError: the elements are not numbers. ``what`` names the array in the message.
    """
    if values.dtype == dtype.numpy:
        return values
    if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
        raise TypeError(f"{what} has dtype {values.dtype}; accepted: {accepted_dtypes()}")
    if values.dtype.kind == "f" and dtype.is_integer:
        return _saturate(values, dtype)
    with np.errstate(over="ignore"):
        return values.astype(dtype.numpy)


def convert_scalar(value: object, dtype: DType) -> np.generic:
    """The number ``value`` as a NumPy scalar of ``dtype``.

    Raises:
        TypeError: it is not a number, or an integer that neither i64 nor u64 holds.
    """
    if getattr(value, "ndim", None) == 0:  # a 0-d array stands for its element
        value = value[()]  # type: ignore[index]
    if isinstance(value, float | np.floating):
        if dtype.is_integer:
            return _scalar(dtype.saturate(float(value)), dtype)
        with np.errstate(over="ignore"):
            return _scalar(float(value), dtype)
    try:
        number = int(value) if isinstance(value, np.bool_) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"expected a number for dtype {dtype}, not {type(value).__name__}") from None
    if integer_dtype_of(number) is None:
        raise TypeError(f"the integer {number} does not fit in 64 bits")
    return _scalar(number, dtype)


def convert_element(value: object, dtype: ElementType) -> NDArray[Any]:
    """One element of ``dtype`` as a NumPy array of its shape; a number stands for every component.

    Raises:
        TypeError: ``value`` holds something else than numbers, or an integer past 64 bits.
        ValueError: it has another shape.
    """
    if not dtype.components:
        return np.asarray(convert_scalar(value, dtype.scalar))
    # As objects the numbers of a sequence stay as exact as they are.
    given = value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    if given.shape not in ((), dtype.components):
        raise ValueError(
            f"an element of {dtype} has shape {dtype.components}, not {given.shape}; "
            f"pass that, or one number for every component"
        )
    if given.dtype.hasobject:
        numbers = [convert_scalar(item, dtype.scalar) for item in given.flat]
        parts = np.array(numbers, dtype.scalar.numpy).reshape(given.shape)
    else:
        parts = convert_array(given, dtype.scalar, "the element")
    return np.array(np.broadcast_to(parts, dtype.components))


def _scalar(number: Any, dtype: DType) -> np.generic:
    """``number`` as C converts it; NumPy refuses Python ints out of range, but not its own scalars."""
    return cast(np.generic, np.asarray(number).astype(dtype.numpy)[()])


def _saturate(values: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Floats as integers: truncated, saturated, NaN as 0. NumPy's own cast is undefined outside."""
    out = np.empty(values.shape, dtype.numpy)
    flat_in, flat_out = values.reshape(-1), out.reshape(-1)
    # Both limits are exact in f32 and f64, or round to values that truncate to the limit itself.
    below, above = float(dtype.min - 1), float(dtype.max + 1)
    for start in range(0, flat_in.size, _BLOCK):
        part = flat_in[start : start + _BLOCK]
        if part.dtype.itemsize < 4:  # float16 cannot hold the limits
            part = part.astype(np.float32)
        target = flat_out[start : start + _BLOCK]
        with np.errstate(invalid="ignore"):
            target[:] = np.where((part > below) & (part < above), part, 0).astype(dtype.numpy)
            target[part >= above] = dtype.max
            target[part <= below] = dtype.min
    return out
