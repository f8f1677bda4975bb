"""Fixtures of the tests of native and Python dispatch."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tack.runtime import native
from tack.runtime.native import start


def need_native() -> None:
    """Skips a test without the native dispatcher, and fails it where that was required."""
    if native.module is None:
        reason = f"no native dispatcher: {native.missing}"
        if os.environ.get("TACK_REQUIRE_NATIVE"):
            pytest.fail(f"TACK_REQUIRE_NATIVE is set, but there is {reason}")
        pytest.skip(reason)


@pytest.fixture(params=["native", "python"])
def dispatcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test once with each dispatcher."""
    if request.param == "native":
        need_native()
    monkeypatch.setenv("TACK_DISPATCH", request.param)
    start()
    yield request.param
    monkeypatch.undo()
    start()


@pytest.fixture
def natively() -> None:
    """For tests of the native dispatcher itself."""
    need_native()
    start()
