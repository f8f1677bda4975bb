"""``__cuda_array_interface__``, and other libraries on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack
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


def test_what_the_interface_says() -> None:
    x = tack.zeros(5, tack.vec3)
    assert x.__cuda_array_interface__["shape"] == (5, 3)
    y = tack.array_from_ptr(x.address, tack.f32, 4, owner=x)
    assert y.__cuda_array_interface__["data"] == (x.address, True)
    assert not tack.asarray(Interface(y.__cuda_array_interface__)).writable
    assert not hasattr(tack.zeros(4, device="cpu"), "__cuda_array_interface__")


def test_arrays_of_another_device() -> None:
    if sum(status.device is not None and status.spec.startswith("cuda") for status in tack.devices()) < 2:
        pytest.skip("there is one device")
    x = tack.zeros(4, tack.i32, device="cuda:1")
    assert tack.asarray(Interface(x.__cuda_array_interface__, x)).device == tack.device("cuda:1")


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
