"""The passes of flying edges behind the classification as GPUs run them.

They have what `tack.vis.flying_edges` has for CPUs, in such a way that lanes have the same to do, however the
surface lies:

1. `count_kernel` has a *tile* of rows for each workgroup. It lists the words with crossed edges, has a lane
   for each of those, and counts triangles and points. Tiles add theirs to a *bin*'s of 64 tiles, and to all;
   `sum_tiles` does that where there are no atomics of 64 bits.
2. `place_kernel` adds up the bins before a tile's, and the tiles before it in its own. It lists the cells
   that the surface cuts and the points, and has a lane for each of those. To where they belong in the mesh it
   writes which triangle of which cell each is, and which edge each point is on.
3. `finish_kernel` has a lane for each triangle and each point, which replaces that by the corners and the
   coordinates. `corner_kernel` has the former alone.

A row is all voxels along x. A tile has 1024 words: a power of two of rows, which ``shift`` is the logarithm
of; rows that are longer have several ``parts``. The order in which words are found does not matter.

Where a volume is in slabs, rows before ``begin`` and from ``end`` on are there for their neighbours: the
former have nothing, and the latter no triangles, and points that are not written.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Func, Kernel, i32, i64, u32, u64
from tack.algorithms.groups.tiles import LANES, shared_add
from tack.vis.bits import lowest
from tack.vis.flying_edges import cut_cells
from tack.vis.points import point_func

__all__ = [
    *("ABOUT", "BATCH", "BIN", "LANES", "SIDE", "SLOTS"),
    *("corner_kernel", "count_kernel", "finish_kernel", "place_kernel", "sum_tiles"),
]

SLOT_BITS = tack.constant(11)
SLOTS = tack.constant(1 << int(SLOT_BITS))  # words of a tile, and cells or points that are listed at a time
BATCH = tack.constant(8)  # words of a row whose points are numbered from one start
SHARE = tack.constant(4)  # words of a lane at a time
TURNS = tack.constant(int(SLOTS) // (int(LANES) * int(SHARE)))
BIN = tack.constant(64)  # tiles whose counts are added up
ABOUT = tack.constant(5)  # what is noted about a tile: see `count_kernel`

SIDE = tack.constant(128)  # lanes side by side that have the same to do
_SLOT = tack.constant(int(SLOTS) - 1)
_CELL = tack.constant(64 * int(SLOTS) - 1)  # the slot, and 6 bits
_LOW = tack.constant(0xFFFFFFFF, i64)
_TILES = tack.constant(26)  # bits of a total that count the tiles in it


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


def _usable_func(masked: bool) -> Func:
    """The device function that gives which edges or cells of a word may be used."""
    return _some if masked else _everything


@tack.func
def _load(bits: Any, at: Any, up: Any, over: Any, rows: Any, is_last: Any, words: Any, nexts: Any) -> None:
    """The word at ``at`` of the four rows around cells, and that of the voxels one further along x."""
    for n in range(4):
        here = at + (n & 1) * up + (n >> 1) * over
        words[n] = bits[here]
        nexts[n] = words[n] >> 1
        if is_last == 0:
            nexts[n] |= bits[here + rows] << 63


@tack.func
def _case_of(words: Any, nexts: Any, i: Any) -> Any:
    """Which corners of cell i are inside: its place in `CUBE_CASES`."""
    case = i32(0)
    for n in range(4):
        two = i32(words[n] >> i) & 3
        if i == 63:
            two |= i32(nexts[n] >> 63) << 1
        case |= two << 2 * n
    return case


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
        words = tack.local_array(4 * SHARE + 4, u64)
        at = tack.local_array(4, wide)
        row = lane & ((1 << shift) - 1)
        r = first + row
        if r < rows:
            up = 1 if u32(line + row) % u32(ny) != u32(ny - 1) else 0
            over = 1 if r + ny < rows else 0
            word = (lane >> shift) * SHARE
            while word < min(SLOTS >> shift, length - start):
                w = start + word
                at[0] = wide(w) * rows + r
                at[1] = at[0] + up
                at[2] = at[0] + over * ny
                at[3] = at[2] + up
                for k in range(SHARE + 1):
                    inside = w + i32(k) < length
                    for n in range(4):
                        words[4 * k + n] = 0
                        if inside:
                            words[4 * k + n] = bits[at[n]]
                        at[n] += rows
                for k in range(SHARE):
                    # Where rows differ at the next word's first voxel, some have a crossed edge before it.
                    here = words[4 * k]
                    along_x = here ^ (here >> 1 | words[4 * k + 4] << 63)
                    if w + i32(k) + 1 >= length:
                        along_x &= lowest(nx - 1 - (length - 1) * 64)
                    if along_x | _any_differ(words, 4 * k) | _any_differ(words, 4 * k + 4) & 1:
                        place = i32(shared_add(number, 0, 1))
                        slot = (word + i32(k)) << shift | row
                        found[place] = slot | up << SLOT_BITS | over << (SLOT_BITS + 1)
                word += (LANES >> shift) * SHARE

    return find


@tack.func
def _place_of(slot: Any, first: Any, start: Any, shift: Any) -> Any:
    """The row and the word that has a slot of a tile."""
    return first + (slot & ((1 << shift) - 1)), start + (slot >> shift)


@tack.func
def _running(values: Any, lane: Any) -> None:
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


@tack.func
def _add(
    totals: Any, sizes: Any, nans: Any, tile: Any, tiles: Any, triangles: Any, points: Any, own: Any
) -> None:
    """Adds a tile's triangles and points to its bin's, and to all, of which ``own`` points are.

    A total says how many tiles are in it: the last one knows what all have, and tells the host.
    """
    every = (u64(1) << _TILES) - 1
    tack.atomic_add(totals, 2 + tile // BIN * 2, u64(triangles))
    tack.atomic_add(totals, 3 + tile // BIN * 2, u64(points))
    seen = tack.atomic_add(totals, 0, u64(triangles) << _TILES | 1)
    if (seen & every) + 1 == u64(tiles):
        sizes[0] = i64(seen >> _TILES) + triangles
        sizes[2] = nans[0]
        nans[0] = 0
    seen = tack.atomic_add(totals, 1, u64(own) << _TILES | 1)
    if (seen & every) + 1 == u64(tiles):
        sizes[1] = i64(seen >> _TILES) + own


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
    usable, find = _usable_func(masked), _find_func(wide)
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
            for k in range(SHARE * TURNS):
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
                r, w = _place_of(entry & _SLOT, first, start, shift)
                over = (entry >> (SLOT_BITS + 1)) * ny
                down = 1 if u32(line + i32(r - first)) % u32(ny) > 0 else 0
                under = ny if r >= ny else 0
                at = wide(w) * rows + r
                columns = lowest(nx - 1 - w * 64)
                _load(bits, at, entry >> SLOT_BITS & 1, over, rows, 1 if w + 1 == length else 0, here, nexts)
                x = (here[0] ^ nexts[0]) & columns & usable(cells, 0, at, w, rows, down, under)
                y = (here[0] ^ here[1]) & usable(cells, 1, at, w, rows, down, under)
                z = (here[0] ^ here[2]) & usable(cells, 2, at, w, rows, down, under)
                packed = u32(tack.popcount(x)) | u32(tack.popcount(y)) << 8 | u32(tack.popcount(z)) << 16
                if entry >> SLOT_BITS == 3 and r >= begin and r < end:
                    cut = cut_cells(here, nexts) & columns & usable(cells, 3, at, w, rows, down, under)
                    packed |= u32(tack.popcount(cut)) << 24
                    while cut:
                        case = _case_of(here, nexts, tack.ctz(cut))
                        triangles += i32(cases[case]) & 15
                        cut &= cut - 1
                if r >= begin:
                    counts[entry & _SLOT] = packed
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
                _running(sums, lane)
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
                listed[tile * min(int(SLOTS), length << shift) + q] = u32(entry) | counts[entry & _SLOT] << (
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


@cache
def place_kernel(masked: bool, wide: DType, coordinate: DType, integer: DType) -> Kernel:
    """Writes to each triangle's place which one it is, and to each point's the edge that it is on.

    Where there are more of either than there is room for, it writes nothing. ``written`` gets how many
    triangles and points it has written, and ``firsts`` how many points come before each tile.

    Points are numbered from ``first_point`` on, triangles from ``first_triangle``. The edge is in the memory
    of the point's coordinates, of dtype ``coordinate``, as three of ``integer``: 4 i + axis, j and k, where
    ``slab`` is the k of the first row. A triangle's memory has its tile, and then bits: 10 of the slot, 6 of
    the cell, 12 of the corners.
    """
    usable = _usable_func(masked)

    @tack.kernel
    def place(
        bits: Any, cells: Any, cases: Any, before: Any, starts: Any, listed: Any, about: Any, totals: Any,
        firsts: Any, written: Any, points: Any, triangles: Any, first_point: Any, first_triangle: Any,
        point_room: Any, triangle_room: Any, slab: Any, begin: Any, end: Any, rows: Any, ny: Any, nx: Any,
        length: Any, shift: Any, parts: Any, tiles: Any, lanes: Any,
    ) -> None:  # fmt: skip
        for i in range(lanes):
            cell_list = tack.shared(SLOTS, i32)  # some cells in their order: slot, bit, case and triangles
            point_list = tack.shared(SLOTS, i32)  # some points: slot, bit and axis
            numbers = tack.shared(SLOTS, i32)  # of a cell's first triangle among its lane's
            sums = tack.shared(LANES + 17, i64)
            here = tack.local_array(4, u64)
            nexts = tack.local_array(4, u64)
            lane = tack.thread_id()
            tile = i // LANES
            fits = totals[0] >> _TILES <= u64(triangle_room) and totals[1] >> _TILES <= u64(point_room)
            if i == 0:
                for n in range(2):
                    written[n] = i64(totals[n] >> _TILES) if fits else i64(0)
            total = about[ABOUT * tile]
            cell_count = about[ABOUT * tile + 1]
            point_count = about[ABOUT * tile + 2]
            most = tack.block_max(max(cell_count, about[ABOUT * tile + 4]) if fits else 0)
            if most == 0:
                continue
            bins = i32(tile // BIN)
            ahead = tack.local_array(2, i64)
            for n in range(2):
                ahead[n] = 0
                for b in range(lane, bins, LANES):
                    ahead[n] += i64(totals[2 + 2 * b + n])
                if bins * BIN + lane < tile:
                    ahead[n] += about[ABOUT * (bins * BIN + lane) + 3 + n]
            triangles_ahead = tack.block_sum(ahead[0])
            points_ahead = tack.block_sum(ahead[1])
            if lane == 0:
                firsts[tile] = points_ahead
            block = u32(tile) // u32(parts)
            first = wide(block) << shift
            start = i32(u32(tile) - block * u32(parts)) * SLOTS
            plane = i32(first // ny)
            line = i32(first - wide(plane) * ny)
            goal = first_triangle + triangles_ahead
            first_coordinate = 3 * (first_point + points_ahead)
            listed_at = tile * min(int(SLOTS), length << shift)
            listed_from = 0
            while listed_from < most:
                task = lane
                while task < 2 * total:  # first the cells of all words, and then the points
                    has_cells = task < total
                    entry = i32(listed[listed_at + (task if has_cells else task - total)])
                    task += LANES
                    slot = entry & _SLOT
                    r, w = _place_of(slot, first, start, shift)
                    over = (entry >> (SLOT_BITS + 1) & 1) * ny
                    if r < begin or r >= end:
                        continue
                    down = 1 if u32(line + i32(r - first)) % u32(ny) > 0 else 0
                    under = ny if r >= ny else 0
                    at = wide(w) * rows + r
                    is_last = 1 if w + 1 == length else 0
                    columns = lowest(nx - 1 - w * 64)
                    if has_cells:
                        to = (entry >> (SLOT_BITS + 2)) - listed_from
                        if entry >> SLOT_BITS & 3 == 3 and to < SLOTS:
                            _load(bits, at, 1, ny, rows, is_last, here, nexts)
                            cut = cut_cells(here, nexts) & columns
                            cut &= usable(cells, 3, at, w, rows, down, under)
                            while cut:
                                if to >= 0 and to < SLOTS:
                                    cell_list[to] = slot | tack.ctz(cut) << SLOT_BITS
                                cut &= cut - 1
                                to += 1
                        continue
                    packed = before[at]
                    word = bits[at]
                    for axis in range(3):
                        to = starts[(3 * wide(w // BATCH) + axis) * rows + r] - listed_from
                        to += i32(packed >> 9 * axis & 511)
                        other = word >> 1
                        if axis > 0:
                            other = bits[at + ((entry >> SLOT_BITS & 1) if axis == 1 else over)]
                        elif is_last == 0:
                            other |= bits[at + rows] << 63
                        edges = (word ^ other) & usable(cells, axis, at, w, rows, down, under)
                        if axis == 0:
                            edges &= columns
                        while edges:
                            if to >= 0 and to < SLOTS:
                                point_list[to] = (
                                    slot | tack.ctz(edges) << SLOT_BITS | i32(axis) << (SLOT_BITS + 6)
                                )
                            edges &= edges - 1
                            to += 1
                tack.barrier()

                # A lane has a cell.
                many = min(int(SLOTS), cell_count - listed_from)
                c = lane
                while c < many:
                    what = cell_list[c]
                    r, w = _place_of(what & _SLOT, first, start, shift)
                    bit = what >> SLOT_BITS
                    at = wide(w) * rows + r
                    case = 0
                    for corner in range(4):
                        row = at + (corner & 1) + (corner >> 1) * ny
                        two = i32(bits[row] >> bit) & 3
                        if bit == 63:
                            two |= i32(bits[row + rows] & 1) << 1
                        case |= two << 2 * corner
                    cell_list[c] = (
                        what | case << (SLOT_BITS + 6) | (i32(cases[case]) & 15) << (SLOT_BITS + 14)
                    )
                    c += LANES
                tack.barrier()
                own = 0
                for k in range(SHARE * TURNS):
                    c = SHARE * TURNS * lane + k
                    if c < many:
                        numbers[c] = own
                        own += cell_list[c] >> (SLOT_BITS + 14)
                sums[lane] = own
                _running(sums, lane)
                c = lane
                while c < many:
                    what = cell_list[c]
                    corner = 3 * (goal + sums[c // (SHARE * TURNS)] + numbers[c])
                    left = cases[what >> (SLOT_BITS + 6) & 255] >> 4
                    for _ in range(what >> (SLOT_BITS + 14)):
                        triangles[corner] = i32(tile)
                        triangles[corner + 1] = what & _CELL | (i32(left) & 4095) << (SLOT_BITS + 6)
                        left >>= 12
                        corner += 3
                    c += LANES
                goal += sums[LANES]

                # A lane has a point.
                t = lane
                while t < min(int(SLOTS), point_count - listed_from):
                    what = point_list[t]
                    r, w = _place_of(what & _SLOT, first, start, shift)
                    j = u32(line + i32(r - first))
                    k = j // u32(ny)
                    at = first_coordinate + 3 * (listed_from + t)
                    edge = 4 * (64 * w + (what >> SLOT_BITS & 63)) + (what >> (SLOT_BITS + 6))
                    points[at] = tack.bitcast(integer(edge), coordinate)
                    points[at + 1] = tack.bitcast(integer(j - k * u32(ny)), coordinate)
                    points[at + 2] = tack.bitcast(integer(slab + plane + i32(k)), coordinate)
                    t += LANES
                tack.barrier()
                listed_from += SLOTS

    return place


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
            totals[0] = u64(triangles) << _TILES
            totals[1] = u64(points) << _TILES
            sizes[0] = triangles
            sizes[1] = points
            sizes[2] = nans[0]
            nans[0] = 0


@cache
def _corner_func(masked: bool, wide: DType, index: DType) -> Func:
    """The device function that writes the corners of triangle t."""
    usable = _usable_func(masked)

    @tack.func
    def write_corners(
        bits: Any, cells: Any, before: Any, starts: Any, firsts: Any, triangles: Any, t: Any,
        first_point: Any, rows: Any, ny: Any, shift: Any, parts: Any,
    ) -> None:  # fmt: skip
        tile = u32(triangles[3 * t])
        what = i32(triangles[3 * t + 1])
        block = tile // u32(parts)
        start = i32(tile - block * u32(parts)) * SLOTS
        row, word = _place_of(what & _SLOT, wide(block) << shift, start, shift)
        rest = what >> (SLOT_BITS + 6)
        for c in range(3):
            # Edges 0 to 3 are along x, two along y and two along z; the second ones are those of a row
            # further along y, or along z.
            n = rest >> 1 & 7
            axis = 0 if n < 4 else n // 2 - 1
            r = row + (n & 1) * (ny if axis == 1 else 1)
            if axis == 0:
                r += (n >> 1) * ny
            x = (what >> SLOT_BITS & 63) + (1 - (rest & 1))
            w = word + (x >> 6)
            at = wide(w) * rows + r
            here = bits[at]
            other = here >> 1  # without the last voxel's, behind which there is no edge to count
            if axis > 0:
                other = bits[at + (1 if axis == 1 else ny)]
            down = 1 if r % ny > 0 else 0
            under = ny if r >= ny else 0
            on = (here ^ other) & usable(cells, axis, at, w, rows, down, under)
            number = tack.popcount(on & ((u64(1) << (x & 63)) - 1)) + i32(before[at] >> 9 * axis & 511)
            number += starts[(3 * wide(w // BATCH) + axis) * rows + r]
            tile_of_row = (r >> shift) * parts + w // SLOTS
            triangles[3 * t + c] = index(first_point + firsts[tile_of_row] + number)
            rest >>= 4

    return write_corners


@cache
def corner_kernel(masked: bool, wide: DType, index: DType) -> Kernel:
    """Writes the corners of triangles, of dtype ``index``, from number ``first`` up to ``last``.

    ``first_point`` is the number of the first point that `place_kernel` found.
    """
    write_corners = _corner_func(masked, wide, index)

    @tack.kernel
    def corners(
        bits: Any, cells: Any, before: Any, starts: Any, firsts: Any, triangles: Any,
        first_point: Any, first: Any, last: Any, rows: Any, ny: Any, shift: Any, parts: Any,
    ) -> None:  # fmt: skip
        for t in range(first, last):
            write_corners(
                bits, cells, before, starts, firsts, triangles, t, first_point, rows, ny, shift, parts
            )

    return corners


@cache
def finish_kernel(real: DType, integer: DType, wide: DType, index: DType) -> Kernel:
    """Writes the corners of the triangles and the positions of the points that ``written`` says there are.

    Of three blocks of lanes two have triangles and one has points, as a closed surface has twice as many: the
    former wait for arithmetic, and the latter for the volume.
    """
    write_corners, write_point = _corner_func(False, wide, index), point_func(real, integer)

    @tack.kernel
    def finish(
        volume: Any, axes: Any, bits: Any, before: Any, starts: Any, firsts: Any, triangles: Any, points: Any,
        written: Any, value: Any, rows: Any, ny: Any, nx: Any, shift: Any, parts: Any, lanes: Any,
    ) -> None:  # fmt: skip
        for i in range(lanes):
            block = u32(i // SIDE)
            three = block // 3
            kind = block - 3 * three
            if kind < 2:
                t = i64(2 * three + kind) * SIDE + i % SIDE
                if t < written[0]:
                    write_corners(bits, bits, before, starts, firsts, triangles, t, 0, rows, ny, shift, parts)
            else:
                p = i64(three) * SIDE + i % SIDE
                if p < written[1]:
                    write_point(volume, axes, points, value, p, ny, nx)

    return finish
