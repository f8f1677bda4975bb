"""Random integer and control-flow programs: compiled, threaded and as plain Python, equal in every bit."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import tack

from .generator import Program
from .runner import difference, generate, report

PROGRAMS = 2000
BATCH = 5  # programs in a kernel: one compilation for them all
PARTS = 4  # tests, each well inside the suite's time limit

# Two threads, also on a machine whose affinity or quota leaves one.
DEVICE = tack.device("cpu", num_threads=2)


def assert_equal(programs: list[Program]) -> None:
    with DEVICE:
        problem = difference(programs)
        assert problem is None, report(programs, problem)


@pytest.mark.parametrize("part", range(PARTS))
def test_generated_programs(part: int) -> None:
    @seed(part)
    @settings(max_examples=PROGRAMS // BATCH // PARTS, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def check(rng: random.Random) -> None:
        assert_equal(generate(rng, BATCH))

    check()


def test_a_wrong_result_is_seen() -> None:
    """The comparison can fail: one Python text is changed to give one more."""
    programs = generate(random.Random(1), 2)
    with DEVICE:
        assert difference(programs) is None
        programs[1].python[-1] += " ^ 1"
        problem = difference(programs)
    assert problem is not None
    assert "program 1" in problem


def test_generator_covers_the_language() -> None:
    """Every construct that it can make turns up within 200 programs."""
    text = "\n".join(
        line for p in generate(random.Random(2), 200) for f in (p, *p.functions) for line in f.tack
    )
    wanted = [
        "while",
        "for ",
        "elif",
        "else:",
        "break",
        "continue",
        "return",
        " if ",
        " and ",
        " or ",
        "not ",
        "**",
        "<<",
        ">>",
    ]
    wanted += [
        "//=",
        "%=",
        "min(",
        "max(",
        "abs(",
        "clz(",
        "popcount(",
        "local_array",
        "_f1(",
        "s_i8[",
        "in_u64[",
        "~",
        " < ",
        " != ",
    ]
    assert [w for w in wanted if w not in text] == []
