"""`tack.constant`: numbers and tables that kernels read as literals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tack.dtypes import DType, as_dtype

__all__ = ["ConstantFloat", "ConstantInt", "ConstantTable", "constant"]


class ConstantInt(int):
    """An int that kernels read as a literal, of type ``dtype`` if that is set."""

    dtype: DType | None = None


class ConstantFloat(float):
    """A float that kernels read as a literal, of type ``dtype`` if that is set."""

    dtype: DType | None = None


class ConstantTable(tuple[Any, ...]):
    """A table of constants: nested tuples of a regular shape, indexable here and in kernels.

    ``values`` are its numbers in row-major order, ``shape`` its extents.
    """

    dtype: DType | None
    shape: tuple[int, ...]
    values: tuple[int | float, ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        wanted = dtype if dtype is not None else (self.dtype.numpy if self.dtype else None)
        return np.array(self.values, dtype=wanted).reshape(self.shape)


def constant(value: Any, dtype: Any = None) -> Any:
    """A constant for kernels: an int, a float, or (nested) tuples of them of a regular shape.

    On the host it is an ``int``, ``float`` or ``tuple`` like any other. In a kernel a number reads
    as a literal; without ``dtype`` a float literal takes the precision of what it meets. A table
    is indexed ``T[i][j]`` or ``T[i, j]``; an index out of range reads the nearest value.

    Raises:
        TypeError: ``dtype`` is not a dtype, or ``value`` is not a number or such a tuple.
        ValueError: an integer that ``dtype`` cannot hold, or that no type holds; a ragged table.
    """
    want = None if dtype is None else as_dtype(dtype)
    if isinstance(value, (tuple, list)):
        return _table(value, want)
    number = _number(value, want)
    made = ConstantInt(number) if isinstance(number, int) else ConstantFloat(number)
    made.dtype = want
    return made


def _number(value: Any, dtype: DType | None) -> int | float:
    if isinstance(value, (int, np.integer, np.bool_)):
        whole = int(value)
        if dtype is not None and dtype.is_float:
            return float(whole)
        low, high = (dtype.min, dtype.max) if dtype else (-(1 << 63), (1 << 64) - 1)
        if not low <= whole <= high:
            name = dtype or "i64 and u64"
            raise ValueError(f"constant {whole} is outside the range of {name} ({low} to {high})")
        return whole
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if dtype is not None and dtype.is_integer:
            if number.is_integer():
                return _number(int(number), dtype)
            raise ValueError(f"constant {number} is not an integer, so {dtype} cannot hold it")
        if dtype is not None and dtype.bits == 32 and math.isfinite(number):
            with np.errstate(over="ignore"):
                if not np.isfinite(np.float32(number)):
                    raise ValueError(f"constant {number} is outside the range of f32")
        return number
    raise TypeError(f"tack.constant takes an int, a float or tuples of them, not {type(value).__name__}")


def _table(value: Any, dtype: DType | None) -> ConstantTable:
    shape, leaves = _flatten(value)
    numbers = [_number(leaf, dtype) for leaf in leaves]
    if any(isinstance(n, float) for n in numbers):
        numbers = [float(n) for n in numbers]
    table = ConstantTable(_nest(iter(numbers), shape))
    table.dtype, table.shape, table.values = dtype, shape, tuple(numbers)
    return table


def _flatten(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    if not isinstance(value, (tuple, list)):
        return (), [value]
    if not value:
        raise ValueError("tack.constant: an empty tuple has no value to index")
    parts = [_flatten(item) for item in value]
    if any(shape != parts[0][0] for shape, _ in parts):
        raise ValueError("tack.constant: the rows of a table must all have the same shape")
    return (len(value), *parts[0][0]), [leaf for _, leaves in parts for leaf in leaves]


def _nest(numbers: Iterator[int | float], shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(numbers)
    return tuple(_nest(numbers, shape[1:]) for _ in range(shape[0]))
