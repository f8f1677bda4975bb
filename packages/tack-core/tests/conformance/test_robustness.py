"""Unusual but valid kernels, and arguments of every kind: names, sizes, nesting, array classes."""

from __future__ import annotations

import enum
import fractions
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, build, launch, run, value, values

Rejects = Callable[..., Rejection]


def test_the_error_is_a_not_implemented_error() -> None:
    assert issubclass(tack.UnsupportedSyntaxError, NotImplementedError)


# --- names ------------------------------------------------------------------------------------

NAMES = """
    lo hi slots entry body ret define launch result args count start step i32 double f32 ptr label br x_0 _
    __a größe 変数 O0 o_1 memcpy main sinf exit free pow2 this int32 kernel dim local param load
    i64 local_array
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", NAMES)
def test_parameters_locals_functions_and_kernels_of_any_name(name: str) -> None:
    source = f"""
        @tack.func
        def f_{name}({name}):
            {name} = {name} + 1
            return {name}

        def factory():
            @tack.kernel
            def {name}(out, {name}):
                for {name}2 in range(4):
                    v = f_{name}({name}) + {name}2
                    {name} = v
                    out[{name}2] = {name}
            return {name}
        kernel = factory()
    """
    o = np.zeros(4, np.int64)
    run(source, o, 10)
    assert o.tolist() == [11, 12, 13, 14]


def test_local_and_argument_named_like_a_builtin_or_module() -> None:
    setup = """
        abs = 3
        range2 = abs + 1
        float32 = 2
        min = range2 * float32
    """
    assert values(["min", "abs", "np + math"], np.int32, setup=setup, np=5, math=6) == [8, 3, 11]


# --- sizes ------------------------------------------------------------------------------------


def test_fifty_arrays_and_fifty_scalars() -> None:
    arrays, scalars = [f"a{k}" for k in range(50)], [f"s{k}" for k in range(50)]
    body = "".join(f"        a{k}[i] = s{k} + i\n" for k in range(50))
    kernel = build(
        f"@tack.kernel\ndef kernel({', '.join(arrays + scalars)}):\n    for i in range(3):\n{body}"
    )
    buffers = [np.zeros(3, oracle.numpy_dtype(oracle.DTYPES[k % 10])) for k in range(50)]
    numbers = [k if k % 3 else k + 0.5 for k in range(50)]
    launch(kernel, *buffers, *numbers)
    for k, buffer in enumerate(buffers):
        assert buffer.tolist() == (numbers[k] + np.arange(3)).astype(buffer.dtype).tolist()


@pytest.mark.parametrize("terms", [10, 100, 250])
def test_long_sums(terms: int) -> None:
    assert value(" + ".join(["x[0]"] * terms), np.int64, x=np.array([3])) == 3 * terms
    assert value(" and ".join(["x[0]"] * terms), np.int64, x=np.array([3])) == 1
    assert value(" < ".join(f"(x[0] + {k})" for k in range(min(terms, 100))), np.int64, x=np.array([3])) == 1


@pytest.mark.parametrize("terms", [2000, 20_000])
def test_a_sum_too_long_to_compile_is_an_error_and_no_crash(terms: int) -> None:
    """Python itself may refuse it; if Python takes it, Tack computes it or says that it is too deep."""
    text = " + ".join(["x[0]"] * terms)
    try:
        kernel = build(f"@tack.kernel\ndef kernel(o, x):\n    for i in range(1):\n        o[i] = {text}\n")
    except (RecursionError, MemoryError, SyntaxError):
        return
    o, message = np.zeros(1, np.int64), ""
    try:
        launch(kernel, o, np.array([3]))
    except tack.UnsupportedSyntaxError as error:
        message = str(error)
    assert o[0] == 3 * terms or "deep" in message


def test_deep_nesting() -> None:
    text = "x[0]"
    for k in range(60):
        text = f"({text} + {k})" if k % 2 else f"(-{text})"
    expected = 3
    for k in range(60):
        expected = expected + k if k % 2 else -expected
    assert value(text, np.int64, x=np.array([3])) == expected
    lines, indent = [], ""
    for k in range(18):
        lines.append(f"{indent}{'if' if k % 3 else 'while'} n > {k}:")
        indent += "    "
    lines.append(f"{indent}c += 1")
    lines += [f"{'    ' * k}break" for k in range(18, 0, -1) if (k - 1) % 3 == 0]
    assert value("c", np.int64, setup="c = 0\n" + "\n".join(lines), n=100) == 1


@pytest.mark.parametrize("length", [50, 200])
def test_long_chain_of_elif(length: int) -> None:
    chain = (
        "if n == 0:\n    v = 0\n"
        + "".join(f"elif n == {k}:\n    v = {k * k}\n" for k in range(1, length))
        + "else:\n    v = -1\n"
    )
    kernel_source = f"c = 0\n{chain}"
    for n in (0, 1, length - 1, length):
        assert value("v", np.int64, setup=kernel_source, n=n) == (n * n if n < length else -1)


def test_many_sequential_loops() -> None:
    loops = "".join(f"for k in range({n}):\n    c += k\n" for n in range(100))
    assert value("c", np.int64, setup="c = 0\n" + loops) == sum(n * (n - 1) // 2 for n in range(100))


# --- literals as operands ---------------------------------------------------------------------

DIVISORS = [1, 2, 3, 5, 7, 8, 10, 16, 100, 127]


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16"])
def test_division_by_literals_exhaustively(name: str) -> None:
    """Compilers turn these into multiplications and shifts."""
    low, high = oracle.limits(name)
    x = np.arange(low, high + 1).astype(oracle.numpy_dtype(name))
    divisors = DIVISORS + ([-d for d in DIVISORS] if name[0] == "i" else [])
    for op in ("//", "%"):
        lines = "".join(f"        o[{k}, i] = x[i] {op} tack.{name}({d})\n" for k, d in enumerate(divisors))
        o = np.zeros((len(divisors), len(x)), np.int64)
        run(f"@tack.kernel\ndef kernel(o, x):\n    for i in range(x.shape[0]):\n{lines}", o, x)
        wide = x.astype(np.int64)
        for k, d in enumerate(divisors):
            expected = wide // d if op == "//" else wide % d
            assert np.array_equal(o[k], expected.astype(x.dtype).astype(np.int64)), (op, d)


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64"])
def test_division_by_literals_at_the_boundaries(name: str) -> None:
    numbers = oracle.interesting_integers(name)
    x = np.array(numbers, oracle.numpy_dtype(name))
    divisors = [*DIVISORS, 641, 2**31 - 1]
    for op in ("//", "%"):
        lines = "".join(f"        o[{k}, i] = x[i] {op} tack.{name}({d})\n" for k, d in enumerate(divisors))
        o = np.zeros((len(divisors), len(x)), x.dtype)
        run(f"@tack.kernel\ndef kernel(o, x):\n    for i in range(x.shape[0]):\n{lines}", o, x)
        for k, d in enumerate(divisors):
            assert o[k].tolist() == [v // d if op == "//" else v % d for v in numbers], (op, d)


@pytest.mark.parametrize("name", ["i8", "u8", "i64"])
def test_powers_with_literal_exponents(name: str) -> None:
    low, high = oracle.limits(name)
    numbers = list(range(low, high + 1)) if oracle.bits(name) == 8 else oracle.interesting_integers(name)
    x = np.array(numbers, oracle.numpy_dtype(name))
    exponents = [*range(13), 31, 63, 64, 255]
    lines = "".join(f"        o[{k}, i] = x[i] ** {e}\n" for k, e in enumerate(exponents))
    o = np.zeros((len(exponents), len(x)), x.dtype)
    run(f"@tack.kernel\ndef kernel(o, x):\n    for i in range(x.shape[0]):\n{lines}", o, x)
    for k, e in enumerate(exponents):
        assert o[k].tolist() == [oracle.int_power(v, e, name) for v in numbers], e


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_float_powers_with_literal_exponents_keep_pows_special_values(name: str) -> None:
    """pow(x, 0.5) is not sqrt(x) at -0.0 and -inf, and pow(nan, 0) is 1."""
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 4.0, -4.0, 1.0], oracle.numpy_dtype(name))
    cases: dict[str, list[float]] = {
        "x[i] ** 0": [1.0] * 8,
        "x[i] ** 1": [0.0, -0.0, math.inf, -math.inf, math.nan, 4.0, -4.0, 1.0],
        "x[i] ** 2": [0.0, 0.0, math.inf, math.inf, math.nan, 16.0, 16.0, 1.0],
        "x[i] ** 3": [0.0, -0.0, math.inf, -math.inf, math.nan, 64.0, -64.0, 1.0],
        "x[i] ** -1": [math.inf, -math.inf, 0.0, -0.0, math.nan, 0.25, -0.25, 1.0],
        "x[i] ** -2": [math.inf, math.inf, 0.0, 0.0, math.nan, 0.0625, 0.0625, 1.0],
        "x[i] ** 0.5": [0.0, 0.0, math.inf, math.inf, math.nan, 2.0, math.nan, 1.0],
        "x[i] ** -0.5": [math.inf, math.inf, 0.0, 0.0, math.nan, 0.5, math.nan, 1.0],
        "1.0 ** x[i]": [1.0] * 8,
        "2.0 ** x[i]": [1.0, 1.0, math.inf, 0.0, math.nan, 16.0, 0.0625, 2.0],
    }
    for text, expected in cases.items():
        o = np.zeros(8)
        run(f"@tack.kernel\ndef kernel(o, x):\n    for i in range(8):\n        o[i] = {text}\n", o, x)
        wanted = np.array(expected)
        # Finite values are those of pow, within its bound (numerics.md section 3).
        finite = np.isfinite(o) & np.isfinite(wanted)
        near = np.abs(np.subtract(o, wanted, where=finite, out=np.zeros(8))) <= 5 * np.spacing(np.abs(wanted))
        same = np.where(finite, near, o == wanted) & (np.signbit(o) == np.signbit(wanted))
        good = same | (np.isnan(o) & np.isnan(wanted))
        assert good.all(), (text, o.tolist(), expected)


# --- arguments --------------------------------------------------------------------------------


class Level(enum.IntEnum):
    LOW = 3


class Number(float):
    pass


def test_subclasses_of_numbers_and_constants_as_arguments() -> None:
    for argument, expected in (
        (Level.LOW, 3),
        (Number(2.5), 2.5),
        (tack.constant(7), 7),
        (tack.constant(0.5), 0.5),
        (np.float64(1.5), 1.5),
    ):
        assert value("s", np.float64, s=argument) == expected


@pytest.mark.parametrize(
    "bad",
    [
        fractions.Fraction(1, 2),
        np.zeros(3, bool),
        np.datetime64("2020-01-01"),
        tack.i32,
        np.float32,
        math,
        print,
        np.zeros(3, np.longdouble),
    ],
    ids=str,
)
def test_arguments_that_no_parameter_takes(bad: Any) -> None:
    kernel = build("@tack.kernel\ndef kernel(o, thing):\n    for i in range(1):\n        o[i] = 1\n")
    with pytest.raises(TypeError, match="thing"):
        launch(kernel, np.zeros(1), bad)


def test_kernels_and_functions_are_no_arguments() -> None:
    kernel = build("@tack.kernel\ndef kernel(o, f):\n    for i in range(1):\n        o[i] = 1\n")
    function = build("@tack.func\ndef f(a):\n    return a\n", "f")
    for bad in (kernel, function):
        with pytest.raises(TypeError, match="f"):
            launch(kernel, np.zeros(1), bad)


def test_numpy_subclasses_and_maps(tmp_path: Path) -> None:
    kernel = build("@tack.kernel\ndef kernel(x):\n    for i in range(x.size):\n        x[i] += i\n")
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=(10,))
    launch(kernel, mapped)
    assert mapped.tolist() == list(range(10))

    class Sub(np.ndarray):
        pass

    sub = np.zeros(4).view(Sub)
    launch(kernel, sub)
    assert sub.tolist() == [0, 1, 2, 3]


@pytest.mark.f64
def test_tack_arrays_and_numpy_arrays_mix() -> None:
    kernel = build(
        "@tack.kernel\ndef kernel(a, b):\n    for i in range(a.shape[0]):\n        b[i] = a[i] * 2\n"
    )
    a, b = tack.asarray(np.arange(6.0)), np.zeros(6)
    if tack.default_device().name == "cpu":
        kernel(a, b)
        assert b.tolist() == [0, 2, 4, 6, 8, 10]
        kernel(b, a)
        assert a.numpy().tolist() == [0, 4, 8, 12, 16, 20]
    c = tack.zeros(2, tack.f64)
    kernel(a[2:4], c)
    assert c.numpy().tolist() == (2 * a.numpy()[2:4]).tolist()


class Exporter:
    """An object whose only interface is DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_objects_are_used_without_a_copy() -> None:
    if tack.default_device().name != "cpu":
        return
    kernel = build("@tack.kernel\ndef kernel(x, n):\n    for i in range(x.shape[0]):\n        x[i] = n\n")
    x = np.zeros(3, np.int16)
    for n in (5, 6):
        kernel(Exporter(x), n)
        assert x.tolist() == [n] * 3
    with pytest.raises((TypeError, ValueError), match="x"):
        kernel(Exporter(np.zeros(6)[::2]), 1)


def test_decorator_options() -> None:
    for options in ("fastmath=True", "fastmath=False", ""):
        o = np.zeros(1)
        run(f"@tack.kernel({options})\ndef kernel(o):\n    for i in range(1):\n        o[i] = 3\n", o)
        assert o[0] == 3
    with pytest.raises(TypeError):
        build("@tack.kernel(fast=True)\ndef kernel(o):\n    for i in range(1):\n        o[i] = 3\n")


def test_arrays_are_no_values(rejects: Rejects) -> None:
    """An array cannot be picked by a condition, bound to a name twice, or compared."""
    for statement in (
        "o[i] = «(«a if i else b)[0]",
        "o[i] = «a < b",
        "«o[i] = «not «a",
        "if «a:\n            o[i] = 1",
        "v = «-«a",
        "o[i] = max(«a, b)",
        "o[i] = tack.f32(«a)",
    ):
        source = f"@tack.kernel\ndef kernel(o, a, b):\n    for i in range(1):\n        «{statement}\n"
        rejects((TypeError, tack.UnsupportedSyntaxError), source, np.zeros(1), np.zeros(2), np.zeros(2))


# --- the command line -------------------------------------------------------------------------

TARGET_RUNS = {
    "unknown target": (["--target", "nonsense"], {}, 4, "nonsense"),
    "unknown required target": ([], {"TACK_REQUIRE_TARGETS": "nonsense"}, 4, "nonsense"),
    "missing target": (["--target", "hip-emu"], {"PATH": "nowhere"}, 0, "skipped"),  # without a compiler
    "missing but required": (
        ["--target", "hip-emu"],
        {"PATH": "nowhere", "TACK_REQUIRE_TARGETS": "cpu,hip-emu"},
        1,
        "TACK_REQUIRE_TARGETS",
    ),
}


@pytest.mark.parametrize("case", TARGET_RUNS)
def test_target_option(case: str) -> None:
    options, variables, code, word = TARGET_RUNS[case]
    root = Path(__file__).parents[4]
    path = str(Path(__file__).with_name("test_oracle.py"))
    own = {"PYTHONPATH": str(Path(tack.__file__).parents[1]), "TACK_REQUIRE_TARGETS": ""}
    env = {**os.environ, **own, **variables}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path, *options],
        env=env,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    assert word in result.stdout + result.stderr
