"""The log of compiles, in fresh processes: what it says, when it is silent, and what it costs."""

from __future__ import annotations

import re
from typing import Any

from project import MAIN, Project

CALLS = """\
import sys
{before}
import tack

@tack.kernel
def scale(x, out, a):
    for i in range(x.shape[0]):
        out[i] = x[i] * a

@tack.kernel
def reverse(x, out):
    for i in range(x.shape[0]):
        out[i] = x[x.shape[0] - 1 - i]

errors = []
def call(kernel, *args):
    try:
        kernel(*args)
    except ValueError as error:
        errors.append(str(error))

def arrays(n, dtype=tack.f32):
    return tack.ones(n, dtype), tack.empty(n, dtype)

call(scale, *arrays(8), 2.0)
call(scale, *arrays(16), 3.0)  # nothing new
call(scale, *arrays(8), 3)
call(scale, *arrays(8, tack.f64), 3)
x, _ = arrays(8)
call(scale, x, x, 2.0)
call(reverse, *arrays(8))
call(reverse, *arrays(9))
import json
print(json.dumps({{"errors": errors, "logging": "logging" in sys.modules}}))
"""

CAUSES = [
    ("scale", "first call"),
    ("scale", "dtype of a: f32 -> i32"),
    ("scale", "dtype of x: f32 -> f64, dtype of out: f32 -> f64"),
    ("scale", "arrays disjoint: yes -> no"),
    ("reverse", "first call"),
    ("reverse", "shape baked in: x.shape[0] 8 -> 9"),
]
STAGES = ["front end", "passes", "code generation", "LLVM optimize", "emit", "link", "other"]
LINE = re.compile(r"tack: kernel '(\w+)': (.*) in ([\d.]+) ms \((.*?)\)(?:: (.*))?")


def logged(project: Project, before: str = "", **env: str) -> tuple[list[str], dict[str, Any]]:
    """The lines on stderr, and what the program reports."""
    import json

    process = project.start(CALLS.format(before=before), **env)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return err.splitlines(), json.loads(out)


def test_each_compile_has_its_cause_and_the_times_of_its_stages(project: Project) -> None:
    lines, report = logged(project, TACK_LOG="compile", TACK_CACHE="off")
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), lines
    causes, whole = [], []
    for match in found:
        assert match is not None
        assert match[2] == "compiled for CPU"
        causes.append((match[1], match[4]))
        stages = dict(part.rsplit(" ", 1) for part in match[5].split(", "))
        assert list(stages) == [name for name in STAGES if name in stages]
        total = sum(float(ms) for ms in stages.values())
        assert abs(total - float(match[3])) < 0.02 * total + 0.1
        whole.append(stages)
    assert causes == CAUSES
    assert list(whole[0]) == STAGES
    assert "front end" not in whole[1]  # the template was there
    assert report["errors"] == []


def test_both_forms_of_code_are_logged(project: Project) -> None:
    lines, _ = logged(project, TACK_LOG="compile", TACK_CPU_COMPILE="tiered", TACK_CACHE="off")
    found = [match for line in lines if (match := LINE.fullmatch(line))]
    assert [(m[1], m[4]) for m in found] == CAUSES
    later = [line for line in lines if re.fullmatch(r"tack: kernel '\w+': optimized for CPU in .* ms", line)]
    # At the end of the program what has not begun is left.
    assert 1 <= len(later) <= len(found)
    assert all(m[2].startswith("compiled without optimization") for m in found)


def test_hits_in_both_levels_are_logged_and_memory_is_silent(project: Project) -> None:
    logged(project)
    lines, _ = logged(project, TACK_LOG="compile")
    templates = [line for line in lines if "lowered form read from the disk cache" in line]
    assert [line.split("'")[1] for line in templates] == ["scale", "reverse"]
    found = [LINE.fullmatch(line) for line in lines if line not in templates]
    assert [(m[1], m[4]) for m in found if m is not None] == CAUSES
    assert all(m is not None and m[2] == "read from the disk cache for CPU" and not m[5] for m in found)
    assert lines.index(templates[1]) == 5  # each before the first variant that needs it


def test_without_the_log_nothing_is_said_and_logging_is_not_imported(project: Project) -> None:
    for env in ({"TACK_CACHE": "off"}, {}, {}, {"TACK_LOG": "off"}):
        lines, report = logged(project, **env)
        assert lines == []
        assert report == {"errors": [], "logging": False}


def test_a_program_may_ask_for_the_log_itself(project: Project) -> None:
    before = "import logging\nlogging.basicConfig(format='%(levelname)s %(name)s %(message)s')\n"
    ask = before + "logging.getLogger('tack').setLevel(logging.INFO)"
    lines, _ = logged(project, ask, TACK_CACHE="off")
    assert len(lines) == len(CAUSES)
    assert lines[0].startswith("INFO tack kernel 'scale': compiled for CPU in ")
    assert logged(project, before, TACK_CACHE="off")[0] == []  # its level is WARNING
    assert logged(project, ask, TACK_CACHE="off", TACK_LOG="off")[0] == []


def test_with_the_log_on_the_programs_handlers_get_it(project: Project) -> None:
    before = "import logging\nlogging.basicConfig(format='mine: %(message)s')"
    lines, _ = logged(project, before, TACK_CACHE="off", TACK_LOG="compile")
    assert len(lines) == len(CAUSES)
    assert all(line.startswith("mine: kernel '") for line in lines)


def test_a_bad_value_raises_once(project: Project) -> None:
    for _ in range(2):  # cold, and with the disk cache warm
        lines, report = logged(project, TACK_LOG="everything")
        (error,) = report["errors"]
        assert "TACK_LOG='everything' is not accepted; use one of: compile, off" in error
        assert lines == []


def test_a_long_compile_names_the_kernel_and_the_cache(project: Project) -> None:
    before = "from tack.runtime import variants\nvariants.LONG_COMPILE = 0.0"
    assert logged(project, before, TACK_LOG="off")[0] == []
    assert logged(project, before)[0] == []  # read from disk, which is no compile
    project.cache = project.cache.with_name("other")
    lines, _ = logged(project, before)
    assert len(lines) == len(CAUSES)
    expected = rf"kernel 'scale' took \d+\.\d s to compile for CPU; .* {project.cache} \(TACK_CACHE=write\)"
    assert re.fullmatch(expected, lines[0])
    off, _ = logged(project, before, TACK_CACHE="off")
    assert "the kernel cache is off" in off[0]


def test_the_log_of_an_instances_kernel(project: Project) -> None:
    text = MAIN.format(before="", after="Lens.power = 3\nseen(x, out, Lens(1))")
    process = project.start(text, TACK_LOG="compile", TACK_CACHE="off")
    _, err = process.communicate(timeout=120)
    causes = [line[line.index("(") + 1 : line.index(")")] for line in err.splitlines()]
    assert causes == ["first call", "first call", "constant lens.power: 2 -> 3"]


def test_variants_say_where_they_come_from(project: Project) -> None:
    after = "x = tack.zeros(2)\nscaled(x, tack.zeros(2))\n"
    after += "report['found'] = [[v.from_disk, v.compile_time > 0, v.reason] for v in scaled.variants()]\n"
    after += "report['table'] = repr(seen.variants())"
    reasons = ["first call", "dtype of x: i32 -> f32, dtype of out: i32 -> f32"]
    for stored, made in ((False, " compiled "), (True, " from disk ")):
        report = project.run(after=after)
        assert report["found"] == [[stored, True, reason] for reason in reasons]
        assert made in report["table"]
        assert "x: i32[], out: i32[], lens.shift: i32, lens: Lens, " in report["table"]
        assert "lens.offset=7, lens.power=2 " in report["table"]


FAILING = """\
import json, logging
import tack

@tack.kernel
def unknown(x, out):
    for i in range(x.shape[0]):
        out[i] = nothing_of_this_name

@tack.kernel
def indexed(x, out):
    for i in range(x.shape[0]):
        out[i, i] = x[i]

for kernel in (unknown, indexed):
    try:
        kernel(tack.ones(2), tack.ones(2))
    except Exception as error:
        pass
print(json.dumps(None))
"""


def test_a_compile_that_fails_is_logged(project: Project) -> None:
    process = project.start(FAILING, TACK_LOG="compile")
    _, err = process.communicate(timeout=120)
    lines = err.splitlines()
    assert [line.split(": not compiled for CPU: ")[0] for line in lines] == [
        "tack: kernel 'unknown'",
        "tack: kernel 'indexed'",
    ]
    assert "NameError: " in lines[0]
    assert "nothing_of_this_name" in lines[0]
    assert "Error: " in lines[1]
    process = project.start(FAILING)
    assert process.communicate(timeout=120)[1] == ""


HANDLER = """\
import json, logging
import tack

@tack.kernel
def add(x, out, a):
    for i in range(x.shape[0]):
        out[i] = x[i] + a

class Handler(logging.Handler):
    def emit(self, record):
        seen.append(record.getMessage())
        if "lowered form" in seen[-1]:
            add(tack.ones(2), tack.zeros(2), 2)

seen = []
logging.getLogger("tack").addHandler(Handler())
logging.getLogger("tack").setLevel(logging.INFO)
out = tack.zeros(2)
add(tack.ones(2), out, 1.5)
print(json.dumps([seen, out.numpy().tolist()]))
"""


def test_a_handler_may_call_the_kernel_that_the_log_is_about(project: Project) -> None:
    for first in ("compiled for CPU", "lowered form read"):
        seen, results = project.script(HANDLER)
        assert first in seen[0]
        assert results == [2.5, 2.5]
    assert len(seen) == 3  # the lowered form, the handler's variant, the program's
