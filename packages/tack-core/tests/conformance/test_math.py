"""The builtin functions against mpmath and correctly rounded references, in ULPs (numerics.md section 3).

Each function runs in a loop that vectorizes and in one that cannot; both must keep the bound and
give the same class (NaN, infinity, zero, sign) as the C library's definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, build, launch, value, values

Rejects = Callable[..., Rejection]

ELEMENTARY = """
    exp exp2 log log2 log10 sin cos tan asin acos atan sinh cosh tanh cbrt rsqrt expm1 log1p
""".split()  # noqa: SIM905
UNARY = {
    **dict.fromkeys(
        ELEMENTARY,
        (4.0, 4.0),
    ),
    "sqrt": (0.5, 0.5),
    "erf": (4.0, 5.0),
    "erfc": (8.0, 8.0),
}
BINARY = {"pow": (4.0, 5.0), "atan2": (4.0, 5.0), "hypot": (4.0, 5.0)}


def vectorizable(function: str, arity: int) -> Any:
    call = f"{function}(x[i])" if arity == 1 else f"{function}(x[i], y[i])"
    return build(
        f"@tack.kernel\ndef kernel(o, x, y, link):\n    for i in range(x.shape[0]):\n        o[i] = {call}\n"
    )


def serial(function: str, arity: int) -> Any:
    """Walks a linked list, so that no two calls can share a vector."""
    call = f"{function}(x[k])" if arity == 1 else f"{function}(x[k], y[k])"
    return build(
        f"""
            @tack.kernel
            def kernel(o, x, y, link):
                for i in range(1):
                    k = tack.i64(0)
                    while k >= 0:
                        o[k] = {call}
                        k = link[k]
            """
    )


def both_paths(function: str, x: np.ndarray, y: np.ndarray | None = None) -> list[np.ndarray]:
    arity = 1 if y is None else 2
    y = x if y is None else y
    link = np.arange(1, len(x) + 1)
    link[-1] = -1
    results = []
    for make in (vectorizable, serial):
        out = np.zeros_like(x)
        launch(make(function, arity), out, x, y, link)
        results.append(out)
    return results


# --- references -------------------------------------------------------------------------------


def _double(function: str) -> Callable[..., float]:
    """The double-precision function of the C library, with IEEE results where Python raises."""
    if function == "rsqrt":
        return lambda v: math.nan if v < 0 else math.copysign(math.inf, v) if v == 0 else 1 / math.sqrt(v)
    call = getattr(math, function)

    def safe(*args: float) -> float:
        try:
            return float(call(*args))
        except OverflowError:
            return _overflow(function, args)
        except ValueError:
            return _domain(function, args)

    return safe


def _overflow(function: str, args: tuple[float, ...]) -> float:
    if function == "pow":
        negative = args[0] < 0 and args[1] % 2 == 1
    else:
        negative = function in ("sinh",) and args[0] < 0
    return -math.inf if negative else math.inf


def _domain(function: str, args: tuple[float, ...]) -> float:
    """What C gives where Python's math raises ValueError: poles are infinite, the rest NaN."""
    if function in ("log", "log2", "log10") and args[0] == 0:
        return -math.inf
    if function == "log1p" and args[0] == -1:
        return -math.inf
    if function == "pow" and args[0] == 0 and args[1] < 0:
        odd = args[1] == math.floor(args[1]) and args[1] % 2 == 1
        return math.copysign(math.inf, args[0]) if odd else math.inf
    return math.nan


_MPMATH: dict[str, Callable[..., Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda v: mpmath.power(2, v),
    "log": mpmath.log,
    "log2": lambda v: mpmath.log(v, 2),
    "log10": mpmath.log10,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "cbrt": lambda v: mpmath.sign(v) * mpmath.root(abs(v), 3),
    "rsqrt": lambda v: 1 / mpmath.sqrt(v),
    "sqrt": mpmath.sqrt,
    "expm1": mpmath.expm1,
    "log1p": mpmath.log1p,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "pow": mpmath.power,
    "atan2": mpmath.atan2,
    "hypot": mpmath.hypot,
}


def exact(function: str, args: tuple[float, ...]) -> Any:
    """An mpmath value good to far more than 53 bits, for arguments with a finite nonzero result."""
    with mpmath.workprec(160):
        return _MPMATH[function](*(mpmath.mpf(v) for v in args))


# --- inputs -----------------------------------------------------------------------------------


def inputs(function: str, name: str, count: int) -> np.ndarray:
    dtype = oracle.numpy_dtype(name)
    rng = np.random.default_rng(sum(map(ord, function)))
    patterns = rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    special = np.array(
        [*oracle.interesting_floats(name), *(k * math.pi / 4 for k in range(-8, 9)), *range(-40, 41)], dtype
    )
    edges = {
        "exp": [88.72, 88.73, -87.3, -103.9, 709.78, 709.79, -708.4, -745.1],
        "exp2": [127.99, 128.0, -126.0, -149.0, 1023.9, -1022.5, -1074.0],
        "expm1": [88.72, 709.78, -50.0, 1e-10],
        "sinh": [89.4, 710.4, -710.4, 1e-5],
        "cosh": [89.4, 710.4, -710.4],
        "asin": [1.0, np.nextafter(1.0, 2), 0.5, 0.999999],
        "acos": [1.0, -1.0, 0.5, 0.999999],
        "erf": [0.46875, 3.9, 5.9, 0.84375],
        "erfc": [10.05, 26.5, -6, 0.84375],
    }.get(function, [])
    near_one = 1 + rng.uniform(-1e-3, 1e-3, count // 8)
    ordinary = rng.uniform(-20, 20, count // 2)
    return np.concatenate(
        [patterns, special, np.array(edges, dtype), near_one.astype(dtype), ordinary.astype(dtype)]
    )


def pairs(function: str, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    dtype = oracle.numpy_dtype(name)
    rng = np.random.default_rng(sum(map(ord, function)))
    special = np.array(
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            2.0,
            -2.0,
            3.0,
            -3.0,
            np.inf,
            -np.inf,
            np.nan,
            1e-40,
            float(np.finfo(dtype).max),
        ],
        dtype,
    )
    a, b = (m.ravel() for m in np.meshgrid(special, special))
    x, y = rng.integers(0, 256, (2, count * dtype.itemsize), np.uint8).view(dtype)
    base, exponent = rng.uniform(0, 30, count).astype(dtype), rng.uniform(-25, 25, count).astype(dtype)
    whole = np.round(rng.uniform(-20, 20, count)).astype(dtype)
    return (
        np.concatenate([a, x, base, -base, 1 + base / dtype.type(1e4)]),
        np.concatenate([b, y, exponent, whole, exponent * dtype.type(1e3)]),
    )


# --- the check --------------------------------------------------------------------------------


def ulps(got: float, want: float | Any, name: str) -> float:
    """The distance in units in the last place of the exact result ``want``; overflow counts as 2**emax."""
    digits, lowest, top = {"f32": (24, -149, 128), "f64": (53, -1074, 1024)}[name]
    with mpmath.workprec(200):
        want = mpmath.mpf(want)
        limit = mpmath.ldexp(1, top)
        want = max(-limit, min(limit, want))
        value = mpmath.mpf(got) if math.isfinite(got) else limit * (1 if got > 0 else -1)
        if want == 0:
            return 0.0 if value == 0 else math.inf
        exponent = mpmath.frexp(abs(want))[1] - 1
        return float(abs(value - want) / mpmath.ldexp(1, max(min(exponent, top - 1) - digits + 1, lowest)))


def distance(function: str, name: str, args: tuple[float, ...], guess: float, got: float) -> float:
    """ULPs from ``got`` to the exact result; ``guess``, the C library's double, decides its class."""
    if math.isnan(guess) or math.isnan(got):
        return 0.0 if math.isnan(guess) and math.isnan(got) else math.inf
    if math.copysign(1, guess) != math.copysign(1, got):
        return math.inf
    if guess == 0 or math.isinf(guess):
        if 0 in args or not all(map(math.isfinite, args)):
            return 0.0 if got == guess else math.inf  # exact, not by underflow or overflow
        return (
            abs(got) / float(np.finfo(oracle.numpy_dtype(name)).smallest_subnormal)
            if guess == 0
            else ulps(got, guess, name)
        )
    if name == "f32":
        return fast_ulps(got, guess)
    # mpmath has no signed zero; the C library is exact to a rounding where an argument is one.
    return ulps(
        got, exact(function, args) if all(map(math.isfinite, args)) and 0 not in args else guess, name
    )


def check(
    function: str, name: str, bound: float, arguments: list[tuple[float, ...]], results: list[np.ndarray]
) -> None:
    reference = _double(function)
    tiny = float(np.finfo(oracle.numpy_dtype(name)).tiny)
    vector, serial = (row.tolist() for row in results)
    wrong = []
    for args, *both in zip(arguments, vector, serial, strict=True):
        guess = reference(*args)
        for label, got in zip(("vector", "serial"), both, strict=True):
            if label == "serial" and both[0] == got and got != 0:
                continue  # judged already
            if function == "erfc" and guess < tiny:
                ulp = 0.0 if 0 <= got <= 2 * tiny else math.inf  # the bound holds where the result is normal
            else:
                ulp = distance(function, name, args, guess, got)
            if ulp > bound + 1e-6:
                wrong.append(f"{label} {function}{args}: got {got!r}, expected {guess!r}, {ulp:.3g} ULP")
    assert not wrong, f"{len(wrong)} of {2 * len(arguments)}:\n" + "\n".join(wrong[:12])


def fast_ulps(got: float, want: float) -> float:
    """`ulps` for f32 in double arithmetic: the reference's own error is 2**-29 of a unit."""
    limit = 2.0**128
    want = max(-limit, min(limit, want))
    value = max(-limit, min(limit, got))
    exponent = math.frexp(abs(want))[1] - 1
    return abs(value - want) / 2.0 ** max(min(exponent, 127) - 23, -149)


@pytest.mark.parametrize("function", UNARY)
def test_unary_function_in_f32(function: str) -> None:
    x = inputs(function, "f32", 16000)
    check(function, "f32", UNARY[function][0], [(v,) for v in x.tolist()], both_paths(function, x))


@pytest.mark.parametrize("function", UNARY)
@pytest.mark.f64
def test_unary_function_in_f64(function: str) -> None:
    x = inputs(function, "f64", 1500)
    check(function, "f64", UNARY[function][1], [(v,) for v in x.tolist()], both_paths(function, x))


@pytest.mark.parametrize("function", BINARY)
def test_binary_function_in_f32(function: str) -> None:
    x, y = pairs(function, "f32", 5000)
    check(
        function,
        "f32",
        BINARY[function][0],
        list(zip(x.tolist(), y.tolist(), strict=True)),
        both_paths(function, x, y),
    )


@pytest.mark.parametrize("function", BINARY)
@pytest.mark.f64
def test_binary_function_in_f64(function: str) -> None:
    x, y = pairs(function, "f64", 500)
    check(
        function,
        "f64",
        BINARY[function][1],
        list(zip(x.tolist(), y.tolist(), strict=True)),
        both_paths(function, x, y),
    )


EXPONENTS = [
    "2",
    "3",
    "4",
    "5",
    "7",
    "10",
    "16",
    "31",
    "64",
    "-1",
    "-2",
    "-3",
    "-7",
    "0.5",
    "-0.5",
    "1.5",
    "0.25",
]


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_power_with_a_literal_exponent_keeps_the_bound(name: str) -> None:
    rng = np.random.default_rng(7)
    dtype = oracle.numpy_dtype(name)
    x = np.concatenate([rng.uniform(0.5, 2, 600), rng.uniform(0, 1e3, 300), 2.0 ** rng.uniform(-30, 30, 300)])
    x = x.astype(dtype)
    lines = "".join(f"        o[{k}, i] = x[i] ** {e}\n" for k, e in enumerate(EXPONENTS))
    out = np.zeros((len(EXPONENTS), len(x)), dtype)
    launch(build(f"@tack.kernel\ndef kernel(o, x):\n    for i in range(x.shape[0]):\n{lines}"), out, x)
    for row, text in zip(out, EXPONENTS, strict=True):
        arguments = [(v, float(text)) for v in x.tolist()]
        check("pow", name, BINARY["pow"][name == "f64"], arguments, [row, row])


def test_ulps_measures() -> None:
    """The yardstick itself, on values whose distance is known."""
    for name, eps in (("f32", 2.0**-23), ("f64", 2.0**-52)):
        assert ulps(1 + eps, 1.0, name) == 1
        assert ulps(1 - eps, 1.0, name) == 1
        assert ulps(math.inf, float(np.finfo(oracle.numpy_dtype(name)).max), name) == 1
        tiny = float(np.finfo(oracle.numpy_dtype(name)).smallest_subnormal)
        assert ulps(3 * tiny, tiny, name) == 2
        assert ulps(1.0, 0.0, name) == math.inf
    assert fast_ulps(1 + 2.0**-22, 1.0) == 2
    assert fast_ulps(math.inf, 2.0**127 * 1.9999998807907104) == 1


# --- types, names, arity ----------------------------------------------------------------------


@pytest.mark.f64
def test_result_is_f64_if_an_argument_is() -> None:
    d, f, k = np.array([2.0]), np.array([2.0], np.float32), 2
    root, root32 = math.sqrt(2), float(np.sqrt(np.float32(2)))
    got = values(
        ["sqrt(d[0])", "sqrt(f[0])", "sqrt(k)", "sqrt(tack.i64(k))", "hypot(f[0], d[0])", "hypot(f[0], k)"],
        np.float64,
        d=d,
        f=f,
        k=k,
    )
    assert got[:4] == [root, root32, root32, root32]
    assert got[4] == pytest.approx(math.sqrt(8), rel=1e-15)
    assert got[5] == pytest.approx(math.sqrt(8), rel=1e-7)
    assert got[5] != math.sqrt(8)


NAMES = """
    sqrt cbrt sin cos tan asin acos atan atan2 sinh cosh tanh exp exp2 expm1 log log2 log10 log1p pow hypot
    fmod floor ceil trunc isnan isinf isfinite erf erfc copysign
""".split()  # noqa: SIM905


def test_names_reached_through_math_tack_and_numpy_mean_the_same() -> None:
    expressions, plain = [], []
    for name in NAMES:
        arguments = "(0.25, 0.75)" if name in ("atan2", "pow", "hypot", "fmod", "copysign") else "(0.25)"
        numpy_name = {
            "asin": "arcsin",
            "acos": "arccos",
            "atan": "arctan",
            "atan2": "arctan2",
            "pow": "power",
        }.get(name, name)
        for module, attribute in (("tack", name), ("math", name), ("np", numpy_name)):
            if hasattr({"tack": tack, "math": math, "np": np}[module], attribute):
                expressions.append(f"{module}.{attribute}{arguments}")
                plain.append(name + arguments)
    assert len(expressions) > 80
    got = values(expressions + plain, np.float64)
    assert dict(zip(expressions, got, strict=False)) == dict(
        zip(expressions, got[len(expressions) :], strict=True)
    )


def test_builtins_imported_by_name_and_under_another_name() -> None:
    got = values(["root(2.25)", "s(0.0)", "m.sqrt(4.0)"], np.float64, _root=math.sqrt, _s=np.sin, _m=math)
    assert got == [1.5, 0.0, 2.0]


def test_builtin_shadowed_by_a_local_or_parameter_is_not_the_builtin(rejects: Rejects) -> None:
    rejects(
        (tack.UnsupportedSyntaxError, TypeError),
        "@tack.kernel\ndef kernel(o, sin):\n    for i in range(1):\n        o[i] = «sin(1.0)\n",
        np.zeros(1),
        2.0,
    )
    assert value("max + 1", np.int32, setup="max = 4") == 5


def test_builtin_called_on_the_host_says_so() -> None:
    for name in ("rsqrt", "clz", "where", "bitcast"):
        with pytest.raises(RuntimeError):
            getattr(tack, name)(1, 2, 3)


@pytest.mark.parametrize(
    "call",
    [
        "sin()",
        "sin(1.0, 2.0)",
        "atan2(1.0)",
        "fma(1.0, 2.0)",
        "min(1)",
        "max()",
        "where(1, 2)",
        "pow(2.0)",
        "pow(2, 3, 5)",
        "bitcast(1)",
        "clz(1, 2)",
        "isnan()",
        "abs(1, 2)",
        "round(1.5, 1)",
    ],
)
def test_wrong_arity_is_unsupported_syntax(rejects: Rejects, call: str) -> None:
    rejects(
        tack.UnsupportedSyntaxError,
        f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = 1 + «{call}»\n",
        np.zeros(1),
    )


@pytest.mark.parametrize("name", ["popcount", "clz", "ctz"])
def test_bit_counts_of_floats_are_rejected(rejects: Rejects, name: str) -> None:
    rejects(
        TypeError,
        f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «{name}(«o[i])\n",
        np.zeros(1),
    )


def test_any_and_all_of_scalars() -> None:
    x = np.array([0.0, -0.0, 0.5, np.nan, np.inf])
    assert (
        values([f"{f}(x[{k}])" for f in ("any", "all") for k in range(5)], np.int32, x=x)
        == [0, 0, 1, 1, 1] * 2
    )


def test_where_evaluates_and_promotes_both_arms() -> None:
    a, b = np.array([-5], np.int8), np.array([200], np.uint8)
    assert values(
        ["where(k, a[0], b[0])", "where(0, a[0], b[0])", "clz(where(k, a[0], b[0]) * 0)", "where(k, 1, 0.5)"],
        np.float64,
        a=a,
        b=b,
        k=3,
    ) == [-5, 200, 32, 1]


def test_accuracy_holds_in_threads() -> None:
    x = np.random.default_rng(2).uniform(-100, 100, 400_000).astype(np.float32)
    out = np.zeros_like(x)
    launch(
        build("@tack.kernel\ndef kernel(o, x):\n    for i in range(x.shape[0]):\n        o[i] = sin(x[i])\n"),
        out,
        x,
    )
    want = np.sin(x.astype(np.float64))
    unit = 2.0 ** (np.floor(np.log2(np.abs(want))) - 23)
    assert (np.abs(out - want) <= 4 * unit).all()
