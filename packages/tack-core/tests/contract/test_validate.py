"""``python -m tack validate`` on the device under test: what users run finds nothing wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import on_target
import pytest

from tack.validate import command
from tack.validate.checks import load

CHILD = Path(command.__file__).with_name("child.py")
# What the interpreter takes minutes for, and debug mode, which it has not.
NOT_INTERPRETED = {"sort", "selection", "scan", "bandwidth", "debug mode"}


@pytest.mark.timeout(600)
def test_the_device_is_as_it_should_be(backend: Any, target: str, target_name: str) -> None:
    is_ours = type(backend).__module__.startswith("tack.")
    names = [name for name in load() if is_ours or name not in NOT_INTERPRETED]
    lines: list[str] = []
    report = command.validate(
        target, quick=True, only=names, say=lines.append, child=on_target.command(target_name, CHILD)
    )
    assert report["passed"], "\n".join(lines)
    (device,) = report["devices"]
    assert device["label"] == backend.label
    assert device["dtypes"] == [dtype.name for dtype in backend.supported_dtypes]
    assert sorted(check["name"] for check in device["checks"]) == sorted(names)
    lacking = {check["name"] for check in device["checks"] if check["status"] == "lacking"}
    declared = {
        "f64": backend.supports_f64,
        "print": backend.supports_print,
        "workgroups": backend.supports_workgroups,
        "graphs": backend.provides("graph"),
    }
    assert lacking == {name for name, there in declared.items() if not there}
