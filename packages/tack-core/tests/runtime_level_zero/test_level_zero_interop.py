"""Memory of other libraries as arrays, arrays as memory for them, and textures."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from emulated.level_zero import Loader

import tack
from tack.runtime.level_zero import api as ze
from tack.runtime.level_zero import driver

ONEAPI = 14  # kDLOneAPI


@tack.kernel
def double(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] * 2


class Producer:
    """A library with DLPack, which says of a capsule where it is."""

    def __init__(self, array: tack.Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        assert options.get("stream") is None
        return self._array.__dlpack__(max_version=options.get("max_version"))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_dlpack_has_no_streams_here() -> None:
    x = tack.ones(3)
    x.__dlpack__(stream=-1)
    with pytest.raises(BufferError, match="stream=1: Level Zero has no streams; pass stream=None"):
        x.__dlpack__(stream=1)


def test_cudas_interface_is_not_here() -> None:
    assert not hasattr(tack.ones(3), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="the memory of arrays on Level Zero cannot be shared"):
        tack.ones(3).share()


def test_what_was_queued_is_done_once_memory_is_handed_out(
    emulated: Loader, backend: Any, later: Any
) -> None:
    x = tack.ones(1000)
    double(x)
    tack.sync()
    with emulated.held():
        double(x)
        later()
        capsule = x.__dlpack__()
    assert backend.queue._done == backend.queue.number
    assert np.ctypeslib.as_array((ctypes.c_float * 1000).from_address(x.address))[0] == 4
    del capsule


def test_memory_spaces(backend: Any) -> None:
    x = tack.ones(100)
    assert tack.memory_space(x) == tack.memory_space(x.address + 100) == "level_zero"
    assert tack.memory_space(np.ones(3)) == "cpu"
    assert tack.memory_space(0) == "cpu"
    context = backend.queue.context
    host = driver.api.make("MemAllocHost", context.handle, ze.structure(ze.HostMemoryDesc), 4000, 64)
    try:
        assert tack.memory_space(host) == "host"
        y = tack.array_from_ptr(host, tack.f32, 1000, writable=True)
        y.fill(3)
        double(y)
        view = np.ctypeslib.as_array((ctypes.c_float * 1000).from_address(host))
        assert (view == 6).all(), "launches on foreign memory are done when they return"
        del y, view
    finally:
        tack.sync()
        driver.api.call("MemFree", context.handle, host)


def test_pointers() -> None:
    x = tack.arange(10, dtype=tack.f32)
    y = tack.array_from_ptr(np.uint64(x.address + 8), "f4", 4, owner=x)
    assert y.numpy().tolist() == [2, 3, 4, 5]
    assert not y.writable
    with pytest.raises(
        ValueError, match="the pointer is in cpu memory; Level Zero needs one in: level_zero, sh"
    ):
        tack.array_from_ptr(np.ones(3).ctypes.data, tack.f32, 3)
    with pytest.raises(ValueError, match="is not a multiple of 4, the size of f32, as Level Zero needs"):
        tack.array_from_ptr(x.address + 2, tack.f32, 3)
    with pytest.raises(TypeError, match="a pointer is an integer address"):
        tack.array_from_ptr(object(), tack.f32, 3)


# --- textures -----------------------------------------------------------------------------------


@tack.kernel
def along(t: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        u = i / (out.shape[0] - 1.0) * 1.4 - 0.2
        out[i] = t.sample(u, 0.3, 0.8)


def expected(volume: np.ndarray, count: int) -> np.ndarray:
    depth, height, width = volume.shape
    found = []
    for i in range(count):
        at = []
        for u, extent in ((i / (count - 1) * 1.4 - 0.2, width), (0.3, height), (0.8, depth)):
            p = min(max(u, 0.0), 1.0) * (extent - 1)
            low = min(int(p), extent - 1)
            at.append((low, min(low + 1, extent - 1), p - low))
        value = 0.0
        for corner in range(8):
            weight, index = 1.0, []
            for axis, (low, high, part) in enumerate(at):
                weight *= part if corner >> axis & 1 else 1 - part
                index.append(high if corner >> axis & 1 else low)
            value += weight * float(volume[index[2], index[1], index[0]])
        found.append(value)
    return np.array(found)


def test_textures_are_images_where_there_are_samplers(emulated: Loader, backend: Any) -> None:
    volume = np.random.default_rng(5).random((4, 5, 7), np.float32)
    texture = tack.Texture3D(volume)
    assert texture.storage._image is not None
    out = tack.zeros(29)
    along(texture, out)
    np.testing.assert_allclose(out.numpy(), expected(volume, 29), atol=2e-3)
    assert "read_imagef" in tack.inspect(along, texture, out)


@pytest.mark.parametrize("reason", ["no samplers", "too large"])
def test_textures_in_software(emulated: Loader, backend: Any, reason: str) -> None:
    emulated.features(samplers=reason != "no samplers", image=2048 if reason == "no samplers" else 6)
    device = tack.device("level_zero", external_context=backend.queue.context.handle)
    with device:
        volume = np.random.default_rng(6).random((4, 5, 7), np.float32)
        texture = tack.Texture3D(volume)
        assert texture.storage._image is None
        out = tack.zeros(29)
        along(texture, out)
        np.testing.assert_allclose(out.numpy(), expected(volume, 29), atol=1e-5)
        assert "read_imagef" not in tack.inspect(along, texture, out)


def test_no_memory_for_a_texture(emulated: Loader) -> None:
    emulated.fail("zeImageCreate", 0x70000003)
    with pytest.raises(MemoryError, match=r"cannot allocate a texture of 96 bytes on Level Zero"):
        tack.Texture3D(np.zeros((2, 3, 4), np.float32))
