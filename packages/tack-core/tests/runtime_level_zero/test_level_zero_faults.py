"""Each call of the API in a fixed scenario fails once, in each way, and nothing breaks or leaks."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from emulated.level_zero import Loader

import tack
from tack.runtime.level_zero.api import FUNCTIONS

INVALID_ARGUMENT, OUT_OF_DEVICE_MEMORY, DEVICE_LOST = 0x78000004, 0x70000003, 0x70000001

# Calls that only free something: nobody could do anything about an error, and what they free is lost.
CLEANING = {
    f"ze{name}"
    for name in (
        *("MemFree", "EventDestroy", "EventPoolDestroy", "KernelDestroy", "ModuleDestroy", "ImageDestroy"),
        *("CommandListDestroy", "ContextDestroy", "ModuleBuildLogDestroy"),
    )
}
# What tells of work before it, and so of a lost device.
TELLING = {
    "run",
    *("zeEventHostSynchronize", "zeEventQueryStatus", "zeCommandListAppendLaunchKernel"),
    *("zeCommandListAppendMemoryCopy", "zeCommandListAppendBarrier", "zeMemAllocDevice"),
}


@tack.kernel
def step(x: Any, y: Any, a: Any) -> tack.i64:
    for i in range(x.shape[0]):
        y[i] = x[i] * a
    return y[0]


@tack.kernel
def sampled(t: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = t.sample(0.25, 0.5, 0.0)


def scenario() -> None:
    """Starts a device, and uses all that it can do; nothing of it stays."""
    handle = tack.device("level_zero")._backend.queue.context.handle  # type: ignore[attr-defined]
    device = tack.device("level_zero", external_context=handle)
    with device:
        x = tack.arange(1000, dtype=tack.i64)
        y = tack.full(1000, 2**40 + 1, tack.i64)
        z = tack.zeros(2_000_000, tack.i32)
        colours = tack.zeros(1000, tack.vec3)
        colours.fill((1, 2, 3))
        assert step(x, y, 3) == 0
        step(x, y, 3)
        tack.copyto(y[1:], y[:-1])
        z[5] = 4
        assert tack.memory_space(z) == "level_zero"
        foreign = tack.array_from_ptr(x.address, tack.i64, 10, writable=True, owner=x)
        foreign.fill(1)
        texture = tack.Texture3D(np.arange(60, dtype=np.float32).reshape(3, 4, 5))
        out = tack.zeros(3)
        sampled(texture, out)
        with tack.profile() as profile:
            step(x, y, 3)
        assert profile.kernels[0].launches == 1
        assert z.numpy()[4:7].tolist() == [0, 4, 0]
        assert y.numpy()[:3].tolist() == [3, 3, 3]
        assert x.numpy(8, 12).tolist() == [1, 1, 10, 11]
        assert out.numpy().tolist() == [8.5] * 3
        assert colours.numpy()[999].tolist() == [1, 2, 3]
        device.synchronize()


def counts(loader: Loader) -> dict[str, int]:
    return {name: loader.calls(name) for name in ("run", *(f"ze{name}" for name in FUNCTIONS))}


def settled(loader: Loader) -> dict[str, int]:
    gc.collect()
    tack.device("level_zero").synchronize()
    return loader.alive()


@pytest.mark.parametrize("code", [INVALID_ARGUMENT, OUT_OF_DEVICE_MEMORY, DEVICE_LOST])
def test_every_call_fails_once(emulated: Loader, code: int) -> None:
    for _ in range(2):
        scenario()
    before, alive = counts(emulated), settled(emulated)
    scenario()
    made = {name: n - before[name] for name, n in counts(emulated).items() if n > before[name]}
    assert settled(emulated) == alive, "without any failure"
    expected = {f"ze{name}" for name in FUNCTIONS} - UNUSED
    assert set(made) == {*expected, "run"}
    raised = []
    names = [name for name in made if code != DEVICE_LOST or name in TELLING]
    if code != DEVICE_LOST:
        names.remove("run")
    for name in names:
        for call in {1, made[name]}:
            emulated.fail(name, code, call)
            try:
                scenario()
            except (RuntimeError, MemoryError):
                raised.append(name)
            emulated.heal()
            left = settled(emulated)
            scenario()
            broken = emulated.violations()  # what still has something in it cannot be freed
            assert not broken or name in CLEANING, f"{name}, call {call}: {broken}"
            if name in CLEANING or code == DEVICE_LOST:  # something may be lost with the device
                alive = settled(emulated)
            else:
                assert left == alive, f"{name}, call {call}"
                assert settled(emulated) == alive, f"{name}, call {call}, the next run"
    recovered = {"zeMemAllocDevice"} if code == OUT_OF_DEVICE_MEMORY else set()  # by waiting
    silent = set(names) - set(raised) - recovered
    assert silent <= {*CLEANING, "zeEventQueryStatus"}, "calls whose failure nobody hears of"


# Of the functions, those that only happen once in a process, on stored code, or where something is refused.
UNUSED = {
    *("zeInit", "zeDriverGet", "zeDeviceGet", "zeContextCreate", "zeContextDestroy"),
    *("zeModuleGetNativeBinary", "zeModuleBuildLogGetString"),
}


def test_the_scenario_with_a_slow_device(emulated: Loader) -> None:
    emulated.pace(delay=300)
    scenario()
    assert emulated.violations() == []


@pytest.mark.parametrize("call", [0, 1, 2], ids="the log's call {} fails".format)
def test_spirv_that_the_driver_refuses(emulated: Loader, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    from tack.runtime.level_zero import ocloc

    @tack.kernel
    def broken(x: Any) -> None:
        for i in range(x.shape[0]):
            x[i] = x[i] + 1

    compile_spirv: Any = ocloc.compile_spirv

    def nothing(*args: Any, **options: Any) -> bytes:
        head, _, _ = compile_spirv(*args, **options).partition(b"\n")
        return bytes(head) + b"\nno program"

    monkeypatch.setattr(ocloc, "compile_spirv", nothing)
    before = emulated.alive()
    if call:
        emulated.fail("zeModuleBuildLogGetString", INVALID_ARGUMENT, call)
    message = r"Kernel 'broken' failed on Level Zero: the driver refuses the SPIR-V: .*MODULE_BUILD_FAILURE"
    with pytest.raises(RuntimeError, match=message) as caught:
        broken(tack.ones(3))
    assert ("error" in str(caught.value)) == (call == 0), "what the log says"
    after = emulated.alive()
    assert [after[kind] - before[kind] for kind in ("modules", "kernels", "logs")] == [0, 0, 0]
