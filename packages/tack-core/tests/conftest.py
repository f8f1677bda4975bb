"""The ``--target`` option: which device the conformance suite runs on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The suites are packages beside this file, and the differential one uses the conformance oracle.
sys.path.insert(0, str(Path(__file__).parent))

import on_target
from on_target import TARGETS

# Tests measure compilers, not what an earlier run left on disk.
os.environ.setdefault("TACK_CACHE", "off")
# Launches run optimized code from the first on, which is what most tests are about.
os.environ.setdefault("TACK_CPU_COMPILE", "optimized")
# Every test checks the intermediate representation around every pass.
os.environ.setdefault("TACK_VERIFY", "1")

# Hypothesis draws the same examples in every run; --hypothesis-profile=default draws new ones.
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    on_target.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "f64: a test of f64, which devices without it must refuse")
    target = config.getoption("--target")
    required = set(os.environ.get("TACK_REQUIRE_TARGETS", "").replace(",", " ").split())
    if target not in TARGETS:
        raise pytest.UsageError(f"--target {target}: unknown; choose one of {', '.join(TARGETS)}")
    if unknown := required - set(TARGETS):
        raise pytest.UsageError(f"TACK_REQUIRE_TARGETS: unknown {', '.join(sorted(unknown))}")


@pytest.fixture(scope="session")
def target_name(request: pytest.FixtureRequest) -> str:
    """The target under test; skips without its toolchain, fails where that was required."""
    name: str = request.config.getoption("--target")
    on_target.require(name)
    return name


@pytest.fixture(scope="session")
def target(target_name: str) -> str:
    """Its device, as ``tack.device`` takes it."""
    return on_target.device_of(target_name)
