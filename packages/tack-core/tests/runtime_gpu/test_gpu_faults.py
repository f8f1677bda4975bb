"""Each call of the driver in a fixed scenario fails once, in each way, and nothing breaks or leaks."""

from __future__ import annotations

import gc
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack

from .conftest import Api

INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 1, 2, 700

# By the names that both APIs have, and what is the one's or the other's alone.
FUNCTIONS = (
    *(
        "Array3DCreate",
        "ArrayDestroy",
        "DeviceCanAccessPeer",
        "DriverGetVersion",
        "EventCreate",
        "EventDestroy",
    ),
    *(
        "EventQuery",
        "EventRecord",
        "EventSynchronize",
        "GraphDestroy",
        "GraphExecDestroy",
        "GraphInstantiate",
    ),
    *("GraphLaunch", "LaunchKernel", "MemAllocFromPoolAsync", "MemFreeAsync", "MemFreeHost", "MemGetInfo"),
    *("MemHostAlloc", "MemPoolCreate", "MemPoolDestroy", "MemPoolSetAccess", "MemPoolSetAttribute"),
    *("MemcpyDtoDAsync", "MemcpyDtoHAsync", "MemcpyHtoDAsync", "MemcpyPeerAsync", "MemsetD32Async"),
    *("MemsetD8Async", "ModuleGetFunction", "ModuleLoadData", "ModuleUnload", "StreamBeginCapture"),
    *("StreamCreate", "StreamDestroy", "StreamEndCapture", "StreamSynchronize", "StreamWaitEvent"),
    *("TexObjectCreate", "TexObjectDestroy", "DeviceGetAttribute", "EventElapsedTime", "MemsetD16Async"),
    *("DeviceGetCount", "Init"),
    *("MemAlloc", "MemFree"),  # without memory pools
)
OWN = {
    "cuda": (
        *("CtxGetCurrent", "CtxGetDevice", "CtxPopCurrent", "CtxPushCurrent", "DeviceGet", "DeviceGetName"),
        *("DevicePrimaryCtxRetain", "DeviceGetUuid", "Memcpy3DAsync", "PointerGetAttribute"),
        "StreamGetCtx",
    ),
    "hip": (
        *("DrvMemcpy3DAsync", "GetDevice", "GetDeviceProperties", "PointerGetAttributes"),
        *("RuntimeGetVersion", "SetDevice", "StreamGetDevice"),
    ),
}
# What is called at the start alone (test_gpu_start.py), where a pool gives memory back (test_gpu_streams.py),
# and where memory is shared between processes (test_cuda_sharing.py); and what only reads a text.
ELSEWHERE = {
    "cuda": (
        *("CtxSetCurrent", "DevicePrimaryCtxRelease", "GetErrorName", "GetErrorString", "GetProcAddress"),
        *("MemAddressFree", "MemAddressReserve", "MemCreate", "MemExportToShareableHandle", "MemMap"),
        *("MemGetAllocationGranularity", "MemPoolTrimTo", "MemRelease", "MemSetAccess", "MemUnmap"),
    ),
    "hip": ("GetErrorString", "GetProcAddress", "MemPoolTrimTo"),
}
# What the fixed scenario calls for certain.
CALLED = (
    *("LaunchKernel", "MemcpyPeerAsync", "ModuleLoadData", "GraphLaunch", "TexObjectCreate", "MemHostAlloc"),
    *("StreamBeginCapture", "EventQuery", "EventElapsedTime", "MemsetD16Async"),
)
# Calls that nothing could do anything about: what they free is lost. So is what goes after a kernel failed.
CLEANING = (
    *("ArrayDestroy", "CtxGetCurrent", "CtxPopCurrent", "CtxPushCurrent", "EventDestroy", "GetDevice"),
    *("GraphDestroy", "GraphExecDestroy", "MemFreeAsync", "MemFreeHost", "MemPoolDestroy", "ModuleUnload"),
    *("MemFree", "SetDevice", "StreamDestroy", "TexObjectDestroy", "run"),
)
# Which functions fail in which way: all, those that take memory, and those that tell of work before them.
FAILING = {
    INVALID_VALUE: (*FUNCTIONS, *OWN["cuda"], *OWN["hip"], "run"),
    OUT_OF_MEMORY: (
        *("Array3DCreate", "GraphInstantiate", "LaunchKernel", "MemAlloc", "MemAllocFromPoolAsync"),
        *("MemHostAlloc", "ModuleLoadData", "StreamCreate"),
    ),
    ILLEGAL_ADDRESS: ("EventQuery", "MemAllocFromPoolAsync", "MemcpyDtoHAsync", "StreamSynchronize", "run"),
}


@tack.kernel
def step(x: Any, y: Any, a: Any) -> tack.i64:
    for i in range(x.shape[0]):
        y[i] = x[i] * a
    return y[0]


@tack.kernel
def middle(tex: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = tex.sample(0.5, 0.5, 0.5)


def test_every_function_that_is_called_is_made_to_fail(api: Api) -> None:
    runtime = Path(tack.__file__).parent / "runtime"
    called = set()
    for path in (*runtime.glob("streams/*.py"), *runtime.glob(f"{api.name}/*.py")):
        for function in re.finditer(
            r"""(?:\bdriver|DRIVER)\.([A-Z]\w+)(?=[(,)])|filled\("(\w+)\"""", path.read_text()
        ):
            called.add(function[1] or function[2])
    assert len(called) > 30
    assert called <= {*FUNCTIONS, *OWN[api.name], *ELSEWHERE[api.name]}


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch, api: Api) -> Any:
    """Starts a device, and uses all that it can do; nothing of it stays."""
    images: dict[str, bytes] = {}
    compile_image = getattr(*api.compiler)

    def compile_once(text: str, *args: Any) -> bytes:
        if text not in images:
            images[text] = compile_image(text, *args)
        return images[text]

    monkeypatch.setattr(*api.compiler, compile_once)
    second = tack.device(f"{api.name}:1")
    with tack.device(api.name)._backend.queue.entered():  # type: ignore[attr-defined]
        stream = int(api.driver.check(api.driver.StreamCreate(0)))

    def run() -> None:
        device = tack.device(api.name, stream=stream)
        with device:
            x = tack.arange(1000, dtype=tack.i64)
            y = tack.full(1000, 2**40 + 1, tack.i64)
            z = tack.zeros(2_000_000, tack.i32)
            with tack.profile() as profile:
                assert step(x, y, 3) == 0
            assert profile.kernels[0].launches == 1
            step(x, y, 3)
            tack.copyto(y[1:], y[:-1])
            z[5] = 4
            assert tack.full(3, 258, tack.u16).numpy().tolist() == [258] * 3
            assert tack.memory_space(z) == api.name
            there = y.to(second)
            foreign = tack.array_from_ptr(x.address, tack.i64, 10, writable=True, owner=x)
            foreign.fill(1)
            assert z.numpy()[4:7].tolist() == [0, 4, 0]
            assert there.numpy().tolist() == [0, *range(0, 2997, 3)]
            assert x.numpy(8, 12).tolist() == [1, 1, 10, 11]
            assert np.from_dlpack(y, device="cpu")[3] == 6
            assert x.sum() == 10 + sum(range(10, 1000))
            shades = tack.zeros(3)
            middle(tack.Texture3D(np.full((2, 2, 2), 5, np.float32)), shades)
            assert shades.numpy().tolist() == [5.0] * 3
            with tack.capture() as graph:
                w = tack.zeros(10, tack.i64)
                w.fill(4)
                tack.copyto(w[5:], w[:5])
            graph.launch()
            assert w.numpy().tolist() == [4] * 10
            device.synchronize()

    return run


def settled(driver: Driver) -> dict[str, int]:
    for _ in range(2):  # what goes in the first round may hold what goes in the second
        gc.collect()
        tack.device(f"{driver.api.name}:1").synchronize()
        tack.device(driver.api.name).synchronize()
    return driver.alive()


@pytest.mark.parametrize("pools", [True, False], ids=["pools", "no pools"])
@pytest.mark.parametrize("code", [INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS])
def test_every_call_fails_once(emulated: Driver, scenario: Any, api: Api, code: int, pools: bool) -> None:
    emulated.pools(pools)
    names = {name: api.function(name) for name in (*FUNCTIONS, *OWN[api.name])} | {"run": "run"}
    # As the bindings call them.
    renamed, suffix = (
        ("GraphInstantiate", "WithFlags") if api.name == "cuda" else ("GetDeviceProperties", "R0600")
    )
    names[renamed] += suffix
    for _ in range(3):
        scenario()
    before, alive = {name: emulated.calls(whole) for name, whole in names.items()}, settled(emulated)
    scenario()
    made = {name: emulated.calls(whole) - before[name] for name, whole in names.items()}
    made = {name: number for name, number in made.items() if number}
    assert settled(emulated) == alive, "without any failure"
    assert {*CALLED, *(("MemPoolCreate", "MemAllocFromPoolAsync") if pools else ("MemAlloc",)), "run"} <= set(
        made
    )
    raised = 0
    if code == INVALID_VALUE:
        made.pop("PointerGetAttribute", None)  # which so says that it does not know the address
        made.pop("PointerGetAttributes", None)
    failing = [name for name in made if name in FAILING[code] and (pools or name in ("MemAlloc", "MemFree"))]
    for name in failing:
        for call in {1, made[name]}:
            emulated.fail(names[name], code, call)
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
    assert raised >= len(failing) // 2


def test_the_scenario_without_memory_pools(emulated: Driver, scenario: Any) -> None:
    emulated.pools(False)
    for _ in range(2):
        scenario()
    alive = settled(emulated)
    scenario()
    assert settled(emulated) == alive


def test_the_scenario_with_calls_that_wait_and_with_slow_streams(emulated: Driver, scenario: Any) -> None:
    emulated.pace(synchronous=True)
    scenario()
    emulated.pace(delay=300)
    scenario()


@pytest.mark.parametrize("function", ["EventCreate", "EventRecord", "StreamWaitEvent"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_copy_between_queues_that_cannot_be_ordered_is_waited_for(
    emulated: Driver, api: Api, function: str, call: int
) -> None:
    second = tack.device(f"{api.name}:1")
    y = tack.arange(100_000, dtype=tack.i64)
    y.to(second).numpy()
    emulated.pace(delay=20_000)
    emulated.fail(api.function(function), INVALID_VALUE, call)
    there = y.to(second)
    del y  # whose memory may be overwritten once the copy is done
    assert np.array_equal(there.numpy(), np.arange(100_000))


def test_a_launch_is_before_what_other_queues_do_next_also_if_its_result_fails(
    emulated: Driver, api: Api
) -> None:
    with tack.device(api.name)._backend.queue.entered():  # type: ignore[attr-defined]
        stream = int(api.driver.check(api.driver.StreamCreate(0)))
    other = tack.device(api.name, stream=stream)
    y = tack.zeros(10_000, tack.i64)
    for refused in (False, True):
        with other:
            x = tack.arange(10_000, dtype=tack.i64)
        tack.sync()
        if refused:
            emulated.pace(delay=20_000)
            emulated.fail(api.function("LaunchKernel"), INVALID_VALUE, 2)
        y.fill(1)
        y.fill(0)
        with pytest.raises(RuntimeError, match=api.errors[INVALID_VALUE]) if refused else nullcontext():
            step(x, y, 3)
        del x  # whose memory may be overwritten once the launch is done
        gc.collect()
        assert np.array_equal(y.numpy(), 3 * np.arange(10_000))
