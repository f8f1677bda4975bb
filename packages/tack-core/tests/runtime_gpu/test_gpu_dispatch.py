"""Warm launches, which C queues through the driver's function pointers, do what Python's do."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack
from tack.runtime import native

from .conftest import Api

pytestmark = pytest.mark.skipif(native.module is None, reason="the native dispatcher is not built")


@tack.kernel
def line(o: Any, a: Any) -> None:
    for i in range(1, o.shape[0], 2):
        o[i] = o[i] + i * a


@tack.kernel
def store(x: Any, o: Any) -> None:
    for i in range(o.shape[0]):
        o[i] = x[i]


@tack.kernel
def plane(o: Any, a: Any) -> None:
    for i, j in tack.ndindex(o.shape[0], o.shape[1]):
        o[i, j] = o[i, j] + (i * 1000 + j) * a


@tack.kernel
def space(o: Any, a: Any) -> None:
    for i, j, k in tack.ndindex(o.shape[0], o.shape[1], o.shape[2]):
        o[i, j, k] = o[i, j, k] + (i * 10000 + j * 100 + k) * a


@tack.kernel
def groups(o: Any, n: Any) -> None:
    for i in range(n):
        tack.barrier()
        o[i % 4] = i


@tack.kernel
def total(o: Any) -> tack.i64:
    for _i in range(1):
        pass
    return o[0]


def hits(kernel: Any) -> int:
    table = tack.default_device()._backend.cache[kernel].table
    return 0 if table is None else table.counts()["hits"]


def resolved(kernel: Any, *args: Any) -> bool:
    assert native.module is not None
    return native.module.resolve(kernel, args) is not None


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        *((line, (n,)) for n in (1, 2, 127, 128, 129, 511, 513, 4096, 100_003)),
        *((plane, shape) for shape in ((1, 1), (1, 300), (300, 1), (7, 129), (64, 512), (65, 513))),
        *((space, shape) for shape in ((1, 1, 1), (3, 5, 7), (1, 1, 300), (33, 9, 65), (130, 2, 2))),
    ],
    ids=str,
)
def test_ranges(kernel: Any, shape: tuple[int, ...]) -> None:
    o = tack.zeros(shape, tack.i64)
    for a in range(1, 7):
        kernel(o, a)
    assert hits(kernel) > 0
    assert resolved(kernel, o, 1)
    at = np.indices(shape)
    expected = {1: at[0], 2: at[0] * 1000 + at[-1], 3: at[0] * 10000 + at[len(shape) // 2] * 100 + at[-1]}
    values = expected[len(shape)] * 21
    if kernel is line:
        values[::2] = 0
    np.testing.assert_array_equal(o.numpy(), values)


@tack.kernel
def put(o: Any, a: Any) -> None:
    for i in range(o.shape[0]):
        o[i] = a


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"])
def test_arguments_of_every_kind(name: str) -> None:
    o = tack.zeros(5, getattr(tack, name))
    values: list[Any] = [0, 1, 100, True, np.int16(7), np.uint8(200) if name[0] != "i" else 50, 100]
    values += [2**31, -1, -(2**40)] if name in ("i64", "f64") else []
    values += [2**63 + 2**40] if name in ("u64", "f64") else []
    values += [2.5, -1e30, np.float32(0.5)] if name[0] == "f" else []
    for value in values:
        for _ in range(4):
            put(o, value)
        assert o.numpy().tolist() == [o.dtype.numpy.type(value).item()] * 5, value
        assert resolved(put, o, value)
    put(tack.zeros(0, getattr(tack, name)), 3)


def test_calls_that_are_left_to_python() -> None:
    o = tack.full(10, 5, tack.i64)
    for _ in range(4):
        assert total(o) == 5
    assert not resolved(total, o)  # the host waits for a result
    for _ in range(4):
        line(o, 1)
    assert resolved(line, o, 1)
    foreign = tack.array_from_ptr(o.address, tack.i64, 10, writable=True, owner=o)
    assert not resolved(line, foreign, 1)
    read_only = tack.array_from_ptr(o.address, tack.i64, 10, owner=o)
    with pytest.raises(ValueError, match="read-only"):
        line(read_only, 1)
    o.__dlpack__()
    assert not resolved(line, o, 1)


def test_the_last_call_again_once_others_have_the_memory() -> None:
    x, y = tack.ones(10), tack.zeros(10)
    for _ in range(5):
        store(x, y)
    before = hits(store)
    store(x, y)
    assert hits(store) == before + 1
    y.__dlpack__()
    store(x, y)
    assert hits(store) == before + 1
    assert y.numpy().tolist() == [1] * 10


def test_a_launch_has_a_limit_where_the_code_cannot_stride(api: Api) -> None:
    o = tack.zeros(4, tack.i64)
    for _ in range(4):
        groups(o, 256)
    assert hits(groups) > 0
    # Of blocks, or of threads along an axis.
    most = (2**31 - 1) * 256 if api.name == "cuda" else (2**32 - 1) // 256 * 256
    for _ in range(2):
        with pytest.raises(
            ValueError, match=f"{most + 256} iterations; a launch on {api.label} has at most {most}"
        ):
            groups(o, most + 256)
        with pytest.raises(ValueError, match="a multiple of 256"):
            groups(o, 255)
    groups(o, 256)


def test_threads_that_never_saw_the_driver() -> None:
    o = tack.zeros(100, tack.i64)
    for _ in range(4):
        line(o, 1)
    before = hits(line)
    threads = [threading.Thread(target=lambda: [line(o, 1) for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hits(line) == before + 100
    assert o[99] == 99 * 104


def test_other_threads_run_while_a_launch_waits_for_room(emulated: Driver) -> None:
    """The driver makes launches wait once its queue is full; with the GIL that would stop all threads."""
    o = tack.zeros(100, tack.i64)
    for _ in range(4):
        line(o, 1)
    tack.sync()
    before = hits(line)
    with emulated.held():
        thread = threading.Timer(0.3, emulated.release)
        thread.start()
        for _ in range(1100):
            line(o, 1)
    thread.join()
    assert hits(line) == before + 1100
    assert o[99] == 99 * 1104


def test_other_threads_run_while_a_launch_on_a_stream_of_others_waits(
    emulated: Driver, backend: Any, api: Api
) -> None:
    with backend.queue.entered():
        handle = int(api.driver.check(api.driver.StreamCreate(1)))
    with tack.device(api.name, stream=handle):
        o, spare = tack.zeros(100, tack.i64), tack.zeros(1000, tack.i32)
        for _ in range(4):
            line(o, 1)
        tack.sync()
        with emulated.held():
            thread = threading.Timer(0.3, emulated.release)
            with backend.queue.entered():
                for _ in range(1100):  # theirs
                    api.driver.check(
                        api.driver.MemsetD32Async(spare.address, 1, 1000, api.driver.stream_at(handle))
                    )
            thread.start()
            line(o, 1)
        thread.join()
        assert o[99] == 99 * 5


def test_launches_that_the_device_keeps_up_with_always_have_room(
    emulated: Driver, backend: Any, api: Api
) -> None:
    """The queue is asked now and then, or every launch would give the GIL away from the 256th on."""
    o = tack.zeros(100, tack.i64)
    for _ in range(4):
        line(o, 1)
    tack.sync()
    queue = backend.queue
    emulated.pace(synchronous=True)
    before, asked = queue.launches.value, emulated.calls(api.function("StreamQuery"))
    for _ in range(1000):
        line(o, 1)
    assert queue.launches.value == before + 1000
    assert queue.launches.value - queue.waited.value <= 256 + 64
    assert 1 <= emulated.calls(api.function("StreamQuery")) - asked <= 1000 // 256 + 1


def test_kernels_that_go_while_their_launches_are_queued(emulated: Driver) -> None:
    from conformance.helpers import build

    o = tack.zeros(100, tack.i64)
    with emulated.held():
        for _ in range(3):
            kernel = build(
                "@tack.kernel\ndef up(x):\n    for i in range(x.shape[0]):\n        x[i] += 1\n", "up"
            )
            for _ in range(5):
                kernel(o)
            assert resolved(kernel, o)
            del kernel
    assert o.numpy().tolist() == [15] * 100
