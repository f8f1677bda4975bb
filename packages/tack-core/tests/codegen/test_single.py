"""Which locals need no memory, and that the others keep theirs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tack
from tack.codegen.single import single_valued
from tack.ir.parser import parse


def single(body: str, before: str = "", after: str = "") -> set[str]:
    return single_valued(
        parse(
            f"""kernel k(x: f32[], n: i64) {{
              local a: f32
              local b: f32
              local i: i64
              local j: i64
              {before}
              parallel i in (0:i64, dim(x, 0), 1:i64) {{
                {body}
              }}
              {after}
            }}"""
        )
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%a = 1.0:f32\n x[%i] = %a", {"a", "i"}),
        ("%a = 1.0:f32\n %a = add(%a, %a)\n x[%i] = %a", {"i"}),  # set twice
        ("x[%i] = %a\n %a = 1.0:f32", {"i"}),  # read before it is set
        ("%a = %a\n x[%i] = %a", {"i"}),
        ("%i = add(%i, 1:i64)\n x[%i] = 1.0:f32", set()),  # the loop sets it too
        ("if x[%i] {\n %a = 1.0:f32\n x[%i] = %a\n }", {"a", "i"}),
        ("if x[%i] {\n %a = 1.0:f32\n }\n x[%i] = %a", {"i"}),  # read where it may not be set
        ("if x[%i] {\n %a = 1.0:f32\n } else {\n x[%i] = %a\n }", {"i"}),
        ("%a = 1.0:f32\n while x[%i] {\n %b = %a\n x[%i] = %b\n }", {"a", "b", "i"}),
        ("while %b {\n %b = 1.0:f32\n }", {"i"}),  # the condition reads the round before
        ("while x[%i] {\n x[%i] = %b\n %b = 1.0:f32\n }", {"i"}),
        ("for %j in (0:i64, 4:i64, 1:i64) {\n x[%j] = 1.0:f32\n }", {"i", "j"}),
        ("for %j in (0:i64, 4:i64, 1:i64) {\n x[%j] = 1.0:f32\n }\n x[%j] = 2.0:f32", {"i"}),
        ("for %j in (0:i64, %j, 1:i64) {\n x[%j] = 1.0:f32\n }", {"i"}),  # its range reads it
        ("%a = atomic_add x[%i], 1.0:f32\n x[%i] = %a", {"i"}),
    ],
)
def test_which_locals_are_plain_values(body: str, expected: set[str]) -> None:
    assert single(body) == expected


def test_before_and_after_the_loop() -> None:
    assert single("x[%i] = %a", before="%a = 1.0:f32") == {"a", "i"}
    assert single("x[%i] = %a\n %a = 2.0:f32", before="%a = 1.0:f32") == {"i"}
    assert single("x[%i] = 1.0:f32", before="%a = 1.0:f32", after="%b = %a") == {"a", "b", "i"}
    assert single("%a = 1.0:f32", after="%b = %a") == {"b", "i"}


def test_parameters_of_inlined_functions_take_no_memory() -> None:
    @tack.func
    def mix(a, b, t):  # type: ignore[no-untyped-def]
        return a + t * (b - a)

    @tack.kernel
    def k(x, out):  # type: ignore[no-untyped-def]
        for i in range(x.shape[0]):
            total = 0.0
            for _ in range(3):
                total += mix(x[i], mix(total, x[i], 0.25), 0.5)
            out[i] = total

    x = np.arange(1, 6, dtype=np.float32)
    out = np.zeros(5, np.float32)
    source = tack.inspect(k, x, out, mode="source")
    assert set(re.findall(r'%"?([\w.]+)"? = alloca', source)) == {"total"}
    k(x, out)
    expected = np.zeros(5)
    for _ in range(3):
        expected += x + 0.5 * ((expected + 0.25 * (x - expected)) - x)
    assert np.allclose(out, expected, rtol=1e-6)
