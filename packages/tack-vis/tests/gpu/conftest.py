"""What GPUs have kernels of their own for. Without ``--target`` nothing here is collected."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--target") == "cpu" else None
