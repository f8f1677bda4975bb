"""Group-bys against pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from algorithms.inputs import TILES, any_values, equal, finite_values
from tack import algorithms, f64, i32, i64

SIZES = [1, 100, TILES[1] - 1, TILES[1] + 1, 50_003]


@pytest.mark.parametrize("groups", [1, 7, 3000])
@pytest.mark.parametrize("size", SIZES)
def test_a_group_by(size: int, groups: int) -> None:
    keys = np.random.default_rng(size).integers(0, groups, size).astype(np.int32)
    values, floats = any_values(i32, size), finite_values(f64, size)
    frame = pd.DataFrame({"key": keys, "value": values.astype(np.int64), "float": floats}).groupby("key")
    names, sums = algorithms.reduce_by_key(*algorithms.sort_by_key(keys, values))
    equal(names, frame.value.sum().index.to_numpy())
    equal(sums, frame.value.sum().to_numpy())
    for op in ("min", "max"):
        _, found = algorithms.reduce_by_key(*algorithms.sort_by_key(keys, values), op)
        equal(found, getattr(frame.value, op)().to_numpy().astype(np.int32))
    _, totals = algorithms.reduce_by_key(*algorithms.sort_by_key(keys, floats))
    assert np.allclose(totals, frame["float"].sum().to_numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_running_totals_of_groups(size: int) -> None:
    keys = np.sort(np.random.default_rng(size).integers(0, 50, size))
    values = any_values(i32, size)
    frame = pd.DataFrame({"key": keys, "value": values.astype(np.int64)})
    offsets = np.searchsorted(keys, np.arange(51))
    totals = algorithms.segmented_scan(values, offsets, dtype=i64)
    equal(totals, frame.groupby("key").value.cumsum().to_numpy())


@pytest.mark.parametrize("size", SIZES)
def test_counts_of_values(size: int) -> None:
    values = np.random.default_rng(size).integers(-20, 20, size).astype(np.int16)
    found, counts = algorithms.unique(values, counts=True)
    expected = pd.Series(values).value_counts().sort_index()
    equal(found, expected.index.to_numpy())
    equal(counts, expected.to_numpy())
