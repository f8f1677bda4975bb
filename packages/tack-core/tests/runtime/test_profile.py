"""`tack.profile`: what it counts, what it leaves alone, and that native dispatch comes back."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pytest

import tack
from tack.runtime import native


def kernels() -> tuple[Any, Any]:
    @tack.kernel
    def slow(x, turns):
        for i in range(1):
            for _ in range(turns):
                x[i] = x[i] * 0.5 + 1.0

    @tack.kernel
    def count(x) -> int:
        for i in range(x.shape[0]):
            x[i] += 1
        return x.shape[0]

    return slow, count


def by_name(profile: Any) -> dict[str, Any]:
    return {entry.kernel.rpartition(".")[2]: entry for entry in profile.kernels}


def test_launches_and_times_are_those_of_the_block() -> None:
    slow, count = kernels()
    x = np.zeros(100)
    for _ in range(4):  # native by now, where that is installed
        slow(x, 10)
    with tack.profile() as p:
        start = time.perf_counter()
        for _ in range(3):
            slow(x, 5_000_000)
        elapsed = time.perf_counter() - start
        assert count(x) == 100
    slow(x, 10)
    found = by_name(p)
    assert (found["slow"].launches, found["count"].launches) == (3, 1)
    assert 0.5 * elapsed < found["slow"].seconds <= elapsed
    assert 0 < found["slow"].shortest <= found["slow"].seconds / 3 <= found["slow"].longest
    assert found["count"].seconds < found["slow"].seconds
    assert x[5] == 1


def test_compiles_are_counted_with_their_times() -> None:
    _, count = kernels()
    with tack.profile() as p:
        start = time.perf_counter()
        for dtype in (np.float32, np.float64, np.int32, np.int32):
            count(np.zeros(3, dtype))
        elapsed = time.perf_counter() - start
    (entry,) = p.kernels
    assert (entry.launches, entry.compiles + entry.cache_hits) == (4, 3)
    assert 0 < entry.compile_seconds + entry.cache_seconds < elapsed


def test_the_table_and_the_data_say_the_same() -> None:
    slow, count = kernels()
    with tack.profile() as p:
        slow(np.zeros(1), 1000)
        count(np.zeros(2))
        count(np.zeros(2))
    data = json.loads(json.dumps(p.to_dict()))["kernels"]
    assert [entry["launches"] for entry in data] == [1, 2]
    heading, rule, *rows = str(p).splitlines()
    assert heading.split()[:3] == ["kernel", "device", "launches"]
    assert set(rule) == {"-"}
    for row, entry in zip(rows, data, strict=True):
        name, device, launches, total, *_ = row.split()
        assert (name, device, int(launches)) == (entry["kernel"], "CPU", entry["launches"])
        assert float(total) == pytest.approx(1e3 * entry["seconds"], abs=5e-4)
    assert repr(p) == "<tack.profile: 2 kernels, 3 launches>"
    assert str(tack.profile()).startswith("kernel")


def test_profiles_nest_and_add_up() -> None:
    _, count = kernels()
    x = np.zeros(4)
    with tack.profile() as outer:
        count(x)
        with tack.profile() as inner:
            count(x)
        count(x)
    with inner:
        count(x)
    assert (outer.kernels[0].launches, inner.kernels[0].launches) == (3, 2)
    with outer, pytest.raises(RuntimeError, match="on already"):
        outer.__enter__()


def test_threads_and_errors_are_counted() -> None:
    _, count = kernels()
    arrays = [np.zeros(1000) for _ in range(4)]
    with tack.profile() as p:
        threads = [threading.Thread(target=lambda x=x: [count(x) for _ in range(50)]) for x in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        read_only = np.zeros(3)
        read_only.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            count(read_only)
    assert p.kernels[0].launches == 200
    assert all((x == 50).all() for x in arrays)


@pytest.mark.skipif(native.module is None, reason="the C extension is not installed")
def test_native_dispatch_is_paused_and_comes_back() -> None:
    assert native.module is not None
    _, count = kernels()
    x = np.zeros(4)
    with tack.profile(), tack.profile():
        for _ in range(5):
            count(x)
        assert native.module.resolve(count, (x,)) is None
    for _ in range(3):
        count(x)
    assert native.module.resolve(count, (x,)) is not None
    with pytest.raises(KeyError), tack.profile():
        raise KeyError
    assert native.module.resolve(count, (x,)) is not None
