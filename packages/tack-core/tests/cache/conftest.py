"""Fixtures of the cache's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A program that no cache knows yet."""
    return Project(tmp_path / "program", tmp_path / "cache")
