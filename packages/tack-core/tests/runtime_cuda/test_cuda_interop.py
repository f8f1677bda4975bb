"""CUDA memory from and for other libraries."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack
from tack.runtime import dlpack
from tack.runtime.cuda.driver import DRIVER


@tack.kernel
def add(x: Any, a: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] + a


class Interface:
    """Its class has the protocol, as those of Numba and PyCUDA do."""

    def __init__(self, about: dict[str, Any], owner: Any = None) -> None:
        self.about, self.owner = about, owner

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.about


class Producer:
    """An object of another library with DLPack, which notes what it is asked for."""

    def __init__(self, array: tack.Array) -> None:
        self.array, self.asked = array, {}

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked = asked
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def tensor(capsule: Any, versioned: bool) -> Any:
    name = b"dltensor_versioned" if versioned else b"dltensor"
    kind = dlpack._ManagedVersioned if versioned else dlpack._Managed
    return kind.from_address(dlpack._get_pointer(capsule, name))


# --- export -------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("shape", [(), (7,), (3, 4, 5)])
def test_exported_capsules(versioned: bool, shape: tuple[int, ...]) -> None:
    x = tack.full(shape, 2.5, tack.f64)
    capsule = x.__dlpack__(max_version=(1, 0) if versioned else None)
    found = tensor(capsule, versioned)
    assert (found.tensor.device.type, found.tensor.device.id) == x.__dlpack_device__() == (2, 0)
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
    assert x.__cuda_array_interface__["shape"] == (5, 3)


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
    assert y.__cuda_array_interface__["data"] == (x.address, True)
    assert not tack.asarray(Interface(y.__cuda_array_interface__)).writable


def test_copies() -> None:
    x = tack.ones(4)
    copied = tack.from_dlpack(x.__dlpack__(copy=True))
    add(x, 1.0)
    assert copied.numpy().tolist() == [1.0] * 4
    host = x.__dlpack__(dl_device=(1, 0))
    assert tack.from_dlpack(host).device == tack.device("cpu")
    with pytest.raises(BufferError, match=r"needs arr\.to"):
        x.__dlpack__(dl_device=(10, 0))
    with pytest.raises(BufferError, match=r"needs arr\.to"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises((RuntimeError, ValueError, BufferError, TypeError)):
        np.asarray(x, copy=False)
    assert np.asarray(x).tolist() == [2.0] * 4


@pytest.mark.parametrize("stream", [0, True, "s", 1.5, -2])
def test_streams_that_are_none(stream: Any) -> None:
    with pytest.raises(BufferError, match="is no CUDA stream"):
        tack.zeros(4).__dlpack__(stream=stream)


def test_an_export_waits_on_the_consumers_stream(emulated: Driver, backend: Any) -> None:
    cu = DRIVER.module
    with backend.queue.entered():
        stream = DRIVER.check(cu.cuStreamCreate(1))
    x, out = tack.zeros(100_000, tack.i32), tack.zeros(100_000, tack.i32)
    tack.sync()
    for consumer in (int(stream), None, 1, 2):
        x.fill(0)
        fresh = tack.zeros(100_000, tack.i32)  # not known to others yet, so that its launches are queued
        emulated.pace(delay=2000)
        for _ in range(5):
            add(fresh, 1)
        fresh.__dlpack__(stream=consumer)
        handle = cu.CUstream(1 if consumer is None else consumer)
        with backend.queue.entered():
            DRIVER.check(cu.cuMemcpyDtoDAsync(out.address, fresh.address, 400_000, handle))
            DRIVER.check(cu.cuStreamSynchronize(handle))
        emulated.pace()
        assert (out.numpy() == 5).all()
    before = emulated.calls("cuStreamWaitEvent")
    x.__dlpack__(stream=-1)
    x.__dlpack__(stream=backend.queue.address)
    assert emulated.calls("cuStreamWaitEvent") == before


# --- import -------------------------------------------------------------------------------------


def test_producers_are_told_the_stream(backend: Any) -> None:
    x = tack.zeros(4, tack.i32)
    producer = Producer(x)
    y = tack.from_dlpack(producer)
    assert producer.asked["stream"] == backend.queue.address
    assert y.address == x.address
    add(producer, 2)
    assert x.numpy().tolist() == [2] * 4


def test_arrays_of_another_device() -> None:
    if sum(status.device is not None and status.spec.startswith("cuda") for status in tack.devices()) < 2:
        pytest.skip("there is one device")
    x = tack.zeros(4, tack.i32, device="cuda:1")
    assert x.__dlpack_device__() == (2, 1)
    assert tack.from_dlpack(Producer(x)).device == tack.device("cuda:1")
    assert tack.asarray(Interface(x.__cuda_array_interface__, x)).device == tack.device("cuda:1")
    add(Producer(x), 3)  # runs there
    assert x.numpy().tolist() == [3] * 4
    assert tack.from_dlpack(Producer(x), device="cuda").numpy().tolist() == [3] * 4


def test_host_arrays_are_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="'x' on CUDA, 'y' on CPU"):
        both(tack.zeros(4), np.zeros(4, np.float32))


@tack.kernel
def both(x: Any, y: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = y[i]


def test_the_interface_both_ways(backend: Any) -> None:
    x = tack.arange(12, dtype=tack.i32).reshape(3, 4)
    about = x.__cuda_array_interface__
    assert about == {
        "version": 3,
        "shape": (3, 4),
        "typestr": "<i4",
        "data": (x.address, False),
        "strides": None,
        "stream": backend.queue.address,
    }
    y = tack.asarray(Interface(about, x))
    assert (y.address, y.shape, y.dtype, y.writable) == (x.address, (3, 4), tack.i32, True)
    y.fill(7)
    assert (x.numpy() == 7).all()
    assert tack.asarray(Interface({**about, "strides": (16, 4)}, x)).shape == (3, 4)
    assert tack.asarray(Interface({**about, "shape": (1, 4), "strides": (99, 4)}, x)).shape == (1, 4)
    empty = tack.asarray(Interface({**about, "shape": (0, 4), "data": (0, False)}))
    assert empty.shape == (0, 4)
    flat = Interface({**about, "shape": (12,)}, x)
    add(flat, 1)
    assert (x.numpy() == 8).all()


def test_interfaces_that_do_not_fit() -> None:
    x = tack.zeros((3, 4))
    about = x.__cuda_array_interface__
    for changes, kind, text in (
        ({"strides": (4, 12)}, ValueError, "C-contiguous"),
        ({"typestr": "<c8"}, TypeError, "complex64"),
        ({"typestr": "|b1"}, TypeError, "bool"),
        ({"mask": object()}, TypeError, "mask"),
        ({"data": (0, False)}, ValueError, "null"),
    ):
        with pytest.raises(kind, match=text):
            tack.asarray(Interface({**about, **changes}))


def test_an_import_waits_for_the_producers_stream(emulated: Driver, backend: Any) -> None:
    cu = DRIVER.module
    with backend.queue.entered():
        stream = DRIVER.check(cu.cuStreamCreate(1))
    x = tack.zeros(1000, tack.i32)
    tack.sync()
    emulated.pace(delay=3000)
    with backend.queue.entered():
        for value in (1, 2, 3):
            DRIVER.check(cu.cuMemsetD32Async(x.address, value, 1000, stream))
    y = tack.asarray(Interface({**x.__cuda_array_interface__, "stream": int(stream)}, x))
    add(y, 10)
    emulated.pace()
    assert (x.numpy() == 13).all()


def test_cpu_arrays_do_not_have_the_interface() -> None:
    x = tack.zeros(4, device="cpu")
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="stream"):
        x.__dlpack__(stream=1)


# --- pointers -----------------------------------------------------------------------------------


def test_memory_spaces(backend: Any) -> None:
    x = tack.zeros(100, tack.u8)
    host = np.zeros(100, np.uint8)
    with backend.queue.entered():
        pinned = int(DRIVER.check(DRIVER.MemHostAlloc(4096, 0)))
    assert tack.memory_space(x) == tack.memory_space(x.address + 99) == "cuda"
    assert tack.memory_space(host) == "cpu"
    assert tack.memory_space(pinned) == "pinned"
    with pytest.raises(ValueError, match="the pointer is in cpu memory; CUDA needs one in: cuda"):
        tack.array_from_ptr(host.ctypes.data, tack.u8, 100)
    y = tack.array_from_ptr(pinned, tack.i32, 10, writable=True)
    y.fill(4)
    add(y, 1)
    assert list((ctypes.c_int32 * 10).from_address(pinned)) == [5] * 10
    with backend.queue.entered():
        DRIVER.check(DRIVER.MemFreeHost(pinned))


def test_pointers() -> None:
    x = tack.arange(10, dtype=tack.i32)
    for pointer in (x.address, np.uint64(x.address), DRIVER.module.CUdeviceptr(x.address)):
        y = tack.array_from_ptr(pointer, tack.i32, 10, owner=x)
        assert y.numpy().tolist() == list(range(10))
        assert not y.writable
    for bad in (1.5j, None, object()):
        with pytest.raises(TypeError, match="address"):
            tack.array_from_ptr(bad, tack.i32, 10)


# --- other libraries, on a GPU ------------------------------------------------------------------


@pytest.fixture
def on_a_gpu(is_emulated: bool) -> None:
    if is_emulated:
        pytest.skip("other libraries need a GPU")


@pytest.mark.usefixtures("on_a_gpu")
def test_torch() -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(1000, dtype=torch.float32, device="cuda")
    for _ in range(50):
        t.mul_(1.0)
        add(t, 1.0)  # sees what torch has queued, and is done when it returns
    assert torch.equal(t.cpu(), torch.arange(1000) + 50.0)
    x = tack.zeros(1_000_000)
    for _ in range(20):
        add(x, 1.0)
    assert float(torch.from_dlpack(x).sum()) == 20_000_000
    y = tack.ones(10)
    assert torch.as_tensor(y, device="cuda").data_ptr() == y.address
    side = torch.cuda.Stream()
    z = tack.zeros(1_000_000)
    for _ in range(20):
        add(z, 1.0)
    with torch.cuda.stream(side):
        assert float(torch.from_dlpack(z).sum()) == 20_000_000
    device = tack.device("cuda", stream=side)
    with device, torch.cuda.stream(side):
        a = tack.zeros(100)
        add(a, 2.0)
        assert float(torch.from_dlpack(a).sum()) == 200


@pytest.mark.usefixtures("on_a_gpu")
def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    c = cupy.arange(1000, dtype=cupy.int32)
    add(c, 1)
    assert cupy.asnumpy(c).tolist() == list(range(1, 1001))
    x = tack.arange(1000, dtype=tack.i32)
    add(x, 1)
    assert int(cupy.asarray(x).sum()) == int(cupy.from_dlpack(x).sum()) == 500_500
    stream = cupy.cuda.Stream(non_blocking=True)
    with tack.device("cuda", stream=stream):
        y = tack.ones(10)
        assert y.sum() == 10


@pytest.mark.usefixtures("on_a_gpu")
def test_jax() -> None:
    jax = pytest.importorskip("jax")
    j = jax.numpy.arange(1000, dtype="float32")
    x = tack.from_dlpack(j)
    assert np.array_equal(x.numpy(), np.arange(1000, dtype=np.float32))
    y = tack.ones(1000)
    add(y, 1.0)
    assert float(jax.dlpack.from_dlpack(y).sum()) == 2000
