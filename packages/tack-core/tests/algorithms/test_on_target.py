"""Each algorithm on the device of ``--target``, with arrays that live there. A run on the CPU starts one of
the emulated CUDA driver."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import tack
from algorithms.inputs import BLOCK, any_values, equal, finite_values
from tack import algorithms, f32, f64, i32, i64, u8

SIZES = [0, 1, 257, 2 * BLOCK + 3]
GRID = np.linspace(-1, 1, 20)
Z, Y, X = np.meshgrid(GRID, GRID, GRID, indexing="ij")
BALL = np.sqrt(X * X + Y * Y + Z * Z)


@pytest.fixture(autouse=True)
def on_target(target: str) -> Iterator[None]:
    tack.set_default_device(target)
    yield
    tack.set_default_device(None)


def widest() -> tack.DType:
    """The widest float type that the device has."""
    return f64 if tack.default_device().supports_f64 else f32


def test_the_same_on_the_emulated_driver(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--target") != "cpu":
        pytest.skip("this is such a run")
    missing = [name for name in ("g++", "ld") if shutil.which(name) is None]
    missing += ["cuda-bindings"] if importlib.util.find_spec("cuda") is None else []
    if missing and "cuda-emu" not in os.environ.get("TACK_REQUIRE_TARGETS", ""):
        pytest.skip(f"the emulated driver needs {', '.join(missing)}")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--target", "cuda-emu"]
    done = subprocess.run([*command, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("size", SIZES)
def test_scans(size: int) -> None:
    x = any_values(i32, size)
    before, total = algorithms.exclusive_scan(tack.asarray(x), dtype=i64, total=True)
    assert total == x.sum(dtype=np.int64)
    equal(before, np.cumsum(x, dtype=np.int64) - x)
    values = finite_values(f32, size)
    arr = tack.asarray(values)
    algorithms.inclusive_scan(arr, "max", out=arr)
    equal(arr, np.maximum.accumulate(values) if size else values)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [u8, i32, f64], ids=str)
def test_sorts(dtype: tack.DType, size: int) -> None:
    values = any_values(dtype, size)
    if dtype not in tack.default_device().supported_dtypes:
        with pytest.raises(TypeError, match=f"has no {dtype}"):
            tack.asarray(values)
        return
    order = np.argsort(values, kind="stable")
    equal(algorithms.sort(tack.asarray(values)), values[order])
    keys, numbers = algorithms.sort_by_key(tack.asarray(values), tack.arange(size))
    equal(keys, values[order])
    equal(numbers, order.astype(np.int32))


def test_runs_and_selection() -> None:
    values = np.random.default_rng(0).integers(0, 50, 2 * BLOCK).astype(np.int32)
    found, counts = algorithms.unique(tack.asarray(values), counts=True)
    expected = np.unique(values, return_counts=True)
    equal(found, expected[0])
    equal(counts, expected[1])
    mask = values > 30
    equal(algorithms.compact(tack.asarray(values), tack.asarray(mask.view(np.uint8))), values[mask])
    equal(algorithms.where(tack.asarray(values)), np.flatnonzero(values).astype(np.int32))
    sums = algorithms.segmented_reduce(tack.asarray(values), np.array([0, 0, 7, BLOCK + 1, 2 * BLOCK]))
    equal(sums, np.array([0, values[:7].sum(), values[7 : BLOCK + 1].sum(), values[BLOCK + 1 :].sum()]))


def test_indexing() -> None:
    values = finite_values(f32, 1000)
    picks = np.random.default_rng(0).integers(-1000, 1000, 300)
    equal(algorithms.gather(tack.asarray(values), tack.asarray(picks)), values[picks])
    out = tack.zeros(1000)
    algorithms.scatter(out, tack.arange(999, -1, -1), tack.asarray(values))
    equal(out, values[::-1])
    ordered = np.sort(values)
    equal(
        algorithms.searchsorted(tack.asarray(ordered), tack.asarray(values)),
        np.searchsorted(ordered, values).astype(np.int32),
    )


def test_results_are_on_the_device_and_totals_are_numbers() -> None:
    x = tack.asarray(np.arange(6, dtype=np.int32) % 4)
    rows, offsets, mask = x.reshape((2, 3)), np.array([0, 2, 6]), np.array([1, 0, 1, 1, 0, 1], np.uint8)
    arrays = [
        algorithms.inclusive_scan(x),
        *algorithms.exclusive_scan(x, total=True)[:1],
        algorithms.segmented_scan(x, offsets),
        algorithms.segmented_reduce(x, offsets),
        algorithms.reduce(rows, axis=0),
        algorithms.sort(x),
        algorithms.argsort(x),
        *algorithms.sort_by_key(x, x),
        *algorithms.unique(x, counts=True),
        *algorithms.run_length(x),
        *algorithms.reduce_by_key(x, x),
        *algorithms.histogram(x, 4, range=(0, 4)),
        *algorithms.histogram(x, np.array([0, 1, 4], np.int32), weights=x),
        algorithms.compact(x, mask),
        algorithms.where(mask),
        algorithms.gather(x, offsets[:2]),
        algorithms.searchsorted(x, x),
        algorithms.copy(x),
    ]
    for found in arrays:
        assert isinstance(found, tack.Array)
        assert found.device == tack.default_device()
    totals = [algorithms.exclusive_scan(x, total=True)[1], algorithms.reduce(x), algorithms.reduce(x, "max")]
    totals += [algorithms.dot(x, x), algorithms.absmax(x), algorithms.count_nonzero(x)]
    assert totals == [7, 7, 3, 15, 3, 4]
    assert {type(total) for total in totals} == {int}
    floats = [algorithms.var(x), algorithms.std(x), algorithms.norm(x), algorithms.reduce(x, "mean")]
    assert {type(number) for number in floats} == {float}


def test_reductions_and_statistics() -> None:
    values = finite_values(widest(), 6000)
    arr = tack.asarray(values.reshape(20, 300))
    for axis in (0, 1):
        exact = values.reshape(20, 300).sum(axis=axis, dtype=np.float64)
        assert np.allclose(algorithms.reduce(arr, axis=axis), exact, atol=1e-5)
        equal(algorithms.reduce(arr, "max", axis=axis), values.reshape(20, 300).max(axis=axis))
    assert algorithms.var(arr) == pytest.approx(values.var())
    assert algorithms.norm(arr) == pytest.approx(math.sqrt(algorithms.dot(arr, arr)))
    for calm in (values, np.float32(1e30) * finite_values(f32, 500), any_values(i64, 500)):
        # Devices without f64 add up in f32, which must not overflow.
        exact, tolerance = calm.astype(np.float64), 1e-12 if widest() is f64 else 1e-5
        assert algorithms.var(calm) == pytest.approx(exact.var(), rel=tolerance)
        assert algorithms.norm(calm) == pytest.approx(np.linalg.norm(exact), rel=tolerance)
    counts, edges = algorithms.histogram(arr, bins=37)
    expected = np.histogram(values, bins=37)
    equal(counts, expected[0])
    equal(edges, expected[1])


def test_contours_are_those_of_the_cpu() -> None:
    vis = pytest.importorskip("tack.vis")
    wide = BALL.astype(widest().numpy)
    holes = wide.copy()
    holes[4, 5, 9] = math.nan
    for volume in (wide, BALL.astype(np.float32), (100 * BALL).astype(np.int16), holes):
        level = 70 if volume.dtype == np.int16 else 0.7
        there = vis.contour(tack.asarray(volume), level, normals=True, fields={"x": X.astype(wide.dtype)})
        here = vis.contour(tack.asarray(volume, device="cpu"), level, normals=True)
        equal(there.triangles, here.triangles.numpy())
        assert np.allclose(there.points, here.points.numpy(), rtol=1e-6)
        assert np.allclose(there.normals, here.normals.numpy(), atol=1e-5)
        assert np.allclose(there.point_data["x"], there.points.numpy()[:, 0] / 9.5 - 1, atol=1e-6)


def test_other_filters_are_those_of_the_cpu() -> None:
    vis = pytest.importorskip("tack.vis")
    wide = BALL.astype(widest().numpy)
    tolerance = 1e-12 if wide.dtype == np.float64 else 1e-5
    results = []
    for device in (None, "cpu"):
        volume = tack.asarray(wide, device=device)
        mesh = vis.contour(volume, 0.6)
        cut = vis.slice_plane(volume, (9.3, 9.1, 8.7), (1, 2, 3))
        lines = vis.marching_squares(tack.asarray(wide[7], device=device), 0.7)
        results.append(
            [
                vis.gradient(volume),
                vis.point_to_cell(volume),
                vis.cell_to_point(volume),
                vis.threshold(volume, 0.2, 0.9),
                vis.surface_normals(mesh),
                cut.points,
                cut.triangles,
                cut.point_data["values"],
                lines.points,
                lines.lines,
            ]
        )
    for there, here in zip(*results, strict=True):
        assert there.shape == here.shape
        assert np.allclose(there, here.numpy(), rtol=tolerance, atol=tolerance)
