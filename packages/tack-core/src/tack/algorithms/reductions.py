"""Reductions of whole arrays and along one axis."""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

import tack
from tack.algorithms.common import accumulator, check_op, combiner, identity, result_array
from tack.dtypes import DType, f32, f64
from tack.lang.kernel import Kernel

__all__ = ["reduce"]

# Elements along the axis that one iteration adds up. Partial results are reduced again, which bounds the
# rounding error of a sum nearly as pairwise summation does.
ROWS = tack.constant(128)


def reduce(x: Any, op: str = "sum", *, axis: int | None = None, out: Any = None) -> Any:
    """The ``"sum"``, ``"min"``, ``"max"`` or ``"mean"`` of ``x``.

    Without ``axis`` it is that of all elements, a Python number, as ``x.sum()`` gives it. With one, an array
    with that axis left out: sums of integers are i64 or u64 and wrap, means of integers f64, other results
    have the dtype of ``x``. NaN wins in minimum and maximum.

    Raises:
        ValueError: minimum or maximum of no elements; ``axis`` is not one of the array's.
    """
    op = check_op("reduce", op, ("sum", "min", "max", "mean"))
    array = tack.asarray(x)
    if axis is None:
        return getattr(array, op)()
    if array.components:
        raise TypeError(f"reduce: along an axis it takes numbers, not {array.dtype}")
    place = operator.index(axis)
    if not -array.ndim <= place < array.ndim:
        raise ValueError(f"reduce: axis {place} of an array with {array.ndim} dimensions")
    place %= array.ndim
    shape = array.shape[:place] + array.shape[place + 1 :]
    extent = array.shape[place]
    if extent == 0 and op in ("min", "max"):
        raise ValueError(f"reduce: {op} along axis {place}, which has no elements")
    outer, inner = math.prod(array.shape[:place]), math.prod(array.shape[place + 1 :])
    result = result_array("reduce", out, outer * inner, _result_dtype(array, op), array)
    if outer * inner:
        _reduce_axis(array.ravel(), result, "sum" if op == "mean" else op, outer, extent, inner)
        if op == "mean":
            _divide(result, float(extent), outer * inner)
    return result.reshape(shape)


def _result_dtype(array: tack.Array, op: str) -> DType:
    if array.scalar.is_float:
        return array.scalar
    if op == "mean":
        return f64 if array._backend.supports_f64 else f32
    return accumulator(array, op)


def _reduce_axis(x: tack.Array, out: tack.Array, op: str, outer: int, extent: int, inner: int) -> None:
    """Reduce the middle axis of ``x``, seen as (outer, extent, inner), into ``out``, (outer, inner)."""
    wide = accumulator(x, op)
    start = tack.full(1, identity(op, wide), wide, device=x.device)
    kernel = _kernel(op, wide.is_float)
    while True:
        groups = max(1, -(-extent // int(ROWS)))
        last = groups == 1
        to = out if last else tack.empty(outer * groups * inner, wide, device=x.device)
        kernel(x, to, start, outer, groups, inner, extent)
        if last:
            return
        x, extent = to, groups


@cache
def _kernel(op: str, is_float: bool) -> Kernel:
    combine = combiner(op, is_float)

    @tack.kernel
    def reduce_rows(x: Any, out: Any, start: Any, outer: Any, groups: Any, inner: Any, extent: Any) -> None:
        for o, g, i in tack.ndindex(outer, groups, inner):
            first = g * ROWS
            total = start[0]
            for j in range(min(ROWS, extent - first)):
                total = combine(total, x[(o * extent + first + j) * inner + i])
            out[(o * groups + g) * inner + i] = total

    return reduce_rows


@tack.kernel
def _divide(x: Any, by: Any, n: Any) -> None:
    for i in range(n):
        x[i] = x[i] / by
