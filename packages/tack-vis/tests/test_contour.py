"""Contours against geometry: closed surfaces, their topology, volume and position."""

from __future__ import annotations

import itertools
import math
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from volumes import euler_characteristic, grid, is_closed, sphere, tangle, torus, volume_inside

import tack
from tack.vis import Mesh, contour, surface_normals
from tack.vis.cube_cases import CUBE_CASES


def arrays(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    return mesh.points.numpy(), mesh.triangles.numpy()


@pytest.mark.parametrize("shape", [(33, 33, 33), (20, 40, 63), (40, 20, 64), (30, 31, 65), (21, 33, 130)])
@pytest.mark.parametrize(("make", "characteristic"), [(sphere, 2), (torus, 0)])
def test_topology(make, characteristic: int, shape: tuple[int, ...]) -> None:
    level = 0.83 if make is sphere else 0.27
    points, triangles = arrays(contour(make(*shape), level))
    assert is_closed(triangles)
    assert euler_characteristic(points, triangles) == characteristic
    assert np.unique(triangles).size == len(points)


def test_a_sphere_has_its_radius_and_volume() -> None:
    n = 65
    step = 2 / (n - 1)
    mesh = contour(sphere(n, n, n), 0.8, spacing=(step,) * 3, origin=(-1, -1, -1), normals=True)
    points, triangles = arrays(mesh)
    radii = np.linalg.norm(points, axis=1)
    assert np.abs(radii - 0.8).max() < step**2 / (8 * 0.8) * 1.1  # of linear interpolation on an edge
    # Seen from inside, where the volume is less, triangles are counterclockwise, and normals point there.
    assert volume_inside(points, triangles) == pytest.approx(-4 / 3 * math.pi * 0.8**3, rel=2e-3)
    normals = mesh.normals.numpy()
    assert np.abs(np.linalg.norm(normals, axis=1) - 1).max() < 1e-12
    assert (np.sum(normals * -points, axis=1) / radii).min() > 0.999


def test_genus_of_the_tangle_cube() -> None:
    points, triangles = arrays(contour(tangle(40, 40, 40), 0.1))
    assert is_closed(triangles)
    assert euler_characteristic(points, triangles) == -8  # 2 - 2 * 5 holes


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int16])
@pytest.mark.parametrize("shape", [(4, 5, 6), (9, 8, 70), (3, 3, 129)])
def test_noise_in_a_frame_is_closed(shape: tuple[int, ...], dtype: type) -> None:
    values = np.zeros(shape, dtype)
    inner = tuple(slice(1, -1) for _ in shape)
    noise = np.random.default_rng(0).integers(0, 100, [n - 2 for n in shape])
    values[inner] = noise
    points, triangles = arrays(contour(values, 50))
    assert is_closed(triangles)
    assert np.unique(triangles).size == len(points)
    # Inside are the voxels of at least 50: each crossed grid edge has a point, and there are no others.
    inside = values >= 50
    assert len(points) == sum(np.diff(inside, axis=a).sum() for a in range(3))


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2))
def test_two_cubes_beside_each_other_fit(a: int, b: int, axis: int) -> None:
    """Also with an ambiguous face between: in a frame of zeros the surface of any cells is closed."""
    values = np.zeros((5, 5, 5), np.float32)
    for n, case in enumerate((a, b)):
        for corner in range(8):
            at = [1 + (corner >> 2 & 1), 1 + (corner >> 1 & 1), 1 + (corner & 1)]
            at[axis] += n
            values[tuple(at)] = case >> corner & 1
    if values.any():
        assert is_closed(arrays(contour(values, 0.5))[1])


def test_points_are_where_the_edges_cross() -> None:
    """Against a loop over all edges of the grid."""
    values = np.random.default_rng(1).random((4, 5, 6))
    xs, ys, zs = np.array([0, 1, 3, 4, 7, 9.5]), np.linspace(-2, 2, 5) ** 3, np.array([5, 6, 8, 8.5])
    expected = set()
    for k, j, i in np.ndindex(values.shape):
        for dk, dj, di in ((0, 0, 1), (0, 1, 0), (1, 0, 0)):
            k1, j1, i1 = k + dk, j + dj, i + di
            if k1 == 4 or j1 == 5 or i1 == 6 or (values[k, j, i] >= 0.5) == (values[k1, j1, i1] >= 0.5):
                continue
            t = (0.5 - values[k, j, i]) / (values[k1, j1, i1] - values[k, j, i])
            ends = np.array([xs[i], ys[j], zs[k]]), np.array([xs[i1], ys[j1], zs[k1]])
            expected.add(tuple(np.round(ends[0] + t * (ends[1] - ends[0]), 9).tolist()))
    found = contour(values, 0.5, coordinates=(xs, ys, zs)).points.numpy()
    assert found.dtype == np.float64
    assert {tuple(p) for p in np.round(found, 9).tolist()} == expected


def test_spacing_and_origin() -> None:
    values = sphere(12, 13, 14)
    plain = contour(values, 0.5).points.numpy()
    moved = contour(values, 0.5, spacing=(0.5, 2, 3), origin=(7, -8, 9)).points.numpy()
    assert np.allclose(moved, plain * [0.5, 2, 3] + [7, -8, 9], rtol=1e-15, atol=1e-14)


def test_several_values_follow_each_other() -> None:
    values = sphere(20, 20, 20)
    levels = [0.4, 0.9, 0.6]
    mesh = contour(values, levels, scalars=True)
    lone = [contour(values, level) for level in levels]
    np.testing.assert_array_equal(mesh.points, np.concatenate([m.points for m in lone]))
    first = np.cumsum([0, *(m.points.shape[0] for m in lone)])
    shifted = [m.triangles.numpy() + start for m, start in zip(lone, first, strict=False)]
    np.testing.assert_array_equal(mesh.triangles, np.concatenate(shifted))
    expected = np.repeat(levels, [m.points.shape[0] for m in lone])
    np.testing.assert_array_equal(mesh.point_data["scalars"], expected)


@pytest.mark.parametrize("levels", [0.8, [0.8, 0.6]])
def test_triangles_of_i64(levels: float | list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """As more than 2^31 - 1 points have them, here of fewer."""
    module = sys.modules["tack.vis.contour"]
    values = sphere(12, 13, 70)
    expected = contour(values, levels)
    make = module._new_mesh

    def with_i64(*args: object) -> Mesh:
        mesh = make(*args)
        mesh.triangles = mesh.triangles.astype(tack.i64)
        return mesh

    monkeypatch.setattr(module, "_new_mesh", with_i64)
    mesh = contour(values, levels)
    assert mesh.triangles.dtype is tack.i64
    np.testing.assert_array_equal(mesh.triangles, expected.triangles)
    np.testing.assert_array_equal(mesh.points, expected.points)
    np.testing.assert_array_equal(surface_normals(mesh), surface_normals(expected))


def test_fields_are_interpolated() -> None:
    z, y, x = grid(15, 16, 17)
    fields = {"linear": 3 * x - y + 2 * z, "count": np.full(x.shape, 7), "eighths": np.uint8(8 * (x + 1))}
    mesh = contour(sphere(15, 16, 17), 0.7, fields=fields)
    places = mesh.points.numpy() / [8, 7.5, 7] - 1
    assert np.allclose(mesh.point_data["linear"], places @ [3, -1, 2], atol=1e-13)
    assert mesh.point_data["count"].dtype is tack.f32
    assert (mesh.point_data["count"].numpy() == 7).all()
    assert np.modf(mesh.point_data["eighths"].numpy())[0].any()  # not cut off


def test_values_on_grid_points() -> None:
    """They count as inside; the surface stays closed, with points that coincide."""
    values = np.minimum(np.round(3 * sphere(16, 16, 16)), 4)
    points, triangles = arrays(contour(values, 2.0))
    assert is_closed(triangles)
    assert np.isfinite(points).all()


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_integers_are_compared_exactly(dtype: str) -> None:
    top = np.iinfo(dtype).max
    values = np.full((3, 3, 3), top - 1, dtype)
    values[1, 1, 1] = top
    mesh = contour(values, top, normals=True, scalars=True)  # also where doubles do not tell them apart
    assert mesh.points.shape == (6, 3)
    assert np.isfinite(mesh.points).all()
    if np.iinfo(dtype).bits < 64:
        assert contour(values, top - 0.5).triangles.shape == (8, 3)
    with pytest.warns(UserWarning, match=f"are from {top - 1} to {top}"):
        assert contour(values, 2.0**65).points.shape == (0, 3)


# --- masks and NaN ----------------------------------------------------------------------------


def without_cells(values: np.ndarray, bad: np.ndarray, level: float) -> tuple[int, int]:
    """How many points and triangles the cells without bad corners have, cell by cell."""
    points, triangles = set(), 0
    for k, j, i in np.ndindex(*(n - 1 for n in values.shape)):
        cell = values[k : k + 2, j : j + 2, i : i + 2]
        if bad[k : k + 2, j : j + 2, i : i + 2].any() or (cell >= level).all() or (cell < level).all():
            continue
        mesh = contour(cell, level, origin=(i, j, k))
        triangles += mesh.triangles.shape[0]
        points |= {tuple(p) for p in np.round(mesh.points.numpy(), 9).tolist()}
    return len(points), triangles


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_masked_cells_are_left_out(share: float) -> None:
    rng = np.random.default_rng(3)
    values = rng.random((4, 5, 67))
    mask = rng.random(values.shape) >= share
    expected = without_cells(values, ~mask, 0.5)
    mesh = contour(values, 0.5, mask=mask)
    assert (mesh.points.shape[0], mesh.triangles.shape[0]) == expected
    assert np.unique(mesh.triangles).size == mesh.points.shape[0]
    holes = np.where(mask, values, math.nan)
    again = contour(holes, 0.5, normals=True)
    assert np.allclose(np.linalg.norm(again.normals, axis=1), 1)
    np.testing.assert_array_equal(again.points, mesh.points)
    np.testing.assert_array_equal(again.triangles, mesh.triangles)


def test_nothing_but_nan() -> None:
    with pytest.warns(UserWarning, match="no surface has the value"):
        assert contour(np.full((3, 3, 3), math.nan), 0).points.shape == (0, 3)


@pytest.mark.parametrize(
    ("low", "high", "place"), [(-math.inf, 1, 1), (0, math.inf, 0), (-math.inf, math.inf, 0.5)]
)
def test_infinite_voxels(low: float, high: float, place: float) -> None:
    """Points are on the finite end of their edge, or in its middle; unknown normals are 0."""
    inside = sphere(7, 7, 7) < 0.5
    mesh = contour(np.where(inside, high, low), 0.5, normals=True)
    assert mesh.points.shape == contour(inside, 0.5).points.shape
    assert is_closed(mesh.triangles.numpy())
    fraction = np.modf(mesh.points.numpy())[0]
    assert set(np.unique(fraction)) == ({0, 0.5} if place == 0.5 else {0})
    assert np.isfinite(mesh.normals.numpy()).all()


def test_a_volume_of_booleans() -> None:
    """As their bytes: what a label of a segmentation covers."""
    labels = np.random.default_rng(0).integers(0, 3, (6, 7, 8))
    mesh, expected = contour(labels == 1, 0.5), contour((labels == 1).astype(np.uint8), 0.5)
    np.testing.assert_array_equal(mesh.points, expected.points)
    np.testing.assert_array_equal(mesh.triangles, expected.triangles)


# --- nothing, and errors ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 0, 0), (1, 1, 1), (0, 3, 3), (3, 3, 0), (1, 4, 4), (4, 4, 1)])
def test_grids_without_cells(shape: tuple[int, ...]) -> None:
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    with pytest.warns(UserWarning, match=r"contour: no surface has the value 5.5; a grid of shape .* has no"):
        mesh = contour(values, 5.5, normals=True, scalars=True, fields={"x": values})
    assert mesh.triangles.shape == mesh.points.shape == mesh.normals.shape == (0, 3)
    assert mesh.point_data["scalars"].shape == mesh.point_data["x"].shape == (0,)
    with pytest.warns(UserWarning, match=r"the value [15].5; a grid") as warned:
        assert contour(values, [5.5, 1.5]).points.shape == (0, 3)
    assert len(warned) == 2


def test_a_value_out_of_range() -> None:
    with pytest.warns(UserWarning, match="the value 7.0; the volume's values are from 1.0 to 2.0"):
        mesh = contour(np.linspace(1, 2, 27).reshape(3, 3, 3), 7)
    assert repr(mesh) == "Mesh(0 points, 0 triangles)"


CUBE = np.arange(27, dtype=np.float32).reshape(3, 3, 3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: contour(CUBE[0], 1), ValueError, "volume has 2 dimensions"),
        (lambda: contour([[[1.0]]], 1), TypeError, "not list"),
        (lambda: contour(CUBE, math.nan), ValueError, "a value is NaN"),
        (lambda: contour(CUBE, None), TypeError, "contour: values is a number or a sequence of numbers"),
        (lambda: contour(CUBE, [[1, 2], [3, 4]]), TypeError, "contour: values is a number or a sequence"),
        (lambda: contour(CUBE, 1, fields=CUBE), TypeError, "contour: fields is a dict of volumes by name"),
        (lambda: contour(CUBE, 1, fields={"scalars": CUBE}, scalars=True), ValueError, "named scalars"),
        (lambda: contour(CUBE, 1, spacing=(1, 2)), ValueError, "spacing is three finite numbers"),
        (lambda: contour(CUBE, 1, spacing=2), ValueError, "spacing is three finite numbers, not 2"),
        (lambda: contour(CUBE, 1, spacing=(1, 0, 1)), ValueError, "spacing is positive"),
        (lambda: contour(CUBE, 1, spacing=(1, 1, -1)), ValueError, r"flipped axis is grid\[..., ::-1\]"),
        (lambda: contour(CUBE, 1, spacing=(1e308,) * 3), ValueError, "past what floats hold"),
        (lambda: contour(CUBE.astype(np.float16), 1), TypeError, r"contour: volume: .* float16.*astype"),
        (lambda: contour(CUBE, 1, mask=CUBE.astype(complex)), TypeError, "contour: mask: .* complex"),
        (lambda: contour(CUBE, 1, coordinates=5), TypeError, "coordinates are three arrays of numbers"),
        (
            lambda: contour(CUBE, 1, coordinates=([0, 1, 2],) * 3, origin=(1, 0, 0)),
            ValueError,
            "spacing and origin do not go with them",
        ),
        (lambda: contour(CUBE, 1, origin=(1, 2, math.inf)), ValueError, "origin is three finite numbers"),
        (lambda: contour(CUBE, 1, mask=CUBE[:2]), ValueError, r"mask has shape \(2, 3, 3\)"),
        (lambda: contour(CUBE, 1, fields={"f": CUBE[:2]}), ValueError, r"fields\['f'\] has shape"),
        (lambda: contour(CUBE, 1, coordinates=([0, 1], [0, 1, 2], [0, 1, 2])), ValueError, "planes"),
        (
            lambda: contour(CUBE, 1, coordinates=([0, 2, 1],) * 3),
            ValueError,
            "x coordinates must be finite, and",
        ),
    ],
)
def test_what_is_refused(call, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_strides_and_devices() -> None:
    values = sphere(10, 11, 12)
    expected = contour(values, 0.5)
    for same in (np.asfortranarray(values), np.repeat(values, 2, axis=2)[:, :, ::2], tack.asarray(values)):
        np.testing.assert_array_equal(contour(same, 0.5).points, expected.points)
    lone = tack.asarray(values, device=tack.device("cpu", num_threads=1))
    np.testing.assert_array_equal(contour(lone, 0.5).triangles, expected.triangles)


def test_numpy_arrays_go_to_the_device_of_the_volume() -> None:
    values = sphere(10, 11, 12)
    given = {"mask": values > 0.3, "fields": {"double": 2 * values}}
    expected = contour(values, 0.5, **given)
    elsewhere = tack.device("cpu", num_threads=1)
    found = contour(tack.asarray(values, device=elsewhere), 0.5, **given)
    assert found.points.device == found.point_data["double"].device == elsewhere
    np.testing.assert_array_equal(found.triangles, expected.triangles)
    np.testing.assert_array_equal(found.point_data["double"], expected.point_data["double"])
    with pytest.raises(ValueError, match="mask is on"):
        contour(values, 0.5, mask=tack.asarray(np.ones(values.shape, np.uint8), device=elsewhere))


def test_the_same_result_every_time() -> None:
    values = np.random.default_rng(0).random((30, 31, 32)).astype(np.float32)
    first, second = contour(values, 0.5, normals=True), contour(values, 0.5, normals=True)
    for a, b in itertools.pairwise([(m.points, m.triangles, m.normals) for m in (first, second)]):
        for left, right in zip(a, b, strict=True):
            np.testing.assert_array_equal(left, right)


def test_surfaces_that_follow_others_of_the_same_grid() -> None:
    """Larger, smaller, a little smaller and none at all: what a device keeps of the last must not show."""
    values = sphere(24, 25, 70).astype(np.float32)
    for level in (0.5, 0.5, 0.51, 0.9, 0.4, 0.395, 5.0, 0.4, 0.4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            points, triangles = arrays(contour(values, level))
            # Several values at once do not rely on the last surface.
            all_points, all_triangles = arrays(contour(values, [level, 0.7]))
        np.testing.assert_array_equal(points, all_points[: len(points)])
        np.testing.assert_array_equal(triangles, all_triangles[: len(triangles)])
        assert all_triangles[len(triangles) :].min() == len(points)
    holes = values.copy()
    holes[np.unravel_index(np.argmin(abs(values - 0.9)), values.shape)] = np.nan
    whole = contour(values, [0.9, 0.7]).triangles.shape[0] - contour(values, [0.7]).triangles.shape[0]
    for volume in (holes, values, holes, values, values):
        count = contour(volume, 0.9).triangles.shape[0]
        assert count == whole if volume is values else 0 < count < whole
    both = contour(holes, [0.9, 0.7])
    for n in range(2):  # points, triangles
        each = [arrays(contour(holes, level))[n] for level in (0.9, 0.7)]
        assert len(arrays(both)[n]) == len(each[0]) + len(each[1])


@pytest.mark.parametrize("shape", [(2, 3, 17_000), (3, 300, 40), (130, 2, 65), (4, 5, 512)])
def test_rows_of_any_length(shape: tuple[int, ...]) -> None:
    """Each voxel edge that the surface crosses has one point, and each cell has the triangles of its case."""
    values = np.random.default_rng(1).random(shape).astype(np.float32)
    inside = values >= np.float32(0.5)
    crossed = sum(int((np.diff(inside, axis=axis) != 0).sum()) for axis in range(3))
    nz, ny, nx = shape
    cases = sum(
        inside[z : nz - 1 + z, y : ny - 1 + y, x : nx - 1 + x].astype(int) << n
        for n, (z, y, x) in enumerate(itertools.product((0, 1), repeat=3))
    )
    counts = np.array([case & 15 for case in CUBE_CASES])
    points, triangles = arrays(contour(values, 0.5))
    assert len(points) == crossed
    assert len(triangles) == counts[cases].sum()
    np.testing.assert_array_equal(np.unique(triangles), np.arange(crossed))
    # Two coordinates are a voxel's, the third is between two.
    assert ((points >= 0) & (points <= np.array(shape[::-1]) - 1)).all()
    assert ((points == np.floor(points)).sum(axis=1) >= 2).all()
