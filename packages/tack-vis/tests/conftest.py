"""Settings of the tests, and the ``--target`` option: which device the volumes are on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
sys.path.insert(1, str(Path(__file__).parents[2] / "tack-core" / "tests"))

import on_target

# Tests measure compilers, not what an earlier run left on disk; and they check every pass.
os.environ.setdefault("TACK_CACHE", "off")
os.environ.setdefault("TACK_VERIFY", "1")
# What LLVM's optimizer takes in the background is not a contour's memory.
os.environ.setdefault("TACK_CPU_COMPILE", "optimized")

settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    on_target.add_option(parser)


@pytest.fixture(scope="session", autouse=True)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device of the target under test, which is the default one, so that it takes the NumPy arrays."""
    import tack

    name: str = request.config.getoption("--target")
    before = tack.default_device()
    if name != "cpu":
        on_target.require(name)
        tack.set_default_device(on_target.device_of(name))
    yield on_target.device_of(name)
    tack.set_default_device(before)
