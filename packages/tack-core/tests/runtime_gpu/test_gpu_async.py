"""Queued work: its order, what the host waits for, frees and errors in flight, and many threads."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack

from .conftest import Api, Busy

ILLEGAL_ADDRESS = 700


@tack.kernel
def affine(x: Any, y: Any, a: Any, b: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i] * a + b


@tack.kernel
def count(total: Any, n: Any) -> None:
    for _i in range(n):
        tack.atomic_add(total, 0, 1)


@tack.kernel
def last(x: Any) -> tack.i64:
    for _i in range(1):
        pass
    return x[x.shape[0] - 1]


def is_idle(backend: Any) -> bool:
    """Whether nothing is queued."""
    with backend.queue.entered():
        done: bool = backend.driver.is_done(backend.driver.StreamQuery(backend.queue.stream))
        return done


# --- order --------------------------------------------------------------------------------------


def test_launches_run_in_program_order(dispatch: str) -> None:
    x, y = tack.arange(1000, dtype=tack.i64), tack.empty(1000, tack.i64)
    expected = list(range(1000))
    for k in range(100):
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
        assert not is_idle(backend)
    tack.sync()
    assert is_idle(backend)
    assert x.numpy().tolist() == [4] * 16


@pytest.mark.parametrize("size", [1, 1000, 3_000_001])
def test_host_writes_come_after_what_was_queued_before(busy: Busy, later: Any, size: int) -> None:
    x, y = tack.full(size, 7, tack.i32), tack.zeros(size, tack.i32)
    values = np.arange(size, dtype=np.int32)
    with busy():
        affine(x, y, 1, 1)
        later()
        tack.copyto(x, values)
        values[:] = -1  # the copy has taken them
        affine(x, x, 2, 0)
        x[0] = 5
    assert (y.numpy() == 8).all()
    expected = 2 * np.arange(size)
    expected[0] = 5
    assert np.array_equal(x.numpy(), expected)


def test_small_writes_do_not_wait(backend: Any, busy: Busy) -> None:
    x = tack.zeros(64, tack.i32)
    x[0] = 1
    tack.sync()
    with busy():
        for k in range(200):
            x[k % 64] = k
        assert not is_idle(backend)
    assert x.numpy().tolist() == [k + 64 * ((199 - k) // 64) for k in range(64)]


def test_reads_wait(busy: Busy, later: Any) -> None:
    x = tack.zeros(1000, tack.i32)
    big = tack.zeros(2_000_003, tack.i32)
    tack.sync()
    with busy():
        affine(x, x, 1, 5)
        affine(big, big, 1, 6)
        later()
        assert x[3] == 5
        assert (big.numpy() == 6).all()
        assert x.numpy(10, 12).tolist() == [5, 5]
        assert x.sum() == 5000
        assert last(x) == 5


FILLS = [
    *((dtype, value) for dtype in ("i8", "u16", "i32", "u64", "f32", "f64") for value in (0, 1, 77)),
    ("i64", -(2**40) - 3),
    ("f64", 0.1),
    ("f32", float("nan")),
]


@pytest.mark.parametrize(("name", "value"), FILLS, ids=str)
@pytest.mark.parametrize("size", [1, 5, 8192, 300_001])
def test_fills(busy: Busy, name: str, value: Any, size: int) -> None:
    dtype = getattr(tack, name)
    x = tack.full(size + 2, 3, dtype)
    with busy():
        x[1 : size + 1].fill(value)
    expected = np.full(size + 2, 3, dtype.numpy)
    expected[1:-1] = np.asarray(value).astype(dtype.numpy)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("size", [1, 6000, 100_000])
def test_fills_of_vectors(size: int) -> None:
    x = tack.zeros(size, tack.vec3)
    x.fill((1, 2, 3))
    np.testing.assert_array_equal(x.numpy(), np.tile(np.float32([1, 2, 3]), (size, 1)))


def test_copies_are_queued_and_may_overlap(backend: Any, busy: Busy) -> None:
    x = tack.arange(5000, dtype=tack.i32)
    y = tack.zeros(5000, tack.i32)
    tack.sync()
    with busy():
        tack.copyto(y, x)
        affine(x, x, 0, -1)
        tack.copyto(y[1:], y[:-1])
        assert not is_idle(backend)
    assert y.numpy().tolist() == [0, *range(4999)]
    assert (x.numpy() == -1).all()


# --- frees --------------------------------------------------------------------------------------


def test_arrays_dropped_in_flight_are_freed_after_their_launches(busy: Busy) -> None:
    results = []
    with busy():
        for k in range(20):
            x = tack.full(10_000, k, tack.i32)
            y = tack.empty(10_000, tack.i32)
            affine(x, y, 2, 1)
            results.append(y)
            del x
            other = tack.full(10_000, -5, tack.i32)  # likely where x was
            affine(other, other, 1, 1)
    for k, y in enumerate(results):
        assert (y.numpy() == 2 * k + 1).all()


def test_memory_is_reused(emulated: Driver, api: Api) -> None:
    tack.empty(1 << 20)
    allocate = api.function("MemAllocFromPoolAsync")
    before = emulated.calls(allocate), emulated.live("bytes") + emulated.live("cached")
    for _ in range(50):
        x = tack.zeros(1 << 20)
        affine(x, x, 1.0, 1.0)
        del x
    tack.sync()
    assert emulated.calls(allocate) == before[0] + 50
    assert emulated.live("bytes") + emulated.live("cached") <= before[1]


def test_kernels_dropped_in_flight(busy: Busy) -> None:
    x = tack.zeros(100, tack.i32)
    source = "@tack.kernel\ndef one_more(x):\n    for i in range(x.shape[0]):\n        x[i] = x[i] + 1\n"
    from conformance.helpers import build

    with busy():
        for _ in range(3):
            kernel = build(source, "one_more")
            kernel(x)
            del kernel
    assert (x.numpy() == 3).all()


def test_out_of_memory_leaves_the_device_usable(api: Api) -> None:
    x = tack.ones(100)
    with pytest.raises(MemoryError, match=rf"cannot allocate 16\.00 TiB on {api.label}: .* is free"):
        tack.empty(2**44, tack.u8)
    affine(x, x, 2.0, 1.0)
    assert (x.numpy() == 3).all()


def test_memory_that_the_pool_keeps_is_given_back_before_an_error(emulated: Driver, api: Api) -> None:
    x = tack.zeros(1 << 20, tack.u8)
    tack.sync()
    emulated.limit(emulated.live("bytes") + emulated.live("cached") + (64 << 20))
    kept = [tack.empty(30 << 20, tack.u8), tack.empty(30 << 20, tack.u8)]
    kept.clear()  # the pool keeps them
    assert tack.ones(50 << 20, tack.u8)[-1] == 1
    with pytest.raises(MemoryError, match=r"cannot allocate 100\.00 MiB"):
        tack.empty(100 << 20, tack.u8)
    emulated.fail(api.function("MemPoolTrimTo"), 1)
    with pytest.raises(RuntimeError, match=api.errors[1]):
        tack.empty(100 << 20, tack.u8)
    assert x[5] == 0


# --- memory that others use ---------------------------------------------------------------------


def test_launches_on_foreign_memory_are_done_when_they_return(
    backend: Any, emulated: Driver, dispatch: str, api: Api
) -> None:
    x = tack.zeros(100, tack.i32)
    y = tack.array_from_ptr(x.address, tack.i32, 100, writable=True, owner=x)
    assert tack.memory_space(x) == api.name
    for array in (x, y):
        affine(array, array, 1, 0)
        affine(array, array, 1, 0)
    emulated.pace(delay=20_000)
    affine(x, x, 1, 1)
    assert not is_idle(backend)
    affine(y, y, 1, 1)
    assert is_idle(backend)
    y.fill(3)
    assert is_idle(backend)
    tack.copyto(y, np.arange(100, dtype=np.int32))
    assert is_idle(backend)


@pytest.mark.parametrize("how", ["dlpack", "interface"])
def test_so_are_launches_on_memory_that_was_exported(
    backend: Any, emulated: Driver, dispatch: str, how: str, api: Api
) -> None:
    x = tack.zeros(100, tack.i32)
    if api.name == "hip" and how == "interface":
        assert not hasattr(x, "__cuda_array_interface__")
        return
    view = x[10:20]
    for _ in range(3):
        affine(view, view, 1, 1)
    emulated.pace(delay=20_000)
    affine(view, view, 1, 1)
    assert not is_idle(backend)
    exported = x.__dlpack__() if how == "dlpack" else x.__cuda_array_interface__
    affine(view, view, 1, 1)  # a view that was made, and known to C, before
    assert is_idle(backend)
    assert view.numpy().tolist() == [5] * 10
    del exported


# --- errors -------------------------------------------------------------------------------------


def test_a_failure_surfaces_at_the_next_wait(emulated: Driver, dispatch: str, api: Api) -> None:
    x, y = tack.zeros(10), tack.zeros(10)
    for _ in range(3):
        affine(x, y, 1.0, 1.0)
    tack.sync()
    for wait in (tack.sync, x.numpy, lambda: x[0], lambda: asyncio.run(tack.wait()), lambda: last(x)):
        emulated.fail("run", ILLEGAL_ADDRESS)
        affine(x, y, 1.0, 1.0)
        with pytest.raises(RuntimeError) as caught:
            wait()
        text = str(caught.value)
        if wait.__name__ != "<lambda>":
            name = api.errors[ILLEGAL_ADDRESS]
            assert text.startswith(f"Kernel 'affine' failed on {api.label}: {name}: an illegal")
        assert "'affine'" in text
        for again in (tack.sync, x.numpy, lambda: affine(x, y, 1.0, 1.0), lambda: tack.zeros(3)):
            with pytest.raises(RuntimeError, match=r"'affine'.* cannot be used in this process any more"):
                again()
        emulated.heal()
    affine(x, y, 1.0, 1.0)
    tack.sync()


def test_a_failure_names_the_kernels_since_the_last_wait(emulated: Driver, api: Api) -> None:
    x = tack.zeros(10, tack.i32)
    last(x)  # which waits
    with emulated.held():
        affine(x, x, 1, 1)
        count(x, 10)
        emulated.fail("run", ILLEGAL_ADDRESS)
        affine(x, x, 1, 1)
    with pytest.raises(
        RuntimeError, match=f"One of the kernels 'count', 'affine' failed.*{api.driver.blocking}"
    ):
        tack.sync()


def test_a_launch_that_the_driver_refuses(emulated: Driver, dispatch: str, api: Api) -> None:
    x = tack.zeros(10, tack.i32)
    for _ in range(3):
        affine(x, x, 1, 1)
    emulated.fail(api.function("LaunchKernel"), 1)
    with pytest.raises(RuntimeError, match=f"Kernel 'affine' failed on {api.label}: {api.errors[1]}"):
        affine(x, x, 1, 1)
    affine(x, x, 1, 1)
    assert x.numpy().tolist() == [4] * 10


# --- waiting without blocking -------------------------------------------------------------------


def test_await_does_not_block_the_event_loop(emulated: Driver, api: Api) -> None:
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
            await tack.wait(api.name)
            ticking.cancel()
        return ticks

    assert asyncio.run(main()) >= 20
    assert is_idle(tack.device(api.name)._backend)


def test_await_covers_every_device_and_the_cpu() -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)

    async def main() -> None:
        await tack.wait()
        await tack.wait("cpu")
        await tack.wait(x.device)

    asyncio.run(main())
    assert x.numpy().tolist() == [1] * 10


# --- threads ------------------------------------------------------------------------------------


def test_many_threads(dispatch: str) -> None:
    total = tack.zeros(1, tack.i64)
    threads, rounds, failures = 8, 50, []

    def work(number: int) -> None:
        try:
            x = tack.full(256, number, tack.i64)
            for k in range(rounds):
                y = tack.empty(256, tack.i64)
                affine(x, y, 1, 1)
                x = y
                count(total, 10)
                if k % 10 == 0:
                    assert x[k] == number + k + 1
            assert (x.numpy() == number + rounds).all()
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures
    assert total[0] == threads * rounds * 10


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
        tack.sync()
        done.set()
    thread.join()
    assert len(ticks) > 5


# --- several devices ----------------------------------------------------------------------------


@pytest.fixture
def second(api: Api) -> tack.Device:
    if sum(status.device is not None and status.spec.startswith(api.name) for status in tack.devices()) < 2:
        pytest.skip("there is one device")
    return tack.device(f"{api.name}:1")


def test_arrays_on_two_devices(second: tack.Device, busy: Busy, api: Api) -> None:
    here = tack.arange(1000, dtype=tack.i32)
    there = tack.zeros(1000, tack.i32, device=second)
    assert there.device == second
    with busy():
        affine(here, here, 2, 0)
        tack.copyto(there, here)  # in order with the queues of both
        affine(here, here, 0, -1)
        affine(there, there, 1, 1)
        back = there.to(api.name)
        affine(there, there, 0, -2)
    assert back.numpy().tolist() == [2 * k + 1 for k in range(1000)]
    assert (here.numpy() == -1).all()
    assert (there.numpy() == -2).all()
    with pytest.raises(ValueError, match=f"'x' on {api.label}, 'y' on {api.label} 1"):
        affine(here, there, 1, 1)


def test_two_devices_from_threads_without_a_context(second: tack.Device, api: Api) -> None:
    failures = []

    def work() -> None:
        try:
            for k in range(20):
                for device in (api.name, second):
                    x = tack.full(100, k, tack.i32, device=device)
                    with tack.device(device):
                        affine(x, x, 2, 1)
                    assert x[7] == 2 * k + 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_threads_context_is_left_as_it_was(second: tack.Device, dispatch: str, api: Api) -> None:
    own = tack.device(api.name)._backend
    x, y = tack.zeros(10, tack.i32), tack.zeros(10, tack.i32, device=second)
    for _ in range(3):
        affine(x, x, 1, 1)
    with own.queue.entered():  # type: ignore[attr-defined]
        before = api.current()
        affine(y, y, 1, 1)
        y.numpy()
        assert api.current() == before
    other = second._backend.queue.context  # type: ignore[attr-defined]
    with other.entered():
        affine(x, x, 1, 1)
        assert api.current() == other.address
    assert x.numpy().tolist() == [4] * 10


# --- foreign streams ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["int", "protocol", "torch", "cupy", "bindings"])
def test_foreign_streams(backend: Any, api: Api, form: str) -> None:
    with backend.queue.entered():
        handle = int(api.driver.check(api.driver.StreamCreate(1)))
    forms: dict[str, Any] = {
        "int": handle,
        "protocol": type("S", (), {"__cuda_stream__": lambda self: (0, handle)})(),
        "torch": type("S", (), {"cuda_stream": handle})(),
        "cupy": type("S", (), {"ptr": handle})(),
        "bindings": api.driver.stream_at(handle),
    }
    device = tack.device(api.name, stream=forms[form])
    assert device._backend.queue.address == handle  # type: ignore[attr-defined]
    x = tack.zeros(1000, tack.i32)
    affine(x, x, 1, 1)
    with device:
        y = tack.zeros(1000, tack.i32)
        for _ in range(5):
            affine(x, y, 1, 1)  # on the foreign stream, with an array of the other queue
            affine(y, x, 1, 1)
    affine(x, x, 1, 1)  # on the device's own stream again
    assert x.numpy().tolist() == [12] * 1000
    del y, device
    with backend.queue.entered():
        api.driver.check(api.driver.StreamDestroy(api.driver.stream_at(handle)))


@pytest.mark.parametrize("bad", ["s", 1.5, object(), [1]])
def test_what_is_no_stream(bad: Any, api: Api) -> None:
    with pytest.raises(TypeError, match=f"a {api.label} stream is its handle as an int"):
        tack.device(api.name, stream=bad)


@pytest.mark.parametrize("function", ["DeviceCanAccessPeer", "MemPoolSetAccess"])
def test_copies_between_devices_that_are_not_linked(emulated: Driver, api: Api, function: str) -> None:
    host = np.arange(1000, dtype=np.float32)
    here = tack.asarray(host)
    there = tack.empty_like(here, device=tack.device(f"{api.name}:1", stream=0))  # whose pool is new
    whole = api.function(function)
    emulated.fail(whole, 1)
    before = emulated.calls(whole)
    tack.copyto(there, here)
    assert emulated.calls(whole) > before
    np.testing.assert_array_equal(there.numpy(), host)
