"""Every algorithm with every dtype and operation that the device of ``--target`` has, against NumPy.

Sizes are few, one of them past every block and tile, so that it runs on devices whose kernels take long to
compile; the other files have the edges.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import tack
from algorithms.inputs import DTYPES, any_values, equal, finite_values
from tack import DType, algorithms

SIZES = [0, 257, 7937]
UFUNC = {"min": np.minimum, "max": np.maximum}


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> DType:
    found: DType = request.param
    if found not in tack.default_device().supported_dtypes:
        with pytest.raises(TypeError, match=f"has no {found}"):
            tack.zeros(1, found)
        pytest.skip(f"the device has no {found}, and says so")
    return found


def wide_of(dtype: DType) -> type:
    """In which NumPy adds up what we add up in i64, u64 or f64."""
    return np.float64 if dtype.is_float else np.int64 if dtype.is_signed else np.uint64


def close(actual: object, expected: np.ndarray) -> None:
    """Equal if they are integers, else as near as f32 lets sums of these sizes be where there is no f64."""
    found = np.asarray(actual)
    assert found.dtype == expected.dtype
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    exact = expected.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-11 if exact else 1e-5, atol=1e-10 if exact else 1e-3)


def identity(dtype: DType, op: str) -> float:
    if dtype.is_float:
        return math.inf if op == "min" else -math.inf
    return dtype.max if op == "min" else dtype.min


@pytest.mark.parametrize("size", SIZES)
def test_scans_and_reductions(dtype: DType, size: int) -> None:
    values = finite_values(dtype, size)
    sums = np.concatenate([[0], np.cumsum(values, dtype=wide_of(dtype))]).astype(wide_of(dtype))
    if dtype is tack.u64:  # which NumPy has joined to a signed 0
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values)])
    close(algorithms.inclusive_scan(values), sums[1:].astype(dtype.numpy))
    before, total = algorithms.exclusive_scan(values, total=True)
    close(before, sums[:-1].astype(dtype.numpy))
    assert type(total) is (float if dtype.is_float else int)
    assert total == pytest.approx(sums[-1].item(), rel=0 if dtype.is_integer else 1e-5, abs=1e-3)
    for op, ufunc in UFUNC.items():
        special = any_values(dtype, size)
        np.testing.assert_array_equal(
            algorithms.inclusive_scan(special, op), ufunc.accumulate(special) if size else special
        )
        if not size:
            continue
        assert algorithms.reduce(values, op) == ufunc.reduce(values).item()
        for shape, axis in (((1, size), 1), ((size, 1), 0)):
            equal(
                algorithms.reduce(values.reshape(shape), op, axis=axis), ufunc.reduce(values, keepdims=True)
            )


@pytest.mark.parametrize("size", SIZES)
def test_segments(dtype: DType, size: int) -> None:
    values, offsets = finite_values(dtype, size), np.array([0, 0, size // 3, size // 2, size])
    parts = [values[a:b] for a, b in itertools.pairwise(offsets)]
    kind = dtype.numpy if dtype.is_float else wide_of(dtype)
    sums = np.array([p.sum(dtype=wide_of(dtype)) for p in parts]).astype(kind)
    close(algorithms.segmented_reduce(values, offsets), sums)
    for op, ufunc in UFUNC.items():
        lone = np.array(identity(dtype, op), dtype.numpy)
        equal(
            algorithms.segmented_reduce(values, offsets, op),
            np.array([ufunc.reduce(p, initial=lone) for p in parts]),
        )
        running = [ufunc.accumulate(p) for p in parts if p.size]
        equal(algorithms.segmented_scan(values, offsets, op), np.concatenate([values[:0], *running]))


@pytest.mark.parametrize("size", SIZES)
def test_sorts_and_searches(dtype: DType, size: int) -> None:
    values = any_values(dtype, size)
    order = np.argsort(values, kind="stable")
    equal(algorithms.sort(values), values[order])
    equal(algorithms.argsort(values), order.astype(np.int32))
    keys, numbers = algorithms.sort_by_key(values, np.arange(size, dtype=np.int16))
    equal(keys, values[order])
    equal(numbers, order.astype(np.int16))
    numbers = np.flatnonzero(values == values)
    ranks = -np.unique(values[numbers], return_inverse=True)[1]
    down = np.concatenate([numbers[np.argsort(ranks, kind="stable")], np.flatnonzero(values != values)])
    equal(algorithms.argsort(values, descending=True), down.astype(np.int32))
    for side in ("left", "right"):
        places = np.searchsorted(values[order], values, side=side).astype(np.int32)
        equal(algorithms.searchsorted(values[order], values, side=side), places)


@pytest.mark.parametrize("size", SIZES)
def test_runs_selection_and_moves(dtype: DType, size: int) -> None:
    rng = np.random.default_rng(size)
    few, values = rng.integers(0, 5, size).astype(dtype.numpy), any_values(dtype, size)
    names, counts = np.unique(few, return_counts=True)
    found = algorithms.unique(few, counts=True)
    equal(found[0], names)
    equal(found[1], counts.astype(np.int64))
    keys, calm = np.sort(few), finite_values(dtype, size)
    equal(algorithms.run_length(keys)[1], counts.astype(np.int64))
    _, most = algorithms.reduce_by_key(keys, calm, "max")
    equal(most, np.array([calm[keys == name].max() for name in names], dtype.numpy))
    equal(algorithms.compact(values, few > 2), values[few > 2])
    equal(algorithms.where(few), np.flatnonzero(few).astype(np.int32))
    picks = rng.permutation(size).astype(np.int32)
    equal(algorithms.gather(values, picks), values[picks])
    out, expected = tack.zeros(size, dtype), np.zeros(size, dtype.numpy)
    algorithms.scatter(out, picks, values)
    expected[picks] = values
    equal(out, expected)
    equal(algorithms.copy(values, n=size // 2), values[: size // 2])
    algorithms.fill(out, 3, n=size // 2)
    expected[: size // 2] = 3
    equal(out, expected)


@pytest.mark.parametrize("size", SIZES)
def test_histograms_and_statistics(dtype: DType, size: int) -> None:
    few = np.random.default_rng(size).integers(0, 5, size).astype(dtype.numpy)
    edges = np.array([0, 1, 3, 4], dtype.numpy)
    for weights in (None, few):
        found, expected = (a.histogram(few, edges, weights=weights)[0] for a in (algorithms, np))
        equal(found, expected.astype(np.int64 if weights is None else dtype.numpy))
    equal(algorithms.histogram(few, 7, range=(0, 5))[0], np.histogram(few, 7, range=(0, 5))[0])
    values = finite_values(dtype, size)
    exact = values.astype(np.float64)
    tolerance = (
        {"rel": 1e-11, "abs": 1e-9} if tack.default_device().supports_f64 else {"rel": 1e-4, "abs": 1e-3}
    )
    assert algorithms.count_nonzero(few) == np.count_nonzero(few)
    assert algorithms.norm(values) == pytest.approx(np.linalg.norm(exact), **tolerance)
    if dtype.is_float:
        assert algorithms.dot(values, values) == pytest.approx(exact @ exact, **tolerance)
    else:
        wide = tack.i64 if dtype.is_signed else tack.u64
        assert algorithms.dot(values, values) == wide.wrap(sum(v * v for v in values.tolist()))
    if size:
        assert algorithms.var(values) == pytest.approx(exact.var(), **tolerance)
        assert algorithms.std(values, ddof=1) == pytest.approx(exact.std(ddof=1), **tolerance)
        assert algorithms.absmax(values) == max(map(abs, values.tolist()))
        assert algorithms.reduce(values, "mean") == pytest.approx(exact.mean(), **tolerance)
