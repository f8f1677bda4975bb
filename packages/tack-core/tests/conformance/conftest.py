"""Runs each conformance test on the device that ``--target`` names.

A device may lack f64. A test of it (one with the mark ``f64``, or an f64 among its parameters) must get the
error that says so there, no other and not none; the summary counts such tests as refused. All other
tests run, with their NumPy arrays of f64 as f32.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tack

from .helpers import Rejection, is_refusal, reject
from .upload import keep_f64, uploaded_arguments


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


def _is_of_f64(item: pytest.Item) -> bool:
    """Whether it is a test of f64."""
    parameters = getattr(item, "callspec", None)
    named = parameters is not None and any(map(_names_f64, parameters.params.values()))
    return named or item.get_closest_marker("f64") is not None


def _names_f64(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_names_f64, value))
    return any(value is kind for kind in (tack.f64, np.float64)) or (
        isinstance(value, str) and value in _F64_NAMES
    )


_F64_NAMES = ("f64", "f8", "float64")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    device = tack.default_device()
    if device.supports_f64 or not _is_of_f64(item):
        return (yield)
    with keep_f64():
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            if not is_refusal(error):
                raise
        else:
            pytest.fail(f"{item.name} is to be refused on {device.label}, and it passed")
    item.user_properties.append(("outcome", "refused"))
    return None


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    outcome = dict(report.user_properties).get("outcome")
    if report.when == "call" and report.passed and isinstance(outcome, str):
        return outcome, outcome[0], outcome.upper()
    return None
