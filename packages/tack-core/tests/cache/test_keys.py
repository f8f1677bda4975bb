"""Whatever a kernel depends on is in its keys: editing it compiles anew, and nothing else does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from project import MAIN, SOURCE, Project, assert_hit, assert_miss, expected

from tack.runtime.cpu.code import loads_images

EDITS = {
    "kernel": ("kernels", "+ 1000", "+ 2000", {"last": 2000}),
    "device function two levels down": ("deep", "v * SCALE", "v * SCALE * 2", {"scale": 6}),
    "constant": ("deep", "constant(3)", "constant(4)", {"scale": 4}),
    "constant table": ("deep", "(1, 10, 100)", "(1, 11, 100)", {"table": 11}),
    "default argument": ("middle", "extra=5", "extra=6", {"extra": 6}),
    "closure cell": ("kernels", "make(2)", "make(9)", {"cell": 9}),
    "class constant": ("shapes", "power = 2", "power = 3", {"power": 3}),
    "constant of a base class": ("shapes", "offset = 7", "offset = 8", {"offset": 8}),
    "method of a base class": ("shapes", "v + 20", "v + 30", {"weight": 30}),
}


def test_nothing_changed_is_a_hit_in_every_process(project: Project) -> None:
    assert_miss(project.run(), expected(), misses=4)
    for seed in ("0", "1", "random"):
        assert_hit(project.run(PYTHONHASHSEED=seed), expected())


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_a_miss_once(project: Project, name: str) -> None:
    file, old, new, changed = EDITS[name]
    assert_miss(project.run(), expected(), misses=4)
    project.edit(file, old, new)
    assert_miss(project.run(), expected(**changed))
    assert_hit(project.run(), expected(**changed))


def test_a_name_bound_to_another_function_is_a_miss(project: Project) -> None:
    project.run()
    project.edit("middle", "from deep import deepest", "@tack.func\ndef deepest(v):\n    return v * 5")
    assert_miss(project.run(), expected(scale=5))


def test_another_base_class_is_a_miss(project: Project) -> None:
    project.run()
    other = "class Other(Base):\n    offset = 70\n\n@tack.device_class\nclass Lens(Other):"
    project.edit("shapes", "@tack.device_class\nclass Lens(Base):", other)
    assert_miss(project.run(), expected(offset=70))


def test_constants_of_the_environment_are_values_not_text(project: Project) -> None:
    project.edit("deep", "import tack", "import os, tack")
    project.edit("deep", "constant(3)", "constant(int(os.environ['SCALE']))")
    for scale in (3, 5):
        assert_miss(project.run(SCALE=str(scale)), expected(scale=scale))
        assert_hit(project.run(SCALE=str(scale)), expected(scale=scale))


def test_kernels_of_a_factory_keep_an_entry_each(project: Project) -> None:
    after = "for factor in (3, 4, 5):\n    from kernels import make\n    make(factor)(x, out)\n"
    after += "    report['results'] += out.numpy().tolist()\nreport.update(store().counts)"
    more = [v for cell in (3, 4, 5) for v in expected(cell=cell)[:2]]
    assert_miss(project.run(after=after), expected() + more, misses=10)
    report = project.run(after=after)
    assert (report["results"], report["misses"], report["hits"]) == (expected() + more, 0, 10)


def test_moving_a_kernel_in_its_file_is_a_hit(project: Project) -> None:
    project.run()
    for file in ("kernels", "deep", "middle"):
        project.edit(file, "import tack\n", "import tack\n\n# A comment.\n\n\n")
    assert_hit(project.run(), expected())


@pytest.mark.parametrize(
    ("name", "patch", "misses"),
    [
        ("llvm", "code.llvm = lambda: '0.0.0'", 2),
        ("cpu", "code.processor = lambda: 'other +none'", 2),
        ("options", "code.TUNING['loop_vectorization'] = False", 2),
        ("debug", "tack.set_debug(True)", 2),
        ("races", "tack.set_debug(True, races=True)", 2),
    ],
)
def test_another_target_shares_the_lowered_kernels_only(
    project: Project, name: str, patch: str, misses: int
) -> None:
    before = f"from tack.runtime.cpu import code\n{patch}"
    project.run()
    assert_miss(project.run(before), expected(), misses)
    assert_hit(project.run(before), expected())
    assert_hit(project.run(), expected())


@pytest.mark.skipif(not loads_images(), reason="no images on this platform")
def test_a_process_that_only_hits_loads_no_llvm(project: Project) -> None:
    after = "import sys\nreport['llvm'] = 'llvmlite' in sys.modules"
    assert project.run(after=after)["llvm"]
    report = project.run(after=after)
    assert_hit(report, expected())
    assert not report["llvm"]


def test_a_process_without_the_extension_keeps_entries_of_its_own(project: Project) -> None:
    """It cannot load images, nor ask the processor; the lowered kernels serve both."""
    without = "import sys\nsys.modules['tack._native'] = None\n" + MAIN.format(before="", after="")
    project.run()
    if loads_images():
        assert_miss(project.script(without), expected(), misses=2)
    assert_hit(project.script(without), expected())
    assert_hit(project.run(), expected())


def test_another_tack_is_a_miss(project: Project, tmp_path: Path) -> None:
    project.source = tmp_path / "other"
    shutil.copytree(SOURCE / "tack", project.source / "tack", ignore=shutil.ignore_patterns("__pycache__"))
    assert_miss(project.run(), expected(), misses=4)
    assert_hit(project.run(), expected())
    with open(project.source / "tack" / "ir" / "nodes.py", "a") as file:
        file.write("# A comment.\n")
    assert_miss(project.run(), expected(), misses=4)


def test_an_installed_tack_is_known_by_its_record(project: Project, tmp_path: Path) -> None:
    import tack

    project.source = tmp_path / "site-packages"
    shutil.copytree(SOURCE / "tack", project.source / "tack", ignore=shutil.ignore_patterns("__pycache__"))
    record = project.source / f"tack_core-{tack.__version__}.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("tack/__init__.py,sha256=abc,1\n")
    assert_miss(project.run(), expected(), misses=4)
    assert_hit(project.run(), expected())
    record.write_text("tack/__init__.py,sha256=abd,1\n")
    assert_miss(project.run(), expected(), misses=4)


def test_what_has_no_stable_content_is_not_stored(project: Project) -> None:
    project.edit("kernels", "cell = tack.constant(factor)", "cell, strange = tack.constant(factor), object()")
    project.edit("kernels", "* cell", "* (cell if 1 else strange)")
    for _ in range(2):
        report = project.script(
            "import json, tack\nfrom tack.runtime.disk.store import store\nfrom kernels import make\n"
            "try:\n    make(2)(tack.ones(2), tack.ones(2))\n"
            "except Exception as error:\n    kind = type(error).__name__\n"
            "print(json.dumps([kind, store().counts]))"
        )
        assert report[0] == "NameError"
        assert report[1]["stored"] == report[1]["hits"] == 0
