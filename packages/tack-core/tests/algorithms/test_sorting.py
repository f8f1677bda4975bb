"""Sorting, runs, selection and indexing against NumPy and pandas' meaning."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tack
from algorithms.inputs import BLOCK, DTYPES, SIZES, any_values, equal, finite_values, orders
from tack import DType, algorithms, f32, i32, i64, u64

SORT_SIZES = [0, 1, 2, 255, 257, 2047, (1 << 13) + 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 70_001]
SORT_SIZES += [(1 << 15) + k for k in (-1, 0, 1)]
SORT_SIZES += [tile + k for tile in (15 * 256, 21 * 256, 31 * 256) for k in (-1, 0, 1)]


@pytest.mark.parametrize("size", SORT_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorts_are_stable(dtype: DType, size: int) -> None:
    for values in orders(dtype, size).values():
        order = np.argsort(values, kind="stable")
        equal(algorithms.sort(values), values[order])
        equal(algorithms.argsort(values), order.astype(np.int32))


@pytest.mark.parametrize("size", [5000, 70_000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_descending(dtype: DType, size: int) -> None:
    """Stable in the same way, and NaNs are last again."""
    values = any_values(dtype, size)
    values[::3] = values[0]
    nan = np.flatnonzero(values != values)
    numbers = np.flatnonzero(values == values)
    # Equal numbers keep their order, so it is the order of the ranks from above.
    ranks = -np.unique(values[numbers], return_inverse=True)[1]
    order = np.concatenate([numbers[np.argsort(ranks, kind="stable")], nan])
    equal(algorithms.argsort(values, descending=True), order.astype(np.int32))
    equal(algorithms.sort(values, descending=True), values[order])


@given(
    st.sampled_from([np.float32, np.float64, np.int8, np.uint64]).flatmap(
        lambda t: hnp.arrays(t, st.integers(0, 40))
    )
)
def test_any_bits(values: np.ndarray) -> None:
    order = np.argsort(values, kind="stable")
    np.testing.assert_array_equal(algorithms.argsort(values), order)
    found = algorithms.sort(values).numpy()
    assert found.tobytes() == values[order].tobytes()  # also the payloads of NaNs


@pytest.mark.parametrize("keys_dtype", [tack.u8, f32, i64], ids=str)
@pytest.mark.parametrize("values_dtype", [tack.i8, i32, tack.f64], ids=str)
def test_values_go_with_their_keys(keys_dtype: DType, values_dtype: DType) -> None:
    keys, values = any_values(keys_dtype, 40_000), any_values(values_dtype, 40_000, 1)
    order = np.argsort(keys, kind="stable")
    found = algorithms.sort_by_key(keys, values)
    equal(found[0], keys[order])
    equal(found[1], values[order])


def test_vectors_go_with_their_keys() -> None:
    keys = any_values(i32, 1000)
    points = np.random.default_rng(0).random((1000, 3)).astype(np.float32)
    _, moved = algorithms.sort_by_key(keys, tack.asarray(points, tack.vec3))
    np.testing.assert_array_equal(moved, points[np.argsort(keys, kind="stable")])


@pytest.mark.parametrize("n", [9000, 90_000])
@pytest.mark.parametrize("dtype", [tack.u8, i32], ids=str)
def test_sorting_in_place_and_prefixes(dtype: DType, n: int) -> None:
    values = any_values(dtype, n + 1000)
    expected = np.concatenate([np.sort(values[:n]), values[n:]])
    arr = tack.asarray(values.copy())
    algorithms.sort(arr, n=n, out=arr)
    equal(arr, expected)
    keys, numbers = tack.asarray(values.copy()), tack.arange(n + 1000)
    algorithms.sort_by_key(keys, numbers, n=n, out=(keys, numbers))
    equal(keys, expected)
    equal(numbers[:n], np.argsort(values[:n], kind="stable").astype(np.int32))
    assert numbers[n] == n


@pytest.mark.parametrize("size", [1000, 70_000])
@pytest.mark.parametrize("bits", [0, 0x80, 0x1000, 0xFF00FF, 0x3F3F3F3F, 0xF0F00F0F0F, 1 << 63])
@pytest.mark.parametrize("dtype", [i32, i64, u64, f32, tack.f64], ids=str)
def test_keys_that_differ_in_some_digits(dtype: DType, bits: int, size: int) -> None:
    """Any number of passes is left, in whose memory results are that overlap arguments in any way."""
    word = np.dtype(f"u{dtype.itemsize}")
    rng = np.random.default_rng(bits % 1000)
    random = rng.integers(0, 1 << 63, size, np.uint64, endpoint=True) * np.uint64(2) | np.uint64(1)
    keys = (random & np.uint64(bits) | np.uint64(0x4000_0000_4000_0000)).astype(word).view(dtype.numpy)
    for descending in (False, True):
        order = np.argsort(keys, kind="stable")
        if descending:
            order = np.argsort(-np.unique(keys, return_inverse=True)[1], kind="stable")
        equal(algorithms.sort(keys, descending=descending), keys[order])
        equal(algorithms.argsort(keys, descending=descending), order.astype(np.int32))
        one, other = tack.asarray(keys.copy()), tack.arange(size, dtype=dtype)
        numbers = other.numpy().copy()
        algorithms.sort_by_key(one, other, descending=descending, out=(other, one))
        equal(other, keys[order])
        equal(one, numbers[order])


# --- runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unique(dtype: DType, size: int) -> None:
    for values in orders(dtype, size).values():
        found, counts = algorithms.unique(values, counts=True)
        expected = np.unique(values, return_counts=True)
        np.testing.assert_array_equal(found, expected[0])
        equal(counts, expected[1].astype(np.int64))


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, math.nan]), max_size=50))
def test_runs(values: list[float]) -> None:
    runs = [(k, len(list(g))) for k, g in itertools.groupby("n" if v != v else v for v in values)]
    found, lengths = algorithms.run_length(np.array(values, np.float32))
    assert lengths.numpy().tolist() == [length for _, length in runs]
    assert ["n" if v != v else v for v in found.numpy().tolist()] == [key for key, _ in runs]


@pytest.mark.parametrize("size", SIZES)
def test_reduction_by_key_groups_sorted_keys(size: int) -> None:
    rng = np.random.default_rng(size)
    keys, values = rng.integers(-50, 50, size), any_values(i32, size)
    names, sums = algorithms.reduce_by_key(*algorithms.sort_by_key(keys, values))
    expected = {int(k): sum(values[keys == k].tolist()) for k in np.unique(keys)}
    assert dict(zip(names.numpy().tolist(), sums.numpy().tolist(), strict=True)) == expected
    _, least = algorithms.reduce_by_key(*algorithms.sort_by_key(keys, values), "min")
    equal(least, np.array([values[keys == k].min() for k in np.unique(keys)], np.int32))


# --- selection --------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("size", SIZES)
def test_compaction(size: int, share: float) -> None:
    mask = np.random.default_rng(size).random(size) < share
    for dtype in (tack.i8, f32, u64):
        values = any_values(dtype, size)
        equal(algorithms.compact(values, mask), values[mask])
    equal(algorithms.where(mask), np.flatnonzero(mask).astype(np.int32))
    assert algorithms.count_nonzero(mask) == mask.sum()
    n = size // 2
    equal(algorithms.where(mask, n=n), np.flatnonzero(mask[:n]).astype(np.int32))


def test_masks_are_numbers() -> None:
    values = np.arange(5, dtype=np.int32)
    mask = np.array([0.0, -0.0, math.nan, 0.5, -1])
    assert algorithms.compact(values, mask).numpy().tolist() == [2, 3, 4]
    assert algorithms.where(mask).numpy().tolist() == [2, 3, 4]
    assert algorithms.count_nonzero(mask) == np.count_nonzero(mask) == 3


def test_compaction_of_vectors_into_an_array() -> None:
    points = np.arange(30, dtype=np.float32).reshape(10, 3)
    mask = np.arange(10) % 3 == 0
    out = tack.zeros(10, tack.vec3)
    found = algorithms.compact(tack.asarray(points, tack.vec3), mask, out=out)
    np.testing.assert_array_equal(found, points[mask])
    assert found.address == out.address
    with pytest.raises(ValueError, match="out has 2 elements; the result has 4"):
        algorithms.compact(tack.asarray(points, tack.vec3), mask, out=tack.zeros(2, tack.vec3))


# --- indexing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_places_in_sorted_arrays(dtype: DType) -> None:
    for size in (0, 1, 2, 1000):
        haystack = np.sort(any_values(dtype, size))
        needles = np.concatenate([haystack, any_values(dtype, 500, 1)])
        for side in ("left", "right"):
            expected = np.searchsorted(haystack, needles, side=side).astype(np.int32)
            equal(algorithms.searchsorted(haystack, needles, side=side), expected)
    assert algorithms.searchsorted(haystack, needles, n=0).numpy().max() == 0


def test_gather_and_scatter() -> None:
    values = finite_values(f32, 1000)
    picks = np.random.default_rng(0).integers(-1000, 1000, 5000)
    equal(algorithms.gather(values, picks), values[picks])
    outside = algorithms.gather(values, np.array([0, 1000, -1001, 2**62, -(2**62)]))
    assert outside.numpy().tolist() == [values[0], 0, 0, 0, 0]
    out = tack.zeros(1000)
    order = np.random.default_rng(1).permutation(1000)
    algorithms.scatter(out, order, values)
    expected = np.zeros(1000, np.float32)
    expected[order] = values
    equal(out, expected)
    algorithms.scatter(out, np.array([-1, 1000, -1001]), np.float32([7, 8, 9]))
    expected[-1] = 7
    equal(out, expected)


def test_unsigned_indices_past_the_end_do_not_wrap() -> None:
    values = np.arange(1, 5, dtype=np.int32)
    picks = np.array([2**64 - 1, 2**63, 2**64 - 4, 3], np.uint64)
    assert algorithms.gather(values, picks).numpy().tolist() == [0, 0, 0, 4]
    out = tack.zeros(4, i32)
    algorithms.scatter(out, picks, values)
    assert out.numpy().tolist() == [0, 0, 0, 4]


def test_results_in_the_memory_of_arguments() -> None:
    """As in NumPy, what overlaps is read as it was before."""
    size = 5 * BLOCK
    values = any_values(i32, size)
    picks = np.random.default_rng(0).permutation(size).astype(np.int32)
    mask = np.random.default_rng(1).integers(0, 2, size).astype(np.int32)
    arr = tack.asarray(values.copy())
    equal(algorithms.gather(arr, picks, out=arr), values[picks])
    arr = tack.asarray(picks.copy())
    equal(algorithms.gather(values, arr, out=arr), values[picks])
    equal(algorithms.gather(values, arr := tack.asarray(picks.copy()), n=9, out=arr[1:]), values[picks[:9]])
    arr = tack.asarray(values.copy())
    equal(algorithms.compact(arr, mask, out=arr), values[mask != 0])
    arr = tack.asarray(mask.copy())
    equal(algorithms.compact(values, arr, out=arr[3:]), values[mask != 0])
    arr, expected = tack.asarray(values.copy()), np.empty_like(values)
    algorithms.scatter(arr, picks, arr)
    expected[picks] = values
    equal(arr, expected)
    rows = tack.asarray(any_values(i64, size).reshape(5, BLOCK))
    for op, axis in (("sum", 0), ("max", 1)):
        arr = rows.copy()
        expected = algorithms.reduce(rows, op, axis=axis).numpy()
        equal(algorithms.reduce(arr, op, axis=axis, out=arr.ravel()[1:]), expected)


@pytest.mark.parametrize("dtype", [tack.u8, tack.u16, i64], ids=str)
def test_sorted_pairs_in_each_others_memory(dtype: DType) -> None:
    keys, numbers = any_values(dtype, 9000), any_values(dtype, 9000, 1)
    order = np.argsort(keys, kind="stable")
    a, b = tack.asarray(keys.copy()), tack.asarray(numbers.copy())
    algorithms.sort_by_key(a, b, out=(b, a))
    equal(b, keys[order])
    equal(a, numbers[order])


def test_gather_of_vectors() -> None:
    points = np.arange(30, dtype=np.float32).reshape(10, 3)
    found = algorithms.gather(tack.asarray(points, tack.vec3), np.array([9, -10, 10], np.int32))
    np.testing.assert_array_equal(found, [points[9], points[0], [0, 0, 0]])


def test_copy_and_fill() -> None:
    values = np.arange(BLOCK, dtype=np.int32)
    arr = algorithms.copy(values)
    algorithms.fill(arr, 7, n=100)
    assert arr.numpy().tolist() == [7] * 100 + list(range(100, BLOCK))
    algorithms.copy(arr, n=100, out=arr[50:])  # which overlaps
    assert arr.numpy().tolist() == [7] * 150 + list(range(150, BLOCK))
