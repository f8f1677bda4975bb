"""Kernels that find the bits of a volume's voxels, cells and edges, 64 along x to a word.

A row is all voxels along x, the last axis. Word w of row r is at w * rows + r: threads of a GPU go through
rows side by side, and then read words side by side. Bits behind a row's end are zero.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Kernel, i64, u8, u32, u64

__all__ = [
    "ahead",
    "classify",
    "lowest",
    "row_words",
    "usable_cells",
    "usable_edges",
    "validity",
]


def row_words(nx: int) -> int:
    """How many words a row of ``nx`` voxels has; one if there are none, which kernels may then read."""
    return max(1, -(-nx // 64))


def classify(grid: tack.Array, bits: Any, nans: Any, threshold: float) -> None:
    """Sets the bits of voxels that are at least ``threshold``, and ``nans[0]`` to 1 if one is NaN."""
    nz, ny, nx = grid.shape
    words = row_words(nx)
    dtype = grid.scalar
    backend = grid._backend
    if backend.wraps_host_memory:
        classify_rows(dtype)(grid, bits, nans, threshold, nz * ny, nx, words)
        return
    # What neighbouring threads read and write should be neighbours in memory, so they write bytes.
    as_bytes = tack.Array(backend, bits._buffer, u8, (8 * bits.size,), offset=bits._offset)
    shape = (-(-nz // int(PLANES)), nz, ny, nx)
    classify_bytes(dtype)(grid, as_bytes, nans, threshold, *shape, ny * words * 8, words * 8)


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


PLANES = tack.constant(4)  # that an iteration of `classify_bytes` goes through, to have many loads in flight


@cache
def classify_bytes(dtype: DType) -> Kernel:
    """For GPUs: an iteration has eight voxels in each of four planes, and so four bytes of ``bits``.

    ``plane`` is how many bytes a plane has, ``row`` a row.
    """

    @tack.kernel
    def classify(
        volume: Any, bits: Any, nans: Any, threshold: Any, slabs: Any, nz: Any, ny: Any, nx: Any, plane: Any,
        row: Any,
    ) -> None:  # fmt: skip
        for slab, place in tack.ndindex(slabs, plane):
            least = dtype(threshold)
            j = u32(place) // u32(row)
            byte = u32(place) - j * u32(row)
            k = slab * PLANES
            first = (k * ny + j) * nx + 8 * byte
            target = 8 * ((byte >> 3) * i64(nz) * ny + k * ny + j) + (byte & 7)
            found = u32(0)
            if 8 * byte + 8 <= nx and k + PLANES <= nz:
                for p in range(PLANES):
                    word = u32(0)
                    for b in range(8):
                        value = volume[first + p * i64(ny) * nx + b]
                        word |= u32(value >= least) << b
                        found |= u32(value != value)
                    bits[target + 8 * p * i64(ny)] = word
            else:
                for p in range(min(PLANES, nz - k)):
                    word = u32(0)
                    for b in range(min(8, nx - 8 * byte)):
                        value = volume[first + p * i64(ny) * nx + b]
                        word |= u32(value >= least) << b
                        found |= u32(value != value)
                    bits[target + 8 * p * i64(ny)] = word
            if found:
                tack.atomic_max(nans, 0, 1)

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
def validity(volume: Any, mask: Any, valid: Any, rows: Any, nx: Any, words: Any) -> None:
    """The bits of voxels that have a value, and whose mask is not zero."""
    for r in range(rows):
        for w in range(words):
            word = u64(0)
            for b in range(min(64, nx - w * 64)):
                voxel = r * nx + w * 64 + b
                value = volume[voxel]
                word |= u64(value == value and mask[voxel] != 0) << b
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


@tack.kernel
def usable_edges(cells: Any, xs: Any, ys: Any, zs: Any, nz: Any, ny: Any, words: Any) -> None:
    """The bits of edges, by axis, that a usable cell has."""
    for k, j in tack.ndindex(nz, ny):
        rows = nz * ny
        for w in range(words):
            at = w * rows + k * ny + j
            x = u64(0)
            y = u64(0)
            z = u64(0)
            for below in range(2):
                for behind in range(2):
                    if j >= behind and k >= below:
                        place = at - (below * ny + behind)
                        x |= cells[place]
                        both = cells[place] | cells[place] << 1
                        if w > 0:
                            both |= cells[place - rows] >> 63
                        if behind == 0:
                            y |= both
                        if below == 0:
                            z |= both
            xs[at] = x
            ys[at] = y
            zs[at] = z
