"""These tests take the memory and the speed of a GPU, so the suite leaves them out unless asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tack


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    return config.getoption("--target") == "cpu" or None


@pytest.fixture(autouse=True)
def on_target(target: str) -> Iterator[None]:
    tack.set_default_device(target)
    yield
    tack.set_default_device(None)
