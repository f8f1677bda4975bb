"""language.md section 13: print, and kernels that return a number."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, build, launch, run, said

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


def printed(source: str, *args: Any) -> list[str]:
    stream = io.StringIO()
    with redirect_stdout(stream):
        run(source, *args)
    text = stream.getvalue()
    assert text == "" or text.endswith("\n")
    return text.splitlines()


def one(*statements: str, params: str = "x", args: tuple[Any, ...] = ()) -> list[str]:
    body = "".join(f"        {s}\n" for s in statements)
    return printed(
        f"@tack.kernel\ndef kernel({params}):\n    for i in range(1):\n{body}", *(args or (np.zeros(1),))
    )


def test_labels_and_values_separated_by_spaces() -> None:
    assert one('print("label", 1, i + 5, "and", -3)', "print()", 'print("alone")', "print(7)") == said(
        ["label 1 5 and -3", "", "alone", "7"]
    )


@pytest.mark.parametrize("name", oracle.INTEGERS)
def test_integers_in_full(name: str) -> None:
    x = np.array([*oracle.limits(name), 0], oracle.numpy_dtype(name))
    assert one("print(x[0], x[1], x[2])", args=(x,)) == said([" ".join(str(v) for v in x.tolist())])


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_floats_in_their_shortest_exact_form(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    numbers = [
        0.1,
        1 / 3,
        1.0,
        -0.0,
        1e30,
        1e-30,
        123456.789,
        16777216.0,
        float(np.finfo(dtype).max),
        float(np.finfo(dtype).smallest_subnormal),
        2.5,
    ]
    lines = printed(
        """
            @tack.kernel
            def kernel(x):
                for i in range(1):
                    for k in range(x.shape[0]):
                        print(x[k])
            """,
        np.array(numbers, dtype),
    )
    assert len(lines) == len(said(["a line"] * len(numbers)))
    for line, number in zip(lines, numbers, strict=bool(lines)):
        assert dtype.type(line) == dtype.type(number)
        assert np.signbit(dtype.type(line)) == np.signbit(number)
        digits = line.lower().split("e")[0].replace("-", "").replace(".", "").strip("0")
        shortest = str(dtype.type(number)).lower().split("e")[0].replace("-", "").replace(".", "").strip("0")
        assert len(digits) <= len(shortest)


def test_nan_and_infinities() -> None:
    assert one("print(x[0], x[1], x[2])", args=(np.array([np.nan, np.inf, -np.inf]),)) == said(
        ["nan inf -inf"]
    )


def test_weak_literals_and_conditions() -> None:
    assert one("print(0.1, 0.25, i == 0, 1 < 0)") == said(["0.1 0.25 1 0"])


def test_lines_of_one_iteration_are_in_order_and_whole() -> None:
    n = 2000
    lines = printed(
        """
            @tack.kernel
            def kernel(x, n):
                for i in range(n):
                    print("a", i)
                    for k in range(2):
                        print("b", i, k)
            """,
        np.zeros(1),
        n,
    )
    wanted = said([f"a {i}" for i in range(n)] + [f"b {i} {k}" for i in range(n) for k in range(2)])
    assert sorted(lines) == sorted(wanted)
    place = {line: k for k, line in enumerate(lines)}
    assert all(place[f"a {i}"] < place[f"b {i} 0"] < place[f"b {i} 1"] for i in range(len(lines) // 3))


def test_print_in_device_functions_and_untaken_branches() -> None:
    source = """
        @tack.func
        def show(a):
            print("f", a)
            if a > 1:
                print("big", a * 0.5)
            return a

        @tack.kernel
        def kernel(x):
            for i in range(1):
                if show(1) < 0:
                    print("never")
                show(3)
    """
    assert printed(source, np.zeros(1)) == said(["f 1", "f 3", "big 1.5"])


def test_print_goes_through_sys_stdout_of_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = build('@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        print("hello é", x[0])\n')
    launch(kernel, np.array([1.5]))
    assert capsys.readouterr().out == said("hello é 1.5\n")
    stream = io.StringIO()
    old, sys.stdout = sys.stdout, stream
    try:
        launch(kernel, np.array([2.5]))
    finally:
        sys.stdout = old
    assert stream.getvalue() == said("hello é 2.5\n")


def test_stdout_that_raises_reaches_the_caller_and_the_next_launch_works() -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError("no space")

    kernel = build("@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        print(1)\n")
    raised = pytest.raises(OSError, match="no space")
    with redirect_stdout(Broken()), raised if tack.default_device().supports_print else nullcontext():
        launch(kernel, np.zeros(1))
    with redirect_stdout(io.StringIO()) as stream:
        launch(kernel, np.zeros(1))
    assert stream.getvalue() == said("1\n")


def test_many_values_and_braces_and_percent_signs() -> None:
    values = ", ".join(str(k) for k in range(60))
    assert one(f"print({values})", 'print("100% {} %s \\\\ \\"q\\"", 1)') == said(
        [" ".join(str(k) for k in range(60)), '100% {} %s \\ "q" 1']
    )


@pytest.mark.parametrize("call", ["print(«x)", "print('a', «sep='')", "print(«f'{i}')", "v = «print(1)"])
def test_what_print_does_not_take(rejects: Rejects, call: str) -> None:
    rejects(
        (SYNTAX, TypeError),
        f"@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        «{call}\n",
        np.zeros(3),
    )


# --- return -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "expression", "expected"),
    [
        ("int", "7", 7),
        ("int", "2.9", 2),
        ("int", "-2.9", -2),
        ("int", "4294967296 + 5", 5),
        ("float", "0.1", float(np.float32(0.1))),
        ("float", "3", 3.0),
        ("tack.f64", "0.1", 0.1),
        ("tack.i64", "4294967296 * 5", 4294967296 * 5),
        ("tack.u8", "300", 44),
        ("tack.i8", "200", -56),
        ("tack.u64", "tack.u64(-1)", 2**64 - 1),
        ("np.float64", "0.1", 0.1),
        ('"tack.f64"', "0.1", 0.1),
        ("tack.i32", "1e20", 2**31 - 1),
        ("int", "1 < 2", 1),
        ("tack.f32", "math.nan", float("nan")),
    ],
)
def test_result_is_the_cast_of_the_annotation(annotation: str, expression: str, expected: Any) -> None:
    result = run(
        f"""
            @tack.kernel
            def kernel(x) -> {annotation}:
                for i in range(1):
                    x[i] = 1
                return {expression}
            """,
        np.zeros(1),
    )
    assert type(result) is type(expected)
    if isinstance(expected, float) and not tack.default_device().supports_f64:  # where results are f32
        expected = float(np.float32(expected))
    assert result == expected or (result != result and expected != expected)


def test_result_is_evaluated_after_the_launch_and_reads_arrays_arguments_and_outer_locals() -> None:
    source = """
        @tack.func
        def add(a, b):
            return a + b

        C = tack.constant(1000)

        @tack.kernel
        def kernel(x, n) -> tack.i64:
            k = n * 10
            for i in range(n):
                tack.atomic_add(x, 0, i)
            m = k + 1
            return add(tack.i64(x[0]), m) + C + n + x.shape[0]
    """
    kernel = build(source)
    for n in (0, 10, 60_000):
        x = np.array([5], np.int32)
        total = 5 + n * (n - 1) // 2
        assert launch(kernel, x, n) == total + 10 * n + 1 + 1000 + n + 1
        assert x[0] == total


def test_result_with_an_empty_launch() -> None:
    assert (
        run(
            """
                @tack.kernel
                def kernel(x) -> int:
                    for i in range(x.shape[0]):
                        x[i] = 1
                    return 7
                """,
            np.zeros(0),
        )
        == 7
    )


def test_without_return_the_call_gives_none() -> None:
    for annotation in ("", " -> None"):
        assert (
            run(
                f"@tack.kernel\ndef kernel(x){annotation}:\n    for i in range(1):\n        x[i] = 1\n",
                np.zeros(1),
            )
            is None
        )


def test_missing_annotation_is_rejected(rejects: Rejects) -> None:
    rejects(
        SYNTAX,
        "@tack.kernel\n«def «kernel(x):\n    for i in range(1):\n        x[i] = 1\n    «return «x[0]\n",
        np.zeros(1),
    )


def test_local_that_the_loop_assigns_cannot_be_returned(rejects: Rejects) -> None:
    rejects(
        SYNTAX,
        """
            @tack.kernel
            def kernel(x) -> int:
                s = 0
                for i in range(3):
                    s += i
                «return 1 + «s»
            """,
        np.zeros(1),
    )
    rejects(
        SYNTAX,
        """
            @tack.kernel
            def kernel(x, n) -> int:
                for i in range(3):
                    n = n + i
                «return «n»
            """,
        np.zeros(1),
        3,
    )


def test_return_must_be_last(rejects: Rejects) -> None:
    rejects(
        SYNTAX,
        """
            @tack.kernel
            def kernel(x, n) -> int:
                if n > 0:
                    «return 1
                for i in range(3):
                    x[0] = 1
                return 2
            """,
        np.zeros(1),
        1,
    )
    rejects(
        SYNTAX,
        """
            @tack.kernel
            def kernel(x) -> int:
                for i in range(3):
                    x[0] = 1
                «return 2
                «v = 1
            """,
        np.zeros(1),
    )
    rejects(
        (SYNTAX, TypeError),
        "@tack.kernel\ndef kernel(x) -> int:\n    for i in range(3):\n        x[0] = 1\n    «return «1, 2\n",
        np.zeros(1),
    )


@pytest.mark.parametrize("annotation", ["str", "list", '"nothing"', "tuple[int, int]", "3"])
def test_annotation_that_is_no_number_type(annotation: str) -> None:
    kernel_source = f"""
        @tack.kernel
        def kernel(x) -> {annotation}:
            for i in range(1):
                x[i] = 1
            return 2
        """
    with pytest.raises((SYNTAX, TypeError)):
        run(kernel_source, np.zeros(1))
