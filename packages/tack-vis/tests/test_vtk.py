"""The same points, triangles and normals as vtkFlyingEdges3D, up to order and rounding."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from volumes import sphere, tangle, torus

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
    "all below the value or equal to it": (RNG.integers(0, 2, (8, 9, 70)).astype(float), 1.0),
    "three extents, through every face": (RNG.random((5, 7, 11)), 0.4),
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


def triangle_set(triangles: np.ndarray) -> np.ndarray:
    """Triangles in order, each from its least corner on, so that the direction is kept."""
    least = triangles.argmin(1)[:, None]
    turned = np.take_along_axis(triangles, (least + np.arange(3)) % 3, 1)
    return turned[np.lexsort(turned.T[::-1])]


@pytest.mark.parametrize("case", range(256))
def test_all_cases(case: int) -> None:
    values = np.array([case >> corner & 1 for corner in range(8)], np.float32).reshape(2, 2, 2)
    points, triangles, _ = reference(values, 0.5, (1, 1, 1), (0, 0, 0))
    if not len(points):
        assert case in (0, 255)
        return
    mesh = contour(values, 0.5)
    np.testing.assert_array_equal(mesh.points, points)
    np.testing.assert_array_equal(triangle_set(mesh.triangles.numpy()), triangle_set(triangles))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name: str, dtype: type) -> None:
    values, level = VOLUMES[name]
    compare(values.astype(dtype), level, (1, 1, 1), (0, 0, 0))
    compare(values.astype(dtype), level, (0.5, 1.5, 2), (3, -2, 1))


EXTENTS = st.sampled_from([2, 3, 4, 5, 8, 31, 32, 33, 64, 65])  # around what a word, or half of one, holds


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(EXTENTS, EXTENTS, EXTENTS).filter(lambda shape: np.prod(shape) < 70_000),
    st.sampled_from(DTYPES),
    st.sampled_from([0.1, 0.5, 1 / 3, 1, 1.5, 2]),
    st.sampled_from([2, 3, 10]),
    st.integers(0, 2**32),
)
def test_any_volume(shape: tuple[int, ...], dtype: type, level: float, kinds: int, seed: int) -> None:
    """Of few different numbers, the value itself among them."""
    rng = np.random.default_rng(seed)
    numbers = np.array([level, *rng.uniform(-1, 4, kinds - 1)]).astype(dtype)
    values = rng.choice(numbers, shape)
    if reference(values, level, (1, 1, 1), (0, 0, 0))[0].size:
        compare(values, level, (0.5, 1, 2), (3, -2, 1), steep=False)
        return
    with pytest.warns(UserWarning, match="no surface has the value"):
        assert contour(values, level).triangles.shape == (0, 3)


@pytest.mark.parametrize("level", [0.5, 0.25, 0.75])
def test_a_constant_volume(level: float) -> None:
    """Also of the value itself: all of it is inside."""
    values = np.full((5, 7, 11), 0.5)
    with pytest.warns(UserWarning, match=r"the volume's values are from 0.5 to 0.5"):
        mesh = contour(values, level)
    assert mesh.points.shape == reference(values, level, (1, 1, 1), (0, 0, 0))[0].shape == (0, 3)


@pytest.mark.parametrize("level", [50, 50.5])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_dtypes(dtype: type, level: float) -> None:
    compare(RNG.integers(0, 100, (9, 17, 70)).astype(dtype), level, (1, 1, 1), (0, 0, 0))


@pytest.mark.parametrize("level", [0.7, 0.1, 0.3])
def test_values_that_f32_does_not_hold(level: float) -> None:
    """A voxel that is the value rounded to f32 is inside or not as the rounding went; VTK compares in f64."""
    values = RNG.choice(np.array([0, level, 1], np.float32), (9, 10, 70))
    compare(values, level, (1, 1, 1), (0, 0, 0))


def test_fields_are_those_of_vtk() -> None:
    values, field = RNG.random((7, 8, 9)), RNG.integers(0, 100, (7, 8, 9)).astype(np.uint8)
    image = vtkImageData()
    image.SetDimensions(9, 8, 7)
    image.GetPointData().SetScalars(numpy_to_vtk(values.ravel()))
    array = numpy_to_vtk(field.ravel())
    array.SetName("field")
    image.GetPointData().AddArray(array)
    filter_ = vtkFlyingEdges3D()
    filter_.SetInputData(image)
    filter_.SetValue(0, 0.5)
    filter_.InterpolateAttributesOn()
    filter_.Update()
    expected = vtk_to_numpy(filter_.GetOutput().GetPointData().GetArray("field"))
    found = contour(values, 0.5, fields={"field": field}).point_data["field"].numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_triangles_of_unsigned_volumes(dtype: type) -> None:
    """VTK subtracts them without sign, so that its points are off their edges."""
    values = RNG.integers(0, 100, (9, 17, 70)).astype(dtype)
    points, triangles, _ = reference(values, 50.5, (1, 1, 1), (0, 0, 0))
    mesh = contour(values, 50.5)
    assert mesh.points.shape == points.shape
    np.testing.assert_array_equal(triangle_set(mesh.triangles.numpy()), triangle_set(triangles))


@pytest.fixture(scope="module")
def mri() -> np.ndarray:
    """The T1 template that nilearn contains, 0 to 255."""
    nibabel = pytest.importorskip("nibabel")
    pytest.importorskip("nilearn")
    path = resources.files("nilearn") / "datasets/data/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"
    scan = np.asarray(nibabel.load(str(path)).dataobj)
    assert scan.dtype == np.uint8
    return np.ascontiguousarray(scan)


@pytest.mark.parametrize(
    ("dtype", "level", "spacing"),
    [
        (np.uint8, 140, (1, 1, 1)),  # thousands of voxels have the value itself
        (np.float32, 90.5, (0.8, 1, 2.5)),
        (np.float64, 140, (1, 1, 1)),
    ],
)
def test_the_mri(mri: np.ndarray, dtype: type, level: float, spacing: tuple[float, ...]) -> None:
    compare(mri.astype(dtype), level, spacing, (-98, -134, -72))


def test_without_the_cells_that_have_nan() -> None:
    """VTK takes NaN for outside, with NaN points; we leave its cells out, which is done to VTK's here."""
    values = np.where(RNG.random((9, 10, 66)) < 0.03, np.nan, RNG.random((9, 10, 66)))
    points, triangles, _ = reference(values, 0.5, (1, 1, 1), (0, 0, 0))
    centres = points[triangles].mean(1)
    known = ~np.isnan(centres).any(1)
    i, j, k = np.floor(centres[known]).astype(int).T
    known[known] = ~np.isnan([values[k + c // 4, j + c // 2 % 2, i + c % 2] for c in range(8)]).any(0)
    kept, triangles = np.unique(triangles[known], return_inverse=True)
    mesh = contour(values, 0.5)
    np.testing.assert_allclose(mesh.points, points[kept], rtol=1e-6)
    np.testing.assert_array_equal(
        triangle_set(mesh.triangles.numpy()), triangle_set(triangles.reshape(-1, 3))
    )


def compare(
    values: np.ndarray,
    level: float,
    spacing: tuple[float, ...],
    origin: tuple[float, ...],
    steep: bool = True,
) -> None:
    """VTK numbers points as we do, so they and their normals agree one by one; triangles do as sets.

    Unless it is ``steep``, differences of voxels cancel, and rounding says where normals point.
    """
    points, triangles, normals = reference(values, level, spacing, origin)
    mesh = contour(values, level, spacing=spacing, origin=origin, normals=True)
    assert mesh.points.shape == points.shape
    assert mesh.triangles.shape == triangles.shape
    assert np.abs(mesh.points.numpy() - points).max() < 1e-6 * np.abs(points).max()
    assert not steep or np.abs(mesh.normals.numpy() - normals).max() < 2e-5
    np.testing.assert_array_equal(triangle_set(mesh.triangles.numpy()), triangle_set(triangles))
