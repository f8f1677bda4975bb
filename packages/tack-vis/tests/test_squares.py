"""Lines of images: closed, in place, and as many as VTK's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tack.vis import marching_squares

RNG = np.random.default_rng(2)


def disc(ny: int, nx: int) -> np.ndarray:
    y, x = np.meshgrid(np.linspace(-1, 1, ny), np.linspace(-1, 1, nx), indexing="ij")
    return 1 - np.hypot(x, y)


def area(points: np.ndarray, lines: np.ndarray) -> float:
    """What closed lines enclose, positive if it is on their left."""
    a, b = points[lines[:, 0]], points[lines[:, 1]]
    return float(np.sum(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])) / 2


def test_a_circle() -> None:
    n = 101
    found = marching_squares(disc(n, n), 0.3, spacing=(2 / (n - 1),) * 2, origin=(-1, -1))
    points, lines = found.points.numpy(), found.lines.numpy()
    assert np.abs(np.linalg.norm(points, axis=1) - 0.7).max() < 1e-4
    assert area(points, lines) == pytest.approx(math.pi * 0.49, rel=1e-3)
    assert (np.bincount(lines[:, 0]) == 1).all()
    assert (np.bincount(lines[:, 1]) == 1).all()
    assert repr(found) == f"Lines({len(points)} points, {len(lines)} lines)"


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_noise_in_a_frame_is_closed(dtype: type) -> None:
    image = np.zeros((20, 31), dtype)
    image[1:-1, 1:-1] = RNG.integers(0, 100, (18, 29))
    found = marching_squares(image, 50)
    lines = found.lines.numpy()
    inside = image >= 50
    assert found.points.shape[0] == np.diff(inside, axis=0).sum() + np.diff(inside, axis=1).sum()
    np.testing.assert_array_equal(np.sort(lines[:, 0]), np.arange(len(lines)))
    np.testing.assert_array_equal(np.sort(lines[:, 1]), np.arange(len(lines)))
    assert found.points.shape[0] == len(lines)


def test_cells_with_nan_have_no_lines() -> None:
    image = RNG.random((9, 10))
    image[4, 5] = math.nan
    found = marching_squares(image, 0.5)
    points = found.points.numpy()
    assert np.isfinite(points).all()
    assert np.unique(found.lines).size == len(points)
    expected = sum(
        marching_squares(image[j : j + 2, i : i + 2], 0.5).lines.shape[0] for j in range(8) for i in range(9)
    )
    assert found.lines.shape[0] == expected
    assert marching_squares(np.full((3, 3), math.nan), 0).points.shape == (0, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint64, np.int8])
def test_values_are_compared_exactly(dtype: type) -> None:
    least = np.float32(0.7) if dtype is np.float32 else dtype(np.iinfo(dtype).max - 2)
    image = np.full((3, 3), least, dtype)
    image[1, 1] = 2 if dtype is np.float32 else np.iinfo(dtype).max
    assert marching_squares(image, least.item() + (1e-9 if dtype is np.float32 else 1)).points.shape[0] in (
        (4,) if np.dtype(dtype).itemsize < 8 else (0, 4)  # doubles do not hold the value
    )
    assert marching_squares(image, 0.7 if dtype is np.float32 else -1).points.shape[0] == (
        4 if dtype is np.float32 else 0  # 0.7 as f32 is less than 0.7
    )
    assert marching_squares(image, 2.0**70).points.shape[0] == 0


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_that_doubles_do_not_hold(dtype: type) -> None:
    top = int(np.iinfo(dtype).max)
    image = np.full((3, 3), top - 2, dtype)
    image[1, 1] = top - 1
    for level in (top - 1, dtype(top - 1)):
        assert marching_squares(image, level).points.shape == (4, 2)
    for level in (top, top - 2, [top - 2, top]):
        assert marching_squares(image, level).points.shape == (0, 2)
    assert np.isfinite(marching_squares(image, top - 1).points).all()


def test_booleans_and_infinities() -> None:
    image = np.zeros((5, 5), bool)
    image[2, 2] = True
    assert sorted(map(tuple, marching_squares(image, 0.5).points.numpy().tolist())) == [
        (1.5, 2), (2, 1.5), (2, 2.5), (2.5, 2)
    ]  # fmt: skip
    for low, high, place in ((-math.inf, 1, 1), (0, math.inf, 0), (-math.inf, math.inf, 0.5)):
        found = marching_squares(np.where(image, high, low), 0.5).points.numpy()
        assert sorted(map(tuple, found.tolist())) == [
            (1 + place, 2),
            (2, 1 + place),
            (2, 3 - place),
            (3 - place, 2),
        ]


def test_several_values_and_empty_grids() -> None:
    image = disc(20, 21)
    levels = [0.2, 5.0, 0.6]
    together = marching_squares(image, levels)
    lone = [marching_squares(image, level) for level in levels]
    np.testing.assert_array_equal(together.points, np.concatenate([part.points for part in lone]))
    starts = np.cumsum([0, *(part.points.shape[0] for part in lone)])
    np.testing.assert_array_equal(
        together.lines, np.concatenate([p.lines.numpy() + s for p, s in zip(lone, starts, strict=False)])
    )
    for shape in ((0, 0), (1, 1), (0, 3), (4, 1)):
        assert marching_squares(np.zeros(shape), 0.5).lines.shape == (0, 2)


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="not list"):
        marching_squares([[1.0]], 0)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        marching_squares(np.zeros(3), 0)
    with pytest.raises(TypeError, match=r"marching_squares: image: .* float16.*astype"):
        marching_squares(np.zeros((3, 3), np.float16), 0)
    for values in (None, "a", [None], [[1.0]]):
        with pytest.raises(TypeError, match="values is a number or a sequence of numbers"):
            marching_squares(np.zeros((3, 3)), values)
    for spacing in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="spacing is positive"):
            marching_squares(np.zeros((3, 3)), 0, spacing=spacing)
    with pytest.raises(ValueError, match="is NaN"):
        marching_squares(np.zeros((3, 3)), math.nan)
    for spacing in ((1, 2, 3), 2, None, (1, math.inf)):
        with pytest.raises(ValueError, match="spacing is two finite numbers"):
            marching_squares(np.zeros((3, 3)), 0, spacing=spacing)


@pytest.mark.parametrize("level", [0.5, 1.0])
def test_as_many_as_vtk(level: float) -> None:
    pytest.importorskip("vtkmodules.vtkFiltersCore", exc_type=ImportError)
    from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
    from vtkmodules.vtkCommonDataModel import vtkImageData
    from vtkmodules.vtkFiltersCore import vtkFlyingEdges2D

    values = RNG.random((30, 41)) if level == 0.5 else RNG.integers(0, 3, (30, 41)).astype(float)
    image = vtkImageData()
    image.SetDimensions(41, 30, 1)
    image.GetPointData().SetScalars(numpy_to_vtk(values.ravel()))
    flying = vtkFlyingEdges2D()
    flying.SetInputData(image)
    flying.SetValue(0, level)
    flying.Update()
    theirs = vtk_to_numpy(flying.GetOutput().GetPoints().GetData())
    found = marching_squares(values, level)
    assert found.points.shape[0] == len(theirs)
    assert found.lines.shape[0] == flying.GetOutput().GetNumberOfLines()
    ours = found.points.numpy()
    order, their_order = np.lexsort(np.round(ours, 3).T), np.lexsort(np.round(theirs[:, :2], 3).T)
    assert np.abs(ours[order] - theirs[their_order, :2]).max() < 2e-3
