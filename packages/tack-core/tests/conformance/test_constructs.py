"""Each row of language.md section 2: what is accepted computes the right thing, the rest is rejected."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from .helpers import Rejection, build, launch, run, value, values

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


def counted(loops: str, size: int = 40, **args: Any) -> list[int]:
    """The marks that ``loops`` leaves: statements that call ``out[...] += 1`` in one iteration."""
    out = np.zeros(size, np.int32)
    params = "".join(f", {k}" for k in args)
    body = textwrap.indent(textwrap.dedent(loops), " " * 8)
    run(f"@tack.kernel\ndef kernel(out{params}):\n    for _i in range(1):\n{body}\n", out, *args.values())
    return list(out.tolist())


# --- for and range ----------------------------------------------------------------------------

RANGES = [(0,), (1,), (7,), (-3,), (2, 9), (9, 2), (-4, 3), (0, 10, 3), (1, 10, 3), (5, 5, 2), (-7, 8, 5)]


@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_parallel_range_runs_pythons_indices(bounds: tuple[int, ...]) -> None:
    expected = [1 if k - 10 in range(*bounds) else 0 for k in range(30)]
    for text, args in (
        (", ".join(map(str, bounds)), ()),
        (", ".join("abc"[: len(bounds)]), bounds),
    ):
        params = "".join(f", {c}" for c in "abc"[: len(args)])
        out = np.zeros(30, np.int32)
        run(
            f"""
            @tack.kernel
            def kernel(out{params}):
                for i in range({text}):
                    out[i + 10] += 1
            """,
            out,
            *args,
        )
        assert out.tolist() == expected


@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_sequential_range_runs_pythons_indices_in_order(bounds: tuple[int, ...]) -> None:
    expected = list(range(*bounds))
    for text, args in (
        (", ".join(map(str, bounds)), ()),
        (", ".join("abc"[: len(bounds)]), bounds),
    ):
        params = "".join(f", {c}" for c in "abc"[: len(args)])
        out = np.full(20, 99, np.int64)
        run(
            f"""@tack.kernel
def kernel(out{params}):
    for _i in range(1):
        n = 0
        for k in range({text}):
            out[n] = k
            n += 1
        out[19] = n
""",
            out,
            *args,
        )
        assert out[19] == len(expected)
        assert out[: len(expected)].tolist() == expected


@pytest.mark.parametrize("step", ["0", "-1", "-5"])
def test_literal_step_that_is_not_positive_is_rejected(rejects: Rejects, step: str) -> None:
    rejects(
        SYNTAX,
        f"@tack.kernel\ndef kernel(o):\n    for i in range(0, 5, «{step}»):\n        o[i] = 1\n",
        np.zeros(5),
    )
    rejects(
        SYNTAX,
        f"""
            @tack.kernel
            def kernel(o):
                for i in range(5):
                    for k in range(9, 0, «{step}»):
                        o[i] = k
            """,
        np.zeros(5),
    )


@pytest.mark.parametrize("step", [0, -1, -(2**40)])
def test_dynamic_step_that_is_not_positive(step: int) -> None:
    kernel = build("@tack.kernel\ndef kernel(o, s):\n    for i in range(0, 5, s):\n        o[i] = 1\n")
    out = np.zeros(5)
    with pytest.raises(ValueError, match="kernel"):
        launch(kernel, out, step)
    assert not out.any()
    launch(kernel, out, 2)
    assert out.tolist() == [1, 0, 1, 0, 1]
    steps = np.array([step, 2])
    marks = counted(
        "for k in range(0, 6, s[0]):\n    out[k] += 1\nfor k in range(0, 6, s[1]):\n    out[10 + k] += 1",
        s=steps,
    )
    assert marks == [0] * 10 + [1, 0, 1, 0, 1] + [0] * 25


def test_range_arguments_are_evaluated_once_on_entry() -> None:
    bounds = np.array([0, 5, 1])
    marks = counted(
        "n = 3\nfor k in range(n):\n    n = 10\n    out[k] += 1\n"
        "for k in range(b[0], b[1], b[2]):\n    b[1] = 30\n    b[2] = 7\n    out[10 + k] += 1",
        b=bounds,
    )
    assert marks == [1, 1, 1] + [0] * 7 + [1] * 5 + [0] * 25
    assert bounds.tolist() == [0, 30, 7]


def test_assigning_the_loop_variable_changes_only_this_iteration() -> None:
    assert counted("for k in range(4):\n    k = k + 10\n    out[k] += 1")[10:14] == [1, 1, 1, 1]


def test_loop_bounds_near_the_end_of_i64() -> None:
    top = 2**63 - 1
    assert counted("for k in range(a, b, 5):\n    out[0] += 1", a=top - 9, b=top)[0] == 2
    assert counted("for k in range(a, b):\n    out[0] += 1", a=-(2**63), b=3 - 2**63)[0] == 3


@pytest.mark.parametrize("dims", range(1, 7))
def test_ndindex_of_one_to_six_dimensions(dims: int) -> None:
    shape = (2, 3, 1, 2, 2, 3)[:dims]
    names = [f"i{d}" for d in range(dims)]
    target = ", ".join(names)
    sizes = ", ".join(f"out.shape[{d}]" for d in range(dims))
    code = " + ".join(f"{name} * {10**d}" for d, name in enumerate(names))
    out = np.full(shape, -1, np.int64)
    run(
        f"""
            @tack.kernel
            def kernel(out):
                for {target} in tack.ndindex({sizes}):
                    out[{target}] = {code}
            """,
        out,
    )
    expected = np.fromfunction(lambda *ix: sum(i * 10**d for d, i in enumerate(ix)), shape, dtype=np.int64)
    assert np.array_equal(out, expected)


def test_ndindex_with_pairs_and_inside_a_loop() -> None:
    out = np.zeros((5, 6), np.int32)
    source = """
        @tack.kernel
        def kernel(out, a, b):
            for i, j in tack.ndindex((1, 4), (a, b)):
                out[i, j] += 1
    """
    run(source, out, 2, 5)
    expected = np.zeros((5, 6), np.int32)
    expected[1:4, 2:5] = 1
    assert np.array_equal(out, expected)
    assert sum(counted("for i, j in tack.ndindex(3, (2, 4)):\n    out[i * 10 + j] += 1")) == 6


@pytest.mark.parametrize(
    "sizes", ["0, 4", "4, 0", "-3, -4", "(2, 1), 4", "(5, -5), (7, 7)", "-1, 5", "(-1, -4), (-1, -4)"]
)
def test_empty_reversed_and_negative_ndindex_runs_nothing(sizes: str) -> None:
    out = np.zeros(1, np.int32)
    run(f"@tack.kernel\ndef kernel(out):\n    for i, j in tack.ndindex({sizes}):\n        out[0] += 1\n", out)
    assert out[0] == 0
    assert sum(counted(f"for i, j in tack.ndindex({sizes}):\n    out[0] += 1")) == 0


def test_break_and_continue_in_a_sequential_ndindex_are_those_of_one_loop() -> None:
    marks = counted(
        """
        for i, j in tack.ndindex(3, (1, 5)):
            if j == 2:
                continue
            if i == 1 and j == 4:
                break
            out[i * 5 + j] += 1
        """
    )
    ran = [(0, 1), (0, 3), (0, 4), (1, 1), (1, 3)]
    assert [k for k, v in enumerate(marks) if v] == [i * 5 + j for i, j in ran]


@pytest.mark.parametrize("count", [0, 7])
def test_ndindex_of_no_or_seven_dimensions_is_rejected(rejects: Rejects, count: int) -> None:
    target = ", ".join(f"i{d}" for d in range(count)) or "i"
    sizes = ", ".join(["2"] * count)
    source = f"@tack.kernel\ndef kernel(o):\n    «for {target} in «tack.ndindex({sizes}):\n        o[0] = 1\n"
    rejects((SYNTAX, TypeError), source, np.zeros(2))


def test_ndindex_target_count_must_match(rejects: Rejects) -> None:
    source = "@tack.kernel\ndef kernel(o):\n    «for «i, j in «tack.ndindex(2, 3, 4):\n        o[0] = 1\n"
    rejects((SYNTAX, TypeError), source, np.zeros(2))


# --- while, if, conditional expressions, break, continue, pass, docstrings --------------------


def test_control_flow_as_in_python() -> None:
    source = '''
        @tack.kernel
        def kernel(out, n):
            """A docstring."""
            for i in range(n):
                "another"
                pass
                total = 0
                k = 0
                while True:
                    k += 1
                    if k > 20:
                        break
                    elif k % 3 == 0:
                        continue
                    else:
                        pass
                    for m in range(k):
                        if m == i:
                            continue
                        if m > 2 * i + 1:
                            break
                        total += m if m % 2 else 10 * m
                    while total > 100000:
                        total -= 7
                out[i] = total
    '''

    def model(i: int) -> int:
        total = k = 0
        while True:
            k += 1
            if k > 20:
                break
            elif k % 3 == 0:
                continue
            for m in range(k):
                if m == i:
                    continue
                if m > 2 * i + 1:
                    break
                total += m if m % 2 else 10 * m
            while total > 100000:
                total -= 7
        return total

    out = np.zeros(15, np.int64)
    run(source, out, 15)
    assert out.tolist() == [model(i) for i in range(15)]


def test_continue_in_the_parallel_loop_ends_that_iteration() -> None:
    out = np.zeros(10, np.int32)
    run(
        """
        @tack.kernel
        def kernel(out):
            for i in range(10):
                if i % 3 == 0:
                    continue
                out[i] = 1
                if i > 6:
                    continue
                out[i] = 2
        """,
        out,
    )
    assert out.tolist() == [0, 2, 2, 0, 2, 2, 0, 1, 1, 0]


def test_break_out_of_the_parallel_loop_is_rejected(rejects: Rejects) -> None:
    rejects(
        SYNTAX,
        "@tack.kernel\ndef kernel(o):\n    for i in range(3):\n        if o[i] > 0:\n            «break»\n",
        np.zeros(3),
    )


@pytest.mark.parametrize("loop", ["for k in range(3)", "while o[0] < 0"])
def test_loop_else_is_rejected_at_the_loop(rejects: Rejects, loop: str) -> None:
    source = f"""
        @tack.kernel
        def kernel(o):
            for i in range(3):
                «{loop}:
                    o[0] = 1
                else:
                    o[1] = 1
        """
    rejects(SYNTAX, source, np.zeros(3))


def test_else_of_the_parallel_loop_is_rejected(rejects: Rejects) -> None:
    rejects(
        SYNTAX,
        "@tack.kernel\ndef kernel(o):\n    «for i in range(3):\n        o[i] = 1\n    else:\n        pass\n",
        np.zeros(3),
    )


def test_nested_loops_with_bounds_from_arrays() -> None:
    rows = np.array([0, 2, 2, 5], np.int32)
    data = np.array([3, 4, 5, 6, 7], np.int32)
    out = np.zeros(3, np.int32)
    run(
        """
        @tack.kernel
        def kernel(out, rows, data):
            for r in range(out.shape[0]):
                s = 0
                for k in range(rows[r], rows[r + 1]):
                    s += data[k]
                out[r] = s
        """,
        out,
        rows,
        data,
    )
    assert out.tolist() == [7, 0, 18]


# --- assignment -------------------------------------------------------------------------------


def test_tuple_assignment_evaluates_the_whole_right_side_first() -> None:
    x = np.array([1, 2, 3, 4], np.int32)
    setup = """
        a, b = 1, 2
        a, b = b, a
        a, b = a + b, a - b
        x[0], x[1] = x[1], x[0]
        c, x[2] = x[3], 9
        d, e, f = 5, 6, 7
        g = h = 8
    """
    got = values(["a", "b", "x[0]", "x[1]", "x[2]", "c", "d", "e", "f", "g", "h"], np.int32, setup=setup, x=x)
    assert got == [3, 1, 2, 1, 9, 4, 5, 6, 7, 8, 8]


@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "**"])
def test_augmented_assignment(op: str) -> None:
    x = np.array([100, 100], np.int64)
    got = values(["a", "x[1]"], np.int64, setup=f"a = 100\na {op}= 3\nx[1] {op}= 3", x=x)
    expected = eval(f"100 {op} 3")
    assert got == [expected, expected]


def test_augmented_division() -> None:
    x = np.array([7.0])
    assert values(["x[0]"], np.float64, setup="x[0] /= 2", x=x) == [3.5]


def test_assignment_to_two_dimensional_elements() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    run(
        """
            @tack.kernel
            def kernel(x):
                for i in range(2):
                    x[i, 0], x[i, 2] = x[i, 2], x[i, 0]
                    x[i, 1] *= 10
            """,
        x,
    )
    assert x.tolist() == [[2, 10, 0], [5, 40, 3]]


# --- comparisons and logic --------------------------------------------------------------------


def test_values_of_logic_are_zero_or_one_never_the_operand() -> None:
    table = {
        "5 and 7": 1,
        "a and 0": 0,
        "0 or a": 1,
        "0 or 0": 0,
        "not a": 0,
        "not 0": 1,
        "a < 6 < 7": 1,
        "a < 6 > 7": 0,
        "1 < a < 4 < b": 0,
        "a == 5 != b": 1,
        "(a > 0) + (b > 0)": 2,
        "a and b or 0": 1,
        "-(a == a)": -1,
        "0.5 and 2": 1,
        "not 0.5": 0,
        "not (-0.0)": 1,
    }
    assert dict(zip(table, values(list(table), np.int64, a=5, b=9), strict=True)) == table


def test_logic_stops_where_python_stops() -> None:
    source = """
        @tack.func
        def note(log, bit, result):
            log[0] += bit
            return result

        @tack.kernel
        def kernel(out, log):
            for i in range(1):
                out[0] = note(log, 1, 0) and note(log, 10, 1)
                out[1] = note(log, 100, 1) or note(log, 1000, 1)
                out[2] = note(log, 10000, 3) < note(log, 100000, 2) < note(log, 1000000, 5)
                out[3] = note(log, 10000000, 1) if note(log, 100000000, 0) else note(log, 1000000000, 7)
    """
    out, log = np.zeros(4, np.int64), np.zeros(1, np.int64)
    run(source, out, log)
    assert out.tolist() == [0, 1, 0, 7]
    assert log[0] == 1 + 100 + 10000 + 100000 + 100000000 + 1000000000


def test_unselected_operands_do_not_touch_memory() -> None:
    """A load 2**40 elements away would crash the process."""
    x = np.ones(3, np.float32)
    far = 2**40
    expressions = [
        "x[k] if k < n else 0",
        "k < n and x[k] > 0",
        "k >= n or x[k] > 0",
        "0 < 0 < x[k]",
        "10 // n if n else 4",
    ]
    assert values(expressions, np.int32, x=x, k=far, n=3)[:4] == [0, 0, 1, 0]
    assert values(expressions[4:], np.int32, n=0) == [4]


# --- shapes -----------------------------------------------------------------------------------


def test_extents_anywhere() -> None:
    x, z = np.zeros((3, 4, 5)), np.zeros(())
    expressions = [
        "x.shape[0]",
        "x.shape[1]",
        "x.shape[2]",
        "x.shape[-1]",
        "x.shape[-3]",
        "len(x)",
        "x.size",
        "x.ndim",
        "z.size",
        "z.ndim",
        "x.shape[0] * x.shape[1] + len(x)",
    ]
    assert values(expressions, np.int64, x=x, z=z) == [3, 4, 5, 5, 3, 3, 60, 3, 1, 0, 15]


def test_len_of_a_zero_dimensional_array_is_a_type_error(rejects: Rejects) -> None:
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o, z):\n    for i in range(1):\n        o[i] = «len(«z»)»\n",
        np.zeros(1),
        np.zeros(()),
    )


@pytest.mark.parametrize("index", ["i", "n", "x[0]", "1.0", "0:1"])
def test_extent_with_an_index_that_is_no_literal_is_rejected(rejects: Rejects, index: str) -> None:
    source = f"@tack.kernel\ndef kernel(x, n):\n    for i in range(1):\n        x[i] = «x.shape[«{index}]\n"
    rejects((SYNTAX, TypeError), source, np.zeros(2), 1)


def test_extent_of_a_missing_dimension_is_rejected(rejects: Rejects) -> None:
    for axis in ("1", "-2"):
        source = f"@tack.kernel\ndef kernel(x):\n    for i in range(1):\n        x[i] = «x.shape[«{axis}]\n"
        rejects((TypeError, ValueError), source, np.zeros(2))


# --- indexing ---------------------------------------------------------------------------------


def test_kinds_of_index() -> None:
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    z = np.array(42, np.int32)
    assert values(["x[1, 2, 3]", "x[17]", "z[None]", "x[k // 2, k % 3, 0]"], np.int32, x=x, z=z, k=2) == [
        23,
        17,
        42,
        20,
    ]
    out = np.zeros((), np.int32)
    run(
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[None] = 3\n        o[None] += 4\n",
        out,
    )
    assert out == 7


def test_flat_store_on_a_two_dimensional_array() -> None:
    x = np.zeros((3, 4), np.int32)
    run("@tack.kernel\ndef kernel(x):\n    for i in range(x.size):\n        x[i] = i\n", x)
    assert np.array_equal(x, np.arange(12).reshape(3, 4))


@pytest.mark.parametrize("kind", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_index_of_every_integer_type(kind: str) -> None:
    x = np.arange(200, dtype=np.int32)
    assert value(f"x[tack.{kind}(k)]", np.int32, x=x, k=100) == 100


def test_high_unsigned_index_is_not_negative() -> None:
    x = np.arange(256, dtype=np.int32)
    assert value("x[u[0]]", np.int32, x=x, u=np.array([255], np.uint8)) == 255
    y = np.arange(40000, dtype=np.uint16)
    assert value("y[u[0]]", np.int32, y=y, u=np.array([39999], np.uint16)) == 39999


@pytest.mark.parametrize(
    ("shape", "index"), [((4,), "i, i"), ((2, 2, 2), "i, i"), ((2, 2), "i, i, i"), ((), "i, i")]
)
def test_wrong_number_of_indices_is_a_type_error_at_the_call(
    rejects: Rejects, shape: tuple[int, ...], index: str
) -> None:
    for text in (f"o[i] = «x[{index}]»", f"«x[{index}]» = 1", f"«x[{index}]» += 1"):
        source = f"@tack.kernel\ndef kernel(o, x):\n    for i in range(1):\n        {text}\n"
        rejects(TypeError, source, np.zeros(1), np.zeros(shape))


def test_index_count_is_checked_for_each_array_that_is_bound() -> None:
    kernel = build("@tack.kernel\ndef kernel(o, x):\n    for i in range(2):\n        o[i] = x[i, 0]\n")
    out = np.zeros(2, np.int32)
    launch(kernel, out, np.array([[1, 2], [3, 4]], np.int32))
    assert out.tolist() == [1, 3]
    with pytest.raises(TypeError, match="kernel"):
        launch(kernel, out, np.zeros(4, np.int32))
    launch(kernel, out, np.array([[5], [6]], np.int32))
    assert out.tolist() == [5, 6]


@pytest.mark.parametrize("index", ["0.5", "x[0]", "f"])
def test_float_index_is_rejected(rejects: Rejects, index: str) -> None:
    source = f"@tack.kernel\ndef kernel(x, f):\n    for i in range(1):\n        «x[«{index}] = 1\n"
    rejects(TypeError, source, np.zeros(3), 1.5)
