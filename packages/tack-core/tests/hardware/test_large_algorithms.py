"""Algorithms on more than 2^31 elements, against what is known of them."""

from __future__ import annotations

import numpy as np

import tack
from tack import algorithms

N = 2**31 + 17
PERIOD = 251


@tack.kernel
def repeat_numbers(out, period):
    for i in range(out.shape[0]):
        out[i] = i % period


@tack.kernel
def scatter_bits(out):
    for i in range(out.shape[0]):
        out[i] = tack.i32((tack.u64(i) * 0x9E3779B97F4A7C15) >> 32)


@tack.kernel
def count_descents(x, found, n):
    for i in range(n - 1):
        if x[i] > x[i + 1]:
            tack.atomic_add(found, 0, 1)


@tack.kernel
def count_wrong(order, found, n, period):
    """Elements whose index is not where they stood in repeated numbers, sorted and stable."""
    for i in range(n):
        longer = n % period
        most = n // period + 1
        value = i // most if i < longer * most else longer + (i - longer * most) // (most - 1)
        rank = i - value * most if value <= longer else i - (value * (most - 1) + longer)
        if order[i] != rank * period + value:
            tack.atomic_add(found, 0, 1)


def numbers(n: int = N) -> tack.Array:
    x = tack.empty(n, tack.u8)
    repeat_numbers(x, PERIOD)
    return x


def frequencies(n: int = N) -> np.ndarray:
    return np.array([n // PERIOD + (v < n % PERIOD) for v in range(PERIOD)])


def test_scans() -> None:
    x = numbers()
    found, total = algorithms.exclusive_scan(x, dtype=tack.i64, total=True)
    assert total == (frequencies() * np.arange(PERIOD)).sum()
    of_period = PERIOD * (PERIOD - 1) // 2
    for start in (0, 2**31 - 5, N - 10):
        i = np.arange(start, start + 10)
        rest = i % PERIOD
        expected = i // PERIOD * of_period + rest * (rest - 1) // 2
        assert found.numpy(start, start + 10).tolist() == expected.tolist()
    assert algorithms.inclusive_scan(x, "max", out=x).numpy(N - 3, N).tolist() == [PERIOD - 1] * 3


def test_sort() -> None:
    x = tack.empty(N, tack.i32)
    scatter_bits(x)
    total = x.sum()
    found = tack.zeros(1, tack.i32)
    algorithms.sort(x, out=x)
    count_descents(x, found, N)
    assert found[0] == 0
    assert x.sum() == total


def test_the_order_of_equal_elements() -> None:
    order = algorithms.argsort(numbers())
    assert order.dtype is tack.i64
    found = tack.zeros(1, tack.i64)
    count_wrong(order, found, N, PERIOD)
    assert found[0] == 0


def test_selection_and_runs() -> None:
    x = numbers()
    indices = algorithms.where(x)
    assert indices.dtype is tack.i64
    assert indices.size == N - frequencies()[0]
    assert indices.numpy(indices.size - 2, indices.size).tolist() == [N - 2, N - 1]
    values, counts = algorithms.unique(x, counts=True)
    assert values.numpy().tolist() == list(range(PERIOD))
    assert (counts.numpy() == frequencies()).all()


def test_reductions_and_histograms() -> None:
    x = numbers()
    counts, _ = algorithms.histogram(x, PERIOD, range=(0, PERIOD))
    assert (counts.numpy() == frequencies()).all()
    values = np.arange(PERIOD)
    assert algorithms.dot(x, x) == (frequencies() * values**2).sum()
    assert algorithms.reduce(x.reshape((1, N)), axis=1)[0] == (frequencies() * values).sum()
    assert algorithms.reduce(x.reshape((N, 1)), "max", axis=0)[0] == PERIOD - 1
    offsets = np.array([0, 2**31 - 1, 2**31 + 3, N])
    sums = algorithms.segmented_reduce(x, offsets).numpy()
    assert sums.sum() == (frequencies() * values).sum()
    assert sums[1] == (np.arange(2**31 - 1, 2**31 + 3) % PERIOD).sum()
