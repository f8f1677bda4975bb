"""Reductions: exact integers, accuracy of floats, NaN and zeros, nothing at all."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tack import DType, asarray, device, empty, f32, f64, full, i64, u64, zeros
from tack.dtypes import ALL_DTYPES
from tack.runtime.cpu import kernels
from tack.runtime.cpu.backend import CpuBackend

INTEGERS = [dtype for dtype in ALL_DTYPES if dtype.is_integer]
FLOATS = [f32, f64]
SIZES = [1, 2, 3, 15, 16, 17, 63, 64, 65, 1000, 4096, 65_536, 65_537, 69_631, 300_000, 524_288, 530_001]


def same(a: float, b: float) -> bool:
    """Equal as bits, except that every NaN is one."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_exact(dtype: DType, size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.integers(dtype.min, dtype.max, size, dtype.numpy, endpoint=True)
    arr, exact = asarray(values), sum(values.tolist())
    wide = i64 if dtype.is_signed else u64
    assert arr.sum() == wide.wrap(exact)
    assert arr.min() == min(values.tolist())
    assert arr.max() == max(values.tolist())
    assert arr.mean() == float(Fraction(exact, size))
    assert {type(arr.sum()), type(arr.min()), type(arr.max())} == {int}
    assert type(arr.mean()) is float


@pytest.mark.parametrize("dtype", [i64, u64], ids=str)
def test_integer_sums_wrap_and_means_do_not(dtype: DType) -> None:
    arr = full(5, dtype.max, dtype)
    assert arr.sum() == dtype.wrap(5 * dtype.max)
    assert arr.mean() == float(dtype.max)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_sums(dtype: DType, size: int) -> None:
    values = np.random.default_rng(size).normal(size=size).astype(dtype.numpy)
    exact = math.fsum(values.tolist())
    magnitude = math.fsum(np.abs(values).tolist())
    bound = magnitude * 2**-53 * (math.log2(size) + 8)  # pairwise in double precision, blocks of 128
    arr = asarray(values)
    assert abs(arr.sum() - exact) <= bound
    assert arr.mean() == arr.sum() / size
    assert arr.min() == min(values.tolist())
    assert arr.max() == max(values.tolist())
    assert {type(arr.sum()), type(arr.min()), type(arr.max()), type(arr.mean())} == {float}


def test_f32_sums_are_not_rounded_to_f32() -> None:
    arr = full(3, 0.1, f32)
    assert arr.sum() == 3 * float(np.float32(0.1))
    assert full(2**20, 2.0**-24, f32).sum() == 2.0**-4
    assert full(10**6, 3e38, f32).sum() == pytest.approx(3e44, rel=1e-7)


@given(
    st.sampled_from(FLOATS).flatmap(
        lambda t: hnp.arrays(
            t.numpy, st.integers(1, 70), elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan])
        )
    )
)
def test_min_and_max_order_zeros_and_let_nan_win(values: np.ndarray) -> None:
    numbers = values.tolist()
    order = sorted(numbers, key=lambda v: (v, math.copysign(1, v)))
    broken = any(math.isnan(v) for v in numbers)
    assert same(asarray(values).min(), math.nan if broken else order[0])
    assert same(asarray(values).max(), math.nan if broken else order[-1])


@pytest.mark.parametrize("size", [1, 17, 5000, 600_000])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_anywhere(dtype: DType, size: int) -> None:
    for place in {0, size // 2, size - 1}:
        arr = full(size, 1.0, dtype)
        arr[place] = math.nan
        for op in (arr.sum, arr.min, arr.max, arr.mean):
            assert math.isnan(op())
        arr[place] = -0.0
        assert same(arr.min(), -0.0 if size else 0.0)
        arr.fill(-1.0)
        arr[place] = -0.0
        assert same(arr.max(), -0.0)


@pytest.mark.parametrize("size", [4, 70_000, 600_000])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities(dtype: DType, size: int) -> None:
    values = np.ones(size, dtype.numpy)
    values[2] = math.inf
    arr = asarray(values)
    assert (arr.sum(), arr.max(), arr.min(), arr.mean()) == (math.inf, math.inf, 1, math.inf)
    values[size - 1] = -math.inf
    assert math.isnan(arr.sum())
    assert (arr.min(), arr.max()) == (-math.inf, math.inf)


@pytest.mark.parametrize("size", [4, 70_000])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_overflow(dtype: DType, size: int) -> None:
    huge = float(np.finfo(dtype.numpy).max)
    want = math.inf if dtype is f64 else pytest.approx(size * huge, rel=1e-15)
    assert full(size, huge, dtype).sum() == want
    half = full(size, huge / size, dtype)
    assert half.sum() == pytest.approx(size * float(half[0]), rel=1e-15)


@pytest.mark.parametrize("size", [5, 600_000])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_of_either_sign_and_any_payload(dtype: DType, size: int) -> None:
    word = np.dtype(f"u{dtype.itemsize}")
    exponent = int(np.asarray(math.inf, dtype.numpy).view(word))
    for bits in (exponent | 1, 2**dtype.bits - 1, exponent | 1 << (dtype.bits - 1) | 1):
        for place in (0, size - 1):
            values = np.full(size, -1, dtype.numpy)
            values.view(word)[place] = bits
            assert all(math.isnan(v) for v in (asarray(values).min(), asarray(values).max()))


def test_f64_sums_are_better_than_pairwise() -> None:
    rng = np.random.default_rng(3)
    for scale in (1.0, 1e12):
        values = rng.normal(size=500_000) + scale
        exact = math.fsum(values.tolist())
        assert abs(asarray(values).sum() - exact) <= 12 * math.ulp(exact)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [0, (0, 3), (2, 0)])
def test_nothing(dtype: DType, shape: object) -> None:
    arr = empty(shape, dtype)
    assert same(arr.sum(), 0.0) if dtype.is_float else arr.sum() == 0
    assert type(arr.sum()) is (float if dtype.is_float else int)
    assert math.isnan(arr.mean())
    for op in (arr.min, arr.max):
        with pytest.raises(ValueError, match="no elements"):
            op()


def test_any_shape_and_views() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    arr = asarray(values)
    assert arr.sum() == 276
    assert arr[1:].sum() == values[1:].sum()
    assert arr.ravel()[5:7].mean() == 5.5
    assert full((), 3.0).sum() == 3
    odd = asarray(np.zeros(41, np.uint8)[1:].view(np.float64))
    assert odd.sum() == 0


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_deterministic_for_any_number_of_threads(dtype: DType) -> None:
    rng = np.random.default_rng(7)
    size = 1_000_003
    if dtype.is_float:
        values = (rng.normal(size=size) * 10.0 ** rng.integers(-6, 6, size)).astype(dtype.numpy)
    else:
        values = rng.integers(dtype.min, dtype.max, size, dtype.numpy)
    results = set()
    for threads in (1, 2, 3):
        where = device("cpu", num_threads=threads)
        arr = zeros(size, dtype, device=where)
        np.asarray(arr)[:] = values
        for deterministic in (True, None):
            results.add((arr.sum(deterministic=deterministic), arr.mean(deterministic=deterministic)))
    assert len(results) == 1
    assert arr.sum(deterministic=False) == pytest.approx(arr.sum(), rel=1e-9)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_without_the_compiler(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "can_compile", lambda: False)
    monkeypatch.setattr(CpuBackend, "execute", None)
    arr = full(100_000, 3, dtype)
    arr[70_001] = 5
    arr[2] = 1
    assert (arr.sum(), arr.min(), arr.max(), arr.mean()) == (300_000, 1, 5, 3)
    assert (arr.numpy() == 3).sum() == 99_998
