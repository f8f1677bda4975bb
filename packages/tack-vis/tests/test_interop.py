"""Meshes and volumes to VTK and back."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from volumes import sphere

import tack
from tack.vis import Grid, Lines, Mesh, contour, from_vtk, marching_squares, to_vtk

pytest.importorskip("vtkmodules.vtkFiltersCore", exc_type=ImportError)
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkImageData, vtkPolyData, vtkRectilinearGrid
from vtkmodules.vtkFiltersCore import vtkFeatureEdges, vtkMassProperties


def same_memory(host: np.ndarray, array: tack.Array) -> None:
    """Whether they share it, where the device can address the host's."""
    if tack.default_device()._backend.wraps_host_memory:
        assert host.ctypes.data == array.address


def test_a_surface_in_vtk_uses_the_same_memory() -> None:
    mesh = contour(sphere(20, 21, 22), 0.8, normals=True, scalars=True)
    surface = to_vtk(mesh)
    points = vtk_to_numpy(surface.GetPoints().GetData())
    same_memory(points, mesh.points)
    connectivity = vtk_to_numpy(surface.GetPolys().GetConnectivityArray())
    same_memory(connectivity, mesh.triangles)
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
    same_memory(values, grid.values)
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, np.int64])
def test_grids_go_to_vtk_in_the_same_memory(dtype: type) -> None:
    values = tack.asarray((100 * sphere(5, 6, 7)).astype(dtype))
    for place in (
        {"spacing": (0.5, 1.0, 2.0), "origin": (11.0, 20.0, 30.0)},
        {"coordinates": (np.arange(7) ** 2.0, np.arange(6.0), np.linspace(1, 2, 5))},
    ):
        data = to_vtk(Grid(values, place))
        array = vtk_to_numpy(data.GetPointData().GetScalars())
        same_memory(array, values)
        again = from_vtk(data)
        assert again.values.dtype is values.dtype
        np.testing.assert_array_equal(again.values, values)
        assert set(again.place) == set(place)
        for name, numbers in place.items():
            np.testing.assert_array_equal(
                np.concatenate([*map(np.atleast_1d, again.place[name])]), np.hstack(numbers)
            )


def test_lines_go_to_vtk() -> None:
    found = marching_squares(sphere(9, 10, 11)[4], 0.6, spacing=(0.5, 2))
    surface = to_vtk(found)
    assert surface.GetNumberOfLines() == found.lines.shape[0]
    places = vtk_to_numpy(surface.GetPoints().GetData())
    np.testing.assert_array_equal(places[:, :2], found.points)
    assert not places[:, 2].any()
    ends = vtk_to_numpy(surface.GetLines().GetConnectivityArray()).reshape(-1, 2)
    np.testing.assert_array_equal(ends, found.lines)
    assert isinstance(found, Lines)


def test_a_mesh_of_numpy_arrays_and_of_i64() -> None:
    mesh = contour(sphere(9, 10, 11), 0.8)
    for kind in (np.int32, np.int64, np.uint16):
        triangles = mesh.triangles.numpy().astype(kind)
        surface = to_vtk(Mesh(mesh.points.numpy(), triangles, None, {"x": mesh.points.numpy()[:, 0].copy()}))
        found = vtk_to_numpy(surface.GetPolys().GetConnectivityArray()).reshape(-1, 3)
        np.testing.assert_array_equal(found, triangles)
        assert surface.GetPointData().GetArray("x").GetNumberOfTuples() == mesh.points.shape[0]


@pytest.mark.parametrize("suffix", [".vtp", ".ply", ".stl"])
def test_vtk_writes_files_of_it(suffix: str, tmp_path: Path) -> None:
    """And reads back what was written."""
    io_xml = pytest.importorskip("vtkmodules.vtkIOXML", exc_type=ImportError)
    io_ply = pytest.importorskip("vtkmodules.vtkIOPLY", exc_type=ImportError)
    io_geometry = pytest.importorskip("vtkmodules.vtkIOGeometry", exc_type=ImportError)
    writer, reader = {
        ".vtp": (io_xml.vtkXMLPolyDataWriter, io_xml.vtkXMLPolyDataReader),
        ".ply": (io_ply.vtkPLYWriter, io_ply.vtkPLYReader),
        ".stl": (io_geometry.vtkSTLWriter, io_geometry.vtkSTLReader),
    }[suffix]
    mesh = contour(sphere(12, 13, 14).astype(np.float32), 0.8, normals=True)
    path = tmp_path / f"mesh{suffix}"
    out, back = writer(), reader()
    out.SetInputData(to_vtk(mesh))
    out.SetFileName(str(path))
    assert out.Write() == 1
    back.SetFileName(str(path))
    back.Update()
    again = from_vtk(back.GetOutput())
    corners = [m.points.numpy()[m.triangles.numpy()] for m in (again, mesh)]
    np.testing.assert_allclose(*corners, rtol=1e-6)  # STL merges no points, others keep their order
    if suffix == ".vtp":
        np.testing.assert_array_equal(again.normals, mesh.normals)


def test_pyvista_takes_and_gives_them() -> None:
    pyvista = pytest.importorskip("pyvista")
    mesh = contour(sphere(20, 21, 22), 0.8, normals=True)
    wrapped = pyvista.wrap(to_vtk(mesh))
    same_memory(np.asarray(wrapped.points), mesh.points)
    assert wrapped.GetNumberOfPolys() == mesh.triangles.shape[0]
    assert wrapped.is_manifold
    again = from_vtk(wrapped)
    np.testing.assert_array_equal(again.triangles, mesh.triangles)
    image = pyvista.ImageData(dimensions=(5, 6, 7), spacing=(1, 2, 3))
    image["density"] = np.arange(210.0)
    grid = from_vtk(image, "density")
    same_memory(image["density"], grid.values)


def test_grids_that_are_refused() -> None:
    image = vtkImageData()
    image.SetDimensions(3, 2, 4)
    cells = numpy_to_vtk(np.zeros(6))
    cells.SetName("density")
    image.GetCellData().AddArray(cells)
    with pytest.raises(
        ValueError, match=r"no point array is active; there are \[\]; cells have \['density'\]"
    ):
        from_vtk(image)
    image.GetPointData().SetScalars(numpy_to_vtk(np.zeros(5)))
    with pytest.raises(ValueError, match="has 5 values, the grid 24 points"):
        from_vtk(image)
    values = np.zeros((4, 2, 3))
    for grid, text in (
        (Grid(values[0], {}), "to_vtk: values has 2 dimensions"),
        (Grid(values, {"coordinates": ([0, 1, 2], [0, 1], [0])}), "to_vtk: coordinates have shapes"),
        (Grid(values, {"spacing": (1, 1, 0)}), "to_vtk: spacing is positive"),
        (Lines(values[0], np.zeros((1, 2), np.int32)), r"points and lines are of shape \(n, 2\)"),
        (Lines(values[0][:, :2], np.zeros((1, 2))), "lines i32 or i64, not float64"),
    ):
        with pytest.raises(ValueError, match=text):
            to_vtk(grid)
    assert to_vtk(Grid(values, {})).GetDimensions() == (3, 2, 4)


def test_what_is_refused() -> None:
    for data in (None, np.zeros((3, 3)), 5):
        with pytest.raises(TypeError, match="to_vtk: mesh is a Mesh"):
            to_vtk(data)
    points, triangles = np.zeros((3, 3)), np.zeros((1, 3), np.int32)
    for mesh, text in (
        (Mesh(points[:, :2], triangles, None, {}), r"points are f64 of shape \(3, 2\)"),
        (Mesh(points, triangles[0], None, {}), r"triangles are i32 of shape \(3,\)"),
        (Mesh(points, triangles, points[:2], {}), "normals have shape"),
        (Mesh(points, triangles, None, {"a": points[:2]}), r"point_data\['a'\] has shape"),
    ):
        with pytest.raises(ValueError, match=text):
            to_vtk(mesh)
    with pytest.raises(TypeError, match="not ndarray"):
        from_vtk(np.zeros(3))
    quads = vtkPolyData()
    cells = vtkCellArray()
    cells.InsertNextCell(4, [0, 1, 2, 3])
    quads.SetPolys(cells)
    with pytest.raises(ValueError, match="other cells than triangles"):
        from_vtk(quads)
