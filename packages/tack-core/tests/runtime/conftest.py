"""Fixtures of the runtime's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tack
from tack.runtime.cpu import background, tiers

RunPython = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_python() -> RunPython:
    """Runs a new interpreter with the given arguments, and environment variables as keywords."""

    def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        source = str(Path(tack.__file__).parents[1])  # for a tree that is not installed
        path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH")) if p)
        return subprocess.run(
            [sys.executable, *args],
            env={**os.environ, "PYTHONPATH": path, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is done in the background, so what launches do not wait for stays as it is."""
    monkeypatch.setattr(background, "resume", lambda: None)
    monkeypatch.setattr(tiers, "resume", lambda: None)
    yield
    background._queue.clear()
