"""Values that surfaces and limits have, in the dtype of the volume, so that comparisons are exact."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tack.dtypes import DType

__all__ = ["as_levels", "greatest_until", "least_from"]


def as_levels(function: str, values: Any) -> list[float]:
    """One value or a sequence of them as a list: floats, or an int that no float is equal to.

    Raises:
        TypeError: they are not numbers.
        ValueError: one is NaN.
    """
    if type(values) is float and values == values:
        return [values]
    try:
        levels = [_number(v) for v in values] if np.ndim(values) else [_number(values)]
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{function}: values is a number or a sequence of numbers: {error}") from None
    if any(math.isnan(level) for level in levels):
        raise ValueError(f"{function}: a value is NaN, which no surface has")
    return levels


def _number(value: Any) -> float:
    number = float(value)
    exact = value.item() if isinstance(value, np.integer) else value
    return exact if isinstance(exact, int) and exact != number else number


@lru_cache(maxsize=64)
def least_from(level: float, dtype: DType) -> float | None:
    """The least number of ``dtype`` that is at least ``level``, or None."""
    if dtype.is_float:
        return _nearest(level, dtype, up=True)
    if level > dtype.max:
        return None
    return dtype.min if level <= dtype.min else math.ceil(level)


def greatest_until(level: float, dtype: DType) -> float | None:
    """The greatest number of ``dtype`` that is at most ``level``, or None."""
    if dtype.is_float:
        return _nearest(level, dtype, up=False)
    if level < dtype.min:
        return None
    return dtype.max if level >= dtype.max else math.floor(level)


def _nearest(level: float, dtype: DType, *, up: bool) -> float:
    with np.errstate(over="ignore"):
        number = dtype.numpy.type(level)
    # As Python's floats: NumPy would round the level to the dtype first.
    if float(number) < level if up else float(number) > level:
        number = np.nextafter(number, dtype.numpy.type(math.inf if up else -math.inf))
    return float(number)
