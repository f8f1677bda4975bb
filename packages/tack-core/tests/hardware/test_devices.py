"""Work on two devices of one machine, and copies between them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import tack


@tack.kernel
def increment(x, n):
    for i in range(n):
        x[i] += 1


@tack.kernel
def spin(x, rounds):
    for i in range(x.shape[0]):
        value = x[i]
        for _ in range(rounds):
            value = value * 1.0000001 + 0.5
        x[i] = value


def device_count() -> int:
    return sum(status.device is not None and status.spec.startswith("cuda") for status in tack.devices())


def devices() -> list[tack.Device]:
    if device_count() < 2:
        pytest.skip("this machine has one device")
    return [tack.device("cuda:0"), tack.device("cuda:1")]


def test_two_devices_work_at_once() -> None:
    both = devices()
    arrays = [tack.ones(1 << 20, device=device) for device in both]

    def seconds(chosen: list[tack.Array]) -> float:
        begin = time.perf_counter()
        for array in chosen:
            spin(array, 20_000)
        tack.sync()
        return time.perf_counter() - begin

    for array in arrays:
        seconds([array])
    alone = [min(seconds([array]) for _ in range(3)) for array in arrays]
    together = min(seconds(arrays) for _ in range(3))
    assert together < 0.7 * sum(alone), (alone, together)


def test_copies_between_devices() -> None:
    first, second = devices()
    host = np.random.default_rng(0).random(1 << 22, np.float32)
    here = tack.asarray(host, device=first)
    there = here.to(second)
    assert there.device == second
    increment(there, there.size)
    back = tack.empty_like(here)
    tack.copyto(back, there)
    np.testing.assert_array_equal(back.numpy(), host + np.float32(1))


def test_a_thread_for_each_device() -> None:
    results: dict[int, float] = {}

    def work(device: tack.Device) -> None:
        x = tack.zeros(1 << 20, tack.i64, device=device)
        for _ in range(500):
            increment(x, x.size)
        results[device.index] = x.sum()

    threads = [threading.Thread(target=work, args=(device,)) for device in devices()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results.values()) == {500 << 20}


def test_arrays_of_two_devices_in_one_call() -> None:
    first, second = devices()
    with pytest.raises(ValueError, match=r"cuda:1|CUDA 1"):
        increment_both(tack.zeros(4, device=first), tack.zeros(4, device=second))


@tack.kernel
def increment_both(x, y):
    for i in range(x.shape[0]):
        x[i] += 1
        y[i] += 1
