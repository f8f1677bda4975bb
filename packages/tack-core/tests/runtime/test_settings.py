"""Environment variables, and ``python -m tack``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack
from tack import devices
from tack.info import collect, render
from tack.runtime import dispatch, settings


@pytest.mark.parametrize("text", ["1", "true", "YES", " on "])
def test_flag_on(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TACK_VERIFY", text)
    assert settings.verify()


@pytest.mark.parametrize("text", ["0", "False", "no", "OFF", "", "  "])
def test_flag_off(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TACK_VERIFY", text)
    assert not settings.verify()


def test_flag_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACK_VERIFY", raising=False)
    assert not settings.verify()
    assert settings.flag("TACK_VERIFY", default=True)


@pytest.mark.parametrize("text", ["2", "maybe", "verify"])
def test_bad_flag_each_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TACK_VERIFY", text)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=f"TACK_VERIFY='{text}' is not accepted; use one of: 1, true.*empty"
        ):
            settings.verify()


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_LOG", "everything")
    with pytest.raises(ValueError, match="TACK_LOG='everything' is not accepted; use one of: compile, off"):
        settings.log_compiles()
    for text in ("", "off", " OFF "):
        monkeypatch.setenv("TACK_LOG", text)
        assert not settings.log_compiles()


def test_log(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("tack")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    monkeypatch.setenv("TACK_LOG", "compile")
    assert settings.log_compiles()
    assert settings.log_compiles()
    assert logger.isEnabledFor(logging.INFO)
    logger.setLevel(logging.NOTSET)


def test_log_goes_to_stderr_once(run_python: Callable[..., Any]) -> None:
    code = (
        "import logging\n"
        "from tack.runtime import settings\n"
        "assert settings.log_compiles() and settings.log_compiles()\n"
        "logging.getLogger('tack').info('compiled k')\n"
    )
    done = run_python("-c", code, TACK_LOG="compile")
    assert done.stderr == "tack: compiled k\n"
    assert done.stdout == ""


def test_info_is_readable(run_python: Callable[..., Any]) -> None:
    done = run_python("-m", "tack", "info")
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        tack.__version__,
        np.__version__,
        "Device cpu",
        "metal",
        "do not start",
        "TACK_DEVICE",
    ):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_info_as_json(run_python: Callable[..., Any]) -> None:
    facts = json.loads(run_python("-m", "tack", "info", "--json").stdout)
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["default_device"] == "cpu"
    assert facts["cpu_threads"] >= 1
    assert {d["spec"]: d["available"] for d in facts["devices"]} == {
        status.spec: status.device is not None for status in devices()
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("TACK_DEVICE", "gpu"), ("TACK_DEVICE", "metal:9"), ("TACK_CPU_THREADS", "many"), ("TACK_LOG", "all")],
)
def test_info_reports_a_bad_setting(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(dispatch, "_initial", None)
    facts = collect()
    (problem,) = facts["problems"]
    assert f"{name}={value!r}" in problem
    text = render(facts)
    assert "unknown, see Problems" in text
    assert problem in text


def test_command_line_errors(run_python: Callable[..., Any]) -> None:
    for args in ((), ("nonsense",), ("info", "--nonsense")):
        done = run_python("-m", "tack", *args)
        assert done.returncode == 2
        assert "usage: python -m tack" in done.stderr
    assert run_python("-m", "tack", "--help").returncode == 0
