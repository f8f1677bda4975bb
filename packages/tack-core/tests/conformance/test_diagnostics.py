"""Newcomers' mistakes: each message names the kernel, the place, shows the line, and says what to change."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tack

from .helpers import OPEN, Rejection, execute, launch, mark

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError

# name: (type, statements of the loop, words of which the hint must have one)
MISTAKES: dict[str, tuple[Any, str, list[str]]] = {
    "captured global": (NameError, "o[i] = «SCALE» * 2", ["tack.constant", "argument"]),
    "misspelled argument": (NameError, "o[i] = «cuont»", ["count"]),
    "misspelled local": (NameError, "velocity = 3\n        o[i] = «velocty»", ["velocity"]),
    "misspelled builtin": (NameError, "o[i] = «sqtr(2.0)", ["sqrt"]),
    "set under an if only": (
        NameError,
        "if count > 0:\n            «v = 1\n        o[i] = «v»",
        ["else", "before", "assign"],
    ),
    "loop variable afterwards": (
        NameError,
        "for k in range(3):\n            o[i] = k\n        o[i] = «k»",
        ["local", "loop"],
    ),
    "append to a list": (SYNTAX, "v = «[]", ["local_array", "separate"]),
    "list comprehension": (SYNTAX, "v = «[k for k in range(3)]", ["loop", "for", "local_array"]),
    "assert": (SYNTAX, "«assert count > 0", ["if", "host", "before"]),
    "raise": (SYNTAX, "«raise ValueError('x')", ["host", "array", "flag", "before", "store"]),
    "try": (
        SYNTAX,
        "«try:\n            o[i] = 1\n        except Exception:\n            pass",
        ["if", "never", "exception"],
    ),
    "f-string": (SYNTAX, "print(«f'{i}')", ["print("]),
    "is": (SYNTAX, "if «i is count:\n            o[i] = 1", ["=="]),
    "in": (SYNTAX, "if «i in (1, 2):\n            o[i] = 1", ["==", "or", "loop"]),
    "python function": (SYNTAX, "o[i] = «helper(i)", ["@tack.func"]),
    "numpy function": (SYNTAX, "o[i] = «np.zeros(3)", ["zeros", "kernel"]),
    "slice": (SYNTAX, "«o[«0:2] = 1", ["loop", "index"]),
    "for over an array": (SYNTAX, "for v in «o:\n            o[i] = v", ["range"]),
    "return in the loop": (SYNTAX, "«return", ["continue"]),
    "break of the parallel loop": (SYNTAX, "«break", ["continue"]),
    "signed with u64": (TypeError, "v = «u[i] + count", ["tack.u64", "tack.i64", "cast"]),
    "float index": (TypeError, "«o[«i / 2] = 1", ["//", "int("]),
    "bit operation on floats": (TypeError, "v = «o[i] & 1", ["int", "cast"]),
    "wrong index count": (TypeError, "«o[i, 0]» = 1", ["1"]),
    "array as a number": (TypeError, "v = «o» + 1", ["index", "element", "[i]"]),
    "number as an array": (TypeError, "v = «count[i]", ["array", "scalar"]),
    "negative power": (TypeError, "v = «i ** «-1", ["float"]),
    "wrong arity of a function": (TypeError, "v = «twice(1, 2)", ["1 argument", "takes 1", "twice"]),
    "lambda": (SYNTAX, "f = «lambda a: a", ["@tack.func"]),
    "walrus": (
        SYNTAX,
        "if «(«w := i) > 0:\n            o[i] = w",
        ["before", "own line", "statement", "assign"],
    ),
    "nested function": (SYNTAX, "«def inner(a):\n            return a", ["@tack.func"]),
    "literal step": (
        SYNTAX,
        "for k in range(9, 0, «-1»):\n            o[i] = k",
        ["range", "positive", "- k"],
    ),
}
HEAD = """SCALE = 3

def helper(a):
    return a

@tack.func
def twice(a):
    return 2 * a

@tack.kernel
def kernel(o, u, count):
    for i in range(3):
        """


def messages(directory: Path, name: str) -> tuple[Exception, str, Path, list[tuple[int, int]], str]:
    _, statement, _ = MISTAKES[name]
    source, places = mark(HEAD + statement + "\n")
    path = directory / "shade é.py"
    path.write_text(source, encoding="utf-8")
    kernel = execute(source, str(path))["kernel"]
    try:
        launch(kernel, np.zeros(3), np.zeros(3, np.uint64), 2)
    except Exception as error:
        return error, str(error), path, places, source
    raise AssertionError("accepted")


@pytest.mark.parametrize("name", MISTAKES)
def test_message_of_a_newcomers_mistake(name: str, tmp_path: Path) -> None:
    kind, _, words = MISTAKES[name]
    error, text, path, places, source = messages(tmp_path, name)
    assert type(error) is kind, text
    assert "'kernel'" in text, "names the kernel"
    assert text.count("kernel 'kernel'") == 1, f"names it once:\n{text}"
    found = [(line, column) for line, column in places if f"{path}:{line}:{column}" in text]
    assert found, f"absolute place {path} {places} missing in\n{text}"
    line, column = found[-1] if kind is NameError else found[0]
    shown = source.splitlines()[line - 1]
    rows = text.splitlines()
    at = [k for k, row in enumerate(rows) if shown in row]
    assert at, f"source line missing in\n{text}"
    shift = rows[at[0]].index(shown)
    assert any(rows[k + 1][shift + column - 1 : shift + column] == "^" for k in at), (
        f"no caret under the construct in\n{text}"
    )
    rest = text.replace(shown, "")
    assert any(word in rest for word in words), f"no hint ({words}) in\n{text}"
    assert len(text.splitlines()) <= 14, "short enough to read"
    assert all(len(row) < 300 for row in rows)


def test_inlining_chain(tmp_path: Path) -> None:
    source, [(line, column)] = mark(
        """
@tack.func
def inner(a, x):
    return a + «missing»

@tack.func
def shade(a, x):
    b = 2
    return inner(a, x) * b

@tack.kernel
def render(o):
    for i in range(3):
        o[i] = 1 + shade(i, o)
"""
    )
    path = tmp_path / "chain.py"
    path.write_text(source)
    with pytest.raises(NameError) as caught:
        launch(execute(source, str(path))["render"], np.zeros(3))
    text = str(caught.value)
    assert text.index(f"{path}:{line}:{column}") < text.index("inner', called from")
    order = [m.start() for m in re.finditer(r"in func '", text)]
    assert len(order) == 2
    assert f"in func 'inner', called from func 'shade', at {path}:8:12" in text
    assert f"in func 'shade', called from kernel 'render', at {path}:13:20" in text


def test_chain_across_files(tmp_path: Path) -> None:
    first, second = tmp_path / "library.py", tmp_path / "program.py"
    library = "@tack.func\ndef f(a):\n    return a & 0.5\n"
    program = "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = f(i)\n"
    first.write_text(library)
    second.write_text(program)
    f = execute(library, str(first))["f"]
    with pytest.raises(TypeError) as caught:
        launch(execute(program, str(second), f=f)["kernel"], np.zeros(1))
    assert f"{first}:3:12" in str(caught.value)
    assert f"{second}:4:16" in str(caught.value)


def test_columns_count_characters_not_bytes(rejects: Rejects) -> None:
    rejects(
        NameError,
        """
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    größe = 1; o[i] = größe + «fehlt»  # é
            """,
        np.zeros(1),
    )


def test_position_inside_an_indented_class_and_after_decorators(rejects: Rejects) -> None:
    source = """
        class Holder:
            def make(self):
                @(
                    tack.kernel
                )
                def kernel(o):

                    for i in range(1):
                        o[i] = (1 +
                            2 * «nope»)
                return kernel
        kernel = Holder().make()
    """
    rejects(NameError, source, np.zeros(1))


def test_tabs_keep_columns(rejects: Rejects) -> None:
    rejects(NameError, "@tack.kernel\ndef kernel(o):\n\tfor i in range(1):\n\t\to[i] = «nope»\n", np.zeros(1))


def test_argument_errors_name_kernel_and_parameter_once() -> None:
    kernel = execute(
        "@tack.kernel\ndef render(image, count):\n    for i in range(count):\n        image[i] = 1\n"
    )["render"]
    for args, word in (
        (("x", 3), "image"),
        ((np.zeros(3), "x"), "count"),
        ((np.zeros(3), 2**70), "count"),
        ((np.zeros(3),), "count"),
        ((np.zeros(3), 1, 2), "argument"),
    ):
        with pytest.raises(TypeError) as caught:
            launch(kernel, *args) if len(args) == 2 else kernel(*args)
        text = str(caught.value)
        assert text.count("render") == 1
        assert word in text


def test_multi_line_construct_shows_its_first_line(rejects: Rejects) -> None:
    found = rejects(
        SYNTAX,
        """
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    v = «[
                        k
                        for k in range(3)
                    ]
            """,
        np.zeros(1),
    )
    assert "v = [" in found.text


def test_marks_are_stripped() -> None:
    source, places = mark("a\n  «b = «c»\n")
    assert OPEN not in source
    assert places == [(2, 3), (2, 7)]
