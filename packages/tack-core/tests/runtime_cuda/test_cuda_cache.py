"""Compiled kernels on disk: what the key has, and that a warm start does not load NVRTC."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from emulated.driver import Driver

TESTS = Path(__file__).parent.parent

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from emulated.driver import install
emulated = install()
{before}
import numpy as np
import tack
from tack.runtime.cuda import nvrtc
compiled = []
compile_image = nvrtc.compile_cubin
def compile_cubin(*args):
    compiled.append(args[1])
    return compile_image(*args)
nvrtc.compile_cubin = compile_cubin

@tack.kernel
def scale(x, a):
    for i in range(x.shape[0]):
        x[i] = x[i] * a

@tack.kernel
def report(x) -> tack.f32:
    for i in range(1):
        print("value", x[3])
    return x[3]

tack.set_default_device("cuda")
x = tack.full(10, 2.0)
scale(x, 1.5)
assert report(x) == 3.0
assert (x.numpy() == 3).all()
assert "cuda.bindings.nvrtc" not in sys.modules
assert "libnvrtc" not in open("/proc/self/maps").read()
print("compiled", *compiled)
"""


@pytest.fixture
def run(tmp_path: Path, emulated: Driver):
    program = tmp_path / "program.py"

    def go(before: str = "") -> list[str]:
        program.write_text(PROGRAM.format(tests=str(TESTS), before=before))
        import os

        env = {**os.environ, "TACK_CACHE": "write", "TACK_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, str(program)], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == "value 3.0"
        return lines[1].split()[1:]

    return go


KERNELS = ["scale.cu", "report.cu"]


def test_a_warm_start_compiles_nothing(run) -> None:
    assert run() == KERNELS
    assert run() == []


@pytest.mark.parametrize(
    "change",
    [
        "emulated.version(80, 13000)",
        "emulated.version(90, 13010)",
        "from tack.runtime.cuda import nvrtc; nvrtc.OPTIONS = (*nvrtc.OPTIONS, '--more')",
        "from tack.runtime.cuda import nvrtc; nvrtc.find = lambda: nvrtc.Library('', 'another')",
    ],
)
def test_what_code_depends_on_is_in_the_key(run, change: str) -> None:
    assert run() == KERNELS
    assert run(change) == KERNELS
    assert run(change) == []
    assert run() == []


def test_an_image_that_the_driver_refuses_is_compiled_again(run) -> None:
    assert run() == KERNELS
    assert run("emulated.fail('cuModuleLoadData', 200)") == ["scale.cu"]
    assert run() == []
