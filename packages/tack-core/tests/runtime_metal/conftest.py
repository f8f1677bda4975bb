"""Runs these tests with ``--target msl-emu`` alone: they steer the fake of Metal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tack

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if HERE in collection_path.parents and config.getoption("--target") != "msl-emu":
        return True
    return None


@pytest.fixture(autouse=True)
def on_metal(target: str) -> Iterator[None]:
    tack.set_default_device(target)
    yield
    from emulated.metal_driver import CONTROL

    CONTROL.heal()
    assert not CONTROL.misuse
    tack.set_default_device(None)
