"""Runs each conformance test on the device that ``--target`` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tack

from .helpers import Rejection, reject


@pytest.fixture(autouse=True)
def on_target(target: str) -> Iterator[None]:
    tack.set_default_device(target)
    yield
    tack.set_default_device(None)


@pytest.fixture
def rejects(tmp_path: Path) -> Callable[..., Rejection]:
    """``rejects(kind, source, *args)``: see `helpers.reject`."""

    def check(kind: type[Exception], source: str, *args: Any, **names: Any) -> Rejection:
        return reject(tmp_path, kind, source, *args, **names)

    return check
