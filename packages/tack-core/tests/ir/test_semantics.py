"""Scalar semantics against Python's integers, CPython's floats, NumPy, exact rationals and mpmath."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tack.dtypes import ALL_DTYPES, DType, f32, f64, i8, i32, i64, u8, u16, u64
from tack.ir import semantics as sem
from tack.lang.builtins import BUILTINS

from .strategies import generated, numbers, same

INTEGERS = [d for d in ALL_DTYPES if d.is_integer]
FLOATS = [f32, f64]
INF, NAN = math.inf, math.nan

integer_dtypes = st.sampled_from(INTEGERS)
float_dtypes = st.sampled_from(FLOATS)
dtypes = st.sampled_from(ALL_DTYPES)


def low_bits(exact: int, dtype: DType) -> int:
    """What ``dtype`` keeps of an exact integer, by way of its bytes."""
    raw = (exact % (1 << dtype.bits)).to_bytes(dtype.itemsize, "little")
    return int.from_bytes(raw, "little", signed=dtype.is_signed)


def is_nearest(result: float, exact: Fraction, dtype: DType) -> bool:
    """Whether ``result`` is ``exact`` rounded once to nearest, ties to even; it must be finite."""
    value = dtype.numpy.type(result)
    error = abs(Fraction(result) - exact)
    for side in (-INF, INF):
        other = float(np.nextafter(value, dtype.numpy.type(side)))
        if math.isinf(other):
            continue
        distance = abs(Fraction(other) - exact)
        odd = int(value.view(f"u{dtype.itemsize}")) % 2
        if distance < error or (distance == error and odd):
            return False
    return float(value) == result


def ulps(result: float, exact: mpmath.mpf, dtype: DType) -> float:
    """The error of ``result`` in units of the last place."""
    spacing = float(np.spacing(dtype.numpy.type(abs(float(exact)))))
    return float(abs(mpmath.mpf(result) - exact) / spacing)


# --- integers ---------------------------------------------------------------------------------

# The exact results, on arrays of Python-sized integers.
EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))),
    "mod": lambda a, b: np.where(b == 0, 0, a - np.floor_divide(a, np.where(b == 0, 1, b)) * b),
    "shl": lambda a, b: a * 2 ** (b % 8),
    "shr": lambda a, b: np.floor_divide(a, 2 ** (b % 8)),
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}


@pytest.mark.parametrize("dtype", [i8, u8])
@pytest.mark.parametrize("op", EXACT)
def test_integer_operators_on_all_8_bit_operands(op: str, dtype: DType) -> None:
    values = np.arange(dtype.min, dtype.max + 1, dtype=np.int64)
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    expected = EXACT[op](a, b).astype(dtype.numpy)
    found = [sem.binary(op, x, y, dtype) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert found == expected.tolist()


@generated
@given(st.data(), integer_dtypes)
def test_integer_operators_keep_the_low_bits_of_the_exact_result(data: st.DataObject, t: DType) -> None:
    a, b = data.draw(numbers(t)), data.draw(numbers(t))
    count = b % t.bits
    exact = {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "floordiv": math.floor(Fraction(a, b)) if b else 0,
        "mod": a - math.floor(Fraction(a, b)) * b if b else 0,
        "shl": a * 2**count,
        "shr": math.floor(Fraction(a, 2**count)),
    }
    for op, value in exact.items():
        assert sem.binary(op, a, b, t) == low_bits(value, t), op
    for op in ("bitand", "bitor", "bitxor"):
        ufunc = {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}[op]
        assert sem.binary(op, a, b, t) == int(ufunc(t.numpy.type(a), t.numpy.type(b)))
    assert sem.unary("neg", a, t) == low_bits(-a, t)
    assert sem.unary("invert", a, t) == low_bits(-a - 1, t)
    assert sem.call("abs", (a,), t) == low_bits(abs(a), t)


@pytest.mark.parametrize("t", INTEGERS)
def test_integer_edges(t: DType) -> None:
    assert sem.binary("floordiv", t.max, 0, t) == 0
    assert sem.binary("mod", t.max, 0, t) == 0
    assert sem.binary("shl", 1, t.bits, t) == 1
    assert sem.binary("shr", t.max, t.bits + 1 if t.holds(t.bits + 1) else 1, t) == t.max // 2
    if t.is_signed:
        assert sem.binary("floordiv", t.min, -1, t) == t.min
        assert sem.binary("mod", t.min, -1, t) == 0
        assert sem.unary("neg", t.min, t) == t.min
        assert sem.call("abs", (t.min,), t) == t.min
        assert sem.binary("shr", -1, t.bits - 1, t) == -1
        assert sem.binary("shl", 1, -1, t) == t.min
        assert (sem.binary("floordiv", -7, 2, t), sem.binary("mod", -7, 2, t)) == (-4, 1)
        assert (sem.binary("floordiv", 7, -2, t), sem.binary("mod", 7, -2, t)) == (-4, -1)


@generated
@given(st.data(), integer_dtypes, st.integers(0, 40))
def test_integer_power_is_exact_modulo_the_width(data: st.DataObject, t: DType, exponent: int) -> None:
    base = data.draw(numbers(t))
    product = 1
    for _ in range(exponent):
        product *= base
    assert sem.binary("pow", base, exponent, t) == low_bits(product, t)


@pytest.mark.parametrize("t", INTEGERS)
def test_integer_power_edges(t: DType) -> None:
    assert sem.binary("pow", 0, 0, t) == 1
    assert sem.binary("pow", 2, t.bits - 1, t) == low_bits(1 << (t.bits - 1), t)
    assert sem.binary("pow", 2, u64.max, t) == 0
    # 3 to the 2^62 is 1 modulo 2^64, so the exponent 2^64 - 1 leaves the inverse of 3.
    assert sem.binary("mul", sem.binary("pow", 3, u64.max, t), 3, t) == 1
    for exponent in (-1, -2, i64.min):
        assert sem.binary("pow", 1, exponent, t) == 1
        assert sem.binary("pow", 2, exponent, t) == sem.binary("pow", 0, exponent, t) == 0
        if t.is_signed:
            assert sem.binary("pow", -1, exponent, t) == (1 if exponent % 2 == 0 else -1)
            assert sem.binary("pow", -2, exponent, t) == 0


@generated
@given(st.data(), integer_dtypes)
def test_integer_builtins(data: st.DataObject, t: DType) -> None:
    x, y = data.draw(numbers(t)), data.draw(numbers(t))
    bits = format(x % (1 << t.bits), f"0{t.bits}b")
    assert sem.call("popcount", (x,), t) == bits.count("1")
    assert sem.call("clz", (x,), t) == len(bits) - len(bits.lstrip("0"))
    assert sem.call("ctz", (x,), t) == len(bits) - len(bits.rstrip("0"))
    assert sem.call("sign", (x,), t) == (1 if x > 0 else -1 if x < 0 else 0)
    assert sem.call("min", (x, y, 3), t) == sorted([x, y, 3])[0]
    assert sem.call("max", (x, y, 3), t) == sorted([x, y, 3])[2]
    for name in ("floor", "ceil", "round", "trunc"):
        assert sem.call(name, (x,), t) == x
    assert [sem.call(n, (x,), t) for n in ("isnan", "isinf", "isfinite")] == [0, 0, 1]


# --- floats -----------------------------------------------------------------------------------


def python_floor_divide(a: float, b: float) -> float:
    return a // b if b else float(np.float64(a) / np.float64(b))


@generated
@given(numbers(f64), numbers(f64))
def test_f64_floor_division_and_remainder_are_cpythons(a: float, b: float) -> None:
    assert repr(sem.binary("floordiv", a, b, f64)) == repr(python_floor_divide(a, b))
    assert repr(sem.binary("mod", a, b, f64)) == repr(a % b if b else NAN)


SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 5e-324, 1e308, -1e308, INF, -INF, NAN]


def pairs(t: DType) -> list[tuple[float, float]]:
    """All pairs of special values, and random ones whose quotients span many magnitudes."""
    special = [float(t.numpy.type(x)) for x in SPECIAL]
    rng = np.random.default_rng(7)
    scales = 2.0 ** rng.uniform(-40, 40, (2, 3000))
    a, b = (rng.uniform(-1, 1, (2, 3000)) * scales).astype(t.numpy).tolist()
    return [*itertools.product(special, special), *zip(a, b, strict=True)]


def test_f64_floor_division_and_remainder_of_many_pairs() -> None:
    for a, b in pairs(f64):
        assert repr(sem.binary("floordiv", a, b, f64)) == repr(python_floor_divide(a, b)), (a, b)
        assert repr(sem.binary("mod", a, b, f64)) == repr(a % b if b else NAN), (a, b)


def test_f32_floor_division_and_remainder_of_many_pairs() -> None:
    with np.errstate(all="ignore"):
        for a, b in pairs(f32):
            x, y = np.float32(a), np.float32(b)
            assert repr(sem.binary("floordiv", a, b, f32)) == repr(float(np.floor_divide(x, y))), (a, b)
            assert repr(sem.binary("mod", a, b, f32)) == repr(float(np.remainder(x, y))), (a, b)


@pytest.mark.parametrize("t", FLOATS)
def test_min_and_max_of_many_pairs(t: DType) -> None:
    for a, b in pairs(t):
        low, high = sem.call("min", (a, b), t), sem.call("max", (a, b), t)
        assert (low == np.fmin(a, b) and high == np.fmax(a, b)) or (a != a and b != b and low != low != high)


@generated
@given(numbers(f32), numbers(f32))
def test_f32_operators_are_numpys(a: float, b: float) -> None:
    x, y = np.float32(a), np.float32(b)
    with np.errstate(all="ignore"):
        expected = {
            "add": x + y,
            "sub": x - y,
            "mul": x * y,
            "div": x / y,
            "floordiv": np.floor_divide(x, y),
            "mod": np.remainder(x, y),
        }
        remainder = np.fmod(x, y)
    for op, value in expected.items():
        assert repr(sem.binary(op, a, b, f32)) == repr(float(value)), op
    assert repr(sem.call("fmod", (a, b), f32)) == repr(float(remainder))


@generated
@given(numbers(f64), numbers(f64))
def test_f64_operators_are_ieee(a: float, b: float) -> None:
    x, y = np.float64(a), np.float64(b)
    with np.errstate(all="ignore"):
        expected = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}
    for op, value in expected.items():
        assert repr(sem.binary(op, a, b, f64)) == repr(float(value)), op


@generated
@given(st.data(), float_dtypes)
def test_float_signs(data: st.DataObject, t: DType) -> None:
    a, b = data.draw(numbers(t)), data.draw(numbers(t))
    assert same(sem.unary("neg", a, t), math.copysign(a, -math.copysign(1.0, a)))
    assert same(sem.call("abs", (a,), t), math.copysign(a, 1.0))
    assert same(sem.call("copysign", (a, b), t), float(np.copysign(a, b)))
    assert same(sem.call("sign", (a,), t), float(np.copysign(np.sign(a), a)))


@generated
@given(st.data(), dtypes)
def test_comparisons_and_truth(data: st.DataObject, t: DType) -> None:
    a, b = data.draw(numbers(t)), data.draw(numbers(t))
    x, y = t.numpy.type(a), t.numpy.type(b)
    expected = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    assert {op: sem.compare(op, a, b) for op in sem.COMPARISONS} == {k: int(v) for k, v in expected.items()}
    assert sem.unary("not", a, t) == int(x == 0)
    assert sem.call("any", (a,), t) == sem.call("all", (a,), t) == int(x != 0)
    assert same(sem.call("where", (a, b, a), t), b if x != 0 else a)
    assert sem.call("isnan", (a,), t) == int(np.isnan(x))
    assert sem.call("isinf", (a,), t) == int(np.isinf(x))
    assert sem.call("isfinite", (a,), t) == int(np.isfinite(x))


def test_nan_is_true() -> None:
    assert sem.unary("not", NAN, f32) == 0
    assert sem.call("any", (NAN,), f64) == 1
    assert sem.call("where", (NAN, 1, 2), i32) == 1


@generated
@given(st.data(), float_dtypes)
def test_min_and_max_of_several(data: st.DataObject, t: DType) -> None:
    values = data.draw(st.lists(numbers(t), min_size=3, max_size=5))
    for name, ufunc in (("min", np.fmin), ("max", np.fmax)):
        found = sem.call(name, tuple(values), t)
        expected = float(ufunc.reduce(np.array(values, t.numpy)))
        assert found == expected or (found != found and expected != expected)


@generated
@given(st.data(), float_dtypes)
def test_float_roundings(data: st.DataObject, t: DType) -> None:
    x = data.draw(numbers(t))
    ufuncs = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}
    for name, ufunc in ufuncs.items():
        assert repr(sem.call(name, (x,), t)) == repr(float(ufunc(t.numpy.type(x)))), name


@generated
@given(st.data(), float_dtypes)
def test_fma_rounds_once(data: st.DataObject, t: DType) -> None:
    a, b, c = (data.draw(numbers(t)) for _ in range(3))
    found = sem.call("fma", (a, b, c), t)
    if all(map(math.isfinite, (a, b, c))):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if math.isfinite(found):
            assert is_nearest(found, exact, t)
        else:
            assert abs(exact) > Fraction(float(np.finfo(t.numpy).max))
            assert (found > 0) == (exact > 0)
    else:
        # A product of finite numbers cannot overflow here: 1 stands for it.
        product = a * b if not (math.isfinite(a) and math.isfinite(b)) else 1.0
        assert same(abs(found), abs(product + c))
        assert math.isnan(found) or found == product + c


def test_fma_where_two_roundings_would_differ() -> None:
    a, b, c = 1 + 2.0**-23, 0.5 * (1 - 2.0**-23), 2.0**23 + 1
    assert sem.round_to(a * b + c, f32) == 2.0**23 + 2
    assert sem.call("fma", (a, b, c), f32) == 2.0**23 + 1
    assert same(sem.call("fma", (-0.0, 1.0, -0.0), f32), -0.0)
    assert same(sem.call("fma", (1.0, -1.0, 1.0), f32), 0.0)
    assert same(sem.call("fma", (5e-324, -5e-324, 0.0), f64), -0.0)
    assert sem.call("fma", (1e308, 10.0, -INF), f64) == -INF


# Builtins, their exact values and domains where the result is a normal number.
LIBM = {
    "sqrt": (mpmath.sqrt, 0.0, 1e30),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), 1e-30, 1e30),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), -1e30, 1e30),
    "sin": (mpmath.sin, -1e4, 1e4),
    "cos": (mpmath.cos, -1e4, 1e4),
    "tan": (mpmath.tan, -1e4, 1e4),
    "asin": (mpmath.asin, -1.0, 1.0),
    "acos": (mpmath.acos, -1.0, 1.0),
    "atan": (mpmath.atan, -1e10, 1e10),
    "sinh": (mpmath.sinh, -80.0, 80.0),
    "cosh": (mpmath.cosh, -80.0, 80.0),
    "tanh": (mpmath.tanh, -30.0, 30.0),
    "exp": (mpmath.exp, -80.0, 80.0),
    "exp2": (lambda x: mpmath.power(2, x), -120.0, 120.0),
    "expm1": (mpmath.expm1, -80.0, 80.0),
    "log": (mpmath.log, 1e-30, 1e30),
    "log2": (lambda x: mpmath.log(x, 2), 1e-30, 1e30),
    "log10": (mpmath.log10, 1e-30, 1e30),
    "log1p": (mpmath.log1p, -0.99, 1e30),
    "erf": (mpmath.erf, -5.0, 5.0),
    "erfc": (mpmath.erfc, -5.0, 9.0),
}


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize("name", LIBM)
def test_functions_against_mpmath(name: str, t: DType) -> None:
    exact, low, high = LIBM[name]
    rng = np.random.default_rng(len(name))
    points = [*rng.uniform(low, high, 20), *rng.uniform(max(low, -1.0), min(high, 1.0), 20)]
    with mpmath.workprec(200):
        for point in points:
            x = float(t.numpy.type(point))
            limit = 0.5 if name == "sqrt" else 0.51 if t is f32 else 2.0
            assert ulps(float(sem.call(name, (x,), t)), exact(mpmath.mpf(x)), t) <= limit, x


@pytest.mark.parametrize("t", FLOATS)
def test_functions_of_two_numbers_against_mpmath(t: DType) -> None:
    rng = np.random.default_rng(1)
    limit = 0.51 if t is f32 else 2.0
    with mpmath.workprec(200):
        for _ in range(50):
            x, y = (float(t.numpy.type(v)) for v in rng.uniform(0.01, 20.0, 2))
            p, q = mpmath.mpf(x), mpmath.mpf(y)
            assert ulps(float(sem.binary("pow", x, y, t)), mpmath.power(p, q), t) <= limit
            assert ulps(float(sem.call("hypot", (x, y), t)), mpmath.hypot(p, q), t) <= limit
            assert ulps(float(sem.call("atan2", (x, -y), t)), mpmath.atan2(p, -q), t) <= limit
    assert set(LIBM) | {"hypot", "atan2"} == {n for n, b in BUILTINS.items() if b.rule == "float"} - {
        "fmod",
        "copysign",
        "fma",
    }  # exact, and tested above


# C99's Annex F, which the C library's functions follow.
ANNEX_F = [
    ("sqrt", (-0.0,), -0.0),
    ("sqrt", (-1.0,), NAN),
    ("sqrt", (INF,), INF),
    ("rsqrt", (0.0,), INF),
    ("rsqrt", (-0.0,), -INF),
    ("rsqrt", (INF,), 0.0),
    ("rsqrt", (-2.0,), NAN),
    ("cbrt", (-INF,), -INF),
    ("sin", (-0.0,), -0.0),
    ("sin", (INF,), NAN),
    ("cos", (-INF,), NAN),
    ("tan", (INF,), NAN),
    ("asin", (1.5,), NAN),
    ("acos", (-1.5,), NAN),
    ("acos", (1.0,), 0.0),
    ("atan", (-0.0,), -0.0),
    ("sinh", (1e9,), INF),
    ("sinh", (-1e9,), -INF),
    ("cosh", (-1e9,), INF),
    ("tanh", (-INF,), -1.0),
    ("exp", (1e9,), INF),
    ("exp", (-INF,), 0.0),
    ("exp2", (1e9,), INF),
    ("expm1", (1e9,), INF),
    ("expm1", (-INF,), -1.0),
    ("log", (0.0,), -INF),
    ("log", (-0.0,), -INF),
    ("log", (-1.0,), NAN),
    ("log2", (0.0,), -INF),
    ("log2", (-1.0,), NAN),
    ("log10", (0.0,), -INF),
    ("log1p", (-1.0,), -INF),
    ("log1p", (-2.0,), NAN),
    ("log1p", (-0.0,), -0.0),
    ("erf", (INF,), 1.0),
    ("erf", (-0.0,), -0.0),
    ("erfc", (-INF,), 2.0),
    ("erfc", (1e9,), 0.0),
    ("atan2", (0.0, -0.0), math.pi),
    ("atan2", (-0.0, 1.0), -0.0),
    ("hypot", (INF, NAN), INF),
    ("hypot", (3.0, -4.0), 5.0),
    ("fmod", (INF, 1.0), NAN),
    ("fmod", (1.0, 0.0), NAN),
    ("fmod", (-1.0, INF), -1.0),
    ("fmod", (-6.0, 3.0), -0.0),
    ("pow", (0.0, -1.0), INF),
    ("pow", (-0.0, -1.0), -INF),
    ("pow", (-0.0, -2.0), INF),
    ("pow", (-1.0, INF), 1.0),
    ("pow", (-8.0, 0.5), NAN),
    ("pow", (-2.0, 3.0), -8.0),
    ("pow", (1.0, NAN), 1.0),
    ("pow", (NAN, 0.0), 1.0),
    ("pow", (10.0, 1e9), INF),
    ("pow", (-10.0, 99999.0), -INF),
]


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize(("name", "args", "expected"), ANNEX_F)
def test_special_values(name: str, args: tuple[float, ...], expected: float, t: DType) -> None:
    found = sem.binary(name, *args, t) if name == "pow" else sem.call(name, args, t)
    assert repr(found) == repr(float(t.numpy.type(expected)))


@pytest.mark.parametrize("t", FLOATS)
def test_functions_of_nan_are_nan(t: DType) -> None:
    for name, builtin in BUILTINS.items():
        if builtin.rule == "float" or name in ("floor", "ceil", "round", "trunc", "sign", "abs"):
            assert math.isnan(sem.call(name, (NAN,) * builtin.min_args, t)), name


# --- conversions ------------------------------------------------------------------------------


@generated
@given(st.data(), integer_dtypes, integer_dtypes)
def test_integer_casts_keep_the_low_bits(data: st.DataObject, source: DType, to: DType) -> None:
    x = data.draw(numbers(source))
    assert sem.convert(x, to) == low_bits(x, to)


@generated
@given(st.data(), integer_dtypes, float_dtypes)
def test_casts_of_integers_to_floats_round_once(data: st.DataObject, source: DType, to: DType) -> None:
    x = data.draw(numbers(source))
    found = sem.convert(x, to)
    assert isinstance(found, float)
    assert is_nearest(found, Fraction(x), to)


def test_a_cast_where_two_roundings_would_differ() -> None:
    x = (1 << 62) + (1 << 38) + 1  # just above the middle of two f32s; f64 rounds it to the middle
    assert sem.round_to(float(x), f32) == 2.0**62
    assert sem.convert(x, f32) == 2.0**62 + 2.0**39
    assert sem.convert(-x, f32) == -(2.0**62) - 2.0**39
    assert sem.convert(u64.max, f32) == sem.convert(u64.max, f64) == 2.0**64


@generated
@given(st.data(), float_dtypes, integer_dtypes)
def test_casts_of_floats_to_integers_saturate(data: st.DataObject, source: DType, to: DType) -> None:
    x = data.draw(numbers(source))
    if math.isnan(x):
        expected = 0
    elif math.isinf(x):
        expected = to.max if x > 0 else to.min
    else:
        exact = Fraction(x)
        truncated = (
            exact.numerator // exact.denominator if exact >= 0 else -(-exact.numerator // exact.denominator)
        )
        expected = sorted([to.min, truncated, to.max])[1]
    assert sem.convert(x, to) == expected


def test_saturation_at_the_edges() -> None:
    for x, to, expected in [
        (127.9, i8, 127),
        (128.0, i8, 127),
        (-128.9, i8, -128),
        (-0.9, u8, 0),
        (255.99, u8, 255),
        (65536.0, u16, 65535),
        (2.0**31, i32, i32.max),
        (2.0**63, i64, i64.max),
        (-(2.0**63), i64, i64.min),
        (2.0**64, u64, u64.max),
        (2.0**64 - 2048, u64, 2**64 - 2048),
        (NAN, u64, 0),
    ]:
        assert sem.convert(x, to) == expected


@generated
@given(numbers(f64))
def test_casts_of_f64_to_f32_round(x: float) -> None:
    with np.errstate(all="ignore"):
        expected = float(np.float32(x))
    assert repr(sem.convert(x, f32)) == repr(expected)
    assert repr(sem.convert(expected, f64)) == repr(expected)


@generated
@given(st.data(), dtypes)
def test_bitcasts_are_numpys_views(data: st.DataObject, source: DType) -> None:
    x = data.draw(numbers(source))
    raw = np.array([x], source.numpy)
    for to in ALL_DTYPES:
        if to.bits == source.bits:
            found = sem.bitcast(x, source, to)
            assert repr(found) == repr(raw.view(to.numpy)[0].item())


@generated
@given(st.data(), float_dtypes)
def test_every_bit_pattern_survives(data: st.DataObject, t: DType) -> None:
    bits = data.draw(st.integers(0, (1 << t.bits) - 1))
    nan = data.draw(st.integers(1, (1 << (23 if t is f32 else 52)) - 1))
    quiet_or_signaling = nan | (0xFF << 23 if t is f32 else 0x7FF << 52)
    for pattern in (bits, quiet_or_signaling, quiet_or_signaling | 1 << (t.bits - 1)):
        value = sem.from_bits(pattern, t)
        assert isinstance(value, float)
        assert sem.to_bits(value, t) == pattern
    assert math.isnan(sem.from_bits(quiet_or_signaling, t))


# --- tables -----------------------------------------------------------------------------------


def test_every_builtin_has_a_meaning() -> None:
    assert set(sem.CALLS) == set(BUILTINS)


@generated
@given(st.data(), dtypes)
def test_results_are_numbers_of_their_type(data: st.DataObject, t: DType) -> None:
    """No operation raises, and each result is representable in its type."""
    a, b, c = (data.draw(numbers(t)) for _ in range(3))
    excluded = ("shl", "shr", "bitand", "bitor", "bitxor") if t.is_float else ("div",)
    results = [sem.binary(op, a, b, t) for op in sem.BINARY_OPS if op not in excluded]
    results.append(sem.unary("neg", a, t))
    for name, builtin in BUILTINS.items():
        args = (a, b, c)[: max(builtin.min_args, 2 if builtin.max_args is None else 0)]
        if builtin.rule == "bits" and t.is_integer:
            assert 0 <= sem.call(name, args, t) <= t.bits
        elif builtin.rule in ("keep", "promote", "where") or (builtin.rule == "float" and t.is_float):
            results.append(sem.call(name, args, t))
    for result in results:
        assert type(result) is (float if t.is_float else int)
        assert same(sem.convert(result, t), result)


@generated
@given(st.data(), dtypes)
def test_atomics(data: st.DataObject, t: DType) -> None:
    old, x, y = (data.draw(numbers(t)) for _ in range(3))
    assert same(sem.ATOMICS["add"](old, x, t), sem.binary("add", old, x, t))
    assert same(sem.ATOMICS["sub"](old, x, t), sem.binary("sub", old, x, t))
    assert same(sem.ATOMICS["exchange"](old, x, t), x)
    if old == old and x == x:
        assert sem.ATOMICS["min"](old, x, t) == min(old, x)
        assert sem.ATOMICS["max"](old, x, t) == max(old, x)
    if t.is_integer:
        for op, binary in (("and", "bitand"), ("or", "bitor"), ("xor", "bitxor")):
            assert sem.ATOMICS[op](old, x, t) == sem.binary(binary, old, x, t)
        assert sem.ATOMICS["cas"](old, x, y, t) == (y if old == x else old)
        assert sem.ATOMICS["cas"](old, old, y, t) == y
        assert sem.ATOMICS["load"](old, t) == old
