"""Which words of a volume have crossed edges, and how many triangles and points: see `tack.vis.groups`."""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Func, Kernel, i32, i64, u32, u64
from tack.algorithms.groups.tiles import LANES, shared_add
from tack.vis.bits import lowest
from tack.vis.flying_edges import cut_cells
from tack.vis.groups import (
    ABOUT,
    BATCH,
    BIN,
    SHARE,
    SLOT,
    SLOT_BITS,
    SLOTS,
    TILE_BITS,
    case_of,
    load_words,
    place_of,
    running_sums,
    usable_func,
)

__all__ = ["count_kernel", "sum_tiles"]

ONCE = tack.constant(4)  # words that a lane looks at at once
_LOW = tack.constant(0xFFFFFFFF, i64)


@tack.func
def _any_differ(words: Any, n: Any) -> Any:
    """The bits in which four words from n on are not the same."""
    return (words[n] ^ words[n + 1]) | (words[n + 2] ^ words[n + 3]) | (words[n] ^ words[n + 2])


@cache
def _find_func(wide: DType) -> Func:
    """The device function that lists which words of a tile have crossed edges of cells."""

    @tack.func
    def find(
        bits: Any, found: Any, number: Any, lane: Any, first: Any, line: Any, start: Any, shift: Any,
        rows: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        """Of a word, the slot is listed, and whether there are rows further along y and z.

        The tile begins at row ``first``, which is number ``line`` in its plane, and with its word ``start``.
        """
        words = tack.local_array(4 * ONCE + 4, u64)
        at = tack.local_array(4, wide)
        row = lane & ((1 << shift) - 1)
        r = first + row
        if r < rows:
            up = 1 if u32(line + row) % u32(ny) != u32(ny - 1) else 0
            over = 1 if r + ny < rows else 0
            word = (lane >> shift) * ONCE
            while word < min(SLOTS >> shift, length - start):
                w = start + word
                at[0] = wide(w) * rows + r
                at[1] = at[0] + up
                at[2] = at[0] + over * ny
                at[3] = at[2] + up
                for k in range(ONCE + 1):
                    inside = w + i32(k) < length
                    for n in range(4):
                        words[4 * k + n] = 0
                        if inside:
                            words[4 * k + n] = bits[at[n]]
                        at[n] += rows
                for k in range(ONCE):
                    # Where rows differ at the next word's first voxel, some have a crossed edge before it.
                    here = words[4 * k]
                    along_x = here ^ (here >> 1 | words[4 * k + 4] << 63)
                    if w + i32(k) + 1 >= length:
                        along_x &= lowest(nx - 1 - (length - 1) * 64)
                    if along_x | _any_differ(words, 4 * k) | _any_differ(words, 4 * k + 4) & 1:
                        place = i32(shared_add(number, 0, 1))
                        slot = (word + i32(k)) << shift | row
                        found[place] = slot | up << SLOT_BITS | over << (SLOT_BITS + 1)
                word += (LANES >> shift) * ONCE

    return find


@tack.func
def _add(
    totals: Any, sizes: Any, nans: Any, tile: Any, tiles: Any, triangles: Any, points: Any, own: Any
) -> None:
    """Adds a tile's triangles and points to its bin's, and to all, of which ``own`` points are.

    A total says how many tiles are in it: the last one knows what all have, and tells the host.
    """
    every = (u64(1) << TILE_BITS) - 1
    tack.atomic_add(totals, 2 + tile // BIN * 2, u64(triangles))
    tack.atomic_add(totals, 3 + tile // BIN * 2, u64(points))
    seen = tack.atomic_add(totals, 0, u64(triangles) << TILE_BITS | 1)
    if (seen & every) + 1 == u64(tiles):
        sizes[0] = i64(seen >> TILE_BITS) + triangles
        sizes[2] = nans[0]
        nans[0] = 0
    seen = tack.atomic_add(totals, 1, u64(own) << TILE_BITS | 1)
    if (seen & every) + 1 == u64(tiles):
        sizes[1] = i64(seen >> TILE_BITS) + own


@tack.func
def _leave(
    totals: Any, sizes: Any, nans: Any, tile: Any, tiles: Any, triangles: Any, points: Any, own: Any
) -> None:
    """`sum_tiles` does that."""


@cache
def count_kernel(masked: bool, adds: bool, wide: DType) -> Kernel:
    """Lists the words with crossed edges, and counts triangles and points.

    ``listed`` gets the words of each tile: the slot, whether there are rows further along y and z, and how
    many cut cells the tile has before. ``about`` gets for each tile how many of these words it has, of cut
    cells, of points of rows before ``end``, of triangles, and of points.

    ``starts`` gets for each batch of each row, for points along x, y and z in turn, how many of the tile come
    before, and ``before`` for each word that has points, in 9 bits each, how many of the batch come before.

    ``totals``, zeros at first, get the triangles and points of all, and then those of each bin. ``sizes``
    gets the former, too, and whether a voxel is NaN, which ``nans`` then no longer says.

    Words and starts are numbered in ``wide``.
    """
    usable, find = usable_func(masked), _find_func(wide)
    add = _add if adds else _leave

    @tack.kernel
    def count(
        bits: Any, cells: Any, cases: Any, before: Any, starts: Any, listed: Any, about: Any, totals: Any,
        sizes: Any, nans: Any, begin: Any, end: Any, rows: Any, ny: Any, nx: Any, length: Any, shift: Any,
        parts: Any, tiles: Any, lanes: Any,
    ) -> None:  # fmt: skip
        for i in range(lanes):
            # By slot, 8 bits each: points along x, y and z, and cut cells; then how many of these are before.
            counts = tack.shared(SLOTS, u32)
            found = tack.shared(SLOTS, i32)
            sums = tack.shared(LANES + 17, i64)
            number = tack.shared(1, u32)
            line_of_tile = tack.shared(1, i32)  # the first row's number in its plane
            here = tack.local_array(4, u64)
            nexts = tack.local_array(4, u64)
            running = tack.local_array(3, i32)
            lane = tack.thread_id()
            tile = i // LANES
            block = u32(tile) // u32(parts)
            first = wide(block) << shift
            start = i32(u32(tile) - block * u32(parts)) * SLOTS
            for k in range(SHARE):
                counts[k * LANES + lane] = 0
            if lane == 0:
                number[0] = 0
                line_of_tile[0] = i32(first % ny)
            tack.barrier()
            line = line_of_tile[0]
            find(bits, found, number, lane, first, line, start, shift, rows, ny, nx, length)
            tack.barrier()
            total = i32(number[0])

            triangles = 0
            q = lane
            while q < total:
                entry = found[q]
                r, w = place_of(entry & SLOT, first, start, shift)
                over = (entry >> (SLOT_BITS + 1)) * ny
                down = 1 if u32(line + i32(r - first)) % u32(ny) > 0 else 0
                under = ny if r >= ny else 0
                at = wide(w) * rows + r
                columns = lowest(nx - 1 - w * 64)
                load_words(
                    bits, at, entry >> SLOT_BITS & 1, over, rows, 1 if w + 1 == length else 0, here, nexts
                )
                x = (here[0] ^ nexts[0]) & columns & usable(cells, 0, at, w, rows, down, under)
                y = (here[0] ^ here[1]) & usable(cells, 1, at, w, rows, down, under)
                z = (here[0] ^ here[2]) & usable(cells, 2, at, w, rows, down, under)
                packed = u32(tack.popcount(x)) | u32(tack.popcount(y)) << 8 | u32(tack.popcount(z)) << 16
                if entry >> SLOT_BITS == 3 and r >= begin and r < end:
                    cut = cut_cells(here, nexts) & columns & usable(cells, 3, at, w, rows, down, under)
                    packed |= u32(tack.popcount(cut)) << 24
                    while cut:
                        case = case_of(here, nexts, tack.ctz(cut))
                        triangles += i32(cases[case]) & 15
                        cut &= cut - 1
                if r >= begin:
                    counts[entry & SLOT] = packed
                q += LANES
            some = tack.block_max(total) > 0  # which is the same in all lanes
            triangle_count = tack.block_sum(triangles)

            # A lane has a row.
            row_words = min(SLOTS >> shift, length - start)
            own_row = first + lane
            has_row = lane >> shift == 0 and total > 0
            for n in range(3):
                running[n] = 0
            cell = 0
            if has_row:
                for from_word in range(0, row_words, int(BATCH)):
                    even = u32(0)  # points along x and z, 16 bits each
                    odd = u32(0)  # points along y, and cells
                    for word in range(from_word, min(from_word + int(BATCH), row_words)):
                        packed = counts[word << shift | lane]
                        even += packed & 0xFF00FF
                        odd += packed >> 8 & 0xFF00FF
                    running[0] += i32(even & 0xFFFF)
                    running[1] += i32(odd & 0xFFFF)
                    running[2] += i32(even >> 16)
                    cell += i32(odd >> 16)
            own_points = running[0] + running[1] + running[2]
            sums[lane] = i64(cell) << 32 | i64(own_points)
            if some:
                running_sums(sums, lane)
            all_of_them = sums[LANES] if some else i64(0)
            row_start = i32(sums[lane] & _LOW) if some else 0
            if has_row:
                cell = i32(sums[lane] >> 32)
                at_start = row_start
                for n in range(3):
                    count = running[n]
                    running[n] = at_start
                    at_start += count
                for from_word in range(0, row_words, int(BATCH)):
                    for n in range(3):
                        if own_row < rows:
                            at = 3 * wide((start + from_word) // BATCH) + n
                            starts[at * rows + own_row] = running[n]
                    even = u32(0)
                    odd = u32(0)
                    at = wide(start + from_word) * rows + own_row
                    for word in range(from_word, min(from_word + int(BATCH), row_words)):
                        packed = counts[word << shift | lane]
                        counts[word << shift | lane] = u32(cell) + (odd >> 16)
                        if packed & 0xFFFFFF:
                            before[at] = even & 0xFFFF | (odd & 0xFFFF) << 9 | even >> 16 << 18
                        even += packed & 0xFF00FF
                        odd += packed >> 8 & 0xFF00FF
                        at += rows
                    running[0] += i32(even & 0xFFFF)
                    running[1] += i32(odd & 0xFFFF)
                    running[2] += i32(even >> 16)
                    cell += i32(odd >> 16)
            # Rows behind the end have points that the next slab writes.
            ended = tack.block_max(row_start + own_points if has_row and own_row < end else 0)
            q = lane
            while q < total:
                entry = found[q]
                listed[tile * min(int(SLOTS), length << shift) + q] = u32(entry) | counts[entry & SLOT] << (
                    SLOT_BITS + 2
                )
                q += LANES
            if lane == 0:
                point_count = all_of_them & _LOW
                about[ABOUT * tile] = total
                about[ABOUT * tile + 1] = i32(all_of_them >> 32)
                about[ABOUT * tile + 2] = ended
                about[ABOUT * tile + 3] = triangle_count
                about[ABOUT * tile + 4] = i32(point_count)
                add(totals, sizes, nans, tile, tiles, triangle_count, point_count, ended)

    return count


@tack.kernel
def sum_tiles(about: Any, totals: Any, sizes: Any, nans: Any, tiles: Any, lanes: Any) -> None:
    """Adds up what `count_kernel` has noted about the tiles, as that does itself where it can."""
    for _ in range(lanes):
        own = tack.local_array(3, i64)  # points of rows before the end, triangles, points
        seen = tack.local_array(2, i64)
        lane = tack.thread_id()
        for n in range(2):
            seen[n] = 0
        for b in range(lane, (tiles + BIN - 1) // BIN, LANES):
            for n in range(3):
                own[n] = 0
                for tile in range(b * BIN, min((b + 1) * BIN, tiles)):
                    own[n] += about[ABOUT * tile + 2 + n]
            for n in range(2):
                totals[2 + 2 * b + n] = u64(own[n + 1])
            seen[0] += own[1]
            seen[1] += own[0]
        triangles = tack.block_sum(seen[0])
        points = tack.block_sum(seen[1])
        if lane == 0:
            totals[0] = u64(triangles) << TILE_BITS
            totals[1] = u64(points) << TILE_BITS
            sizes[0] = triangles
            sizes[1] = points
            sizes[2] = nans[0]
            nans[0] = 0
