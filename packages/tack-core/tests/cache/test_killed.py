"""Many processes that share a cold cache, half of which are killed: nothing bad is stored or used."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from project import Project, command

from tack.runtime.disk import store
from tack.runtime.disk.entry import read_entry

WAVES = 4
IN_A_WAVE = 16
KERNELS = 5

# Arguments: the wave, whose kernels no earlier wave has; which kernel comes first; and at which of its calls
# on files the process kills itself, in the middle of a write if that is one. 0 is never.
PROGRAM = """
import json, os, signal, sys, types, warnings
caught = []
warnings.showwarning = lambda message, *rest: caught.append(str(message))
import tack
from tack.runtime.disk import store as files

wave, first, last_call, kernels = map(int, sys.argv[1:])
calls = 0
def dying(name):
    call = getattr(os, name)
    def counted(*args):
        global calls
        calls += 1
        if calls == last_call:
            if name == "write":
                call(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return counted
if last_call:
    counted = {name: dying(name) for name in ("open", "write", "close", "replace")}
    files.os = types.SimpleNamespace(**{**vars(os), **counted})

def make(number):
    shift = tack.constant(number)
    @tack.kernel
    def shifted(x):
        for i in range(x.shape[0]):
            x[i] = x[i] * 3 + shift
    return shifted

print("ready", flush=True)
results = {}
for k in range(first, first + kernels):
    number = 100 * wave + k % kernels
    x = tack.arange(3, dtype=tack.i32)
    make(number)(x)
    results[number] = x.numpy().tolist()
print(json.dumps({"results": results, "warnings": caught, **files.store().counts}))
"""


def start(project: Project, wave: int, first: int = 0, last_call: int = 0) -> subprocess.Popen[str]:
    script = project.path / "shared.py"
    if not script.exists():
        script.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, (wave, first, last_call, KERNELS))],
        env=project.environment(TACK_CPU_COMPILE="tiered", TACK_CPU_THREADS="1", OPENBLAS_NUM_THREADS="1"),
        cwd=project.path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str], wave: int) -> dict[str, Any] | None:
    """What a process reports, which must be right; None if it was killed."""
    out, err = process.communicate(timeout=240)
    if process.returncode == -signal.SIGKILL:
        return None
    assert process.returncode == 0, err
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    numbers = range(100 * wave, 100 * wave + KERNELS)
    assert report["results"] == {str(n): [n, 3 + n, 6 + n] for n in numbers}
    assert (report["warnings"], report["bad"], report["failed"]) == ([], 0, 0)
    return report


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    """Kills a process so long after it has started to use kernels."""
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    process.kill()


def temporary(project: Project) -> list[Path]:
    return sorted(project.cache.rglob("*.tmp"))


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.timeout(600)
def test_64_processes_half_of_them_killed(project: Project) -> None:
    rng = random.Random(11)
    survivors = killed = 0
    for wave in range(WAVES):
        processes = []
        threads = []
        for k in range(IN_A_WAVE):
            # Of four, one kills itself around a call, and one is killed at a random moment. With every
            # kernel found, a process makes 4 calls for each; at least one of them is the last.
            last_call = rng.randrange(1, 4 * KERNELS) if k % 4 == 1 else 0
            process = start(project, wave, rng.randrange(KERNELS), last_call)
            processes.append(process)
            if k % 4 == 3:
                threads.append(threading.Thread(target=kill_after, args=(process, rng.uniform(0.0, 2.0))))
                threads[-1].start()
        for thread in threads:
            thread.join()
        for k, process in enumerate(processes):
            report = finish(process, wave)
            assert report is None or k % 4 != 1
            assert report is not None or k % 2 == 1
            survivors += report is not None
            killed += report is None
    assert survivors >= WAVES * IN_A_WAVE // 2
    assert killed >= WAVES * IN_A_WAVE // 4

    entries = project.entries()
    assert len(entries) == 2 * WAVES * KERNELS
    for path in entries:
        assert read_entry(path.read_bytes()) is not None
    others = {p.name for p in project.cache.rglob("*") if p.is_file()} - {p.name for p in entries}
    assert others == {store.MARK, *(path.name for path in temporary(project))}  # and so no lock
    for wave in range(WAVES):
        report = finish(start(project, wave), wave)
        assert report is not None
        assert (report["hits"], report["misses"]) == (2 * KERNELS, 0)


def test_what_a_killed_process_leaves_is_cleaned_an_hour_later(project: Project) -> None:
    """By any process that stores something; not earlier, when a writer may still be at work."""
    calls = 1
    while not temporary(project):  # until it dies between opening a file and renaming it
        process = start(project, 0, last_call=calls)
        assert finish(process, 0) is None
        calls += 1
        assert calls < 20
    (left,) = temporary(project)
    assert left.name.startswith(f"{process.pid:x}-")
    assert finish(start(project, 0), 0) is not None
    mark = project.cache / store.MARK

    for seconds in (0, 3000):
        age(left, seconds)
        age(mark, 4000)
        assert finish(start(project, 1 + seconds), 1 + seconds) is not None
        assert temporary(project) == [left]
    age(left, 4000)
    assert finish(start(project, 2), 2) is not None  # the mark is fresh
    assert temporary(project) == [left]
    age(mark, 4000)
    entries = len(project.entries())
    assert finish(start(project, 3), 3) is not None
    assert temporary(project) == []
    assert len(project.entries()) == entries + 2 * KERNELS


def test_what_a_killed_pack_leaves_is_cleaned_too(project: Project) -> None:
    """It is beside the versions' directories, where files of the user's may be as well."""
    project.run()
    text = """
import json, os, signal, types
import tack
from tack.runtime.disk import store as files
def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)
files.os = types.SimpleNamespace(**{**vars(os), "replace": kill})
tack.cache.pack()
"""
    process = project.start(text)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    (left,) = temporary(project)
    assert left.parent == project.cache
    mine = project.cache / "notes.tmp"
    mine.write_text("kept")
    for path in (left, mine):
        age(path, 4000)
    store.prune(str(project.cache), 1 << 30)
    assert temporary(project) == [mine]
    assert len(project.entries()) == 4
    process = project.start(text)
    process.communicate(timeout=120)
    assert len(temporary(project)) == 2
    assert command(project, "clear", "--all", "--json")["deleted"] == 5
    assert temporary(project) == [mine]
