"""Arrays and launches past 2^31 and 2^32."""

from __future__ import annotations

import numpy as np
import pytest

import tack

PAST_31 = 2**31 + 17
PAST_32 = 2**32 + 17


@tack.kernel
def fill_low_bits(out):
    for i in range(out.shape[0]):
        out[i] = i


@tack.kernel
def count(found, n, stride):
    for i in range(n):
        if i % stride == 0:
            tack.atomic_add(found, 0, 1)
        if i == n - 1:
            found[1] = i


@pytest.mark.parametrize("n", [PAST_31, PAST_32])
def test_an_array_past_32_bits(n: int) -> None:
    out = tack.zeros(n, tack.u8)
    fill_low_bits(out)
    for start in (0, 2**31 - 8, n - 16):
        stop = min(start + 16, n)
        assert out.numpy(start, stop).tolist() == [i % 256 for i in range(start, stop)]
    whole, rest = divmod(n, 256)
    assert out.sum() == whole * (255 * 128) + rest * (rest - 1) // 2


def test_wide_elements_past_32_bits_of_bytes() -> None:
    n = 2**30 + 3  # 8 GiB
    out = tack.zeros(n, tack.f64)
    fill_low_bits(out)
    assert out[n - 1] == n - 1
    assert out.max() == n - 1
    assert out.sum() == n * (n - 1) / 2


@pytest.mark.parametrize("n", [PAST_31, PAST_32])
def test_a_launch_past_32_bits(n: int) -> None:
    stride = 2**20
    found = tack.zeros(2, tack.i64)
    count(found, n, stride)
    assert found.numpy().tolist() == [-(-n // stride), n - 1]


def test_grids_of_any_shape() -> None:
    @tack.kernel
    def mark(seen):
        for i, j, k in tack.ndindex(seen.shape[0], seen.shape[1], seen.shape[2]):
            seen[i, j, k] += 1

    # Each axis of a grid has another limit.
    for shape in (
        (1, 1, 2**26 + 3),
        (1, 2**21 + 1, 33),
        (2**21 + 1, 1, 33),
        (2**19 + 1, 7, 5),
        (100_003, 70, 3),
    ):
        seen = tack.zeros(shape, tack.u8)
        mark(seen)
        assert (seen.min(), seen.max()) == (1, 1)


def test_memory_that_is_not_there() -> None:
    with pytest.raises(MemoryError, match="GiB"):
        tack.empty(2**44, tack.u8)
    assert tack.ones(16).sum() == 16  # the device stays usable


def test_copies_of_large_arrays() -> None:
    host = np.random.default_rng(0).integers(0, 256, 2**28 + 5, np.uint8)
    array = tack.asarray(host)
    assert array.sum() == int(host.sum(dtype=np.int64))
    np.testing.assert_array_equal(array.numpy(), host)
