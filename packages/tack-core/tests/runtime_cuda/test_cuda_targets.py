"""A run without ``--target cuda`` starts the tests of CUDA's runtime on the emulated driver."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_runtime_on_the_emulated_driver(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--target") != "cpu":
        return  # they are part of this run
    missing = [name for name in ("g++", "ld") if shutil.which(name) is None]
    missing += ["cuda-bindings"] if importlib.util.find_spec("cuda") is None else []
    if missing and "cuda-emu" not in os.environ.get("TACK_REQUIRE_TARGETS", ""):
        pytest.skip(f"the emulated driver needs {', '.join(missing)}")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--target", "cuda-emu"]
    done = subprocess.run([*command, str(Path(__file__).parent)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]
