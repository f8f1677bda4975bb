"""Surfaces of equal value in volumes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

import tack
from tack.dtypes import DType, f32, f64, i32, i64
from tack.vis.grids import UNIT, ZERO, as_volume, grid_axes
from tack.vis.levels import as_levels, least_from
from tack.vis.mesh import Mesh
from tack.vis.points import field_kernel, normal_kernel, position_kernel
from tack.vis.rows import Mask, Rows, edge_dtype
from tack.vis.tiles import Tiles, tiles_for

__all__ = ["contour"]


def contour(
    volume: Any,
    values: float | Sequence[float],
    *,
    spacing: Sequence[float] = UNIT,
    origin: Sequence[float] = ZERO,
    coordinates: Sequence[Any] | None = None,
    mask: Any = None,
    normals: bool = False,
    scalars: bool = False,
    fields: Mapping[str, Any] | None = None,
) -> Mesh:
    """The surfaces on which ``volume`` has the given values, by the flying-edges method.

    Points are merged, and where the surface does not leave the grid it is closed. Triangles are
    counterclockwise as seen from where the volume is less. All runs on the volume's device; the host waits
    for the sizes alone.

    Args:
        volume: numbers at the points of a grid, of shape (nz, ny, nx): x is the last axis. On the CPU a NumPy
            array is used in place.
        values: one value or several, whose surfaces follow each other in the mesh.
        spacing: distances between grid points along x, y and z, above 0.
        origin: the position of ``volume[0, 0, 0]``: x, y, z.
        coordinates: for a rectilinear grid, instead of the two: increasing x, y and z of the grid's planes.
        mask: numbers or booleans, of the volume's shape: cells with a corner where it is zero are left out,
            as are cells with a corner that is NaN.
        normals: give ``mesh.normals``, unit vectors against the gradient of the volume, which is interpolated
            from central differences.
        scalars: give ``mesh.point_data["scalars"]``, the value of the surface that each point is on.
        fields: other volumes of the same shape by name, interpolated at the points to ``mesh.point_data``, as
            f64 if they are, else as f32.

    Returns:
        The `Mesh`. Its points are f64 if the volume is, else f32. A value that no surface has gives nothing,
        and a warning that says what values there are.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: ``volume`` is not 3-D, a value is NaN, shapes or numbers of coordinates do not fit, or
            coordinates are given beside spacing or origin.
        MemoryError: there is not enough memory; the message has the sizes.
    """
    grid = as_volume("contour", "volume", volume)
    levels = as_levels("contour", values)
    real = f64 if grid._backend.supports_f64 else f32
    axes = grid_axes("contour", grid, spacing, origin, coordinates, real)
    weights = _fields(fields, grid, scalars)
    usable = None if mask is None else _usable(grid, as_volume("contour", "mask", mask, grid))
    wanted = levels if min(grid.shape) > 1 else []  # without cells, edges have points, but no triangles
    # Where the default device can be used, launches run no Python.
    with nullcontext() if tack.default_device() == grid.device else grid.device:
        parts = []
        for level in wanted:
            part = _Part(grid, level, len(levels))
            if len(levels) == 1 and not (usable or normals or scalars or weights):
                mesh = part.plain(grid, axes, real)
                if mesh is not None:
                    return mesh
            else:
                part.count(grid, usable)
            part.measure()
            if part.nans and usable is None:
                usable = _usable(grid, None)
                part.count(grid, usable)
                part.measure()
            if len(levels) > 1:  # bits of all of them could be more than the volume
                part.passes.drop_bits()
            parts.append(part)
        mesh = _write(grid, axes, parts, usable, normals, scalars, weights, real)
        if len(parts) == 1:
            parts[0].passes.keep()
    for level in [part.level for part in parts if not part.triangles] if wanted else levels:
        _warn_of_nothing(grid, level, mask is not None)
    return mesh


class _Part:
    """One value's surface."""

    __slots__ = ("level", "nans", "passes", "points", "threshold", "triangles")

    def __init__(self, grid: tack.Array, level: float, levels: int) -> None:
        self.level = level
        self.threshold = least_from(level, grid.scalar)
        self.passes: Rows | Tiles = Rows(grid, levels) if grid._backend.wraps_host_memory else tiles_for(grid)
        self.passes.classify(self.threshold)
        self.triangles = self.points = self.nans = 0

    def count(self, grid: tack.Array, usable: Any) -> None:
        """Counts what there is to write, of usable cells if they are given."""
        self.passes.count(grid, usable)

    def measure(self) -> None:
        """Waits until it is known what there is to write. Another surface is counted after that only."""
        self.triangles, self.points, self.nans = self.passes.sizes()

    def plain(self, grid: tack.Array, axes: tack.Array, real: DType) -> Mesh | None:
        """The mesh, if it is made on a GPU and has nothing but points and triangles. Else they are counted.

        If there was such a grid before, it is queued with as much memory as that mesh had, before the host
        knows the sizes, so that the device need not wait for the host. The mesh is that if it is as large, or
        up to an eighth smaller.
        """
        passes = self.passes
        self.count(grid, None)
        if not isinstance(passes, Tiles) or not passes.whole:
            return None
        room, point_room = passes.last
        if room:
            mesh = _new_mesh(grid, point_room, room, real)
            passes.finish(grid, axes, self.level, mesh.points, mesh.triangles)
        self.measure()
        if self.nans or not self.triangles:
            return None
        if self.points > point_room or not 7 * room <= 8 * self.triangles <= 8 * room:
            room, point_room = self.triangles, self.points
            mesh = _new_mesh(grid, point_room, room, real)
            passes.finish(grid, axes, self.level, mesh.points, mesh.triangles)
        passes.keep()
        if (self.triangles, self.points) == (room, point_room):
            return mesh
        return Mesh(mesh.points[: self.points], mesh.triangles[: self.triangles], None, {})


def _new_mesh(grid: tack.Array, points: int, triangles: int, real: DType) -> Mesh:
    """Memory for points and triangles."""
    coordinate = _float_of(grid, real)
    index = i32 if points <= i32.max else i64
    return Mesh(tack.empty((points, 3), coordinate), tack.empty((triangles, 3), index), None, {})


def _float_of(array: tack.Array, real: DType) -> DType:
    return f64 if array.scalar is f64 and real is f64 else f32


def _write(
    grid: tack.Array,
    axes: tack.Array,
    parts: list[_Part],
    usable: Any,
    normals: bool,
    scalars: bool,
    fields: dict[str, tack.Array],
    real: DType,
) -> Mesh:
    """The mesh of all values, one behind the other."""
    nz, ny, nx = grid.shape
    count = sum(part.points for part in parts)
    triangles = sum(part.triangles for part in parts)
    mesh = _new_mesh(grid, count, triangles, real)
    points, integer = mesh.points, edge_dtype(mesh.points)
    if normals:
        mesh.normals = tack.empty((count, 3), points.scalar)
    mesh.point_data.update(
        (name, tack.empty(count, _float_of(field, real))) for name, field in fields.items()
    )
    if scalars:
        mesh.point_data["scalars"] = tack.empty(count, points.scalar)
    first = corner = 0
    for part in parts:
        end = first + part.points
        if part.points:
            if len(parts) > 1:
                part.passes.classify(part.threshold)
            part.passes.write(grid, usable, points, mesh.triangles, first, corner)
            if len(parts) > 1:
                part.passes.drop_bits()
            if scalars:
                mesh.point_data["scalars"][first:end].fill(part.level)
            # Positions come last: before, the points hold the edges that they are on.
            where = (part.level, first, end, ny, nx)
            if mesh.normals is not None:
                about = (part.level, first, end, nz, ny, nx)
                normal_kernel(real, integer)(grid, axes, points, mesh.normals, *about)
            for name, field in fields.items():
                field_kernel(real, integer)(grid, field, points, mesh.point_data[name], *where)
            position_kernel(real, integer)(grid, axes, points, *where)
        first, corner = end, corner + part.triangles
    return mesh


def _usable(grid: tack.Array, mask: tack.Array | None) -> Mask:
    """What says which voxels may be used."""
    chosen = tack.ones(1, tack.u8, device=grid.device) if mask is None else mask
    return chosen, int(mask is not None)


def _fields(fields: Any, grid: tack.Array, scalars: bool) -> dict[str, tack.Array]:
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):
        raise TypeError(f"contour: fields is a dict of volumes by name, not {type(fields).__name__}")
    if scalars and "scalars" in fields:
        raise ValueError("contour: a field is named scalars, as the values that scalars=True asks for")
    return {name: as_volume("contour", f"fields[{name!r}]", field, grid) for name, field in fields.items()}


def _warn_of_nothing(grid: tack.Array, level: float, masked: bool) -> None:
    found = f"a grid of shape {grid.shape} has no cells"
    if min(grid.shape) > 1:
        numbers = grid.host_values()
        least, most = np.fmin.reduce(numbers, axis=None), np.fmax.reduce(numbers, axis=None)
        found = f"the volume's values are from {least} to {most}" if least == least else "all is NaN"
    where = " where the mask leaves cells" if masked else ""
    warnings.warn(f"contour: no surface has the value {level}{where}; {found}", stacklevel=3)
