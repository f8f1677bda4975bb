"""Reductions of whole arrays: what they mean, and how NumPy computes them for devices that do not.

Sums of f32 accumulate in f64. Sums of integers wrap in 64 bits and are Python ints. NaN wins in
minimum and maximum, of which the first prefers -0.0 and the second 0.0. Means are exact sums for integers,
rounded once by the division. A reduction of vectors is one of each component, by the same rules.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.dtypes import f64, i64, u64

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.array import Array
    from tack.runtime.backend import Number

__all__ = ["combine_sums", "exact_sum", "extreme", "reduce", "reduce_host"]

_PART = 1 << 20  # elements whose sum of 32-bit halves fits in 64 bits


def reduce(array: Array, op: str, deterministic: bool | None) -> Any:
    """``"sum"``, ``"mean"``, ``"min"`` or ``"max"`` of ``array``, on its device where that can.

    It is a Python number, or for vectors and matrices a NumPy array of one element's shape.

    Raises:
        ValueError: minimum or maximum of no elements.
    """
    if array.components:
        return _reduce_components(array, op)
    if array.size == 0:
        return _of_nothing(array, op)
    backend = array._backend
    if backend.supports_device_reductions:
        return backend.reduce_array(array, op, deterministic is not False)
    return reduce_host(array.host_values().reshape(-1), op)


def _of_nothing(array: Array, op: str) -> Number:
    if op in ("min", "max"):
        raise ValueError(f"{op}() of an array with no elements, shape {array.shape}")
    if op == "mean":
        return math.nan
    return 0.0 if array.scalar.is_float else 0


def _reduce_components(array: Array, op: str) -> NDArray[Any]:
    """`reduce` of vectors or matrices, in NumPy: a column of components is not contiguous."""
    scalar = array.scalar
    wide = f64 if scalar.is_float or op == "mean" else i64 if scalar.is_signed else u64
    dtype = (scalar if op in ("min", "max") else wide).numpy
    if array.size == 0:
        return np.full(array.components, _of_nothing(array, op), dtype)
    columns = array.host_values().reshape(array.size, -1).T
    return np.array([reduce_host(column, op) for column in columns], dtype).reshape(array.components)


def reduce_host(values: NDArray[Any], op: str) -> Number:
    """`reduce` of the 1-D, non-empty ``values`` in NumPy."""
    if op in ("min", "max"):
        return extreme(values, op)
    if values.dtype.kind == "f":
        total = combine_sums(values)
        return total / values.size if op == "mean" else total
    exact = exact_sum(values)
    if op == "mean":
        return exact / values.size
    return (i64 if values.dtype.kind == "i" else u64).wrap(exact)


def combine_sums(*parts: NDArray[Any]) -> float:
    """The sum of floats, pairwise in double precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(sum(np.sum(part, dtype=np.float64) for part in parts))


def exact_sum(values: NDArray[Any]) -> int:
    """The sum of integers, which 64 bits may not hold: the halves are summed apart."""
    total = 0
    for start in range(0, values.size, _PART):
        part = values[start : start + _PART]
        if part.itemsize < 8:
            total += int(np.sum(part, dtype=np.int64))
        else:
            total += (int(np.sum(part >> 32)) << 32) + int(np.sum(part & 0xFFFFFFFF))
    return total


def extreme(values: NDArray[Any], op: str) -> Number:
    """``"min"`` or ``"max"`` of the 1-D, non-empty ``values``."""
    found = (np.min if op == "min" else np.max)(values).item()
    if found == 0.0 and values.dtype.kind == "f":
        negative = np.signbit(values[values == 0.0])
        return -0.0 if (negative.any() if op == "min" else negative.all()) else 0.0
    return found  # type: ignore[no-any-return]
