"""Moving elements by index, and finding places in sorted arrays."""

from __future__ import annotations

from typing import Any

import tack
from tack.algorithms.common import (
    apart,
    as_array,
    index_dtype,
    prefix,
    result_array,
    same_device,
    written_array,
)
from tack.dtypes import i64

__all__ = ["copy", "fill", "gather", "scatter", "searchsorted"]


def gather(x: Any, indices: Any, *, n: int | None = None, out: Any = None) -> tack.Array:
    """``out[i] = x[indices[i]]``, 1-D, for the first ``n`` indices.

    Args:
        x: numbers, vectors or matrices.
        indices: integers; negative ones count from the end. One that is out of range gives zero.
        out: takes the result; may be, or overlap, any of the arrays.
    """
    source = as_array("gather", "x", x, vectors=True)
    picks = _indices("gather", indices, source)
    count = prefix("gather", picks.size, n)
    result = result_array("gather", out, count, source.dtype, source)
    source, picks = apart(source, result), apart(picks[:count], result, in_place=True)
    _gather(source, picks, result, count, source.size, _turn(picks, source))
    return result


def scatter(out: tack.Array, indices: Any, values: Any, *, n: int | None = None) -> None:
    """``out[indices[i]] = values[i]`` for the first ``n`` indices.

    Args:
        indices: integers; negative ones count from the end. Values whose index is out of range are left out,
            and of several with the same index any one is stored.
        out: takes the values; a Tack array, or a NumPy array in memory of the default device.
        values: as many numbers, vectors or matrices as there are indices, converted to the dtype of ``out``.
    """
    target = written_array("scatter", "out", out)
    picks = _indices("scatter", indices, target)
    source = as_array("scatter", "values", values, vectors=True)
    if source.size != picks.size:
        raise ValueError(f"scatter: there are {picks.size} indices and {source.size} values")
    if source.components != target.components:
        raise TypeError(f"scatter: values of {source.dtype} do not fit out, of {target.dtype}")
    same_device("scatter", "values", source, target)
    count = prefix("scatter", picks.size, n)
    picks, source = apart(picks, target), apart(source, target)
    _scatter(target, picks, source, count, target.size, _turn(picks, target))


def searchsorted(x: Any, values: Any, *, side: str = "left", n: int | None = None) -> tack.Array:
    """Where each of ``values`` would go into the first ``n`` elements of ``x``, which are sorted.

    Args:
        values: of the dtype of ``x``; NaN goes behind all numbers, as in `sort`.
        side: ``"left"`` before equal elements, ``"right"`` behind them.

    Returns:
        Indices from 0 to n, 1-D: i32, or i64 for more than 2^31 - 1 elements.
    """
    if not isinstance(side, str) or side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    source = as_array("searchsorted", "x", x)
    wanted = as_array("searchsorted", "values", values)
    if wanted.dtype is not source.dtype:
        raise TypeError(
            f"searchsorted: x is of {source.dtype}, values are of {wanted.dtype}; see tack.asarray"
        )
    same_device("searchsorted", "values", wanted, source)
    count = prefix("searchsorted", source.size, n)
    found = tack.empty(wanted.size, index_dtype(count), device=source.device)
    _search(source, wanted, found, count, wanted.size, int(side == "right"))
    return found


def copy(x: Any, *, n: int | None = None, out: Any = None) -> tack.Array:
    """The first ``n`` elements of ``x``, 1-D, in a new array or in ``out``, which may overlap ``x``."""
    source = as_array("copy", "x", x, vectors=True)
    count = prefix("copy", source.size, n)
    result = result_array("copy", out, count, source.dtype, source)
    tack.copyto(result, source[:count])
    return result


def fill(x: Any, value: object, *, n: int | None = None) -> None:
    """Set the first ``n`` elements of ``x`` to ``value``, as `tack.Array.fill` does.

    ``x`` is a Tack array, or a NumPy array in memory of the default device.
    """
    target = written_array("fill", "x", x)
    target[: prefix("fill", target.size, n)].fill(value)


def _indices(function: str, indices: Any, like: tack.Array) -> tack.Array:
    found = as_array(function, "indices", indices)
    if found.scalar.is_float:
        raise TypeError(f"{function}: indices are integers, not {found.dtype}")
    same_device(function, "indices", found, like)
    return found


def _turn(indices: tack.Array, like: tack.Array) -> int:
    """What to add to an index that is negative as i64; those of u64 are out of range then."""
    return like.size if indices.scalar.is_signed else 0


@tack.kernel
def _gather(x: Any, indices: Any, out: Any, n: Any, size: Any, turn: Any) -> None:
    for i in range(n):
        at = i64(indices[i])
        if at < 0:
            at += turn
        if at >= 0 and at < size:
            out[i] = x[at]
        else:
            out[i] = 0


@tack.kernel
def _scatter(out: Any, indices: Any, values: Any, n: Any, size: Any, turn: Any) -> None:
    for i in range(n):
        at = i64(indices[i])
        if at < 0:
            at += turn
        if at >= 0 and at < size:
            out[at] = values[i]


@tack.kernel
def _search(x: Any, values: Any, found: Any, size: Any, n: Any, right: Any) -> None:
    for i in range(n):
        value = values[i]
        low = i64(0)
        high = size
        while low < high:
            middle = low + (high - low) // 2
            element = x[middle]
            behind = element < value or (value != value and element == element)
            if right:
                behind = not (value < element or (element != element and value == value))
            if behind:
                low = middle + 1
            else:
                high = middle
        found[i] = low
