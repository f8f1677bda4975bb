"""The Metal runtime against a fake that enforces the API's rules."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated.metal_driver import CONTROL

import tack
from tack.runtime.dispatch import default_backend
from tack.runtime.dlpack import relocate
from tack.runtime.metal import api


@tack.kernel
def scale(x: Any, y: Any, a: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = a * x[i] + y[i]


@tack.kernel
def total(x: Any, n: Any) -> tack.f32:
    for i in range(n):
        x[i] = x[i] + 1
    return x[0] + x[n - 1]


@tack.kernel
def middle(tex: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = tex.sample(0.5, 0.5, 0.5)


def scenario() -> list[Any]:
    """Uses all that the device can do; nothing of it stays but kernels."""
    x = tack.asarray(np.arange(1000, dtype=np.float32))
    y = tack.full(1000, 0.5)
    z = tack.zeros(1000)
    for _ in range(70):
        scale(x, y, 2.0)
    tack.copyto(z, y)
    small = tack.full(30, 3, tack.u8)
    tack.copyto(small[1:4], small[5:8])
    found = [z.numpy().tolist(), total(x, 1000), small.sum(), x.max()]
    shades = tack.zeros(3)
    middle(tack.Texture3D(np.full((2, 2, 2), 5, np.float32)), shades)
    found.append(shades.numpy().tolist())
    with tack.capture() as graph:
        z.fill(1.5)
        scale(z, y, 1.0)
        tack.copyto(x, y)
    graph.launch()
    shared = tack.array_from_ptr(x.share().handle, tack.f32, 1000, writable=True, owner=x)
    scale(y, shared, 1.0)
    other = tack.from_dlpack(shared)
    found.append(other.numpy(998, 1000).tolist())
    with tack.profile() as profile:
        scale(x, y, 0.0)
    assert "scale" in str(profile)
    assert default_backend().describe()["name"] == "Emulated GPU"
    return found


Y = [140.0 * k + 0.5 for k in range(1000)]
EXPECTED = [Y, 1.0 + 1000.0, 90, 1000.0, [5.0] * 3, [2 * (Y[k] + 1.5) for k in (998, 999)]]


def attempt(action: Callable[[], Any]) -> tuple[Any, str]:
    """What an action gives, and the text of its error."""
    try:
        return action(), ""
    except (RuntimeError, MemoryError) as error:
        return None, str(error)


def settled() -> dict[str, int]:
    """The objects that there are when nothing is queued, but for pages: as many as happened to be needed."""
    attempt(tack.sync)
    default_backend().queue._free.clear()  # type: ignore[attr-defined]
    for _ in range(2):  # what goes in the first round may hold what goes in the second
        gc.collect()
    return CONTROL.alive()


def test_every_call_made_to_fail_once() -> None:
    """A clear error, nothing left behind, and the next launch works."""
    default_backend().cache.clear()  # of earlier tests, as is what their arrays left
    default_backend()._pool.clear()  # type: ignore[attr-defined]
    for _ in range(2):
        assert scenario() == EXPECTED
    alive = settled()
    default_backend().cache.clear()
    CONTROL.calls.clear()
    assert scenario() == EXPECTED
    assert settled() == alive
    calls = dict(CONTROL.calls)
    assert len(calls) > 30
    raised = 0
    for selector, count in calls.items():
        for call in {1, count}:
            default_backend().cache.clear()
            CONTROL.fail(selector, call)
            found, text = attempt(scenario)
            assert "Metal" in text or found == EXPECTED, (selector, text)  # a second attempt may help
            raised += bool(text)
            CONTROL.heal()
            _, text = attempt(tack.sync)  # what was queued before may still have an error to tell
            assert not text or "made to fail" in text, (selector, text)
            assert scenario() == EXPECTED, selector
            assert settled() == alive, (selector, call)
    assert raised > len(calls)


def test_launches_are_queued_and_committed_every_64() -> None:
    x, y = tack.ones(10), tack.zeros(10)
    scale(x, y, 1.0)
    tack.sync()
    CONTROL.calls.clear()
    with CONTROL.held():
        for _ in range(64 * 3 + 1):
            scale(x, y, 1.0)
        assert CONTROL.calls["commit"] == 3
        assert not default_backend().completion()()
    assert y[3] == 64 * 3 + 2


def test_an_encoder_is_told_of_each_buffer_once() -> None:
    """A copy ends the encoder, and the next one knows nothing."""
    x, y = tack.ones(10), tack.zeros(10)
    scale(x, y, 0.0)
    tack.sync()
    CONTROL.calls.clear()
    scale(x, x, 1.0)
    scale(x[2:], x[:8], 0.0)
    assert CONTROL.calls["useResource_usage_"] == 1
    scale(x, y, 1.0)
    assert CONTROL.calls["useResource_usage_"] == 2
    tack.copyto(x, y)
    scale(x, y, 1.0)
    assert CONTROL.calls["useResource_usage_"] == 4
    assert CONTROL.calls["computeCommandEncoder"] == 2
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([2.0] * 10, [4.0] * 10)


def test_a_kernel_that_a_threadgroup_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said before anything runs."""

    @tack.kernel
    def doubled(x: Any) -> None:
        for i in range(x.shape[0]):
            x[i] = x[i] * 2

    @tack.kernel
    def sums(x: Any) -> None:
        for i in range(x.shape[0]):
            x[i] = tack.block_sum(x[i])

    x = tack.ones(256)
    threads = 200
    kind = api.metal.MTLComputePipelineState
    monkeypatch.setattr(kind, "maxTotalThreadsPerThreadgroup", lambda self: threads)
    doubled(x)  # 128
    with pytest.raises(RuntimeError, match="the GPU runs 200 threads of it at a time, and it needs 256"):
        sums(x)
    threads = 100
    default_backend().cache.clear()
    with pytest.raises(RuntimeError, match="the GPU runs 100 threads of it at a time, and it needs 128"):
        doubled(x)
    assert x.numpy().tolist() == [2.0] * 256


def test_new_memory_is_zero_and_large_buffers_are_reused() -> None:
    CONTROL.calls.clear()
    small = tack.zeros(1000)
    assert not small.numpy().any()
    assert CONTROL.calls["fillBuffer_range_value_"] == 0
    large = tack.full(1 << 18, 7.0)
    address = large.address
    del large
    again = tack.zeros(1 << 18)
    assert again.address == address
    assert not again.numpy().any()


@pytest.mark.parametrize("dtype", [tack.u8, tack.i16, tack.i32, tack.u64, tack.f32], ids=str)
def test_fills_of_every_pattern(dtype: tack.DType) -> None:
    """A byte that repeats is the GPU's own fill, up to the 127 that PyObjC takes; others are copies."""
    x = tack.zeros(100_003, dtype)
    for value in (0, 1, 77, 127, dtype.max if dtype.is_integer else -1.5, -1 if dtype.is_signed else 128):
        x[1:].fill(value)
        x[8:-3].fill(value)
        assert (x.numpy()[1:] == np.array(value, dtype.numpy)).all()


def samples(shape: tuple[int, int, int]) -> tuple[float, int]:
    """What a kernel finds in the middle of a volume of the number 5, and how many textures were made."""
    CONTROL.calls.clear()
    out = tack.zeros(3)
    texture = tack.Texture3D(tack.full(shape, 5.0))
    middle(texture, out)
    return out[2], CONTROL.calls["newTextureWithDescriptor_"]


def test_volumes_that_texture_units_do_not_take_are_sampled_by_code() -> None:
    assert samples((2, 3, 2048)) == (5.0, 1)
    assert samples((2, 3, 2049)) == (5.0, 0)
    assert samples((2049, 2, 2)) == (5.0, 0)
    CONTROL.filters = False
    try:
        assert samples((2, 3, 4)) == (5.0, 0)
    finally:
        CONTROL.filters = True


def test_no_memory_for_a_texture() -> None:
    x = tack.zeros((2, 2, 2))
    CONTROL.fail("newTextureWithDescriptor_")
    with pytest.raises(MemoryError, match=r"cannot allocate a texture of 32 bytes on Metal"):
        tack.Texture3D(x)
    assert tack.Texture3D(x).storage.numpy().shape == (2, 2, 2)


def test_no_memory_for_an_array() -> None:
    """What is kept for reuse is given back first; the error says how much there is."""
    kept = tack.full(1 << 20, 1.0)
    del kept
    CONTROL.calls.clear()
    CONTROL.fail("newBufferWithLength_options_")
    assert tack.full(100, 2.0)[99] == 2
    assert CONTROL.calls["newBufferWithLength_options_"] > 1
    with pytest.raises(MemoryError, match=r"cannot allocate 32\.00 GiB on Metal: .* is free, and an array"):
        tack.empty(1 << 33, tack.f32)


def test_an_mtl_buffer_is_wrapped_without_a_copy() -> None:
    x = tack.asarray(np.arange(16, dtype=np.float32))
    handle, kind, size, uuid = x.share()
    assert (kind, size, len(uuid)) == ("mtl_buffer", 64, 16)
    view = tack.array_from_ptr(handle, tack.f32, 16, writable=True)
    view[3] = -1.0
    assert x[3] == -1
    assert tack.array_from_ptr((handle, 8), tack.f32, 2).numpy().tolist() == [2, -1]
    for ptr, error, text in (
        (7, TypeError, "is an MTLBuffer, not int"),
        (None, ValueError, "null"),
        ((handle, 2), ValueError, "not a multiple of 4, the size of f32, as Metal needs"),
        ((handle, 60), ValueError, "has 64 bytes"),
    ):
        with pytest.raises(error, match=text):
            tack.array_from_ptr(ptr, tack.f32, 2)


def test_memory_that_the_host_does_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = tack.ones(4).share().handle
    private = api.metal.MTLStorageModePrivate
    monkeypatch.setattr(type(handle), "storageMode", lambda self: private)
    with pytest.raises(ValueError, match=r"not in storage that the host shares \(MTLStorageModeShared\)"):
        tack.array_from_ptr(handle, tack.f32, 4)
    with pytest.raises(ValueError, match="not in storage"):
        tack.from_dlpack(tack.ones(4).__dlpack__(max_version=(1, 0)))


def test_what_was_queued_is_done_once_memory_is_shared(later: Callable[[], None]) -> None:
    x, y = tack.ones(10), tack.zeros(10)
    with CONTROL.held():
        scale(x, y, 3.0)
        later()
        shared = y.share()
    memory = np.frombuffer(shared.handle.contents().as_buffer(shared.size), np.float32)
    assert memory[:10].tolist() == [3.0] * 10
    with pytest.raises(RuntimeError, match="an array without elements has no memory to share"):
        tack.zeros(0).share()


def test_dlpack_hands_over_the_buffer() -> None:
    x = tack.asarray(np.arange(8, dtype=np.int32))
    assert x.__dlpack_device__() == (8, 0)
    other = tack.from_dlpack(x[2:].__dlpack__(max_version=(1, 0)))
    assert other.numpy().tolist() == [2, 3, 4, 5, 6, 7]
    other[0] = 9
    assert x[2] == 9
    x.__dlpack__(stream=-1)
    with pytest.raises(BufferError, match="no stream"):
        x.__dlpack__(stream=3)
    capsule = x[:4].__dlpack__(max_version=(1, 0))
    relocate(capsule, (8, 0), api.objc.pyobjc_id(x.share().handle), 6)
    with pytest.raises(ValueError, match="begins 6 bytes into the MTLBuffer, which is not a multiple of 4"):
        tack.from_dlpack(capsule)
    assert not hasattr(x, "__cuda_array_interface__")


def test_launch_limit_and_what_is_not_there() -> None:
    x = tack.ones(1)

    @tack.kernel
    def many(x: Any, n: Any) -> None:
        for i in range(n):
            if i < 0:
                x[0] = 1

    with pytest.raises(ValueError, match=f"a launch on Metal has at most {1 << 32}"):
        many(x, (1 << 32) + 1)
    with pytest.raises(TypeError, match="Metal has no f64; it supports: i8"):
        tack.zeros(3, tack.f64)
    with pytest.raises(ValueError, match="there is no device 'metal:1'"):
        tack.device("metal:1")
    assert tack.memory_space(0) == "cpu"


def test_source_and_profile() -> None:
    x, y = tack.ones(4), tack.zeros(4)
    assert "[[kernel, max_total_threads_per_threadgroup(128)]]" in tack.inspect(scale, x, y, 1.0)
    with tack.profile() as found:
        scale(x, y, 1.0)
    assert "scale" in str(found)
