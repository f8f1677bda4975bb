"""Settings, modes, MPI, bundles, the command line, compiling ahead, and explanations."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from project import MAIN, Project, assert_hit, assert_miss, command, expected

MPI = [
    {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "{size}"},
    {"PMI_RANK": "{rank}", "PMI_SIZE": "{size}"},
    {"MV2_COMM_WORLD_RANK": "{rank}", "MV2_COMM_WORLD_SIZE": "{size}"},
    {"SLURM_PROCID": "{rank}", "SLURM_STEP_NUM_TASKS": "{size}"},
]
# Reports each file of the cache that is opened.
OPENED = """
import sys, os
opened = []
def audit(event, args):
    if event == "open" and str(args[0]).startswith(os.environ["TACK_CACHE_DIR"]):
        opened.append(os.path.basename(str(args[0])))
sys.addaudithook(audit)
"""


def ranked(launcher: dict[str, str], rank: int, size: int) -> dict[str, str]:
    return {k: v.format(rank=rank, size=size) for k, v in launcher.items()}


# --- modes ------------------------------------------------------------------------------------


def test_read_never_stores_and_off_never_looks(project: Project) -> None:
    report = project.run(TACK_CACHE="read")
    assert (report["results"], report["stored"]) == (expected(), 0)
    assert not project.cache.exists()
    project.run()
    assert_hit(project.run(TACK_CACHE="read"), expected())
    report = project.run(TACK_CACHE="off")
    assert (report["results"], report["hits"], report["misses"]) == (expected(), 0, 0)


def test_a_bad_variable_is_an_error_each_time(project: Project) -> None:
    text = """
import json, tack
@tack.kernel
def one(x):
    for i in range(1):
        x[i] = 1
found = []
for _ in range(2):
    try:
        one(tack.empty(1))
    except ValueError as error:
        found.append(str(error))
print(json.dumps(found))
"""
    for name in ("TACK_CACHE", "TACK_CACHE_SIZE"):
        found = project.script(text, **{name: "sometimes"})
        assert len(found) == 2
        assert name in found[0]
        assert "'sometimes'" in found[1]


def test_configure(project: Project, tmp_path: Any) -> None:
    place = str(tmp_path / "other")
    before = f"tack.cache.configure(directory={place!r}, mode='write', max_size='4G')"
    after = """
try:
    tack.cache.configure(mode="off")
except RuntimeError as error:
    report["refused"] = str(error)
report["info"] = tack.cache.info()
"""
    report = project.run(before, after, TACK_CACHE="off")
    assert_miss(report, expected(), misses=4)
    assert "before the first kernel" in report["refused"]
    info = report["info"]
    assert (info["directory"], info["mode"], info["max_size"]) == (place, "write", 4 << 30)
    assert info["entries"] == 4
    assert info["process"]["stored"] == 4


# --- bundles and MPI --------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", MPI, ids=lambda m: next(iter(m)))
def test_under_mpi_only_the_bundle_is_read(project: Project, launcher: dict[str, str]) -> None:
    project.run()
    packed = command(project, "pack", "--json")
    assert packed["entries"] == 4
    report = project.run(OPENED, "report['opened'] = opened", **ranked(launcher, 1, 4))
    assert_hit(report, expected())
    assert report["opened"] == [os.path.basename(packed["path"])]


def test_a_job_of_one_and_a_batch_script_are_no_mpi(project: Project) -> None:
    assert_miss(project.run(**ranked(MPI[0], 0, 1)), expected(), misses=4)
    assert_hit(project.run(SLURM_PROCID="0", SLURM_NTASKS="8"), expected())


def test_without_a_bundle_a_rank_compiles_and_stores_nothing(project: Project) -> None:
    report = project.run(**ranked(MPI[0], 0, 4))
    assert (report["results"], report["stored"], report["warnings"]) == (expected(), 0, [])
    assert not project.cache.exists()


def test_in_write_mode_rank_0_alone_stores(project: Project) -> None:
    other = project.run(TACK_CACHE="write", **ranked(MPI[0], 2, 4))
    assert (other["results"], other["stored"], other["warnings"]) == (expected(), 0, [])
    assert project.run(TACK_CACHE="write", **ranked(MPI[0], 0, 4))["stored"] == 4
    assert_hit(project.run(TACK_CACHE="write", **ranked(MPI[0], 2, 4)), expected())


def test_a_damaged_bundle_warns_once(project: Project) -> None:
    project.run()
    path = command(project, "pack", "--json")["path"]
    whole = Path(path).read_bytes()
    for data in (whole[:100], whole[:-1], whole[:50] + b"XXXX" + whole[54:]):
        Path(path).write_bytes(data)
        report = project.run(TACK_CACHE="bundle")
        assert report["results"] == expected()
        assert report["hits"] == 0
        assert len(report["warnings"]) == 1
    Path(path).write_bytes(whole[:-20] + b"damaged!" + whole[-12:])  # in one entry: costs that one
    report = project.run(TACK_CACHE="bundle")
    assert (report["results"], report["bad"], report["warnings"]) == (expected(), 1, [])
    os.chmod(path, 0o666)
    assert "others may write" in project.run(TACK_CACHE="bundle")["warnings"][0][1]


COMM = """
class Comm:
    # Two ranks one after the other: what rank 0 broadcast waits in a file.
    def __init__(self, rank):
        self.rank = rank
    def Get_rank(self):
        return self.rank
    def bcast(self, value, root):
        import pathlib, pickle
        path = pathlib.Path("broadcast")
        if self.rank == root:
            path.write_bytes(pickle.dumps(value))
        return pickle.loads(path.read_bytes())
"""


def test_rank_0_reads_the_bundle_and_broadcasts_it(project: Project) -> None:
    project.run()
    packed = command(project, "pack", "--json")
    for rank, opened in ((0, [os.path.basename(packed["path"])]), (1, [])):
        before = f"{OPENED}{COMM}\nfirst = tack.cache.load_bundle(comm=Comm({rank}))"
        after = "report.update(first=first, opened=opened)"
        report = project.run(before, after, TACK_CACHE="bundle", **ranked(MPI[0], rank, 2))
        assert_hit(report, expected())
        assert report["first"] == 4
        assert report["opened"] == opened


def test_a_missing_bundle_is_rank_0s_warning(project: Project) -> None:
    for rank, warnings in ((0, 1), (1, 0)):
        before = f"{COMM}\nfirst = tack.cache.load_bundle(comm=Comm({rank}))"
        report = project.run(before, "report['first'] = first", **ranked(MPI[0], rank, 2))
        assert (report["results"], report["first"]) == (expected(), 0)
        assert len(report["warnings"]) == warnings


# --- the command line -------------------------------------------------------------------------


def test_the_command_line(project: Project) -> None:
    project.run()
    (project.cache / "mine.txt").write_text("kept")
    (project.cache / f"v1-{'a' * 32}").mkdir()
    (project.cache / f"v1-{'a' * 32}" / "b.ir").write_text("of another version")
    table = command(project, "info")
    assert str(project.cache) in table
    info = command(project, "info", "--json")
    assert (info["entries"], info["all_entries"], info["versions"]) == (4, 5, 2)
    assert info["bytes"] == sum(p.stat().st_size for p in project.entries()) - len("of another version")
    assert "4 entries" in command(project, "pack")
    assert command(project, "prune", "--max-size", "unlimited") == "deleted 0 entries, 0 bytes\n"
    assert command(project, "clear", "--json")["deleted"] == 4
    assert len(project.entries()) == 1
    assert command(project, "clear", "--all", "--json")["deleted"] == 2  # that entry and the bundle
    assert sorted(p.name for p in project.cache.iterdir()) == ["mine.txt"]
    assert_miss(project.run(), expected(), misses=4)
    assert command(project, "prune", "--max-size", "0", "--json")["deleted"] == 4


# --- compiling ahead, and explanations --------------------------------------------------------

AHEAD = """
import json, numpy as np, tack
from kernels import scaled, seen
from shapes import Lens
from tack.runtime.disk.store import store
scaled.compile((2, tack.i32), (2, "int32"))
seen.compile((2, np.int32), out=(2, np.dtype("i4")), lens=Lens(300))
try:
    scaled.compile((2, tack.i32))
except TypeError as error:
    missing = str(error)
scaled.compile((2**50, tack.f32), (2**50, tack.f32))
print(json.dumps([store().counts, missing]))
"""


def test_compiling_ahead_needs_no_data(project: Project) -> None:
    counts, missing = project.script(AHEAD)
    assert counts["stored"] == 5
    assert "'out'" in missing
    assert_hit(project.run(), expected())


def explained(project: Project, before: str = "", call: str = "seen, x, out, Lens(300)", **env: str) -> Any:
    after = f"why = tack.cache.explain({call})\nreport['why'] = [why.hit, list(why.differs), str(why)]"
    text = MAIN.format(before=before, after=after)
    text = text.replace("scaled(x, out)\n", "").replace("seen(x, out, Lens(300))\n", "")
    report = project.script(text, **env)
    assert report["stored"] == 0  # it compiles nothing
    return report["why"]


def test_explanations_name_what_differs(project: Project) -> None:
    hit, differs, text = explained(project)
    assert (hit, differs) == (False, [])
    assert "no entry" in text
    project.run()
    assert explained(project)[:2] == [True, []]
    f32 = "seen, tack.zeros(2), out, Lens(300)"
    differs, text = explained(project, call=f32)[1:]
    assert (differs, text.rpartition("differs ")[2]) == (["params"], "dtype of x: i32 -> f32")
    differs, text = explained(project, call="seen, out, out, Lens(300)")[1:]
    assert (differs, text.rpartition("differs ")[2]) == (["disjoint"], "arrays disjoint: yes -> no")
    assert explained(project, "tack.set_debug(True)")[1][0] in ("params", "debug")
    patch = "from tack.runtime.cpu import code\n"
    assert explained(project, patch + "code.llvm = lambda: '0'")[:2] == [False, ["llvm"]]
    assert explained(project, patch + "code.processor = lambda: '0'")[:2] == [False, ["cpu"]]
    assert explained(project, TACK_CACHE="off")[:2] == [False, ["mode"]]
    edits = [
        ("kernels", "+ 1000", "+ 2000", "source", "source: "),
        ("shapes", "power = 2", "power = 3", "template", "differs constant lens.power: 2 -> 3"),
        ("shapes", "v + 20", "v + 30", "template", "differs Base.weigh of lens: "),
        ("shapes", "shift):", "shift):\n        self.more = 1", "template", "lens.more: none -> number"),
        ("deep", "constant(3)", "constant(4)", "deepest.SCALE", "'deepest.SCALE' is not what it was"),
        ("middle", "extra=5", "extra=6", "apply.middle", "'apply.middle' is not what it was"),
    ]
    for file, old, new, name, words in edits:
        project.edit(file, old, new)
        hit, differs, text = explained(project)
        assert not hit
        assert differs == [name]
        assert text.startswith("kernel 'seen': miss")
        assert words in text
        project.edit(file, new, old)


def test_an_explanation_says_what_the_variants_and_the_log_say(project: Project) -> None:
    """The call is explained while the disk has the first form only, then made."""
    calls = {
        "scaled": ["x, out", "tack.zeros(2), tack.zeros(2)", "x, x", "x, tack.zeros(2, tack.f64)"],
        "seen": ["x, out, Lens(1)", "x, out, Lens(0.5)", "out, out, Lens(1)"],
    }
    after = f"""
from tack.runtime.disk import store as files
said = []
for name, calls in {calls!r}.items():
    kernel = {{"scaled": scaled, "seen": seen}}[name]
    for call in calls:
        files.store().writes = call == calls[0]
        args = eval(f"({{call}},)")
        why = str(tack.cache.explain(kernel, *args))
        kernel(*args)
        said.append([why, kernel.variants()[-1].reason])
report["said"] = said
"""
    text = MAIN.format(before="", after=after)
    text = text.replace("scaled(x, out)\n", "").replace("seen(x, out, Lens(300))\n", "")
    process = project.start(text, TACK_LOG="compile")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    causes = re.findall(r"compiled for CPU in [\d.]+ ms \((.*?)\): ", err)
    said = json.loads(out.splitlines()[-1])["said"]
    assert [reason for _, reason in said] == causes
    for why, reason in said:
        if reason != "first call":
            assert why.endswith(f"; from the nearest entry differs {reason}")
    assert causes.count("first call") == 2


def test_an_error_shows_the_place_of_a_cached_kernel(project: Project) -> None:
    text = """
import json, tack
from tack.runtime.disk.store import store
tack.set_debug(True)
{gap}
@tack.kernel
def over(x):
    for i in range(x.shape[0]):
        x[i + 1] = 0
try:
    over(tack.zeros(3))
except IndexError as error:
    print(json.dumps([str(error), store().counts["hits"]]))
"""
    message, hits = project.script(text.format(gap=""))
    assert hits == 0
    assert "main.py:9:9" in message
    moved, hits = project.script(text.format(gap="\n\n"))
    assert hits == 2
    assert moved == message.replace(":9:9", ":11:9").replace("9 |", "11 |").replace("     |", "      |")
