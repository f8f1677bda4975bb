"""The device under test. Without ``--target level_zero`` or ``opencl-pocl`` nothing here is collected: the
emulated loader takes the place of the real one in the whole process, which other tests would see.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from steered import (  # noqa: F401
    backend,
    busy,
    default_target,
    emulated,
    later,
    settled_heap,
    steering,
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--target") not in ("level_zero", "opencl-pocl") else None


@pytest.fixture
def is_emulated(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--target") == "opencl-pocl")
