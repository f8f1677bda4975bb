"""The CPU's thread pool, with compiled kernels, and the default number of threads."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen.harness import PRINT, Compiled

from tack.runtime import native
from tack.runtime.cpu import cores
from tack.runtime.cpu.cores import default_threads
from tack.runtime.cpu.pool import NativePool, Pool, _Job, new_pool

COUNT = """kernel count(o: i64[]) {
  local i: i64
  parallel i in (0:i64, dim(o, 0), 1:i64) {
    o[%i] = add(o[%i], 1:i64)
  }
}"""
# Each iteration takes some microseconds.
SLOW = """kernel slow(o: f64[]) {
  local i: i64
  local j: i64
  parallel i in (0:i64, dim(o, 0), 1:i64) {
    for %j in (0:i64, 2000:i64, 1:i64) {
      o[%i] = add(o[%i], 1.0:f64)
    }
  }
}"""
NOISY = """kernel noisy(o: i64[]) {
  local i: i64
  parallel i in (0:i64, dim(o, 0), 1:i64) {
    o[%i] = add(o[%i], 1:i64)
    print %i
  }
}"""


KINDS = [Pool, *([NativePool] if native.module else [])]
kinds = pytest.mark.parametrize("kind", KINDS)


class Job:
    """A kernel with one array argument, ready for `Pool.run`."""

    def __init__(self, text: str, size: int, dtype: Any = np.int64, callback: Any = None) -> None:
        self.compiled = Compiled(text)
        self.array = np.zeros(size, dtype)
        self.slots = self.compiled.slots({"o": self.array}, [(0, 1, size)], callback)
        self.address = self.compiled.code.address("launch")

    def run(self, pool: Pool | NativePool, chunk: int) -> None:
        pool.run(self, self.address, ctypes.addressof(self.slots), chunk, 0, len(self.array))


@kinds
@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1, 2, 7, 1000, 100_003])
def test_every_iteration_runs_once(kind: type[Pool], num_threads: int, size: int) -> None:
    pool = kind(num_threads)
    job = Job(COUNT, size)
    turns = 0
    for chunk in (1, 3, size // 2, size, 2 * size):
        if chunk and size // chunk < 2000:
            job.run(pool, chunk)
            turns += 1
    assert job.array.tolist() == [turns] * size


@kinds
@pytest.mark.parametrize(("low", "high"), [(0, 1), (7, 7), (1, 900), (999, 1000), (250, 1000)])
@pytest.mark.parametrize("chunk", [1, 100, 5000])
def test_a_part_of_the_iterations(kind: type[Pool], low: int, high: int, chunk: int) -> None:
    job = Job(COUNT, 1000)
    kind(3).run(job, job.address, ctypes.addressof(job.slots), chunk, low, high)
    assert job.array.tolist() == [int(low <= i < high) for i in range(1000)]


@pytest.mark.skipif(native.module is None, reason="the C extension is not installed")
@pytest.mark.parametrize(("chunk", "low", "high"), [(0, 0, 9), (-1, 0, 9), (1, 5, 4), (1, -1, 4)])
def test_the_native_pool_refuses_what_is_no_range(chunk: int, low: int, high: int) -> None:
    job = Job(COUNT, 10)
    with pytest.raises(ValueError, match="no negative size"):
        NativePool(2).run(job, job.address, ctypes.addressof(job.slots), chunk, low, high)
    assert not job.array.any()


@kinds
def test_threads_share_the_work(kind: type[Pool]) -> None:
    seen = set()
    both = threading.Barrier(2, timeout=30)

    def on_print(site: int, values: Any) -> None:
        # The launch goes on only when two threads are in it at the same time.
        seen.add(threading.get_ident())
        both.wait()

    callback = PRINT(on_print)
    Job(NOISY, 2, callback=callback).run(kind(2), 1)
    assert len(seen) == 2
    assert threading.get_ident() in seen


@kinds
def test_launches_from_many_threads_at_once(kind: type[Pool]) -> None:
    pool = kind(3)
    jobs = [Job(COUNT, 5000 + k) for k in range(8)]

    def work(job: Job) -> None:
        for _ in range(200):
            job.run(pool, 700)

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job in jobs:
        assert (job.array == 200).all()


@kinds
def test_a_launch_within_a_launch(kind: type[Pool]) -> None:
    pool = kind(2)
    inner = Job(COUNT, 100)
    with_lock = threading.Lock()

    def on_print(site: int, values: Any) -> None:
        with with_lock:  # the inner kernel's updates are not atomic
            inner.run(pool, 10)

    callback = PRINT(on_print)
    outer = Job(NOISY, 40, callback=callback)
    outer.run(pool, 5)
    assert (outer.array == 1).all()
    assert (inner.array == 40).all()


def test_workers_stop_when_the_pool_is_dropped() -> None:
    before = set(threading.enumerate())
    pool = Pool(4)
    assert set(threading.enumerate()) <= before  # they start when needed
    Job(COUNT, 1000).run(pool, 10)
    workers = set(threading.enumerate()) - before
    assert len(workers) == 3
    del pool
    for worker in workers:
        worker.join(timeout=30)
        assert not worker.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads in /proc")
@pytest.mark.skipif(native.module is None, reason="the C extension is not installed")
def test_native_workers_stop_when_the_pool_is_dropped(run_python: Any) -> None:
    # In a process of its own: workers of other tests' pools may still be about to stop.
    text = """
import time
def threads():
    return len(os.listdir("/proc/self/task"))

before = threads() - pool.native.workers
other = NativePool(4)
idle = threads() - before  # they start when needed
job.run(other, 10)
busy = threads() - before
del other
deadline = time.monotonic() + 30
while threads() - before > 2 and time.monotonic() < deadline:
    time.sleep(0.001)
print(idle, busy, threads() - before)
"""
    done = run_python("-c", program(NativePool, text))
    assert done.stdout == "2 5 2\n", done.stderr


def test_workers_that_leave_late_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for the GIL when they are done, or come when all is over."""
    may_leave = threading.Event()
    help_out = _Job.help

    def help_slowly(job: _Job) -> None:
        help_out(job)
        may_leave.wait(30)

    monkeypatch.setattr(_Job, "help", help_slowly)
    pool = Pool(4)
    try:
        for _ in range(3):  # the workers come to the first alone
            job = Job(COUNT, 1000)
            array = weakref.ref(job.array)
            job.run(pool, 10)
            assert (job.array == 1).all()
            del job
            assert array() is None
    finally:
        may_leave.set()


def test_an_interrupted_launch_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the exception is gone, and before garbage is collected."""

    def interrupt(pool: Pool, helpers: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "_start", interrupt)
    gc.disable()
    try:
        job = Job(COUNT, 1000)
        array = weakref.ref(job.array)
        with contextlib.suppress(KeyboardInterrupt):
            job.run(Pool(2), 10)
            pytest.fail("no exception")
        assert (job.array == 1).all()
        del job
        assert array() is None
    finally:
        gc.enable()


def test_the_variable_names_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_CPU_POOL", "python")
    assert type(new_pool(2)) is Pool
    monkeypatch.setenv("TACK_CPU_POOL", "")
    assert type(new_pool(2)) is KINDS[-1]
    monkeypatch.setenv("TACK_CPU_POOL", "fast")
    with pytest.raises(ValueError, match="TACK_CPU_POOL='fast' is not accepted; use one of: native, python"):
        new_pool(2)


def test_a_system_that_gives_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    job = Job(COUNT, 1000)
    job.run(Pool(4), 10)
    assert (job.array == 1).all()


@kinds
def test_bad_sizes(kind: type[Pool]) -> None:
    with pytest.raises(ValueError, match="at least 1 thread, not 0"):
        kind(0)


# --- interruptions, forks, exits ----------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@kinds
def test_an_interrupt_waits_for_the_launch(kind: type[Pool]) -> None:
    pool = kind(2)
    job = Job(SLOW, 40_000, np.float64)
    interrupted = 0

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for turn in range(20):
            job.array[:] = 0
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002 * (1 + turn % 10))
                try:
                    job.run(pool, 400)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                # It came before the launch, or else everything has run; and nobody is still writing.
                state = job.array.copy()
                assert (state == state[0]).all()
                assert state[0] in (0, 2000)
                interrupted += state[0] == 2000
                time.sleep(0.01)
                assert (job.array == state).all()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 5
    job.array[:] = 0
    job.run(pool, 1000)
    assert (job.array == 2000).all()


PROGRAM = """
import ctypes, os, sys, threading
import numpy as np
sys.path.insert(0, {tests!r})
from codegen.harness import Compiled
from runtime.test_pool import COUNT, SLOW, Job
from tack.runtime.cpu.pool import {kind}

pool = {kind}(3)
job = Job(COUNT, 30_000)
job.run(pool, 1000)

def in_child(work):
    "The exit status of a forked child that does ``work``."
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]
"""


def program(kind: type[Pool], text: str) -> str:
    return PROGRAM.format(tests=str(Path(__file__).parents[1]), kind=kind.__name__) + text


@kinds
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_have_workers_of_their_own(kind: type[Pool], run_python: Any) -> None:
    text = """
def work(turns=20):
    for _ in range(turns):
        job.run(pool, 1000)
    assert (job.array == 1 + turns).all()
    workers = threading.active_count() - 1 if pool.native is None else pool.native.workers
    assert workers == 2, threading.enumerate()

assert in_child(work) == 0

# Fork from one thread while another is in a launch, whatever locks it holds.
busy = Job(COUNT, 30_000)
stop = threading.Event()
def keep_busy():
    while not stop.is_set():
        busy.run(pool, 500)
thread = threading.Thread(target=keep_busy)
thread.start()
def fresh():
    other = Job(COUNT, 10_000)
    for _ in range(5):
        other.run(pool, 100)
    assert (other.array == 5).all()
for _ in range(20):
    assert in_child(fresh) == 0
stop.set()
thread.join()
work()
print("done")
"""
    done = run_python("-c", program(kind, text))
    assert done.stdout == "done\n", done.stderr


@kinds
def test_exit_with_idle_workers_and_launches_at_exit(kind: type[Pool], run_python: Any) -> None:
    text = """
import atexit

class Late:
    def __del__(self, run=job.run, pool=pool):
        run(pool, 1000)
        os.write(1, b"deleted ")

def at_exit():
    job.run(pool, 1000)
    Job(COUNT, 5000).run(type(pool)(4), 100)
    os.write(1, b"exiting ")

atexit.register(at_exit)
late = Late()
late.itself = late
os.write(1, b"last ")
"""
    done = run_python("-c", program(kind, text))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("last exiting ")


@kinds
def test_exit_while_another_thread_is_in_a_launch(kind: type[Pool], run_python: Any) -> None:
    text = """
busy = Job(SLOW, 1_000_000, np.float64)
threading.Thread(target=busy.run, args=(pool, 1000), daemon=True).start()
while not busy.array[:1000].any():
    pass
print("leaving")
"""
    done = run_python("-c", program(kind, text))
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


# --- the number of threads ----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "1025", "99999999999999999999"])
def test_bad_variables_name_what_is_accepted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_CPU_THREADS", text)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"TACK_CPU_THREADS='{text}'.* integer between 1 and 1024"):
            default_threads()


def test_the_variable_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_CPU_THREADS", " 7 ")
    assert default_threads() == 7
    for unset in ("", " "):
        monkeypatch.setenv("TACK_CPU_THREADS", unset)
        assert default_threads() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs processor affinity")
def test_affinity_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACK_CPU_THREADS", raising=False)
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert default_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def system(root: Path, files: dict[str, str]) -> Path:
    """A folder with these files, laid out as the system's are."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_cores_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 6}, raising=False)
    topology = "sys/devices/system/cpu/cpu{}/topology/{}"
    pairs = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 6: "2,6"}
    for name in ("core_cpus_list", "thread_siblings_list"):
        files = {topology.format(cpu, name): siblings + "\n" for cpu, siblings in pairs.items()}
        assert cores._physical_cores(str(system(tmp_path / name, files))) == 4
    assert cores._physical_cores(str(tmp_path / "nothing")) == 5


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, math.inf),
        ({"proc/self/cgroup": "0::/\n"}, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/user.slice/job\n",
                "sys/fs/cgroup/user.slice/job/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/user.slice/cpu.max": "300000 100000\n",
            },
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/box\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (  # the path of the host, of which the container sees only its own part
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/0123\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            math.inf,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense"}, math.inf),
    ],
)
def test_quotas(files: dict[str, str], quota: float, tmp_path: Path) -> None:
    assert cores._quota(str(system(tmp_path, files))) == quota
