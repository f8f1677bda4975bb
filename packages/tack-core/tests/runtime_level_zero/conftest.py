"""The device under test. Without ``--target level_zero`` or an emulation of it nothing here is collected: the
emulated loader takes the place of the real one in the whole process, which other tests would see.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated.level_zero import TARGETS
from steered import (  # noqa: F401
    backend,
    busy,
    default_target,
    emulated,
    in_a_process,
    later,
    settled_heap,
    steering,
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--target") not in ("level_zero", *TARGETS) else None
