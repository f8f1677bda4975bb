"""From a module to machine code: the object file, its memory, and threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tack
from codegen.harness import Compiled
from tack.codegen.llvm import generate, jit
from tack.ir.parser import parse

TESTS = Path(__file__).parent.parent
SCALE = """kernel scale(x: f64[]) {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    x[%i] = mul(x[%i], FACTOR:f64)
  }
}"""

LARGE = SCALE.replace(
    "    x[%i] = mul(x[%i], FACTOR:f64)",
    "\n".join(f"    x[%i] = add(call.sin(x[%i]), {k}.0:f64)" for k in range(300)),
)


def scale(factor: float) -> str:
    return SCALE.replace("FACTOR", repr(float(factor)))


def run_program(*args: str, timeout: int = 200) -> str:
    """A program's output; it runs in a process of its own, because it may crash or grow."""
    source = str(Path(tack.__file__).parents[1])  # for a tree that is not installed
    done = subprocess.run(
        [sys.executable, *args],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_object_loads_any_number_of_times() -> None:
    data = jit.compile_object(generate(parse(scale(3))), far=True)
    assert isinstance(data, bytes)
    codes = [jit.load_object(data) for _ in range(3)]
    assert len({code.address("launch") for code in codes}) == 3


def test_the_same_kernel_gives_the_same_object() -> None:
    assert len({jit.compile_object(generate(parse(scale(3)))) for _ in range(3)}) == 1


def test_unknown_names() -> None:
    code = jit.load_object(jit.compile_object(generate(parse(scale(3))), far=True))
    with pytest.raises(KeyError, match="result"):
        code.address("result")


def test_texts() -> None:
    module = generate(parse(scale(3)))
    assert 'define void @"launch"' in str(module)
    assert "define void @launch" in jit.optimized_ir(module)
    assert "launch:" in jit.assembly(module)
    assert jit.llvm_version().split(".")[0].isdecimal()
    assert " " in jit.host_cpu()


def test_compiling_in_many_threads_at_once() -> None:
    """The first compile in a process, by several threads, and many after it."""
    program = """
import threading
from codegen.test_jit import Compiled, scale
import numpy as np

found = [0.0] * 8
def work(k):
    for turn in range(5):
        x = np.ones(10)
        Compiled(scale(k + turn))({"x": x}, [(0, 1, 10)])
        found[k] += x.sum()
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert found == [sum(10.0 * (k + turn) for turn in range(5)) for k in range(8)], found
"""
    run_program("-c", program)


def test_a_large_kernel_loads_in_a_thread_with_a_small_stack() -> None:
    data = jit.compile_object(generate(parse(LARGE)), far=True)
    loaded: list[jit.Code] = []
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: loaded.append(jit.load_object(data)))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert loaded[0].address("launch")


@pytest.mark.skipif(sys.platform != "linux", reason="maps memory as Linux does")
def test_code_and_constants_may_be_far_apart() -> None:
    """As after large arrays were allocated: above them are holes for small sections, and none for large."""
    program = """
import ctypes, mmap
from codegen.test_jit import LARGE, generate, jit, parse

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t

def mapped(size):
    return libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)  # nobody may touch it

data = jit.compile_object(generate(parse(LARGE)), far=True)
blocks = [mapped(1 << 16) for _ in range(200)]
mapped(6 << 30)
for block in blocks[::2]:
    assert libc.munmap(block, 1 << 16) == 0
codes = [jit.load_object(data) for _ in range(50)]
print(all(code.address("launch") for code in codes))
"""
    assert run_program("-c", program) == "True\n"


def test_dropped_code_gives_its_memory_back() -> None:
    program = """
import gc
from codegen.test_jit import generate, jit, parse, SCALE

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4

text = SCALE.replace("x[%i]", "x[0:i64]")
for k in range(501):
    data = jit.compile_object(generate(parse(text.replace("FACTOR", f"{k}.5"))), far=True)
    code = jit.load_object(data)
    assert code.address("launch")
    if k == 100:
        after_100 = resident()
after_500 = resident()
assert after_500 < after_100 + 400 * 6, (after_100, after_500)  # KiB: what 400 kernels leave
"""
    run_program("-c", program)


def test_code_outlives_what_it_was_made_from() -> None:
    compiled = Compiled(scale(0.5))
    del compiled.module
    x = np.arange(100.0)
    compiled({"x": x}, [(0, 1, 100)])
    assert x.tolist() == [v / 2 for v in range(100)]


@pytest.mark.parametrize("target", ["cpu", "cuda", "cuda-checked"])
@pytest.mark.parametrize(("kind", "count"), [("integers", 60), ("floats", 60)])
def test_generated_kernels_agree_with_the_interpreter(kind: str, count: int, target: str) -> None:
    assert "kernels agree" in run_program("-m", "codegen.fuzz", kind, str(count), target)
