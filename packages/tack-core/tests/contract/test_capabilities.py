"""What a backend declares, what follows from it, and that its device does what it says, or refuses it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conformance.helpers import build
from steered import Busy

import tack
from tack.dtypes import ALL_DTYPES
from tack.info import collect, render
from tack.runtime.backend import Backend

from .kernels import affine, count, middle

DECLARED = [
    name
    for name in Backend.__annotations__
    if name.islower() and not name.startswith("_") and name != "varies"
]


def test_a_device_has_what_its_class_declares(backend: Any) -> None:
    """Or less, where the class says that this varies."""
    kind = type(backend)
    for name in DECLARED:
        declared, found = getattr(kind, name, None), getattr(backend, name)
        if name == "dlpack_stream" or (name == "display_name" and declared is None):
            continue
        assert type(found) is type(declared), name
        if name not in kind.varies:
            assert found == declared, name
        elif isinstance(declared, bool):
            assert found <= declared, name
        else:
            assert set(found) <= set(declared), name
    assert all(hasattr(Backend, name) or name in DECLARED for name in kind.varies)
    assert set(backend.supported_atomic_dtypes) <= set(ALL_DTYPES)
    assert {tack.i32, tack.f32} <= set(backend.supported_dtypes) <= set(ALL_DTYPES)
    assert not backend.has_failed


def test_what_follows(backend: Any, target: str) -> None:
    device = tack.device(target)
    assert device._backend is backend
    assert (device.name, device.index, device.label) == (backend.name, 0, backend.display_name)
    assert str(device) == backend.spec == target
    assert backend.memory_domain == tack.device(f"{target}:0")._backend.memory_domain
    assert hash(backend.memory_domain) == hash(backend.memory_domain)
    assert device.supports_f64 == (tack.f64 in device.supported_dtypes)
    assert backend.dtype_set == set(device.supported_dtypes)
    assert backend.prefers_workgroups == (device.supports_workgroups and not backend.iteration_cache)
    assert device.memory_spaces == backend.device_memory_spaces
    assert device.supported_atomic_dtypes == backend.supported_atomic_dtypes
    assert device.supports_print == backend.supports_print
    assert backend.options == {}
    assert type(backend).device_count() >= 1


def test_info_tells_it(backend: Any) -> None:
    about = backend.describe()
    assert all(type(key) is type(value) is str for key, value in about.items())
    facts = collect()
    (found,) = (device for device in facts["devices"] if device["spec"] == backend.spec)
    assert found["available"]
    assert found["dtypes"] == [dtype.name for dtype in backend.supported_dtypes]
    text = render(facts)
    assert f"Device {backend.spec}\n" in text
    assert max(len(line) for line in text.splitlines()) <= 120


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_element_types(backend: Any, dtype: tack.DType) -> None:
    values = [0, 1, 100]
    if dtype in backend.supported_dtypes:
        assert tack.asarray(values, dtype).numpy().tolist() == values
        return
    supported = ", ".join(d.name for d in backend.supported_dtypes)
    message = re.escape(f"{backend.label} has no {dtype}; it supports: {supported}")
    for make in (lambda: tack.empty(3, dtype), lambda: tack.asarray(np.array(values, dtype.numpy))):
        with pytest.raises(TypeError, match=message):
            make()


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_atomics(backend: Any, dtype: tack.DType) -> None:
    if dtype not in backend.supported_dtypes:
        assert dtype not in backend.supported_atomic_dtypes
        return
    total = tack.asarray([3], dtype)
    if dtype in backend.supported_atomic_dtypes:
        count(total, 100)
        assert total[0] == 103
        return
    known = ", ".join(d.name for d in backend.supported_atomic_dtypes)
    with pytest.raises(TypeError, match=f"{backend.label} has no atomics on {dtype}; it has them on {known}"):
        count(total, 100)
    assert total[0] == 3


@tack.kernel
def block_sums(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        total = tack.block_sum(x[i])
        if tack.thread_id() == 0:
            out[i // 256] = total


def test_workgroups(backend: Any) -> None:
    x, out = tack.arange(512, dtype=tack.i32), tack.zeros(2, tack.i32)
    if not backend.supports_workgroups:
        with pytest.raises(RuntimeError, match=f"uses tack.block_sum.* {backend.label} runs no workgroups"):
            block_sums(x, out)
        return
    block_sums(x, out)
    assert out.numpy().tolist() == [sum(range(256)), sum(range(256, 512))]
    with pytest.raises(ValueError, match=r"300 iterations; .* a multiple of 256"):
        block_sums(x[:300], out)


def shares(nbytes: int) -> Any:
    source = f"""
        @tack.kernel
        def fills(out):
            for i in range(out.shape[0]):
                group = tack.shared({nbytes}, tack.u8)
                group[i * {nbytes - 1} // 255] = i
                tack.barrier()
                out[i] = group[(255 - i) * {nbytes - 1} // 255]
    """
    return build(source, "fills")


def test_shared_memory(backend: Any) -> None:
    most = backend.shared_memory
    assert most == 0 or most >= 32 << 10  # by which algorithms are divided
    if not backend.supports_workgroups:
        return
    out = tack.zeros(256, tack.i32)
    shares(most or 128 << 10)(out)
    assert out.numpy().tolist() == list(range(255, -1, -1))
    if most:
        with pytest.raises(ValueError, match=f"shared arrays take {most + 1} bytes; .* at most {most}"):
            shares(most + 1)(out)


@tack.kernel
def says(x: Any) -> None:
    for i in range(2):
        print("value", x[i])
        x[i] = x[i] + 1


def test_print(backend: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = tack.asarray([5, 7], tack.i32)
    says(x)
    assert x.numpy().tolist() == [6, 8]
    printed = capsys.readouterr().out
    assert sorted(printed.splitlines()) == (["value 5", "value 7"] if backend.supports_print else [])


@pytest.mark.parametrize("name", ["i32", "f32"])
def test_reductions(backend: Any, name: str) -> None:
    values = np.random.default_rng(1).integers(-1000, 1000, 5003).astype(getattr(tack, name).numpy)
    x = tack.asarray(values)
    exact = sum(int(v) for v in values)
    assert x.sum() == exact  # so small that f32 adds without an error
    assert (x.min(), x.max()) == (values.min(), values.max())
    assert x.mean() == pytest.approx(exact / 5003, rel=1e-7)
    if backend.supports_device_reductions:
        assert backend.reduce_array(x, "sum", True) == exact


def test_textures(backend: Any, busy: Busy) -> None:
    volume = tack.zeros((2, 3, 4))
    texture = tack.Texture3D(volume)
    in_hardware = backend.texture_in_hardware(texture.shape_3d)
    assert (texture.storage._image is not None) == in_hardware
    assert not in_hardware or backend.provides("texture_in_hardware")
    out = [tack.zeros(1) for _ in range(10)]
    middle(texture, out[0])
    tack.sync()
    with busy():
        for k, one in enumerate(out):
            volume.fill(k)
            texture.update()  # in order with launches
            middle(texture, one)
    assert [float(one[0]) for one in out] == list(range(10))
    del texture, volume  # with launches in flight
    assert out[-1].numpy().tolist() == [9]


def test_capture(backend: Any) -> None:
    x, y = tack.arange(10, dtype=tack.i32), tack.zeros(10, tack.i32)
    if not backend.provides("graph"):
        with tack.capture(), pytest.raises(NotImplementedError, match=f"{backend.label} cannot capture"):
            affine(x, y, 2, 1)
        affine(x, y, 2, 1)  # as ever
        assert y[9] == 19
        return
    with tack.capture() as graph:
        affine(x, y, 2, 1)
        tack.copyto(x, y)
        y.fill(-1)
    assert y.numpy().tolist() == [0] * 10
    for _ in range(2):
        graph.launch()
    assert x.numpy().tolist() == [4 * k + 3 for k in range(10)]
    assert y.numpy().tolist() == [-1] * 10


def test_inspect(backend: Any) -> None:
    x = tack.zeros(3, tack.i32)
    if not backend.provides("inspect"):
        with pytest.raises(NotImplementedError, match=f"{backend.label} cannot show 'source'"):
            tack.inspect(affine, x, x, 1, 2)
        return
    assert "affine" in tack.inspect(affine, x, x, 1, 2)


def test_compiling_ahead(backend: Any) -> None:
    @tack.kernel
    def ahead(x: Any) -> None:
        for i in range(x.shape[0]):
            x[i] = i

    if not backend.provides("compile"):
        with pytest.raises(NotImplementedError, match=f"{backend.label} does not compile ahead"):
            ahead.compile(((4,), tack.i32))
        return
    x = tack.zeros(4, tack.i32)
    ahead.compile(x)
    assert x.numpy().tolist() == [0] * 4
    with tack.profile() as profile:
        ahead(x)
    assert [entry.compiles for entry in profile.kernels] == [0]
    assert x.numpy().tolist() == [0, 1, 2, 3]


def test_profiles_take_the_devices_time(backend: Any) -> None:
    x = tack.ones(1000, tack.i32)
    affine(x, x, 1, 0)
    with tack.profile() as profile:
        for _ in range(5):
            affine(x, x, 1, 0)
    (entry,) = profile.kernels
    assert (entry.launches, entry.device) == (5, backend.label)
    assert 0 <= entry.shortest <= entry.longest < 10
