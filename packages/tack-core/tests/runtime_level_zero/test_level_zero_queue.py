"""What Level Zero has of its own: barriers, handles, limits. `tests/contract` has what all have."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
from emulated.level_zero import Loader
from steered import Busy

import tack

INVALID_ARGUMENT, OUT_OF_DEVICE_MEMORY = 0x78000004, 0x70000003


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
    done: bool = backend.completion()()
    return done


# --- order --------------------------------------------------------------------------------------


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
    tack.sync()
    with busy():
        tack.copyto(y, x)
        affine(x, x, 0, -1)
        tack.copyto(y[1:], y[:-1])
        assert not is_idle(backend)
    assert y.numpy().tolist() == [0, *range(4999)]
    assert (x.numpy() == -1).all()


# --- frees --------------------------------------------------------------------------------------


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


def test_what_is_dropped_is_freed_although_an_event_never_happens(emulated: Loader, backend: Any) -> None:
    x = tack.zeros(1000)
    affine(x, x, 1.0, 1.0)
    tack.sync()
    emulated.fail_run()
    with emulated.held():
        affine(x, x, 1.0, 1.0)
        tack.empty(1000)  # dropped behind a launch that loses the device
    with pytest.raises(RuntimeError, match="DEVICE_LOST"):
        tack.sync()
    emulated.heal()
    affine(x, x, 1.0, 1.0)
    tack.sync()
    before = emulated.alive()["device"]
    for _ in range(1000):
        affine(x, x, 1.0, 1.0)
        tack.empty(1000)
        if emulated.alive()["device"] <= before:
            break
        time.sleep(0.01)
    else:
        pytest.fail("nothing was freed")


def test_allocations_past_the_usual_limit(emulated: Loader) -> None:
    emulated.limit(largest=1 << 20)
    device = tack.device("level_zero:1", external_context=_context("level_zero:1"))
    x = tack.zeros(2 << 20, tack.u8, device=device)
    assert x[-1] == 0


def _context(spec: str) -> int:
    handle: int = tack.device(spec)._backend.queue.context.handle  # type: ignore[attr-defined]
    return handle


# --- errors -------------------------------------------------------------------------------------


def test_several_kernels_may_have_failed(emulated: Loader) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)
    double(x)
    tack.sync()
    with emulated.held():
        double(x)
        emulated.fail_run()
        affine(x, x, 1, 1)
    with pytest.raises(
        RuntimeError,
        match=r"^One of the kernels 'double', 'affine' failed on Level Zero: ZE_RESULT_ERROR_DEV",
    ) as caught:
        tack.sync()
    assert "debug mode tells which" in str(caught.value)


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
