"""Meshes and volumes to and from VTK and PyVista, without copies where the layout allows it.

VTK is imported when a function is first called. PyVista's objects are VTK's, so they go in as they are, and
``pyvista.wrap(to_vtk(mesh))`` makes them.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import tack
from tack.record import Record
from tack.vis.mesh import Mesh

__all__ = ["Grid", "from_vtk", "to_vtk"]


class Grid(Record):
    """A volume and where it is; ``contour(grid.values, level, **grid.place)`` takes both.

    Attributes:
        values: (nz, ny, nx), x last.
        place: ``spacing`` and ``origin`` of a uniform grid, or ``coordinates`` of a rectilinear one.
    """

    values: tack.Array
    place: dict[str, Any]


def to_vtk(mesh: Mesh) -> Any:
    """The mesh as a ``vtkPolyData``, which uses its memory if that is the host's.

    Normals become the active normals, and ``point_data`` arrays of the same names.

    Raises:
        ImportError: VTK is not installed.
    """
    support = _vtk("util.numpy_support")
    model, core = _vtk("vtkCommonDataModel"), _vtk("vtkCommonCore")
    points = core.vtkPoints()
    points.SetData(support.numpy_to_vtk(mesh.points.host_values()))
    triangles = mesh.triangles.host_values().reshape(-1)
    corners = support.numpy_to_vtk(
        triangles, array_type=core.VTK_TYPE_INT32 if triangles.itemsize == 4 else core.VTK_TYPE_INT64
    )
    cells = model.vtkCellArray()
    cells.SetData(3, corners)
    surface = model.vtkPolyData()
    surface.SetPoints(points)
    surface.SetPolys(cells)
    for name, values in mesh.point_data.items():
        array = support.numpy_to_vtk(values.host_values())
        array.SetName(name)
        surface.GetPointData().AddArray(array)
    if mesh.normals is not None:
        normals = support.numpy_to_vtk(mesh.normals.host_values())
        normals.SetName("Normals")
        surface.GetPointData().SetNormals(normals)
    return surface


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
        names = [points.GetArrayName(i) for i in range(points.GetNumberOfArrays())]
        raise ValueError(f"from_vtk: no point array {name or 'is active'}; there are {names}")
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
            if array is not None and array is not normals
        },
    )


def _numpy(array: Any) -> Any:
    return _vtk("util.numpy_support").vtk_to_numpy(array)


def _vtk(module: str) -> Any:
    try:
        return importlib.import_module(f"vtkmodules.{module}")
    except ImportError as error:
        raise ImportError(f"{error}; VTK is installed with: pip install vtk") from error
