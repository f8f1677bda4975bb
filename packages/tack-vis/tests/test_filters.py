"""Filters against NumPy and geometry."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from volumes import grid, sphere

from tack.vis import (
    Mesh,
    cell_to_point,
    contour,
    gradient,
    point_to_cell,
    slice_plane,
    surface_normals,
    threshold,
)

RNG = np.random.default_rng(5)
SHAPES = [(4, 5, 6), (2, 3, 70), (1, 4, 5), (3, 1, 1)]
DTYPES = [np.float64, np.float32, np.int16]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient(shape: tuple[int, ...], dtype: type) -> None:
    values = (100 * RNG.random(shape)).astype(dtype)
    found = gradient(values, spacing=(0.5, 2, 3))
    assert found.dtype.numpy == (np.float64 if dtype is np.float64 else np.float32)
    for component, (axis, step) in enumerate(((2, 0.5), (1, 2.0), (0, 3.0))):
        expected = np.zeros(shape)
        if shape[axis] > 1:
            expected = np.gradient(values.astype(np.float64), step, axis=axis)
        assert np.allclose(found.numpy()[..., component], expected, rtol=1e-6, atol=1e-12)


def test_beside_nan_a_gradient_is_one_sided() -> None:
    values = np.arange(5.0) * 2 + np.zeros((1, 1, 1))
    values[0, 0, 2] = math.nan
    assert gradient(values).numpy()[0, 0, [0, 1, 3, 4], 0].tolist() == [2, 2, 2, 2]


def test_the_gradient_of_a_linear_field_on_a_rectilinear_grid() -> None:
    xs, ys, zs = np.cumsum(RNG.random(7)), np.cumsum(RNG.random(6)), np.cumsum(RNG.random(5))
    values = 2 * xs - 3 * ys[:, None] + 5 * zs[:, None, None]
    assert np.allclose(gradient(values, coordinates=(xs, ys, zs)), [2, -3, 5])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_means_of_points_and_cells(shape: tuple[int, ...], dtype: type) -> None:
    values = (100 * RNG.random(shape)).astype(dtype)
    sides = list(itertools.product((0, 1), repeat=3))
    cells = point_to_cell(values)
    corners = [values[tuple(slice(s, n - 1 + s) for s, n in zip(side, shape, strict=True))] for side in sides]
    assert np.allclose(cells, np.mean(corners, axis=0, dtype=np.float64), rtol=1e-6)

    padded = np.full([n + 2 for n in shape], math.nan)
    padded[1:-1, 1:-1, 1:-1] = values
    around = [padded[tuple(slice(s, n + 1 + s) for s, n in zip(side, shape, strict=True))] for side in sides]
    assert np.allclose(cell_to_point(values), np.nanmean(around, axis=0), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threshold(dtype: type) -> None:
    values = (10 * RNG.random((5, 6, 7))).astype(dtype)
    if dtype is not np.int16:
        values[2, 2, 2] = math.nan
    within = (values >= 2) & (values <= 8)
    blocks = np.lib.stride_tricks.sliding_window_view(within, (2, 2, 2)).reshape(4, 5, 6, 8)
    np.testing.assert_array_equal(threshold(values, 2, 8), np.flatnonzero(blocks.all(-1)))
    np.testing.assert_array_equal(threshold(values, 2, 8, every=False), np.flatnonzero(blocks.any(-1)))
    assert threshold(values[:1], 2, 8).shape == (0,)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint64, np.int8])
def test_limits_are_compared_exactly(dtype: type) -> None:
    """Also those that the dtype, or f64, does not hold."""
    kinds = np.finfo if dtype is np.float32 else np.iinfo
    numbers = [0.7] if dtype is np.float32 else [int(np.iinfo(dtype).max) - 1]
    for number in numbers:
        values = np.full((2, 2, 2), number, dtype)
        exact = values[0, 0, 0].item()
        for limit in (
            exact - 1e-9 if dtype is np.float32 else exact - 1,
            exact,
            exact + 1,
            number,
            0.3,
            1e300,
        ):
            assert threshold(values, limit).size == (exact >= limit), limit
            assert threshold(values, high=limit).size == (exact <= limit), limit
    assert (
        threshold(
            np.full((2, 2, 2), kinds(dtype).max, dtype), 2**70 if dtype is not np.float32 else 1e39
        ).size
        == 0
    )
    flags = np.zeros((2, 3, 3), bool)
    flags[:, :, :2] = True
    assert threshold(flags, 1).numpy().tolist() == [0, 2]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda v: threshold(v, "a"), TypeError, "threshold: low is a number, not str"),
        (lambda v: threshold(v, 0, math.nan), ValueError, "threshold: high is NaN"),
        (lambda v: gradient(v, spacing=2), ValueError, "gradient: spacing is three finite numbers, not 2"),
        (lambda v: gradient(v, spacing=(1, -1, 1)), ValueError, "spacing is positive"),
        (lambda v: gradient(v.astype(np.float16)), TypeError, r"gradient: volume: .* float16.*astype"),
        (lambda v: cell_to_point(v[0]), ValueError, "cell_to_point: values has 2 dimensions"),
        (lambda v: slice_plane(v, (0, 0), (0, 0, 1)), ValueError, "point is three finite numbers"),
        (lambda v: slice_plane(v, (0, 0, 0), "abc"), ValueError, "normal is three finite numbers"),
        (lambda v: surface_normals(v), TypeError, "surface_normals: mesh is a Mesh"),
    ],
)
def test_what_is_refused(call, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(np.zeros((3, 3, 3)))


@pytest.mark.parametrize("numbers", [[0, 1, 3], [-1, 0, 1], [0, 1, 2**40]])
def test_normals_of_triangles_without_points(numbers: list[int]) -> None:
    mesh = Mesh(np.eye(3), np.array([[0, 1, 2], numbers]), None, {})
    with pytest.raises(ValueError, match=r"triangles name points .* there are 3"):
        surface_normals(mesh)


@pytest.mark.parametrize("size", [1e-12, 1, 1e12])
def test_normals_of_surfaces_of_any_size(size: float) -> None:
    """Squares of areas in f32 would be 0 or infinite."""
    mesh = contour(sphere(20, 21, 22).astype(np.float32), 0.7, spacing=(size,) * 3)
    lengths = np.linalg.norm(surface_normals(mesh), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)


def test_a_slice_lies_on_its_plane_and_has_the_values_there() -> None:
    z, y, x = grid(12, 13, 14)
    normal, point = np.array([1.0, 2.0, -0.5]), np.array([0.1, 0.0, 0.2])
    about = {"spacing": (2 / 13, 2 / 12, 2 / 11), "origin": (-1, -1, -1)}
    mesh = slice_plane(3 * x + y - 2 * z, point, normal, **about)
    points = mesh.points.numpy()
    assert np.abs((points - point) @ normal).max() < 1e-12
    assert np.allclose(mesh.point_data["values"], points @ [3, 1, -2], atol=1e-12)
    # Area: the triangles cover the plane's cut through the cube, which a sum over sheets of z gives.
    a, b, c = (points[mesh.triangles.numpy()[:, i]] for i in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2
    levels = np.linspace(-1, 1, 20_001)
    level = (levels[1:] + levels[:-1]) / 2
    # On each sheet the plane is y = (d - x + 0.5 z) / 2 for x from -1 to 1, as far as |y| <= 1.
    d = normal @ point
    low, high = (np.clip(d + 0.5 * level - 2 * s, -1, 1) for s in (1, -1))
    expected = ((high - low) * np.linalg.norm(normal) / 2).mean() * 2
    assert area == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scale", [1, 1e-200, 1e200])
@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("direction", [1, -1])
def test_a_plane_on_a_side_of_the_grid(axis: int, direction: int, scale: float) -> None:
    """From both sides, and where rounding would leave it outside."""
    values = RNG.random((4, 5, 6))
    about = {"spacing": (0.1, 0.3, 0.7), "origin": (0.3, -0.1, 0.2)}
    for end in (0, values.shape[2 - axis] - 1):
        point = np.array(about["origin"]) + end * np.array(about["spacing"])
        mesh = slice_plane(values, point, scale * direction * np.eye(3)[axis], **about)
        expected = values.take(end, 2 - axis)
        assert mesh.points.shape[0] == expected.size
        np.testing.assert_allclose(mesh.points.numpy()[:, axis], point[axis], atol=1e-14)
        np.testing.assert_allclose(
            np.sort(mesh.point_data["values"]), np.sort(expected, axis=None), atol=1e-11
        )


def test_a_plane_that_misses_and_one_that_is_none() -> None:
    values = np.zeros((3, 3, 3))
    with pytest.warns(UserWarning, match="slice_plane: the plane misses the grid, which is from 0 to 2"):
        mesh = slice_plane(values, (9, 9, 9), (1, 0, 0))
    assert mesh.triangles.shape == mesh.points.shape == (0, 3)
    assert mesh.point_data["values"].shape == (0,)
    with pytest.warns(UserWarning, match="finds no cells in a grid of shape"):
        slice_plane(values[:1], (1, 1, 0), (0, 0, 1))
    with pytest.raises(ValueError, match="no direction"):
        slice_plane(values, (1, 1, 1), (0, 0, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_surface_normals(dtype: type) -> None:
    mesh = contour(sphere(20, 21, 22).astype(dtype), 0.7)
    found = surface_normals(mesh)
    points, triangles = mesh.points.numpy().astype(np.float64), mesh.triangles.numpy()
    a, b, c = (points[triangles[:, i]] for i in range(3))
    faces = np.cross(b - a, c - a)
    expected = np.zeros_like(points)
    for corner in range(3):
        np.add.at(expected, triangles[:, corner], faces)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert found.dtype.numpy == dtype
    assert np.abs(found.numpy() - expected).max() < (1e-4 if dtype is np.float32 else 1e-9)
    assert surface_normals(mesh).numpy().tobytes() == found.numpy().tobytes()
