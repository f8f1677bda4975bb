"""Starting: what is missing is said, and options are checked."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from emulated.driver import Driver

import tack

from .conftest import Api

TESTS = Path(__file__).parent.parent


def in_a_process(api: str, code: str) -> str:
    """What a program prints that has the emulated driver installed as ``emulated``."""
    start = f"import sys; sys.path.insert(0, {str(TESTS)!r})\nfrom emulated.driver import install\n"
    start += "import logging; logging.getLogger('tack').addHandler(logging.NullHandler())\n"  # slow compiles
    program = start + f"api = {api!r}\nemulated = install(api)\n" + textwrap.dedent(code)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"  # a file, in which kernels find their source
        path.write_text(program)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


FAILS = """
import tack
try:
    tack.device(api)
except RuntimeError as error:
    print(error)
    print(type(error.__cause__).__name__, "|", error.__cause__.__cause__)
print(tack.default_device(), [s.reason for s in tack.devices() if s.spec == api])
"""

# The module of the bindings and their package, the driver, and the function that starts it.
PARTS = {
    "cuda": ("cuda.bindings", "cuda-bindings", "the NVIDIA driver", "cuInit"),
    "hip": ("hip", "hip-python", "the ROCm runtime", "hipInit"),
}


def test_no_bindings(emulated: Driver, api: Api) -> None:
    module, package, *_ = PARTS[api.name]
    text = in_a_process(api.name, f"sys.modules[{module!r}] = None" + FAILS)
    assert text.startswith(f"device '{api.name}' cannot start on Linux")
    assert f"the package {package} is not installed or does not load" in text
    assert f'help: pip install "tack-core[{api.name}]"' in text
    assert f"RuntimeError | import of {module} halted" in text
    assert f"cpu ['the package {package} is not installed or does not load']" in text


def test_a_driver_that_does_not_start(emulated: Driver, api: Api) -> None:
    _, _, driver, function = PARTS[api.name]
    text = in_a_process(api.name, f"emulated.fail({function!r}, 3)" + FAILS)
    assert f"{driver} does not start: " in text


def test_a_driver_that_does_not_tell_addresses(emulated: Driver, api: Api) -> None:
    """Launches go by way of Python then."""
    function = {"cuda": "cuGetProcAddress_v2", "hip": "hipGetProcAddress"}[api.name]
    code = f"""
    import logging
    import tack
    logging.getLogger("tack").setLevel("ERROR")  # a compile may take long
    tack.set_default_device(api)
    @tack.kernel
    def double(x):
        for i in range(x.shape[0]):
            x[i] = x[i] * 2
    x = tack.ones(10, tack.i32)
    before = emulated.calls({function!r})
    emulated.fail({function!r}, 1)
    for _ in range(5):
        double(x)
    print(x.sum(), emulated.calls({function!r}) > before)
    """
    assert in_a_process(api.name, code) == "320 True\n"


def test_no_device(emulated: Driver, api: Api) -> None:
    text = in_a_process(api.name, "emulated.devices(0)" + FAILS)
    assert f"{PARTS[api.name][2]} finds no {api.label} device\n  help: " in text
    assert api.errors[100] in text


def test_ordinals(emulated: Driver, api: Api) -> None:
    with pytest.raises(
        ValueError, match=f"there is no device '{api.name}:7'; there are: '{api.name}', '{api.name}:1'"
    ):
        tack.device(f"{api.name}:7")
    assert [s.spec for s in tack.devices() if s.spec.startswith(api.name)] == [api.name, f"{api.name}:1"]


def test_info(emulated: Driver, api: Api) -> None:
    code = """
        from tack.info import collect, render
        text = render(collect())
        print(text)
        assert max(map(len, text.splitlines())) <= 120
    """
    text = in_a_process(api.name, code)
    assert f"Device {api.name}\n" in text
    assert f"Device {api.name}:1\n" in text
    assert "Emulated GPU 0" in text
    for fact in {"cuda": ("9.0", "13.0"), "hip": ("gfx1030", "hipRTC 6.3")}[api.name]:
        assert fact in text


def test_the_driver_says_what_it_is_called_with(emulated: Driver, api: Api) -> None:
    """The emulated driver keeps the rules that tests rely on."""
    driver = api.driver
    backend: Any = tack.device(api.name)._backend
    other: Any = tack.device(f"{api.name}:1")._backend

    def code(result: Any) -> int:
        return int(result[0])

    with backend.queue.entered():
        address = driver.check(driver.MemAlloc(1000))
        assert code(driver.MemcpyDtoDAsync(address, int(address) + 4000, 8, backend.queue.stream)) == 1
        assert code(driver.MemsetD8Async(address, 0, 100, other.queue.stream)) == 400
        driver.check(driver.MemFree(address))
        assert code(driver.MemFree(address)) == 1
        assert code(driver.MemsetD8Async(address, 0, 100, backend.queue.stream)) == 1
        stream = driver.check(driver.StreamCreate(0))
        driver.check(driver.StreamDestroy(stream))
        assert code(driver.StreamSynchronize(stream)) == 400
