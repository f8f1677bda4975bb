"""Memory over a million launches."""

from __future__ import annotations

import gc
import resource

import tack

LAUNCHES = 1_000_000


@tack.kernel
def increment(x, n):
    for i in range(n):
        x[i] += 1


def free_memory() -> int:
    from cuda.bindings import driver

    tack.sync()
    error, free, _ = driver.cuMemGetInfo()
    assert int(error) == 0
    return int(free)


def test_a_million_launches_keep_memory_flat() -> None:
    x = tack.zeros(256, tack.i32)
    for _ in range(1000):
        increment(x, 256)
    tack.sync()
    gc.collect()
    resident, free = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, free_memory()
    for _ in range(LAUNCHES):
        increment(x, 256)
    tack.sync()
    assert x.numpy().tolist() == [LAUNCHES + 1000] * 256
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 4096  # KiB
    assert free_memory() == free


def test_arrays_that_come_and_go_keep_memory_flat() -> None:
    def once() -> None:
        x = tack.zeros(1 << 20)
        increment(x, x.size)
        assert x[0] == 1

    for _ in range(50):
        once()
    free = free_memory()
    for _ in range(2000):
        once()
    assert free_memory() == free
