"""Checks of `tack.algorithms`, and what the device takes: bandwidth, launches."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

import tack
from tack import algorithms
from tack.validate.checks import Context, check, expect
from tack.validate.device import affine


def _integers(context: Context) -> Any:
    size = context.size(3_000_017, 3011)
    return np.random.default_rng(10).integers(-1000, 1000, size).astype(np.int32)


@check("scan")
def scan(context: Context) -> str:
    values = _integers(context)
    x = tack.asarray(values)
    expect(algorithms.inclusive_scan(x).numpy(), np.cumsum(values, dtype=np.int32), "inclusive sums")
    right = np.concatenate([[0], np.cumsum(values, dtype=np.int32)[:-1]])
    expect(algorithms.exclusive_scan(x).numpy(), right, "exclusive sums")
    expect(algorithms.inclusive_scan(x, "max").numpy(), np.maximum.accumulate(values), "maxima")
    return f"{values.size:,} elements"


@check("sort")
def sort(context: Context) -> str:
    values = _integers(context)
    x = tack.asarray(values)
    expect(algorithms.sort(x).numpy(), np.sort(values), "i32")
    expect(algorithms.argsort(x).numpy(), np.argsort(values, kind="stable"), "a stable argsort")
    floats = values.astype(np.float32) / 7
    expect(algorithms.sort(tack.asarray(floats), descending=True).numpy(), np.sort(floats)[::-1], "f32")
    return f"{values.size:,} elements"


@check("selection")
def selection(context: Context) -> str:
    values = _integers(context)
    x = tack.asarray(values)
    expect(
        algorithms.compact(x, tack.asarray((values > 100).astype(np.int32))).numpy(),
        values[values > 100],
        "compact",
    )
    found, counts = algorithms.unique(x, counts=True)
    right = np.unique(values, return_counts=True)
    expect(found.numpy(), right[0], "unique")
    expect(counts.numpy(), right[1], "its counts")
    return f"{values.size:,} elements"


@tack.kernel
def _copy(x: Any, y: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i]


@check("bandwidth")
def bandwidth(context: Context) -> str:
    """A kernel that copies; the figure is what it reads and writes in a second, the best of ten."""
    size = context.size(1 << 26, 1 << 14)
    while True:
        try:
            x, y = tack.full(size, 3.0), tack.zeros(size)
            break
        except MemoryError:
            size //= 4
    _copy(x, y)
    tack.sync()
    best = float("inf")
    for _ in range(10):
        start = perf_counter()
        _copy(x, y)
        tack.sync()
        best = min(best, perf_counter() - start)
    expect(y.numpy(size - 3), [3.0] * 3, "the copy")
    return f"{8 * size / best / 1e9:,.1f} GB/s with {4 * size / 2**20:,.3g} MiB"


@check("launches")
def launches(context: Context) -> str:
    """What a call costs the host, and a call with a wait."""
    x = tack.zeros(256, tack.i32)
    rounds = context.size(2000, 50)
    for _ in range(10):
        affine(x, x, 1, 0)
    tack.sync()
    start = perf_counter()
    for _ in range(rounds):
        affine(x, x, 1, 1)
    queued = perf_counter() - start
    tack.sync()
    start = perf_counter()
    for _ in range(rounds):
        affine(x, x, 1, 1)
        tack.sync()
    waited = perf_counter() - start
    expect(x.numpy(), [2 * rounds] * 256, "the launches")
    return f"{1e6 * queued / rounds:.1f} µs each, {1e6 * waited / rounds:.1f} µs with a wait"
