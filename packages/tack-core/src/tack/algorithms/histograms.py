"""Histograms with the meaning of `numpy.histogram`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tack
from tack.algorithms.common import BLOCK, as_array, block_count, index_dtype, prefix, same_device
from tack.algorithms.groups.histogram import count_cells, most_cells
from tack.algorithms.indexing import searchsorted
from tack.algorithms.reductions import reduce
from tack.algorithms.segments import reduce_segments
from tack.algorithms.sorting import sort_by_key
from tack.dtypes import DType, as_dtype, f32, f64, i32, i64, u16

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["histogram"]

_ROWS = 64  # copies of the counters, so that iterations that run at once seldom meet
_COUNTERS = 1 << 20  # counters of all copies together


def histogram(
    x: Any,
    bins: Any = 10,
    *,
    range: tuple[float, float] | None = None,
    weights: Any = None,
    n: int | None = None,
) -> tuple[tack.Array, tack.Array]:
    """How many of the first ``n`` elements fall in each bin, and the bins' edges.

    As in NumPy, a bin holds its lower edge and not its upper one, but the last bin holds both. What lies
    outside, and NaN, is not counted.

    Args:
        bins: the number of bins of equal width, or the edges, which must not decrease.
        range: the limits of bins of equal width; the least and greatest element unless given.
        weights: what each element counts for, as many numbers as there are elements.

    Returns:
        The counts (i64, one for each bin), or the sums of weights in their dtype, and the edges (one more),
        which for bins of equal width are f32 if ``x`` is, else f64. Edges that are given keep their dtype.

    Raises:
        TypeError: ``bins`` or ``range`` are not numbers.
        ValueError: fewer than one bin, decreasing edges, or limits that are not finite or in the wrong order.
    """
    source = as_array("histogram", "x", x)
    count = prefix("histogram", source.size, n)
    edges = _edges(source[:count], bins, range)
    cells = edges.size - 1
    even = np.ndim(bins) == 0
    scale = cells / (float(edges[-1]) - float(edges[0])) if even else 0.0
    given_edges = tack.asarray(edges, _dtype_of(edges, source), device=source.device)
    device_edges = given_edges
    if not even:  # compared as NumPy compares them: integers as integers
        common = edges.astype(np.result_type(edges.dtype, source.scalar.numpy))
        device_edges = tack.asarray(common, _dtype_of(common, source), device=source.device)
    if weights is not None:
        given = as_array("histogram", "weights", weights)
        if given.size != source.size:
            raise ValueError(f"histogram: there are {source.size} elements and {given.size} weights")
        same_device("histogram", "weights", given, source)
        return _sum_weights(source, given, device_edges, scale, cells, count), given_edges
    if source._backend.prefers_workgroups and cells <= most_cells(source.device):
        found = tack.zeros(cells, index_dtype(count), device=source.device)
        if count:
            count_cells(_cell, source, device_edges, found, scale, cells, count)
        return found.astype(i64), given_edges
    blocks = block_count(count)
    rows = max(1, min(_ROWS, _COUNTERS // cells, blocks))
    counts = tack.zeros((rows, cells), index_dtype(count), device=source.device)
    _count(source, device_edges, counts, scale, rows, cells, count, blocks)
    return reduce(counts, axis=0), given_edges


def _edges(x: tack.Array, bins: Any, limits: tuple[float, float] | None) -> NDArray[Any]:
    """NumPy's edges, which depend on the extremes of the elements alone."""
    if isinstance(bins, str):
        raise TypeError("histogram: bins is a number or the edges; numpy.histogram_bin_edges chooses them")
    automatic = np.ndim(bins) == 0 and limits is None and x.size > 0
    if np.ndim(bins) and np.asarray(bins).dtype.kind not in "iuf":
        raise TypeError(f"histogram: bins has edges of {np.asarray(bins).dtype}, which are not numbers")
    if limits is not None and np.shape(limits) != (2,):
        raise TypeError(f"histogram: range is a pair of numbers, not {limits!r}")
    extremes = np.array([x.min(), x.max()] if automatic else [], x.scalar.numpy)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            edges = np.histogram_bin_edges(extremes, bins, limits)
    except TypeError as error:
        raise TypeError(f"histogram: {error}") from None
    except ValueError as error:
        raise ValueError(f"histogram: {error}") from None
    if edges.size < 2:
        raise ValueError("histogram: edges are a sequence of at least two numbers")
    if np.isnan(edges).any():
        raise ValueError("histogram: an edge is NaN, or the limits are further apart than their dtype goes")
    return edges


def _dtype_of(edges: NDArray[Any], x: tack.Array) -> DType:
    """The dtype of edges on the device of ``x``: their own if there it is one, else the widest float."""
    widest = f64 if x._backend.supports_f64 else f32
    if edges.dtype.kind in "iu":
        return as_dtype(edges.dtype)
    return f32 if edges.dtype == np.float32 else widest


@tack.func
def _cell(value: Any, edges: Any, scale: Any, cells: Any) -> Any:
    """The bin of a value, or -1. With ``scale``, bins for a unit, it is guessed and set right."""
    low = edges[0]
    cell = -1
    if value >= low and value <= edges[cells]:
        cell = 0
        if scale > 0:
            cell = min(i32((value - low) * scale), i32(cells) - 1)
        else:
            end = i32(cells)
            while end - cell > 1:
                middle = (cell + end) // 2
                if value >= edges[middle]:
                    cell = middle
                else:
                    end = middle
        while cell > 0 and value < edges[cell]:
            cell -= 1
        while cell < cells - 1 and value >= edges[cell + 1]:
            cell += 1
    return cell


@tack.kernel
def _count(x: Any, edges: Any, counts: Any, scale: Any, rows: Any, cells: Any, n: Any, blocks: Any) -> None:
    for block in range(blocks):
        first = block * BLOCK
        for j in range(min(BLOCK, n - first)):
            cell = _cell(x[first + j], edges, scale, cells)
            if cell >= 0:
                tack.atomic_add(counts, (block % rows, cell), 1)


@tack.kernel
def _find_cells(x: Any, edges: Any, found: Any, scale: Any, cells: Any, n: Any) -> None:
    """The bin of each element; for those outside, the one past the last."""
    for i in range(n):
        cell = _cell(x[i], edges, scale, cells)
        found[i] = cell if cell >= 0 else cells


def _sum_weights(
    x: tack.Array, weights: tack.Array, edges: tack.Array, scale: float, cells: int, n: int
) -> tack.Array:
    """The weights of each bin, added up in order, so that sums of floats have the same bits each time."""
    sums = tack.zeros(cells, weights.dtype, device=x.device)
    if n:
        places = tack.empty(n, u16 if cells <= u16.max else i32, device=x.device)
        _find_cells(x, edges, places, scale, cells, n)
        places, weights = sort_by_key(places, weights[:n])
        bounds = tack.arange(cells + 1, dtype=places.dtype, device=x.device)
        offsets = searchsorted(places, bounds)
        reduce_segments(weights, offsets, sums, "sum")
    return sums
