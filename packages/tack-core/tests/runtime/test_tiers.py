"""First launches run code that is not optimized, and computes the same as that which takes its place."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential import floats, runner

import tack
from tack.codegen.llvm import jit
from tack.runtime import native
from tack.runtime.cpu import background, tiers
from tack.runtime.cpu.background import Job
from tack.runtime.cpu.program import Program
from tack.runtime.dispatch import default_backend

pytestmark = pytest.mark.skipif(not jit.vector_bits(), reason="there is one form without fused multiply-add")

SIZE = 8


@pytest.fixture(autouse=True)
def tiered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_CPU_COMPILE", "tiered")


def new_kernel(**options: Any) -> tack.Kernel:
    @tack.kernel(**options)
    def add(x, out, k):
        for i in range(x.shape[0]):
            out[i] += x[i] * x[i] + k

    return add


def arrays(size: int = SIZE) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(size, dtype=np.float64) % 64, np.zeros(size)


def program(kernel: tack.Kernel) -> Program:
    (variant,) = default_backend().cache[kernel].variants.values()
    found: Program = variant.payload
    return found


def test_the_optimized_form_takes_the_place_of_the_first(paused: None) -> None:
    kernel, (x, out) = new_kernel(), arrays()
    kernel(x, out, 1.0)
    first = program(kernel).functions
    assert program(kernel).upgrade is not None
    kernel(x, out, 2.0)
    assert program(kernel).functions is first
    program(kernel).finish()
    assert program(kernel).upgrade is None
    assert program(kernel).functions is not first
    kernel(x, out, 3.0)
    assert out.tolist() == (3 * x * x + 6).tolist()


def test_it_does_so_in_the_background() -> None:
    kernel, (x, out) = new_kernel(), arrays()
    kernel(x, out, 1.0)
    end = time.monotonic() + 60
    while program(kernel).upgrade is not None and time.monotonic() < end:
        time.sleep(0.001)
    assert program(kernel).upgrade is None
    kernel(x, out, 2.0)
    assert out.tolist() == (2 * x * x + 3).tolist()


def test_large_launches_wait(paused: None) -> None:
    kernel, (x, out) = new_kernel(), arrays(1 << 23)
    kernel(x, out, 1.0)
    assert program(kernel).upgrade is None
    assert np.array_equal(out, x * x + 1)


def test_small_launches_add_up(paused: None) -> None:
    kernel, (x, out) = new_kernel(), arrays(1 << 16)
    launches = 0
    while program_is_first(kernel) and launches < 400:
        kernel(x, out, 0.0)
        launches += 1
    assert 2 < launches < 400
    assert np.array_equal(out, launches * x * x)


def program_is_first(kernel: tack.Kernel) -> bool:
    return kernel_is_missing(kernel) or program(kernel).upgrade is not None


@pytest.mark.parametrize(("rounds", "waits"), [(20, False), (100_000_000, True)])
def test_a_loop_may_be_as_long_as_any_argument(paused: None, rounds: int, waits: bool) -> None:
    @tack.kernel
    def count(out, n):
        for i in range(1):
            total = 0
            for k in range(n):
                total += k
            out[i] = total

    out = np.zeros(1, np.int64)
    count(out, rounds)
    assert out[0] == rounds * (rounds - 1) // 2
    assert (program(count).upgrade is None) == waits


def test_who_asks_for_optimized_code_gets_it(paused: None) -> None:
    kernel, (x, out) = new_kernel(), arrays()
    kernel.compile(x, out, 1.0)
    assert program(kernel).upgrade is None
    late = new_kernel()
    late(x, out, 0.0)
    assert program(late).upgrade is not None
    tack.compile_all([(late, x, out, 0.0)])
    assert program(late).upgrade is None


def test_graphs_run_optimized_code(paused: None) -> None:
    kernel = new_kernel()
    x, out = tack.ones(SIZE), tack.zeros(SIZE)
    kernel(x, out, 1.0)
    assert program(kernel).upgrade is not None
    with tack.capture() as graph:
        kernel(x, out, 1.0)
    assert program(kernel).upgrade is None
    graph.launch()
    assert out.numpy().tolist() == [4.0] * SIZE


def test_kernels_that_have_one_form(paused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = arrays()
    fast = new_kernel(fastmath=True)
    fast(x, out, 1.0)
    assert program(fast).upgrade is None
    checked = new_kernel()
    tack.set_debug(True)
    try:
        checked(x, out, 1.0)
        assert program(checked).upgrade is None
    finally:
        tack.set_debug(False)
    monkeypatch.setenv("TACK_CPU_COMPILE", "optimized")
    plain = new_kernel()
    plain(x, out, 1.0)
    assert program(plain).upgrade is None
    assert out.tolist() == (3 * x * x + 3).tolist()


def test_a_bad_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_CPU_COMPILE", "fast")
    kernel, (x, out) = new_kernel(), arrays()
    with pytest.raises(ValueError, match=r"TACK_CPU_COMPILE='fast'.*tiered, optimized"):
        kernel(x, out, 1.0)
    assert not out.any()


@pytest.mark.skipif(native.module is None, reason="needs the extension")
def test_native_dispatch_learns_the_optimized_form(paused: None) -> None:
    kernel, (x, out) = new_kernel(), arrays()
    for _ in range(5):
        kernel(x, out, 1.0)
    assert native.module is not None
    assert native.module.resolve(kernel, (x, out, 1.0)) is None
    program(kernel).finish()
    for _ in range(5):
        kernel(x, out, 1.0)
    assert native.module.resolve(kernel, (x, out, 1.0)).payload is program(kernel)
    assert out.tolist() == (10 * x * x + 10).tolist()


def test_a_launch_under_way_keeps_its_code(paused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_WORTH_WAITING", 1e18)

    @tack.kernel
    def count(out, n):
        for i in range(1):
            total = out[0]
            for k in range(n):
                total = total * 3 + k
            out[i] = total

    n = 30_000_000
    out, expected = np.zeros(1, np.int64), np.zeros(1, np.int64)
    running = threading.Thread(target=count, args=(out, n))
    running.start()
    while kernel_is_missing(count):
        time.sleep(0.001)
    program(count).finish()  # the first form's memory would go here
    filler = [new_kernel() for _ in range(3)]  # and be used again here
    for kernel in filler:
        kernel.compile(*arrays(), 1.0)
    running.join()
    count(expected, n)
    assert out[0] == expected[0] != 0


def kernel_is_missing(kernel: tack.Kernel) -> bool:
    slot = default_backend().cache.get(kernel)
    return slot is None or not slot.variants


def test_an_error_in_the_background_is_the_next_launch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(module: object) -> bytes:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(jit, "compile_object", failing)
    kernel, (x, out) = new_kernel(), arrays()
    kernel(x, out, 1.0)
    upgrade = program(kernel).upgrade
    assert upgrade is not None
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Kernel 'add' failed on CPU: out of registers"):
            upgrade.finish()
        with pytest.raises(RuntimeError, match="Kernel 'add' failed on CPU: out of registers"):
            kernel(x, out, 2.0)
    assert out.tolist() == (x * x + 1).tolist()


def test_the_log_and_the_profile_tell_both_forms(
    paused: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TACK_LOG", "compile")
    kernel, (x, out) = new_kernel(), arrays()
    with tack.profile() as profile:
        kernel(x, out, 1.0)
        (entry,) = profile.kernels
        before = entry.compile_seconds
        program(kernel).finish()
    first, second = caplog.messages
    assert first.startswith("kernel 'add': compiled without optimization for ")
    assert second.startswith("kernel 'add': optimized for ")
    assert entry.compiles == 1
    (variant,) = default_backend().cache[kernel].variants.values()
    assert entry.compile_seconds == variant.seconds > before > 0


# --- both forms compute the same --------------------------------------------------------------------


def both_forms(run: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """The bytes that ``run`` returns of arrays, in the first form and optimized."""
    found = []
    for mode in ("tiered", "optimized"):
        monkeypatch.setenv("TACK_CPU_COMPILE", mode)
        found.append(b"".join(array.tobytes() for array in run()))
    return found[0], found[1]


@pytest.mark.parametrize("seed", range(12))
def test_float_expressions(seed: int, paused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [floats.expression(random.Random(f"{seed} {k}"), 4) for k in range(10)]
    names = [f"{v}{w}" for v in "xyz" for w in ("32", "64")]
    lines = "".join(f"        out[{k} * 64 + i] = {node.text}\n" for k, node in enumerate(nodes))
    source = f"@tack.kernel\ndef kernel(out, {', '.join(names)}):\n    for i in range(64):\n{lines}"
    draw = np.random.default_rng(seed)
    values = [draw.standard_normal(64).astype(np.float32 if n.endswith("32") else np.float64) for n in names]

    def run() -> list[np.ndarray]:
        out = np.zeros(64 * len(nodes))
        kernel = runner.build(source)
        kernel(out, *values)
        assert (program(kernel).upgrade is None) == (tiers.are_wanted() is False)
        out[np.isnan(out)] = np.nan  # of whichever operand
        return [out]

    first, optimized = both_forms(run, monkeypatch)
    assert first == optimized


@pytest.mark.parametrize("seed", range(6))
def test_integer_programs(seed: int, paused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_WORTH_WAITING", 1e18)
    programs = runner.generate(random.Random(seed), 4)
    source = runner.kernel_source(programs)

    def run() -> list[np.ndarray]:
        out, scratch = runner.run_tack(runner.build(source), len(programs), runner.INPUTS)
        return [out, *scratch.values()]

    first, optimized = both_forms(run, monkeypatch)
    assert first == optimized


def test_functions_loops_and_vectors(paused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[np.ndarray]:
        @tack.kernel
        def mix(x, y, out):
            for i in range(x.shape[0]):
                local = tack.local_array(4, tack.f32)
                total = 0.0
                for k in range(4):
                    local[k] = tack.sin(x[i] + k) * y[i] + tack.exp(-x[i] * x[i])
                for k in range(4):
                    total += local[k] * local[3 - k] - y[i] * 0.1
                direction = tack.vec3(x[i], y[i], total)
                if total > 0.0:
                    total = (x[i] ** 2 + y[i] ** 0.5) / (1.0 + total**1.5)
                out[i] = total + tack.dot(direction, direction) * min(max(total, 0.0), 1.0) + x[i] % y[i]

        draw = np.random.default_rng(1)
        x, y = (draw.uniform(0.1, 3.0, 500).astype(np.float32) for _ in range(2))
        out = np.zeros(500, np.float32)
        mix(x, y, out)
        assert (program(mix).upgrade is None) == (tiers.are_wanted() is False)
        return [out]

    first, optimized = both_forms(run, monkeypatch)
    assert first == optimized
    assert len(set(np.frombuffer(first, np.float32).tolist())) > 400


# --- work in the background --------------------------------------------------------------------------


def test_a_job_is_done_once() -> None:
    done = []
    job = Job(lambda: done.append(threading.current_thread().name))
    threads = [threading.Thread(target=job.finish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    job.finish()
    assert len(done) == 1


def test_a_job_that_ctrl_c_stopped_is_done_later() -> None:
    done = []

    def work() -> None:
        done.append(1)
        if len(done) == 1:
            raise KeyboardInterrupt

    job = Job(work)
    with pytest.raises(KeyboardInterrupt):
        job.finish()
    job.check()
    job.finish()
    assert done == [1, 1]


def test_a_job_that_needs_itself_goes_on() -> None:
    """As a signal handler's launch of the kernel that is being compiled."""
    job = Job(lambda: job.finish())
    job.finish()


def test_submitted_jobs_are_done_in_order_and_the_thread_ends() -> None:
    done: list[int] = []
    first = threading.Event()
    background.submit(Job(first.wait))
    jobs = [Job(lambda k=k: done.append(k)) for k in range(50)]
    for job in jobs:
        background.submit(job)
    first.set()
    jobs[-1].finish()  # out of its turn
    for job in jobs:
        job.finish()
    assert sorted(done) == list(range(50))
    end = time.monotonic() + 60
    while background._thread is not None and time.monotonic() < end:
        time.sleep(0.001)
    assert background._thread is None


# --- processes ---------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
import numpy as np
import tack

def make(offset):
    offset = tack.constant(offset)
    @tack.kernel
    def f(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i] * offset + 1.0
    return f

def right(k):
    x, out = np.arange(8.0), np.zeros(8)
    make(float(k))(x, out)
    return (out == x * k + 1).all()
"""


def finished(run_python: Any, folder: Path, text: str, **variables: str) -> Any:
    path = folder / "main.py"
    path.write_text(SCRIPT + text)
    done = run_python("-W", "ignore::DeprecationWarning", str(path), TACK_LOG="off", **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("count", [1, 12])
def test_a_program_ends_while_there_is_much_to_do(run_python: Any, tmp_path: Path, count: int) -> None:
    finished(run_python, tmp_path, f"assert all(right(k) for k in range({count}))")


def test_a_short_program_leaves_optimized_code_on_disk(run_python: Any, tmp_path: Path) -> None:
    place = {"TACK_CACHE": "write", "TACK_CACHE_DIR": str(tmp_path / "cache")}
    text = "assert all(right(k) for k in range(5))"
    finished(run_python, tmp_path, text, **place)
    text += """
from tack.runtime.disk.store import store
print(store().counts["hits"], store().counts["stored"], "llvmlite" in sys.modules)
"""
    without_llvm = hasattr(native.module, "Code") and sys.platform == "linux"
    assert finished(run_python, tmp_path, text, **place) == f"10 0 {not without_llvm}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_forks_while_there_is_much_to_do(run_python: Any, tmp_path: Path) -> None:
    text = """
for k in range(4):
    assert right(k)
    child = os.fork()
    if child == 0:  # launches, waits for optimized code, and ends as a program
        assert right(k) and right(100 + k)
        kernel, x, out = make(2.5), np.ones(8), np.zeros(8)
        kernel(x, out)
        kernel.compile(x, out)
        assert out.tolist() == [3.5] * 8
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert right(50)
"""
    finished(run_python, tmp_path, text)


def test_exit_with_ctrl_c_while_it_waits(run_python: Any, tmp_path: Path) -> None:
    """The rest is given up, and nothing crashes."""
    text = """
import signal, threading
from tack.runtime.cpu import background
assert all(right(k) for k in range(3))
for _ in range(3):
    background.submit(background.Job(lambda: signal.raise_signal(signal.SIGINT)))
print("end", flush=True)
"""
    path = tmp_path / "main.py"
    path.write_text(SCRIPT + text)
    place = {"TACK_CACHE": "write", "TACK_CACHE_DIR": str(tmp_path / "cache")}
    done = run_python(str(path), **place)
    assert done.stdout == "end\n"
    assert done.returncode in (0, 130), (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr or "KeyboardInterrupt" in done.stderr
