"""Fixtures of the tests of native and Python dispatch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tack.runtime import native
from tack.runtime.learn import start


@pytest.fixture(params=["native", "python"])
def dispatcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test once with each dispatcher."""
    if request.param == "native" and native.module is None:
        pytest.skip(f"no native dispatcher: {native.missing}")
    monkeypatch.setenv("TACK_DISPATCH", request.param)
    start()
    yield request.param
    monkeypatch.undo()
    start()


@pytest.fixture
def natively() -> None:
    """For tests of the native dispatcher itself."""
    if native.module is None:
        pytest.skip(f"no native dispatcher: {native.missing}")
    start()
