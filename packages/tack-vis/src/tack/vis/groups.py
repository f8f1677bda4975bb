"""The passes of flying edges behind the classification as GPUs run them, and what their kernels share.

They have what `tack.vis.flying_edges` has for CPUs, in such a way that lanes have the same to do, however the
surface lies:

1. `count_kernel` has a *tile* of rows for each workgroup. It lists the words with crossed edges, has a lane
   for each of those, and counts triangles and points. Tiles add theirs to a *bin*'s of 64 tiles, and to all;
   `sum_tiles` does that where there are no atomics of 64 bits. Both are in `groups_count.py`.
2. `place_kernel` adds up the bins before a tile's, and the tiles before it in its own. It lists the cells
   that the surface cuts and the points, and has a lane for each of those. To where they belong in the mesh it
   writes which triangle of which cell each is, and which edge each point is on.
3. `finish_kernel` has a lane for each triangle and each point, which replaces that by the corners and the
   coordinates. `corner_kernel` has the former alone. These are in `groups_place.py`.

A row is all voxels along x. A tile has 2048 words: a power of two of rows, which ``shift`` is the logarithm
of; rows that are longer have several ``parts``. The order in which words are found does not matter.

Where a volume is in slabs, rows before ``begin`` and from ``end`` on are there for their neighbours: the
former have nothing, and the latter no triangles, and points that are not written.
"""

from __future__ import annotations

from typing import Any

import tack
from tack import Func, i32, i64, u64
from tack.algorithms.groups.tiles import LANES

__all__ = [
    *("ABOUT", "BATCH", "BIN", "SHARE", "SLOT", "SLOTS", "SLOT_BITS", "TILE_BITS"),
    *("case_of", "load_words", "place_of", "running_sums", "usable_func"),
]

SLOT_BITS = tack.constant(11)
SLOTS = tack.constant(1 << int(SLOT_BITS))  # words of a tile, and cells or points that are listed at a time
SLOT = tack.constant(int(SLOTS) - 1)  # the bits of a slot
SHARE = tack.constant(int(SLOTS) // int(LANES))  # of a lane
BATCH = tack.constant(8)  # words of a row whose points are numbered from one start
BIN = tack.constant(64)  # tiles whose counts are added up
TILE_BITS = tack.constant(26)  # of a total, which count the tiles in it
ABOUT = tack.constant(5)  # what is noted about a tile: see `count_kernel`


@tack.func
def _everything(cells: Any, axis: Any, at: Any, w: Any, rows: Any, down: Any, under: Any) -> Any:
    return ~u64(0)


@tack.func
def _some(cells: Any, axis: Any, at: Any, w: Any, rows: Any, down: Any, under: Any) -> Any:
    """The edges along an axis that have a usable cell, or the usable cells if ``axis`` is 3.

    Of the word at ``at``, which is word w of its row. ``down`` leads back to the row before along y,
    ``under`` to that along z.
    """
    word = cells[at]
    if axis < 2:
        word |= cells[at - under]
    if axis == 0 or axis == 2:
        word |= cells[at - down]
    if axis == 0:
        word |= cells[at - under - down]
    if axis == 1 or axis == 2:
        before = u64(0)
        if w > 0:
            before = cells[at - rows] | cells[at - rows - (under if axis == 1 else down)]
        word |= word << 1 | before >> 63
    return word


def usable_func(masked: bool) -> Func:
    """The device function that gives which edges or cells of a word may be used."""
    return _some if masked else _everything


@tack.func
def load_words(
    bits: Any, at: Any, up: Any, over: Any, rows: Any, is_last: Any, words: Any, nexts: Any
) -> None:
    """The word at ``at`` of the four rows around cells, and that of the voxels one further along x."""
    for n in range(4):
        here = at + (n & 1) * up + (n >> 1) * over
        words[n] = bits[here]
        nexts[n] = words[n] >> 1
        if is_last == 0:
            nexts[n] |= bits[here + rows] << 63


@tack.func
def case_of(words: Any, nexts: Any, i: Any) -> Any:
    """Which corners of cell i are inside: its place in `CUBE_CASES`."""
    case = i32(0)
    for n in range(4):
        two = i32(words[n] >> i) & 3
        if i == 63:
            two |= i32(nexts[n] >> 63) << 1
        case |= two << 2 * n
    return case


@tack.func
def place_of(slot: Any, first: Any, start: Any, shift: Any) -> Any:
    """The row and the word that has a slot of a tile."""
    return first + (slot & ((1 << shift) - 1)), start + (slot >> shift)


@tack.func
def running_sums(values: Any, lane: Any) -> None:
    """Replaces the lanes' values by what stands before each, and puts their total behind them.

    `lane_scan` has all lanes at work, and takes six times the instructions; here 16 lanes have 16 each.
    """
    tack.barrier()
    if lane < 16:
        total = i64(0)
        for k in range(16):
            total += values[16 * lane + k]
        values[LANES + 1 + lane] = total
    tack.barrier()
    if lane < 16:
        before = i64(0)
        for k in range(lane):
            before += values[LANES + 1 + k]
        for k in range(16):
            value = values[16 * lane + k]
            values[16 * lane + k] = before
            before += value
        if lane == 15:
            values[LANES] = before
    tack.barrier()
