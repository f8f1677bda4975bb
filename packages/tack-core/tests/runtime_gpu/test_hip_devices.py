"""HIP's own: what an architecture decides, devices of streams, launch limits, and starting without ROCm."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack
from tack.runtime.gpu.program import MAX_BLOCKS
from tack.runtime.hip import driver
from tack.runtime.hip.program import HipProgram

from .conftest import Api
from .test_gpu_start import in_a_process

TESTS = Path(__file__).parent.parent


@tack.kernel
def add(x: Any, y: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] + y[i]


ACCELERATOR = """
    import numpy as np
    import tack
    from conformance.helpers import build

    emulated.version("gfx90a:sramecc+:xnack-", 60300000)
    device = tack.device("hip")
    backend = device._backend

    head = "@tack.kernel\\ndef middle(tex, out):\\n    for i in range(out.shape[0]):\\n"
    middle = build(head + "        out[i] = tex.sample(0.5, 0.5, 0.5)\\n", "middle")

    with device:
        tex, out = tack.Texture3D(np.full((3, 3, 3), 5, np.float32)), tack.zeros(2)
        middle(tex, out)
        print(out.numpy().tolist(), "tex3D" in tack.inspect(middle, tex, out))
    print(backend.texture_in_hardware((1, 1, 1)), dict(backend.cache_target())["architecture"])
"""


def test_accelerators_sample_by_code(emulated: Driver) -> None:
    found = in_a_process("hip", ACCELERATOR)
    assert found == "[5.0, 5.0] False\nFalse gfx90a:sramecc+:xnack-\n"


def test_conformance_with_64_lanes_and_no_texture_units(emulated: Driver) -> None:
    names = ("test_workgroups.py", "test_textures.py", "test_reductions.py")
    files = [str(TESTS / "conformance" / name) for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--target", "hip-emu"]
    env = {**os.environ, "TACK_TEST_GFX": "gfx90a"}
    done = subprocess.run([*command, *files], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout


def test_attributes_that_a_runtime_does_not_know(emulated: Driver) -> None:
    """An old one refuses the number, and so has neither pools nor images."""
    found = driver.features(0)
    assert found.pools
    assert found.images
    emulated.fail("hipDeviceGetAttribute", 1)
    assert not driver.features(0).pools
    emulated.fail("hipDeviceGetAttribute", 1, 2)
    assert not driver.features(0).images
    emulated.fail("hipDeviceGetAttribute", 100)
    with pytest.raises(RuntimeError, match="hipErrorNoDevice"):
        driver.features(0)


def test_streams_of_other_devices_are_refused(emulated: Driver, api: Api) -> None:
    context = tack.device("hip:1")._backend.queue.context  # type: ignore[attr-defined]
    with context.entered():
        stream = api.driver.check(api.driver.StreamCreate(0))
        try:
            with pytest.raises(ValueError, match="the stream is on device 1, and not on 'hip:0'"):
                tack.device("hip", stream=stream)
        finally:
            api.driver.check(api.driver.StreamDestroy(stream))


def test_what_is_not_hips(api: Api) -> None:
    x = tack.zeros(3)
    with pytest.raises(RuntimeError, match="HIP"):
        x.share()
    with pytest.raises(RuntimeError, match="HIP"):
        tack.empty(3, shareable=True)
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(ValueError, match=r"num_threads.*stream"):
        tack.device("hip", num_threads=2)


def test_memory_is_a_devices_whatever_the_stream(emulated: Driver, api: Api) -> None:
    """Backends of one device run kernels on each other's arrays, and those of two do not."""
    first, second = tack.device("hip"), tack.device("hip:1")
    with first._backend.queue.entered():  # type: ignore[attr-defined]
        stream = api.driver.check(api.driver.StreamCreate(0))
    other = tack.device("hip", stream=stream)
    domains = [device._backend.memory_domain for device in (first, other, second)]
    assert domains == [("hip", 0), ("hip", 0), ("hip", 1)]
    x, y = tack.arange(4, dtype=tack.f32, device=first), tack.ones(4, device=other)
    add(x, y)
    assert x.numpy().tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="'x' on HIP, 'y' on HIP 1"):
        add(x, tack.ones(4, device=second))


def test_threads_run_on_with_an_old_hip_python(
    emulated: Driver, busy: Any, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before version 10 it holds the GIL in every call, so that what waits is called by its address."""
    for name in driver._WAITING:
        monkeypatch.setitem(driver.DRIVER.__dict__, name, None)  # to have it back afterwards
    driver.DRIVER.release_gil()
    assert None not in [driver.DRIVER.__dict__[name] for name in driver._WAITING]
    tack.device("hip").synchronize()
    y = tack.ones(10)
    add(y, y)
    with busy():
        add(y, y)
        later()  # a thread of Python lets the device go on
        assert y.numpy().tolist() == [4] * 10
    x = tack.arange(3_000_000, dtype=tack.i32)
    assert x.numpy()[::999_999].tolist() == [0, 999_999, 1_999_998, 2_999_997]
    assert tack.asarray(np.arange(5, dtype=np.float32), device="hip").sum() == 10
    emulated.fail("hipMemcpyDtoHAsync", 1)
    with pytest.raises(RuntimeError, match="hipErrorInvalidValue"):
        x.numpy()
    assert x[5] == 5


@pytest.mark.parametrize(("block", "flat"), [((128, 1, 1), True), ((256, 1, 1), True), ((128, 2, 1), False)])
def test_a_grid_has_fewer_than_2_32_threads_along_an_axis(block: tuple[int, int, int], flat: bool) -> None:
    about = {
        "name": "k",
        "slots": "=qqq",
        "entry": "k",
        "result": None,
        "result_dtype": None,
        "flat": flat,
        "block": block,
        "items": [1, 1, 1],
        "strides": True,
        "prints": [],
        "textures": [],
        "record": None,
    }
    program = HipProgram.__new__(HipProgram)
    super(HipProgram.__mro__[1], program).__init__(about, b"", ())
    grid = program.grid([0, 1, 1 << 40, 0, 1, 1 << 40], 1 << 40)
    assert all(n * size < 1 << 32 for n, size in zip(grid, block, strict=True))
    assert (grid[0] + 1) * block[0] >= 1 << 32
    assert grid[1] <= MAX_BLOCKS[1]


def test_without_rocm_or_a_device() -> None:
    code = """
        import tack
        try:
            tack.device("hip")
        except RuntimeError as error:
            text = str(error)
            assert "ROCm runtime" in text or "hipRTC" in text, text
            assert "tack-core[hip]" in text
            assert error.__cause__ is not None
        """
    env = {name: value for name, value in os.environ.items() if name != "ROCM_PATH"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, check=True, timeout=60)
