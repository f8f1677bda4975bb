"""The kernels for GPUs on which a workgroup must not wait for another: scans and sorts in more launches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tack
from algorithms.inputs import SIZES, any_values, equal, finite_values
from tack import DType, algorithms, f32, f64, i32, u8


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


def test_segments_longer_than_tiles() -> None:
    values = any_values(i32, 200_000)
    offsets = np.array([0, 5, 90_000, 90_000, 90_001, 199_999, 200_000])
    sums = [values[a:b].sum(dtype=np.int64) for a, b in itertools.pairwise(offsets)]
    equal(algorithms.segmented_reduce(values, offsets), np.array(sums))


def test_compaction() -> None:
    values = any_values(i32, 100_003)
    equal(algorithms.compact(values, values > 0), values[values > 0])
