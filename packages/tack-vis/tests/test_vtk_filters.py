"""Filters besides contours against VTK's."""

from __future__ import annotations

import numpy as np
import pytest
from volumes import sphere

from tack.vis import (
    cell_to_point,
    contour,
    gradient,
    marching_squares,
    point_to_cell,
    slice_plane,
    surface_normals,
    threshold,
    to_vtk,
)

pytest.importorskip("vtkmodules.vtkFiltersCore", exc_type=ImportError)
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkDataObject, vtkImageData, vtkPlane
from vtkmodules.vtkFiltersCore import (
    vtkCellDataToPointData,
    vtkFlyingEdges2D,
    vtkFlyingEdgesPlaneCutter,
    vtkMassProperties,
    vtkPointDataToCellData,
    vtkPolyDataNormals,
    vtkThreshold,
    vtkTriangleFilter,
)
from vtkmodules.vtkFiltersGeneral import vtkGradientFilter

RNG = np.random.default_rng(11)
SPACING = (0.5, 1.5, 2.0)
VALUES = RNG.random((6, 7, 8))


def image(values: np.ndarray, *, cells: bool = False) -> vtkImageData:
    data = vtkImageData()
    data.SetDimensions(*(n + cells for n in values.shape[::-1]))
    data.SetSpacing(*SPACING)
    array = numpy_to_vtk(values.ravel(), deep=True)
    array.SetName("values")
    (data.GetCellData() if cells else data.GetPointData()).SetScalars(array)
    return data


def run(kind: type, data: object, **settings: object) -> object:
    """The output of a filter with these settings."""
    found = kind()
    found.SetInputData(data)
    for name, value in settings.items():
        getattr(found, f"Set{name}")(*(value if isinstance(value, tuple) else (value,)))
    found.Update()
    return found.GetOutput()


def numbers(data: object, name: str) -> np.ndarray:
    return vtk_to_numpy(data.GetArray(name))


def test_the_gradient() -> None:
    found = run(vtkGradientFilter, image(VALUES), ResultArrayName="gradient", InputScalars=(0, "values"))
    expected = numbers(found.GetPointData(), "gradient").reshape(*VALUES.shape, 3)
    np.testing.assert_allclose(gradient(VALUES, spacing=SPACING), expected, rtol=1e-12)


def test_points_to_cells_and_back() -> None:
    found = numbers(run(vtkPointDataToCellData, image(VALUES)).GetCellData(), "values")
    np.testing.assert_allclose(point_to_cell(VALUES), found.reshape(5, 6, 7), rtol=1e-14)
    found = numbers(run(vtkCellDataToPointData, image(VALUES, cells=True)).GetPointData(), "values")
    np.testing.assert_allclose(cell_to_point(VALUES), found.reshape(7, 8, 9), rtol=1e-14)


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_thresholds(dtype: type, every: bool) -> None:
    values = (10 * VALUES).astype(dtype)
    data = image(values)
    ids = numpy_to_vtk(np.arange(data.GetNumberOfCells()), deep=True)
    ids.SetName("id")
    data.GetCellData().AddArray(ids)
    about = {"LowerThreshold": 2.7, "UpperThreshold": 8.1, "AllScalars": every}
    point = vtkDataObject.FIELD_ASSOCIATION_POINTS
    found = run(vtkThreshold, data, InputArrayToProcess=(0, 0, 0, point, "values"), **about)
    expected = numbers(found.GetCellData(), "id")
    np.testing.assert_array_equal(threshold(values, 2.7, 8.1, every=every), expected)


@pytest.mark.parametrize("normal", [(0, 0, 1), (1, 0, 0), (0.3, -0.5, 0.81), (-1, 2, 0.1)])
def test_slices(normal: tuple[float, ...]) -> None:
    point = (1.71, 4.33, 5.19)
    plane = vtkPlane()
    plane.SetOrigin(*point)
    plane.SetNormal(*normal)
    cut = run(vtkFlyingEdgesPlaneCutter, image(VALUES), Plane=plane)
    mesh = slice_plane(VALUES, point, normal, spacing=SPACING)
    places, expected = mesh.points.numpy(), vtk_to_numpy(cut.GetPoints().GetData())
    assert places.shape == expected.shape
    assert mesh.triangles.shape[0] == cut.GetNumberOfPolys()
    order, theirs = (np.lexsort(np.round(p, 4).T) for p in (places, expected))
    np.testing.assert_allclose(places[order], expected[theirs], atol=2e-6)
    values = numbers(cut.GetPointData(), "values")
    np.testing.assert_allclose(mesh.point_data["values"].numpy()[order], values[theirs], atol=1e-6)
    areas = [run_mass(run(vtkTriangleFilter, data)) for data in (cut, to_vtk(mesh))]
    assert areas[0] == pytest.approx(areas[1], rel=1e-6)


def run_mass(surface: object) -> float:
    mass = vtkMassProperties()
    mass.SetInputData(surface)
    return float(mass.GetSurfaceArea())


def test_normals_of_a_surface() -> None:
    """VTK weights triangles alike, and we by their area; on a smooth surface that is nearly the same."""
    mesh = contour(sphere(40, 41, 42).astype(np.float32), 0.7, spacing=(2 / 41, 2 / 40, 2 / 39))
    about = {"Splitting": False, "Consistency": False, "ComputePointNormals": True}
    found = run(vtkPolyDataNormals, to_vtk(mesh), **about)
    expected = vtk_to_numpy(found.GetPointData().GetNormals())
    ours = surface_normals(mesh).numpy()
    assert ours.shape == expected.shape
    assert np.sum(ours * expected, axis=1).min() > 0.99


def test_lines() -> None:
    flat = VALUES[2]
    found = marching_squares(flat, [0.3, 0.6], spacing=SPACING[:2])
    filter_ = vtkFlyingEdges2D()
    filter_.SetInputData(image(flat[None]))
    filter_.SetValue(0, 0.3)
    filter_.SetValue(1, 0.6)
    filter_.Update()
    expected = vtk_to_numpy(filter_.GetOutput().GetPoints().GetData())[:, :2]
    places = found.points.numpy()
    order, theirs = (np.lexsort(np.round(p, 4).T) for p in (places, expected))
    np.testing.assert_allclose(places[order], expected[theirs], atol=1e-6)
    assert found.lines.shape[0] == filter_.GetOutput().GetNumberOfLines()
