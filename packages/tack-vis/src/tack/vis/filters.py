"""Filters on volumes and surfaces besides contours."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import tack
from tack.algorithms import searchsorted, sort_by_key, where
from tack.dtypes import DType, f32, f64, i32, u8
from tack.lang.kernel import Kernel
from tack.vis.contour import contour
from tack.vis.grids import as_numbers, as_volume, grid_axes, grid_ends
from tack.vis.levels import greatest_until, least_from
from tack.vis.mesh import Mesh, as_mesh
from tack.vis.points import gradient_func

__all__ = ["cell_to_point", "gradient", "point_to_cell", "slice_plane", "surface_normals", "threshold"]


def gradient(
    volume: Any, *, spacing: Sequence[float] = (1.0, 1.0, 1.0), coordinates: Sequence[Any] | None = None
) -> tack.Array:
    """The derivatives of a volume along x, y and z: an array of shape (nz, ny, nx, 3).

    They are differences of the neighbours on both sides, or of the point and its one neighbour at the grid's
    ends and beside a NaN; 0 along an axis without neighbours. The result is f64 if the volume is, else f32.

    Args:
        volume: (nz, ny, nx), x last.
        spacing: distances between grid points along x, y and z.
        coordinates: for a rectilinear grid instead: increasing x, y and z of its planes.
    """
    grid = as_volume("gradient", "volume", volume)
    real = _real_of(grid)
    axes = grid_axes("gradient", grid, spacing, (0.0, 0.0, 0.0), coordinates, real)
    out = tack.empty((*grid.shape, 3), _float_of(grid), device=grid.device)
    _gradient_kernel(real)(grid, axes, out, *grid.shape)
    return out


def point_to_cell(values: Any) -> tack.Array:
    """The mean of each cell's eight points: (nz, ny, nx) gives (nz - 1, ny - 1, nx - 1).

    The result is f64 if the values are, else f32.
    """
    grid = as_volume("point_to_cell", "values", values)
    cells = tuple(max(0, n - 1) for n in grid.shape)
    out = tack.empty(cells, _float_of(grid), device=grid.device)
    _mean_of_points(_real_of(grid))(grid, out, *cells, *grid.shape[1:])
    return out


def cell_to_point(values: Any) -> tack.Array:
    """The mean of the one to eight cells around each point: (nz, ny, nx) gives (nz + 1, ny + 1, nx + 1).

    The result is f64 if the values are, else f32.
    """
    grid = as_volume("cell_to_point", "values", values)
    if not grid.size:
        raise ValueError(f"cell_to_point: there are no cells, shape {grid.shape}")
    points = tuple(n + 1 for n in grid.shape)
    out = tack.empty(points, _float_of(grid), device=grid.device)
    _mean_of_cells(_real_of(grid))(grid, out, *grid.shape)
    return out


def threshold(
    volume: Any, low: float = -math.inf, high: float = math.inf, *, every: bool = True
) -> tack.Array:
    """The flat indices of cells whose points have values from ``low`` to ``high``, ascending.

    The grid of cells is (nz - 1, ny - 1, nx - 1). The limits are compared as they are, whatever the dtype.

    Args:
        every: whether all eight points must have such values, or one is enough. NaN has none.

    Raises:
        TypeError: a limit is not a number.
        ValueError: a limit is NaN.
    """
    grid = as_volume("threshold", "volume", volume)
    for name, limit in (("low", low), ("high", high)):
        if not isinstance(limit, int | float | np.number):
            raise TypeError(f"threshold: {name} is a number, not {type(limit).__name__}")
        if limit != limit:
            raise ValueError(f"threshold: {name} is NaN, with which nothing compares")
    least, most = least_from(low, grid.scalar), greatest_until(high, grid.scalar)
    cells = tuple(max(0, n - 1) for n in grid.shape)
    chosen = tack.zeros(math.prod(cells), u8, device=grid.device)
    if least is not None and most is not None:
        _cells_within(grid.scalar)(grid, chosen, least, most, *cells, *grid.shape[1:], 8 if every else 1)
    return where(chosen)


def slice_plane(
    volume: Any,
    point: Sequence[float],
    normal: Sequence[float],
    *,
    spacing: Sequence[float] = (1.0, 1.0, 1.0),
    origin: Sequence[float] = (0.0, 0.0, 0.0),
    coordinates: Sequence[Any] | None = None,
) -> Mesh:
    """The plane through ``point`` with ``normal``, cut to the grid.

    Points are where the plane crosses grid edges, and ``point_data["values"]`` is the volume there, f64 if it
    is, else f32. A plane on the outside of the grid gives that side. One that
    misses the grid gives nothing, and a warning. Other arguments are those of `contour`.

    Raises:
        ValueError: ``point`` or ``normal`` are not three finite numbers, or the normal is 0.
    """
    function = "slice_plane"
    grid = as_volume(function, "volume", volume)
    place = np.array(as_numbers(function, "point", point))
    direction = np.array(as_numbers(function, "normal", normal))
    if not direction.any():
        raise ValueError(f"{function}: the normal has no direction")
    direction /= np.abs(direction).max()  # so that squares are neither 0 nor infinite
    direction /= np.linalg.norm(direction)
    real = _real_of(grid)
    axes = grid_axes(function, grid, spacing, origin, coordinates, real)
    offset = float(direction @ place)
    if min(grid.shape) > 1:
        ends = np.array(grid_ends(grid, spacing, origin, coordinates))
        along = direction[:, None] * ends
        least, most = along.min(axis=1).sum(), along.max(axis=1).sum()
        # A plane that touches the grid is moved into it by what rounding can take it out.
        slack = 16 * np.finfo(real.numpy).eps * np.abs(along).max(axis=1).sum()
        if least - slack <= offset <= most + slack:
            distance = tack.empty(grid.shape, real, device=grid.device)
            inside = float(min(max(offset, least + slack), most - slack))
            _plane_distance(axes, distance, *direction.tolist(), inside, *grid.shape)
            about = {"spacing": spacing, "origin": origin, "coordinates": coordinates}
            return contour(distance, 0.0, fields={"values": grid}, **about)  # type: ignore[arg-type]
        reason = f"misses the grid, which is from {least:g} to {most:g} along the normal; it is at {offset:g}"
    else:
        reason = f"finds no cells in a grid of shape {grid.shape}"
    warnings.warn(f"{function}: the plane {reason}", stacklevel=2)
    nothing = {"values": tack.empty(0, _float_of(grid), device=grid.device)}
    points, triangles = (tack.empty((0, 3), kind, device=grid.device) for kind in (real, i32))
    return Mesh(points, triangles, None, nothing)


def surface_normals(mesh: Mesh) -> tack.Array:
    """Unit normals at a mesh's points, (n, 3): the mean of the triangles' around each, weighted by area.

    They point to the side from which the triangles are counterclockwise. A point without triangles has 0.

    Raises:
        TypeError: it is not a mesh of float points and integer triangles.
        ValueError: a triangle names a point that there is not.
    """
    mesh = as_mesh("surface_normals", mesh)
    points, triangles = mesh.points, mesh.triangles
    count, corners = points.shape[0], triangles.size
    device = points.device
    if corners and not 0 <= triangles.min() <= triangles.max() < count:
        found = f"{triangles.min()} to {triangles.max()}"
        raise ValueError(f"surface_normals: triangles name points {found}; there are {count}")
    numbers = tack.arange(0, count + 1, dtype=triangles.scalar, device=device)
    faces = tack.empty(corners, triangles.scalar, device=device)
    _face_numbers(faces, corners)
    # The faces around each point in order, so that sums have the same bits on every run.
    owners, around = sort_by_key(triangles, faces)
    starts = searchsorted(owners, numbers)
    normals = tack.empty((count, 3), points.scalar, device=device)
    _mean_normals(_real_of(points))(points, triangles, around, starts, normals, count)
    return normals


def _float_of(array: tack.Array) -> DType:
    return f64 if array.scalar is f64 else f32


def _real_of(array: tack.Array) -> DType:
    """The type to compute in on the array's device."""
    return f64 if array._backend.supports_f64 else f32


@cache
def _gradient_kernel(real: DType) -> Kernel:
    derivatives = gradient_func(real)

    @tack.kernel
    def gradients(volume: Any, axes: Any, out: Any, nz: Any, ny: Any, nx: Any) -> None:
        for k, j, i in tack.ndindex(nz, ny, nx):
            voxel = (k * ny + j) * nx + i
            x, y, z = derivatives(volume, axes, voxel, nz, ny, nx)
            out[3 * voxel] = x
            out[3 * voxel + 1] = y
            out[3 * voxel + 2] = z

    return gradients


@cache
def _mean_of_points(real: DType) -> Kernel:
    @tack.kernel
    def mean_of_points(volume: Any, out: Any, cz: Any, cy: Any, cx: Any, ny: Any, nx: Any) -> None:
        for k, j, i in tack.ndindex(cz, cy, cx):
            total = real(0)
            for c in range(8):
                total += real(volume[((k + c // 4) * ny + j + c // 2 % 2) * nx + i + c % 2])
            out[(k * cy + j) * cx + i] = total / 8

    return mean_of_points


@cache
def _mean_of_cells(real: DType) -> Kernel:
    @tack.kernel
    def mean_of_cells(cells: Any, out: Any, cz: Any, cy: Any, cx: Any) -> None:
        for k, j, i in tack.ndindex(cz + 1, cy + 1, cx + 1):
            total = real(0)
            count = 0
            for c in range(8):
                z = k - c // 4
                y = j - c // 2 % 2
                x = i - c % 2
                if z >= 0 and z < cz and y >= 0 and y < cy and x >= 0 and x < cx:
                    total += real(cells[(z * cy + y) * cx + x])
                    count += 1
            out[(k * (cy + 1) + j) * (cx + 1) + i] = total / count

    return mean_of_cells


@cache
def _cells_within(dtype: DType) -> Kernel:
    @tack.kernel
    def cells_within(
        volume: Any,
        chosen: Any,
        least: Any,
        most: Any,
        cz: Any,
        cy: Any,
        cx: Any,
        ny: Any,
        nx: Any,
        needed: Any,
    ) -> None:
        for k, j, i in tack.ndindex(cz, cy, cx):
            count = 0
            for c in range(8):
                value = volume[((k + c // 4) * ny + j + c // 2 % 2) * nx + i + c % 2]
                count += value >= dtype(least) and value <= dtype(most)
            chosen[(k * cy + j) * cx + i] = count >= needed

    return cells_within


@tack.kernel
def _plane_distance(
    axes: Any, out: Any, x: Any, y: Any, z: Any, offset: Any, nz: Any, ny: Any, nx: Any
) -> None:
    for k, j, i in tack.ndindex(nz, ny, nx):
        along = axes[i] * x + axes[nx + j] * y + axes[nx + ny + k] * z
        out[(k * ny + j) * nx + i] = along - offset


@tack.kernel
def _face_numbers(faces: Any, n: Any) -> None:
    for c in range(n):
        faces[c] = c // 3


@cache
def _mean_normals(real: DType) -> Kernel:
    @tack.kernel
    def mean_normals(points: Any, triangles: Any, around: Any, starts: Any, normals: Any, count: Any) -> None:
        for p in range(count):
            x = real(0)
            y = real(0)
            z = real(0)
            for s in range(starts[p], starts[p + 1]):
                a = 3 * tack.i64(triangles[3 * tack.i64(around[s])])
                b = 3 * tack.i64(triangles[3 * tack.i64(around[s]) + 1])
                c = 3 * tack.i64(triangles[3 * tack.i64(around[s]) + 2])
                ux = real(points[b]) - real(points[a])
                uy = real(points[b + 1]) - real(points[a + 1])
                uz = real(points[b + 2]) - real(points[a + 2])
                vx = real(points[c]) - real(points[a])
                vy = real(points[c + 1]) - real(points[a + 1])
                vz = real(points[c + 2]) - real(points[a + 2])
                x += uy * vz - uz * vy
                y += uz * vx - ux * vz
                z += ux * vy - uy * vx
            length = tack.sqrt(x * x + y * y + z * z)
            scale = 1 / length if length > 0 else length
            normals[3 * p] = x * scale
            normals[3 * p + 1] = y * scale
            normals[3 * p + 2] = z * scale

    return mean_normals
