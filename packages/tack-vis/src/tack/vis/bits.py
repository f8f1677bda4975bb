"""Kernels that find the bits of a volume's voxels, cells and edges, 64 along x to a word.

A row is all voxels along x, the last axis. Word w of row r is at w * rows + r: threads of a GPU go through
rows side by side, and then read words side by side. Bits behind a row's end are zero.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Kernel, i64, u32, u64
from tack.algorithms.groups.tiles import LANES

__all__ = [
    "ahead",
    "classify_groups",
    "classify_rows",
    "lowest",
    "row_words",
    "usable_cells",
    "validity",
]


def row_words(nx: int) -> int:
    """How many words a row of ``nx`` voxels has; one if there are none, which kernels may then read."""
    return max(1, -(-nx // 64))


@cache
def classify_rows(dtype: DType) -> Kernel:
    """For CPUs: an iteration has a row."""

    @tack.kernel
    def classify(volume: Any, bits: Any, nans: Any, threshold: Any, rows: Any, nx: Any, words: Any) -> None:
        for r in range(rows):
            least = dtype(threshold)
            found = u64(0)  # of the width of the word, for vectors of one width
            for w in range(words):
                word = u64(0)
                first = r * nx + w * 64
                for b in range(min(64, nx - w * 64)):
                    value = volume[first + b]
                    word |= u64(value >= least) << b
                    found |= u64(value != value)
                bits[w * rows + r] = word
            if found:
                tack.atomic_max(nans, 0, 1)

    return classify


@cache
def classify_groups(dtype: DType) -> Kernel:
    """For GPUs: a workgroup has 256 voxels of each of 32 rows, and writes ``bits`` in halves of words.

    A lane reads the voxels of a column, so that lanes read side by side, and then has the bits of a row.
    ``across`` is how many workgroups a row has. The ``blanks`` first of ``blank`` become 0.
    """

    @tack.kernel
    def classify(
        volume: Any,
        bits: Any,
        nans: Any,
        threshold: Any,
        rows: Any,
        nx: Any,
        words: Any,
        across: Any,
        blank: Any,
        blanks: Any,
        lanes: Any,
    ) -> None:
        for i in range(lanes):
            if i < blanks:
                blank[i] = 0
            columns = tack.shared(LANES, u32)
            lane = tack.thread_id()
            least = dtype(threshold)
            group = u32(i // LANES)
            block = group // u32(across)
            left = (group - block * u32(across)) * u32(LANES)
            first = i64(block) * 32
            x = left + u32(lane)
            column = u32(0)
            found = u32(0)
            if x < u32(nx):
                start = first * nx + x
                if first + 32 <= rows:
                    for k in range(32):
                        value = volume[start + k * i64(nx)]
                        column |= u32(value >= least) << k
                        found |= u32(value != value)
                else:
                    for k in range(rows - first):
                        value = volume[start + k * nx]
                        column |= u32(value >= least) << k
                        found |= u32(value != value)
            if found:
                tack.atomic_max(nans, 0, 1)
            columns[lane] = column
            tack.barrier()
            row = lane & 31
            word = u32(0)
            for b in range(32):
                word |= (columns[(lane & 0xE0) + b] >> row & 1) << b
            half = (left >> 5) + u32(lane >> 5)
            w = half >> 1
            if w < u32(words) and first + row < rows:
                bits[2 * (i64(w) * rows + first + row) + (half & 1)] = word

    return classify


@tack.func
def lowest(n: Any) -> Any:
    """A word whose n lowest bits are set; none for n < 0, all for n > 64."""
    word = ~u64(0)
    if n < 64:
        word = (u64(1) << n) - 1
    return u64(0) if n <= 0 else word


@tack.func
def ahead(bits: Any, w: Any, r: Any, words: Any, rows: Any) -> Any:
    """The word behind word w of row r, or 0."""
    return bits[(w + 1) * rows + r] if w + 1 < words else u64(0)


@tack.kernel
def validity(volume: Any, mask: Any, step: Any, valid: Any, rows: Any, nx: Any, words: Any) -> None:
    """The bits of voxels that have a value and whose mask is not zero. With ``step`` 0 all have mask[0]."""
    for r in range(rows):
        for w in range(words):
            word = u64(0)
            first = r * nx + w * 64
            count = min(64, nx - w * 64)
            if step:  # outside of the loops, so that they vectorize
                for b in range(count):
                    value = volume[first + b]
                    word |= (u64(value == value) & u64(mask[first + b] != 0)) << b
            elif mask[0] != 0:
                for b in range(count):
                    value = volume[first + b]
                    word |= u64(value == value) << b
            valid[w * rows + r] = word


@tack.kernel
def usable_cells(valid: Any, cells: Any, nz: Any, ny: Any, nx: Any, words: Any) -> None:
    """The bits of cells whose eight voxels are valid."""
    for k, j in tack.ndindex(nz, ny):
        rows = nz * ny
        r = k * ny + j
        for w in range(words):
            word = u64(0)
            if j + 1 < ny and k + 1 < nz:
                word = lowest(nx - 1 - w * 64)
                for corner in range(4):
                    row = r + corner % 2 + corner // 2 * ny
                    here = valid[w * rows + row]
                    word &= here & (here >> 1 | ahead(valid, w, row, words, rows) << 63)
            cells[w * rows + r] = word
