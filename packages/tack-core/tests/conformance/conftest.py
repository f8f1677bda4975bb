"""Runs each conformance test on the device that ``--target`` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tack

from .helpers import Rejection, reject
from .upload import uploaded_arguments


@pytest.fixture(autouse=True)
def on_target(target: str) -> Iterator[None]:
    tack.set_default_device(target)
    with nullcontext() if target == "cpu" else uploaded_arguments():
        yield
    tack.set_default_device(None)


@pytest.fixture
def rejects(tmp_path: Path) -> Callable[..., Rejection]:
    """``rejects(kind, source, *args)``: see `helpers.reject`."""

    def check(kind: type[Exception], source: str, *args: Any, **names: Any) -> Rejection:
        return reject(tmp_path, kind, source, *args, **names)

    return check
