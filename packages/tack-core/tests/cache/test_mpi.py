"""The cache in MPI jobs of four processes, started by `mpiexec`: who touches which file."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import mpiexec
from project import MAIN, Project, assert_hit, assert_miss, expected

RANKS = 4

# Notes what is done to files of the cache. Looking at a file raises no event, so those functions are wrapped.
WATCH = """
import os, sys
touched = []
def note(call, path, changes):
    if isinstance(path, str) and path.startswith(os.environ["TACK_CACHE_DIR"]):
        touched.append([call, os.path.basename(path), bool(changes)])
def audit(event, args):
    if event == "open":
        note(event, args[0], args[2] & (os.O_WRONLY | os.O_RDWR))
    elif event.startswith("os."):
        note(event, args[0] if args else None, event not in ("os.listdir", "os.scandir"))
sys.addaudithook(audit)
def watched(name, call):
    def look(path, *args, **kwargs):
        note(name, path, False)
        return call(path, *args, **kwargs)
    return look
for name in ("stat", "lstat", "access", "readlink"):
    setattr(os, name, watched(name, getattr(os, name)))
from mpi4py import MPI
comm = MPI.COMM_WORLD
"""
LOAD = "loaded = tack.cache.load_bundle(comm=comm)\n"
REPORT = """
from tack.runtime.disk import config
report.update(touched=touched, mode=config.current().mode, rank=comm.Get_rank())
with open(f"report-{comm.Get_rank()}.json", "w") as file:
    json.dump(report, file)
"""


def job(
    project: Project, before: str = "", after: str = "", prefix: tuple[str, ...] = (), **env: str
) -> list[Any]:
    """What each rank reports, in order."""
    script = project.path / "job.py"
    script.write_text(MAIN.format(before=WATCH + before, after=after + REPORT))
    done = mpiexec(RANKS, [*prefix, sys.executable, script], project.path, project.environment(**env))
    assert done.returncode == 0, done.stderr
    reports = [json.loads((project.path / f"report-{rank}.json").read_text()) for rank in range(RANKS)]
    assert [report["rank"] for report in reports] == list(range(RANKS))
    return reports


def pack(project: Project) -> Path:
    """Warms the cache up and packs it."""
    assert_miss(project.run(), expected(), misses=4)
    path = project.script("import json, tack\nprint(json.dumps(tack.cache.pack()['path']))")
    return Path(path)


def test_rank_0_alone_reads_the_bundle_and_nobody_another_file(project: Project) -> None:
    bundle = pack(project)
    reports = job(project, LOAD, "report['loaded'] = loaded")
    for report in reports:
        assert_hit(report, expected())
        assert (report["mode"], report["loaded"]) == ("bundle", 4)
    first, *others = (report["touched"] for report in reports)
    assert [touch for touch in first if touch[0] == "open"] == [["open", bundle.name, False]]
    assert {name for _, name, _ in first} == {bundle.name, project.cache.name}
    assert others == [[], [], []]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_the_system_calls_on_the_cache_are_three(project: Project) -> None:
    """Of all ranks together, as the kernel of the operating system counts them."""
    bundle = pack(project)
    prefix = ("strace", "-ff", "-qq", "-s", "4096", "-e", "trace=%file", "-o", str(project.path / "calls"))
    for report in job(project, LOAD, prefix=prefix):
        assert_hit(report, expected())
    traces = sorted(project.path.glob("calls.*"))
    assert len(traces) >= RANKS
    place = re.escape(str(project.cache))
    found = re.findall(
        rf'^(\w+)\(.*"{place}(/[^"]*)?"', "\n".join(path.read_text() for path in traces), re.MULTILINE
    )
    names = [(re.sub(r"^(new)?f?stat(at)?(64)?$", "stat", call), path) for call, path in found]
    assert sorted(names) == [("openat", f"/{bundle.name}"), ("stat", ""), ("stat", f"/{bundle.name}")]


def test_without_load_bundle_each_rank_reads_it_once(project: Project) -> None:
    bundle = pack(project)
    for report in job(project):
        assert_hit(report, expected())
        assert report["mode"] == "bundle"
        assert [touch for touch in report["touched"] if touch[0] == "open"] == [["open", bundle.name, False]]
        assert {name for _, name, _ in report["touched"]} == {bundle.name, project.cache.name}


@pytest.mark.parametrize("damage", ["missing", "cut short", "flipped", "of others"])
def test_a_bundle_that_cannot_be_used(project: Project, damage: str) -> None:
    """Rank 0 warns, and all compile."""
    bundle = pack(project)
    whole = bundle.read_bytes()
    if damage == "missing":
        bundle.unlink()
    elif damage == "of others":
        bundle.chmod(0o666)
    else:
        bundle.write_bytes(whole[:200] if damage == "cut short" else whole[:60] + b"????" + whole[64:])
    for rank, report in enumerate(job(project, LOAD, "report['loaded'] = loaded")):
        assert report["results"] == expected()
        assert (report["loaded"], report["hits"], report["stored"]) == (0, 0, 0)
        assert [kind for kind, _ in report["warnings"]] == ["CacheWarning"] * (rank == 0)
        assert not any(changes for _, _, changes in report["touched"])
        assert rank == 0 or report["touched"] == []
    assert bundle.exists() == (damage != "missing")


def test_in_write_mode_rank_0_alone_stores(project: Project) -> None:
    cold = job(project, TACK_CACHE="write")
    for rank, report in enumerate(cold):
        assert (report["results"], report["warnings"], report["mode"]) == (expected(), [], "write")
        assert report["stored"] == (4 if rank == 0 else 0)
    changed = [[call for call, _, changes in r["touched"] if changes] for r in cold]
    assert "os.rename" in changed[0]
    assert changed[1:] == [[], [], []]
    for report in job(project, TACK_CACHE="write"):
        assert_hit(report, expected())
    assert_hit(project.run(), expected())
