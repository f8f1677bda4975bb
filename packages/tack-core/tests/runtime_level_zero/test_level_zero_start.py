"""Starting: what is missing is said, options are checked, and what devices report decides what they do."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from emulated.level_zero import Loader
from steered import InAProcess

import tack

FAILS = """
import tack
try:
    tack.device("level_zero")
except RuntimeError as error:
    print(error)
    print(type(error.__cause__).__name__, "|", error.__cause__.__cause__)
print(tack.default_device(), [s.reason for s in tack.devices() if s.spec == "level_zero"])
"""


def test_no_device(emulated: Loader, in_a_process: InAProcess) -> None:
    text = in_a_process("emulated.devices(0)" + FAILS)
    assert text.startswith("device 'level_zero' cannot start on Linux")
    assert "the Level Zero drivers find no GPU; may this user open /dev/dri/renderD*?\n  help: " in text
    assert "cpu ['the Level Zero drivers find no GPU; may this user open" in text


def test_no_driver(emulated: Loader, in_a_process: InAProcess) -> None:
    text = in_a_process("emulated.fail('zeInit', 0x78000001)" + FAILS)
    assert "the Level Zero loader finds no driver (Debian's" in text
    assert "RuntimeError | ZE_RESULT_ERROR_UNINITIALIZED in zeInit" in text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("Init", "the Level Zero drivers do not start: {}"),
        ("DriverGet", "the Level Zero drivers do not list their devices: {}"),
        ("DeviceGet", "the Level Zero drivers do not list their devices: {}"),
        ("DeviceGetProperties", "the Level Zero drivers do not list their devices: {}"),
        ("DriverGetProperties", "{}"),
        ("DeviceGetComputeProperties", "{}"),
        ("ContextCreate", "{}"),
        ("CommandListCreateImmediate", "{}"),
    ],
)
def test_a_driver_that_does_not_start(
    emulated: Loader, in_a_process: InAProcess, function: str, message: str
) -> None:
    again = """
left = {kind: count for kind, count in emulated.alive().items() if count}
print(left, tack.ones(3, device="level_zero").sum())
"""
    text = in_a_process(f"emulated.fail('ze{function}', 0x70000001)" + FAILS + again)
    failure = message.format(f"ZE_RESULT_ERROR_DEVICE_LOST in ze{function}")
    assert text.startswith("device 'level_zero' cannot start on Linux")
    assert f": {failure}\n  help: " in text
    left = {"contexts": 2, "lists": 2}  # of the two devices that the list of devices has started since
    assert text.endswith(f"\n{left} 3.0\n"), "nothing is left of the failed start, and the next one works"


def test_no_loader() -> None:
    code = """
        import ctypes
        from tack.runtime.level_zero import api
        api.Api.__init__.__defaults__ = ("libze_that_is_not_there.so.1",)
    """
    text = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + FAILS], capture_output=True, text=True, check=True
    ).stdout
    assert "there is no Level Zero loader (libze_loader.so.1; Debian's" in text
    assert "help: install Intel's GPU driver with the Level Zero loader" in text
    assert "RuntimeError | libze_that_is_not_there.so.1: cannot open" in text


def test_an_old_loader() -> None:
    code = """
        from tack.runtime.level_zero import api
        api.Api.__init__.__defaults__ = ("libm.so.6",)
    """
    text = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + FAILS], capture_output=True, text=True, check=True
    ).stdout
    assert "the Level Zero loader is too old" in text
    assert "zeInit" in text


def test_no_ocloc(emulated: Loader, in_a_process: InAProcess) -> None:
    code = """
        from tack.runtime.level_zero import ocloc
        def find():
            raise RuntimeError("ocloc, which compiles the kernels, is not installed")
        ocloc.find = find
    """
    assert "ocloc, which compiles the kernels, is not installed" in in_a_process(
        textwrap.dedent(code) + FAILS
    )


def test_ordinals(emulated: Loader) -> None:
    with pytest.raises(
        ValueError, match="there is no device 'level_zero:7'; there are: 'level_zero', 'level_z"
    ):
        tack.device("level_zero:7")
    names = [s.spec for s in tack.devices() if s.spec.startswith("level_zero")]
    assert names == ["level_zero", "level_zero:1"]


def test_info(emulated: Loader, in_a_process: InAProcess) -> None:
    code = """
        from tack.info import collect, render
        text = render(collect())
        print(text)
        assert max(map(len, text.splitlines())) <= 120
    """
    text = in_a_process(code)
    assert "Device level_zero\n" in text
    assert "Emulated Intel GPU" in text
    assert "1.3.1" in text


WITHOUT_F64 = """
emulated.features(f64=False)
import numpy as np, tack
device = tack.device("level_zero")
tack.set_default_device(device)
print(device.supports_f64, [str(t) for t in device.supported_dtypes])
for make in (lambda: tack.zeros(3, tack.f64), lambda: tack.asarray(np.zeros(3))):
    try:
        make()
    except TypeError as error:
        print(error)
@tack.kernel
def halves(x):
    for i in range(x.shape[0]):
        x[i] = x[i] * 0.5
@tack.kernel
def wide(x):
    for i in range(x.shape[0]):
        x[i] = tack.f64(x[i]) * 2.0
x = tack.asarray(np.arange(1000, dtype="f4"))
halves(x)
print(np.array_equal(x.numpy(), np.arange(1000) / 2))
try:
    wide(x)
except TypeError as error:
    print(error)
y = tack.asarray((np.arange(100_000) * 0.1).astype("f4"))
exact = float(np.sum(y.numpy().astype("f8")))
print(abs(y.sum() - exact) <= 1e-6 * exact, y.max() == y.numpy().max(), abs(y.mean() - exact / 1e5) < 1)
"""


def test_a_device_without_f64(emulated: Loader, in_a_process: InAProcess) -> None:
    lines = in_a_process(WITHOUT_F64).splitlines()
    assert lines[0] == "False ['i8', 'u8', 'i16', 'u16', 'i32', 'u32', 'i64', 'u64', 'f32']"
    assert "f64" in lines[1]
    assert "Level Zero" in lines[1]
    assert "f64" in lines[2]
    assert lines[3] == "True"
    assert lines[4].startswith("kernel 'wide': Level Zero has no f64; it supports: i8, ")
    assert "|         x[i] = tack.f64(x[i]) * 2.0" in "\n".join(lines[5:-1])
    assert lines[-1] == "True True True"


SMALL_GROUPS = """
emulated.features(group=128)
import tack
device = tack.device("level_zero")
print(device.supports_workgroups, device.supports_device_reductions)
@tack.kernel
def scale(x):
    for i, j in tack.ndindex(x.shape[0], x.shape[1]):
        x[i, j] = x[i, j] * 2
@tack.kernel
def total(x):
    for i in range(x.shape[0]):
        x[i] = tack.block_sum(x[i])
x = tack.ones((256, 2), device=device)
for call in (lambda: scale(x), lambda: total(x.ravel())):
    try:
        call()
    except RuntimeError as error:
        print(error)
print(x.sum())
"""


def test_a_device_whose_groups_are_too_small(emulated: Loader, in_a_process: InAProcess) -> None:
    lines = in_a_process(SMALL_GROUPS).splitlines()
    assert lines[0] == "False False"
    assert "runs in groups of 256 work-items, and the device has at most 128 in one" in lines[1]
    assert "kernel 'total' uses tack.block_sum, and Level Zero runs no workgroups" in "\n".join(lines[2:])
    assert lines[-1] == "512.0"


FEW_GROUPS = """
emulated.features(groups=3)
import tack
tack.set_default_device("level_zero")
@tack.kernel
def number(x):
    for i in range(x.shape[0]):
        x[i] = x[i] + i
@tack.kernel
def numbers(x):
    for i, j, k in tack.ndindex(x.shape[0], x.shape[1], x.shape[2]):
        x[i, j, k] = x[i, j, k] + (i * 1000 + j) * 1000 + k
@tack.kernel
def groups(x):
    for i in range(x.shape[0]):
        tack.barrier()
        x[i] = i
x, y, z = tack.zeros(10_001, tack.i32), tack.zeros((9, 11, 700), tack.i32), tack.full(1024, -1, tack.i32)
number(x)
numbers(y)
print(x.numpy().tolist() == list(range(10_001)))
expected = [i * 10**6 + j * 1000 + k for i in range(9) for j in range(11) for k in range(700)]
print(y.numpy().ravel().tolist() == expected)
groups(z[:768])
try:
    groups(z)
except ValueError as error:
    print(error)
print(z.numpy().tolist() == [*range(768), *[-1] * 256])
"""


def test_a_device_whose_launches_have_few_groups(emulated: Loader, in_a_process: InAProcess) -> None:
    """Kernels stride, but for those of workgroups."""
    one, three, refusal, untouched = in_a_process(FEW_GROUPS).splitlines()
    assert (one, three, untouched) == ("True",) * 3
    assert "768" in refusal


# --- contexts -----------------------------------------------------------------------------------


@tack.kernel
def add(x: Any, y: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = y[i] + x[i]


def test_external_contexts(emulated: Loader, backend: Any) -> None:
    handle = backend.queue.context.handle
    before = emulated.calls("zeContextCreate")
    adopted = tack.device("level_zero", external_context=handle)
    other = tack.device("level_zero", external_context=ctypes.c_void_p(handle))
    assert emulated.calls("zeContextCreate") == before
    assert adopted != other != tack.device("level_zero")
    x, y = tack.arange(500, dtype=tack.i32, device=adopted), tack.ones(500, tack.i32)
    add(x, y)  # one context, so that either device addresses both
    with other:
        add(y, x)
    add(x, y)
    tack.copyto(x, y)
    expected = np.arange(500)
    expected = 3 * expected + 2
    assert x.numpy().tolist() == expected.tolist()
    del adopted, other, x
    assert y.numpy().tolist() == expected.tolist()
    assert emulated.alive()["contexts"] >= 1


def test_contexts_of_their_own_are_other_memory(emulated: Loader, backend: Any) -> None:
    from tack.runtime.level_zero import api as ze
    from tack.runtime.level_zero import driver

    description = ze.structure(ze.ContextDesc)
    handle = driver.api.make("ContextCreate", backend.queue.context.device.driver, ctypes.byref(description))
    foreign = tack.device("level_zero", external_context=handle)
    x, y = tack.ones(300, tack.i32, device=foreign), tack.ones(300, tack.i32)
    with pytest.raises(ValueError, match="must share a device: 'x' on Level Zero, 'y' on Level Zero; move"):
        add(x, y)
    assert tack.memory_space(y.address, device=foreign) == "cpu"
    tack.copyto(y, x)
    assert y.numpy().tolist() == [1] * 300
    contexts = emulated.alive()["contexts"]
    del x, foreign
    import gc

    gc.collect()
    assert emulated.alive()["contexts"] == contexts, "it is the caller's"
    driver.api.call("ContextDestroy", handle)


@pytest.mark.parametrize("wrong", ["7", 1.5, True, object()])
def test_what_is_no_context(wrong: object) -> None:
    with pytest.raises(
        TypeError, match="external_context is a ze_context_handle_t as an int or c_void_p, not"
    ):
        tack.device("level_zero", external_context=wrong)


@pytest.mark.parametrize("wrong", [0, -1, ctypes.c_void_p()])
def test_null_contexts(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not the handle of a Level Zero context"):
        tack.device("level_zero", external_context=wrong)
