"""Kernels that give values to the points of a contour, each of which lies on an edge of the grid.

Before a point has its position, its three coordinates hold the edge (`edge_of`), so positions are computed
last. ``axes`` holds the coordinates of the grid along x, then y, then z. All is computed in its dtype, f64
where the device has it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Func, Kernel

__all__ = ["field_kernel", "gradient_func", "normal_kernel", "point_func", "position_kernel", "share_func"]


@cache
def _edge_of(integer: DType) -> Func:
    """The device function that reads point p's edge: the first voxel's i, j and k, and the axis."""

    @tack.func
    def edge_of(points: Any, p: Any) -> Any:
        first = tack.bitcast(points[3 * p], integer)
        j = tack.bitcast(points[3 * p + 1], integer)
        return first >> 2, j, tack.i64(tack.bitcast(points[3 * p + 2], integer)), first & 3

    return edge_of


@tack.func
def _step(axis: Any, ny: Any, nx: Any) -> Any:
    """From a voxel to its neighbour along an axis."""
    if axis == 0:
        return 1
    return nx if axis == 1 else nx * ny


@cache
def share_func(real: DType) -> Func:
    """The device function that gives how far along an edge, from 0 to 1, the volume has the value."""

    @tack.func
    def share(volume: Any, voxel: Any, other: Any, value: Any) -> Any:
        low = real(volume[voxel])
        high = real(volume[other])
        t = (real(value) - low) / (high - low)
        if t != t:  # of an infinite end: the other one, or between two
            t = real(1) if high - high == 0 else real(0.5)
        return t

    return share


@cache
def point_func(real: DType, integer: DType) -> Func:
    """The device function that writes where point p is."""
    edge_of, share = _edge_of(integer), share_func(real)

    @tack.func
    def write_point(volume: Any, axes: Any, points: Any, value: Any, p: Any, ny: Any, nx: Any) -> None:
        i, j, k, axis = edge_of(points, p)
        voxel = (k * ny + j) * nx + i
        t = share(volume, voxel, voxel + _step(axis, ny, nx), value)
        place = tack.local_array(3, tack.i64)
        place[0] = i
        place[1] = nx + j
        place[2] = nx + ny + k
        for c in range(3):
            x = axes[place[c]]
            if c == axis:
                x += t * (axes[place[c] + 1] - x)
            points[3 * p + c] = x

    return write_point


@cache
def position_kernel(real: DType, integer: DType) -> Kernel:
    """Where the points from ``first`` on are."""
    write_point = point_func(real, integer)

    @tack.kernel
    def positions(
        volume: Any, axes: Any, points: Any, value: Any, first: Any, end: Any, ny: Any, nx: Any
    ) -> None:
        for p in range(first, end):
            write_point(volume, axes, points, value, p, ny, nx)

    return positions


@cache
def field_kernel(real: DType, integer: DType) -> Kernel:
    """The values of another field at the points from ``first`` on."""
    edge_of, share = _edge_of(integer), share_func(real)

    @tack.kernel
    def interpolate(
        volume: Any, field: Any, points: Any, out: Any, value: Any, first: Any, end: Any, ny: Any, nx: Any
    ) -> None:
        for p in range(first, end):
            i, j, k, axis = edge_of(points, p)
            voxel = (k * ny + j) * nx + i
            other = voxel + _step(axis, ny, nx)
            start = real(field[voxel])
            out[p] = start + share(volume, voxel, other, value) * (real(field[other]) - start)

    return interpolate


@cache
def gradient_func(real: DType) -> Func:
    """The device function that gives a voxel's derivatives along x, y and z."""

    @tack.func
    def slope(volume: Any, axes: Any, voxel: Any, at: Any, first: Any, count: Any, step: Any) -> Any:
        """The derivative along an axis, between the neighbours that there are and that are not NaN."""
        back = 1 if at > 0 else 0
        ahead = 1 if at + 1 < count else 0
        before = real(volume[voxel - back * step])
        after = real(volume[voxel + ahead * step])
        if before != before:
            back = 0
            before = real(volume[voxel])
        if after != after:
            ahead = 0
            after = real(volume[voxel])
        run = axes[first + at + ahead] - axes[first + at - back]
        return (after - before) / run if back + ahead > 0 else real(0)

    @tack.func
    def gradient(volume: Any, axes: Any, voxel: Any, nz: Any, ny: Any, nx: Any) -> Any:
        row = voxel // nx
        x = slope(volume, axes, voxel, voxel - row * nx, 0, nx, 1)
        y = slope(volume, axes, voxel, row % ny, nx, ny, nx)
        z = slope(volume, axes, voxel, row // ny, nx + ny, nz, nx * ny)
        return x, y, z

    return gradient


@cache
def normal_kernel(real: DType, integer: DType) -> Kernel:
    """Unit vectors against the gradient at the points from ``first`` on, interpolated between voxels."""
    edge_of, share, gradient = _edge_of(integer), share_func(real), gradient_func(real)

    @tack.kernel
    def unit_normals(
        volume: Any, axes: Any, points: Any, normals: Any, value: Any, first: Any, end: Any,
        nz: Any, ny: Any, nx: Any,
    ) -> None:  # fmt: skip
        for p in range(first, end):
            i, j, k, axis = edge_of(points, p)
            voxel = (k * ny + j) * nx + i
            other = voxel + _step(axis, ny, nx)
            t = share(volume, voxel, other, value)
            x0, y0, z0 = gradient(volume, axes, voxel, nz, ny, nx)
            x1, y1, z1 = gradient(volume, axes, other, nz, ny, nx)
            x = x0 + t * (x1 - x0)
            y = y0 + t * (y1 - y0)
            z = z0 + t * (z1 - z0)
            length = tack.sqrt(x * x + y * y + z * z)
            known = length > 0 and length - length == 0  # not beside an infinite voxel
            scale = -1 / length if known else real(0)
            normals[3 * p] = x * scale if known else scale
            normals[3 * p + 1] = y * scale if known else scale
            normals[3 * p + 2] = z * scale if known else scale

    return unit_normals
