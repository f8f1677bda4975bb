"""Meshes and volumes to and from VTK and PyVista, without copies where the layout allows it.

VTK is imported when a function is first called. PyVista's objects are VTK's, so they go in as they are, and
``pyvista.wrap(to_vtk(mesh))`` makes them.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import tack
from tack.dtypes import f32
from tack.record import Record
from tack.vis.grids import as_volume, grid_axes
from tack.vis.mesh import Mesh, as_mesh
from tack.vis.squares import Lines

__all__ = ["Grid", "from_vtk", "to_vtk"]


class Grid(Record):
    """A volume and where it is; ``contour(grid.values, level, **grid.place)`` takes both.

    Attributes:
        values: (nz, ny, nx), x last.
        place: ``spacing`` and ``origin`` of a uniform grid, or ``coordinates`` of a rectilinear one.
    """

    values: tack.Array
    place: dict[str, Any]


def to_vtk(data: Mesh | Lines | Grid) -> Any:
    """A `Mesh` or `Lines` as a ``vtkPolyData``, a `Grid` as a ``vtkImageData`` or ``vtkRectilinearGrid``.

    VTK uses the memory of arrays that are the host's, but for the points of lines, which get a third
    coordinate of 0. Normals become the active normals, ``point_data`` arrays of the same names, and a grid's
    values the active scalars, named "values".

    Raises:
        TypeError: it is something else.
        ValueError: the arrays do not fit each other.
        ImportError: VTK is not installed.
    """
    if isinstance(data, Grid):
        return _vtk_grid(data)
    if isinstance(data, Lines):
        points, lines = (tack.asarray(array).host_values() for array in (data.points, data.lines))
        if points.shape[1:] != (2,) or lines.shape[1:] != (2,) or lines.dtype.kind != "i":
            found = f"{points.dtype} {points.shape}, {lines.dtype} {lines.shape}"
            raise ValueError(f"to_vtk: points and lines are of shape (n, 2), lines i32 or i64, not {found}")
        surface = _poly_data(np.pad(points, ((0, 0), (0, 1))))
        surface.SetLines(_cells(lines))
        return surface
    mesh = as_mesh("to_vtk", data)
    surface = _poly_data(mesh.points.host_values())
    surface.SetPolys(_cells(mesh.triangles.host_values()))
    for name, values in mesh.point_data.items():
        surface.GetPointData().AddArray(_named(name, values.host_values()))
    if mesh.normals is not None:
        surface.GetPointData().SetNormals(_named("Normals", mesh.normals.host_values()))
    return surface


def _vtk_grid(grid: Grid) -> Any:
    model = _vtk("vtkCommonDataModel")
    values = as_volume("to_vtk", "values", grid.values)
    spacing, origin = grid.place.get("spacing", (1, 1, 1)), grid.place.get("origin", (0, 0, 0))
    coordinates = grid.place.get("coordinates")
    grid_axes("to_vtk", values, spacing, origin, coordinates, f32)  # which refuses what does not fit
    if coordinates is not None:
        data = model.vtkRectilinearGrid()
        for axis, planes in zip("XYZ", coordinates, strict=True):
            getattr(data, f"Set{axis}Coordinates")(_named(axis, np.asarray(planes)))
    else:
        data = model.vtkImageData()
        data.SetSpacing(spacing)
        data.SetOrigin(origin)
    data.SetDimensions(values.shape[::-1])
    data.GetPointData().SetScalars(_named("values", values.host_values().reshape(-1)))
    return data


def _poly_data(places: Any) -> Any:
    points = _vtk("vtkCommonCore").vtkPoints()
    points.SetData(_vtk("util.numpy_support").numpy_to_vtk(places))
    surface = _vtk("vtkCommonDataModel").vtkPolyData()
    surface.SetPoints(points)
    return surface


def _cells(numbers: Any) -> Any:
    """Cells that name their points by rows of i32 or i64."""
    core = _vtk("vtkCommonCore")
    kind = core.VTK_TYPE_INT32 if numbers.itemsize == 4 else core.VTK_TYPE_INT64
    cells = _vtk("vtkCommonDataModel").vtkCellArray()
    cells.SetData(
        numbers.shape[1], _vtk("util.numpy_support").numpy_to_vtk(numbers.reshape(-1), array_type=kind)
    )
    return cells


def _named(name: str, values: Any) -> Any:
    array = _vtk("util.numpy_support").numpy_to_vtk(values)
    array.SetName(str(name))
    return array


def from_vtk(data: Any, name: str | None = None) -> Grid | Mesh:
    """A ``vtkImageData`` or ``vtkRectilinearGrid`` as a `Grid`, a ``vtkPolyData`` of triangles as a `Mesh`.

    Arrays on the CPU use VTK's memory, unless it has another dtype or order than Tack's arrays. An image's
    direction matrix must be the identity.

    Args:
        name: which of the grid's point arrays; the active scalars unless given.

    Raises:
        TypeError: it is something else.
        ValueError: there is no such array, it has several components, or a surface has other cells than
            triangles.
        ImportError: VTK is not installed.
    """
    model = _vtk("vtkCommonDataModel")
    if isinstance(data, model.vtkImageData):
        if not data.GetDirectionMatrix().IsIdentity():
            raise ValueError("from_vtk: the image is rotated; its direction matrix is not the identity")
        origin = [
            o + s * e
            for o, s, e in zip(data.GetOrigin(), data.GetSpacing(), data.GetExtent()[::2], strict=True)
        ]
        return Grid(_values(data, name), {"spacing": data.GetSpacing(), "origin": tuple(origin)})
    if isinstance(data, model.vtkRectilinearGrid):
        axes = (data.GetXCoordinates(), data.GetYCoordinates(), data.GetZCoordinates())
        return Grid(_values(data, name), {"coordinates": tuple(_numpy(axis) for axis in axes)})
    if isinstance(data, model.vtkPolyData):
        return _mesh(data)
    raise TypeError(
        f"from_vtk: it takes an image, a rectilinear grid or a surface, not {type(data).__name__}"
    )


def _values(data: Any, name: str | None) -> tack.Array:
    points = data.GetPointData()
    array = points.GetScalars() if name is None else points.GetArray(name)
    if array is None:
        names, of_cells = (
            [arrays.GetArrayName(i) for i in range(arrays.GetNumberOfArrays())]
            for arrays in (points, data.GetCellData())
        )
        cells = f"; cells have {of_cells}, see vtkCellDataToPointData" if of_cells else ""
        raise ValueError(f"from_vtk: no point array {name or 'is active'}; there are {names}{cells}")
    if array.GetNumberOfTuples() != data.GetNumberOfPoints():
        there = f"{array.GetNumberOfTuples()} values, the grid {data.GetNumberOfPoints()} points"
        raise ValueError(f"from_vtk: array {array.GetName()} has {there}")
    if array.GetNumberOfComponents() != 1:
        raise ValueError(f"from_vtk: array {array.GetName()} has {array.GetNumberOfComponents()} components")
    return tack.asarray(_numpy(array).reshape(data.GetDimensions()[::-1]))


def _mesh(data: Any) -> Mesh:
    cells = data.GetPolys()
    others = data.GetNumberOfCells() - cells.GetNumberOfCells()
    if others or (cells.GetNumberOfCells() and cells.IsHomogeneous() != 3):
        raise ValueError("from_vtk: the surface has other cells than triangles; see vtkTriangleFilter")
    points = data.GetPoints()
    places = np.zeros((0, 3), np.float32) if points is None else _numpy(points.GetData())
    triangles = np.zeros((0, 3), np.int32)
    if cells.GetNumberOfCells():
        triangles = _numpy(cells.GetConnectivityArray()).reshape(-1, 3)
    arrays = data.GetPointData()
    normals = arrays.GetNormals()
    named = {arrays.GetArrayName(i): arrays.GetArray(i) for i in range(arrays.GetNumberOfArrays())}
    return Mesh(
        tack.asarray(places),
        tack.asarray(triangles),
        None if normals is None else tack.asarray(_numpy(normals)),
        {
            key: tack.asarray(_numpy(array))
            for key, array in named.items()
            if key is not None and array is not None and array is not normals
        },
    )


def _numpy(array: Any) -> Any:
    return _vtk("util.numpy_support").vtk_to_numpy(array)


def _vtk(module: str) -> Any:
    try:
        return importlib.import_module(f"vtkmodules.{module}")
    except ImportError as error:
        raise ImportError(f"{error}; VTK is installed with: pip install vtk") from error
