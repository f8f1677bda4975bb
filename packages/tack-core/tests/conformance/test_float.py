"""Floating point beyond single operators: rounding, floor division, NaN, denormals, fastmath."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import build, launch, same, values


def bit_patterns(name: str, count: int, seed: int) -> np.ndarray:
    """Random bit patterns: every exponent is as likely, with denormals, infinities and NaN."""
    return (
        np.random.default_rng(seed)
        .integers(0, 256, count * oracle.bits(name) // 8, np.uint8)
        .view(oracle.numpy_dtype(name))
    )


def elementwise(
    expression: str, result: Any, *arrays: np.ndarray, decorator: str = "@tack.kernel"
) -> np.ndarray:
    """``expression`` of ``x``, ``y``, ``z`` for each element."""
    names = "xyz"[: len(arrays)]
    params = ", ".join(names)
    text = expression
    for name in names:
        text = text.replace(name.upper(), f"{name}[i]")
    out = np.zeros(len(arrays[0]), result)
    launch(
        build(
            f"{decorator}\ndef kernel(o, {params}):\n    for i in range(o.shape[0]):\n        o[i] = {text}\n"
        ),
        out,
        *arrays,
    )
    return out


def assert_same(got: np.ndarray, expected: np.ndarray, *arrays: np.ndarray) -> None:
    ok = (got == expected) & (np.signbit(got) == np.signbit(expected)) | np.isnan(got) & np.isnan(expected)
    k = int(np.argmin(ok))
    assert ok.all(), (
        f"{(~ok).sum()} differ, first at {[a[k] for a in arrays]}: got {got[k]!r}, expected {expected[k]!r}"
    )


@pytest.mark.parametrize("name", oracle.FLOATS)
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%"])
def test_operators_on_random_bit_patterns(name: str, op: str) -> None:
    x, y = bit_patterns(name, 20000, 1), bit_patterns(name, 20000, 2)
    y[::3] = (x[::3].astype(np.float64) * 1.7).astype(y.dtype)  # comparable magnitudes
    with np.errstate(all="ignore"):
        quotient, remainder = oracle.floor_divmod(x, y)
        expected = {"+": x + y, "-": x - y, "*": x * y, "/": x / y, "//": quotient, "%": remainder}[op]
    assert_same(elementwise(f"X {op} Y", x.dtype, x, y), expected, x, y)


@pytest.mark.f64
def test_floor_division_and_remainder_are_cpythons() -> None:
    numbers = [*oracle.interesting_floats("f64"), 5.3, -5.3, 1e16, 0.3, 5e-324]
    pairs = list(itertools.product(numbers, repeat=2))
    x, y = np.array(pairs).T.copy()
    quotient, remainder = (
        elementwise("X // Y", np.float64, x, y).tolist(),
        elementwise("X % Y", np.float64, x, y).tolist(),
    )
    expected_q = []
    for a, b in pairs:
        if b == 0:
            expected_q.append(
                math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
            )
        else:
            expected_q.append(a // b)
    same(quotient, expected_q, pairs)
    same(remainder, [a % b if b else math.nan for a, b in pairs], pairs)


def test_known_floor_values() -> None:
    cases = {
        "-1.0 % x[0]": 2.0,
        "1.0 % -x[0]": -2.0,
        "-0.0 % x[0]": 0.0,
        "0.0 % -x[0]": -0.0,
        "-1.0 // x[0]": -1.0,
        "7.5 // x[0]": 2.0,
        "-7.5 // x[0]": -3.0,
        "5.0 % x[1]": 5.0,
        "-5.0 % x[1]": math.inf,
        "-5.0 // x[1]": -1.0,
        "x[1] % 2.0": math.nan,
        "x[1] // 2.0": math.nan,
        "1.0 // x[2]": math.inf,
        "-1.0 // x[2]": -math.inf,
        "1.0 % x[2]": math.nan,
        "x[2] // 1.0": 0.0,
        "-7 // x[0]": -3.0,
        "-7 % x[0]": 2.0,
    }
    for dtype in (np.float32, np.float64):
        same(values(list(cases), np.float64, x=np.array([3.0, np.inf, 0.0], dtype)), cases.values(), cases)


def test_f32_runs_in_f32_at_every_step() -> None:
    rng = np.random.default_rng(3)
    x, y, z = (rng.uniform(-1e3, 1e3, 5000).astype(np.float32) for _ in range(3))
    for text, expected in (
        ("(X + Y) - X", (x + y) - x),
        ("X / Y / Z", x / y / z),
        ("(X - Y) / (X + Y)", (x - y) / (x + y)),
        ("X * 0.1", x * np.float32(0.1)),
        ("X + 0.1 + 0.2", x + np.float32(0.1) + np.float32(0.2)),
        ("(X * Y) / Z", (x * y) / z),
        ("X / 3", x / np.float32(3)),
    ):
        for out in (np.float32, np.float64):
            assert_same(elementwise(text, out, x, y, z), expected.astype(out), x, y, z)


@pytest.mark.f64
def test_multiply_add_is_fused_or_not_and_nothing_else() -> None:
    for dtype, name in ((np.float32, "f32"), (np.float64, "f64")):
        x, y, z = (np.random.default_rng(s).uniform(-2, 2, 2000).astype(dtype) for s in (1, 2, 3))
        z[::2] = -(x * y)[::2]  # cancellation shows which
        got = elementwise("X * Y + Z", dtype, x, y, z)
        plain = x * y + z
        fused = [
            oracle.round_to(name, Fraction(a) * Fraction(b) + Fraction(c))
            for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
        ]
        ok = (got == plain) | (got == np.array(fused, dtype))
        assert ok.all()


def test_sums_are_not_reassociated() -> None:
    x = np.array([1e8, 1.0, -1e8, 1.0] * 1000, np.float32)
    out = np.zeros(1, np.float32)
    launch(
        build(
            """
                @tack.kernel
                def kernel(x, o):
                    for i in range(1):
                        s = tack.f32(0)
                        for k in range(x.shape[0]):
                            s += x[k]
                        o[0] = s
                """
        ),
        x,
        out,
    )
    expected = np.float32(0)
    for v in x:
        expected += v
    assert out[0] == expected
    assert out[0] != np.float32(x.sum(dtype=np.float64))


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_denormals_are_kept(name: str) -> None:
    tiny = np.finfo(oracle.numpy_dtype(name)).smallest_subnormal
    x = np.arange(1, 200).astype(oracle.numpy_dtype(name)) * tiny
    for text, expected in (
        ("X + X", x + x),
        ("X * 0.5", x * x.dtype.type(0.5)),
        ("X - 0", x),
        ("-X", -x),
        ("min(X, Y)", x),
        ("X / Y", x / x),
        ("sqrt(X)", np.sqrt(x)),
        ("fmod(X, Y)", np.fmod(x, x)),
    ):
        assert_same(elementwise(text, x.dtype, x, x), expected, x)
    # In the worker threads too.
    big = np.resize(x, 1_000_000)
    assert_same(elementwise("X * 0.5", x.dtype, big), big * x.dtype.type(0.5), big)


@pytest.mark.parametrize("fastmath", [False, True])
@pytest.mark.parametrize("name", oracle.FLOATS)
def test_isnan_isinf_isfinite_are_honest(name: str, fastmath: bool) -> None:
    x = np.resize(np.array(oracle.interesting_floats(name), oracle.numpy_dtype(name)), 4096)
    decorator = f"@tack.kernel(fastmath={fastmath})"
    for text, expected in (
        ("isnan(X)", np.isnan(x)),
        ("isinf(X)", np.isinf(x)),
        ("isfinite(X)", np.isfinite(x)),
        ("X != X", np.isnan(x)),
    ):
        got = elementwise(text, np.int32, x, decorator=decorator)
        assert np.array_equal(got, expected.astype(np.int32)), text


def test_fastmath_is_part_of_the_kernel_and_stays_close() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 2, 1000).astype(np.float32)
    got = elementwise("X / 3 + X * X - sqrt(X)", np.float32, x, decorator="@tack.kernel(fastmath=True)")
    assert np.allclose(got, x / 3 + x * x - np.sqrt(x), rtol=1e-5, atol=1e-6)


def test_isnan_of_integers_and_literals() -> None:
    assert values(
        ["isnan(k)", "isfinite(k)", "isinf(k)", "isnan(math.nan)", "isinf(-math.inf)"], np.int32, k=7
    ) == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_rounding_functions(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    special = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.49999997,
        -0.2,
        2.0**23 + 0.5,
        2.0**52 + 0.5,
        -(2.0**31),
        1e20,
    ]
    x = np.concatenate(
        [
            np.array(oracle.interesting_floats(name) + special, dtype),
            bit_patterns(name, 3000, 5),
            np.random.default_rng(1).uniform(-100, 100, 2000).astype(dtype),
        ]
    )
    with np.errstate(all="ignore"):
        expected = {
            "floor(X)": np.floor(x),
            "ceil(X)": np.ceil(x),
            "trunc(X)": np.trunc(x),
            "round(X)": np.rint(x),
            "abs(X)": np.abs(x),
            "sign(X)": np.where(x == 0, x, np.sign(x)),
        }
    for text, want in expected.items():
        assert_same(elementwise(text, dtype, x), want, x)


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_exact_functions_of_two_and_three(name: str) -> None:
    x, y = bit_patterns(name, 20000, 7), bit_patterns(name, 20000, 8)
    y[::2] = (x[::2].astype(np.float64) * 0.37).astype(x.dtype)
    special = list(itertools.product(oracle.interesting_floats(name), repeat=2))
    x = np.concatenate([x, np.array([p[0] for p in special], x.dtype)])
    y = np.concatenate([y, np.array([p[1] for p in special], x.dtype)])
    with np.errstate(all="ignore"):
        assert_same(elementwise("fmod(X, Y)", x.dtype, x, y), np.fmod(x, y), x, y)
        number = ~np.isnan(x)
        assert_same(
            elementwise("copysign(X, Y)", x.dtype, x, y)[number],
            np.copysign(x, y)[number],
            x[number],
            y[number],
        )
    got = elementwise("where(X, X, Y)", x.dtype, x, y)
    assert_same(got, np.where(x != 0, x, y), x, y)
    got = elementwise("where(X < Y, X, Y)", x.dtype, x, y)
    assert_same(got, np.where(x < y, x, y), x, y)


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_fma_is_rounded_once(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    rng = np.random.default_rng(4)
    scale = 2.0 ** rng.integers(-30, 30, (3, 3000))
    x, y, z = (rng.uniform(-1, 1, (3, 3000)) * scale).astype(dtype)
    z[::2] = -(x * y)[::2]
    got = elementwise("fma(X, Y, Z)", dtype, x, y, z).tolist()
    expected = [
        oracle.round_to(name, Fraction(a) * Fraction(b) + Fraction(c))
        for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    assert [float(v) for v in got] == expected


def test_integers_convert_to_float_once() -> None:
    numbers = [
        2**24 + 1,
        2**24 + 3,
        2**53 + 1,
        2**62 + 2**38,
        2**62 + 2**38 + 1,
        2**63 - 1,
        -(2**63),
        2**40 + 2**16 + 1,
        2**60 + 2**36 + 1,
    ]
    x = np.array(numbers, np.int64)
    for name in oracle.FLOATS if tack.default_device().supports_f64 else ("f32",):
        got = elementwise(f"tack.{name}(X)", oracle.numpy_dtype(name), x).tolist()
        assert got == [oracle.round_to(name, v) for v in numbers]
    u = np.array([2**64 - 1, 2**63 + 1, 2**63 + 2**39 + 1], np.uint64)
    assert elementwise("X + 0.0", np.float64, u).tolist() == [oracle.round_to("f32", int(v)) for v in u]
    assert elementwise("sqrt(X)", np.float32, np.array([16777217, 4], np.int32)).tolist() == [
        float(np.sqrt(np.float32(16777216))),
        2.0,
    ]
