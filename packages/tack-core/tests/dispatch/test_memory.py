"""Launches after the first few allocate nothing, and leave nothing behind, however many there are."""

from __future__ import annotations

import gc
import itertools
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tack

STATM = Path("/proc/self/statm")


@tack.kernel
def scale(x, out, a):
    for i in range(out.shape[0]):
        out[i] = x[i] * a


@tack.kernel
def many_steps(x, out, a):
    """By its estimated cost, worth all threads."""
    for i in range(out.shape[0]):
        for _j in range(a):
            for _k in range(a):
                for _l in range(a):
                    for _m in range(a):
                        out[i] = 0.0
        out[i] = x[i]


def launcher(size: int, *, parallel: bool, own: bool) -> Callable[[], object]:
    kernel, a = (many_steps, 0) if parallel else (scale, 2)
    x, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    if own:
        x, out = tack.asarray(x), tack.asarray(out)
    return lambda: kernel(x, out, a)


def repeat(launch: Callable[[], object], times: int) -> None:
    for _ in itertools.repeat(None, times):
        launch()


@pytest.mark.parametrize("own", [True, False], ids=["tack arrays", "numpy arrays"])
@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
@pytest.mark.usefixtures("natively")
def test_a_native_launch_allocates_nothing(parallel: bool, own: bool) -> None:
    launch = launcher(64, parallel=parallel, own=own)
    repeat(launch, 100)
    tracemalloc.start()
    try:
        few, many = (allocated(launch, times) for times in (1, 1000))
    finally:
        tracemalloc.stop()
    assert many == few  # what the loop over launches takes itself


def allocated(launch: Callable[[], object], times: int) -> tuple[int, int]:
    """Bytes that launches allocate and keep, and the most that they hold meanwhile."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    repeat(launch, times)
    after, peak = tracemalloc.get_traced_memory()
    return after - before, peak - before


def test_a_launch_leaves_nothing_behind(dispatcher: str) -> None:
    launch = launcher(64, parallel=False, own=True)
    repeat(launch, 100)
    tracemalloc.start()
    try:
        repeat(launch, 100)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        repeat(launch, 2000)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 2000  # less than a byte for a launch


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not STATM.exists(), reason="the system does not tell")
@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
@pytest.mark.usefixtures("natively")
def test_a_million_launches_leave_the_process_as_it_is(parallel: bool) -> None:
    launch = launcher(64, parallel=parallel, own=True)
    repeat(launch, 10_000)
    gc.collect()
    before = resident()
    repeat(launch, 1_000_000)
    assert resident() - before < 1 << 20
