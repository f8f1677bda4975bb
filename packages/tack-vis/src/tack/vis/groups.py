"""The passes of flying edges behind the classification as GPUs run them: by workgroups.

Three kernels have what `tack.vis.flying_edges` has for CPUs. The first and the last look for words with
crossed edges, and then have a lane for each of those that they found:

1. `count_kernel` counts the triangles and points of each row, and adds them up in *tiles* of 128 rows.
2. `sum_tiles`, in one workgroup, adds up the tiles. With that, all places in the mesh are known.
3. `write_kernel` finds where each word's points and triangles are. Then it has a lane for each triangle and
   for each point, so that lanes have the same to do, however the surface lies.

Lists in shared memory tell lanes what they have. The order in which they are filled does not matter: what is
listed says where in the mesh it goes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Func, Kernel, i32, i64, u32, u64
from tack.algorithms.groups.tiles import LANES, lane_scan, shared_add
from tack.vis.bits import lowest
from tack.vis.flying_edges import cut_cells

__all__ = ["LANES", "TILE", "count_kernel", "sum_tiles", "write_kernel"]

TILE = tack.constant(128)  # rows
BATCH = tack.constant(8)  # words of a row at a time
FOUND = tack.constant(int(TILE) * int(BATCH))  # the most words with crossed edges among them
EACH = tack.constant(8)  # tiles of a lane at a time
GROUP = tack.constant(64)  # rows that a workgroup writes
WRITTEN = tack.constant(int(GROUP) * int(BATCH))
WORDS = tack.constant(128)  # with crossed edges that it writes at a time, with two lanes each
LISTED = tack.constant(384)  # triangles and points that it writes at once

_both_totals = lane_scan("sum", i64)
_LOW = tack.constant(0xFFFFFFFF, i64)


@tack.func
def _everything(words: Any, at: Any) -> Any:
    return ~u64(0)


@tack.func
def _some(words: Any, at: Any) -> Any:
    return words[at]


def _usable_func(masked: bool) -> Func:
    """The device function that gives which bits of a word may be used."""
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
        case |= (i32(words[n] >> i) & 1 | (i32(nexts[n] >> i) & 1) << 1) << 2 * n
    return case


@tack.func
def _any_differ(words: Any, n: Any) -> Any:
    """The bits in which four words from n on are not the same."""
    return (words[n] ^ words[n + 1]) | (words[n + 2] ^ words[n + 3]) | (words[n] ^ words[n + 2])


@cache
def _find_func(height: int) -> Func:
    """The device function that lists which words have crossed edges of cells.

    It looks at ``height`` rows from ``first`` on, and `BATCH` words of each from ``start`` on. What is listed
    is the row, the word, and whether there are rows further along y and z. ``before`` is the number of rows
    before the first in its plane.
    """
    group = tack.constant(height)
    share = tack.constant(int(BATCH) * height // int(LANES))  # words of a lane

    @tack.func
    def find(
        bits: Any, found: Any, number: Any, lane: Any, first: Any, before: Any, start: Any,
        rows: Any, ny: Any, nx: Any, length: Any,
    ) -> None:  # fmt: skip
        words = tack.local_array(4 * share + 4, u64)
        row = lane % group
        r = first + row
        if r < rows:
            up = 1 if u32(before + row) % u32(ny) + 1 < u32(ny) else 0
            over = 1 if r + ny < rows else 0
            word = lane // group * share
            at = i64(start + word) * rows + r
            for k in range(share + 1):
                for n in range(4):
                    words[4 * k + n] = 0
                    if start + word + k < length:
                        words[4 * k + n] = bits[at + (n & 1) * up + (n >> 1) * over * ny]
                at += rows
            for k in range(share):
                # Where rows differ at the next word's first voxel, some have a crossed edge before it.
                here = words[4 * k]
                along_x = (here ^ (here >> 1 | words[4 * k + 4] << 63)) & lowest(
                    nx - 1 - (start + word + k) * 64
                )
                if along_x | _any_differ(words, 4 * k) | _any_differ(words, 4 * k + 4) & 1:
                    place = i32(shared_add(number, 0, 1))
                    found[place] = row | (word + k) << 7 | up << 10 | over << 11

    return find


@cache
def count_kernel(masked: bool) -> Kernel:
    """Counts triangles and points.

    ``starts`` gets for each row, one ``stride`` after the other, how many triangles of its tile come before
    its own, and how many points before those along x, y and z. ``totals`` gets the triangles of each tile,
    and behind them the points.
    """
    usable = _usable_func(masked)
    find = _find_func(int(TILE))

    @tack.kernel
    def count(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, cases: Any, starts: Any, totals: Any,
        rows: Any, ny: Any, nx: Any, length: Any, stride: Any, lanes: Any,
    ) -> None:  # fmt: skip
        for i in range(lanes):
            counts = tack.shared((4, TILE), u32)
            found = tack.shared(FOUND, i32)
            number = tack.shared(1, u32)
            sums = tack.shared((2, LANES), i64)
            words = tack.local_array(4, u64)
            nexts = tack.local_array(4, u64)
            lane = tack.thread_id()
            tile = i // LANES
            first = tile * TILE
            before = i32(first % ny)
            for k in range(2):
                counts[2 * k + lane // TILE, lane % TILE] = 0
            start = 0
            while start < length:
                if lane == 0:
                    number[0] = 0
                tack.barrier()
                find(bits, found, number, lane, first, before, start, rows, ny, nx, length)
                tack.barrier()
                q = lane
                while q < i32(number[0]):
                    entry = found[q]
                    row = entry & 127
                    w = start + (entry >> 7 & 7)
                    up = entry >> 10 & 1
                    over = (entry >> 11) * ny
                    at = i64(w) * rows + first + row
                    columns = lowest(nx - 1 - w * 64)
                    _load(bits, at, up, over, rows, 1 if w + 1 == length else 0, words, nexts)
                    triangles = 0
                    cut = cut_cells(words, nexts) & columns & usable(cells, at)
                    if up == 0 or over == 0:
                        cut = u64(0)
                    while cut:
                        triangles += i32(cases[_case_of(words, nexts, tack.ctz(cut))]) & 15
                        cut &= cut - 1
                    shared_add(counts, (0, row), triangles)
                    shared_add(
                        counts, (1, row), tack.popcount((words[0] ^ nexts[0]) & columns & usable(xs, at))
                    )
                    shared_add(counts, (2, row), tack.popcount((words[0] ^ words[1]) & usable(ys, at)))
                    shared_add(counts, (3, row), tack.popcount((words[0] ^ words[2]) & usable(zs, at)))
                    q += LANES
                tack.barrier()
                start += BATCH
            both = i64(0)  # of the lane's row: triangles, and in the low half points
            if lane < TILE:
                points = counts[1, lane] + counts[2, lane] + counts[3, lane]
                both = i64(counts[0, lane]) << 32 | i64(points)
            place, total = _both_totals(both, sums, lane)
            if lane < TILE:
                starts[first + lane] = place >> 32
                here = place & _LOW
                for n in range(1, 4):
                    starts[n * i64(stride) + first + lane] = here
                    here += counts[n, lane]
            if lane == 0:
                totals[tile] = total >> 32
                totals[lanes // LANES + tile] = total & _LOW

    return count


@tack.kernel
def sum_tiles(totals: Any, nans: Any, bases: Any, sizes: Any, tiles: Any, lanes: Any) -> None:
    """Writes how many triangles come before each tile, then how many points, and behind both what there are.

    ``sizes`` gets that as well, and whether a voxel is NaN, which ``nans`` then no longer says.
    """
    for _ in range(lanes):
        sums = tack.shared((2, LANES), i64)
        own = tack.local_array((2, EACH), i64)
        seen = tack.local_array(2, i64)
        lane = tack.thread_id()
        seen[0] = 0
        seen[1] = 0
        start = 0
        while start < tiles:
            first = start + lane * EACH
            for n in range(2):
                for k in range(EACH):
                    own[n, k] = totals[n * tiles + first + k] if first + k < tiles else i64(0)
            for n in range(2):
                here = i64(0)
                for k in range(EACH):
                    here += own[n, k]
                before, all_of_them = _both_totals(here, sums, lane)
                before += seen[n]
                seen[n] += all_of_them
                for k in range(EACH):
                    if first + k < tiles:
                        bases[n * tiles + first + k] = before
                    before += own[n, k]
                tack.barrier()
            start += LANES * EACH
        if lane == 0:
            for n in range(2):
                bases[2 * tiles + n] = seen[n]
                sizes[n] = seen[n]
            sizes[2] = nans[0]
            nans[0] = 0


@cache
def write_kernel(masked: bool, coordinate: DType, integer: DType, index: DType) -> Kernel:
    """Writes the corners of triangles, of dtype ``index``, and for each point the edge that it is on.

    Where there are more of either than there is room for, it writes nothing. ``written[0]`` gets how many
    points it has written.

    Points are numbered from ``first_point`` on, triangles from ``first_triangle``. The edge is in the memory
    of the point's coordinates, of dtype ``coordinate``, as three of ``integer``: 4 i + axis, j and k.
    """
    usable = _usable_func(masked)
    find = _find_func(int(GROUP))

    @tack.func
    def start_of(starts: Any, bases: Any, n: Any, r: Any, stride: Any) -> Any:
        """The number of the first point of row r along an axis, which n - 1 is."""
        return index(bases[stride // TILE + r // TILE] + starts[n * i64(stride) + r])

    @tack.func
    def edges_along_x(words: Any, nexts: Any, xs: Any, at: Any, up: Any, over: Any, edges: Any) -> None:
        for n in range(4):
            edges[n] = (words[n] ^ nexts[n]) & usable(xs, at + (n & 1) * up + (n >> 1) * over)

    @tack.func
    def edges_across(words: Any, ys: Any, zs: Any, at: Any, up: Any, over: Any, edges: Any) -> None:
        for n in range(2):
            edges[n] = (words[2 * n] ^ words[2 * n + 1]) & usable(ys, at + n * over)
            edges[n + 2] = (words[n] ^ words[n + 2]) & usable(zs, at + n * up)

    @tack.kernel
    def write(
        bits: Any, xs: Any, ys: Any, zs: Any, cells: Any, cases: Any, starts: Any, bases: Any, points: Any,
        triangles: Any, written: Any, first_point: Any, first_triangle: Any,
        point_room: Any, triangle_room: Any,
        rows: Any, ny: Any, nx: Any, length: Any, stride: Any, lanes: Any,
    ) -> None:  # fmt: skip
        for i in range(lanes):
            found = tack.shared(WRITTEN, i32)
            # Of each word: crossed edges along x in the four rows, 16 bits each; edges along y here and next
            # along z, and along z here and next along y; and triangles.
            low = tack.shared((BATCH, GROUP), u64)
            high = tack.shared((BATCH, GROUP), u64)
            counts = tack.shared((BATCH, GROUP), i32)
            earlier = tack.shared((9, GROUP), i32)  # the same of each row in earlier batches
            edges = tack.shared((8, WORDS), u64)  # which edges of these are crossed
            firsts = tack.shared((8, WORDS), index)  # the number of the first point on them
            triangle_list = tack.shared(LISTED, u64)
            point_list = tack.shared(LISTED, i32)
            numbers = tack.shared(3, u32)  # of words, triangles and points
            words = tack.local_array(4, u64)
            nexts = tack.local_array(4, u64)
            on = tack.local_array(4, u64)
            lane = tack.thread_id()
            first = i // LANES * GROUP
            tile = first // TILE
            tiles = stride // TILE
            some = 0
            if lane == 0:
                fits = bases[2 * tiles] <= triangle_room and bases[2 * tiles + 1] <= point_room
                if first == 0:
                    written[0] = bases[2 * tiles + 1] if fits else i64(0)
                for n in range(2):
                    after = n * tiles + tile + 1
                    if tile + 1 == tiles:
                        after = i64(2 * tiles + n)
                    behind_last = bases[after]
                    if (first & 64) == 0:
                        behind_last = bases[n * tiles + tile] + starts[n * i64(stride) + first + GROUP]
                    if fits and behind_last > bases[n * tiles + tile] + starts[n * i64(stride) + first]:
                        some = 1
            if tack.block_max(some) == 0:
                continue
            plane = i32(first // ny)
            line = i32(first - i64(plane) * ny)  # the row's number in its plane
            slot = lane % WORDS
            side = lane // WORDS
            begin = first_triangle + bases[tile]
            if lane < GROUP:
                for n in range(9):
                    earlier[n, lane] = 0
            start = 0
            while start < length:
                for n in range(2):
                    word = 4 * n + lane // GROUP
                    low[word, lane % GROUP] = 0
                    high[word, lane % GROUP] = 0
                    counts[word, lane % GROUP] = 0
                if lane == 0:
                    numbers[0] = 0
                tack.barrier()
                find(bits, found, numbers, lane, first, line, start, rows, ny, nx, length)
                tack.barrier()
                total = tack.block_max(i32(numbers[0]))
                q = lane
                while q < total:
                    entry = found[q]
                    row = entry & 127
                    word = entry >> 7 & 7
                    w = start + word
                    up = entry >> 10 & 1
                    over = (entry >> 11) * ny
                    at = i64(w) * rows + first + row
                    columns = lowest(nx - 1 - w * 64)
                    _load(bits, at, up, over, rows, 1 if w + 1 == length else 0, words, nexts)
                    edges_along_x(words, nexts, xs, at, up, over, on)
                    packed = u64(0)
                    for n in range(4):
                        packed |= u64(tack.popcount(on[n] & columns)) << 16 * n
                    low[word, row] = packed
                    edges_across(words, ys, zs, at, up, over, on)
                    packed = u64(0)
                    for n in range(4):
                        packed |= u64(tack.popcount(on[n])) << 16 * n
                    high[word, row] = packed
                    if entry >> 10 == 3:
                        cut = cut_cells(words, nexts) & columns & usable(cells, at)
                        count = 0
                        while cut:
                            count += i32(cases[_case_of(words, nexts, tack.ctz(cut))]) & 15
                            cut &= cut - 1
                        counts[word, row] = count
                    q += LANES
                tack.barrier()
                chunk = 0
                while chunk < total:
                    if lane == 0:
                        numbers[1] = 0
                        numbers[2] = 0
                    tack.barrier()
                    cut = u64(0)
                    left = u64(0)
                    place = 0  # in the list
                    count = 0
                    target = 0  # in the mesh, from the tile's first on
                    if chunk + slot < total:
                        entry = found[chunk + slot]
                        row = entry & 127
                        word = entry >> 7 & 7
                        w = start + word
                        r = first + row
                        up = entry >> 10 & 1
                        over = (entry >> 11) * ny
                        at = i64(w) * rows + r
                        _load(bits, at, up, over, rows, 1 if w + 1 == length else 0, words, nexts)
                        columns = lowest(nx - 1 - w * 64)
                        before = u64(0)  # how many points the row's words before have
                        if side == 0:
                            edges_along_x(words, nexts, xs, at, up, over, on)
                            for v in range(word):
                                before += low[v, row]
                            for n in range(4):
                                edges[n, slot] = on[n] & columns
                                there = r + (n & 1) * up + (n >> 1) * over
                                number = first_point + start_of(starts, bases, 1, there, stride)
                                firsts[n, slot] = number + earlier[n, row] + i32(before >> 16 * n & 0xFFFF)
                            if entry >> 10 == 3:
                                cut = cut_cells(words, nexts) & columns & usable(cells, at)
                            count = counts[word, row]
                            target = starts[r] + earlier[8, row]
                            for v in range(word):
                                target += counts[v, row]
                            place = i32(shared_add(numbers, 1, count))
                        else:
                            edges_across(words, ys, zs, at, up, over, on)
                            for v in range(word):
                                before += high[v, row]
                            for n in range(4):
                                edges[n + 4, slot] = on[n]
                                there = r + (n & 1) * (up if n > 1 else over)
                                number = first_point + start_of(starts, bases, 2 + n // 2, there, stride)
                                firsts[n + 4, slot] = (
                                    number + earlier[n + 4, row] + i32(before >> 16 * n & 0xFFFF)
                                )
                            left = (words[0] ^ nexts[0]) & columns & usable(xs, at)
                            count = tack.popcount(left) + tack.popcount(on[0]) + tack.popcount(on[2])
                            place = i32(shared_add(numbers, 2, count))
                    tack.barrier()
                    most = tack.block_max(i32(max(numbers[1], numbers[2])))
                    done = 0
                    while done < most:
                        to = place - done
                        if to < LISTED and to + count > 0:
                            if side == 0:
                                # The word, the bit of the cell, the case, the triangle; where it goes.
                                goal = target
                                cells_left = cut
                                while cells_left:
                                    bit = tack.ctz(cells_left)
                                    case = _case_of(words, nexts, bit)
                                    end = to + (i32(cases[case]) & 15)
                                    entry = slot | bit << 8 | case << 14
                                    while to < end:
                                        if to >= 0 and to < LISTED:
                                            triangle_list[to] = u64(goal) << 32 | u64(entry)
                                        entry += 1 << 22
                                        goal += 1
                                        to += 1
                                    cells_left &= cells_left - 1
                            else:
                                # The word, the bit of the edge, and the axis.
                                for axis in range(3):
                                    edges_left = left if axis == 0 else edges[2 * axis + 2, slot]
                                    while edges_left:
                                        if to >= 0 and to < LISTED:
                                            point_list[to] = (
                                                slot | tack.ctz(edges_left) << 8 | i32(axis) << 14
                                            )
                                        to += 1
                                        edges_left &= edges_left - 1
                        tack.barrier()
                        q = lane
                        end = min(int(LISTED), i32(numbers[1]) - done)
                        while q < end:
                            what = triangle_list[q]
                            entry = i32(what)
                            corner = 3 * (begin + i32(what >> 32))
                            rest = i32(cases[entry >> 14 & 255] >> (4 + 12 * (entry >> 22)))
                            # The edges before the cell's own, and before those one further along x.
                            less = (u64(1) << (entry >> 8 & 63)) - 1
                            for c in range(3):
                                behind = less if rest & 1 else less + less + 1
                                n = rest >> 1 & 7
                                on_edge = edges[n, entry & 127] & behind
                                triangles[corner + c] = firsts[n, entry & 127] + tack.popcount(on_edge)
                                rest >>= 4
                            q += LANES
                        q = lane
                        end = min(int(LISTED), i32(numbers[2]) - done)
                        while q < end:
                            entry = point_list[q]
                            axis = entry >> 14
                            n = 2 * axis + 2 if axis else 0
                            bit = entry >> 8 & 63
                            on_edge = edges[n, entry & 127] & ((u64(1) << bit) - 1)
                            p = 3 * (i64(firsts[n, entry & 127]) + tack.popcount(on_edge))
                            entry = found[chunk + (entry & 127)]
                            j = u32(line + (entry & 127))
                            k = j // u32(ny)
                            x = (start + (entry >> 7 & 7)) * 64 + bit
                            points[p] = tack.bitcast(integer(4 * x + axis), coordinate)
                            points[p + 1] = tack.bitcast(integer(j - k * u32(ny)), coordinate)
                            points[p + 2] = tack.bitcast(integer(plane + i32(k)), coordinate)
                            q += LANES
                        tack.barrier()
                        done += LISTED
                    chunk += WORDS
                if lane < GROUP and start + BATCH < length:
                    for v in range(BATCH):
                        for n in range(4):
                            earlier[n, lane] += i32(low[v, lane] >> 16 * n & 0xFFFF)
                            earlier[n + 4, lane] += i32(high[v, lane] >> 16 * n & 0xFFFF)
                        earlier[8, lane] += counts[v, lane]
                tack.barrier()
                start += BATCH

    return write
