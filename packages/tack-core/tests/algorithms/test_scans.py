"""Scans, whole and in segments, against Python's and NumPy's running totals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tack
from algorithms.inputs import BLOCK, DTYPES, FLOATS, INTEGERS, SIZES, any_values, equal, finite_values
from tack import DType, f32, f64, i8, i32, i64, u8, u64
from tack.algorithms import exclusive_scan, inclusive_scan, segmented_reduce, segmented_scan

IDENTITY = {"min": (math.inf, "max"), "max": (-math.inf, "min")}
UFUNC = {"min": np.minimum, "max": np.maximum}


def identity(dtype: DType, op: str) -> float:
    infinite, extreme = IDENTITY[op]
    return infinite if dtype.is_float else getattr(dtype, extreme)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_sums_keep_the_low_bits(dtype: DType, size: int) -> None:
    values = any_values(dtype, size)
    totals = [0, *itertools.accumulate(values.tolist())]
    wrapped = np.array([dtype.wrap(t) for t in totals], dtype.numpy)
    equal(inclusive_scan(values), wrapped[1:])
    before, total = exclusive_scan(values, total=True)
    equal(before, wrapped[:-1])
    wide = i64 if dtype.is_signed else u64
    assert total == wide.wrap(totals[-1])
    equal(inclusive_scan(values, dtype=wide), np.array([wide.wrap(t) for t in totals[1:]], wide.numpy))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_minimum_and_maximum(dtype: DType, op: str, size: int) -> None:
    values = any_values(dtype, size)
    running = UFUNC[op].accumulate(values) if size else values
    np.testing.assert_array_equal(inclusive_scan(values, op), running)
    before = np.concatenate([np.array([identity(dtype, op)], dtype.numpy), running])[:size]
    np.testing.assert_array_equal(exclusive_scan(values, op), before)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_sums_are_accurate(dtype: DType, size: int) -> None:
    values = finite_values(dtype, size)
    exact = [Fraction(0), *itertools.accumulate(map(Fraction, values.tolist()))]
    magnitudes = np.cumsum(np.abs(values), dtype=np.float64)
    # Blocks are added up in order in double precision; then there is one rounding to the dtype.
    bound = magnitudes * 2.0**-53 * (BLOCK + math.log2(size + 2))
    for found, expected in ((inclusive_scan(values), exact[1:]), (exclusive_scan(values), exact[:-1])):
        numbers = np.array([float(e) for e in expected])
        rounding = np.spacing(np.abs(numbers.astype(dtype.numpy))).astype(np.float64)
        assert (np.abs(np.asarray(found, np.float64) - numbers) <= bound + rounding).all()


def test_sums_of_specials_are_as_numpy_has_them() -> None:
    values = np.zeros(2 * BLOCK, np.float32)
    values[5] = math.inf
    values[BLOCK + 7] = -math.inf
    np.testing.assert_array_equal(inclusive_scan(values), np.cumsum(values))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_run_gives_the_same_bits_however_many_threads(dtype: DType, target: str) -> None:
    values = finite_values(dtype, 100 * BLOCK + 17)
    for scan in (inclusive_scan, exclusive_scan):
        first = scan(values).numpy().tobytes()
        assert scan(values).numpy().tobytes() == first
        if target != "cpu":
            continue
        for threads in (1, 3):
            device = tack.device("cpu", num_threads=threads)
            assert scan(tack.asarray(values, device=device)).numpy().tobytes() == first


def test_more_than_one_level_of_blocks() -> None:
    values = any_values(u8, BLOCK * BLOCK + BLOCK + 1)
    equal(inclusive_scan(values, dtype=u64), np.cumsum(values, dtype=np.uint64))


@pytest.mark.parametrize("scan", [inclusive_scan, exclusive_scan])
@pytest.mark.parametrize("dtype", [i32, f32, f64], ids=str)
def test_in_place_and_prefixes(scan, dtype: DType) -> None:
    values = np.arange(2 * BLOCK + 9, dtype=dtype.numpy)
    sums = np.cumsum(values, dtype=np.int64)
    expected = (sums if scan is inclusive_scan else sums - np.arange(values.size)).astype(dtype.numpy)
    arr = tack.asarray(values.copy())
    found = scan(arr, n=BLOCK + 3, out=arr)
    assert found.shape == (BLOCK + 3,)
    np.testing.assert_array_equal(found, expected[: BLOCK + 3])
    np.testing.assert_array_equal(arr.numpy()[BLOCK + 3 :], values[BLOCK + 3 :])
    assert scan(values, n=0).shape == (0,)


@pytest.mark.parametrize("scan", [inclusive_scan, exclusive_scan])
@pytest.mark.parametrize("shift", [1, -1, 300])
def test_a_result_that_overlaps_the_input(scan, shift: int) -> None:
    values = any_values(i32, 3 * BLOCK)
    size = values.size - abs(shift)
    start, to = max(0, -shift), max(0, shift)
    arr = tack.asarray(values.copy())
    expected = scan(values[start : start + size]).numpy()
    equal(scan(arr[start : start + size], out=arr[to : to + size]), expected)
    arr = tack.asarray(values.copy())
    heads = np.array([0, 5, 2 * BLOCK, size])
    expected = segmented_scan(values[start : start + size], heads).numpy()
    equal(segmented_scan(arr[start : start + size], heads, out=arr[to : to + size]), expected)


def test_other_shapes_are_taken_in_row_major_order() -> None:
    values = np.arange(12, dtype=np.int64).reshape(3, 4)
    equal(inclusive_scan(values), np.cumsum(values))
    equal(inclusive_scan(values.T), np.cumsum(values.T))
    assert inclusive_scan(np.array(4.0)).numpy().tolist() == [4.0]


def test_the_dtype_of_the_result() -> None:
    values = np.full(300, 1, np.int8)
    assert inclusive_scan(values).dtype is i8
    assert inclusive_scan(values).numpy()[-1] == i8.wrap(300)
    assert inclusive_scan(values, dtype="int32").numpy()[-1] == 300
    out = tack.zeros(300, f64)
    assert inclusive_scan(values, out=out).dtype is f64
    assert out[-1] == 300


# --- segments ---------------------------------------------------------------------------------


def split(values: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    return [values[a:b] for a, b in itertools.pairwise(offsets.tolist())]


def some_offsets(size: int, segments: int, seed: int = 0) -> np.ndarray:
    cuts = np.sort(np.random.default_rng(seed).integers(0, size + 1, max(0, segments - 1)))
    return np.concatenate([[0], cuts, [size]])


@pytest.mark.parametrize("segments", [1, 2, 40, 3000])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [i8, u64, i32], ids=str)
def test_segments_of_integers(dtype: DType, size: int, segments: int) -> None:
    values, offsets = any_values(dtype, size), some_offsets(size, segments)
    parts = split(values, offsets)
    wide = i64 if dtype.is_signed else u64
    sums = [wide.wrap(sum(part.tolist())) for part in parts]
    equal(segmented_reduce(values, offsets), np.array(sums, wide.numpy))
    for op, ufunc in UFUNC.items():
        lone = np.array(identity(dtype, op), dtype.numpy)
        equal(segmented_reduce(values, offsets, op), np.array([ufunc.reduce(p, initial=lone) for p in parts]))
    running = [dtype.wrap(t) for part in parts for t in itertools.accumulate(part.tolist())]
    equal(segmented_scan(values, offsets), np.array(running, dtype.numpy))
    before = [dtype.wrap(t) for p in parts for t in itertools.accumulate([0, *p.tolist()][: p.size])]
    equal(segmented_scan(values, offsets, exclusive=True), np.array(before, dtype.numpy))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_segments_of_floats(dtype: DType) -> None:
    values, offsets = any_values(dtype, 5 * BLOCK), some_offsets(5 * BLOCK, 700)
    for op, ufunc in UFUNC.items():
        expected = np.concatenate([ufunc.accumulate(p) for p in split(values, offsets) if p.size])
        np.testing.assert_array_equal(segmented_scan(values, offsets, op), expected)
    calm = finite_values(dtype, 5 * BLOCK)
    exact = np.array([math.fsum(p) for p in split(calm, offsets)])
    found = segmented_reduce(calm, offsets)
    assert found.dtype is dtype
    assert np.allclose(found, exact, rtol=4 * np.finfo(dtype.numpy).eps, atol=1e-12)


@given(st.lists(st.lists(st.integers(-(2**40), 2**40), max_size=5), min_size=1, max_size=30))
def test_small_segments(parts: list[list[int]]) -> None:
    values = np.array([v for part in parts for v in part], np.int64)
    offsets = np.cumsum([0, *map(len, parts)])
    assert segmented_reduce(values, offsets).numpy().tolist() == [sum(part) for part in parts]
    scanned = segmented_scan(values, offsets).numpy().tolist()
    assert scanned == [total for part in parts for total in itertools.accumulate(part)]


@pytest.mark.parametrize("n", [0, 1, 99, BLOCK, 3 * BLOCK - 1])
def test_segments_of_a_prefix(n: int) -> None:
    """A segment that goes past the prefix ends with it."""
    values, offsets = any_values(i32, 3 * BLOCK), some_offsets(3 * BLOCK, 40)
    cut = np.minimum(offsets, n)
    sums = np.array([part.sum(dtype=np.int64) for part in split(values[:n], cut)])
    equal(segmented_reduce(values, offsets, n=n), sums)
    running = [i32.wrap(t) for p in split(values[:n], cut) for t in itertools.accumulate(p.tolist())]
    equal(segmented_scan(values, offsets, n=n), np.array(running, np.int32))


def test_reductions_of_segments_over_their_offsets() -> None:
    values, offsets = any_values(i64, 5 * BLOCK), some_offsets(5 * BLOCK, 3000)
    expected = segmented_reduce(values, offsets).numpy()
    arr = tack.asarray(offsets.copy())
    equal(segmented_reduce(values, arr, out=arr[1:]), expected)


def test_a_scan_of_segments_in_place() -> None:
    arr = tack.ones(3 * BLOCK, f32)
    segmented_scan(arr, np.array([0, 5, 2 * BLOCK, 3 * BLOCK]), out=arr)
    assert (arr[4], arr[5], arr[2 * BLOCK - 1], arr[2 * BLOCK]) == (5, 1, 2 * BLOCK - 5, 1)
