"""Compiled kernels on disk: that they are found again, when not, and bundles."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from steered import InAProcess, import_path

PROGRAM = """
import os
import tack
from tack.runtime.dispatch import backend_type

kind = backend_type(target)
{before}

@tack.kernel
def scale(x, a):
    for i in range(x.shape[0]):
        x[i] = x[i] * a

@tack.kernel
def report(x) -> tack.f32:
    for i in range(1):
        print("value", x[3])
    return x[3]

tack.set_default_device(target)
x = tack.full(10, 2.0)
with tack.profile() as profile:
    scale(x, 1.5)
    assert report(x) == 3.0
assert (x.numpy() == 3).all()
names = dict(compiles="compiled", cache_hits="found")
for attribute, word in names.items():
    found = [e.kernel.rpartition(".")[2] for e in profile.kernels if getattr(e, attribute)]
    print(word, *sorted(found))
"""

Run = Callable[..., tuple[list[str], list[str]]]
BOTH, NONE = (["report", "scale"], []), ([], ["report", "scale"])


@pytest.fixture
def run(in_a_process: InAProcess, tmp_path: Path, backend: Any) -> Run:
    """Runs the program in a process, and gives the kernels that it compiled and those that it found."""

    def go(before: str = "", mode: str = "write") -> tuple[list[str], list[str]]:
        code = PROGRAM.format(before=before)
        printed = in_a_process(code, TACK_CACHE=mode, TACK_CACHE_DIR=str(tmp_path / "cache"))
        *lines, compiled, found = printed.splitlines()
        assert lines == (["value 3.0"] if backend.supports_print else [])
        return compiled.split()[1:], found.split()[1:]

    return go


def test_kernels_are_found_again(run: Run, backend: Any, tmp_path: Path) -> None:
    """In single entries, and in a bundle."""
    found = NONE if backend.provides("cache_target") else BOTH
    assert run() == BOTH
    assert run() == found
    environment = {**os.environ, "TACK_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": import_path()}
    subprocess.run([sys.executable, "-m", "tack.cache", "pack"], env=environment, check=True)
    for file in (tmp_path / "cache").glob("*/*"):
        file.unlink()
    assert run(mode="bundle") == found
    assert run() == BOTH


def test_what_code_depends_on_is_in_the_key(run: Run, backend: Any) -> None:
    target = backend.cache_target()
    if target is None:
        return
    assert len({name for name, _ in target}) == len(target)
    assert all(type(part) is str for pair in target for part in pair)
    other = "parts = kind.cache_target\n"
    other += "kind.cache_target = lambda self: (*parts(self)[:-1], (parts(self)[-1][0], 'another'))"
    assert run() == BOTH
    assert run(other) == BOTH


def test_code_that_cannot_be_loaded_is_compiled(run: Run, backend: Any) -> None:
    if not backend.provides("cache_target"):
        return
    assert run("kind.variant_artifact = lambda self, payload: bytes(200)") == BOTH
    assert run() == BOTH


@pytest.mark.parametrize("artifact", [b"", b"some", b"\x02\0\0\0{}", bytes(200)], ids=repr)
def test_what_loading_raises(backend: Any, artifact: bytes) -> None:
    if backend.provides("cache_target"):
        with contextlib.suppress(LookupError, RuntimeError, TypeError, ValueError):
            assert backend.load_variant(lambda: None, artifact, ()) is None
