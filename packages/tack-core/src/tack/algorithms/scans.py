"""Inclusive and exclusive scans: each block's total, a scan of the totals, and a scan of each block.

The totals are scanned in the same way, so the depth is the logarithm of the size to the base of a block.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import (
    BLOCK,
    accumulator,
    apart,
    as_array,
    block_count,
    check_op,
    combiner,
    identity,
    prefix,
    result_array,
    target_dtype,
)
from tack.algorithms.groups.scan import scan_tiles
from tack.dtypes import DType
from tack.lang.kernel import Kernel

__all__ = ["exclusive_scan", "inclusive_scan"]


def inclusive_scan(
    x: Any, op: str = "sum", *, n: int | None = None, out: Any = None, dtype: object = None
) -> tack.Array:
    """``out[i] = x[0] op ... op x[i]``, 1-D, for the first ``n`` elements.

    Args:
        op: ``"sum"``, ``"min"`` or ``"max"``. NaN wins in the last two.
        out: takes the result; may be, or overlap, ``x``.
        dtype: of the result, the dtype of ``x`` unless given. Sums are computed in i64, u64 or f64 and stored
            as a kernel stores: integers keep their low bits.
    """
    return _scan("inclusive_scan", x, op, n, out, dtype)[0]


def exclusive_scan(
    x: Any,
    op: str = "sum",
    *,
    n: int | None = None,
    out: Any = None,
    dtype: object = None,
    total: bool = False,
) -> Any:
    """``out[i] = x[0] op ... op x[i - 1]``, 1-D, for the first ``n`` elements.

    ``out[0]`` is the identity of ``op``: 0 for a sum, and for ``"min"`` (``"max"``) infinity or the greatest
    (least) integer of the dtype of ``x``. The other arguments are those of `inclusive_scan`.

    Returns:
        The array; with ``total``, the array and the result for all n elements as a Python number.
    """
    found, last = _scan("exclusive_scan", x, op, n, out, dtype, exclusive=True)
    return (found, last[0]) if total else found


def _scan(
    function: str, x: Any, op: str, n: int | None, out: Any, dtype: object, exclusive: bool = False
) -> tuple[tack.Array, tack.Array]:
    """The result, and the total as an array of one element."""
    op = check_op(function, op)
    source = as_array(function, "x", x)
    count = prefix(function, source.size, n)
    target = target_dtype(function, dtype, out, source)
    result = result_array(function, out, count, target, source)
    return result, scan(apart(source[:count], result, in_place=True), result, count, op, exclusive)


def scan(x: tack.Array, out: tack.Array, n: int, op: str, exclusive: bool) -> tack.Array:
    """Scan 1-D ``x`` into ``out``, which may be ``x``.

    Returns:
        The total, an array of one element in the accumulator's dtype.
    """
    wide = accumulator(x, op)
    if not n:
        return tack.full(1, identity(op, wide), wide, device=x.device)
    if x._backend.prefers_workgroups:
        return scan_tiles(x, out, n, op, exclusive)
    blocks = block_count(n)
    carries = tack.empty(blocks + 1, wide, device=x.device)
    if blocks > 1:
        _block_totals(op, wide)(x, carries, n, blocks)
        scan(carries, carries, blocks, op, True)
    if op == "sum" and wide.is_float:
        _grouped_sums(wide, exclusive)(x, out, carries, n, blocks)
    else:
        _block_scans(op, wide, exclusive)(x, out, carries, n, blocks)
    total: tack.Array = carries[blocks:]
    return total


@cache
def _block_totals(op: str, wide: DType) -> Kernel:
    combine = combiner(op, wide.is_float)
    nothing = tack.constant(identity(op, wide), wide)

    @tack.kernel(fastmath=op == "sum")  # so that sums of floats vectorize
    def block_totals(x: Any, totals: Any, n: Any, blocks: Any) -> None:
        for block in range(blocks):
            start = block * BLOCK
            total = wide(nothing)
            for j in range(min(BLOCK, n - start)):
                total = combine(total, x[start + j])
            totals[block] = total

    return block_totals


@cache
def _block_scans(op: str, wide: DType, exclusive: bool) -> Kernel:
    """Scans each block from its carry on, and stores the total behind the carries."""
    combine = combiner(op, wide.is_float)
    nothing = tack.constant(identity(op, wide), wide)
    shifted = tack.constant(exclusive)

    @tack.kernel
    def block_scans(x: Any, out: Any, carries: Any, n: Any, blocks: Any) -> None:
        for block in range(blocks):
            start = block * BLOCK
            total = wide(nothing)
            if block > 0:
                total = carries[block]
            for j in range(min(BLOCK, n - start)):
                before = total
                total = combine(total, x[start + j])
                out[start + j] = before if shifted else total
            if block + 1 == blocks:
                carries[blocks] = total

    return block_scans


@cache
def _grouped_sums(wide: DType, exclusive: bool) -> Kernel:
    """What `_block_scans` does, for sums of floats, where each addition waits for the one before for cycles.

    Four elements are added up among themselves first, so that one addition of four is in the chain.
    """
    shifted = tack.constant(exclusive)

    @tack.kernel
    def grouped_sums(x: Any, out: Any, carries: Any, n: Any, blocks: Any) -> None:
        for block in range(blocks):
            start = block * BLOCK
            total = wide(0)
            if block > 0:
                total = carries[block]
            if start + BLOCK <= n:
                for group in range(BLOCK // 4):
                    at = start + group * 4
                    one = wide(x[at])
                    two = one + x[at + 1]
                    three = two + x[at + 2]
                    four = three + x[at + 3]
                    if shifted:
                        out[at] = total
                        out[at + 1] = total + one
                        out[at + 2] = total + two
                        out[at + 3] = total + three
                    else:
                        out[at] = total + one
                        out[at + 1] = total + two
                        out[at + 2] = total + three
                        out[at + 3] = total + four
                    total += four
            else:
                for j in range(start, n):
                    before = total
                    total += x[j]
                    out[j] = before if shifted else total
            if block + 1 == blocks:
                carries[blocks] = total

    return grouped_sums
