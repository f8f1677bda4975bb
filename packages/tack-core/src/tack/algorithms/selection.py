"""Stream compaction: count in each block, scan the counts, write."""

from __future__ import annotations

from typing import Any

import numpy as np

import tack
from tack.algorithms.common import (
    BLOCK,
    apart,
    as_array,
    block_count,
    index_dtype,
    prefix,
    result_array,
    same_device,
)
from tack.algorithms.groups import select
from tack.algorithms.scans import scan
from tack.dtypes import i16, i64

__all__ = ["compact", "count_blocks", "indices_of", "where"]


def compact(x: Any, mask: Any, *, n: int | None = None, out: Any = None) -> tack.Array:
    """The elements of ``x`` whose ``mask`` is not zero, in order, 1-D.

    Args:
        x: numbers, vectors or matrices.
        mask: as many numbers or booleans; NaN counts as true.
        out: takes the result: an array with room for it, which may be, or overlap, ``x`` or ``mask``.
    """
    function = "compact"
    source = as_array(function, "x", x, vectors=True)
    chosen = as_mask(function, mask)
    if chosen.size != source.size:
        raise ValueError(f"{function}: mask has {chosen.size} elements, x has {source.size}")
    same_device(function, "mask", chosen, source)
    count = prefix(function, source.size, n)
    places, total = _places(chosen, count)
    result = result_array(function, out, total, source.dtype, source)
    source, chosen = apart(source, result), apart(chosen, result)
    if total and source._backend.prefers_workgroups:
        select.write_elements(source, chosen, places, result, count)
    elif total:
        _write_elements(source, chosen, places, result, count, block_count(count))
    return result


def where(mask: Any, *, n: int | None = None) -> tack.Array:
    """The flat indices at which ``mask`` is not zero, ascending.

    They are i32, or i64 for more than 2^31 - 1 elements.
    """
    chosen = as_mask("where", mask)
    return indices_of(chosen, prefix("where", chosen.size, n))


def as_mask(function: str, mask: Any, name: str = "mask") -> tack.Array:
    """A mask as a 1-D array; NumPy's booleans are bytes."""
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_:
        mask = mask.view(np.uint8)
    return as_array(function, name, mask)


def indices_of(mask: tack.Array, n: int, *, end: bool = False) -> tack.Array:
    """The indices at which ``mask`` is not zero; with ``end``, and ``n`` behind them."""
    places, total = _places(mask, n)
    out = tack.empty(total + int(end), index_dtype(n), device=mask.device)
    if total and mask._backend.prefers_workgroups:
        select.write_indices(mask, places, out, n)
    elif total:
        _write_indices(mask, places, out, n, block_count(n))
    if end:
        out[total : total + 1].fill(n)
    return out


def _places(mask: tack.Array, n: int) -> tuple[tack.Array, int]:
    """Where the selected elements of each block go, and how many there are."""
    counts = count_blocks(mask, n)
    places = tack.empty(counts.size, i64, device=mask.device)
    return places, scan(counts, places, counts.size, "sum", True)[0]


def count_blocks(mask: tack.Array, n: int) -> tack.Array:
    """How many elements of each block, or tile, are not zero, i64."""
    if n and mask._backend.prefers_workgroups:
        return select.count_tiles(mask, n)
    counts = tack.empty(block_count(n), i64, device=mask.device)
    _count(mask, counts, n, counts.size)
    return counts


@tack.kernel
def _count(mask: Any, counts: Any, n: Any, blocks: Any) -> None:
    for block in range(blocks):
        first = block * BLOCK
        total = 0
        for j in range(min(BLOCK, n - first)):
            total += 1 if mask[first + j] != 0 else 0
        counts[block] = total


@tack.func
def _selected(mask: Any, found: Any, first: Any, n: Any) -> Any:
    """Collect a block's selected elements, and return how many; without a branch to be mispredicted."""
    count = 0
    for j in range(min(BLOCK, n - first)):
        found[count] = j
        count += 1 if mask[first + j] != 0 else 0
    return count


@tack.kernel
def _write_elements(x: Any, mask: Any, places: Any, out: Any, n: Any, blocks: Any) -> None:
    for block in range(blocks):
        found = tack.local_array(BLOCK, i16)
        first = block * BLOCK
        count = _selected(mask, found, first, n)
        place = places[block]
        for k in range(min(BLOCK, count)):
            out[place + k] = x[first + found[k]]


@tack.kernel
def _write_indices(mask: Any, places: Any, out: Any, n: Any, blocks: Any) -> None:
    for block in range(blocks):
        found = tack.local_array(BLOCK, i16)
        first = block * BLOCK
        count = _selected(mask, found, first, n)
        place = places[block]
        for k in range(min(BLOCK, count)):
            out[place + k] = first + found[k]
