"""``python -m tack validate``: what it reports of devices that are wrong, crash, hang or do not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from steered import import_path

from tack import __main__ as main
from tack.validate import command
from tack.validate.checks import expect, load

TESTS = Path(__file__).parents[1]
Validate = Callable[..., dict[str, Any]]

CHILD = """
import sys
sys.path.insert(0, {tests!r})
from on_target import emulate
emulate("toy")
import os, time
from contract import toy
from tack.ir import interpreter, semantics
right = interpreter.run
{patch}
from tack.validate.child import main
sys.exit(main())
"""


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validate:
    """Checks the toy device, in processes in which something is patched."""
    monkeypatch.setenv("PYTHONPATH", import_path())

    def run(patch: str, *only: str, **options: Any) -> dict[str, Any]:
        program = tmp_path / "child.py"
        program.write_text(CHILD.format(tests=str(TESTS), patch=patch))
        child = [sys.executable, str(program)]
        return command.validate("toy", quick=True, only=only, child=child, **options)

    return run


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    (device,) = report["devices"]
    return {check["name"]: check["status"] for check in device["checks"]}


def test_the_cpu(tmp_path: Path) -> None:
    """All checks, by the command."""
    file = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "tack", "validate", "--quick", "--device", "cpu", "--json", str(file)],
        env={**os.environ, "PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["passed"]
    assert set(outcomes(report)) == set(load())
    assert {*outcomes(report).values()} == {"passed"}
    lines = done.stdout.splitlines()
    assert "CPU (cpu)" in lines
    assert any(line.split()[:2] == ["sort", "passed"] for line in lines)
    assert lines[-2].startswith(f"cpu: as it should be; {len(load())} passed in ")
    assert set(report["versions"]) == {"tack", "python", "platform", "numpy", "llvmlite"}


def test_a_wrong_result_is_told(validate: Validate) -> None:
    wrong = "semantics.ATOMICS['add'] = lambda old, value, dtype: old"
    lines: list[str] = []
    report = validate(wrong, "vectors", "atomics", "textures", say=lines.append)
    assert not report["passed"]
    assert outcomes(report) == {"vectors": "passed", "atomics": "failed", "textures": "passed"}
    (detail,) = (c["detail"] for c in report["devices"][0]["checks"] if c["name"] == "atomics")
    assert detail.startswith("AssertionError: a counter: element 0: got np.int32(0), expected ")
    assert any(line.split()[:2] == ["atomics", "FAILED"] for line in lines)
    assert lines[-1].startswith("\ntoy: NOT as it should be; 2 passed, 1 failed in ")


def test_an_element_that_is_off_is_noticed(validate: Validate) -> None:
    """By every check that compares arrays: of each launch the first element of an array is changed."""
    checks = ("integers", "f32", "conversions", "ranges", "order", "workgroups")
    off = """
def wrong(kernel, args, launch, on_print=None):
    right(kernel, args, launch, on_print)
    for value in args.values():
        if getattr(value, "size", 0):
            value.reshape(-1)[:1] = 1 - value.reshape(-1)[:1]
interpreter.run = wrong
"""
    assert outcomes(validate(off, *checks)) == dict.fromkeys(checks, "failed")


def test_a_crash_ends_one_check(validate: Validate) -> None:
    crash = """
def wrong(kernel, *args):
    if kernel.name == "_vectors":
        print("a last word", file=sys.stderr, flush=True)
        os.abort()
    return right(kernel, *args)
interpreter.run = wrong
"""
    report = validate(crash, "conversions", "vectors", "print", "atomics")
    assert outcomes(report) == {
        "conversions": "passed",
        "vectors": "crashed",
        "print": "passed",
        "atomics": "passed",
    }
    (crashed,) = (c for c in report["devices"][0]["checks"] if c["status"] == "crashed")
    assert crashed["detail"].startswith("the process ended with SIGABRT: ")
    assert "a last word" in crashed["detail"]
    assert not report["passed"]


def test_a_check_that_hangs_is_given_up(validate: Validate) -> None:
    hang = """
def wrong(kernel, *args):
    if kernel.name == "_vectors":
        time.sleep(1000)
    return right(kernel, *args)
interpreter.run = wrong
"""
    report = validate(hang, "vectors", "print", limit=15.0)
    assert outcomes(report) == {"vectors": "crashed", "print": "passed"}
    assert report["devices"][0]["checks"][0]["detail"] == "gave no answer in 15 s"


def test_kernels_that_are_not_found_again_are_noticed(validate: Validate) -> None:
    forgets = "toy.BACKEND.load_variant = lambda self, read, artifact, args: None"
    assert outcomes(validate(forgets, "order", "kernels on disk")) == {
        "order": "passed",
        "kernels on disk": "failed",
    }


def test_a_device_that_does_not_start(validate: Validate) -> None:
    broken = """
def broken(self, ordinal=0):
    raise OSError("the driver is not loaded")
toy.BACKEND.__init__ = broken
"""
    lines: list[str] = []
    report = validate(broken, say=lines.append)
    assert not report["passed"]
    (device,) = report["devices"]
    assert (device["available"], device["reason"]) == (False, "the driver is not loaded")
    assert device["help"] == "it is among Tack's tests"
    assert "toy: not checked, the driver is not loaded; to fix it: it is among Tack's tests" in lines[-2]


def test_a_process_that_does_not_start(validate: Validate) -> None:
    report = validate("os._exit(7)")
    assert not report["passed"]
    assert report["devices"][0]["error"] == "the process ended with exit status 7"


def test_names_that_there_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["validate", "--only", "nonsense"]) == 2
    assert "there is no check 'nonsense'; there are: integers, " in capsys.readouterr().err
    assert main.main(["validate", "--device", "nonsense", "--only", "print"]) == 1
    assert "unknown device 'nonsense'" in capsys.readouterr().out


@pytest.mark.parametrize("passed", [True, False])
def test_json_instead_of_the_table(
    passed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(device: str | None, *, say: Callable[[str], object], **options: Any) -> dict[str, Any]:
        say("a table")
        return {"passed": passed, "device": device, **options}

    monkeypatch.setattr(command, "validate", fake)
    assert main.main(["validate", "--json", "--device", "cpu"]) == (0 if passed else 1)
    found = json.loads(capsys.readouterr().out)
    assert found == {"passed": passed, "device": "cpu", "quick": False, "only": []}


@pytest.mark.parametrize(
    ("got", "expected"),
    [([1, 2], [1, 3]), ([1.0], [float("nan")]), ([1, 2], [1, 2, 3]), (1, 2), ([0.5], [0])],
)
def test_differences_are_noticed(got: Any, expected: Any) -> None:
    with pytest.raises(AssertionError, match="sums"):
        expect(got, expected, "sums")
    expect(expected, expected, "sums")
