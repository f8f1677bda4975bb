"""Surfaces of equal value in volumes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np

import tack
from tack.algorithms import exclusive_scan
from tack.dtypes import DType, f32, f64, i32, i64, u64
from tack.vis.bits import classify, row_words, usable_cells, usable_edges, validity
from tack.vis.cube_cases import CUBE_CASES
from tack.vis.flying_edges import count_kernel, report, running_totals, write_kernel
from tack.vis.grids import as_volume, grid_axes
from tack.vis.mesh import Mesh
from tack.vis.points import field_kernel, normal_kernel, position_kernel

__all__ = ["contour"]


def contour(
    volume: Any,
    values: float | Sequence[float],
    *,
    spacing: Sequence[float] = (1.0, 1.0, 1.0),
    origin: Sequence[float] = (0.0, 0.0, 0.0),
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
        spacing: distances between grid points along x, y and z.
        origin: the position of ``volume[0, 0, 0]``: x, y, z.
        coordinates: for a rectilinear grid, instead of the two: increasing x, y and z of the grid's planes.
        mask: numbers or booleans, of the volume's shape: cells with a corner where it is zero are left out,
            as are cells with a corner that is NaN.
        normals: give ``mesh.normals``, unit vectors against the gradient of the volume, which is interpolated
            from central differences.
        scalars: give ``mesh.point_data["scalars"]``, the value of the surface that each point is on.
        fields: other volumes of the same shape, interpolated at the points to ``mesh.point_data``.

    Returns:
        The `Mesh`. Its points are f64 if the volume is, else f32. A value that no surface has gives nothing,
        and a warning that says what values there are.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: ``volume`` is not 3-D, a value is NaN, or shapes or numbers of coordinates do not fit.
        MemoryError: there is not enough memory; the message has the sizes.
    """
    grid = as_volume("contour", "volume", volume)
    levels = _levels(values)
    real = f64 if grid._backend.supports_f64 else f32
    axes = grid_axes("contour", grid, spacing, origin, coordinates, real)
    weights = {
        name: as_volume("contour", f"fields[{name!r}]", field, grid) for name, field in (fields or {}).items()
    }
    usable = None if mask is None else _usable(grid, mask)
    # Where the default device can be used, launches run no Python.
    with nullcontext() if tack.default_device() == grid.device else grid.device:
        parts = []
        for level in levels:
            part = _count(grid, level, usable)
            if part.nans and usable is None:
                usable = _usable(grid, None)
                part = _count(grid, level, usable)
            if len(levels) > 1:  # bits of all of them could be more than the volume
                part.bits = None
            parts.append(part)
        mesh = _write(grid, axes, parts, usable, normals, scalars, weights, real)
    for part in parts:
        if not part.triangles:
            _warn_of_nothing(grid, part.level)
    return mesh


class _Part:
    """One value's voxel bits (None: to be found again), where its rows write, and how much they write."""

    __slots__ = ("bits", "level", "nans", "points", "starts", "triangles")

    def __init__(self, bits: Any, starts: Any, level: float, sizes: Any) -> None:
        self.bits = bits
        self.starts = starts
        self.level = level
        self.triangles, self.points, self.nans = sizes


def _count(grid: tack.Array, level: float, usable: tuple[tack.Array, ...] | None) -> _Part:
    """Classify the voxels, and count what each row will write."""
    nz, ny, nx = grid.shape
    rows, words = nz * ny, row_words(nx)
    # Triangles, and three kinds of points: in all at most 8 for each voxel.
    counts = _scratch(grid, 4 * rows + 1, i32 if 8 * grid.size <= i32.max else i64)
    nans = _scratch(grid, 1, i32)
    nans.fill(0)
    bits = _voxel_bits(grid, level, nans)
    about = (nz, ny, nx, words)
    count_kernel(usable is not None)(bits, *(usable or (bits,) * 4), _cases(grid.device), counts, *about)
    if grid._backend.wraps_host_memory:
        sizes = np.empty(3, np.int64)
        running_totals(counts, nans, sizes, rows)
    else:
        exclusive_scan(counts, out=counts)
        result = grid._backend.scratch(i64, 3)
        report(counts, nans, result, rows)
        sizes = result.numpy()
    return _Part(bits, counts, level, sizes.tolist())


def _voxel_bits(grid: tack.Array, level: float, nans: Any) -> Any:
    """A bit for each voxel that is at least ``level``; sets ``nans[0]`` if one is NaN."""
    nz, ny, nx = grid.shape
    bits = _scratch(grid, nz * ny * row_words(nx), u64)
    threshold = _threshold(level, grid.scalar)
    if threshold is None:  # past all values of the dtype
        bits.fill(0)
    else:
        classify(grid, bits, nans, threshold)
    return bits


def _scratch(grid: tack.Array, size: int, dtype: DType) -> Any:
    """Memory for kernels on the grid's device: NumPy's where they can use it, since it is made faster."""
    if grid._backend.wraps_host_memory:
        return np.empty(size, dtype.numpy)
    return tack.empty(size, dtype)


@cache
def _cases(device: tack.Device) -> Any:
    """The table of cases for kernels on a device."""
    values = np.array(CUBE_CASES, np.uint64)
    return values if device.name == "cpu" else tack.asarray(values, device=device)


def _write(
    grid: tack.Array,
    axes: tack.Array,
    parts: list[_Part],
    usable: tuple[tack.Array, ...] | None,
    normals: bool,
    scalars: bool,
    fields: dict[str, tack.Array],
    real: DType,
) -> Mesh:
    """The mesh of all values, one behind the other."""
    nz, ny, nx = grid.shape
    count = sum(part.points for part in parts)
    triangles = sum(part.triangles for part in parts)
    coordinate, integer = (f64, i64) if grid.scalar is f64 and real is f64 else (f32, i32)
    index = i32 if count <= i32.max else i64
    mesh = Mesh(
        tack.empty((count, 3), coordinate),
        tack.empty((triangles, 3), index),
        tack.empty((count, 3), coordinate) if normals else None,
        {name: tack.empty(count, field.scalar) for name, field in fields.items()},
    )
    if scalars:
        mesh.point_data["scalars"] = tack.empty(count, coordinate)
    points = mesh.points
    write = write_kernel(usable is not None, coordinate, integer, index)
    first = corner = 0
    for part in parts:
        end = first + part.points
        if part.points:
            inside = _voxel_bits(grid, part.level, _scratch(grid, 1, i32)) if part.bits is None else part.bits
            bits: Any = (inside, *(usable or (inside,) * 4), _cases(grid.device))
            write(*bits, part.starts, points, mesh.triangles, first, corner, nz, ny, nx, row_words(nx))
            # Positions come last: before, the points hold the edges that they are on.
            where = (part.level, first, end, ny, nx)
            if mesh.normals is not None:
                about = (part.level, first, end, nz, ny, nx)
                normal_kernel(real, integer)(grid, axes, points, mesh.normals, *about)
            for name, field in fields.items():
                field_kernel(real, integer)(grid, field, points, mesh.point_data[name], *where)
            if scalars:
                mesh.point_data["scalars"][first:end].fill(part.level)
            position_kernel(real, integer)(grid, axes, points, *where)
            part.bits = inside = bits = None  # their memory, before the next value's are found
        first, corner = end, corner + part.triangles
    return mesh


def _usable(grid: tack.Array, mask: Any) -> tuple[tack.Array, ...]:
    """The bits of usable edges along x, y and z, and of usable cells."""
    nz, ny, nx = grid.shape
    words = row_words(nx)
    chosen = tack.ones(grid.size, tack.u8, device=grid.device) if mask is None else _mask(mask, grid)
    valid, xs, ys, zs, cells = (tack.empty(nz * ny * words, u64, device=grid.device) for _ in range(5))
    validity(grid, chosen, valid, nz * ny, nx, words)
    usable_cells(valid, cells, nz, ny, nx, words)
    usable_edges(cells, xs, ys, zs, nz, ny, words)
    return xs, ys, zs, cells


def _mask(mask: Any, grid: tack.Array) -> tack.Array:
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_:
        mask = np.ascontiguousarray(mask).view(np.uint8)
    return as_volume("contour", "mask", mask, grid)


def _levels(values: Any) -> list[float]:
    levels = [float(v) for v in values] if np.ndim(values) else [float(values)]
    if any(math.isnan(level) for level in levels):
        raise ValueError("contour: a value is NaN, which no surface has")
    return levels


def _threshold(level: float, dtype: DType) -> float | None:
    """The least number of ``dtype`` that is at least ``level``, or None."""
    if dtype.is_float:
        number = dtype.numpy.type(level)
        return float(np.nextafter(number, dtype.numpy.type(math.inf)) if number < level else number)
    if level > dtype.max:
        return None
    return dtype.min if level <= dtype.min else math.ceil(level)


def _warn_of_nothing(grid: tack.Array, level: float) -> None:
    found = "the volume has no values"
    if grid.size:
        numbers = grid.host_values()
        numbers = numbers[numbers == numbers]
        found = (
            f"the volume's values are from {numbers.min()} to {numbers.max()}"
            if numbers.size
            else "all is NaN"
        )
    warnings.warn(f"contour: no surface has the value {level}; {found}", stacklevel=3)
