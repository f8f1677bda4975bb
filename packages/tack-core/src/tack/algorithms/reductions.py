"""Reductions of whole arrays and along one axis."""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

import tack
from tack.algorithms.common import (
    accumulator,
    apart,
    check_op,
    combiner,
    identity,
    prefix,
    result_array,
    shaped_array,
)
from tack.algorithms.groups.reduce import reduce_lines
from tack.dtypes import DType, f32, f64
from tack.lang.kernel import Kernel

__all__ = ["reduce"]

# Elements along the axis that one iteration adds up. Partial results are reduced again, which bounds the
# rounding error of a sum nearly as pairwise summation does.
ROWS = tack.constant(128)
TILE = tack.constant(256)  # neighbouring lines that an iteration takes together
ABREAST = tack.constant(4)  # elements of each that it takes at once
LONG = 128  # elements of a line that is worth a workgroup


def reduce(x: Any, op: str = "sum", *, axis: int | None = None, n: int | None = None, out: Any = None) -> Any:
    """The ``"sum"``, ``"min"``, ``"max"`` or ``"mean"`` of ``x``.

    Without ``axis`` it is that of all elements, or of the first ``n``, a Python number, as ``x.sum()``
    gives it. With one, an array with that axis left out: sums of integers are i64 or u64 and wrap, means of
    integers f64, other results have the dtype of ``x``. NaN wins in minimum and maximum.

    Raises:
        TypeError: both ``axis`` and ``n`` are given, or ``out`` and no axis.
        ValueError: minimum or maximum of no elements; ``axis`` is not one of the array's.
    """
    op = check_op("reduce", op, ("sum", "min", "max", "mean"))
    array = shaped_array("reduce", "x", x)
    if axis is None:
        if out is not None:
            raise TypeError(
                "reduce: out takes results along an axis; that of all elements is a Python number"
            )
        part = array if n is None else array.ravel()[: prefix("reduce", array.size, n)]
        return getattr(part, op)()
    if n is not None:
        raise TypeError(
            "reduce: n counts elements of the whole array; along an axis, reduce an array without the rest"
        )
    if array.components:
        raise TypeError(f"reduce: along an axis it takes numbers, not {array.dtype}")
    try:
        place = operator.index(axis)
    except TypeError:
        raise TypeError(
            f"reduce: axis is an integer, not {type(axis).__name__}; several axes are reduced one by one"
        ) from None
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
        _reduce_axis(
            apart(array.ravel(), result), result, "sum" if op == "mean" else op, outer, extent, inner
        )
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
    if inner == 1 and extent >= LONG and x._backend.prefers_workgroups:
        reduce_lines(x, out, op, outer, extent)
        return
    wide = accumulator(x, op)
    start = tack.full(1, identity(op, wide), wide, device=x.device)
    tile = 1 if inner == 1 else int(TILE) if x._backend.iteration_cache else 0
    kernel = _tile_kernel(op, wide) if tile > 1 else _line_kernel(op, wide.is_float, tile == 1)
    while True:
        groups = max(1, -(-extent // int(ROWS)))
        last = groups == 1
        to = out if last else tack.empty(outer * groups * inner, wide, device=x.device)
        kernel(x, to, start, outer, groups, inner, extent, -(-inner // max(1, tile)))
        if last:
            return
        x, extent = to, groups


@cache
def _line_kernel(op: str, is_float: bool, contiguous: bool) -> Kernel:
    """An iteration reduces a part of a line along the axis, whose elements are ``inner`` apart."""
    combine = combiner(op, is_float)
    step = _one if contiguous else _itself

    @tack.kernel(fastmath=op == "sum")  # so that contiguous lines vectorize
    def reduce_lines(
        x: Any, out: Any, start: Any, outer: Any, groups: Any, inner: Any, extent: Any, tiles: Any
    ) -> None:
        for o, g, i in tack.ndindex(outer, groups, tiles):
            first = g * ROWS
            place = (o * extent + first) * step(inner) + i
            total = start[0]
            for j in range(min(ROWS, extent - first)):
                total = combine(total, x[place + j * step(inner)])
            out[(o * groups + g) * step(inner) + i] = total

    return reduce_lines


@tack.func
def _one(n: Any) -> Any:
    return 1


@tack.func
def _itself(n: Any) -> Any:
    return n


@cache
def _tile_kernel(op: str, wide: DType) -> Kernel:
    """An iteration reduces neighbouring lines together, so that it reads memory in order."""
    combine = combiner(op, wide.is_float)

    @tack.kernel
    def reduce_tiles(
        x: Any, out: Any, start: Any, outer: Any, groups: Any, inner: Any, extent: Any, tiles: Any
    ) -> None:
        for o, g, t in tack.ndindex(outer, groups, tiles):
            totals = tack.local_array(TILE, wide)
            first = g * ROWS
            column = t * TILE
            for c in range(TILE):
                totals[c] = start[0]
            rows = min(ROWS, extent - first)
            whole = rows - rows % ABREAST
            for j in range(0, whole, ABREAST):
                place = (o * extent + first + j) * inner + column
                for c in range(min(TILE, inner - column)):
                    total = totals[c]
                    for k in range(ABREAST):
                        total = combine(total, x[place + k * inner + c])
                    totals[c] = total
            for j in range(whole, rows):
                place = (o * extent + first + j) * inner + column
                for c in range(min(TILE, inner - column)):
                    totals[c] = combine(totals[c], x[place + c])
            for c in range(min(TILE, inner - column)):
                out[(o * groups + g) * inner + column + c] = totals[c]

    return reduce_tiles


@tack.kernel
def _divide(x: Any, by: Any, n: Any) -> None:
    for i in range(n):
        x[i] = x[i] / by
