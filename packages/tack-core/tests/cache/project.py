"""A small program in a directory of its own, run in fresh processes with a cache of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tack

SOURCE = Path(tack.__file__).parent.parent

DEEP = """\
import tack
SCALE = tack.constant(3)
TABLE = tack.constant((1, 10, 100))

@tack.func
def deepest(v):
    return v * SCALE
"""
MIDDLE = """\
import tack
import deep
from deep import deepest

@tack.func
def middle(v, extra=5):
    return deepest(v) + deep.TABLE[1] + extra
"""
SHAPES = """\
import tack
from middle import middle

class Base:
    offset = 7

    @tack.func
    def weigh(self, v):
        return v + 20

@tack.device_class
class Lens(Base):
    power = 2

    def __init__(self, shift):
        self.shift = shift

    @tack.func
    def apply(self, v):
        return self.weigh(middle(v)) * self.power + self.offset + self.shift
"""
KERNELS = """\
import tack
from middle import middle

def make(factor):
    cell = tack.constant(factor)

    @tack.kernel
    def scaled(x, out):
        for i in range(x.shape[0]):
            out[i] = middle(x[i]) * cell

    return scaled

scaled = make(2)

@tack.kernel
def seen(x, out, lens):
    for i in range(x.shape[0]):
        out[i] = lens.apply(x[i]) + 1000
"""
MAIN = """\
import json, warnings
caught = []
warnings.showwarning = lambda message, category, *rest: caught.append([category.__name__, str(message)])
warnings.simplefilter("always")
import tack
{before}
from kernels import scaled, seen
from shapes import Lens

x = tack.asarray([4, -1], dtype=tack.i32)
out = tack.zeros(2, tack.i32)
results = []
scaled(x, out)
results += out.numpy().tolist()
seen(x, out, Lens(300))
results += out.numpy().tolist()
from tack.runtime.disk.store import store
report = {{"results": results, "warnings": caught, **store().counts}}
{after}
print(json.dumps(report))
"""


def expected(
    *,
    scale: int = 3,
    table: int = 10,
    extra: int = 5,
    cell: int = 2,
    offset: int = 7,
    weight: int = 20,
    power: int = 2,
    last: int = 1000,
) -> list[int]:
    """What the program computes, in Python's integers."""
    middle = [v * scale + table + extra for v in (4, -1)]
    return [m * cell for m in middle] + [(m + weight) * power + offset + 300 + last for m in middle]


@dataclass
class Project:
    """``run`` gives what the program reports: its results, its warnings, and the cache's counts."""

    path: Path
    cache: Path
    env: dict[str, str] = field(default_factory=dict)
    source: Path = SOURCE

    def __post_init__(self) -> None:
        files = {"deep": DEEP, "middle": MIDDLE, "shapes": SHAPES, "kernels": KERNELS}
        self.path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.path / f"{name}.py").write_text(text)

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.path / f"{file}.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def environment(self, **env: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TACK_", "PYTHON", "XDG_"))}
        given = {"TACK_CACHE_DIR": str(self.cache), "PYTHONPATH": str(self.source)}
        given["TACK_CPU_COMPILE"] = "optimized"  # the counts of stores are read before the end
        return {**kept, **given, "PYTHONDONTWRITEBYTECODE": "1", **self.env, **env}

    def start(self, text: str, **env: str) -> subprocess.Popen[str]:
        script = self.path / "main.py"
        if not script.exists() or script.read_text() != text:
            script.write_text(text)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, str(script)],
            env=self.environment(**env),
            cwd=self.path,
            text=True,
            stdout=pipe,
            stderr=pipe,
        )

    def run(self, before: str = "", after: str = "", **env: str) -> dict[str, Any]:
        return self.script(MAIN.format(before=before, after=after), **env)

    def script(self, text: str, **env: str) -> Any:
        process = self.start(text, **env)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1])

    def entries(self, suffix: str = "") -> list[Path]:
        return sorted(p for p in self.cache.glob(f"v*/*{suffix}") if p.suffix in (".ir", ".variant"))


def assert_hit(report: dict[str, Any], results: list[int]) -> None:
    """Everything came from the cache, and is right."""
    assert report["results"] == results
    assert report["warnings"] == []
    assert (report["misses"], report["stored"]) == (0, 0)
    assert report["hits"] == 4  # two kernels, each lowered and compiled


def assert_miss(report: dict[str, Any], results: list[int], misses: int | None = None) -> None:
    """Something was compiled anew, and is right."""
    assert report["results"] == results
    assert report["warnings"] == []
    assert report["misses"] > 0 if misses is None else report["misses"] == misses
    assert report["stored"] == report["misses"]


def command(project: Project, *words: str, **env: str) -> Any:
    """What ``python -m tack.cache`` prints, as data with ``--json``."""
    made = subprocess.run(
        [sys.executable, "-m", "tack.cache", *words],
        env=project.environment(**env),
        cwd=project.path,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    return json.loads(made.stdout) if "--json" in words else made.stdout
