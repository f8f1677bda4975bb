"""language.md section 4: types, scalar arguments, literals, weak floats, local joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, atomics_on, build, launch, same, value, values

Rejects = Callable[..., Rejection]

# Gives an integer argument's width, and whether it is signed.
WIDTH, SIGN = "clz({0} ^ {0})", "~({0} ^ {0}) < 0"


def type_of(expression: str, **args: Any) -> str:
    """The integer type of an expression, from what its operations do."""
    width, signed = values(
        [WIDTH.format(f"({expression})"), SIGN.format(f"({expression})")], np.int64, **args
    )
    return f"{'i' if signed else 'u'}{width}"


def is_double(expression: str, **args: Any) -> bool:
    """Whether a float expression runs in f64: adding 2**-40 to it (near 1) changes it."""
    return bool(
        value(
            f"({expression}) + eps[0] != ({expression})",
            np.int32,
            eps=np.array([2.0**-40], np.float32),
            **args,
        )
    )


# --- dtypes as objects ------------------------------------------------------------------------


def test_dtypes_are_exported_and_equal_numpys() -> None:
    for name in oracle.DTYPES:
        dtype = getattr(tack, name)
        assert dtype == oracle.numpy_dtype(name)
        assert hash(dtype) == hash(oracle.numpy_dtype(name))
        assert dtype != tack.f32 or name == "f32"
        assert name in repr(dtype)


@pytest.mark.parametrize(
    "spec",
    ["int8", "float32", "f4", np.float32, np.dtype("u2"), "f8", "<i4", np.uint64, "i4", "float64", tack.i8],
)
def test_numpy_dtypes_and_names_work_where_a_dtype_is_taken(spec: Any) -> None:
    array = tack.zeros(3, spec)
    assert array.dtype == (spec if spec is tack.i8 else np.dtype(spec))


@pytest.mark.parametrize("spec", ["i8", "u8"])
def test_ambiguous_names(spec: str) -> None:
    with pytest.raises(TypeError) as caught:
        tack.zeros(3, spec)
    text = str(caught.value)
    assert f"tack.{spec}" in text
    assert "int8" in text
    assert "int64" in text


@pytest.mark.parametrize(
    "spec",
    [
        "float16",
        "c8",
        np.complex128,
        "S3",
        object,
        "nonsense",
        3,
        "datetime64[s]",
        "longdouble",
        ">f4",
        "bool",
    ],
)
def test_other_dtypes_are_a_type_error_with_the_list(spec: Any) -> None:
    with pytest.raises(TypeError, match="float32"):
        tack.zeros(3, spec)


# --- scalar arguments -------------------------------------------------------------------------

BOUNDARIES = {
    0: "i32",
    -1: "i32",
    2**31 - 1: "i32",
    2**31: "i64",
    -(2**31): "i32",
    -(2**31) - 1: "i64",
    2**32: "i64",
    2**40: "i64",
    2**63 - 1: "i64",
    -(2**63): "i64",
    2**63: "u64",
    2**64 - 1: "u64",
}


@pytest.mark.parametrize("number", BOUNDARIES)
def test_type_of_an_integer_argument_and_of_the_same_literal(number: int) -> None:
    expected = BOUNDARIES[number]
    assert type_of("n", n=number) == expected
    assert type_of(str(number)) == expected
    out = np.uint64 if expected == "u64" else np.int64
    assert values(["n", str(number)], out, n=number) == [number, number]


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_integer_argument_past_all_types(number: int) -> None:
    kernel = build("@tack.kernel\ndef kernel(o, count):\n    for i in range(1):\n        o[i] = count\n")
    o = np.zeros(1)
    with pytest.raises(TypeError, match="count"):
        launch(kernel, o, number)
    with pytest.raises(TypeError, match="kernel"):
        launch(kernel, o, number)
    assert o[0] == 0


def test_integer_literal_past_all_types_is_rejected(rejects: Rejects) -> None:
    for text in ("«18446744073709551616", "«-«9223372036854775809"):
        source = f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = {text}\n"
        rejects((TypeError, tack.UnsupportedSyntaxError), source, np.zeros(1))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_numpy_integers_are_typed_by_value(dtype: Any) -> None:
    top = dtype(np.iinfo(dtype).max)
    assert value("n", np.uint64, n=top) == int(top)
    assert type_of("n", n=dtype(5)) == "i32"
    assert type_of("n", n=top) == {np.uint32: "i64", np.int64: "i64", np.uint64: "u64"}.get(dtype, "i32")


@pytest.mark.parametrize("flag", [True, False, np.True_, np.False_])
def test_booleans_are_i32_zero_or_one(flag: Any) -> None:
    assert values(["b", "b + b", "-b", "not b", "int(b)", "b * 3"], np.int64, b=flag) == [
        int(flag),
        2 * int(flag),
        -int(flag),
        int(not flag),
        int(flag),
        3 * int(flag),
    ]
    assert type_of("b", b=flag) == "i32"


@pytest.mark.f64
def test_float_argument_is_f64_if_any_array_is() -> None:
    number = 0.1
    single, double = float(np.float32(0.1)), 0.1
    for scalar in (number, np.float64(number)):
        kernel = build("@tack.kernel\ndef kernel(o, x, s):\n    for i in range(1):\n        o[i] = s\n")
        for out, other, expected in (
            (np.float64, np.float32, double),
            (np.float32, np.float32, single),
            (np.float32, np.float64, single),
            (np.float64, np.int32, double),
        ):
            o = np.zeros(1, out)
            launch(kernel, o, np.zeros(1, other), scalar)
            assert float(o[0]) == expected
    # f32 throughout: the scalar is f32, whatever it is compared with.
    assert value("s == tack.f64(0.1)", np.int32, s=number) == 0
    assert value("s == tack.f64(0.1)", np.int32, s=number, d=np.zeros(1)) == 1
    for scalar in (np.float32(0.1), np.float16(0.25)):
        assert value("s", np.float64, s=scalar) == float(scalar)


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), -0.0, 1e300, 1e-300])
@pytest.mark.f64
def test_special_float_arguments(number: float) -> None:
    same([value("s", np.float64, s=number)], [number], ["f64"])
    same([value("s", np.float32, s=number)], [float(np.float32(number))], ["f32"])


@pytest.mark.parametrize(
    "bad",
    [
        "text",
        None,
        [1, 2],
        (1, 2),
        {1: 2},
        1j,
        object(),
        np.array(["a"]),
        np.zeros(3, complex),
        b"x",
        range(3),
        np.zeros(3, np.float16),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_arguments_are_a_type_error_with_parameter_and_type(bad: Any) -> None:
    kernel = build("@tack.kernel\ndef kernel(o, thing):\n    for i in range(1):\n        o[i] = thing\n")
    o = np.zeros(1)
    for _ in range(2):
        with pytest.raises(TypeError, match="kernel") as caught:
            launch(kernel, o, bad)
        assert "thing" in str(caught.value)
    assert o[0] == 0


def test_array_where_a_scalar_is_used_and_the_reverse(rejects: Rejects) -> None:
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o, a):\n    for i in range(1):\n        o[i] = «a» + 1\n",
        np.zeros(2),
        np.zeros(2),
    )
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o, a):\n    for i in range(1):\n        o[i] = «a[i]»\n",
        np.zeros(2),
        3,
    )
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o, a):\n    for i in range(1):\n        «a[i]» = 1\n",
        np.zeros(2),
        3,
    )
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o, a):\n    for i in range(«a.shape[0]»):\n        o[i] = 1\n",
        np.zeros(2),
        3,
    )


def test_assigning_to_an_array_parameter_is_rejected(rejects: Rejects) -> None:
    rejects(
        (TypeError, tack.UnsupportedSyntaxError),
        "@tack.kernel\ndef kernel(o, a):\n    for i in range(1):\n        «a = 3\n",
        np.zeros(2),
        np.zeros(2),
    )


# --- pinned parameters ------------------------------------------------------------------------


@pytest.mark.parametrize("name", oracle.INTEGERS)
@pytest.mark.parametrize("quoted", [False, True])
def test_parameter_pinned_to_an_integer_type(name: str, quoted: bool) -> None:
    annotation = f'"tack.{name}"' if quoted else f"tack.{name}"
    kernel = build(
        f"@tack.kernel\ndef kernel(o, n: {annotation}):\n    for i in range(1):\n"
        "        o[0] = clz(n ^ n)\n        o[1] = ~(n ^ n) < 0\n        o[2] = n\n"
    )
    o = np.zeros(3, np.int64)
    low, high = oracle.limits(name)
    for number in (low, high, 0, True):
        launch(kernel, o, number)
        assert o.tolist() == [oracle.bits(name), int(name[0] == "i"), oracle.wrap("i64", int(number))]
    for number in (low - 1, high + 1):
        with pytest.raises(OverflowError, match="n"):
            launch(kernel, o, number)
    for bad in (1.0, np.float32(1)):
        with pytest.raises(TypeError, match="n"):
            launch(kernel, o, bad)
    with pytest.raises(TypeError, match="n"):
        launch(kernel, o, np.zeros(3))


@pytest.mark.f64
def test_parameter_pinned_to_a_float_type() -> None:
    single = build("@tack.kernel\ndef kernel(o, s: tack.f32):\n    for i in range(1):\n        o[i] = s\n")
    double = build(
        """
            @tack.kernel
            def kernel(o, s: tack.f64):
                for i in range(1):
                    o[i] = s == tack.f64(0.1)
            """
    )
    o = np.zeros(1)
    launch(single, o, 0.1)
    assert o[0] == float(np.float32(0.1))
    launch(single, o, 3)
    assert o[0] == 3
    o32 = np.zeros(1, np.float32)
    launch(double, o32, 0.1)
    assert o32[0] == 1
    with pytest.raises(TypeError, match="s"):
        launch(single, o, np.zeros(2))


# --- literals ---------------------------------------------------------------------------------

TENTH, TENTH32 = 0.1, float(np.float32(0.1))


def weak_cases() -> dict[str, float]:
    """Expressions with d = 1.0 (f64) and f = 1.0 (f32), and what they give in an f64 store."""
    f = np.float32
    third = float(f(1) / f(3))
    return {
        "0.1": TENTH,  # an f64 store
        "-0.1": -TENTH,
        "0.1 + 0.2": 0.1 + 0.2,
        "0.1 * 3": 0.1 * 3,  # weak arithmetic with an int literal
        "d[0] * 0.1": TENTH,  # a non-weak f64 operand
        "f[0] * 0.1": TENTH32,
        "0.1 * f[0] * d[0]": TENTH32,  # f32 first
        "0.1 * d[0] * f[0]": TENTH,
        "(0.1 + 0.2) * d[0]": 0.1 + 0.2,
        "1 * 0.1": TENTH,
        "k * 0.1": TENTH32,  # an integer that is no literal: f32, not weak
        "_i * 0.1": 0.0,
        "(_i + 1) * 0.1": TENTH32,
        "k * 0.1 * d[0]": TENTH32,
        "tack.f64(0.1)": TENTH,
        "tack.f32(0.1)": TENTH32,
        "float(0.1)": TENTH32,
        "tack.f64(tack.f32(0.1))": TENTH32,
        "d[0] if k else 0.1": 1.0,
        "0.1 if k else d[0]": TENTH,  # the other arm of a conditional
        "0.1 if k else f[0]": TENTH32,
        "0.1 if k else 0.3": TENTH,
        "max(0.1, d[0] - 1)": TENTH,  # an f64-typed builtin
        "max(0.1, f[0] - 1)": TENTH32,
        "max(0.1, 0.0)": TENTH,
        "abs(-0.1)": TENTH,
        "sqrt(0.25)": 0.5,
        "fma(0.1, d[0], 0.0)": TENTH,
        "fma(0.1, f[0], 0.0)": TENTH32,
        "copysign(0.1, d[0])": TENTH,
        "1 / 3": third,  # int / int is f32 and not weak
        "1 / 3 * d[0]": third,
        "1.0 / 3": 1.0 / 3,
        "1 / 3.0": 1.0 / 3,
        "1 / 3 + 0.1": float(f(third) + f(0.1)),
        "k / 10": TENTH32,
        "k / 10.0": TENTH32,
        "10.0 ** -1": 0.1,
        "w": TENTH,  # a local of only float literals is weak
        "w * d[0]": TENTH,
        "w * f[0]": TENTH32,
        "w + 0.2": 0.1 + 0.2,
        "v": TENTH,  # settled as f64
        "m": TENTH,  # an int literal and a float literal: a weak float
        "m * f[0]": TENTH32,
        "half(0.1)": 0.05,  # weak through an inlined parameter and return
        "half(0.1) * d[0]": 0.05,
        "half(0.1) * f[0]": float(f(0.05)),
        "math.pi": float(np.pi),
        "math.pi * f[0]": float(f(np.pi)),
        "math.pi * d[0]": float(np.pi),
        "1e300": 1e300,
        "1e-320": 1e-320,
        "16777217.0": 16777217.0,
        "16777217.0 * f[0]": 16777216.0,
        "16777217 * f[0]": 16777216.0,
        "tack.f64(16777217)": 16777217.0,
    }


@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.f64
def test_weak_literals(chunk: int) -> None:
    cases = dict(list(weak_cases().items())[chunk::4])
    setup = """
        w = 0.1
        v = 0.1
        v = v + d[0] - 1
        m = 0
        m = 0.1
    """
    half = build("@tack.func\ndef half(a):\n    return a * 0.5\n", "half")
    got = values(
        list(cases), np.float64, setup=setup, d=np.ones(1), f=np.ones(1, np.float32), k=1, _half=half
    )
    # v = 0.1 + 1 - 1 in f64.
    expected = [v if k != "v" else 0.1 + 1.0 - 1.0 for k, v in cases.items()]
    same(got, expected, cases)


def test_each_literal_converts_once_from_its_exact_value() -> None:
    """A sum of literals in an f32 store: each is rounded to f32 and added in f32."""
    f = np.float32
    got = values(["0.1 + 0.2", "1.0 / 3.0", "0.7 * 0.1"], np.float32)
    assert got == [float(f(0.1) + f(0.2)), float(f(1) / f(3)), float(f(0.7) * f(0.1))]


@pytest.mark.f64
def test_weak_literal_meets_f64_in_an_atomic() -> None:
    x = np.zeros(1)
    kernel = build(
        "@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        tack.atomic_add(x, 0, 0.1)\n"
    )
    with atomics_on("f64"):
        kernel(x)
        assert x[0] == 0.1


@pytest.mark.f64
def test_float_literals_compare_in_the_operands_type() -> None:
    f = np.array([0.1], np.float32)
    d = np.array([0.1])
    assert values(["f[0] == 0.1", "d[0] == 0.1", "f[0] == d[0]", "0.1 == 0.1"], np.int32, f=f, d=d) == [
        1,
        1,
        0,
        1,
    ]


def test_division_of_literals_is_ieee() -> None:
    got = values(
        ["1.0 / 0.0", "-1.0 / 0.0", "0.0 / 0.0", "1 / 0", "math.inf", "-math.inf", "math.nan"], np.float64
    )
    inf, nan = float("inf"), float("nan")
    same(got, [inf, -inf, nan, inf, inf, -inf, nan], range(7))


@pytest.mark.parametrize("module", ["math", "np"])
@pytest.mark.f64
def test_named_numbers_read_as_literals(module: str) -> None:
    import math

    names = ["pi", "e", "inf", "nan"] + (["tau"] if module == "math" else [])
    same(values([f"{module}.{n}" for n in names], np.float64), [getattr(math, n) for n in names], names)


def test_true_and_false_are_i32() -> None:
    assert values(["True", "False", "True + True", "not True"], np.int64) == [1, 0, 2, 0]
    assert type_of("True") == "i32"


# --- locals -----------------------------------------------------------------------------------


def test_local_has_the_promotion_of_everything_assigned_to_it() -> None:
    setup = """
        a = tack.i8(100)
        before = clz(a ^ a)
        a = tack.u8(200)
        b = tack.u8(1)
        b = tack.i64(2)
        c = 1
        c = 1.5
        e = tack.i32(7)
        e += 0.5
    """
    got = values(["before", "clz(a ^ a)", "a", "clz(b ^ b)", "c", "e"], np.float64, setup=setup)
    assert got == [16, 16, 200, 64, 1.5, 7.5]


def test_join_of_a_signed_local_with_u64_is_a_type_error(rejects: Rejects) -> None:
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(u, n):\n    for i in range(1):\n        «v = n\n        «v = «u[i]\n",
        np.zeros(1, np.uint64),
        3,
    )


def test_loop_indices_are_i64() -> None:
    assert type_of("_i") == "i64"
    setup = "for k in range(1):\n    w = k\nfor a, b in tack.ndindex(1, 1):\n    q = a\n"
    setup = "w = tack.i8(0)\nq = tack.i8(0)\n" + setup
    assert values(["clz(w ^ w)", "clz(q ^ q)"], np.int32, setup=setup) == [64, 64]


@pytest.mark.f64
def test_conditional_expression_promotes_its_arms() -> None:
    a, b = np.array([-5], np.int8), np.array([200], np.uint8)
    assert type_of("a[0] if a[0] else b[0]", a=a, b=b) == "i16"
    assert value("a[0] if 1 else 0.5", np.float64, a=a) == -5
    assert is_double("1.0 if a[0] else d[0]", a=a, d=np.zeros(1))
    assert not is_double("1.0 if a[0] else f[0]", a=a, f=np.zeros(1, np.float32))
