"""Memory: allocations, memory of others, fills, copies, and what other libraries and processes get of it."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest
from steered import Busy

import tack
from tack.runtime.dlpack import DEVICE_TYPES

from .kernels import affine

# --- allocations --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (7,), (3, 4, 5), (100_003,)], ids=str)
def test_what_is_written_is_read(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).integers(0, 1 << 30, shape, np.int32)
    x = tack.empty(shape, tack.i32)
    tack.copyto(x, values)
    np.testing.assert_array_equal(x.numpy(), values)
    assert (x.shape, x.nbytes) == (shape, values.nbytes)


def test_allocations_do_not_overlap(backend: Any) -> None:
    arrays = [tack.full(n, n, tack.u8) for n in (1, 2, 3, 5, 8, 1000, 1001, 1 << 20)]
    spans = sorted(array.span for array in arrays)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for array in arrays:
        assert (array.numpy() == array.size % 256).all()
        buffer = array._buffer
        assert (buffer.owned, buffer.nbytes, buffer.span) == (True, array.nbytes, array.span)
        assert array.address % 16 == 0


def test_buffers_read_and_write_bytes() -> None:
    values = np.arange(40, dtype=np.int16).reshape(5, 8)
    buffer = tack.empty(100, tack.u8)._buffer
    buffer.write(20, values)
    out = np.zeros((2, 8), np.int16)
    buffer.read(20 + 16, out)
    np.testing.assert_array_equal(out, values[1:3])
    buffer.copy(0, buffer, 20, 80)  # as if through a temporary
    moved = np.zeros(40, np.int16)
    buffer.read(0, moved)
    np.testing.assert_array_equal(moved, values.ravel())
    view = buffer.host_view(0, np.dtype(np.int16), (40,), False)
    if view is not None:
        tack.sync()
        np.testing.assert_array_equal(view, values.ravel())
        assert not view.flags.writeable


def test_out_of_memory_leaves_the_device_usable(backend: Any) -> None:
    x = tack.ones(100, tack.i32)
    message = rf"cannot allocate 16\.00 TiB on (the )?{backend.label}: .* (is|are) free"
    with pytest.raises(MemoryError, match=message):
        tack.empty(2**44, tack.u8)
    affine(x, x, 2, 1)
    assert (x.numpy() == 3).all()


# --- memory of others ---------------------------------------------------------------------------


def test_pointers(backend: Any) -> None:
    x = tack.arange(10, dtype=tack.i32)
    y = tack.array_from_ptr(backend.pointer(x[2:]), tack.i32, (2, 4), writable=True, owner=x)
    assert y.numpy().tolist() == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert y.address == x[2:].address
    assert not y._buffer.owned
    y[1, 3] = -9
    affine(y.ravel(), y.ravel(), 10, 1)
    assert x.numpy().tolist() == [0, 1, *range(21, 91, 10), -89]
    assert tack.array_from_ptr(backend.pointer(x), tack.u8, 0, owner=x).numpy().size == 0
    spaces = backend.device_memory_spaces
    assert tack.memory_space(x) in (spaces or ("cpu",))


def test_memory_of_others_is_kept_as_long_as_it_is_used(backend: Any) -> None:
    class Owner:
        pass

    x, owner = tack.ones(10, tack.i32), Owner()
    gone = weakref.ref(owner)
    y = tack.array_from_ptr(backend.pointer(x), tack.i32, 10, writable=True, owner=owner)
    view = y[5:]
    affine(view, view, 1, 1)
    del y, owner
    gc.collect()
    assert gone() is not None
    assert view.numpy().tolist() == [2] * 5
    del view
    tack.sync()
    gc.collect()
    assert gone() is None


def test_read_only_memory(backend: Any) -> None:
    x = tack.ones(4, tack.i32)
    y = tack.array_from_ptr(backend.pointer(x), tack.i32, 4, owner=x)
    for write in (lambda: y.fill(2), lambda: affine(x, y, 1, 1), lambda: tack.copyto(y, x)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    assert y.numpy().tolist() == [1] * 4


@pytest.mark.parametrize("bad", [0, None, -8, 1.5, "pointer", [1]], ids=str)
def test_what_is_no_pointer(backend: Any, bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        backend.wrap_ptr(bad, tack.f32, (4,))
    assert "null" in str(caught.value) or "address" in str(caught.value) or "pointer" in str(caught.value)


def test_alignment(backend: Any) -> None:
    data = np.arange(101, dtype=np.uint8)
    x = tack.asarray(data, copy=True)
    pointer = backend.pointer(x[1:])
    if backend.requires_alignment:
        with pytest.raises(
            ValueError, match=f"not a multiple of 4, the size of i32, as {backend.label} needs"
        ):
            tack.array_from_ptr(pointer, tack.i32, 25, owner=x)
        return
    y = tack.array_from_ptr(pointer, tack.i32, 25, writable=True, owner=x)
    affine(y, y, 1, 1)
    expected = np.frombuffer(data[1:].tobytes(), np.int32) + 1
    assert y.numpy().tolist() == expected.tolist()


def test_host_memory(backend: Any) -> None:
    values = np.arange(8, dtype=np.int32)
    x = tack.ones(8, tack.i32)
    if backend.wraps_host_memory:
        affine(x, values, 2, 0)
        assert values.tolist() == [2] * 8
        return
    with pytest.raises(ValueError, match=f"'x' on {backend.label}, 'y' on CPU"):
        affine(x, values, 2, 0)
    if backend.device_memory_spaces:
        with pytest.raises(ValueError, match=f"the pointer is in cpu memory; {backend.label} needs one in"):
            tack.array_from_ptr(values.ctypes.data, tack.i32, 8)


# --- fills and copies ---------------------------------------------------------------------------

FILLS = [
    *((name, value) for name in ("i8", "u16", "i32", "u64", "f32", "f64") for value in (0, 1, 77)),
    ("i64", -(2**40) - 3),
    ("f64", 0.1),
    ("f32", float("nan")),
    ("i8", -1),
]


@pytest.mark.parametrize(("name", "value"), FILLS, ids=str)
def test_fills(backend: Any, busy: Busy, later: Any, name: str, value: Any) -> None:
    dtype = getattr(tack, name)
    if dtype not in backend.supported_dtypes:
        with pytest.raises(TypeError, match=f"has no {name}"):
            tack.full(3, value, dtype)
        return
    for size in (1, 5, 8192, 300_001):
        x = tack.full(size + 2, 3, dtype)
        with busy():
            later()  # parts at odd places may be filled by the host
            x[1 : size + 1].fill(value)
        expected = np.full(size + 2, 3, dtype.numpy)
        expected[1:-1] = np.asarray(value).astype(dtype.numpy)
        np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("kind", [tack.vec3, tack.vec4, tack.mat3, tack.ivec2], ids=str)
def test_fills_of_vectors(kind: Any) -> None:
    for size in (1, 6000, 100_000):
        x = tack.zeros(size, kind)
        shape = x.host_shape[1:]
        element = np.arange(np.prod(shape), dtype=x.scalar.numpy).reshape(shape)
        x.fill(element)
        np.testing.assert_array_equal(x.numpy(), np.broadcast_to(element, (size, *shape)))


def test_copies_that_overlap_are_as_if_through_a_temporary() -> None:
    for size in (10, 300_001):
        x = tack.arange(size, dtype=tack.i32)
        tack.copyto(x[1:], x[:-1])
        assert np.array_equal(x.numpy(), [0, *range(size - 1)])
        tack.copyto(x[:-3], x[3:])
        assert np.array_equal(x.numpy()[:-3], range(2, size - 1))


def test_copies_to_and_from_the_host() -> None:
    values = np.arange(1000, dtype=np.int32)
    x = tack.asarray(values, copy=True)
    values[:] = 0
    assert x.to("cpu").numpy().tolist() == list(range(1000))
    assert x.numpy(10, 13).tolist() == [10, 11, 12]
    x[-1], x[0] = 5, -5
    assert (x[999], x[-1000]) == (5, -5)
    assert x.astype(tack.f32).numpy()[0] == -5.0
    out = np.zeros(1000, np.int32)
    tack.copyto(out, x)
    assert out[1:-1].tolist() == list(range(1, 999))


# --- other libraries and processes --------------------------------------------------------------


class Producer:
    """An object of another library with DLPack, on the same device."""

    def __init__(self, array: tack.Array) -> None:
        self.array = array

    def __dlpack__(self, **asked: Any) -> Any:
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack(backend: Any) -> None:
    x = tack.arange(10, dtype=tack.i32)
    kinds = [kind for kind, name in DEVICE_TYPES.items() if name == backend.name]
    if not kinds:
        with pytest.raises(BufferError, match=f"DLPack knows no devices such as {backend.label}"):
            x.__dlpack_device__()
        return
    assert x.__dlpack_device__() == (kinds[0], 0)
    y = tack.from_dlpack(Producer(x[2:]))
    assert (y.address, y.device, y.shape, y.writable) == (x[2:].address, x.device, (8,), True)
    del x
    gc.collect()
    affine(y, y, 2, 0)
    assert y.numpy().tolist() == list(range(4, 20, 2))


def test_sharing(backend: Any) -> None:
    if not backend.provides("share"):
        for attempt in (tack.zeros(4).share, lambda: tack.empty(4, shareable=True)):
            with pytest.raises(RuntimeError, match=f"{backend.label}.* shared"):
                attempt()
        return
    x = tack.empty(1000, tack.i32, shareable=True)
    shared = x.share()
    assert shared.size >= x.nbytes
    assert len(shared.device_uuid) == 16
