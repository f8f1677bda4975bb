"""Histograms with the meaning of `numpy.histogram`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tack
from tack.algorithms.common import BLOCK, as_array, block_count, index_dtype, prefix
from tack.algorithms.reductions import reduce
from tack.dtypes import i64

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["histogram"]

_ROWS = 64  # copies of the counters, so that iterations that run at once seldom meet
_COUNTERS = 1 << 20  # counters of all copies together


def histogram(
    x: Any, bins: Any = 10, *, range: tuple[float, float] | None = None, n: int | None = None
) -> tuple[tack.Array, tack.Array]:
    """How many of the first ``n`` elements fall in each bin, and the bins' edges.

    As in NumPy, a bin holds its lower edge and not its upper one, but the last bin holds both. What lies
    outside, and NaN, is not counted.

    Args:
        bins: the number of bins of equal width, or the edges, which must not decrease.
        range: the limits of bins of equal width; the least and greatest element unless given.

    Returns:
        The counts (i64, one for each bin) and the edges (one more), which for bins of equal width are f32 if
        ``x`` is, else f64.

    Raises:
        ValueError: fewer than one bin, decreasing edges, or limits that are not finite or in the wrong order.
    """
    source = as_array("histogram", "x", x)
    count = prefix("histogram", source.size, n)
    edges = _edges(source[:count], bins, range)
    cells = edges.size - 1
    even = np.ndim(bins) == 0
    scale = cells / (float(edges[-1]) - float(edges[0])) if even else 0.0
    blocks = block_count(count)
    rows = max(1, min(_ROWS, _COUNTERS // cells, blocks))
    counts = tack.zeros((rows, cells), index_dtype(count), device=source.device)
    device_edges = tack.asarray(edges, device=source.device)
    _count(source, device_edges, counts, scale, rows, cells, count, blocks)
    return reduce(counts, axis=0), device_edges


def _edges(x: tack.Array, bins: Any, limits: tuple[float, float] | None) -> NDArray[Any]:
    """NumPy's edges, which depend on the extremes of the elements alone."""
    if isinstance(bins, str):
        raise TypeError("histogram: bins is a number or the edges; numpy.histogram_bin_edges chooses them")
    automatic = np.ndim(bins) == 0 and limits is None and x.size > 0
    extremes = np.array([x.min(), x.max()] if automatic else [], x.scalar.numpy)
    edges = np.histogram_bin_edges(extremes, bins, limits)
    if edges.size < 2:
        raise ValueError("histogram: edges are a sequence of at least two numbers")
    keep = edges.dtype in (np.float32, np.float64) and x._backend.supports_f64
    return edges if keep else edges.astype(np.float64 if x._backend.supports_f64 else np.float32)


@tack.kernel
def _count(x: Any, edges: Any, counts: Any, scale: Any, rows: Any, cells: Any, n: Any, blocks: Any) -> None:
    """With ``scale``, bins for a unit, a bin is guessed and then set right; without, it is searched."""
    for block in range(blocks):
        first = block * BLOCK
        row = block % rows
        low = edges[0]
        high = edges[cells]
        for j in range(min(BLOCK, n - first)):
            value = x[first + j]
            if value >= low and value <= high:
                cell = i64(0)
                if scale > 0:
                    cell = min(i64((value - low) * scale), cells - 1)
                else:
                    end = cells
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
                tack.atomic_add(counts, (row, cell), 1)
