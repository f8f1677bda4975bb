"""Where triangles and points go, and what they are: see `tack.vis.groups`."""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Func, Kernel, i32, i64, u32, u64
from tack.algorithms.groups.tiles import LANES
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
    load_words,
    place_of,
    running_sums,
    usable_func,
)
from tack.vis.points import point_func

__all__ = ["SIDE", "corner_kernel", "finish_kernel", "place_kernel"]

SIDE = tack.constant(128)  # lanes side by side that have the same to do
_CELL = tack.constant(64 * int(SLOTS) - 1)  # the bits of a slot, and 6 of a cell


@cache
def place_kernel(masked: bool, wide: DType, coordinate: DType, integer: DType) -> Kernel:
    """Writes to each triangle's place which one it is, and to each point's the edge that it is on.

    Where there are more of either than there is room for, it writes nothing. ``written`` gets how many
    triangles and points it has written, and ``firsts`` how many points come before each tile.

    Points are numbered from ``first_point`` on, triangles from ``first_triangle``. The edge is in the memory
    of the point's coordinates, of dtype ``coordinate``, as three of ``integer``: 4 i + axis, j and k, where
    ``slab`` is the k of the first row. A triangle's memory has its tile, and then bits: 11 of the slot, 6 of
    the cell, 12 of the corners.
    """
    usable = usable_func(masked)

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
            fits = totals[0] >> TILE_BITS <= u64(triangle_room) and totals[1] >> TILE_BITS <= u64(point_room)
            if i == 0:
                for n in range(2):
                    written[n] = i64(totals[n] >> TILE_BITS) if fits else i64(0)
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
                    slot = entry & SLOT
                    r, w = place_of(slot, first, start, shift)
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
                            load_words(bits, at, 1, ny, rows, is_last, here, nexts)
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
                    r, w = place_of(what & SLOT, first, start, shift)
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
                for k in range(SHARE):
                    c = SHARE * lane + k
                    if c < many:
                        numbers[c] = own
                        own += cell_list[c] >> (SLOT_BITS + 14)
                sums[lane] = own
                running_sums(sums, lane)
                c = lane
                while c < many:
                    what = cell_list[c]
                    corner = 3 * (goal + sums[c // SHARE] + numbers[c])
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
                    r, w = place_of(what & SLOT, first, start, shift)
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


@cache
def _corner_func(masked: bool, wide: DType, index: DType) -> Func:
    """The device function that writes the corners of triangle t."""
    usable = usable_func(masked)

    @tack.func
    def write_corners(
        bits: Any, cells: Any, before: Any, starts: Any, firsts: Any, triangles: Any, t: Any,
        first_point: Any, rows: Any, ny: Any, shift: Any, parts: Any,
    ) -> None:  # fmt: skip
        tile = u32(triangles[3 * t])
        what = i32(triangles[3 * t + 1])
        block = tile // u32(parts)
        start = i32(tile - block * u32(parts)) * SLOTS
        row, word = place_of(what & SLOT, wide(block) << shift, start, shift)
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
