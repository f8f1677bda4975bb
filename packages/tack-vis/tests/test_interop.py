"""Meshes and volumes to VTK and back."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from volumes import sphere

from tack.vis import Grid, Mesh, contour, from_vtk, to_vtk

pytest.importorskip("vtkmodules.vtkFiltersCore", exc_type=ImportError)
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkImageData, vtkPolyData, vtkRectilinearGrid
from vtkmodules.vtkFiltersCore import vtkFeatureEdges, vtkMassProperties


def test_a_surface_in_vtk_uses_the_same_memory() -> None:
    mesh = contour(sphere(20, 21, 22), 0.8, normals=True, scalars=True)
    surface = to_vtk(mesh)
    points = vtk_to_numpy(surface.GetPoints().GetData())
    assert points.ctypes.data == mesh.points.address
    connectivity = vtk_to_numpy(surface.GetPolys().GetConnectivityArray())
    assert connectivity.ctypes.data == mesh.triangles.address
    expected = mesh.points.numpy(), mesh.normals.numpy(), mesh.triangles.numpy()
    del mesh, points, connectivity
    gc.collect()  # the arrays live on in VTK
    np.testing.assert_array_equal(vtk_to_numpy(surface.GetPoints().GetData()), expected[0])
    np.testing.assert_array_equal(vtk_to_numpy(surface.GetPointData().GetNormals()), expected[1])
    assert (vtk_to_numpy(surface.GetPointData().GetArray("scalars")) == 0.8).all()
    assert surface.GetNumberOfPolys() == len(expected[2])


def test_vtk_finds_the_surface_closed() -> None:
    surface = to_vtk(contour(sphere(40, 40, 40), 0.8, spacing=(2 / 39,) * 3))
    rim = vtkFeatureEdges()
    rim.SetInputData(surface)
    rim.FeatureEdgesOff()
    rim.Update()
    assert rim.GetOutput().GetNumberOfCells() == 0
    mass = vtkMassProperties()
    mass.SetInputData(surface)
    assert mass.GetVolume() == pytest.approx(4 / 3 * np.pi * 0.8**3, rel=5e-3)


@pytest.mark.parametrize("level", [0.8, 9.0])
def test_surfaces_come_back(level: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        mesh = contour(sphere(9, 10, 11), level, normals=True, scalars=True)
    again = from_vtk(to_vtk(mesh))
    assert isinstance(again, Mesh)
    np.testing.assert_array_equal(again.points, mesh.points)
    np.testing.assert_array_equal(again.triangles, mesh.triangles)
    np.testing.assert_array_equal(again.normals, mesh.normals)
    assert set(again.point_data) == {"scalars"}


def test_an_image() -> None:
    values = sphere(5, 6, 7).astype(np.float32)
    image = vtkImageData()
    image.SetExtent(2, 8, 0, 5, 0, 4)
    image.SetSpacing(0.5, 1, 2)
    image.SetOrigin(10, 20, 30)
    array = numpy_to_vtk(values.ravel())
    array.SetName("distance")
    image.GetPointData().SetScalars(array)
    grid = from_vtk(image)
    assert isinstance(grid, Grid)
    assert grid.values.address == values.ctypes.data
    assert grid.place == {"spacing": (0.5, 1, 2), "origin": (11, 20, 30)}
    mesh = contour(grid.values, 0.7, **grid.place)
    expected = contour(values, 0.7, spacing=(0.5, 1, 2), origin=(11, 20, 30))
    np.testing.assert_array_equal(mesh.points, expected.points)
    np.testing.assert_array_equal(from_vtk(image, "distance").values, values)
    with pytest.raises(ValueError, match=r"no point array density; there are \['distance'\]"):
        from_vtk(image, "density")


def test_a_rectilinear_grid() -> None:
    axes = [np.array([0, 1, 4.0]), np.array([0, 2.0]), np.array([1, 3, 4, 9.0])]
    data = vtkRectilinearGrid()
    data.SetDimensions(3, 2, 4)
    data.SetXCoordinates(numpy_to_vtk(axes[0]))
    data.SetYCoordinates(numpy_to_vtk(axes[1]))
    data.SetZCoordinates(numpy_to_vtk(axes[2]))
    values = np.arange(24, dtype=np.int32)
    data.GetPointData().SetScalars(numpy_to_vtk(values))
    grid = from_vtk(data)
    found = contour(grid.values, 6.5, **grid.place)
    np.testing.assert_array_equal(
        found.points, contour(values.reshape(4, 2, 3), 6.5, coordinates=axes).points
    )


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="not ndarray"):
        from_vtk(np.zeros(3))
    quads = vtkPolyData()
    cells = vtkCellArray()
    cells.InsertNextCell(4, [0, 1, 2, 3])
    quads.SetPolys(cells)
    with pytest.raises(ValueError, match="other cells than triangles"):
        from_vtk(quads)
