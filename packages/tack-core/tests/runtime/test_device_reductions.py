"""Reductions with workgroups, on the CPU: the conformance suite runs them on GPUs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tack
from tack.dtypes import ALL_DTYPES, DType
from tack.runtime.device_reductions import reduce_on_device

SIZES = (1, 2, 255, 256, 257, 2048, 2049, 70_001)


@pytest.fixture(params=[2, 4096])
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many workgroups there are at most: with few, an iteration reads several batches."""
    monkeypatch.setattr("tack.runtime.device_reductions._MAX_GROUPS", request.param)
    return int(request.param)


def reduced(array: tack.Array, op: str) -> Any:
    return reduce_on_device(array, op)


def values(dtype: DType, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    if dtype.is_float:
        return (rng.standard_normal(n) * 10.0 ** rng.integers(-5, 6, n)).astype(dtype.numpy)
    return rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype.numpy)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.usefixtures("groups")
def test_against_exact_arithmetic(dtype: DType, n: int) -> None:
    host = values(dtype, n)
    array = tack.asarray(host)
    assert reduced(array, "min") == host.min()
    assert reduced(array, "max") == host.max()
    if not dtype.is_float:
        exact = sum(map(int, host))
        low, bits = (-(2**63) if dtype.is_signed else 0), 2**64
        assert reduced(array, "sum") == (exact - low) % bits + low
        assert reduced(array, "mean") == exact / n
        return
    exact = math.fsum(host.tolist())
    bound = (math.log2(n) + 3 if dtype is tack.f64 else n) * 2.0**-52 * math.fsum(np.abs(host).tolist())
    assert abs(reduced(array, "sum") - exact) <= bound
    assert abs(reduced(array, "mean") - exact / n) <= bound


@pytest.mark.parametrize("dtype", [tack.f32, tack.f64], ids=str)
@pytest.mark.parametrize("n", [1, 300, 5000])
def test_nan_zeros_and_infinities(dtype: DType, n: int) -> None:
    host = np.zeros(n, dtype.numpy)
    host[n // 2] = -0.0
    array = tack.asarray(host)
    assert math.copysign(1, reduced(array, "min")) == -1
    assert math.copysign(1, reduced(array, "max")) == (-1 if n == 1 else 1)
    host[-1] = np.inf
    array = tack.asarray(host)
    assert reduced(array, "sum") == reduced(array, "max") == math.inf
    host[0] = np.nan
    array = tack.asarray(host)
    assert all(math.isnan(reduced(array, op)) for op in ("sum", "min", "max", "mean"))


def test_same_bits_every_time() -> None:
    array = tack.asarray(values(tack.f64, 100_003))
    assert len({reduced(array, "sum") for _ in range(5)}) == 1
