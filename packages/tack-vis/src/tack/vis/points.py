"""Kernels that give values to the points of a contour, each of which lies on an edge of the grid.

An edge is 4 times the number of the voxel where it starts, and its axis: 0 for x. ``axes`` holds the
coordinates of the grid along x, then y, then z. All is computed in its dtype, f64 where the device has it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack import DType, Func, Kernel

__all__ = ["field_kernel", "gradient_func", "normal_kernel", "position_kernel"]


@tack.func
def _step(axis: Any, ny: Any, nx: Any) -> Any:
    """From a voxel to its neighbour along an axis."""
    if axis == 0:
        return 1
    return nx if axis == 1 else nx * ny


@cache
def position_kernel(real: DType) -> Kernel:
    """Where the points from ``first`` on are."""

    @tack.kernel
    def positions(
        volume: Any, axes: Any, edges: Any, points: Any, value: Any, first: Any, end: Any, ny: Any, nx: Any
    ) -> None:
        for p in range(first, end):
            axis = edges[p] & 3
            voxel = edges[p] >> 2
            low = real(volume[voxel])
            t = (real(value) - low) / (real(volume[voxel + _step(axis, ny, nx)]) - low)
            row = voxel // nx
            place = tack.local_array(3, tack.i64)
            place[0] = voxel - row * nx
            place[1] = nx + row % ny
            place[2] = nx + ny + row // ny
            for c in range(3):
                x = axes[place[c]]
                if c == axis:
                    x += t * (axes[place[c] + 1] - x)
                points[3 * p + c] = x

    return positions


@cache
def field_kernel(real: DType) -> Kernel:
    """The values of another field at the points from ``first`` on."""

    @tack.kernel
    def interpolate(
        volume: Any,
        field: Any,
        axes: Any,
        edges: Any,
        out: Any,
        value: Any,
        first: Any,
        end: Any,
        ny: Any,
        nx: Any,
    ) -> None:
        for p in range(first, end):
            voxel = edges[p] >> 2
            other = voxel + _step(edges[p] & 3, ny, nx)
            low = real(volume[voxel])
            t = (real(value) - low) / (real(volume[other]) - low)
            start = real(field[voxel])
            out[p] = start + t * (real(field[other]) - start)

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
def normal_kernel(real: DType) -> Kernel:
    """Unit vectors against the gradient at the points from ``first`` on, interpolated between voxels."""

    gradient = gradient_func(real)

    @tack.kernel
    def unit_normals(
        volume: Any, axes: Any, edges: Any, normals: Any, value: Any, first: Any, end: Any,
        nz: Any, ny: Any, nx: Any,
    ) -> None:  # fmt: skip
        for p in range(first, end):
            voxel = edges[p] >> 2
            other = voxel + _step(edges[p] & 3, ny, nx)
            low = real(volume[voxel])
            t = (real(value) - low) / (real(volume[other]) - low)
            x0, y0, z0 = gradient(volume, axes, voxel, nz, ny, nx)
            x1, y1, z1 = gradient(volume, axes, other, nz, ny, nx)
            x = x0 + t * (x1 - x0)
            y = y0 + t * (y1 - y0)
            z = z0 + t * (z1 - z0)
            length = tack.sqrt(x * x + y * y + z * z)
            scale = -1 / length if length > 0 else real(0)
            normals[3 * p] = x * scale
            normals[3 * p + 1] = y * scale
            normals[3 * p + 2] = z * scale

    return unit_normals
