"""Queued work: its order, what the host waits for, frees and errors in flight, and many threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
from conformance.helpers import build
from emulated.level_zero import Loader

import tack

from .conftest import Busy

DEVICE_LOST, INVALID_ARGUMENT, OUT_OF_DEVICE_MEMORY = 0x70000001, 0x78000004, 0x70000003


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
    done: bool = backend.completion()()
    return done


# --- order --------------------------------------------------------------------------------------


def test_launches_run_in_program_order() -> None:
    x, y = tack.arange(1000, dtype=tack.i64), tack.empty(1000, tack.i64)
    expected = list(range(1000))
    for k in range(100):
        affine(x, y, 3, k)
        affine(y, x, 1, -1)
        expected = [(v * 3 + k - 1 + 2**63) % 2**64 - 2**63 for v in expected]
    assert x.numpy().tolist() == expected


def test_a_barrier_follows_each_command(emulated: Loader) -> None:
    x, y = tack.arange(1000, dtype=tack.i32), tack.zeros(1000, tack.i32)
    affine(x, y, 1, 1)
    tack.sync()
    before = {name: emulated.calls(f"zeCommandListAppend{name}") for name in COMMANDS}
    affine(x, y, 1, 1)
    tack.copyto(y, x)
    y.fill(3)
    x[3] = 4
    made = {name: emulated.calls(f"zeCommandListAppend{name}") - before[name] for name in COMMANDS}
    assert made.pop("Barrier") == sum(made.values()) == 4


COMMANDS = ("Barrier", "LaunchKernel", "MemoryCopy", "MemoryFill")


def test_a_launch_returns_before_it_is_done(backend: Any, busy: Busy) -> None:
    x = tack.zeros(16, tack.i32)
    affine(x, x, 1, 1)
    tack.sync()
    with busy():
        affine(x, x, 1, 1)
        assert not is_idle(backend)
    tack.sync()
    assert is_idle(backend)
    assert x.numpy().tolist() == [2] * 16


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


def test_scalars_are_captured(busy: Busy) -> None:
    """Later calls set other arguments while earlier launches are waiting."""
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
        assert not is_idle(backend)
    assert x.numpy().tolist() == [k + 64 * ((199 - k) // 64) for k in range(64)]


def test_reads_wait(busy: Busy, later: Any) -> None:
    x = tack.zeros(1000, tack.i32)
    big = tack.zeros(5_000_003, tack.i32)
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
@pytest.mark.parametrize("size", [1, 5, 300_001])
def test_fills(busy: Busy, name: str, value: Any, size: int) -> None:
    dtype = getattr(tack, name)
    x = tack.full(size + 2, 3, dtype)
    with busy():
        x[1 : size + 1].fill(value)
    expected = np.full(size + 2, 3, dtype.numpy)
    expected[1:-1] = np.asarray(value).astype(dtype.numpy)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("kind", [tack.vec3, tack.vec4, tack.mat3, tack.dvec4], ids=str)
@pytest.mark.parametrize("size", [1, 6000, 100_000])
def test_fills_of_vectors(kind: Any, size: int) -> None:
    x = tack.zeros(size, kind)
    element = np.arange(x.numpy()[0].size, dtype=x.numpy().dtype).reshape(x.numpy().shape[1:])
    x.fill(element)
    np.testing.assert_array_equal(x.numpy(), np.broadcast_to(element, (size, *element.shape)))


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


def test_arrays_without_elements() -> None:
    x, y = tack.empty(0, tack.i32), tack.zeros(0, tack.i32)
    affine(x, y, 1, 1)
    tack.copyto(x, y)
    assert x.numpy().size == 0

    @tack.kernel
    def reads_one(empty: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            out[i] = empty.shape[0] if empty.shape[0] == 0 else empty[i]

    out = tack.ones(5, tack.i64)
    reads_one(x, out)
    assert out.numpy().tolist() == [0] * 5


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
            other = tack.full(10_000, -5, tack.i32)
            affine(other, other, 1, 1)
    for k, y in enumerate(results):
        assert (y.numpy() == 2 * k + 1).all()


def test_what_is_dropped_is_freed(emulated: Loader) -> None:
    x = tack.zeros(1000)
    affine(x, x, 1.0, 1.0)
    tack.sync()
    before = emulated.alive()
    for _ in range(100):
        y = tack.zeros(1000)
        affine(y, y, 1.0, 1.0)
    del y
    for _ in range(1000):  # without a wait: what is dropped looks how far the device is
        tack.empty(1000)
        if emulated.alive()["device"] < before["device"] + 10:
            break
        time.sleep(0.01)
    else:
        pytest.fail("nothing was freed")
    tack.sync()
    gc.collect()
    after = emulated.alive()
    assert after["device"] == before["device"]
    assert after["events"] <= before["events"] + 4


def test_kernels_dropped_in_flight(busy: Busy) -> None:
    x = tack.zeros(100, tack.i32)
    source = "@tack.kernel\ndef one_more(x):\n    for i in range(x.shape[0]):\n        x[i] = x[i] + 1\n"
    with busy():
        for _ in range(3):
            kernel = build(source, "one_more")
            kernel(x)
            del kernel
    assert (x.numpy() == 3).all()


def test_out_of_memory_leaves_the_device_usable(backend: Any) -> None:
    x = tack.ones(100)
    with pytest.raises(MemoryError, match=r"cannot allocate 16\.00 TiB on Level Zero: .* are free"):
        tack.empty(2**44, tack.u8)
    affine(x, x, 2.0, 1.0)
    assert (x.numpy() == 3).all()


def test_memory_in_flight_is_waited_for_before_an_error(emulated: Loader, later: Any) -> None:
    tack.sync()
    emulated.limit(200 << 20)
    x = tack.zeros(100 << 20, tack.u8)
    with emulated.held():
        x.fill(1)
        del x
        later()
        y = tack.ones(150 << 20, tack.u8)
    assert y[-1] == 1
    with pytest.raises(
        MemoryError, match=r"cannot allocate 100\.00 MiB on Level Zero: .* GiB of 4.00 GiB are free"
    ):
        tack.empty(100 << 20, tack.u8)
    assert y[5] == 1


def test_allocations_past_the_usual_limit(emulated: Loader) -> None:
    emulated.limit(largest=1 << 20)
    device = tack.device("level_zero:1", external_context=_context("level_zero:1"))
    x = tack.zeros(2 << 20, tack.u8, device=device)
    assert x[-1] == 0


def _context(spec: str) -> int:
    handle: int = tack.device(spec)._backend.queue.context.handle  # type: ignore[attr-defined]
    return handle


# --- memory that others use ---------------------------------------------------------------------


def test_launches_on_foreign_memory_are_done_when_they_return(backend: Any, emulated: Loader) -> None:
    x = tack.zeros(100, tack.i32)
    y = tack.array_from_ptr(x.address, tack.i32, 100, writable=True, owner=x)
    assert tack.memory_space(x) == "level_zero"
    for array in (x, y):
        affine(array, array, 1, 0)
    emulated.pace(delay=5000)
    affine(x, x, 1, 1)
    assert not is_idle(backend)
    for change in (
        lambda: affine(y, y, 1, 1),
        lambda: y.fill(3),
        lambda: tack.copyto(y, np.arange(100, dtype=np.int32)),
    ):
        change()
        emulated.pace()
        number = backend.queue.number
        assert backend.queue._done == number
        emulated.pace(delay=5000)


# --- errors -------------------------------------------------------------------------------------


def test_a_failure_surfaces_at_the_next_wait(emulated: Loader) -> None:
    x, y = tack.zeros(10), tack.zeros(10)
    affine(x, y, 1.0, 1.0)
    tack.sync()
    for wait in (tack.sync, x.numpy, lambda: x[0], lambda: asyncio.run(tack.wait()), lambda: last(x)):
        with emulated.held():
            emulated.fail("run", DEVICE_LOST)
            affine(x, y, 1.0, 1.0)
            threading.Timer(0.02, emulated.release).start()
            with pytest.raises(RuntimeError) as caught:
                wait()
        text = str(caught.value)
        if wait.__name__ != "<lambda>":
            assert text.startswith("Kernel 'affine' failed on Level Zero: ZE_RESULT_ERROR_DEVICE_LOST")
        assert "'affine'" in text
        for again in (tack.sync, x.numpy, lambda: affine(x, y, 1.0, 1.0), lambda: tack.zeros(3)):
            with pytest.raises(RuntimeError, match=r"'affine'.* cannot be used in this process any more"):
                again()
        emulated.heal()
    affine(x, y, 1.0, 1.0)
    tack.sync()


def test_a_failure_names_the_kernels_since_the_last_wait(emulated: Loader) -> None:
    x = tack.zeros(10, tack.i32)
    last(x)  # which waits
    with emulated.held():
        affine(x, x, 1, 1)
        count(x, 10)
        emulated.fail("run", DEVICE_LOST)
        affine(x, x, 1, 1)
    with pytest.raises(RuntimeError, match=r"One of the kernels 'count', 'affine' failed.*debug mode tells"):
        tack.sync()


@pytest.mark.parametrize("function", ["zeCommandListAppendLaunchKernel", "zeKernelSetArgumentValue"])
def test_a_launch_that_the_driver_refuses(emulated: Loader, function: str) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)
    emulated.fail(function, INVALID_ARGUMENT)
    with pytest.raises(
        RuntimeError, match="Kernel 'affine' failed on Level Zero: ZE_RESULT_ERROR_INVALID_ARG"
    ):
        affine(x, x, 1, 1)
    affine(x, x, 1, 1)
    assert x.numpy().tolist() == [2] * 10


def test_a_barrier_that_fails_is_made_up_for(emulated: Loader) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)
    tack.sync()
    emulated.fail("zeCommandListAppendBarrier", OUT_OF_DEVICE_MEMORY)
    with pytest.raises(RuntimeError, match="OUT_OF_DEVICE_MEMORY in zeCommandListAppendBarrier"):
        affine(x, x, 3, 0)
    affine(x, x, 1, 2)
    assert x.numpy().tolist() == [5] * 10


# --- waiting, threads ---------------------------------------------------------------------------


def test_await_does_not_block_the_event_loop(emulated: Loader) -> None:
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
            await tack.wait("level_zero")
            ticking.cancel()
        return ticks

    assert asyncio.run(main()) >= 20


def test_many_threads() -> None:
    total = tack.zeros(1, tack.i32)
    failures = []

    def work(number: int) -> None:
        try:
            for k in range(20):
                x = tack.full(100 + number, k, tack.i32)
                affine(x, x, 2, number)
                assert (x.numpy() == 2 * k + number).all()
                count(total, 5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert total[0] == 8 * 20 * 5


def test_profiles_take_the_devices_time(emulated: Loader) -> None:
    x = tack.ones(100)
    affine(x, x, 1.0, 0.0)
    emulated.pace(delay=2000)
    with tack.profile() as profile:
        for _ in range(3):
            affine(x, x, 1.0, 0.0)
        started = time.perf_counter()
        (entry,) = profile.kernels
    assert (entry.launches, entry.device) == (3, "Level Zero")
    assert 0 <= entry.shortest <= entry.longest < 2
    assert time.perf_counter() - started < 30
