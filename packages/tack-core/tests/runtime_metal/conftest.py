"""Runs these tests with ``--target msl-emu`` alone: they steer the fake of Metal."""

from __future__ import annotations

from pathlib import Path

import pytest
from steered import default_target, emulated, later, settled_heap, steering  # noqa: F401

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if HERE in collection_path.parents and config.getoption("--target") != "msl-emu":
        return True
    return None
