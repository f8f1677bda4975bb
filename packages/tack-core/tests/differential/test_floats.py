"""Random float expressions against exact rational arithmetic."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from . import floats


@pytest.mark.parametrize("seed", range(40))
def test_generated_expressions(seed: int) -> None:
    problem = floats.float_difference(random.Random(seed))
    assert problem is None, problem


def test_most_results_are_checked_and_the_bounds_are_tight() -> None:
    """The bound of a sum of exact values is half a unit, and few expressions are out of reach."""
    one = floats.Value(Fraction(1), Fraction(0))
    total = floats.arithmetic("+", one, floats.Value(Fraction(1, 3), Fraction(0)), "f32")
    assert Fraction(4, 3) / 2**24 <= total.error <= Fraction(4, 3) / 2**24 * Fraction(101, 100)
    rng = random.Random(5)
    bounded = 0
    inputs = {f"{v}{w}": Fraction(k + 1, 7) for k, v in enumerate("xyz") for w in ("32", "64")}
    for _ in range(300):
        node = floats.expression(rng, 3)
        try:
            value = node.evaluate(inputs)
        except floats.Unbounded:
            continue
        bounded += value.error <= Fraction(1, 100) * max(abs(value.exact), 1)
    assert bounded > 200
