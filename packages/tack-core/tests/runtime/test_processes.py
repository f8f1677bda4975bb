"""Kernels in forked, spawned and served processes, after the parent has used them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tack.runtime import native

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(autouse=True)
def tiered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes as users start them, with code that is optimized in the background."""
    monkeypatch.setenv("TACK_CPU_COMPILE", "tiered")


COMMON = """
import json, os, sys, threading
import numpy as np
import tack

@tack.func
def cube(v):
    return v * v * v

@tack.kernel
def cubes(x, out, shift):
    for i in range(x.shape[0]):
        out[i] = cube(x[i]) + shift

def correct(dtype=np.int64, size=1000, shift=5):
    "Calls the kernel and compares with NumPy."
    x = (np.arange(size) % 50).astype(dtype)
    out = np.zeros(size, dtype)
    cubes(x, out, shift)
    return bool((out == (x * x * x + dtype(shift)).astype(dtype)).all())

def tack_arrays(size=200_000):
    "Fills, launches and reductions that the pool shares out."
    x, out = tack.full(size, 2.0), tack.zeros(size)
    cubes(x, out, 1)
    return out.sum() == 9.0 * size

def in_child(work):
    "Whether a forked child finds ``work()`` true, and nothing is raised."
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 3
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0
"""


def script(run_python: Any, folder: Path, text: str, **variables: str) -> Any:
    """The last line that a program printed, as data."""
    path = folder / "main.py"
    path.write_text(COMMON + text)
    done = run_python("-W", "ignore::DeprecationWarning", str(path), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


def test_fork_after_use(run_python: Any, tmp_path: Path) -> None:
    text = """
assert correct() and tack_arrays()
found = {
    "as before": in_child(correct),
    "other types": in_child(lambda: correct(np.float32) and correct(np.uint8, shift=3)),
    "large": in_child(lambda: correct(size=3_000_000)),
    "arrays": in_child(tack_arrays),
    "grandchild": in_child(lambda: correct() and in_child(lambda: correct(np.int16) and tack_arrays())),
    "threads": in_child(lambda: all_threads()),
    "device": in_child(lambda: on_a_device()),
    "debug": in_child(lambda: debug_mode()),
    "the parent afterwards": correct() and correct(np.float64) and tack_arrays(),
}
"""
    helpers = """
def all_threads():
    results = []
    def work(k):
        results.append(correct((np.int32, np.float32)[k % 2], size=10_000 + k))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results == [True] * 8

def on_a_device():
    with tack.device("cpu", num_threads=3):
        return correct(size=2_000_000)

def debug_mode():
    tack.set_debug(True)
    try:
        cubes(np.zeros(3), np.zeros(2), 0)
    except IndexError:
        return correct()
"""
    found = script(run_python, tmp_path, helpers + text + "print(json.dumps(found))")
    assert found == dict.fromkeys(found, True)
    assert len(found) == 9


def test_fork_from_a_thread_while_others_launch(run_python: Any, tmp_path: Path) -> None:
    text = """
assert correct(size=300_000)
stop = threading.Event()
def keep_busy():
    while not stop.is_set():
        assert correct(size=300_000)
busy = [threading.Thread(target=keep_busy) for _ in range(2)]
for thread in busy:
    thread.start()
found = []
def fork():
    for _ in range(15):
        found.append(in_child(lambda: correct(size=300_000) and correct(np.float32, size=20)))
forking = threading.Thread(target=fork)
forking.start()
forking.join()
stop.set()
for thread in busy:
    thread.join()
print(json.dumps(found))
"""
    assert script(run_python, tmp_path, text) == [True] * 15


@pytest.mark.skipif(native.module is None, reason="nothing is learned without the native dispatcher")
def test_fork_while_another_thread_begins_to_learn(run_python: Any, tmp_path: Path) -> None:
    """Python's lock of a module that is being imported stays locked in a child."""
    text = """
import time
assert correct()
began = threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "tack.runtime.learn":
            began.set()
            time.sleep(0.5)
sys.meta_path.insert(0, Slow())
from tack.runtime.dispatch import default_backend
(variant,) = default_backend().cache[cubes].variants.values()
variant.payload.finish()  # what is learned is optimized code alone
learner = threading.Thread(target=lambda: [correct() for _ in range(3)])
learner.start()
assert began.wait(30)
print(json.dumps(in_child(lambda: correct() and correct() and correct())))
learner.join()
"""
    assert script(run_python, tmp_path, text) is True


def test_fork_while_another_thread_drops_something_of_llvm(run_python: Any, tmp_path: Path) -> None:
    """llvmlite has a lock around each of its calls, finalizers' as well, which stays locked in a child."""
    text = """
import time
from llvmlite.binding import ffi
assert correct()
began = threading.Event()
def drop():
    with ffi.lib._lock:
        began.set()
        time.sleep(0.5)
dropping = threading.Thread(target=drop)
dropping.start()
assert began.wait(30)
print(json.dumps(in_child(lambda: correct(np.float32))))
dropping.join()
"""
    assert script(run_python, tmp_path, text) is True


def test_forked_children_compile_and_store_at_once(run_python: Any, tmp_path: Path) -> None:
    text = """
from tack.runtime.disk.store import store
assert correct()
children = []
for k in range(6):
    child = os.fork()
    if child == 0:
        os._exit(0 if correct(np.float32) and correct(np.int16) and store().counts["bad"] == 0 else 1)
    children.append(child)
ends = [os.waitpid(child, 0)[1] for child in children]
before = dict(store().counts)
again = correct(np.float32) and correct(np.int16)
counts = {name: store().counts[name] - before[name] for name in before}
print(json.dumps([ends, again, counts["hits"], counts["misses"]]))
"""
    place = {"TACK_CACHE": "write", "TACK_CACHE_DIR": str(tmp_path / "cache")}
    place["TACK_CPU_COMPILE"] = "optimized"  # children that end so have no time for the background
    assert script(run_python, tmp_path, text, **place) == [[0] * 6, True, 2, 0]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_after_use(run_python: Any, tmp_path: Path, method: str) -> None:
    """Kernels, arrays and devices as arguments and results, of a pool's workers and of an executor's."""
    text = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def task(kernel, x, shift):
    out = tack.zeros(x.shape, x.dtype)
    kernel(x, out, shift)
    return out, os.getpid()

if __name__ == "__main__":
    assert correct() and tack_arrays()
    context = multiprocessing.get_context(METHOD)
    jobs = [(cubes, tack.asarray(np.arange(4.0) + k), k) for k in range(8)]
    with context.Pool(2) as pool:
        found = pool.starmap(task, jobs)
        found += [pool.apply(task, jobs[0])]
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        found += executor.map(task, *zip(*jobs))
    assert os.getpid() not in {process for _, process in found}
    print(json.dumps([out.numpy().tolist() for out, _ in found] + [correct()]))
"""
    found = script(run_python, tmp_path, text.replace("METHOD", repr(method)))
    want = [[float((i + k) ** 3 + k) for i in range(4)] for k in range(8)]
    assert found == [*want, want[0], *want, True]


def test_a_fork_shares_the_bundle_that_was_read(run_python: Any, tmp_path: Path) -> None:
    place = {"TACK_CACHE_DIR": str(tmp_path / "cache")}
    assert script(run_python, tmp_path, "print(json.dumps(correct()))", TACK_CACHE="write", **place)
    assert run_python("-m", "tack.cache", "pack", **place).returncode == 0
    text = """
loaded = tack.cache.load_bundle()
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
cache = os.environ["TACK_CACHE_DIR"]
def found_there():
    return correct() and "tack.lang.lower" not in sys.modules and not any(p.startswith(cache) for p in opened)
print(json.dumps([loaded, in_child(found_there)]))
"""
    assert script(run_python, tmp_path, text, TACK_CACHE="bundle", **place) == [2, True]
