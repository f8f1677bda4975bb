"""The command line of long runs."""

from __future__ import annotations

import gc
import sys

import pytest

import tack

from .sweep import Trial, sweep


def run(monkeypatch: pytest.MonkeyPatch, options: str, bad: set[int]) -> tuple[int, list[int]]:
    """The exit status and the seeds of a sweep of batches of 5, of which those with ``bad`` seeds fail."""
    drawn = []

    def draw(seed: int) -> Trial:
        drawn.append(seed)
        return lambda: "bad" if seed in bad else None

    monkeypatch.setattr(sys, "argv", ["differential", *options.split()])
    return sweep("differential", 5, 100, draw), drawn


Patch, Capture = pytest.MonkeyPatch, pytest.CaptureFixture[str]


def test_the_count_is_of_programs(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "--count 18 --seed 7", set()) == (0, [7, 8, 9, 10])
    assert "20 programs on cpu, 0 failures" in capsys.readouterr().out
    assert gc.isenabled()


def test_failures_name_seed_and_target(monkeypatch: Patch, capsys: Capture) -> None:
    status, drawn = run(monkeypatch, "--count 100 --stop 2", {1, 4, 6})
    assert status == 1
    assert drawn == [0, 1, 2, 3, 4]
    out = capsys.readouterr().out
    assert "seed 1: cpu: bad" in out
    assert "seed 4: cpu: bad" in out


def test_each_program_runs_on_each_target(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("differential.sweep.device", lambda target: tack.device("cpu"))
    status, drawn = run(monkeypatch, "--count 10 --target one,two", {1})
    assert (status, drawn) == (1, [0, 1])
    out = capsys.readouterr().out
    assert "seed 1: one: bad" in out
    assert "seed 1: two: bad" in out
    assert "10 programs on one,two, 2 failures" in out
