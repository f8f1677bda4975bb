"""Lines of equal value in images, by marching squares: count in each row, scan, write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import tack
from tack.algorithms import exclusive_scan
from tack.dtypes import DType, f32, f64, i32, i64
from tack.lang.kernel import Kernel
from tack.record import Record
from tack.vis.grids import as_grid, as_numbers, as_spacing
from tack.vis.levels import as_levels, least_from
from tack.vis.points import share_func

__all__ = ["Lines", "marching_squares"]


class Lines(Record):
    """Lines with merged points, in arrays on one device.

    Attributes:
        points: (n, 2), f32 or f64: x, y.
        lines: (m, 2), i32, or i64 for more points than that counts: the ends' numbers.
    """

    points: tack.Array
    lines: tack.Array

    def __repr__(self) -> str:
        return f"Lines({self.points.shape[0]} points, {self.lines.shape[0]} lines)"


def marching_squares(
    image: Any,
    values: float | Sequence[float],
    *,
    spacing: Sequence[float] = (1.0, 1.0),
    origin: Sequence[float] = (0.0, 0.0),
) -> Lines:
    """The lines on which ``image`` has the given values.

    Points are merged, and lines that do not leave the grid are closed. Each has the greater values on its
    left, where x points right and y up. Cells with a corner that is NaN have no lines.

    Args:
        image: numbers at the points of a grid, of shape (ny, nx): x is the last axis.
        values: one value or several, whose lines follow each other.
        spacing, origin: distances between grid points, and the position of ``image[0, 0]``: x, y.

    Returns:
        The `Lines`, with points in f64 if the image is, else f32.

    Raises:
        TypeError: ``image`` is not an array of numbers, or ``values`` are none.
        ValueError: it is not 2-D, a value is NaN, or spacing and origin are not two finite numbers, the first
            positive.
    """
    function = "marching_squares"
    grid = as_grid(function, "image", image, 2)
    levels = as_levels(function, values)
    place = np.array([*as_spacing(function, spacing, 2), *as_numbers(function, "origin", origin, 2)])
    real = f64 if grid._backend.supports_f64 else f32
    ny, nx = grid.shape
    about = tack.asarray(place, real, device=grid.device)
    count, write = _kernels(real, grid.scalar)
    parts: list[tuple[float, float, tack.Array, int, int]] = []
    for level in levels:
        least = least_from(level, grid.scalar)
        if least is None:  # no number of the dtype is inside
            continue
        starts = tack.empty(3 * ny + 1, i64, device=grid.device)  # lines, then both kinds of points
        count(grid, starts, least, ny, nx)
        starts[3 * ny] = 0
        _, total = exclusive_scan(starts, out=starts, total=True)
        parts.append((level, least, starts, starts[ny], total - starts[ny]))
    lines = sum(part[3] for part in parts)
    points = sum(part[4] for part in parts)
    found = Lines(
        tack.empty((points, 2), f64 if grid.scalar is f64 and real is f64 else f32, device=grid.device),
        tack.empty((lines, 2), i32 if points <= i32.max else i64, device=grid.device),
    )
    first_line = first_point = 0
    for level, least, starts, line_count, point_count in parts:
        write(grid, about, starts, found.points, found.lines, level, least, first_point, first_line, ny, nx)
        first_line, first_point = first_line + line_count, first_point + point_count
    return found


def _case(case: int) -> int:
    """The lines of a cell: their number, then their edges from and to, four bits each.

    Corner c of the case's bits is at (c & 1, c >> 1). Edges are numbered counterclockwise from the lower one.
    Corners inside that lie on a diagonal are kept apart, as in `contour`.
    """
    inside = [case >> corner & 1 for corner in (0, 1, 3, 2)]  # counterclockwise
    word = count = 0
    for i in range(4):
        if inside[i] and not inside[i - 1]:
            last = i
            while inside[(last + 1) % 4]:
                last += 1
            word |= (last % 4 | (i - 1) % 4 << 4) << 4 + 8 * count
            count += 1
    return word | count


CASES = tack.constant(tuple(_case(case) for case in range(16)), tack.i32)


@cache
def _kernels(real: DType, scalar: DType) -> tuple[Kernel, Kernel]:
    """The kernels that count and that write, computing in ``real``, for images of ``scalar``."""
    share = share_func(real)

    @tack.func
    def usable(image: Any, j: Any, i: Any, ny: Any, nx: Any) -> Any:
        """Whether there is a cell, and none of its corners is NaN."""
        if j < 0 or i < 0 or j + 1 >= ny or i + 1 >= nx:
            return 0
        for c in range(4):
            value = image[(j + c // 2) * nx + i + c % 2]
            if value != value:
                return 0
        return 1

    @tack.func
    def inside(image: Any, at: Any, least: Any) -> Any:
        return i32(image[at] >= scalar(least))

    @tack.func
    def crossed_x(image: Any, least: Any, j: Any, i: Any, ny: Any, nx: Any) -> Any:
        """Whether a line crosses the edge from (j, i) along x."""
        if j >= ny or i + 1 >= nx or inside(image, j * nx + i, least) == inside(image, j * nx + i + 1, least):
            return 0
        return usable(image, j, i, ny, nx) or usable(image, j - 1, i, ny, nx)

    @tack.func
    def crossed_y(image: Any, least: Any, j: Any, i: Any, ny: Any, nx: Any) -> Any:
        """Whether a line crosses the edge from (j, i) along y."""
        if (
            j + 1 >= ny
            or i >= nx
            or inside(image, j * nx + i, least) == inside(image, (j + 1) * nx + i, least)
        ):
            return 0
        return usable(image, j, i, ny, nx) or usable(image, j, i - 1, ny, nx)

    @tack.func
    def lines_of(image: Any, least: Any, j: Any, i: Any, ny: Any, nx: Any) -> Any:
        """The entry of `CASES` for a cell."""
        if not usable(image, j, i, ny, nx):
            return 0
        at = j * nx + i
        low = inside(image, at, least) + 2 * inside(image, at + 1, least)
        return CASES[low + 4 * inside(image, at + nx, least) + 8 * inside(image, at + nx + 1, least)]

    @tack.kernel
    def count(image: Any, counts: Any, least: Any, ny: Any, nx: Any) -> None:
        for j in range(ny):
            x = 0
            y = 0
            lines = 0
            for i in range(nx):
                x += crossed_x(image, least, j, i, ny, nx)
                y += crossed_y(image, least, j, i, ny, nx)
                lines += lines_of(image, least, j, i, ny, nx) & 15
            counts[j] = lines
            counts[ny + 2 * j] = x
            counts[ny + 2 * j + 1] = y

    @tack.kernel
    def write(
        image: Any, about: Any, starts: Any, points: Any, lines: Any, level: Any, least: Any,
        first_point: Any, first_line: Any, ny: Any, nx: Any,
    ) -> None:  # fmt: skip
        for j in range(ny):
            start = first_point - starts[ny]
            x = start + starts[ny + 2 * j]
            y = start + starts[ny + 2 * j + 1]
            above = start + starts[ny + 2 * j + 2]  # the next row's along x
            place = 2 * (first_line + starts[j])
            for i in range(nx):
                at = j * nx + i
                ends = tack.local_array(4, i64)
                ends[0] = x
                ends[1] = y + crossed_y(image, least, j, i, ny, nx)
                ends[2] = above
                ends[3] = y
                rest = lines_of(image, least, j, i, ny, nx)
                for _ in range(2 * (rest & 15)):
                    rest >>= 4
                    lines[place] = ends[rest & 15]
                    place += 1
                if crossed_x(image, least, j, i, ny, nx):
                    t = share(image, at, at + 1, level)
                    points[2 * x] = about[2] + about[0] * (i + t)
                    points[2 * x + 1] = about[3] + about[1] * j
                    x += 1
                if crossed_y(image, least, j, i, ny, nx):
                    t = share(image, at, at + nx, level)
                    points[2 * y] = about[2] + about[0] * i
                    points[2 * y + 1] = about[3] + about[1] * (j + t)
                    y += 1
                above += crossed_x(image, least, j + 1, i, ny, nx)

    return count, write
