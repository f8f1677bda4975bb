"""Kernels called from many Python threads at once: each call is right, and one thread compiles for all."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tack
from tack.codegen.llvm import jit

THREADS = 8
DTYPES = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.float32, np.float64)


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Threads take turns every few instructions, so that they meet everywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets the text of each module that is compiled from here on."""
    texts: list[str] = []
    compile_object = jit.compile_object

    def counted(module: Any) -> bytes:
        texts.append(str(module))
        return compile_object(module)

    monkeypatch.setattr(jit, "compile_object", counted)
    return texts


def together(*works: Callable[[], object]) -> None:
    """Does all ``works`` at once, in a thread each; raises what the first of them raised."""
    start = threading.Barrier(len(works))
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        start.wait(timeout=60)
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a thread hangs"
    if raised:
        raise raised[0]


def make(kind: int = 0) -> tack.Kernel:
    """A kernel that nothing has compiled yet: x * x + kind."""
    shift = tack.constant(kind)

    @tack.kernel
    def square(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i] * x[i] + shift

    return square


def squares(kernel: tack.Kernel, dtype: Any, size: int, kind: int = 0) -> None:
    """Calls the kernel and compares with NumPy, in whose integers overflow wraps too."""
    x = (np.arange(size) % 11).astype(dtype)
    out = np.zeros(size, dtype)
    kernel(x, out)
    np.testing.assert_array_equal(out, x * x + dtype(kind))


def test_one_kernel_with_a_type_for_each_thread(compiled: list[str]) -> None:
    kernel = make()

    def work(dtype: Any) -> Callable[[], None]:
        return lambda: [squares(kernel, dtype, 100 + 37 * turn) for turn in range(60)] and None

    together(*(work(dtype) for dtype in DTYPES))
    assert len(compiled) == len(DTYPES)


@pytest.mark.parametrize("turn", range(10))
def test_a_cold_miss_in_all_threads_compiles_once(turn: int, compiled: list[str]) -> None:
    kernel = make(turn)
    together(*(lambda: squares(kernel, np.float64, 1000, turn),) * THREADS)
    assert len(compiled) == 1


def test_cold_kernels_of_their_own() -> None:
    kernels = [make(k) for k in range(THREADS)]
    together(*(lambda k=k: squares(kernels[k], np.int32, 5000, k) for k in range(THREADS)))
    squares(kernels[0], np.int32, 100, 0)


def test_large_launches_from_all_threads() -> None:
    """Those that the pool would share among its threads."""
    kernel = make()
    together(*(lambda: [squares(kernel, np.float32, 2_000_000) for _ in range(4)],) * 4)


def test_atomic_updates_from_all_threads_meet() -> None:
    @tack.kernel
    def count(total, n):
        for _ in range(n):
            tack.atomic_add(total, 0, 1)

    total = tack.zeros(1, tack.i64)
    together(*(lambda: [count(total, 500 + k) for k in range(40)],) * THREADS)
    assert total[0] == THREADS * sum(500 + k for k in range(40))


def test_instances_of_a_device_class() -> None:
    """The layout of each is learned by whichever thread comes first."""

    @tack.device_class
    class Line:
        def __init__(self, slope: float, table: Any) -> None:
            self.slope = slope
            self.table = table

        @tack.func
        def at(self, i):
            return self.slope * self.table[i]

    @tack.kernel
    def draw(line, out):
        for i in range(out.shape[0]):
            out[i] = line.at(i)

    table = np.arange(64.0)
    lines = [Line(k + 0.5, tack.asarray(table)) for k in range(THREADS)]

    def work(k: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(30):
                out = np.zeros(64)
                draw(lines[k], out)
                np.testing.assert_array_equal(out, (k + 0.5) * table)

        return run

    together(*map(work, range(THREADS)))


def test_a_kernel_that_cannot_compile_fails_in_every_thread() -> None:
    @tack.kernel
    def wrong(x):
        for i in range(x.shape[0]):
            x[i] = missing

    messages: list[str] = []

    def work() -> None:
        with pytest.raises(NameError) as caught:
            wrong(np.zeros(3))
        messages.append(str(caught.value))

    together(*(work,) * THREADS)
    assert len(messages) == THREADS
    assert len(set(messages)) == 1


def test_kernels_that_are_made_used_and_dropped() -> None:
    def work(k: int) -> Callable[[], None]:
        return lambda: [squares(make(k), np.int32, 50, k) for _ in range(6)] and None

    together(*map(work, range(THREADS)))


def test_default_devices_are_each_threads_own() -> None:
    kernel = make()
    devices = [tack.device("cpu", num_threads=1 + k % 3) for k in range(THREADS)]

    def work(k: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(10):
                with devices[k]:
                    x = tack.arange(20, dtype=tack.i32)
                    assert x.device == devices[k]
                    out = tack.zeros(20, tack.i32)
                    kernel(x, out)
                    assert out.numpy().tolist() == [i * i for i in range(20)]

        return run

    together(*map(work, range(THREADS)))


FIRST = """
import json, sys, threading
import numpy as np
import tack
sys.setswitchinterval(1e-6)

@tack.kernel
def triple(x, out):
    for i in range(x.shape[0]):
        out[i] = 3 * x[i]

results = [None] * 8
start = threading.Barrier(8)
def work(k):
    start.wait()
    x, out = tack.full(40_000, k, tack.i32), tack.zeros(40_000, tack.i32)
    triple(x, out)
    results[k] = int(out.numpy().sum())
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
from tack.runtime.disk.store import store
print(json.dumps([results, store().counts]))
"""


def test_the_first_use_in_a_process_is_in_all_threads_at_once(run_python: Any, tmp_path: Any) -> None:
    """Imports, the default device, the disk cache and the compiler all start then; cold, then warm."""
    (tmp_path / "main.py").write_text(FIRST)
    for turn in ("cold", "warm"):
        done = run_python(
            str(tmp_path / "main.py"), TACK_CACHE="write", TACK_CACHE_DIR=str(tmp_path / "cache")
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        results, counts = json.loads(done.stdout)
        assert results == [3 * k * 40_000 for k in range(8)]
        cold = turn == "cold"
        assert (counts["misses"], counts["stored"], counts["hits"]) == ((2, 2, 0) if cold else (0, 0, 2))


EACH = """
import json, os, sys, threading
import tack
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
sys.setswitchinterval(1e-6)

def make(k):
    shift = tack.constant(k)
    @tack.kernel
    def shifted(out):
        for i in range(out.shape[0]):
            out[i] = i + shift
    return shifted

results = [None] * 8
kernels = [make(k) for k in range(8)]
start = threading.Barrier(8)
def work(k):
    start.wait()
    out = tack.zeros(3, tack.i32)
    kernels[k](out)
    results[k] = out.numpy().tolist()
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
bundles = [path for path in opened if str(path).endswith(".bundle")]
print(json.dumps([results, len(bundles), "tack.lang.lower" in sys.modules]))
"""


def test_threads_that_need_the_bundle_at_once_read_it_once(run_python: Any, tmp_path: Any) -> None:
    (tmp_path / "main.py").write_text(EACH)
    place = {"TACK_CACHE_DIR": str(tmp_path / "cache")}
    for mode, bundles in (("write", 0), ("bundle", 1), ("bundle", 1)):
        done = run_python(str(tmp_path / "main.py"), TACK_CACHE=mode, **place)
        assert done.stderr == ""
        # What the bundle holds is not compiled, so nothing imports the front end.
        assert json.loads(done.stdout) == [[[k, k + 1, k + 2] for k in range(8)], bundles, bundles == 0]
        assert run_python("-m", "tack.cache", "pack", **place).returncode == 0
