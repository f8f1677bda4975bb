"""What CUDA and HIP have of their own: streams, pools, contexts. `tests/contract` has what all have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver
from steered import Busy

import tack

from .conftest import Api

ILLEGAL_ADDRESS = 700


@tack.kernel
def affine(x: Any, y: Any, a: Any, b: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i] * a + b


@tack.kernel
def double(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] * 2


def is_idle(backend: Any) -> bool:
    """Whether nothing is queued."""
    with backend.queue.entered():
        done: bool = backend.driver.is_done(backend.driver.StreamQuery(backend.queue.stream))
        return done


# --- order --------------------------------------------------------------------------------------


def test_what_launches_tell_does_not_wait_for_later_ones(backend: Any, busy: Busy) -> None:
    x = tack.full(3, 5, tack.i64)
    tell = backend.scratch(tack.i64, 3)
    double(tack.zeros(3, tack.i64))  # is compiled before the device is busy
    affine(x, tell, 2, 1)
    told = backend.telling(tell)
    tack.sync()
    with busy():
        double(x)
        assert told().tolist() == [11] * 3
        assert not is_idle(backend)
    assert x.numpy().tolist() == [10] * 3


def test_small_writes_do_not_wait(backend: Any, busy: Busy) -> None:
    x = tack.zeros(64, tack.i32)
    x[0] = 1
    tack.sync()
    with busy():
        for k in range(200):
            x[k % 64] = k
        assert not is_idle(backend)
    assert x.numpy().tolist() == [k + 64 * ((199 - k) // 64) for k in range(64)]


def test_copies_are_queued_and_may_overlap(backend: Any, busy: Busy) -> None:
    x = tack.arange(5000, dtype=tack.i32)
    y = tack.zeros(5000, tack.i32)
    affine(x, x, 1, 0)  # is compiled before the device is busy, which it is for a while only
    tack.sync()
    with busy():
        tack.copyto(y, x)
        affine(x, x, 0, -1)
        tack.copyto(y[1:], y[:-1])
        assert not is_idle(backend)
    assert y.numpy().tolist() == [0, *range(4999)]
    assert (x.numpy() == -1).all()


# --- frees --------------------------------------------------------------------------------------


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


def test_memory_that_the_pool_keeps_is_given_back_before_an_error(
    emulated: Driver, backend: Any, api: Api
) -> None:
    x = tack.zeros(1 << 20, tack.u8)
    backend._pool.trim(backend.queue)  # of what earlier tests left, so that the rest is other pools'
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


# --- errors -------------------------------------------------------------------------------------


def test_a_failure_has_the_drivers_name_and_text(emulated: Driver, api: Api) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)
    tack.sync()
    emulated.fail_run()
    affine(x, x, 1, 1)
    name = api.errors[ILLEGAL_ADDRESS]
    with pytest.raises(RuntimeError, match=f"^Kernel 'affine' failed on {api.label}: {name}: an illegal"):
        tack.sync()
    emulated.heal()


def test_several_kernels_may_have_failed(emulated: Driver, api: Api) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)
    double(x)
    tack.sync()
    with emulated.held():
        double(x)
        emulated.fail_run()
        affine(x, x, 1, 1)
    with pytest.raises(
        RuntimeError, match=f"^One of the kernels 'double', 'affine' failed.*{api.driver.blocking}"
    ):
        tack.sync()


# --- several devices ----------------------------------------------------------------------------


@pytest.fixture
def second(api: Api) -> tack.Device:
    if sum(status.device is not None and status.spec.startswith(api.name) for status in tack.devices()) < 2:
        pytest.skip("there is one device")
    return tack.device(f"{api.name}:1")


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
