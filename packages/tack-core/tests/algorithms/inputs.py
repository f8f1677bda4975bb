"""Inputs of the tests of algorithms: sizes around the edges of blocks, and values with special ones."""

from __future__ import annotations

import math

import numpy as np

from tack.dtypes import ALL_DTYPES, DType

BLOCK = 4096  # elements that an iteration handles in order
TILES = [15 * 256, 31 * 256]  # elements that a workgroup handles, of eight bytes and of four or fewer
SIZES = [0, 1, 2, 3, 255, 256, 257, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]
SIZES += [tile + k for tile in TILES for k in (-1, 0, 1)] + [3 * TILES[1] + 77]
DTYPES = list(ALL_DTYPES)
INTEGERS = [dtype for dtype in ALL_DTYPES if dtype.is_integer]
FLOATS = [dtype for dtype in ALL_DTYPES if dtype.is_float]
SPECIAL = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 5e-324, 1e-40, -1e-40]


def any_values(dtype: DType, size: int, seed: int = 0) -> np.ndarray:
    """Values from the whole range of an integer type; of a float type with special ones between them."""
    rng = np.random.default_rng([seed, size, dtype.bits])
    if dtype.is_integer:
        return rng.integers(dtype.min, dtype.max, size, dtype.numpy, endpoint=True)
    values = rng.normal(size=size) * 10.0 ** rng.integers(-30, 30, size)
    values[rng.random(size) < 0.3] = rng.choice(SPECIAL)
    return np.where(rng.random(size) < 0.3, rng.choice(SPECIAL, size), values).astype(dtype.numpy)


def finite_values(dtype: DType, size: int, seed: int = 0) -> np.ndarray:
    """Integers from the whole range, floats of moderate size."""
    if dtype.is_integer:
        return any_values(dtype, size, seed)
    return np.random.default_rng([seed, size]).normal(size=size).astype(dtype.numpy)


def orders(dtype: DType, size: int) -> dict[str, np.ndarray]:
    """The same kind of values in the orders that are special to some sort."""
    values = any_values(dtype, size)
    few = np.random.default_rng(size).integers(0, 4, size).astype(dtype.numpy)
    return {
        "any": values,
        "sorted": np.sort(values),
        "reversed": np.sort(values)[::-1].copy(),
        "equal": np.full(size, 3, dtype.numpy),
        "few": few,
    }


def equal(actual: object, expected: np.ndarray) -> None:
    """Assert that they agree bit by bit, but for which NaN it is."""
    found = np.asarray(actual)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))
