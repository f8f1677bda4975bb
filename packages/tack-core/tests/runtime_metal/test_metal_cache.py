"""Compiled kernels on disk, which are MSL for Metal: macOS compiles it in every process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from emulated.metal_driver import CONTROL

from tack.runtime.dispatch import default_backend
from tack.runtime.metal import program

TESTS = Path(__file__).parent.parent

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from emulated import metal_driver
CONTROL = metal_driver.install()
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
{before}
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


def run(folder: Path, before: str = "") -> list[str]:
    """What a program prints whose compiled kernels are in a folder."""
    file = folder / "program.py"
    file.write_text(PROGRAM.format(tests=str(TESTS), before=before))
    env = {**os.environ, "TACK_CACHE": "write", "TACK_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, file], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_warm_start_generates_nothing_and_keeps_the_math_mode(tmp_path: Path) -> None:
    assert run(tmp_path) == ["scale", "root", "|", "safe", "relaxed"]
    assert run(tmp_path) == ["|", "safe", "relaxed"]


def test_what_metal_refuses_is_generated_again(tmp_path: Path) -> None:
    run(tmp_path)
    refused = "CONTROL.fail('newLibraryWithSource_options_error_')"
    assert run(tmp_path, refused) == ["scale", "|", "safe", "safe", "relaxed"]


def test_what_code_depends_on_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU, macOS with its compiler, and what the compiler is told."""
    backend: Any = default_backend()
    keys = [backend.cache_target()]
    for owner, name, value in (
        (CONTROL, "name", "Another GPU"),
        (platform, "mac_ver", lambda: ("27.1", ("", "", ""), "arm64")),
        (program, "OPTIONS", "others"),
    ):
        monkeypatch.setattr(owner, name, value)
        keys.append(backend.cache_target())
    assert len(set(keys)) == 4
    assert all(dict(key).keys() == {"gpu", "system", "options"} for key in keys)
