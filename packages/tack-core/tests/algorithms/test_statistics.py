"""Reductions, statistics and histograms against exact sums and NumPy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import tack
from algorithms.inputs import BLOCK, DTYPES, FLOATS, INTEGERS, SIZES, any_values, equal, finite_values
from tack import DType, algorithms, f32, f64, i8, i32, i64, u8, u64

SHAPES = [(1, 1, 1), (3, 0, 2), (2, 300, 1), (1, 129, 70), (40, 5, 33), (2, 20_000, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_along_an_axis(dtype: DType, shape: tuple[int, ...]) -> None:
    values = finite_values(dtype, math.prod(shape)).reshape(shape)
    wide = dtype if dtype.is_float else i64 if dtype.is_signed else u64
    for axis in (0, 1, -1):
        total = algorithms.reduce(values, axis=axis)
        expected = values.sum(axis=axis, dtype=np.float64 if dtype.is_float else wide.numpy)
        assert total.dtype is wide
        assert total.shape == expected.shape
        if dtype.is_float:
            bound = np.abs(values).sum(axis=axis, dtype=np.float64) * 2.0**-53 * 400
            rounding = np.spacing(np.abs(expected.astype(dtype.numpy)))
            assert (np.abs(total.numpy() - expected) <= bound + rounding).all()
        else:
            equal(total, expected)
        if values.shape[axis] == 0:
            assert np.isnan(algorithms.reduce(values, "mean", axis=axis).numpy()).all()
            with pytest.raises(ValueError, match="has no elements"):
                algorithms.reduce(values, "min", axis=axis)
            continue
        equal(algorithms.reduce(values, "min", axis=axis), values.min(axis=axis))
        equal(algorithms.reduce(values, "max", axis=axis), values.max(axis=axis))
        mean = algorithms.reduce(values, "mean", axis=axis)
        assert mean.dtype is (dtype if dtype.is_float else f64)
        assert np.allclose(mean, total.numpy() / values.shape[axis], rtol=1e-6)


def test_nan_wins_along_an_axis() -> None:
    values = finite_values(f32, 12).reshape(3, 4)
    values[1, 2] = math.nan
    for op in ("sum", "min", "max", "mean"):
        np.testing.assert_array_equal(np.isnan(algorithms.reduce(values, op, axis=0)), [0, 0, 1, 0])


@pytest.mark.parametrize("extent", [127, 128, 255, 257, (1 << 13) - 1, 1 << 13, (1 << 13) + 1, 3 << 13])
@pytest.mark.parametrize("dtype", [i8, u64, f32], ids=str)
def test_long_lines(dtype: DType, extent: int) -> None:
    values = any_values(dtype, 3 * extent).reshape(3, extent)
    for op in ("min", "max"):
        np.testing.assert_array_equal(algorithms.reduce(values, op, axis=1), getattr(values, op)(axis=1))
    calm = finite_values(dtype, 3 * extent).reshape(3, extent)
    sums = algorithms.reduce(calm, axis=1).numpy()
    if dtype.is_float:
        assert np.allclose(sums, calm.sum(axis=1, dtype=np.float64), rtol=1e-6, atol=1e-4)
    else:
        np.testing.assert_array_equal(sums, calm.sum(axis=1, dtype=sums.dtype))


@pytest.mark.parametrize("op", ["sum", "mean", "min", "max"])
def test_the_reduction_of_a_prefix(op: str) -> None:
    values = finite_values(f64, 5000).reshape(50, 100)
    assert algorithms.reduce(values, op, n=777) == getattr(tack.asarray(values.ravel()[:777]), op)()
    assert algorithms.reduce(values, n=0) == 0


@pytest.mark.parametrize("op", ["sum", "mean", "min", "max"])
def test_whole_reductions_are_those_of_arrays(op: str) -> None:
    values = finite_values(f64, 5000)
    assert algorithms.reduce(values, op) == getattr(tack.asarray(values), op)()


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, BLOCK + 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_variance(dtype: DType, size: int) -> None:
    values = finite_values(dtype, size)
    exact = [Fraction(v) for v in values.tolist()]
    mean = sum(exact) / size
    expected = float(sum((v - mean) ** 2 for v in exact) / size)
    assert algorithms.var(values) == pytest.approx(expected, rel=1e-12)
    assert algorithms.std(values) == pytest.approx(math.sqrt(expected), rel=1e-12)
    if size > 1:
        assert algorithms.var(values, ddof=1) == pytest.approx(expected * size / (size - 1), rel=1e-12)


def test_variance_far_from_zero() -> None:
    values = np.float32(1e6) + np.tile(np.float32([-1, 1]), 10_000)
    assert algorithms.var(values) == 1.0
    assert math.isnan(algorithms.var(np.zeros(0)))
    assert math.isnan(algorithms.var(np.zeros(1), ddof=1))
    assert math.isnan(algorithms.var(np.array([1, math.nan])))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dot_and_norms(dtype: DType, size: int) -> None:
    x, y = finite_values(dtype, size), finite_values(dtype, size, 1)
    products = [Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    bound = float(sum(map(abs, products))) * 2.0**-53 * 300
    assert abs(algorithms.dot(x, y) - float(sum(products))) <= bound
    assert algorithms.norm(x) == pytest.approx(math.hypot(*x.tolist()), rel=1e-14)
    assert algorithms.norm(x, 1) == pytest.approx(math.fsum(np.abs(x)), rel=1e-14)
    assert algorithms.norm(x, math.inf) == max(np.abs(x).tolist(), default=0.0)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_dot_of_integers_is_exact(dtype: DType) -> None:
    x, y = any_values(dtype, 10_000), any_values(dtype, 10_000, 1)
    wide = i64 if dtype.is_signed else u64
    exact = sum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))
    assert algorithms.dot(x, y) == wide.wrap(exact)


def test_dot_of_two_dtypes() -> None:
    assert algorithms.dot(np.array([-1, 2], np.int8), np.array([200, 100], np.uint8)) == 0
    assert algorithms.dot(np.array([1, 2], np.int8), np.array([0.5, 0.25])) == 1.0
    with pytest.raises(TypeError, match="convert one"):
        algorithms.dot(np.array([1], np.int8), np.array([1], np.uint64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_greatest_magnitude(dtype: DType) -> None:
    values = finite_values(dtype, 1000)
    assert algorithms.absmax(values) == max(abs(v) for v in values.tolist())
    if dtype.is_float:
        values[7] = math.nan
        assert math.isnan(algorithms.absmax(values))
    with pytest.raises(ValueError, match="no elements"):
        algorithms.absmax(values, n=0)


def test_the_magnitude_of_the_least_integer() -> None:
    assert algorithms.absmax(np.array([-128, 127], np.int8)) == 128


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_have_the_same_bits_on_every_run_however_many_threads(dtype: DType, target: str) -> None:
    x, y = finite_values(dtype, 60 * BLOCK + 17), finite_values(dtype, 60 * BLOCK + 17, 1)
    offsets = np.sort(np.random.default_rng(0).integers(0, x.size, 500))

    def results(device: tack.Device | None) -> list[object]:
        a, b = tack.asarray(x, device=device), tack.asarray(y, device=device)
        square = a[: 60 * BLOCK].reshape((240, 1024))
        rows = [algorithms.reduce(square, op, axis=axis) for op in ("sum", "mean") for axis in (0, 1)]
        rows.append(algorithms.segmented_reduce(a, tack.asarray(offsets, device=device)))
        numbers = [algorithms.reduce(a), algorithms.dot(a, b), algorithms.var(a), algorithms.norm(a, 1)]
        return [*(row.numpy().tobytes() for row in rows), *numbers]

    first = results(None)
    assert results(None) == first
    if target == "cpu":
        for threads in (1, 3):
            assert results(tack.device("cpu", num_threads=threads)) == first


# --- histograms -------------------------------------------------------------------------------


def same_histogram(values: np.ndarray, **options: object) -> None:
    counts, edges = algorithms.histogram(values, **options)
    expected, expected_edges = np.histogram(values, **options)
    equal(counts, expected)
    np.testing.assert_array_equal(edges, expected_edges)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [i8, u8, i32, i64, f32, f64], ids=str)
def test_histograms_are_numpys(dtype: DType, size: int) -> None:
    values = finite_values(dtype, size)
    values = values >> 20 if dtype is i64 else values  # which doubles tell apart
    same_histogram(values)
    same_histogram(values, bins=1)
    same_histogram(values, bins=237)
    same_histogram(values, bins=7, range=(-0.5, 1.5))
    same_histogram(values, bins=[-3, 0, 0, 0.1, 2, 50])


def test_values_on_edges() -> None:
    values = np.arange(-10, 21, dtype=np.float64) / 10
    same_histogram(values, bins=10, range=(0, 1))
    same_histogram(values, bins=values)
    same_histogram(values.astype(np.float32), bins=10, range=(0, 1))
    same_histogram(np.full(100, 3.0))


@pytest.mark.parametrize("dtype", [i8, u8, i32, i64, u64, f32, f64], ids=str)
@pytest.mark.parametrize("of_edges", [np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64])
def test_edges_are_compared_and_returned_in_numpys_dtypes(dtype: DType, of_edges: type) -> None:
    values = np.random.default_rng(0).integers(0, 120, 500).astype(dtype.numpy)
    counts, edges = algorithms.histogram(values, bins=np.array([3, 50, 51, 100], of_edges))
    expected, expected_edges = np.histogram(values, bins=np.array([3, 50, 51, 100], of_edges))
    equal(counts, expected)
    equal(edges, expected_edges)


def test_integer_edges_that_doubles_do_not_tell_apart() -> None:
    values = 2**53 + np.arange(8)
    same_histogram(values, bins=2**53 + np.array([0, 1, 3, 6]))
    same_histogram(values.astype(np.uint64) << 10, bins=2**63 + np.array([1024, 3072, 6144], np.uint64))


def test_nan_is_not_counted() -> None:
    values = np.array([0.5, math.nan, math.inf, -math.inf, 1.0])
    same_histogram(values, bins=4, range=(0, 1))
    same_histogram(values, bins=[0, 0.5, 1])
    with pytest.raises(ValueError, match="not finite"):
        algorithms.histogram(values)


@pytest.mark.parametrize("bins", [2047, 2048, 8191, 8192, 3_000_000])
def test_many_bins(bins: int) -> None:
    """Around what fits in shared memory with the edges, and without them; and more bins than values."""
    same_histogram(np.random.default_rng(0).random(100_000), bins=bins, range=(0, 1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [i32, f32, f64], ids=str)
def test_histograms_of_weights_are_numpys(dtype: DType, size: int) -> None:
    values, weights = finite_values(f64, size), finite_values(dtype, size, 1)
    weights = weights >> 12 if dtype is i32 else weights  # whose sums NumPy has exactly
    for options in ({"bins": 19}, {"bins": 5, "range": (-0.5, 1.5)}, {"bins": [-3, 0, 0, 0.1, 2]}):
        sums, edges = algorithms.histogram(values, weights=weights, **options)
        # NumPy adds up f32 as they are where bins are not even.
        wide = weights.astype(np.float64) if dtype.is_float else weights
        expected, expected_edges = np.histogram(values, weights=wide, **options)
        np.testing.assert_array_equal(edges, expected_edges)
        assert sums.dtype is dtype
        tolerance = np.finfo(dtype.numpy).eps * 4 if dtype.is_float else 0
        assert np.allclose(sums, expected.astype(dtype.numpy), rtol=tolerance, atol=1e-12 * size)


def test_sums_of_weights_have_the_same_bits_each_time() -> None:
    values, weights = finite_values(f32, 50_000), finite_values(f64, 50_000, 1)
    first = algorithms.histogram(values, weights=weights)[0].numpy().tobytes()
    assert algorithms.histogram(values, weights=weights)[0].numpy().tobytes() == first
    half = algorithms.histogram(values, weights=weights, range=(-1, 1), n=10_000)[0]
    expected = np.histogram(values[:10_000], weights=weights[:10_000], range=(-1, 1))[0]
    assert np.allclose(half, expected, rtol=1e-12)
