"""Each ingredient of the disk keys is needed: a process that forgets it runs what is outdated.

`test_keys.py` shows that a change is a miss. Here both processes drop one ingredient from their keys,
and the second does not notice the change: it computes what the first did, or fails.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from project import SOURCE, Project, assert_hit, assert_miss, expected
from test_keys import EDITS

LEVELS = {"ir": "templates.template_key", "variant": "variants.variant_key"}


def forgetting(level: str, *parts: str) -> str:
    """Code after which a process's keys of this level are without these parts."""
    function = LEVELS[level]
    return f"""
from tack.runtime.disk import templates, variants
complete = {function}
def forgetful(*args):
    key = complete(*args)
    assert key is None or {{*{parts!r}}} <= {{name for name, _ in key}}
    return key and [(name, None if name in {parts!r} else value) for name, value in key]
{function} = forgetful
"""


# The records of what lowering read, which are checked beside the key.
FORGET_NAMES = "from tack.runtime.disk import templates\ntemplates.first_difference = lambda *args: None"

# Of each edit, what forgets it.
FORGET = {
    "kernel": forgetting("ir", "source"),
    "device function two levels down": FORGET_NAMES,
    "constant": FORGET_NAMES,
    "constant table": FORGET_NAMES,
    "default argument": FORGET_NAMES,
    "closure cell": forgetting("ir", "closure") + FORGET_NAMES,  # a kernel reads its cells by name
    "class constant": forgetting("ir", "template"),
    "constant of a base class": forgetting("ir", "template"),
    "method of a base class": forgetting("ir", "template"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_is_forgotten_is_not_seen(project: Project, name: str) -> None:
    file, old, new, changed = EDITS[name]
    assert project.run(FORGET[name])["results"] == expected()
    project.edit(file, old, new)
    assert expected(**changed) != expected()
    assert_hit(project.run(FORGET[name]), expected())  # and not what it is now


def test_a_base_class_that_is_forgotten_is_not_seen(project: Project) -> None:
    forget = forgetting("ir", "template")
    project.run(forget)
    other = "class Other(Base):\n    offset = 70\n\n@tack.device_class\nclass Lens(Other):"
    project.edit("shapes", "@tack.device_class\nclass Lens(Base):", other)
    assert_hit(project.run(forget), expected())


# --- what a call and the environment decide ---------------------------------------------------

CHOICES = """\
import json, os
{before}
import numpy as np
import tack

def choose(name):
    return os.environ.get(name) == "other"

KIND = tack.f32 if choose("annotation") else tack.i32
RESULT = tack.f64 if choose("result") else tack.i32

@tack.kernel(fastmath=choose("fastmath"))
def fast(x, out):
    for i in range(out.shape[0]):
        out[i] = x[i]

@tack.kernel
def annotated(out, n: KIND):
    for i in range(out.shape[0]):
        out[i] = n * n

@tack.kernel
def returning(x) -> RESULT:
    for i in range(x.shape[0]):
        x[i] = 2.75
    return x[0]

@tack.kernel
def norm(x, out):
    for i in range(out.shape[0]):
        out[i] = tack.dot(x[i], x[i])

@tack.kernel
def scale(x, out, a):
    for i in range(out.shape[0]):
        out[i] = x[i] * a

@tack.kernel
def reverse(x, out):
    for i in range(out.shape[0]):
        out[i] = x[x.shape[0] - 1 - i]

@tack.kernel
def twice(x, out, again):
    for i in range(out.shape[0]):
        out[i] = x[i] + 1.0
        again[i] = x[i]

@tack.kernel
def divide(out, n):
    for i in range(out.shape[0]):
        out[i] = 7 // n

x, y, out = tack.arange(8, dtype=tack.f32), tack.zeros(8), tack.zeros(2, tack.f64)
def call():
    case = os.environ["CASE"]
    other = choose(case)
    if case == "fastmath":
        fast(x, out)
    elif case == "annotation":
        annotated(out, 10**5)
    elif case == "result":
        return returning(x)
    elif case == "vectors":
        norm(tack.ones(2, tack.vec3 if other else tack.vec2), out)
    elif case == "params":
        scale(x, out, 2.5 if other else 2)
    elif case == "shapes":
        reverse(tack.arange(5 if other else 8, dtype=tack.f32), out)
    elif case == "disjoint":
        twice(x, x if other else tack.zeros(8), y)
        return y.numpy().tolist()
    elif case == "debug":
        tack.set_debug(other)
        divide(out, 0)
        return None
    return out.numpy().tolist()

try:
    result = call()
except Exception as error:
    result = type(error).__name__
from tack.runtime.disk.store import store
print(json.dumps([result, store().counts["hits"], store().counts["misses"]]))
"""

# Of each case the results of both choices, and what forgets their difference.
CASES: dict[str, tuple[Any, Any, str]] = {
    "fastmath": ([0, 1], [0, 1], forgetting("ir", "fastmath")),
    "annotation": ([1410065408, 1410065408], [1e10, 1e10], forgetting("ir", "annotations")),
    "result": (2, 2.75, forgetting("ir", "result", "annotations")),
    "vectors": ([2, 2], [3, 3], forgetting("ir", "vectors")),
    "params": ([0, 2], [0, 2.5], forgetting("variant", "params")),
    "shapes": ([7, 6], [4, 3], forgetting("variant", "shapes")),
    "disjoint": (list(range(8)), list(range(1, 9)), forgetting("variant", "disjoint")),
    # Checked code has parameters of its own, and with them the dimensions of the arrays.
    "debug": (None, "ZeroDivisionError", forgetting("variant", "debug", "params", "shapes")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_choice_is_seen_unless_it_is_forgotten(project: Project, case: str) -> None:
    one, other, forget = CASES[case]
    plain = CHOICES.format(before="")
    assert project.script(plain, CASE=case) == [one, 0, 2]
    result, _, misses = project.script(plain, CASE=case, **{case: "other"})
    assert (result, misses > 0) == (other, True)
    project.cache = project.cache.with_name("forgetful")
    forgetful = CHOICES.format(before=forget)
    assert project.script(forgetful, CASE=case) == [one, 0, 2]
    result, hits, misses = project.script(forgetful, CASE=case, **{case: "other"})
    if case != "vectors":  # whose variants differ as well, but come from the outdated template
        assert (hits, misses) == (2, 0)
    assert result != other or case == "fastmath"


def test_a_variant_without_its_template_is_another_kernels(project: Project) -> None:
    forget = forgetting("variant", "ir")
    project.run(forget)
    project.edit("kernels", "+ 1000", "+ 2000")
    report = project.run(forget)
    assert (report["hits"], report["misses"]) == (3, 1)  # the kernel was lowered, and not used
    assert report["results"] == expected()


# --- the machine, and Tack itself -------------------------------------------------------------

TARGET = """
from tack.runtime.cpu import backend, code
target = code.target()
code.target = lambda: tuple((n, "other" if n == {part!r} else v) for n, v in target)
if {part!r} == "backend":
    backend.CpuBackend.name = "other"
"""


@pytest.mark.parametrize("part", ["llvm", "cpu", "options", "platform", "backend"])
def test_another_machine_is_seen_unless_it_is_forgotten(project: Project, part: str) -> None:
    change, forget = TARGET.format(part=part), forgetting("variant", part)
    project.run()
    assert_miss(project.run(change), expected(), misses=2)  # the lowered kernels serve all of them
    project.run(forget)
    assert_hit(project.run(forget + change), expected())


def test_another_tack_is_seen_unless_it_is_forgotten(project: Project, tmp_path: Path) -> None:
    forget = "from tack.runtime.disk import config\nconfig.fingerprint = lambda: 'some Tack'"
    project.source = tmp_path / "other"
    shutil.copytree(SOURCE / "tack", project.source / "tack", ignore=shutil.ignore_patterns("__pycache__"))
    for before in ("", forget):
        project.run(before)
        assert_hit(project.run(before), expected())
    with open(project.source / "tack" / "codegen" / "cost.py", "a") as file:
        file.write("# A comment.\n")
    assert_miss(project.run(), expected(), misses=4)
    assert_hit(project.run(forget), expected())


def test_another_python_is_a_miss(project: Project) -> None:
    project.run()
    other = "import sys\nsys.implementation.cache_tag = 'cpython-399'"
    assert_miss(project.run(other), expected(), misses=4)
    assert_hit(project.run(), expected())


# --- functions that are one, and modules ------------------------------------------------------

TWIN = """\
import tack
K = tack.constant({k})

@tack.func
def add(v):
    return v + K

@tack.kernel
def put(out):
    for i in range(1):
        out[i] = K
"""
TWINS = """\
import json, os
{before}
import tack, first, second

@tack.device_class
class Pair:
    def __init__(self, f, g):
        self.f, self.g = f, g

@tack.kernel
def both(out, pair):
    for i in range(1):
        out[i] = pair.f(0) + 100 * pair.g(0)

out = tack.zeros(1, tack.i32)
results = []
if os.environ["CASE"] == "modules":
    for module in (first, second):
        module.put(out)
        results.append(out[0])
else:
    both(out, Pair(first.add, second.add if os.environ["CASE"] == "two" else first.add))
    results.append(out[0])
from tack.runtime.disk.store import store
print(json.dumps([results, store().counts["misses"]]))
"""


def twins(project: Project, case: str, before: str = "") -> Any:
    for k, name in enumerate(("first", "second"), 1):
        (project.path / f"{name}.py").write_text(TWIN.format(k=k))
    return project.script(TWINS.format(before=before), CASE=case)


def test_two_functions_of_one_text_are_told_apart(project: Project) -> None:
    assert twins(project, "one") == [[101], 2]
    assert twins(project, "two") == [[201], 2]
    assert twins(project, "two") == [[201], 0]
    forget = forgetting("ir", "methods")
    twins(project, "one", forget)
    assert twins(project, "two", forget) == [[101], 0]


def test_kernels_of_one_text_in_two_modules_keep_an_entry_each(project: Project) -> None:
    assert twins(project, "modules") == [[1, 2], 4]
    assert twins(project, "modules") == [[1, 2], 0]
    forget = forgetting("ir", "module")
    for _ in range(2):  # right all the same, but each replaces the other's entry
        results, misses = twins(project, "modules", forget)
        assert results == [1, 2]
        assert misses > 0
