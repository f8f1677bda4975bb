"""``--target`` chooses the device of `test_on_target`; the other files use host memory, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--target") == "cpu" or collection_path.suffix != ".py":
        return None
    return None if collection_path.name in ("test_on_target.py", "conftest.py") else True
