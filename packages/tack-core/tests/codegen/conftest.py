"""Tests that hold for every generator run on each: machine code for the CPU, and CUDA C emulated on it.

A module opts in with ``pytestmark = pytest.mark.usefixtures("each_generator")`` and compiles with its global
``Compiled``. What is the CPU's alone, such as parts of a launch or alignment, is marked ``cpu_only``.
"""

from __future__ import annotations

import shutil

import pytest
from emulated import compiler
from emulated.harness import Emulated

from codegen.harness import Compiled

GENERATORS = {"cpu": Compiled, "cuda": Emulated}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cpu_only: of the code for the CPU")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "each_generator" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("cpu_only")
        metafunc.parametrize("each_generator", ["cpu"] if only else list(GENERATORS), indirect=True)


@pytest.fixture
def each_generator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Compiled`` of the test's module is one generator after the other."""
    if request.param == "cuda" and shutil.which(compiler.COMPILER) is None:
        pytest.skip(f"no C++ compiler {compiler.COMPILER!r} to emulate CUDA with")
    monkeypatch.setattr(request.module, "Compiled", GENERATORS[request.param])
