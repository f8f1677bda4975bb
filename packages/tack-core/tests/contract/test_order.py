"""Queued work: its order, what the host waits for, what is dropped in flight, and many threads.

Where launches are done when they return, all of it holds as well, and nothing is ever in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conformance.helpers import build
from steered import Busy

import tack

from .kernels import affine, count, last

# --- order --------------------------------------------------------------------------------------


def test_launches_run_in_program_order(dispatch: str) -> None:
    x, y = tack.arange(500, dtype=tack.i64), tack.empty(500, tack.i64)
    expected = list(range(500))
    for k in range(60):
        affine(x, y, 3, k)
        affine(y, x, 1, -1)
        expected = [(v * 3 + k - 1 + 2**63) % 2**64 - 2**63 for v in expected]
    assert x.numpy().tolist() == expected


def test_a_launch_returns_before_it_is_done(backend: Any, busy: Busy, dispatch: str) -> None:
    x = tack.zeros(16, tack.i32)
    for _ in range(3):
        affine(x, x, 1, 1)
    tack.sync()
    with busy():
        affine(x, x, 1, 1)
        done = backend.completion()
        assert done() is not backend.queues_launches
    tack.sync()
    assert done()
    assert backend.completion()() or backend.queues_launches
    assert x.numpy().tolist() == [4] * 16


@pytest.mark.parametrize("size", [1, 1000, 1_000_001])
def test_host_writes_come_after_what_was_queued_before(busy: Busy, later: Any, size: int) -> None:
    x, y = tack.full(size, 7, tack.i32), tack.zeros(size, tack.i32)
    few = min(size, 5000)
    values = np.arange(size, dtype=np.int32)
    with busy():
        affine(x[:few], y[:few], 1, 1)
        later()
        tack.copyto(x, values)
        values[:] = -1  # the copy has taken them
        affine(x[:few], x[:few], 2, 0)
        x[0] = 5
    assert (y.numpy()[:few] == 8).all()
    expected = np.arange(size)
    expected[:few] *= 2
    expected[0] = 5
    assert np.array_equal(x.numpy(), expected)


def test_numbers_are_captured(busy: Busy) -> None:
    """Later calls have other arguments while earlier launches are waiting."""
    arrays = [tack.zeros(10, tack.i32) for _ in range(20)]
    with busy():
        for k, x in enumerate(arrays):
            affine(x, x, 1, k)
    assert [int(x[9]) for x in arrays] == list(range(20))


def test_small_writes_do_not_wait(backend: Any, busy: Busy) -> None:
    x = tack.zeros(64, tack.i32)
    x[0] = 1
    tack.sync()
    with busy():
        for k in range(200):
            x[k % 64] = k
    assert x.numpy().tolist() == [k + 64 * ((199 - k) // 64) for k in range(64)]


def test_reads_wait(busy: Busy, later: Any) -> None:
    x = tack.zeros(1000, tack.i32)
    big = tack.zeros(2_000_003, tack.i32)
    last(x)
    with busy():
        affine(x, x, 1, 5)
        big.fill(6)
        later()
        assert x[3] == 5
        assert (big.numpy() == 6).all()
        assert x.numpy(10, 12).tolist() == [5, 5]
        assert x.sum() == 5000
        assert last(x) == 5


def test_copies_are_in_order(busy: Busy, later: Any) -> None:
    x = tack.arange(5000, dtype=tack.i32)
    y = tack.zeros(5000, tack.i32)
    tack.sync()
    with busy():
        tack.copyto(y, x)
        affine(x, x, 0, -1)
        later()  # one that overlaps may wait
        tack.copyto(y[1:], y[:-1])
    assert y.numpy().tolist() == [0, *range(4999)]
    assert (x.numpy() == -1).all()


def test_arrays_without_elements(backend: Any) -> None:
    x, y = tack.empty(0, tack.i32), tack.zeros(0, tack.i32)
    affine(x, y, 1, 1)
    tack.copyto(x, y)
    x.fill(3)
    assert x.numpy().size == 0
    assert x.copy().to("cpu").shape == (0,)


# --- what is dropped in flight ------------------------------------------------------------------


def test_arrays_dropped_in_flight_are_freed_after_their_launches(busy: Busy) -> None:
    results = []
    with busy():
        for k in range(20):
            x = tack.full(5000, k, tack.i32)
            y = tack.empty(5000, tack.i32)
            affine(x, y, 2, 1)
            results.append(y)
            del x
            other = tack.full(5000, -5, tack.i32)  # likely where x was
            affine(other, other, 1, 1)
    for k, y in enumerate(results):
        assert (y.numpy() == 2 * k + 1).all()


def test_kernels_dropped_in_flight(busy: Busy) -> None:
    x = tack.zeros(100, tack.i32)
    source = "@tack.kernel\ndef one_more(x):\n    for i in range(x.shape[0]):\n        x[i] = x[i] + 1\n"
    with busy():
        for _ in range(3):
            kernel = build(source, "one_more")
            kernel(x)
            del kernel
    assert (x.numpy() == 3).all()


def test_what_is_dropped_is_freed(emulated: Any) -> None:
    """Also what was in use, and without anybody's waiting for it."""
    x = tack.zeros(4, tack.i32)
    emulated.limit(256 << 20)
    for k in range(40):
        y = tack.empty(40 << 20, tack.u8)
        y[k] = k
        affine(x, x, 1, 1)
        del y
    assert x.numpy().tolist() == [40] * 4
    with pytest.raises(MemoryError, match=r"cannot allocate 300\.00 MiB"):
        tack.empty(300 << 20, tack.u8)
    affine(x, x, 1, 1)
    assert x[0] == 41


def test_memory_in_flight_is_waited_for_before_an_error(emulated: Any, later: Any) -> None:
    tack.sync()
    emulated.limit(200 << 20)
    x = tack.zeros(100 << 20, tack.u8)
    with emulated.held():
        x.fill(1)
        del x
        later()
        y = tack.ones(150 << 20, tack.u8)
    assert y[-1] == 1


# --- memory that others use ---------------------------------------------------------------------


def runs_until_released(action: Callable[[], object], release: Callable[[], None]) -> bool:
    """Whether an action, in its own thread, does not return for a while in which the device is held."""
    device = tack.default_device()

    def run() -> None:
        with device:
            action()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.2)
    waits = thread.is_alive()
    release()
    thread.join()
    return waits


def test_launches_on_foreign_memory_are_done_when_they_return(
    backend: Any, emulated: Any, dispatch: str
) -> None:
    x = tack.zeros(100, tack.i32)
    y = tack.array_from_ptr(backend.pointer(x), tack.i32, 100, writable=True, owner=x)
    own = tack.zeros(100, tack.i32)
    for array in (x, y, own):
        for _ in range(3):
            affine(array, array, 1, 0)
    tack.sync()
    for change in (lambda: affine(y, y, 1, 1), lambda: y.fill(3)):
        with emulated.held():
            affine(own, own, 1, 1)  # which returns at once
            assert runs_until_released(change, emulated.release)
    assert x.numpy().tolist() == [3] * 100
    assert own.numpy().tolist() == [2] * 100


@pytest.mark.parametrize("how", ["__dlpack__", "__cuda_array_interface__"])
def test_so_are_launches_on_memory_that_was_exported(
    backend: Any, emulated: Any, dispatch: str, how: str
) -> None:
    x = tack.zeros(100, tack.i32)
    view = x[10:20]
    for _ in range(3):
        affine(view, view, 1, 1)
    with emulated.held():
        affine(view, view, 1, 1)
    if not backend.provides("hand_out" if how == "__dlpack__" else "cuda_array_interface"):
        with pytest.raises((BufferError, AttributeError)):
            export(x, how)
        return
    exported = export(x, how)
    with emulated.held():  # a view that was made before, and known to the native dispatcher
        assert runs_until_released(lambda: affine(view, view, 1, 1), emulated.release)
    assert view.numpy().tolist() == [5] * 10
    del exported


def export(array: tack.Array, how: str) -> Any:
    found = getattr(array, how)
    return found() if callable(found) else found


# --- waiting without blocking, threads ----------------------------------------------------------


def test_await_does_not_block_the_event_loop(emulated: Any, target: str) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)

    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1
                if ticks == 20:
                    emulated.release()

        with emulated.held():
            affine(x, x, 1, 1)
            ticking = asyncio.ensure_future(tick())
            await tack.wait(target)
            ticking.cancel()
        return ticks

    assert asyncio.run(main()) >= 20
    assert x.numpy().tolist() == [2] * 10


def test_await_covers_every_device_and_the_cpu() -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)

    async def main() -> None:
        await tack.wait()
        await tack.wait("cpu")
        await tack.wait(x.device)

    asyncio.run(main())
    assert x.numpy().tolist() == [1] * 10


def in_threads(number: int, work: Callable[[int], object]) -> None:
    """Runs ``work`` in threads, and raises the first error."""
    device = tack.default_device()
    failures: list[BaseException] = []

    def run(which: int) -> None:
        try:
            with device:
                work(which)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_many_threads(dispatch: str) -> None:
    total = tack.zeros(1, tack.i32)
    threads, rounds = 8, 20

    def work(number: int) -> None:
        x = tack.full(256, number, tack.i32)
        for k in range(rounds):
            y = tack.empty(256, tack.i32)
            affine(x, y, 1, 1)
            x = y
            count(total, 10)
            if k % 10 == 0:
                assert x[k] == number + k + 1
        assert (x.numpy() == number + rounds).all()

    in_threads(threads, work)
    assert total[0] == threads * rounds * 10


def test_threads_compile_at_the_same_time() -> None:
    source = "@tack.kernel\ndef add(x):\n    for i in range(x.shape[0]):\n        x[i] = x[i] + {}\n"
    kernels = [build(source.format(k), "add") for k in (1, 10)]
    x = [tack.zeros(10, tack.i32) for _ in range(6)]

    def work(number: int) -> None:
        for kernel in kernels:
            kernel(x[number])

    in_threads(len(x), work)
    assert [int(one[9]) for one in x] == [11] * len(x)


def test_other_threads_run_while_one_waits(busy: Busy, later: Any) -> None:
    x = tack.zeros(10, tack.i32)
    ticks = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    affine(x, x, 1, 1)  # compiled before the device is busy
    thread = threading.Thread(target=tick)
    with busy():
        affine(x, x, 1, 1)
        later()
        thread.start()
        while not ticks:
            time.sleep(0)
        tack.sync()
        time.sleep(0.03)
        done.set()
    thread.join()
    assert len(ticks) > 5
    assert x[9] == 2


# --- several devices ----------------------------------------------------------------------------


@pytest.fixture
def second(backend: Any, target: str) -> tack.Device:
    if type(backend).device_count() < 2:
        pytest.skip("there is one device")
    return tack.device(f"{target}:1")


def test_arrays_on_two_devices(second: tack.Device, backend: Any, busy: Busy, target: str) -> None:
    here = tack.arange(1000, dtype=tack.i32)
    there = tack.zeros(1000, tack.i32, device=second)
    assert there.device == second
    affine(here, here, 1, 0)
    affine(there, there, 1, 0)
    with busy() if there._buffer.copies_from(here._buffer) else contextlib.nullcontext():
        affine(here, here, 2, 0)
        tack.copyto(there, here)  # in order with the queues of both
        affine(here, here, 0, -1)
        affine(there, there, 1, 1)
        back = there.to(target)
        affine(there, there, 0, -2)
    assert back.numpy().tolist() == [2 * k + 1 for k in range(1000)]
    assert (here.numpy() == -1).all()
    assert (there.numpy() == -2).all()
    with pytest.raises(ValueError, match=f"'x' on {backend.label}, 'y' on {second.label}"):
        affine(here, there, 1, 1)


def test_two_devices_from_threads(second: tack.Device, target: str) -> None:
    def work(number: int) -> None:
        for k in range(10):
            for device in (target, second):
                x = tack.full(100, k, tack.i32, device=device)
                with tack.device(device):
                    affine(x, x, 2, 1)
                assert x[7] == 2 * k + 1

    in_threads(4, work)
