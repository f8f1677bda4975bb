"""What the algorithms share: checks of their arguments, blocks, accumulators and operators."""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

import numpy as np

import tack
from tack.dtypes import DType, ElementType, as_dtype, f32, f64, i32, i64, u64
from tack.lang.kernel import Func

__all__ = [
    "BLOCK",
    "accumulator",
    "apart",
    "as_array",
    "block_count",
    "check_op",
    "combiner",
    "identity",
    "index_dtype",
    "prefix",
    "result_array",
    "same_device",
    "shaped_array",
    "target_dtype",
    "written_array",
]

OPS = ("sum", "min", "max")

# Elements that one iteration handles in order. Results of floats depend on it, so it is the same everywhere.
BLOCK = tack.constant(4096)


def block_count(n: int) -> int:
    """How many blocks hold ``n`` elements."""
    return -(-n // int(BLOCK))


def as_array(function: str, name: str, value: object, *, vectors: bool = False) -> tack.Array:
    """An argument as a 1-D array, without a copy where that can be.

    Raises:
        TypeError: it is not an array, or its elements are vectors and ``vectors`` is false.
    """
    array = shaped_array(function, name, value)
    if array.components and not vectors:
        raise TypeError(f"{function}: {name} has elements of {array.dtype}; it takes numbers")
    return array.ravel()


def shaped_array(function: str, name: str, value: object) -> tack.Array:
    """An argument as an array of its shape, without a copy where that can be.

    Raises:
        TypeError: it is not an array, or has a dtype that Tack's arrays do not have.
        ValueError: a DLPack tensor is strided.
    """
    _check_array(function, name, value)
    try:
        return tack.asarray(value)
    except TypeError as error:
        raise TypeError(f"{function}: {name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{function}: {name}: {error}") from None


def written_array(function: str, name: str, value: object, device: tack.Device | None = None) -> tack.Array:
    """An argument that takes a result, as a 1-D array that is never a copy of it.

    Raises:
        TypeError: it is not an array.
        ValueError: it is read-only, or a NumPy array that a device cannot write to.
    """
    _check_array(function, name, value)
    array = value
    if not isinstance(value, tack.Array):
        try:
            array = tack.asarray(value, device=device, copy=False)
        except ValueError:
            raise ValueError(
                f"{function}: {name} cannot be written in place: that takes a C-contiguous array in "
                f"memory of {device or tack.default_device()}; pass a Tack array, as of tack.asarray({name})"
            ) from None
        except TypeError as error:
            raise TypeError(f"{function}: {name}: {error}") from None
    assert isinstance(array, tack.Array)
    try:
        array.check_writable("write to")
    except ValueError as error:
        raise ValueError(f"{function}: {name}: {error}") from None
    return array.ravel()


def _check_array(function: str, name: str, value: object) -> None:
    if not isinstance(value, tack.Array | np.ndarray) and not hasattr(type(value), "__dlpack__"):
        raise TypeError(f"{function}: {name} is an array, not {type(value).__name__}; see tack.asarray")


def prefix(function: str, size: int, n: object) -> int:
    """How many elements to use: ``n``, or all ``size``.

    Raises:
        TypeError: ``n`` is not an integer.
        ValueError: it is negative, or more than there are.
    """
    if n is None:
        return size
    try:
        count = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{function}: n is an integer, not {type(n).__name__}") from None
    if not 0 <= count <= size:
        raise ValueError(f"{function}: n is between 0 and the {size} elements given, not {count}")
    return count


def result_array(
    function: str, out: object, n: int, dtype: ElementType, like: tack.Array, *, name: str = "out"
) -> tack.Array:
    """What takes ``n`` elements of ``dtype`` beside ``like``, 1-D: a new array, or the first of ``out``.

    Raises:
        TypeError: ``out`` is not an array, or has another dtype.
        ValueError: it is too small, read-only, strided, or on another device.
    """
    if out is None:
        return tack.empty(n, dtype, device=like.device)
    found = written_array(function, name, out, like.device)
    if found.dtype is not dtype:
        raise TypeError(f"{function}: {name} is of {found.dtype}; the result is of {dtype}")
    if found.size < n:
        raise ValueError(f"{function}: {name} has {found.size} elements; the result has {n}")
    same_device(function, name, found, like)
    view: tack.Array = found[:n]
    return view


def target_dtype(function: str, dtype: object, out: object, x: tack.Array) -> DType:
    """The dtype of a result: the one that was asked for, or that of ``out``, or that of ``x``.

    Raises:
        TypeError: it is not a dtype of numbers that Tack has.
    """
    if dtype is None and isinstance(out, tack.Array | np.ndarray):
        dtype = out.dtype
    if dtype is None:
        return x.scalar
    try:
        return as_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{function}: {error}") from None


def same_device(function: str, name: str, array: tack.Array, like: tack.Array) -> None:
    """Raise ``ValueError`` unless both arrays are on one device."""
    if array.device != like.device:
        raise ValueError(
            f"{function}: {name} is on {array.device}, the other arrays are on {like.device}; "
            f"move it with .to(device)"
        )


def overlap(a: tack.Array, b: tack.Array) -> bool:
    """Whether two arrays of one device share memory."""
    return a.span[0] < b.span[1] and b.span[0] < a.span[1]


def apart(x: tack.Array, *outs: tack.Array, in_place: bool = False) -> tack.Array:
    """``x``, or a copy of it where writing one of ``outs`` would change what is still to be read.

    With ``in_place``, ``x[i]`` is read before ``out[i]`` is written, so they may be the same elements.
    """
    for out in outs:
        same = in_place and x.span[0] == out.span[0] and x.itemsize == out.itemsize
        if overlap(x, out) and not same:
            return x.copy()
    return x


def check_op(function: str, op: object, ops: tuple[str, ...] = OPS) -> str:
    """Raise ``ValueError`` unless ``op`` names an operation."""
    if not isinstance(op, str) or op not in ops:
        raise ValueError(f"{function}: op is one of {', '.join(map(repr, ops))}, not {op!r}")
    return op


def index_dtype(n: int) -> DType:
    """The dtype of indices of ``n`` elements."""
    return i32 if n <= i32.max else i64


def accumulator(array: tack.Array, op: str) -> DType:
    """The dtype in which ``op`` combines the elements: sums are as wide as the device allows."""
    if op != "sum":
        return array.scalar
    if array.scalar.is_float:
        return f64 if array._backend.supports_f64 else f32
    return i64 if array.scalar.is_signed else u64


def identity(op: str, dtype: DType) -> int | float:
    """What leaves every number as it is."""
    if op == "sum":
        return 0
    if dtype.is_float:
        return math.inf if op == "min" else -math.inf
    return dtype.max if op == "min" else dtype.min


@cache
def combiner(op: str, is_float: bool) -> Func:
    """The device function of ``op``. NaN wins in minimum and maximum, and of equal numbers the first."""
    if op == "sum":
        return _add
    if is_float:
        return _float_min if op == "min" else _float_max
    return _integer_min if op == "min" else _integer_max


@tack.func
def _add(a: Any, b: Any) -> Any:
    return a + b


@tack.func
def _integer_min(a: Any, b: Any) -> Any:
    return min(a, b)


@tack.func
def _integer_max(a: Any, b: Any) -> Any:
    return max(a, b)


@tack.func
def _float_min(a: Any, b: Any) -> Any:
    return b if b < a or b != b else a


@tack.func
def _float_max(a: Any, b: Any) -> Any:
    return b if b > a or b != b else a
