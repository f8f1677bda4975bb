"""What there must be of each device type: a target, a column in the docs, a line on hardware, a run in CI.

And that nobody asks which type a device is of.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import on_target
import pytest

import tack
from tack.runtime.backend import Backend
from tack.runtime.dispatch import backend_type, device_types

ROOT = Path(__file__).resolve().parents[4]
SOURCE = Path(tack.__file__).parent
TYPES = [name for name in device_types() if backend_type(name).__module__.startswith("tack.")]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = ROOT / "packages/tack-core/tools/capabilities.py"
    spec = importlib.util.spec_from_file_location("capabilities", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_capabilities_is_current(tool: ModuleType) -> None:
    text = tool.PAGE.read_text(encoding="utf-8")
    assert text == tool.page(text), "run packages/tack-core/tools/capabilities.py --write"
    heading = next(line for line in text.splitlines() if line.startswith("| | "))
    cells = [cell.strip() for cell in heading.strip("|").split("|")]
    assert cells[1:] == [backend_type(name).display_name for name in TYPES]


def test_the_table_shows_every_declared_capability(tool: ModuleType) -> None:
    """Of what a class declares, all but what says how its kernels are made is there."""
    shown = {name for row in tool.ROWS for name in row.depends}
    declared = {name for name in Backend.__annotations__ if name.islower() and not name.startswith("_")}
    inner = {"name", "display_name", "varies", "dlpack_stream", "iteration_cache", "specializes_disjoint"}
    assert declared - inner <= shown
    assert not shown & inner


@pytest.mark.parametrize("name", TYPES)
def test_each_type_is_everywhere(name: str) -> None:
    assert name in on_target.TARGETS
    emulated = [target for target in on_target.TARGETS if on_target.device_of(target) == name != target]
    assert emulated or name == "cpu", "it runs without hardware"
    label = backend_type(name).display_name
    page = (ROOT / "docs/hardware-validation.md").read_text(encoding="utf-8")
    assert f"| {label} |" in page
    assert re.search(rf"^\| {label}\b", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    commands = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for target in emulated:
        if target != "opencl-pocl":  # half a second for each kernel
            assert re.search(rf"/contract\b.* --target {target}$", commands, re.MULTILINE), target


def modules() -> list[Path]:
    folders = {SOURCE / "runtime" / name for name in TYPES}
    return [path for path in sorted(SOURCE.rglob("*.py")) if not folders & set(path.parents)]


def test_nobody_compares_names() -> None:
    """What differs by device is decided by what the backend declares."""
    found = [place for path in modules() for place in comparisons(path)]
    assert not found


def comparisons(path: Path) -> list[str]:
    """Where the code compares something's name with a device type."""
    places = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            named = any(isinstance(s, ast.Constant) and s.value in TYPES for s in sides)
            asks = any(isinstance(s, ast.Attribute) and s.attr in ("name", "spec") for s in sides)
            places += [f"{path}:{node.lineno}"] if named and asks else []
    return places


def test_a_comparison_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("x = 1\nif device.name == 'cuda':\n    pass\n")
    assert comparisons(module) == [f"{module}:2"]
