"""Filters on volumes and surfaces besides contours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import tack
from tack.algorithms import searchsorted, sort_by_key, where
from tack.dtypes import DType, f32, f64, u8
from tack.lang.kernel import Kernel
from tack.vis.contour import contour
from tack.vis.grids import as_volume, grid_axes
from tack.vis.mesh import Mesh
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
    real = f64 if grid._backend.supports_f64 else f32
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
    _mean_of_points(_float_of(grid))(grid, out, *cells, *grid.shape[1:])
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
    _mean_of_cells(_float_of(grid))(grid, out, *grid.shape)
    return out


def threshold(
    volume: Any, low: float = -math.inf, high: float = math.inf, *, every: bool = True
) -> tack.Array:
    """The flat indices of cells whose points have values from ``low`` to ``high``, ascending.

    The grid of cells is (nz - 1, ny - 1, nx - 1).

    Args:
        every: whether all eight points must have such values, or one is enough. NaN has none.
    """
    grid = as_volume("threshold", "volume", volume)
    cells = tuple(max(0, n - 1) for n in grid.shape)
    chosen = tack.empty(math.prod(cells), u8, device=grid.device)
    limits = tack.asarray(
        np.array([low, high]), f64 if grid._backend.supports_f64 else f32, device=grid.device
    )
    _cells_within(grid, chosen, limits, *cells, *grid.shape[1:], 8 if every else 1)
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

    Points are where the plane crosses grid edges, and ``point_data["values"]`` is the volume there. Other
    arguments are those of `contour`.
    """
    grid = as_volume("slice_plane", "volume", volume)
    direction = np.asarray(normal, np.float64)
    place = np.asarray(point, np.float64)
    if direction.shape != (3,) or place.shape != (3,) or not np.isfinite([direction, place]).all():
        raise ValueError("slice_plane: point and normal are three finite numbers each")
    length = float(np.linalg.norm(direction))
    if length == 0:
        raise ValueError("slice_plane: the normal has no direction")
    real = f64 if grid._backend.supports_f64 else f32
    axes = grid_axes("slice_plane", grid, spacing, origin, coordinates, real)
    distance = tack.empty(grid.shape, real, device=grid.device)
    nx, ny, nz = (direction / length).tolist()
    _plane_distance(axes, distance, nx, ny, nz, float(direction @ place / length), *grid.shape)
    about = {"spacing": spacing, "origin": origin, "coordinates": coordinates}
    return contour(distance, 0.0, fields={"values": grid}, **about)  # type: ignore[arg-type]


def surface_normals(mesh: Mesh) -> tack.Array:
    """Unit normals at a mesh's points, (n, 3): the mean of the triangles' around each, weighted by area.

    They point to the side from which the triangles are counterclockwise. A point without triangles has 0.
    """
    points, triangles = mesh.points, mesh.triangles
    count, corners = points.shape[0], triangles.size
    device = points.device
    numbers = tack.arange(0, count + 1, dtype=triangles.scalar, device=device)
    faces = tack.empty(corners, triangles.scalar, device=device)
    _face_numbers(faces, corners)
    # The faces around each point in order, so that sums have the same bits on every run.
    owners, around = sort_by_key(triangles, faces)
    starts = searchsorted(owners, numbers)
    normals = tack.empty((count, 3), points.scalar, device=device)
    _mean_normals(points, triangles, around, starts, normals, count)
    return normals


def _float_of(array: tack.Array) -> DType:
    return f64 if array.scalar is f64 else f32


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


@tack.kernel
def _cells_within(
    volume: Any, chosen: Any, limits: Any, cz: Any, cy: Any, cx: Any, ny: Any, nx: Any, least: Any
) -> None:
    for k, j, i in tack.ndindex(cz, cy, cx):
        count = 0
        for c in range(8):
            value = volume[((k + c // 4) * ny + j + c // 2 % 2) * nx + i + c % 2]
            count += value >= limits[0] and value <= limits[1]
        chosen[(k * cy + j) * cx + i] = count >= least


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


@tack.kernel
def _mean_normals(points: Any, triangles: Any, around: Any, starts: Any, normals: Any, count: Any) -> None:
    for p in range(count):
        x = points[3 * p] * 0
        y = x
        z = x
        for s in range(starts[p], starts[p + 1]):
            a = 3 * triangles[3 * around[s]]
            b = 3 * triangles[3 * around[s] + 1]
            c = 3 * triangles[3 * around[s] + 2]
            ux = points[b] - points[a]
            uy = points[b + 1] - points[a + 1]
            uz = points[b + 2] - points[a + 2]
            vx = points[c] - points[a]
            vy = points[c + 1] - points[a + 1]
            vz = points[c + 2] - points[a + 2]
            x += uy * vz - uz * vy
            y += uz * vx - ux * vz
            z += ux * vy - uy * vx
        length = tack.sqrt(x * x + y * y + z * z)
        scale = 1 / length if length > 0 else length
        normals[3 * p] = x * scale
        normals[3 * p + 1] = y * scale
        normals[3 * p + 2] = z * scale
