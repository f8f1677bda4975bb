"""The oracle itself, against Python and NumPy."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np

from . import oracle


def test_promotion_examples_of_the_specification() -> None:
    table = {
        ("i8", "u8"): "i16",
        ("i8", "u16"): "i32",
        ("i16", "u32"): "i64",
        ("i32", "u32"): "i64",
        ("u8", "i32"): "i32",
        ("u8", "u16"): "u16",
        ("i8", "i64"): "i64",
        ("u32", "u64"): "u64",
        ("i8", "u64"): None,
        ("i64", "u64"): None,
        ("u64", "f32"): "f32",
        ("i8", "f64"): "f64",
    }
    assert {pair: oracle.promote(*pair) for pair in table} == table
    assert all(oracle.promote(a, b) == oracle.promote(b, a) for a in oracle.DTYPES for b in oracle.DTYPES)


def test_rounding_agrees_with_python_and_numpy() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        value = Fraction(rng.randrange(1, 2**80), 2 ** rng.randrange(0, 1150))
        assert oracle.round_to("f64", value) == value.numerator / value.denominator
        short = Fraction(float(np.float32(rng.uniform(-1e30, 1e30))))
        assert oracle.round_to("f32", short) == float(short)
    halfway = Fraction(2**24 + 1)
    assert oracle.round_to("f32", halfway) == 2.0**24
    assert oracle.round_to("f32", halfway + Fraction(1, 10**20)) == 2.0**24 + 2
    assert oracle.round_to("f32", 2**128) == math.inf


def test_floor_division_agrees_with_python() -> None:
    finite = [v for v in oracle.interesting_floats("f64") if v]
    a, b = (m.ravel() for m in np.meshgrid(np.array([*finite, 0.0, -0.0]), np.array(finite)))
    quotient, remainder = oracle.floor_divmod(a, b)
    for x, y, q, r in zip(a.tolist(), b.tolist(), quotient.tolist(), remainder.tolist(), strict=True):
        expected = (x // y, x % y)
        assert repr((q, r)) == repr(expected), (x, y)
