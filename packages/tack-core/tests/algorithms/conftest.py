"""All tests of algorithms run on the device of ``--target``, which is the default device meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tack


@pytest.fixture(autouse=True)
def on_target(target: str) -> Iterator[None]:
    tack.set_default_device(target)
    yield
    tack.set_default_device(None)
