"""Every operator on all 100 pairs of types, against Python integers and NumPy's floats."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, build, launch, value, values

Rejects = Callable[..., Rejection]
ARITHMETIC = oracle.ARITHMETIC
COMPARISONS = oracle.COMPARISONS
SHIFTS = ("<<", ">>", "**")
INTEGER_PAIRS = list(itertools.product(oracle.INTEGERS, repeat=2))
MIXED = [p for p in INTEGER_PAIRS if oracle.promote(*p) is None]
PLAIN = [p for p in INTEGER_PAIRS if oracle.promote(*p) is not None]
BYTES = [p for p in PLAIN if oracle.bits(p[0]) == oracle.bits(p[1]) == 8]
FLOAT_PAIRS = [p for p in itertools.product(oracle.DTYPES, repeat=2) if "f" in (p[0][0], p[1][0])]


def grid(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.meshgrid(a, b, indexing="ij")
    return np.ascontiguousarray(left.ravel()), np.ascontiguousarray(right.ravel())


@functools.cache
def kernel_of(expressions: tuple[str, ...]) -> Any:
    """A kernel that stores each expression of ``x`` and ``y`` to its own row of ``o``."""
    lines = "".join(f"        o[{k}, i] = {text}\n" for k, text in enumerate(expressions))
    return build(
        "@tack.kernel\ndef kernel(o, a, b):\n    for i in range(a.shape[0]):\n"
        f"        x = a[i]\n        y = b[i]\n{lines}"
    )


def table(expressions: tuple[str, ...], a: np.ndarray, b: np.ndarray, dtype: Any) -> dict[str, np.ndarray]:
    out = np.zeros((len(expressions), len(a)), dtype)
    launch(kernel_of(expressions), out, a, b)
    return dict(zip(expressions, out, strict=True))


def check(got: np.ndarray, expected: Any, a: np.ndarray, b: np.ndarray, label: str) -> None:
    expected = np.asarray(expected)
    if expected.dtype.kind == "f":
        wrong = ~(
            (got == expected) & (np.signbit(got) == np.signbit(expected))
            | (np.isnan(got) & np.isnan(expected))
        )
    else:
        wrong = got != expected
    if wrong.any():
        k = int(np.argmax(wrong))
        raise AssertionError(
            f"{label}: {a[k]!r}, {b[k]!r} gives {got[k]!r}, expected {expected[k]!r} "
            f"({wrong.sum()} of {len(got)} differ)"
        )


INTEGER_EXPRESSIONS = tuple(
    [f"x {op} y" for op in ARITHMETIC]
    + [f"x {op} y" for op in COMPARISONS]
    + [f"x {op} y" for op in SHIFTS]
    + [
        "min(x, y)",
        "max(x, y)",
        "x if x < y else y",
        "x and y",
        "x or y",
        "clz((x + y) ^ (x + y))",
        "~((x + y) ^ (x + y)) < 0",
    ]
)


def integer_model(text: str, ta: str, tb: str) -> Callable[[int, int], int]:
    """What one of `INTEGER_EXPRESSIONS` gives for ``x`` and ``y``."""
    result = oracle.promote(ta, tb)
    assert result is not None
    width, signed = oracle.bits(result), int(result[0] == "i")
    others: dict[str, Callable[[int, int], int]] = {
        "min(x, y)": min,
        "max(x, y)": max,
        "x if x < y else y": min,
        "x and y": lambda a, b: int(bool(a and b)),
        "x or y": lambda a, b: int(bool(a or b)),
        "clz((x + y) ^ (x + y))": lambda _a, _b: width,
        "~((x + y) ^ (x + y)) < 0": lambda _a, _b: signed,
    }
    return others[text] if text in others else oracle.int_operator(text[2:-2], ta, tb)


@pytest.mark.parametrize("pair", PLAIN, ids="-".join)
def test_integer_pair_at_the_boundaries(pair: tuple[str, str]) -> None:
    ta, tb = pair
    left, right = oracle.interesting_integers(ta), oracle.interesting_integers(tb)
    a, b = grid(np.array(left, oracle.numpy_dtype(ta)), np.array(right, oracle.numpy_dtype(tb)))
    got = table(INTEGER_EXPRESSIONS, a, b, np.int64)
    for text, row in got.items():
        model = integer_model(text, ta, tb)
        expected = [oracle.wrap("i64", model(x, y)) for x, y in itertools.product(left, right)]
        check(row, expected, a, b, f"{ta} {text} {tb}")


@pytest.mark.parametrize("pair", BYTES, ids="-".join)
def test_eight_bit_pairs_exhaustively(pair: tuple[str, str]) -> None:
    ta, tb = pair
    left, right = (
        range(oracle.limits(ta)[0], oracle.limits(ta)[1] + 1),
        range(oracle.limits(tb)[0], oracle.limits(tb)[1] + 1),
    )
    a, b = grid(np.array(left, oracle.numpy_dtype(ta)), np.array(right, oracle.numpy_dtype(tb)))
    got = table(INTEGER_EXPRESSIONS, a, b, np.int64)
    for text, row in got.items():
        model = integer_model(text, ta, tb)
        expected = [model(x, y) for x, y in itertools.product(left, right)]
        check(row, expected, a, b, f"{ta} {text} {tb}")


@pytest.mark.parametrize("pair", PLAIN, ids="-".join)
def test_integer_true_division_is_f32(pair: tuple[str, str]) -> None:
    ta, tb = pair
    left, right = oracle.interesting_integers(ta), oracle.interesting_integers(tb)
    a, b = grid(np.array(left, oracle.numpy_dtype(ta)), np.array(right, oracle.numpy_dtype(tb)))
    row = table(("x / y",), a, b, np.float64)["x / y"]
    with np.errstate(all="ignore"):
        expected = [
            float(np.float32(oracle.round_to("f32", x)) / np.float32(oracle.round_to("f32", y)))
            for x, y in itertools.product(left, right)
        ]
    check(row, np.array(expected), a, b, f"{ta} / {tb}")


@pytest.mark.parametrize("pair", MIXED, ids="-".join)
def test_signed_with_u64_is_rejected_and_shifts_are_not(rejects: Rejects, pair: tuple[str, str]) -> None:
    ta, tb = pair
    a, b = np.array([5], oracle.numpy_dtype(ta)), np.array([3], oracle.numpy_dtype(tb))
    for text in (
        *(f"a[i] {op} b[i]" for op in (*ARITHMETIC, *COMPARISONS)),
        "min(a[i], b[i])",
        "a[i] if i else b[i]",
    ):
        rejects(
            TypeError,
            f"@tack.kernel\ndef kernel(o, a, b):\n    for i in range(1):\n        o[i] = «{text}»\n",
            np.zeros(1),
            a,
            b,
        )
    assert values(["a[0] << b[0]", "a[0] >> b[0]", "a[0] ** b[0]"], np.int64, a=a, b=b) == [40, 0, 125]


@pytest.mark.parametrize("name", oracle.INTEGERS)
def test_integer_unary_operators(name: str) -> None:
    low, high = oracle.limits(name)
    numbers = list(range(low, high + 1)) if oracle.bits(name) == 8 else oracle.interesting_integers(name)
    a = np.array(numbers, oracle.numpy_dtype(name))
    expected: dict[str, Callable[[int], int]] = {
        "-x": lambda v: oracle.wrap(name, -v),
        "+x": lambda v: v,
        "~x": lambda v: oracle.wrap(name, ~v),
        "not x": lambda v: int(not v),
        "abs(x)": lambda v: oracle.wrap(name, abs(v)),
        "popcount(x)": lambda v: (v % 2 ** oracle.bits(name)).bit_count(),
        "clz(x)": lambda v: oracle.bits(name) - (v % 2 ** oracle.bits(name)).bit_length(),
        "ctz(x)": lambda v: oracle.bits(name) if v == 0 else (v & -v).bit_length() - 1,
        "sign(x)": lambda v: (v > 0) - (v < 0),
        "floor(x)": lambda v: v,
        "ceil(x)": lambda v: v,
        "round(x)": lambda v: v,
        "trunc(x)": lambda v: v,
        "any(x)": lambda v: int(v != 0),
        "all(x)": lambda v: int(v != 0),
        "clz(-x ^ -x)": lambda _: oracle.bits(name),
        "clz(abs(x) ^ abs(x))": lambda _: oracle.bits(name),
        "clz(floor(x) ^ floor(x))": lambda _: oracle.bits(name),
        "clz((x << 1) ^ (x << 1))": lambda _: oracle.bits(name),
        "clz((x ** 2) ^ (x ** 2))": lambda _: oracle.bits(name),
        "clz(popcount(x) ^ popcount(x))": lambda _: 32,
        "pow(x, 3)": lambda v: oracle.wrap(name, v**3),
        "where(x, 7, 9)": lambda v: 7 if v else 9,
    }
    got = table(tuple(expected), a, a, np.int64)
    for text, row in got.items():
        check(row, [oracle.wrap("i64", expected[text](v)) for v in numbers], a, a, f"{name} {text}")


@pytest.mark.parametrize("name", oracle.INTEGERS)
def test_shift_counts_are_taken_modulo_the_width(name: str) -> None:
    n = oracle.bits(name)
    counts = [0, 1, n - 1, n, n + 1, 2 * n + 3, -1, -n, 127, -128]
    numbers = oracle.interesting_integers(name)
    a, b = grid(np.array(numbers, oracle.numpy_dtype(name)), np.array(counts, np.int16))
    got = table(("x << y", "x >> y"), a, b, np.int64)
    for op in ("<<", ">>"):
        expected = [
            oracle.wrap("i64", oracle.int_binary(op, name, x, "i16", c))
            for x, c in itertools.product(numbers, counts)
        ]
        check(got[f"x {op} y"], expected, a, b, f"{name} {op}")
    literal = values([f"x[0] << {c}" for c in counts] + [f"x[0] >> {c}" for c in counts], np.int64, x=a[:1])
    x = int(a[0])
    assert literal == [
        oracle.wrap("i64", oracle.int_binary(op, name, x, "i32", c)) for op in ("<<", ">>") for c in counts
    ]
    assert value("x[0] >> k", np.int64, x=a[:1], k=2**40 + 1) == oracle.wrap(
        "i64", oracle.int_binary(">>", name, x, "i64", 2**40 + 1)
    )


@pytest.mark.parametrize("name", oracle.INTEGERS)
def test_power_with_huge_and_negative_exponents(name: str) -> None:
    bases = [
        0,
        1,
        2,
        3,
        5,
        oracle.limits(name)[1],
        *([-1, -2, -3, oracle.limits(name)[0]] if name[0] == "i" else []),
    ]
    for kind, exponents in (
        ("i64", [-(2**63), -3, -2, -1, 0, 1, 2, 63, 64, 2**31, 2**62 + 1]),
        ("u64", [0, 1, 2**63, 2**64 - 1]),
    ):
        a, b = grid(np.array(bases, oracle.numpy_dtype(name)), np.array(exponents, oracle.numpy_dtype(kind)))
        got = table(("x ** y", "pow(x, y)"), a, b, np.int64)
        expected = [
            oracle.wrap("i64", oracle.int_power(x, e, name)) for x, e in itertools.product(bases, exponents)
        ]
        for text, row in got.items():
            check(row, expected, a, b, f"{name} {text} {kind}")
    x = np.array([3], oracle.numpy_dtype(name))
    assert values(["x[0] ** 0", "x[0] ** 1", "x[0] ** 5"], np.int64, x=x) == [1, 3, oracle.wrap(name, 243)]


def test_negative_literal_exponent_of_an_integer_is_rejected(rejects: Rejects) -> None:
    for text in ("x[i] ** «-1", "2 ** «-3", "pow(x[i], «-2)"):
        marked = "«" + text
        rejects(
            TypeError,
            f"@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        x[i] = {marked}\n",
            np.zeros(1, np.int32),
        )
    assert value("x[0] ** -1", np.float64, x=np.array([4.0])) == 0.25


@pytest.mark.parametrize("op", ["&", "|", "^", "<<", ">>", "~"])
def test_bit_operators_on_floats_are_rejected(rejects: Rejects, op: str) -> None:
    text = f"«{op}x[i]" if op == "~" else f"«x[i] {op} 1"
    rejects(
        TypeError,
        f"@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        x[i] = {text}\n",
        np.zeros(1),
    )
    if op != "~":
        rejects(
            TypeError,
            f"@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        x[i] = «1 {op} 0.5\n",
            np.zeros(1),
        )


def test_division_by_zero_never_traps() -> None:
    for name in oracle.INTEGERS:
        low = oracle.limits(name)[0]
        x = np.array([low, 5, 0], oracle.numpy_dtype(name))
        zero = np.zeros(1, oracle.numpy_dtype(name))
        expressions = [
            "x[0] // z[0]",
            "x[0] % z[0]",
            "x[1] // z[0]",
            "x[1] % z[0]",
            "x[2] // 0",
            "x[1] % 0",
            "x[1] // 0",
        ]
        assert values(expressions, np.int64, x=x, z=zero) == [0] * 7
        if name[0] == "i":
            minus = np.array([-1], oracle.numpy_dtype(name))
            same_type = ["x[0] // m[0]", "x[0] % m[0]", "-x[0]", "abs(x[0])"]
            assert values(same_type, np.int64, x=x, m=minus) == [low, 0, low, low]


# --- floats -----------------------------------------------------------------------------------

FLOAT_EXPRESSIONS = ("x + y", "x - y", "x * y", "x / y", "x // y", "x % y")
FLOAT_TESTS = tuple(f"x {op} y" for op in COMPARISONS)


def operands(name: str) -> list[Any]:
    return oracle.interesting_integers(name) if name in oracle.INTEGERS else oracle.interesting_floats(name)


def converted(name: str, numbers: list[Any], to: str) -> np.ndarray:
    """Operands rounded once to the type in which the operation runs."""
    if name in oracle.INTEGERS:
        numbers = [oracle.round_to(to, v) for v in numbers]
    return np.array(numbers, oracle.numpy_dtype(to))


@pytest.mark.parametrize("pair", FLOAT_PAIRS, ids="-".join)
def test_float_pair(pair: tuple[str, str]) -> None:
    ta, tb = pair
    result = oracle.promote(ta, tb)
    assert result is not None
    left, right = operands(ta), operands(tb)
    a, b = grid(np.array(left, oracle.numpy_dtype(ta)), np.array(right, oracle.numpy_dtype(tb)))
    x, y = grid(converted(ta, left, result), converted(tb, right, result))
    with np.errstate(all="ignore"):
        quotient, remainder = oracle.floor_divmod(x, y)
        expected = {
            "x + y": x + y,
            "x - y": x - y,
            "x * y": x * y,
            "x / y": x / y,
            "x // y": quotient,
            "x % y": remainder,
        }
        tests = {
            "x == y": x == y,
            "x != y": x != y,
            "x < y": x < y,
            "x <= y": x <= y,
            "x > y": x > y,
            "x >= y": x >= y,
        }
    for text, row in table(FLOAT_EXPRESSIONS, a, b, np.float64).items():
        check(row, expected[text].astype(np.float64), a, b, f"{ta} {text} {tb}")
    for text, row in table((*FLOAT_TESTS, "x and y", "x or y", "not x"), a, b, np.int32).items():
        if text in tests:
            check(row, tests[text].astype(np.int32), a, b, f"{ta} {text} {tb}")
    logic = table((*FLOAT_TESTS, "x and y", "x or y", "not x"), a, b, np.int32)
    truth_x, truth_y = a != 0, b != 0  # NaN is true
    check(logic["x and y"], (truth_x & truth_y).astype(np.int32), a, b, "and")
    check(logic["x or y"], (truth_x | truth_y).astype(np.int32), a, b, "or")
    check(logic["not x"], (~truth_x).astype(np.int32), a, b, "not")


@pytest.mark.parametrize("pair", FLOAT_PAIRS, ids="-".join)
def test_float_minimum_and_maximum(pair: tuple[str, str]) -> None:
    """The number wins over one NaN; two zeros give either."""
    ta, tb = pair
    result = oracle.promote(ta, tb)
    assert result is not None
    left, right = operands(ta), operands(tb)
    a, b = grid(np.array(left, oracle.numpy_dtype(ta)), np.array(right, oracle.numpy_dtype(tb)))
    x, y = grid(converted(ta, left, result), converted(tb, right, result))
    got = table(("min(x, y)", "max(x, y)"), a, b, np.float64)
    zeros = (x == 0) & (y == 0)
    for text, reference in (("min(x, y)", np.fmin(x, y)), ("max(x, y)", np.fmax(x, y))):
        row = got[text]
        assert (row[zeros] == 0).all()
        check(row[~zeros], reference.astype(np.float64)[~zeros], a[~zeros], b[~zeros], f"{ta} {text} {tb}")


def test_power_with_a_float_operand_is_pow() -> None:
    bases, exponents = [2.0, 9.0, 0.5, 10.0, 1.0], [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5]
    for ta, tb in FLOAT_PAIRS:
        if "f64" in (ta, tb) and not tack.default_device().supports_f64:
            continue
        ints_a, ints_b = ta in oracle.INTEGERS, tb in oracle.INTEGERS
        left = [v for v in bases if not ints_a or v.is_integer()]
        right = [v for v in exponents if not ints_b or (v.is_integer() and (v >= 0 or tb[0] == "i"))]
        a, b = grid(
            np.array(left).astype(oracle.numpy_dtype(ta)), np.array(right).astype(oracle.numpy_dtype(tb))
        )
        expected = np.array([v**w for v, w in itertools.product(left, right)])
        got = table(("x ** y",), a, b, np.float64)["x ** y"]
        assert np.allclose(got, expected, rtol=1e-6 if oracle.promote(ta, tb) == "f32" else 1e-15, atol=0), (
            ta,
            tb,
        )


def test_three_way_and_longer_minimum() -> None:
    a = np.array([5, -3], np.int8)
    b = np.array([200], np.uint8)
    got = values(
        ["min(a[0], b[0], a[1])", "max(a[0], b[0], a[1], 1000)", "min(3, 2, 1, 0)", "max(a[0], 0.5)"],
        np.float64,
        a=a,
        b=b,
    )
    assert got == [-3, 1000, 0, 5]


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_unary_minus_flips_the_sign_of_zero_and_nothing_is_folded(name: str) -> None:
    x = np.array(oracle.interesting_floats(name), oracle.numpy_dtype(name))
    with np.errstate(all="ignore"):
        expected = {
            "-x": -x,
            "+x": x,
            "abs(x)": np.abs(x),
            "x - x": x - x,
            "x * 0": x * 0,
            "x + 0": x + 0.0,
            "0 - x": 0.0 - x,
            "x - 0": x - 0.0,
            "x / x": x / x,
            "x * 1": x,
            "x * -1": -x,
            "(x + 1) - x": (x + x.dtype.type(1)) - x,
            "1 / (1 / x)": x.dtype.type(1) / (x.dtype.type(1) / x),
            "x * 3 / 3": x * x.dtype.type(3) / x.dtype.type(3),
            "x / 3": x / x.dtype.type(3),
        }
    got = table(tuple(expected), x, x, np.float64)
    for text, row in got.items():
        check(row, expected[text].astype(np.float64), x, x, f"{name} {text}")
    tests = table(("x != x", "x == x", "x < x", "not x", "1 if x else 0", "x == -x"), x, x, np.int32)
    nan = np.isnan(x)
    for text, want in (
        ("x != x", nan),
        ("x == x", ~nan),
        ("x < x", nan & False),
        ("not x", x == 0),
        ("1 if x else 0", x != 0),
    ):
        check(tests[text], want.astype(np.int32), x, x, f"{name} {text}")


def test_helper_can_fail() -> None:
    """`check` sees a wrong sign of zero, a NaN, and a wrong value."""
    one = np.array([1.0])
    for got, expected in ((np.array([0.0]), np.array([-0.0])), (np.array([np.nan]), one), (one, one + 1)):
        with pytest.raises(AssertionError):
            check(got, expected, one, one, "x")
    check(np.array([np.nan]), np.array([np.nan]), one, one, "x")
