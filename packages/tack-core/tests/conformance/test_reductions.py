"""numerics.md section 4: sum, min, max and mean of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle

SIZES = [1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 4097, 65_537, 1_000_003]


def data(name: str, n: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = oracle.numpy_dtype(name)
    if name[0] == "f":
        return (rng.standard_normal(n) * 10.0 ** rng.integers(-5, 6, n)).astype(dtype)
    return rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype)


@pytest.mark.parametrize("name", oracle.INTEGERS)
@pytest.mark.parametrize("n", SIZES)
def test_integer_reductions_are_exact_python_ints(name: str, n: int) -> None:
    host = data(name, n)
    array = tack.asarray(host)
    exact = sum(map(int, host.tolist()))
    results = {"sum": array.sum(), "min": array.min(), "max": array.max()}
    assert {k: type(v) for k, v in results.items()} == {"sum": int, "min": int, "max": int}
    assert results == {
        "sum": oracle.wrap("i64" if name[0] == "i" else "u64", exact),
        "min": int(host.min()),
        "max": int(host.max()),
    }
    mean = array.mean()
    assert type(mean) is float
    # The exact sum in 64 bits, then one division in binary64; sums of u64 and i64 wrap.
    if oracle.bits(name) < 64:
        assert mean == pytest.approx(exact / n, rel=1e-15, abs=0)


@pytest.mark.parametrize("name", oracle.FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_float_reductions(name: str, n: int) -> None:
    host = data(name, n)
    array = tack.asarray(host)
    total, low, high, mean = array.sum(), array.min(), array.max(), array.mean()
    assert [type(v) for v in (total, low, high, mean)] == [float] * 4
    assert (low, high) == (float(host.min()), float(host.max()))
    exact, magnitude = math.fsum(host.tolist()), math.fsum(np.abs(host).tolist())
    # f32 accumulates in f64, where that is; otherwise no worse than pairwise: log2(n) roundings. One more is
    # fsum's.
    wide = name == "f32" and tack.default_device().supports_f64
    unit = 2.0**-53 if wide or name == "f64" else 2.0**-24
    bound = ((n if wide else math.log2(n)) + 3) * unit * magnitude
    assert abs(total - exact) <= bound
    assert abs(mean - exact / n) <= bound / n + 2.0**-52 * abs(exact / n)


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_empty(name: str) -> None:
    array = tack.zeros(0, getattr(tack, name))
    assert array.sum() == 0
    assert type(array.sum()) is (float if name[0] == "f" else int)
    assert math.isnan(array.mean())
    for method in (array.min, array.max):
        with pytest.raises(ValueError, match=r"empty|zero|no elements"):
            method()


@pytest.mark.parametrize("name", oracle.FLOATS)
@pytest.mark.parametrize("n", [1, 5, 64, 1000, 300_000])
def test_nan_wins_wherever_it_is(name: str, n: int) -> None:
    for place in {0, n // 2, n - 1}:
        host = np.ones(n, oracle.numpy_dtype(name))
        host[place] = np.nan
        array = tack.asarray(host)
        assert all(math.isnan(v) for v in (array.sum(), array.min(), array.max(), array.mean()))


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_minimum_prefers_negative_zero_and_maximum_positive(name: str) -> None:
    for n in (2, 9, 1000, 200_000):
        for place in (0, n // 2, n - 1):
            host = np.zeros(n, oracle.numpy_dtype(name))
            host[place] = -0.0
            assert math.copysign(1, tack.asarray(host).min()) == -1
            assert math.copysign(1, tack.asarray(-host).max()) == 1


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_infinities(name: str) -> None:
    host = np.ones(1000, oracle.numpy_dtype(name))
    host[3] = np.inf
    assert tack.asarray(host).sum() == math.inf
    assert tack.asarray(host).max() == math.inf
    host[500] = -np.inf
    array = tack.asarray(host)
    assert math.isnan(array.sum())
    assert (array.min(), array.max()) == (-math.inf, math.inf)


def test_f32_sum_is_not_rounded_back() -> None:
    n = 1_000_003
    total = tack.asarray(np.full(n, 0.1, np.float32)).sum()
    assert total == pytest.approx(float(np.float32(0.1)) * n, rel=1e-12)
    assert float(np.float32(total)) != total


def test_f32_sum_past_its_own_range_and_precision() -> None:
    total = tack.asarray(np.full(4, 3e38, np.float32)).sum()
    assert total == (pytest.approx(1.2e39, rel=1e-6) if tack.default_device().supports_f64 else math.inf)
    assert tack.asarray(np.array([2.0**24] + [1.0] * 1000, np.float32)).sum() == 2.0**24 + 1000


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_sum_is_deterministic_across_thread_counts(name: str, target: str) -> None:
    host = data(name, 700_001)
    results: set[Any] = set()
    for threads in (1, 2, 3):
        if target == "cpu":
            array = tack.asarray(host, device=tack.device("cpu", num_threads=threads))
        else:
            array = tack.asarray(host)
        results |= {array.sum().hex() if name[0] == "f" else array.sum() for _ in range(3)}
        results.add(array.sum(deterministic=True).hex() if name[0] == "f" else array.sum(deterministic=True))
    assert len(results) == 1


def test_many_dimensions_and_views() -> None:
    host = np.arange(2 * 3 * 500, dtype=np.int32).reshape(2, 3, 500)
    array = tack.asarray(host)
    assert (array.sum(), array.min(), array.max()) == (int(host.sum()), 0, 2999)
    assert array[1:].sum() == int(host[1:].sum())
    assert tack.asarray(np.array(5.5, np.float32)).sum() == 5.5
