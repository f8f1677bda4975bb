"""Each call of the driver in a fixed scenario fails once, in each way, and nothing breaks or leaks."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack
from tack.runtime.cuda import nvrtc
from tack.runtime.cuda.driver import DRIVER

INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 1, 2, 700

FUNCTIONS = (
    *(
        "cuDeviceGet",
        "cuDeviceGetAttribute",
        "cuDeviceGetName",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
    ),
    *("cuCtxPushCurrent", "cuCtxGetDevice", "cuStreamCreate", "cuStreamDestroy", "cuStreamSynchronize"),
    *("cuStreamWaitEvent", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize"),
    *("cuEventDestroy", "cuMemPoolCreate", "cuMemPoolSetAttribute", "cuMemPoolDestroy"),
    *("cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemHostAlloc", "cuMemFreeHost", "cuMemcpyHtoDAsync"),
    *("cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpyPeerAsync", "cuMemsetD8Async", "cuMemsetD32Async"),
    *("cuModuleLoadData", "cuModuleGetFunction", "cuModuleUnload", "cuLaunchKernel", "cuPointerGetAttribute"),
    *("cuCtxPopCurrent", "cuDriverGetVersion", "cuMemGetInfo", "run"),
)
# Calls that nothing could do anything about: what they free is lost.
CLEANING = (
    "cuCtxGetCurrent",
    "cuCtxPushCurrent",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuMemPoolDestroy",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuModuleUnload",
)


# Which functions fail in which way: all, those that take memory, and those that tell of work before them.
FAILING = {
    INVALID_VALUE: FUNCTIONS,
    OUT_OF_MEMORY: (
        "cuMemAllocFromPoolAsync",
        "cuMemHostAlloc",
        "cuModuleLoadData",
        "cuLaunchKernel",
        "cuStreamCreate",
    ),
    ILLEGAL_ADDRESS: (
        "run",
        "cuStreamSynchronize",
        "cuMemcpyDtoHAsync",
        "cuEventQuery",
        "cuMemAllocFromPoolAsync",
    ),
}


@tack.kernel
def step(x: Any, y: Any, a: Any) -> tack.i64:
    for i in range(x.shape[0]):
        y[i] = x[i] * a
    return y[0]


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a device, and uses all that it can do; nothing of it stays."""
    images: dict[str, bytes] = {}
    compile_cubin = nvrtc.compile_cubin

    def compile_once(text: str, *args: Any) -> bytes:
        if text not in images:
            images[text] = compile_cubin(text, *args)
        return images[text]

    monkeypatch.setattr(nvrtc, "compile_cubin", compile_once)
    second = tack.device("cuda:1")
    with tack.device("cuda")._backend.queue.entered():  # type: ignore[attr-defined]
        stream = int(DRIVER.check(DRIVER.StreamCreate(0)))

    def run() -> None:
        device = tack.device("cuda", stream=stream)
        with device:
            x = tack.arange(1000, dtype=tack.i64)
            y = tack.full(1000, 2**40 + 1, tack.i64)
            z = tack.zeros(2_000_000, tack.i32)
            assert step(x, y, 3) == 0
            step(x, y, 3)
            tack.copyto(y[1:], y[:-1])
            z[5] = 4
            assert tack.memory_space(z) == "cuda"
            there = y.to(second)
            foreign = tack.array_from_ptr(x.address, tack.i64, 10, writable=True, owner=x)
            foreign.fill(1)
            assert z.numpy()[4:7].tolist() == [0, 4, 0]
            assert there.numpy().tolist() == [0, *range(0, 2997, 3)]
            assert x.numpy(8, 12).tolist() == [1, 1, 10, 11]
            assert np.from_dlpack(y, device="cpu")[3] == 6
            device.synchronize()

    return run


def counts(driver: Driver) -> dict[str, int]:
    return {name: driver.calls(name) for name in FUNCTIONS}


def settled(driver: Driver) -> dict[str, int]:
    gc.collect()
    tack.device("cuda:1").synchronize()
    tack.device("cuda").synchronize()
    return driver.alive()


@pytest.mark.parametrize("code", [INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS])
def test_every_call_fails_once(emulated: Driver, scenario: Any, code: int) -> None:
    for _ in range(3):
        scenario()
    before, alive = counts(emulated), settled(emulated)
    scenario()
    made = {name: n - before[name] for name, n in counts(emulated).items() if n > before[name]}
    assert settled(emulated) == alive, "without any failure"
    assert {"cuLaunchKernel", "cuMemcpyPeerAsync", "cuModuleLoadData", "run"} <= set(made)
    raised = 0
    if code == INVALID_VALUE:
        del made["cuPointerGetAttribute"]  # which so says that it does not know the address
    for name in [name for name in made if name in FAILING[code]]:
        for call in {1, made[name]}:
            emulated.fail(name, code, call)
            try:
                scenario()
            except (RuntimeError, MemoryError):
                raised += 1
            emulated.heal()
            left = settled(emulated)
            scenario()
            gc.collect()
            if name in CLEANING or code == ILLEGAL_ADDRESS:  # something may be lost with the context
                alive = settled(emulated)
            else:
                assert left == alive, f"{name}, call {call}"
    assert raised > len(FAILING[code]) // 2


def test_the_scenario_without_memory_pools(emulated: Driver, scenario: Any) -> None:
    emulated.pools(False)
    try:
        for _ in range(2):
            scenario()
        alive = settled(emulated)
        scenario()
        assert settled(emulated) == alive
    finally:
        emulated.pools(True)


def test_the_scenario_with_calls_that_wait_and_with_slow_streams(emulated: Driver, scenario: Any) -> None:
    emulated.pace(synchronous=True)
    scenario()
    emulated.pace(delay=300)
    scenario()
