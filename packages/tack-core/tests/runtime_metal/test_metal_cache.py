"""Compiled kernels on disk, which are MSL for Metal: macOS compiles it in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
Run = Callable[..., list[str]]

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from emulated import metal_driver
CONTROL = metal_driver.install()
{before}
import tack
from tack.codegen import c
generate = c.generate
generated = []
def generate_noted(kernel, *args, **kwargs):
    generated.append(kernel.name)
    return generate(kernel, *args, **kwargs)
c.generate = generate_noted

@tack.kernel
def scale(x, a):
    for i in range(x.shape[0]):
        x[i] = x[i] * a

@tack.kernel(fastmath=True)
def root(x) -> tack.f32:
    for i in range(x.shape[0]):
        x[i] = sqrt(x[i])
    return x[3]

tack.set_default_device("metal")
import Metal
modes = []
compile_source = Metal.MTLDevice.newLibraryWithSource_options_error_
def compile_noted(self, source, options, out):
    modes.append("relaxed" if options.math else "safe")
    return compile_source(self, source, options, out)
Metal.MTLDevice.newLibraryWithSource_options_error_ = compile_noted
x = tack.full(10, 4.5)
scale(x, 2.0)
assert root(x) == 3.0
assert (x.numpy() == 3).all()
print(*generated, "|", *modes)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run(before)``: the kernels that a process generates code for, and the math mode of each compile."""
    program = tmp_path / "program.py"

    def go(before: str = "") -> list[str]:
        program.write_text(PROGRAM.format(before=before, tests=str(TESTS)))
        env = {**os.environ, "TACK_CACHE": "write", "TACK_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, str(program)], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split()

    return go


COLD = ["scale", "root", "|", "safe", "relaxed"]
WARM = ["|", "safe", "relaxed"]


def test_a_warm_start_generates_nothing_and_keeps_the_math_mode(run: Run) -> None:
    assert run() == COLD
    assert run() == WARM


@pytest.mark.parametrize(
    "change",
    [
        "import platform; platform.mac_ver = lambda: ('27.1', ('', '', ''), 'arm64')",
        "metal_driver.CONTROL.name = 'Another GPU'",
        "from tack.runtime.metal import program; program.OPTIONS = 'others'",
    ],
    ids=["system", "gpu", "options"],
)
def test_what_code_depends_on_is_in_the_key(run: Run, change: str) -> None:
    assert run() == COLD
    assert run(change) == COLD
    assert run(change) == WARM
    assert run() == WARM


def test_source_that_metal_refuses_is_generated_again(run: Run) -> None:
    """As after an update of macOS whose compiler takes less."""
    assert run() == COLD
    found = run("CONTROL.fail('newLibraryWithSource_options_error_')")
    assert found == ["scale", "|", "safe", "safe", "relaxed"]
    assert run() == WARM
