"""Language.md section 2: what the language does not have, and calls that it does not allow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tack

from .helpers import Rejection

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


# --- what the language does not have ----------------------------------------------------------

STATEMENTS = {
    "annotated assignment": "«v: int = 3»",
    "annotation alone": "«v: int»",
    "walrus": "v = («(«w := 3)) + 1",
    "del": "«del o»",
    "global": "«global o2»",
    "nonlocal": "«nonlocal cell»",
    "assert": "«assert i == 0»",
    "raise": "«raise ValueError»",
    "try": "«try:\n            v = 1\n        finally:\n            pass",
    "with": "«with o:\n            v = 1",
    "import": "«import math»",
    "from import": "«from math import sin»",
    "nested def": "«def inner():\n            pass",
    "nested class": "«class Inner:\n            pass",
    "lambda": "v = «lambda: 1»",
    "list comprehension": "v = «[k for k in range(3)]»",
    "set comprehension": "v = «{k for k in range(3)}»",
    "dict comprehension": "v = «{k: k for k in range(3)}»",
    "generator": "v = «(«k for k in range(3))",
    "match": "«match i:\n            case 0:\n                v = 1",
    "f-string": "v = «f'{i}'»",
    "string": "v = «'text'»",
    "set": "v = «{1, 2}»",
    "dict": "v = «{1: 2}»",
    "slice": "v = «o[«0:2]»",
    "slice store": "«o[«:] = 1",
    "ellipsis index": "v = «o[«...]",
    "is": "v = «i is o»",
    "is not": "v = «i is not o»",
    "in": "v = «i in o»",
    "not in": "v = «i not in o»",
    "bytes": "v = «b'x'»",
    "starred target": "«a, «*b = 1, 2, 3",
    "starred value": "v = max(«*o)",
    "complex": "v = «2j»",
    "complex sum": "v = 1 + «2j»",
    "None": "v = «None»",
    "empty list": "v = «[]»",
    "list as target": "«[a, b]» = 1, 2",
    "list iterated": "«for v in «[1, 2]:\n            pass",
    "keyword to a device function": "v = «f(«a=i)",
    "keyword to a builtin": "v = «min(1, 2, «key=3)",
    "attribute of a scalar": "v = «i.real",
    "matrix product": "v = «i @ i",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_unsupported_statement(rejects: Rejects, name: str) -> None:
    source = """
@tack.func
def f(a):
    return a

def factory():
    cell = 0

    @tack.kernel
    def kernel(o):
        for i in range(2):
            o[i] = 1
            @@@
    return kernel

kernel = factory()
"""
    statement = STATEMENTS[name].replace("\n        ", "\n            ")
    kind = (SYNTAX, TypeError) if name in ("attribute of a scalar", "matrix product") else SYNTAX
    rejects(kind, source.replace("@@@", statement), np.zeros(2, np.int32))


def test_yield_and_await_are_rejected(rejects: Rejects) -> None:
    rejects(SYNTAX, "@tack.kernel\ndef kernel(o):\n    for i in range(2):\n        «yield i\n", np.zeros(2))
    rejects(
        SYNTAX, "@tack.kernel\ndef kernel(o):\n    for i in range(2):\n        v = «(«yield)\n", np.zeros(2)
    )


@pytest.mark.parametrize(
    "dead",
    [
        "if 0:\n            {}",
        "while 0:\n            {}",
        "if n < n:\n            {}",
        "continue\n        {}",
    ],
)
def test_unreachable_code_is_validated_too(rejects: Rejects, dead: str) -> None:
    statement = dead.format("«assert i")
    source = (
        f"@tack.kernel\ndef kernel(o, n):\n    for i in range(2):\n        o[i] = 1\n        {statement}\n"
    )
    rejects(SYNTAX, source, np.zeros(2), 3)


def test_unused_device_function_arm_is_validated_too(rejects: Rejects) -> None:
    source = """
        @tack.func
        def f(a):
            return a
            «del a

        @tack.kernel
        def kernel(o):
            for i in range(2):
                if 0:
                    o[i] = f(1)
    """
    rejects(SYNTAX, source, np.zeros(2))


# --- calls ------------------------------------------------------------------------------------


def test_ordinary_python_calls_are_rejected_with_the_chain(rejects: Rejects) -> None:
    source = """
        def plain(a):
            return a

        @tack.func
        def outer(a):
            return «plain(a)

        @tack.kernel
        def kernel(o):
            for i in range(2):
                o[i] = outer(i)
    """
    found = rejects(SYNTAX, source, np.zeros(2))
    assert "plain" in found.text
    assert "outer" in found.text
    assert f"{found.path}:11:" in found.text, found.text


@pytest.mark.parametrize(
    "call",
    [
        "print2(1)",
        "sum(o)",
        "sorted(o)",
        "np.zeros(3)",
        "math.factorial(3)",
        "open('x')",
        "range(3)",
        "o.sum()",
        "str(i)",
        "list(o)",
        "i(3)",
    ],
)
def test_calls_of_functions_that_kernels_do_not_have(rejects: Rejects, call: str) -> None:
    source = f"""
        def print2(a):
            pass
        @tack.kernel
        def kernel(o):
            for i in range(2):
                v = «{call}
        """
    rejects((SYNTAX, TypeError), source, np.zeros(2))


def test_callable_parameter_is_rejected(rejects: Rejects) -> None:
    source = """
        @tack.func
        def g(a):
            return a

        @tack.func
        def apply(f, a):
            return «f(a)

        @tack.kernel
        def kernel(o):
            for i in range(2):
                o[i] = «apply(«g, i)
    """
    rejects(SYNTAX, source, np.zeros(2))


def test_recursion_is_rejected_with_the_chain(rejects: Rejects) -> None:
    source = """
        @tack.func
        def odd(a):
            return «even(a - 1)

        @tack.func
        def even(a):
            return «odd(a - 1)

        @tack.kernel
        def kernel(o):
            for i in range(2):
                o[i] = «odd(i)
    """
    found = rejects(SYNTAX, source, np.zeros(2))
    assert "odd" in found.text
    assert "even" in found.text
    rejects(
        SYNTAX,
        """
            @tack.func
            def f(a):
                return «f(a)

            @tack.kernel
            def kernel(o):
                for i in range(2):
                    o[i] = f(i)
            """,
        np.zeros(2),
    )


def test_kernel_called_from_a_kernel_is_rejected(rejects: Rejects) -> None:
    source = """
        @tack.kernel
        def other(o):
            for i in range(2):
                o[i] = 1

        @tack.kernel
        def kernel(o):
            for i in range(2):
                «other(o)
    """
    rejects((SYNTAX, TypeError), source, np.zeros(2))
