"""Random vector programs against the model: compiled, for few iterations and in threads."""

from __future__ import annotations

import random

import pytest

import tack

from .vectors import BATCH, difference, generate, kernel_source, report

PROGRAMS = 96
PARTS = 4
DEVICE = tack.device("cpu", num_threads=2)


@pytest.mark.parametrize("part", range(PARTS))
def test_generated_programs(part: int) -> None:
    with DEVICE:
        for seed in range(part, PROGRAMS // BATCH, PARTS):
            kinds, programs = generate(random.Random(seed))
            problem = difference(kinds, programs)
            assert problem is None, report(kinds, programs, f"seed {seed}: {problem}")


def test_a_wrong_result_is_seen() -> None:
    """The comparison can fail: one Python text stores something else last."""
    kinds, programs = generate(random.Random(1), 2)
    target, _, _ = programs[1].python[-1].partition(" = ")
    programs[1].python.append(f"{target} = {target} + 1")
    with DEVICE:
        problem = difference(kinds, programs)
    assert problem is not None
    assert "in Python" in problem


def test_generator_covers_the_language() -> None:
    """Every construct that it can make turns up within 150 programs."""
    text = "".join(kernel_source(generate(random.Random(seed), 3)[1]) for seed in range(50))
    wanted = (
        "any( all( where( min( max( abs( cross( .cross( dot( .dot( .sum() sum( .length_sq() .min() .max()"
    )
    wanted += " << >> // ~ @ += *= %= &= .x .w .r .a .xy .bgr [0] not break continue return tack.local_array"
    wanted += " tack.vec2( tack.vec4( tack.ivec3( tack.dvec3( else:"
    missing = [w for w in wanted.split() if w not in text]
    assert missing == []
