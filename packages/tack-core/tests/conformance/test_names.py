"""Language.md section 2: names, definite assignment, and signed integers beside u64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tack

from .helpers import Rejection, run, value, values

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


# --- names ------------------------------------------------------------------------------------


def test_captured_python_name_is_a_name_error(rejects: Rejects) -> None:
    found = rejects(
        NameError,
        "G = 3\n@tack.kernel\ndef kernel(o):\n    for i in range(2):\n        o[i] = «G»\n",
        np.zeros(2),
    )
    assert "'G'" in found.text
    assert "tack.constant" in found.text
    assert "argument" in found.text
    found = rejects(
        NameError,
        """
            def factory(cell):
                @tack.kernel
                def kernel(o):
                    for i in range(2):
                        o[i] = «cell»
                return kernel
            kernel = factory(4)
            """,
        np.zeros(2),
    )
    assert "'cell'" in found.text
    assert "tack.constant" in found.text


def test_undefined_name_is_a_name_error(rejects: Rejects) -> None:
    found = rejects(
        NameError,
        "@tack.kernel\ndef kernel(o, count):\n    for i in range(2):\n        o[i] = 1 + «cuont»\n",
        np.zeros(2),
        3,
    )
    assert "cuont" in found.text
    rejects(
        NameError,
        "@tack.kernel\ndef kernel(o):\n    for i in range(2):\n        o[i] = «nothing(i)\n",
        np.zeros(2),
    )


def test_loop_variable_read_after_its_loop(rejects: Rejects) -> None:
    for tail in ("o[1] = «k»", "if o[0] > 0:\n                    o[1] = 1 + «k»"):
        source = f"""
            @tack.kernel
            def kernel(o):
                for i in range(2):
                    for k in range(3):
                        o[0] = k
                    {tail.replace("                    ", "                        ")}
        """
        rejects(NameError, source, np.zeros(2))
    rejects(
        NameError,
        "@tack.kernel\ndef kernel(o) -> int:\n    for i in range(2):\n        o[i] = 1\n    return «i»\n",
        np.zeros(2),
    )


def test_loop_variable_may_be_reused_and_assigned_afterwards() -> None:
    setup = "s = 0\nfor k in range(3):\n    s += k\nfor k in range(4):\n    s += 10 * k\nk = 7"
    assert values(["s", "k"], np.int64, setup=setup) == [63, 7]


UNASSIGNED = {
    "under an if": "if i > 0:\n            «v = 7\n        o[i] = «v»",
    "in one arm": """
        if i > 0:
            «v = 7
        else:
            w = 1
        o[i] = «v»
        """,
    "in a loop that may not run": "for k in range(n):\n            «v = k\n        o[i] = «v»",
    "in a while": "while o[i] > 0:\n            «v = 7\n            break\n        o[i] = «v»",
    "after a break": """
        while True:
            if i > n:
                break
            «v = 7
            break
        o[i] = «v»
        """,
    "after a continue": """
        for k in range(1, 3):
            if k == n:
                continue
            «v = 7
        o[i] = «v»
        """,
    "read before": "o[i] = «v»\n        «v = 7",
    "augmented": "if i > 0:\n            «v = 7\n        «v += 1",
    "in an elif chain": """
        if i > 1:
            «v = 7
        elif i > 0:
            v = 8
        o[i] = «v»
        """,
    "in an empty literal range": "for k in range(0):\n            «v = k\n        o[i] = «v»",
}


@pytest.mark.parametrize("case", UNASSIGNED)
def test_local_that_some_path_leaves_unassigned(rejects: Rejects, case: str) -> None:
    source = f"@tack.kernel\ndef kernel(o, n):\n    for i in range(2):\n        {UNASSIGNED[case].strip()}\n"
    found = rejects(NameError, source, np.zeros(2, np.int32), 2)
    assert "'v'" in found.text
    marked = {
        (n, line.replace("»", "").index("«") + 1)
        for n, line in enumerate(source.splitlines(), 1)
        if "«" in line
    }
    for line, column in marked:
        assert f"{found.path}:{line}:{column}" in found.text, f"both places must be named:\n{found.text}"


def test_local_assigned_on_every_path() -> None:
    setup = """
        if n > 1:
            a = 1
        else:
            a = 2
        for k in range(3):
            b = k
        while True:
            c = 5
            if n > 0:
                break
        if n > 1:
            d = 1
        elif n > 0:
            d = 2
        else:
            d = 3
        for k in range(2, 5):
            if k == 3:
                continue
            e = 0
            e += k
            f = e
        g = 0
        for k in range(n):
            g = k
    """
    assert values(
        ["a", "b", "c", "d", "g"], np.int64, setup=setup.replace("            f = e\n", ""), n=2
    ) == [1, 2, 5, 1, 1]


def test_a_path_that_leaves_the_loop_does_not_count() -> None:
    setup = """
        s = 0
        for k in range(n):
            if k == 1:
                continue
            elif k == 4:
                break
            else:
                v = k
            s += v
    """
    assert value("s", np.int64, setup=setup, n=9) == 0 + 2 + 3


def test_carried_locals_are_not_definite(rejects: Rejects) -> None:
    """Assigned in one iteration, read in the next: the first has no value."""
    source = """
        @tack.kernel
        def kernel(o):
            for i in range(2):
                for k in range(3):
                    if k > 0:
                        o[i] = «v
                    v = k
        """
    rejects(NameError, source, np.zeros(2))


# --- u64 --------------------------------------------------------------------------------------


def test_mixing_signed_with_u64_asks_for_a_cast(rejects: Rejects) -> None:
    for text in ("u[i] + n", "n - u[i]", "u[i] < n", "min(u[i], n)", "u[i] if i else n", "u[i] & -1"):
        source = f"@tack.kernel\ndef kernel(u, n):\n    for i in range(2):\n        v = «{text}»\n"
        found = rejects(TypeError, source, np.zeros(2, np.uint64), 3)
        assert "tack." in found.text, f"no cast suggested:\n{found.text}"


def test_literal_and_loop_index_beside_u64() -> None:
    u = np.array([2**63 + 5], np.uint64)
    setup = "s = u[0] * 0\nfor k in range(3):\n    s = s + k + u[0] // 1152921504606846976"
    assert values(
        ["u[0] + 1", "u[0] // 2", "1 + u[0]", "max(u[0], 7)", "s"], np.uint64, setup=setup, u=u
    ) == [
        2**63 + 6,
        (2**63 + 5) // 2,
        2**63 + 6,
        2**63 + 5,
        0 + 1 + 2 + 3 * ((2**63 + 5) // 2**60),
    ]
    assert value("u[0] > 0", np.int32, u=u) == 1
    out = np.zeros(4, np.uint64)
    run("@tack.kernel\ndef kernel(o, u):\n    for i in range(4):\n        o[i] = u[0] + i\n", out, u)
    assert out.tolist() == [2**63 + 5 + k for k in range(4)]
