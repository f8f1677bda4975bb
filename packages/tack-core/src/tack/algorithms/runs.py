"""Runs of equal neighbours: distinct values, run lengths, and reductions by key."""

from __future__ import annotations

from typing import Any

import tack
from tack.algorithms.common import accumulator, as_array, check_op, prefix, same_device
from tack.algorithms.indexing import gather
from tack.algorithms.segments import reduce_segments
from tack.algorithms.selection import indices_of
from tack.algorithms.sorting import sort
from tack.dtypes import i64, u8

__all__ = ["reduce_by_key", "run_length", "unique"]


def unique(x: Any, *, counts: bool = False, n: int | None = None) -> Any:
    """The distinct values among the first ``n`` elements of ``x``, ascending, 1-D.

    All NaNs count as one value, the last, and 0.0 and -0.0 as one, whichever comes first.

    Returns:
        The values; with ``counts``, the values and how often each occurs (i64).
    """
    source = as_array("unique", "x", x)
    values, lengths = run_length(sort(source, n=prefix("unique", source.size, n)))
    return (values, lengths) if counts else values


def run_length(x: Any, *, n: int | None = None) -> tuple[tack.Array, tack.Array]:
    """The value of each run of equal neighbours, and its length (i64). NaNs count as equal."""
    source = as_array("run_length", "x", x)
    count = prefix("run_length", source.size, n)
    offsets = _run_offsets(source, count)
    runs = offsets.size - 1
    lengths = tack.empty(runs, i64, device=source.device)
    _differences(offsets, lengths, runs)
    return gather(source, offsets[:runs]), lengths


def reduce_by_key(
    keys: Any, values: Any, op: str = "sum", *, n: int | None = None
) -> tuple[tack.Array, tack.Array]:
    """The key of each run of equal neighbouring keys, and the reduction of the run's values.

    With sorted keys (`sort_by_key`) that is one result for each key. Sums of integers are i64 or u64, and
    wrap; other results have the dtype of ``values``.

    Args:
        op: ``"sum"``, ``"min"`` or ``"max"``.
    """
    function = "reduce_by_key"
    op = check_op(function, op)
    names = as_array(function, "keys", keys)
    source = as_array(function, "values", values)
    if source.size != names.size:
        raise ValueError(f"{function}: there are {names.size} keys and {source.size} values")
    same_device(function, "values", source, names)
    count = prefix(function, names.size, n)
    offsets = _run_offsets(names, count)
    runs = offsets.size - 1
    wide = accumulator(source, op)
    results = tack.empty(runs, source.scalar if wide.is_float else wide, device=source.device)
    reduce_segments(source[:count], offsets, results, op)
    return gather(names, offsets[:runs]), results


def _run_offsets(x: tack.Array, n: int) -> tack.Array:
    """Where the runs of the first ``n`` elements start, and behind that ``n``."""
    heads = tack.empty(n, u8, device=x.device)
    _mark_runs(x, heads, n)
    return indices_of(heads, n, end=True)


@tack.kernel
def _mark_runs(x: Any, heads: Any, n: Any) -> None:
    for i in range(n):
        head = 1
        if i > 0:
            value = x[i]
            before = x[i - 1]
            head = 0 if value == before or (value != value and before != before) else 1
        heads[i] = head


@tack.kernel
def _differences(offsets: Any, out: Any, n: Any) -> None:
    for i in range(n):
        out[i] = offsets[i + 1] - offsets[i]
