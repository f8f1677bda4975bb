"""The same points, triangles and normals as vtkFlyingEdges3D, up to order and rounding."""

from __future__ import annotations

import numpy as np
import pytest
from volumes import edges, sphere, tangle, torus

from tack.vis import contour

pytest.importorskip("vtkmodules.vtkFiltersCore", exc_type=ImportError)
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D

RNG = np.random.default_rng(7)
DTYPES = [np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64]
VOLUMES = {
    "sphere": (sphere(24, 25, 66), 0.7),
    "torus": (torus(30, 31, 32), 0.3),
    "tangle": (tangle(31, 32, 33), 0.1),
    "noise": (RNG.random((12, 13, 140)), 0.5),
    "few values, some equal": (RNG.integers(0, 3, (14, 15, 16)).astype(float), 1.0),
    "one cell in x": (RNG.random((9, 12, 2)), 0.5),
    "one cell in y": (RNG.random((9, 2, 65)), 0.5),
    "one cell in z": (RNG.random((2, 9, 64)), 0.5),
    "ends inside": (-sphere(9, 10, 11), -1.1),
}


def reference(
    values: np.ndarray, level: float, spacing: tuple[float, ...], origin: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, triangles and normals by VTK."""
    image = vtkImageData()
    image.SetDimensions(*values.shape[::-1])
    image.SetSpacing(*spacing)
    image.SetOrigin(*origin)
    image.GetPointData().SetScalars(numpy_to_vtk(values.ravel(), deep=True))
    filter_ = vtkFlyingEdges3D()
    filter_.SetInputData(image)
    filter_.SetValue(0, level)
    filter_.ComputeNormalsOn()
    filter_.ComputeGradientsOff()
    filter_.ComputeScalarsOff()
    filter_.Update()
    found = filter_.GetOutput()
    if not found.GetNumberOfPoints():
        return np.zeros((0, 3)), np.zeros((0, 3), int), np.zeros((0, 3))
    return (
        vtk_to_numpy(found.GetPoints().GetData()).copy(),
        vtk_to_numpy(found.GetPolys().GetConnectivityArray()).reshape(-1, 3).copy(),
        vtk_to_numpy(found.GetPointData().GetNormals()).copy(),
    )


def boundary(triangles: np.ndarray) -> np.ndarray:
    """Directed edges that no other triangle has in the other direction, in order."""
    directed = edges(triangles).astype(np.int64)
    size = int(triangles.max(initial=0)) + 1
    there, back = directed @ [size, 1], directed @ [1, size]
    return np.sort(there[~np.isin(there, back)])


@pytest.mark.parametrize("case", range(256))
def test_all_cases(case: int) -> None:
    """The same polygons, in the same direction; how they are cut into triangles is left to each."""
    values = np.array([case >> corner & 1 for corner in range(8)], np.float32).reshape(2, 2, 2)
    points, triangles, _ = reference(values, 0.5, (1, 1, 1), (0, 0, 0))
    if not len(points):
        assert case in (0, 255)
        return
    mesh = contour(values, 0.5)
    np.testing.assert_array_equal(mesh.points, points)
    assert mesh.triangles.shape == triangles.shape
    np.testing.assert_array_equal(boundary(mesh.triangles.numpy()), boundary(triangles))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name: str, dtype: type) -> None:
    values, level = VOLUMES[name]
    compare(values.astype(dtype), level, (1, 1, 1), (0, 0, 0))
    compare(values.astype(dtype), level, (0.5, 1.5, 2), (3, -2, 1))


@pytest.mark.parametrize("level", [50, 50.5])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_dtypes(dtype: type, level: float) -> None:
    compare(RNG.integers(0, 100, (9, 17, 70)).astype(dtype), level, (1, 1, 1), (0, 0, 0))


def compare(values: np.ndarray, level: float, spacing: tuple[float, ...], origin: tuple[float, ...]) -> None:
    """VTK numbers points as we do, so they, their normals and the surface's rim agree one by one."""
    points, triangles, normals = reference(values, level, spacing, origin)
    mesh = contour(values, level, spacing=spacing, origin=origin, normals=True)
    assert mesh.points.shape == points.shape
    assert mesh.triangles.shape == triangles.shape
    assert np.abs(mesh.points.numpy() - points).max() < 1e-6 * np.abs(points).max()
    assert np.abs(mesh.normals.numpy() - normals).max() < 2e-5
    np.testing.assert_array_equal(boundary(mesh.triangles.numpy()), boundary(triangles))
