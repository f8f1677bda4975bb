"""Starting and ending: what is missing is said, and what is queued is done."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from emulated.metal_driver import CONTROL

import tack

TESTS = Path(__file__).parent.parent


def in_a_process(code: str) -> str:
    """What a program prints that has the fake of Metal, steered by ``CONTROL``."""
    start = f"import sys; sys.path.insert(0, {str(TESTS)!r})\nfrom emulated import metal_driver\n"
    program = f"{start}CONTROL = metal_driver.install()\n{textwrap.dedent(code)}"
    env = {**os.environ, "TACK_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "to compile for Metal" not in line]
    return done.stdout


FAILS = """
import tack
try:
    tack.device("metal")
except RuntimeError as error:
    print(error)
print(tack.default_device(), [s.reason for s in tack.devices() if s.spec == "metal"])
"""


def test_no_bindings() -> None:
    text = in_a_process(f"sys.modules['Metal'] = None{FAILS}")
    assert text.startswith("device 'metal' cannot start on Linux")
    assert (
        "the package pyobjc-framework-Metal, which exists on macOS only, is not installed or does not load"
        in text
    )
    assert 'help: pip install "tack-core[metal]"' in text


def test_no_bindings_on_a_mac() -> None:
    text = in_a_process(
        f"import platform; platform.system = lambda: 'Darwin'\nsys.modules['objc'] = None{FAILS}"
    )
    assert text.startswith("device 'metal' cannot start on Darwin")
    assert "the package pyobjc-framework-Metal is not installed or does not load" in text


def test_no_device() -> None:
    text = in_a_process(f"CONTROL.fail('MTLCreateSystemDefaultDevice'){FAILS}")
    assert "Metal finds no GPU; a process without a login session sees none" in text


def test_a_gpu_or_a_system_that_is_too_old() -> None:
    text = in_a_process(f"CONTROL.system = 12{FAILS}")
    assert "Emulated GPU lacks Metal 3, of macOS 13 and GPUs since 2017, which Tack needs" in text


def test_no_queue() -> None:
    assert "Metal gives no command queue" in in_a_process(f"CONTROL.fail('newCommandQueue'){FAILS}")


def test_a_start_that_failed_is_tried_again() -> None:
    text = in_a_process(f"CONTROL.fail('newCommandQueue'){FAILS}\nprint(tack.device('metal'))")
    assert text.endswith("\nmetal\n")


def test_what_the_device_says_of_itself() -> None:
    device = tack.device("metal")
    assert (device.name, device.index, device.label, str(device)) == ("metal", 0, "Metal", "metal")
    assert tack.f64 not in device.supported_dtypes
    assert len(device.supported_dtypes) == 9
    assert device.supported_atomic_dtypes == (tack.i32, tack.u32, tack.f32)
    assert not device.supports_f64
    assert not device.supports_print
    assert device.supports_workgroups
    with pytest.raises(ValueError, match="device 'metal' has no option 'stream'"):
        tack.device("metal", stream=1)


def test_info() -> None:
    text = in_a_process("from tack.info import collect, render\nprint(render(collect()))")
    assert "Device metal\n" in text
    assert "Emulated GPU" in text
    assert max(map(len, text.splitlines())) <= 120


KERNEL = """
import linecache
source = "import tack\\n@tack.kernel\\ndef scale(x, a):\\n    for i in range(x.shape[0]):"
source += "\\n        x[i] = x[i] * a\\n"
linecache.cache["<k>"] = (len(source), None, source.splitlines(True), "<k>")
space = {}
exec(compile(source, "<k>", "exec"), space)
scale, tack = space["scale"], space["tack"]
tack.set_default_device("metal")
x = tack.ones(1000)
"""


def test_programs_may_end_with_work_queued() -> None:
    """The open command buffer is committed, and waited for, before the process ends."""
    code = """
        for _ in range(3):
            scale(x, 2.0)
        import atexit
        assert CONTROL.calls["commit"] == 0
        class Late:
            def __del__(self):
                del self.array
        late = Late()
        late.array = x
        print("end")
        def last():
            print(CONTROL.calls["commit"], CONTROL.calls["run"], CONTROL.misuse)
        # Handlers run in the opposite order, and this one is to come after the backend's.
        from tack.runtime.metal import api
        atexit.unregister(api._finish)
        atexit.register(last)
        atexit.register(api._finish)
    """
    assert in_a_process(KERNEL + textwrap.dedent(code)) == "end\n1 3 []\n"


@pytest.mark.parametrize("system", [14, 15])
def test_both_ways_of_compile_options(system: int) -> None:
    """Before macOS 15 there are no math modes and no MSL 3.2, which the fake refuses then."""
    from tack.runtime.dispatch import default_backend
    from tack.runtime.metal.program import compile_library

    before, CONTROL.system = CONTROL.system, system
    try:
        for text in ("", "// relaxed\n"):
            library = compile_library(default_backend().device, f"{text}// {system}\n".encode())  # type: ignore[attr-defined]
            assert library.options.math == (1 if text and system == 15 else 0)
    finally:
        CONTROL.system = before
