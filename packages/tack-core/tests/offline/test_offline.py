"""The sweep itself: that units put together stay apart, and that what compilers say is found."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import on_target
import pytest

from offline.batches import Unit, batches, definitions, joined, read
from offline.compilers import COMPILERS
from offline.sweep import Outcome, sweep
from tack.codegen.c import CUDA, HIP, MSL, OPENCL, generate
from tack.ir.parser import parse

KERNEL = parse("""kernel k(x: i32[]) -> i32 {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    x[%i] = floordiv(x[%i], x[0:i64])
    print "one", x[%i]
  }
  return x[0:i64]
}""")


@pytest.mark.parametrize("dialect", [CUDA, HIP, OPENCL, MSL], ids=lambda dialect: dialect.name)
def test_all_that_a_unit_defines_is_found(dialect: object) -> None:
    source = generate(KERNEL, dialect)
    assert source.result is not None
    assert {source.entry, source.result, "tack_iteration", "tack_floordiv_i32"} <= definitions(source.text)
    assert not {"i32", "i64", "x", "i_start", "tack_number"} & definitions(source.text)


def test_units_stay_apart(tmp_path: Path) -> None:
    text = """typedef int i32;
static i32 table[2] = {{{0}, 5}};
static i32 f(i32 a) {{
    return a + table[0];
}}
i32 k(i32 a) {{
    return f(a);
}}
"""
    units = [Unit(f"u{n}", text.format(n), ()) for n in (10, 20)]
    library = tmp_path / "units.so"
    command = ["gcc", "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
    subprocess.run(command, input=joined(units), text=True, check=True)
    loaded = ctypes.CDLL(str(library))
    assert (loaded.k_0(1), loaded.k_1(1)) == (11, 21)


def test_batches_have_one_set_of_options_and_a_size() -> None:
    units = [Unit(str(n), "x" * 10, ("-fast",) if n % 3 else ()) for n in range(20)]
    found = list(batches(units, 35))
    assert sorted(unit.name for batch in found for unit in batch) == sorted(unit.name for unit in units)
    assert all(len({unit.options for unit in batch}) == 1 and len(batch) <= 3 for batch in found)
    assert list(batches(units, 5)) == [[unit] for unit in sorted(units, key=lambda unit: unit.options)]


def test_failures_and_warnings_are_found(tmp_path: Path) -> None:
    if shutil.which("clang-19") is None:
        pytest.skip("it needs clang-19")
    texts = {
        "good": "__kernel void k(__global int *x) { x[0] = 1; }",
        "refused": "__kernel void k(__global int *x) { x[0] = nothing; }",
        "warned": "__kernel void k(__global int *x) { int a; x[0] = a; }",
        "converts": "__kernel void k(__global int *x, float a) {\n    x[0] = a;\n}",
    }
    folder = tmp_path / "OpenCL-C"
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(f"// options: -cl-denorms-are-zero\n{text}\n")
    assert [unit.options for unit in read(folder)] == [("-cl-denorms-are-zero",)] * 4
    chosen = [compiler for compiler in COMPILERS if compiler.name == "clang-opencl"]
    [outcome, empty] = sweep(tmp_path, chosen, sample=1, workers=1)
    assert (outcome.count, empty.count) == (4, 0)
    assert list(outcome.failures) == ["refused"]
    assert "use of undeclared identifier 'nothing'" in outcome.failures["refused"]
    assert outcome.warnings == {"-Wuninitialized": {"warned"}, "-Wfloat-conversion": {"converts"}}
    assert outcome.alarming == {"-Wuninitialized", "-Wfloat-conversion"}
    assert not empty.alarming


def test_warnings_whose_kind_is_not_said_have_one() -> None:
    """ocloc writes no kinds."""
    outcome = Outcome(COMPILERS[0], "pvc", 2)
    outcome.add("unit:3:5: warning: use of logical '&&' with constant operand")
    outcome.add("unit:4:9: warning: self-comparison always evaluates to true")
    outcome.add("unit:5:9: warning: operator '<<' has lower precedence than '+'; '+' will be evaluated first")
    outcome.add("unit:6:9: warning: '&&' within '||'")
    outcome.add("unit:7:9: warning: '&' within '|'")
    outcome.add("warning: kernel k  compiled SIMD32 allocated 128 regs and spilled around 10")
    assert not outcome.alarming
    outcome.add("other:5:1: warning: something new")
    assert outcome.alarming == {"other"}


def test_programs_leave_their_sources(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "examples" / "saxpy.py"
    command = on_target.command("cuda-emu", program, "-n", 1003, "--check")
    env = {**os.environ, "TACK_TEST_SOURCES": str(tmp_path)}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, timeout=120)
    assert {path.name for path in tmp_path.iterdir()} == {"CUDA-C", "HIP-C", "OpenCL-C"}
    for folder in tmp_path.iterdir():
        units = read(folder)
        assert len({unit.text for unit in units}) == len(units) > 0
        assert any("saxpy_kernel" in definitions(unit.text) for unit in units)


def offline(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offline", str(folder), *arguments]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=Path(__file__).parents[1], env=env, capture_output=True, text=True)


def test_a_compiler_that_is_required_is_there_and_has_sources(tmp_path: Path) -> None:
    if shutil.which("clang-19") is None:
        pytest.skip("it needs clang-19")
    chosen = ("--compiler", "clang-msl")
    (tmp_path / "MSL").mkdir()
    assert offline(tmp_path, *chosen, TACK_REQUIRE_COMPILERS="").returncode == 0
    assert offline(tmp_path, *chosen, TACK_REQUIRE_COMPILERS="clang-msl").returncode == 1
    (tmp_path / "MSL" / "unit.txt").write_text("// options:\n")
    assert offline(tmp_path, *chosen, TACK_REQUIRE_COMPILERS="clang-msl,ocloc").returncode == 0
    without = offline(tmp_path, *chosen, TACK_REQUIRE_COMPILERS="clang-msl", PATH="nowhere")
    assert (without.returncode, without.stdout) == (1, "clang-msl: there is no clang-19\n")
    assert offline(tmp_path, *chosen, TACK_REQUIRE_COMPILERS="", PATH="nowhere").returncode == 0
    unknown = offline(tmp_path, *chosen, TACK_REQUIRE_COMPILERS="clang-mls")
    assert (unknown.returncode, "unknown clang-mls" in unknown.stderr) == (2, True)
