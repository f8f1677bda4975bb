"""A device's memory from and for other libraries, by DLPack and by address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack
from tack.runtime import dlpack

from .conftest import Api


@tack.kernel
def add(x: Any, a: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] + a


class Producer:
    """An object of another library with DLPack, which notes what it is asked for."""

    def __init__(self, array: tack.Array) -> None:
        self.array, self.asked = array, {}

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked = asked
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


KINDS = {"cuda": 2, "hip": 10}  # of devices, in DLPack


def tensor(capsule: Any, versioned: bool) -> Any:
    name = b"dltensor_versioned" if versioned else b"dltensor"
    kind = dlpack._ManagedVersioned if versioned else dlpack._Managed
    return kind.from_address(dlpack._get_pointer(capsule, name))


# --- export -------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("shape", [(), (7,), (3, 4, 5)])
def test_exported_capsules(versioned: bool, shape: tuple[int, ...], api: Api) -> None:
    x = tack.full(shape, 2.5, tack.f64)
    capsule = x.__dlpack__(max_version=(1, 0) if versioned else None)
    found = tensor(capsule, versioned)
    assert (found.tensor.device.type, found.tensor.device.id) == x.__dlpack_device__() == (KINDS[api.name], 0)
    assert found.tensor.data + found.tensor.byte_offset == x.address
    assert tuple(found.tensor.shape[: found.tensor.ndim]) == shape
    assert (found.tensor.dtype.code, found.tensor.dtype.bits, found.tensor.dtype.lanes) == (2, 64, 1)
    back = tack.from_dlpack(capsule)
    assert back.address == x.address
    assert back.device == x.device
    assert np.array_equal(back.numpy(), x.numpy())


def test_exported_vectors_have_their_components_as_the_last_axis() -> None:
    x = tack.zeros(5, tack.vec3)
    assert tack.from_dlpack(x.__dlpack__()).shape == (5, 3)


def test_an_export_keeps_the_memory(emulated: Driver) -> None:
    x = tack.full(1000, 3, tack.i32)
    alive = emulated.live("memory")
    capsule = x.__dlpack__()
    del x
    assert emulated.live("memory") == alive
    back = tack.from_dlpack(capsule)
    del capsule
    assert (back.numpy() == 3).all()
    del back
    assert emulated.live("memory") == alive - 1


def test_read_only_arrays() -> None:
    x = tack.zeros(4)
    y = tack.array_from_ptr(x.address, tack.f32, 4, owner=x)
    with pytest.raises(BufferError, match="read-only"):
        y.__dlpack__()
    assert tensor(y.__dlpack__(max_version=(1, 0)), True).flags & 1
    assert not tack.from_dlpack(Producer(y)).writable


def test_copies(api: Api) -> None:
    x = tack.ones(4)
    copied = tack.from_dlpack(x.__dlpack__(copy=True))
    add(x, 1.0)
    assert copied.numpy().tolist() == [1.0] * 4
    host = x.__dlpack__(dl_device=(1, 0))
    assert tack.from_dlpack(host).device == tack.device("cpu")
    with pytest.raises(BufferError, match=r"needs arr\.to"):
        x.__dlpack__(dl_device=(KINDS["cuda" if api.name == "hip" else "hip"], 0))
    with pytest.raises(BufferError, match=r"needs arr\.to"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises((RuntimeError, ValueError, BufferError, TypeError)):
        np.asarray(x, copy=False)
    assert np.asarray(x).tolist() == [2.0] * 4


@pytest.mark.parametrize("stream", [None, True, "s", 1.5, -2])
def test_streams_that_are_none(stream: Any, api: Api) -> None:
    if stream is None:  # stands for what one API allows, and the other does not
        stream = 0 if api.name == "cuda" else 1
    with pytest.raises(BufferError, match=f"is no {api.label} stream"):
        tack.zeros(4).__dlpack__(stream=stream)


def test_an_export_waits_on_the_consumers_stream(emulated: Driver, backend: Any, api: Api) -> None:
    driver = api.driver
    with backend.queue.entered():
        stream = driver.check(driver.StreamCreate(1))
    x, out = tack.zeros(100_000, tack.i32), tack.zeros(100_000, tack.i32)
    tack.sync()
    default = 1 if api.name == "cuda" else 0
    for consumer in (int(stream), None, *((1, 2) if api.name == "cuda" else (0,))):
        x.fill(0)
        fresh = tack.zeros(100_000, tack.i32)  # not known to others yet, so that its launches are queued
        emulated.pace(delay=2000)
        for _ in range(5):
            add(fresh, 1)
        fresh.__dlpack__(stream=consumer)
        handle = driver.stream_at(default if consumer is None else consumer)
        with backend.queue.entered():
            driver.check(driver.MemcpyDtoDAsync(out.address, fresh.address, 400_000, handle))
            driver.check(driver.StreamSynchronize(handle))
        emulated.pace()
        assert (out.numpy() == 5).all()
    before = emulated.calls(api.function("StreamWaitEvent"))
    x.__dlpack__(stream=-1)
    x.__dlpack__(stream=backend.queue.address)
    assert emulated.calls(api.function("StreamWaitEvent")) == before


# --- the default stream, where other libraries queue ---------------------------------------------


@pytest.fixture
def theirs(emulated: Driver, backend: Any, api: Api) -> Callable[[int, int], Callable[[], None]]:
    """Queues fills with 1, 2, … and in the end a value on the default stream, which takes 40 ms.

    It gives what waits for that.
    """

    def fill(address: int, value: int) -> Callable[[], None]:
        tack.sync()
        emulated.pace(delay=2000)
        stream = api.driver.stream_at(api.driver.default_stream)
        with backend.queue.entered():
            for number in (*range(1, 20), value):
                api.driver.check(api.driver.MemsetD32Async(address, number, 1000, stream))

        def wait() -> None:
            with backend.queue.entered():
                api.driver.check(api.driver.StreamSynchronize(stream))

        return wait

    return fill


def _shared(wrapped: bool) -> tuple[tack.Array, tack.Array]:
    """An array that others have been given, and one over memory of others."""
    own = tack.zeros(1000, tack.i32)
    if not wrapped:
        own.__dlpack__()
        return own, own
    return tack.array_from_ptr(own.address, own.dtype, own.shape, device=own.device, writable=True), own


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("use", ["launch", "read", "write", "fill", "copy to", "copy from", "graph"])
def test_what_others_queue_comes_first(theirs: Any, use: str, wrapped: bool) -> None:
    x, kept = _shared(wrapped)
    y = tack.zeros(1000, tack.i32)
    if use == "graph":
        with tack.capture() as graph:
            add(x, 10)
    wait = theirs(x.address, 77)
    if use == "launch":
        add(x, 10)
    elif use == "write":
        tack.copyto(x, np.arange(1000, dtype=np.int32))
    elif use == "fill":
        x.fill(5)
    elif use == "copy to":
        tack.copyto(x, y)
    elif use == "copy from":
        tack.copyto(y, x)
    elif use == "graph":
        graph.launch()
    if use != "read":
        wait()  # what comes too late would be seen
    expected = {"write": list(range(1000)), "fill": [5] * 1000, "copy to": [0] * 1000}
    expected |= dict.fromkeys(("launch", "graph"), [87] * 1000)
    assert x.numpy().tolist() == expected.get(use, [77] * 1000)
    assert y.numpy().tolist() == ([77] * 1000 if use == "copy from" else [0] * 1000)
    del kept


def test_memory_that_others_use_is_freed_after_that(theirs: Any) -> None:
    x, _ = _shared(False)
    wait = theirs(x.address, 77)
    del x, _
    fresh = tack.empty(1000, tack.i32)  # the same memory
    fresh.fill(3)
    wait()
    assert fresh.numpy().tolist() == [3] * 1000


def test_arrays_that_nobody_else_has_wait_for_nobody(emulated: Driver, theirs: Any, api: Api) -> None:
    x, y = tack.zeros(1000, tack.i32), tack.zeros(1000, tack.i32)
    add(x, 1)
    theirs(y.address, 77)
    before = emulated.calls(api.function("StreamWaitEvent"))
    add(x, 1)
    tack.copyto(x, tack.full(1000, 5, tack.i32))
    assert emulated.calls(api.function("StreamWaitEvent")) == before


def test_a_stream_of_theirs_keeps_the_order_that_it_has(emulated: Driver, backend: Any, api: Api) -> None:
    with backend.queue.entered():
        handle = int(api.driver.check(api.driver.StreamCreate(1)))
    with tack.device(api.name, stream=handle):
        x, _ = _shared(False)
        before = emulated.calls(api.function("StreamWaitEvent"))
        add(x, 1)
        assert emulated.calls(api.function("StreamWaitEvent")) == before


# --- import -------------------------------------------------------------------------------------


def test_producers_are_told_the_stream(backend: Any) -> None:
    x = tack.zeros(4, tack.i32)
    producer = Producer(x)
    y = tack.from_dlpack(producer)
    assert producer.asked["stream"] == backend.queue.address
    assert y.address == x.address
    add(producer, 2)
    assert x.numpy().tolist() == [2] * 4


def test_arrays_of_another_device(api: Api) -> None:
    if sum(status.device is not None and status.spec.startswith(api.name) for status in tack.devices()) < 2:
        pytest.skip("there is one device")
    x = tack.zeros(4, tack.i32, device=f"{api.name}:1")
    assert x.__dlpack_device__() == (KINDS[api.name], 1)
    assert tack.from_dlpack(Producer(x)).device == tack.device(f"{api.name}:1")
    add(Producer(x), 3)  # runs there
    assert x.numpy().tolist() == [3] * 4
    assert tack.from_dlpack(Producer(x), device=api.name).numpy().tolist() == [3] * 4


def test_cpu_arrays_have_no_stream() -> None:
    x = tack.zeros(4, device="cpu")
    with pytest.raises(BufferError, match="stream"):
        x.__dlpack__(stream=1)


# --- pointers -----------------------------------------------------------------------------------


def test_memory_spaces(backend: Any, api: Api) -> None:
    x = tack.zeros(100, tack.u8)
    host = np.zeros(100, np.uint8)
    with backend.queue.entered():
        pinned = int(api.driver.check(api.driver.MemHostAlloc(4096, 0)))
    assert tack.memory_space(x) == tack.memory_space(x.address + 99) == api.name
    assert tack.memory_space(host) == "cpu"
    assert tack.memory_space(pinned) == "pinned"
    with pytest.raises(
        ValueError, match=f"the pointer is in cpu memory; {api.label} needs one in: {api.name}"
    ):
        tack.array_from_ptr(host.ctypes.data, tack.u8, 100)
    y = tack.array_from_ptr(pinned, tack.i32, 10, writable=True)
    y.fill(4)
    add(y, 1)
    assert list((ctypes.c_int32 * 10).from_address(pinned)) == [5] * 10
    with backend.queue.entered():
        api.driver.check(api.driver.MemFreeHost(pinned))


def test_pointers(api: Api) -> None:
    x = tack.arange(10, dtype=tack.i32)
    bindings = api.driver.module
    own = bindings.CUdeviceptr(x.address) if api.name == "cuda" else bindings.hipDeviceptr_t(x.address)
    for pointer in (x.address, np.uint64(x.address), own):
        y = tack.array_from_ptr(pointer, tack.i32, 10, owner=x)
        assert y.numpy().tolist() == list(range(10))
        assert not y.writable
    for bad in (1.5j, None, object()):
        with pytest.raises(TypeError, match="address"):
            tack.array_from_ptr(bad, tack.i32, 10)
