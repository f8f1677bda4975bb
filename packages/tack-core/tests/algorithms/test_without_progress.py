"""The kernels for GPUs on which a workgroup must not wait for another: scans and sorts in more launches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tack
from algorithms.inputs import SIZES, any_values, equal, finite_values
from tack import DType, algorithms, f32, f64, i32, u8, u64


@pytest.fixture(autouse=True)
def without_progress(on_target: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(tack.default_device()._backend), "forward_progress", False)


@pytest.mark.parametrize("size", [*SIZES, 300_007])
def test_scans(size: int) -> None:
    values = any_values(i32, size)
    before, total = algorithms.exclusive_scan(values, dtype=tack.i64, total=True)
    sums = np.cumsum(values, dtype=np.int64)
    equal(before, sums - values)
    assert total == values.sum(dtype=np.int64)
    equal(algorithms.inclusive_scan(values, "min"), np.minimum.accumulate(values) if size else values)


def test_float_sums_have_the_same_bits_each_time() -> None:
    values = finite_values(f32, 100_003)
    first = algorithms.inclusive_scan(values).numpy()
    assert np.allclose(first, np.cumsum(values, dtype=np.float64), rtol=1e-6, atol=1e-4)
    assert algorithms.inclusive_scan(values).numpy().tobytes() == first.tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [u8, i32, f64], ids=str)
def test_sorts(dtype: DType, size: int) -> None:
    values = any_values(dtype, size)
    order = np.argsort(values, kind="stable")
    equal(algorithms.sort(values), values[order])
    equal(algorithms.argsort(values), order.astype(np.int32))


@pytest.mark.parametrize("dtype", [tack.i8, i32, u8, u64], ids=str)
def test_segments_longer_than_tiles(dtype: DType) -> None:
    values = any_values(dtype, 200_000)
    offsets = np.array([0, 5, 90_000, 90_001, 199_999, 200_000])
    parts = [values[a:b] for a, b in itertools.pairwise(offsets)]
    wide = np.int64 if dtype.is_signed else np.uint64
    equal(algorithms.segmented_reduce(values, offsets), np.array([p.sum(dtype=wide) for p in parts]))
    equal(algorithms.segmented_reduce(values, offsets, "max"), np.array([p.max() for p in parts]))
    running = np.concatenate([np.cumsum(p, dtype=wide) for p in parts])
    equal(algorithms.segmented_scan(values, offsets, dtype=tack.i64 if dtype.is_signed else u64), running)


def test_compaction() -> None:
    values = any_values(i32, 100_003)
    equal(algorithms.compact(values, values > 0), values[values > 0])
