"""Compiled kernels on disk: what the key has, and that a warm start does not load the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated.driver import Driver

from .conftest import Api

TESTS = Path(__file__).parent.parent
Run = Callable[..., list[str]]

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from emulated.driver import install
emulated = install({api!r})
{before}
import numpy as np
import tack
{compiler}
compiled = []
compile_image = module.{function}
def compile_noted(*args):
    compiled.append(args[1])
    return compile_image(*args)
module.{function} = compile_noted

@tack.kernel
def scale(x, a):
    for i in range(x.shape[0]):
        x[i] = x[i] * a

@tack.kernel
def report(x) -> tack.f32:
    for i in range(1):
        print("value", x[3])
    return x[3]

tack.set_default_device({api!r})
x = tack.full(10, 2.0)
scale(x, 1.5)
assert report(x) == 3.0
assert (x.numpy() == 3).all()
assert "cuda.bindings.nvrtc" not in sys.modules
maps = open("/proc/self/maps").read()
assert "libnvrtc" not in maps and "libhiprtc" not in maps
print("compiled", *compiled)
"""


@pytest.fixture
def run(tmp_path: Path, emulated: Driver, api: Api) -> Run:
    program = tmp_path / "program.py"
    module, function = api.compiler
    package, _, name = module.__name__.rpartition(".")
    names = {
        "tests": str(TESTS),
        "api": api.name,
        "compiler": f"from {package} import {name} as module",
        "function": function,
    }

    def go(before: str = "") -> list[str]:
        program.write_text(PROGRAM.format(before=before, **names))
        env = {**os.environ, "TACK_CACHE": "write", "TACK_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, str(program)], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == "value 3.0"
        return [name.split(".")[0] for name in lines[1].split()[1:]]

    return go


KERNELS = ["scale", "report"]


def test_a_warm_start_compiles_nothing(run: Run) -> None:
    assert run() == KERNELS
    assert run() == []


CHANGES = {
    "cuda": [
        "emulated.version('80', 13000)",
        "emulated.version('90', 13010)",
        "from tack.runtime.cuda import nvrtc; nvrtc.OPTIONS = (*nvrtc.OPTIONS, '--more')",
        "from tack.runtime.cuda import nvrtc; nvrtc.find = lambda: nvrtc.Library('', 'another')",
    ],
    "hip": [
        "emulated.version('gfx1030:xnack-', 60300000)",
        "emulated.version('gfx1030', 60400000)",
        "from tack.runtime.hip import hiprtc; hiprtc.OPTIONS = (*hiprtc.OPTIONS, '-g')",
        "from tack.runtime.hip import hiprtc; hiprtc.version = lambda: (6, 4)",
        "import hip; hip.VERSION = '0'",
    ],
}


@pytest.mark.parametrize("number", range(5))
def test_what_code_depends_on_is_in_the_key(run: Run, api: Api, number: int) -> None:
    for change in CHANGES[api.name][number : number + 1]:
        assert run() == KERNELS
        assert run(change) == KERNELS
        assert run(change) == []
        assert run() == []


def test_an_image_that_the_driver_refuses_is_compiled_again(run: Run, api: Api) -> None:
    assert run() == KERNELS
    assert run(f"emulated.fail({api.function('ModuleLoadData')!r}, 200)") == ["scale"]
    assert run() == []
