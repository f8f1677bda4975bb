"""The ``--target`` option: which device the conformance suite runs on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Real devices and emulations that the specification names; a new one is added here and in `on_target`.
TARGETS = ("cpu", "cuda", "hip", "level_zero", "metal", "cuda-emu", "hip-emu", "opencl-pocl", "msl-emu")

# The suites are packages beside this file, and the differential one uses the conformance oracle.
sys.path.insert(0, str(Path(__file__).parent))

# Tests measure compilers, not what an earlier run left on disk.
os.environ.setdefault("TACK_CACHE", "off")
# Every test checks the intermediate representation around every pass.
os.environ.setdefault("TACK_VERIFY", "1")

# Hypothesis draws the same examples in every run; --hypothesis-profile=default draws new ones.
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        default="cpu",
        metavar="T",
        help=f"device that the conformance tests run on, one of: {', '.join(TARGETS)}",
    )


def _reason(target: str) -> str | None:
    """Why ``target`` cannot run here, or None if it can."""
    from on_target import device_of, emulate

    import tack

    try:
        emulate(target)
        tack.device(device_of(target))
    except (RuntimeError, ValueError) as error:
        return f"target {target!r} does not start: {error}"
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "f64: a test of f64, which devices without it must refuse")
    config.addinivalue_line("markers", "prints: a test of print, which does nothing on some devices")
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
    reason = _reason(name)
    if reason is not None:
        if name in os.environ.get("TACK_REQUIRE_TARGETS", "").replace(",", " ").split():
            pytest.fail(f"TACK_REQUIRE_TARGETS names it, but {reason}")
        pytest.skip(reason)
    return name


@pytest.fixture(scope="session")
def target(target_name: str) -> str:
    """Its device, as ``tack.device`` takes it."""
    from on_target import device_of

    return device_of(target_name)
