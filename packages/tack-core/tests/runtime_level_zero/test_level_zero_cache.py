"""Compiled kernels on disk: what the key has, and that a warm start compiles nothing unless it has to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated.level_zero import Loader

TESTS = Path(__file__).parent.parent

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from emulated.level_zero import install
emulated = install({target!r})
from tack.runtime.level_zero import ocloc
compiled = []
compile_text = ocloc.compile_spirv
def compile_spirv(text, name, **options):
    compiled.append(name)
    return compile_text(text, name, **options)
ocloc.compile_spirv = compile_spirv
{before}
import numpy as np
import tack

@tack.kernel
def scale(x, a):
    for i in range(x.shape[0]):
        x[i] = x[i] * a / 3

@tack.kernel
def report(x) -> tack.f32:
    for i in range(1):
        print("value", x[3])
    return x[3]

tack.set_default_device("level_zero")
x = tack.full(10, 2.0)
scale(x, 4.5)
assert report(x) == 3.0
assert (x.numpy() == 3).all()
assert "libocloc" not in open("/proc/self/maps").read()
assert not emulated.violations()
print("modules", emulated.calls("zeModuleCreate"), *compiled)
"""

Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path, emulated: Loader, target_name: str) -> Run:
    program = tmp_path / "program.py"

    def go(before: str = "") -> tuple[int, list[str]]:
        program.write_text(PROGRAM.format(tests=str(TESTS), target=target_name, before=before))
        env = {**os.environ, "TACK_CACHE": "write", "TACK_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, str(program)], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == "value 3.0"
        _, modules, *compiled = lines[1].split()
        return int(modules), compiled

    return go


KERNELS = ["scale", "report"]


def test_a_warm_start_compiles_nothing(run: Run) -> None:
    assert run() == (2, KERNELS)
    assert run() == (2, [])


def test_machine_code_that_the_driver_refuses_is_made_again_from_spirv(run: Run) -> None:
    """By a driver that says it is the same one."""
    same = "from tack.runtime.level_zero import driver\nfeatures = driver.features\n"
    same += "driver.features = lambda device: features(device)._replace(driver=1)\n"
    assert run(same) == (2, KERNELS)
    assert run(same + "emulated.revision(7)\n") == (4, [])


@pytest.mark.parametrize("call", [1, 2])
def test_code_is_stored_without_machine_code_where_there_is_none(run: Run, call: int) -> None:
    assert run(f"emulated.fail('zeModuleGetNativeBinary', 0x78000003, {call})\n") == (2, KERNELS)
    assert run() == (2, [])


@pytest.mark.parametrize(
    "change",
    [
        "emulated.revision(2)",
        "ocloc.find = lambda: ocloc.Library('', 'newer')",
        "ocloc.OPTIONS += ('-cl-mad-enable',)",
        "emulated.features(f64=False)",
        "from tack.runtime.level_zero import driver\nfeatures = driver.features\n"
        "driver.features = lambda device: features(device)._replace(ip_version=5)",
        "from tack.runtime.level_zero import driver\nfeatures = driver.features\n"
        "driver.features = lambda device: features(device)._replace(name='another')",
    ],
)
def test_what_code_depends_on_is_in_its_key(run: Run, change: str) -> None:
    run()
    assert run(change + "\n") == (2, KERNELS)
