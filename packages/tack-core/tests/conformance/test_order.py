"""The evaluation-order rules at the end of language.md section 2, against Python running the same text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .helpers import run, said

# A device function that notes its call in a log and stores, so that every order is visible.
FUNCTIONS = """
@tack.func
def note(log, x, n):
    log[0] = log[0] * 10 + n
    x[0] = x[0] + n
    return n

@tack.func
def put(log, x, k, v):
    log[0] = log[0] * 10 + v
    x[k] = v
    return k
"""

CASES = {
    "operands left to right": "y[0] = note(log, x, 1) - note(log, x, 2) * note(log, x, 3) + x[0]",
    "a load before a later call": "y[0] = x[0] + note(log, x, 5)",
    "a load after an earlier call": "y[0] = note(log, x, 5) + x[0]",
    "a load between calls": "y[0] = note(log, x, 1) * 100 + x[0] * 10 + note(log, x, 2)",
    "a local before a later call": "v = x[0]\ny[0] = v + note(log, x, 5) + v",
    "arguments left to right": "y[0] = max(note(log, x, 1), x[0], note(log, x, 3), x[0])",
    "nested arguments": "y[0] = put(log, x, note(log, x, 2), note(log, x, 3)) + x[2]",
    "value before the store's index": "x[note(log, x, 1)] = note(log, x, 2)",
    "value's load before the index's call": "x[1 + note(log, x, 1)] = x[0]",
    "augmented: index once, old value before the right side": """
        x[note(log, x, 1)] += note(log, x, 2) + put(log, x, 1, 7)
    """,
    "augmented with the same element": "x[0] += note(log, x, 5)",
    "augmented local": """
        v = 3
        v += note(log, x, v)
        y[0] = v
    """,
    "augmented local changed on the right": """
        v = 3
        v = v * 10 + put(log, x, 1, v)
        y[0] = v
    """,
    "tuple: the whole right side first": "x[0], x[1] = note(log, x, 1) + x[1], note(log, x, 2) + x[0]",
    "tuple: targets left to right": "x[put(log, x, 0, 1)], x[put(log, x, 1, 2)] = 8, 9",
    "tuple: a target's index sees the names before it": "k = 3\nk, x[k] = 1, 77",
    "tuple: element then name": """
        k = 3
        x[k], k = 5, 1
        y[0] = k
    """,
    "tuple: element used as an index of the next": "x[0] = 3\nx[0], x[x[0]] = 1, 42",
    "chained assignment": "a = x[2] = note(log, x, 4) + x[0]\ny[0] = a",
    "chained comparison evaluates once": "y[0] = note(log, x, 1) < note(log, x, 2) < note(log, x, 3)",
    "chained comparison stops": "y[0] = note(log, x, 3) < note(log, x, 2) < note(log, x, 1)",
    "chained comparison with a changing middle": "y[0] = 0 < x[0] < note(log, x, 9) < x[0]",
    "conditional runs only its arm": "y[0] = note(log, x, 1) if x[0] > 100 else note(log, x, 2)",
    "conditional in an expression": """
        y[0] = x[0] * (note(log, x, 1) if note(log, x, 2) else note(log, x, 3)) + x[0]
    """,
    "nested conditional": """
        y[0] = (note(log, x, 1) if x[0] > 100 else note(log, x, 2)) if note(log, x, 4) else note(log, x, 3)
    """,
    "and stops": "y[0] = (x[0] > 100 and note(log, x, 1) > 0) + note(log, x, 2)",
    "or goes on": "y[0] = (x[0] > 100 or note(log, x, 1) > 0) + x[0]",
    "call as a condition": """
        if note(log, x, 1) == 1 and note(log, x, 2) == 3 or note(log, x, 4):
            y[0] = x[0]
    """,
    "while condition runs each time": """
        k = 0
        while note(log, x, 1) + k < 4:
            k += 1
        y[0] = k
    """,
    "while with and": """
        k = 0
        while k < 3 and note(log, x, k + 1) > 0:
            k += 1
        y[0] = x[0]
    """,
    "while with continue": """
        k = 0
        while note(log, x, 1) < 5 and k < 6:
            k += 1
            if k % 2:
                continue
            y[0] += note(log, x, 2)
    """,
    "range arguments once, left to right": """
        for k in range(note(log, x, 1), note(log, x, 4), note(log, x, 2)):
            y[0] = y[0] * 10 + k
            note(log, x, 9)
    """,
    "call inside an index inside a call": "y[0] = x[put(log, x, note(log, x, 1), 5)] + x[note(log, x, 2)]",
    "not and unary minus keep place": "y[0] = -note(log, x, 1) + (not note(log, x, 2)) + x[0]",
    "power and shifts keep place": """
        y[0] = note(log, x, 2) ** note(log, x, 3) + (note(log, x, 1) << note(log, x, 2))
    """,
    "expression statement": """
        note(log, x, 1)
        note(log, x, 2)
        y[0] = x[0]
    """,
    "both sides of a comparison": "y[0] = (x[0] == note(log, x, 1)) * 10 + (note(log, x, 2) == x[0])",
    "swap through calls": "x[0], x[1], x[2] = x[2], x[0] + note(log, x, 1), x[1]",
    "cast keeps place": "y[0] = tack.i64(note(log, x, 1)) * 10 + tack.i32(x[0])",
}


class _Tack:
    """Just enough of Tack for Python to run the cases."""

    i64 = i32 = int

    @staticmethod
    def func(function: Callable[..., Any]) -> Callable[..., Any]:
        return function


def python_result(statements: str) -> tuple[list[int], list[int], list[int]]:
    log, x, y = [0], [4, 1, 2, 3, 0, 0, 0, 0], [0, 0]
    space: dict[str, Any] = {"tack": _Tack, "log": log, "x": x, "y": y}
    exec(FUNCTIONS, space)
    exec(textwrap.dedent(statements), space)
    return log, x, [int(v) for v in y]


@pytest.mark.parametrize("case", CASES)
def test_order(case: str) -> None:
    body = textwrap.indent(textwrap.dedent(CASES[case]), " " * 8)
    source = f"{FUNCTIONS}\n@tack.kernel\ndef kernel(log, x, y):\n    for i in range(1):\n{body}\n"
    log, x, y = np.zeros(1, np.int64), np.array([4, 1, 2, 3, 0, 0, 0, 0]), np.zeros(2, np.int64)
    run(source, log, x, y)
    assert (log.tolist(), x.tolist(), y.tolist()) == python_result(CASES[case])


ATOMIC = {
    "old value then load": ("y[0] = tack.atomic_add(x, 0, 5) * 100 + x[0]", 4 * 100 + 9, 9),
    "load then atomic": ("y[0] = x[0] * 100 + tack.atomic_add(x, 0, 5)", 400 + 4, 9),
    "two atomics": ("y[0] = tack.atomic_add(x, 0, 1) * 10 + tack.atomic_add(x, 0, 1)", 45, 6),
    "value reads the element": ("y[0] = tack.atomic_add(x, 0, x[0]) + x[0]", 12, 8),
    "index before value": (
        "y[0] = tack.atomic_add(x, tack.atomic_sub(x, 3, 3), tack.atomic_add(x, 3, 1))",
        1,
        4,
    ),
    "conditional atomic": ("y[0] = tack.atomic_add(x, 0, 1) if x[0] > 9 else tack.atomic_add(x, 0, 2)", 4, 6),
    "short circuit": ("y[0] = x[0] > 9 and tack.atomic_add(x, 0, 1)", 0, 4),
    "nested": ("y[0] = tack.atomic_add(x, 0, tack.atomic_add(x, 0, 1))", 5, 9),
}


@pytest.mark.parametrize("case", ATOMIC)
def test_order_of_atomics(case: str) -> None:
    statement, result, element = ATOMIC[case]
    x, y = np.array([4, 1, 2, 3], np.int32), np.zeros(1, np.int64)
    run(f"@tack.kernel\ndef kernel(x, y):\n    for i in range(1):\n        {statement}\n", x, y)
    assert (int(y[0]), int(x[0])) == (result, element)


def test_inlined_calls_keep_their_place_among_atomics_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    source = """
        @tack.func
        def f(x, n):
            print("f", n, x[0])
            x[0] += n
            return x[0]

        @tack.kernel
        def kernel(x, y):
            for i in range(1):
                print(f(x, 1), x[0], f(x, 2), x[0])
                y[0] = f(x, 3) + tack.atomic_add(x, 0, 10) + f(x, 4)
    """
    x, y = np.zeros(1, np.int32), np.zeros(1, np.int64)
    run(source, x, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines == said(["f 1 0", "f 2 1", "1 1 3 3", "f 3 3", "f 4 16"])
    assert y[0] == 6 + 6 + 20
    assert x[0] == 20


def test_stores_in_a_function_called_in_an_index_are_seen_by_the_load() -> None:
    source = """
        @tack.func
        def f(x):
            x[1] = 50
            return 1
        @tack.kernel
        def kernel(x, y):
            for i in range(1):
                y[0] = x[f(x)]
                y[1] = x[1] + x[f(x)] * 0
        """
    x, y = np.array([1, 2]), np.zeros(2, np.int64)
    run(source, x, y)
    assert y.tolist() == [50, 50]
