"""Neighbouring iterations that run their inner loops together: which kernels do, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from tack.codegen.llvm import generate, jit
from tack.codegen.outer_loops import lane_locals
from tack.ir.parser import parse

from .harness import Compiled

HEAD = """kernel k(x: f32[], y: f32[], m: i32[], n: i64) {
  local i: i64
  local j: i64
  local k: i64
  local p: i64
  local q: i64
  local s: f32
  local t: f32
"""


def kernel(body: str, ranges: str = "i in (0:i64, dim(y, 0), 1:i64)") -> str:
    return f"{HEAD}  parallel {ranges} {{\n{body}\n  }}\n}}"


def sum_of(term: str, bounds: str = "0:i64, $n, 1:i64") -> str:
    return f"%s = 0.5:f32\nfor %j in ({bounds}) {{\n%s = add(%s, {term})\n}}\ny[%i] = %s"


# Bodies that do, with the locals that differ between iterations.
TOGETHER = {
    "window": (sum_of("x[add(%i, %j)]"), "s"),
    "the same for all": (sum_of("mul(x[%j], x[%i])"), "s"),
    "in the array itself": ("for %j in (0:i64, $n, 1:i64) {\ny[%i] = add(y[%i], x[add(%i, %j)])\n}", ""),
    "with a step": (sum_of("x[add(%i, %j)]", "1:i64, $n, 3:i64"), "s"),
    "down to a local": (f"%p = sub($n, 1:i64)\n{sum_of('x[%j]', '0:i64, %p, 1:i64')}", "s"),
    "elements of three": (sum_of("x[add(mul(%i, 3:i64), 1:i64)]"), "s"),
    "nested": (
        "%s = 0.0:f32\nfor %j in (0:i64, $n, 1:i64) {\n%t = x[%j]\nfor %k in (%j, $n, 1:i64) {\n"
        "%s = add(%s, mul(%t, x[add(%i, %k)]))\n}\n%s = mul(%s, 0.5:f32)\n}\ny[%i] = %s",
        "st",
    ),
    "a place that a local says": (
        "%s = 0.0:f32\nfor %j in (0:i64, $n, 1:i64) {\n%p = mul(%j, 2:i64)\n%s = add(%s, x[add(%i, %p)])\n}\n"
        "y[%i] = %s",
        "s",
    ),
    "a counter of its own": (
        "%s = 0.0:f32\n%p = 1:i64\nfor %j in (0:i64, $n, 1:i64) {\n%p = add(%p, %j)\n"
        "%s = add(%s, mul(x[%i], cast.f32(%p)))\n}\ny[%i] = %s",
        "ps",
    ),
    "one behind the other": (
        "%s = 0.0:f32\n%t = 0.0:f32\nfor %j in (0:i64, $n, 1:i64) {\n%s = add(mul(%s, 0.5:f32), %t)\n"
        "%t = x[add(%i, %j)]\n}\ny[%i] = add(%s, %t)",
        "st",
    ),
    "a condition": (
        "%s = 0.0:f32\nfor %j in (0:i64, $n, 1:i64) {\nif gt(x[add(%i, %j)], 0.5:f32) {\n"
        "%s = add(%s, 1.0:f32)\n} else {\n%s = sub(%s, x[%j])\n}\n}\nif gt(%s, 1.0:f32) {\ny[%i] = %s\n}",
        "s",
    ),
    "several loops": (
        f"{sum_of('x[add(%i, %j)]')}\n%t = %s\n%s = 0.0:f32\n"
        "for %k in (0:i64, 9:i64, 1:i64) {\n%s = add(mul(%s, %t), x[%k])\n}\ny[%i] = add(%s, %t)",
        "st",
    ),
    "what it reads once": (f"%q = cast.i64(m[%i])\n%t = x[%q]\n{sum_of('mul(x[add(%i, %j)], %t)')}", "qst"),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_which_kernels_do(case: str) -> None:
    body, own = TOGETHER[case]
    assert lane_locals(parse(kernel(body))) == set(own)


ALONE = {
    "no loop": "y[%i] = x[%i]",
    "a short loop": sum_of("x[add(%i, %j)]", "0:i64, 3:i64, 1:i64"),
    "a length of its own": sum_of("x[%j]", "0:i64, %i, 1:i64"),
    "a length that an array says": f"%p = cast.i64(m[%i])\n{sum_of('x[%j]', '0:i64, %p, 1:i64')}",
    "a length that changes": f"%p = $n\n%p = add(%p, %i)\n{sum_of('x[%j]', '0:i64, %p, 1:i64')}",
    "rows": sum_of("x[add(mul(%i, 64:i64), %j)]"),
    "what an array says": sum_of("x[cast.i64(m[%j])]"),
    "one element that all write": "for %j in (0:i64, $n, 1:i64) {\ny[%j] = x[%i]\n}",
    "a loop that may end": sum_of("x[%j]").replace("%s = add", "if gt(%s, 9.0:f32) {\nbreak\n}\n%s = add"),
    "a loop under a condition": f"if gt(x[%i], 0.0:f32) {{\n{sum_of('x[%j]')}\n}}",
    "another kind of loop": f"while lt(%s, 1.0:f32) {{\n%s = add(%s, 1.0:f32)\n}}\n{sum_of('x[%j]')}",
    "atomics": f"{sum_of('x[%j]')}\natomic_add y[%i], 1.0:f32",
    "a loop variable that changes": sum_of("x[%j]").replace("%s = add", "%j = add(%j, 1:i64)\n%s = add"),
}


@pytest.mark.parametrize("case", ALONE)
def test_which_kernels_do_not(case: str) -> None:
    assert lane_locals(parse(kernel(ALONE[case]))) is None


def test_only_along_the_last_axis_and_without_steps() -> None:
    body = sum_of("x[add(%i, %j)]")
    rows = "k in (0:i64, 4:i64, 1:i64), i in (0:i64, 9:i64, 1:i64)"
    stepped = "i in (0:i64, 9:i64, 2:i64)"
    found = [lane_locals(parse(kernel(body, ranges))) for ranges in (rows, stepped)]
    assert found == [{"s"}, None]


# --- what they compute --------------------------------------------------------------------------


@pytest.mark.parametrize("case", TOGETHER)
def test_they_compute_what_one_alone_does(case: str) -> None:
    text = kernel(TOGETHER[case][0])
    together, alone = Compiled(text, disjoint=True), Compiled(text)
    rng = np.random.default_rng(len(case))
    m = rng.integers(0, 100, 200).astype(np.int32)
    x = rng.normal(size=1000).astype(np.float32)
    start = rng.normal(size=260).astype(np.float32)
    for n in (0, 1, 7, 20):
        for count in (1, 31, 32, 33, 130, 200):
            results = []
            for compiled in (together, alone):
                y = start.copy()
                compiled({"x": x, "y": y, "m": m, "n": n}, [(0, 1, count)], (0, count // 3, count))
                assert np.array_equal(y[count:], start[count:])
                results.append(y)
            assert np.allclose(*results, rtol=1e-4, atol=1e-4)
            assert n == 0 or case == "a condition" or not np.array_equal(results[0], start)


@pytest.mark.parametrize("width", [1, 31, 64, 70])
def test_rows(width: int) -> None:
    """A matrix product, exact in i32."""
    text = f"""kernel product(a: i32[,], b: i32[,], c: i32[,]) {{
  local i: i64
  local j: i64
  local k: i64
  local s: i32
  parallel i in (0:i64, dim(a, 0), 1:i64), j in (0:i64, {width}:i64, 1:i64) {{
    %s = 0:i32
    for %k in (0:i64, 50:i64, 1:i64) {{
      %s = add(%s, mul(a[add(mul(%i, 50:i64), %k)], b[add(mul(%k, {width}:i64), %j)]))
    }}
    c[add(mul(%i, {width}:i64), %j)] = %s
  }}
}}"""
    assert lane_locals(parse(text)) == {"s"}
    rng = np.random.default_rng(width)
    a, b = (rng.integers(-9, 9, shape).astype(np.int32) for shape in ((13, 50), (50, width)))
    c = np.zeros((13, width), np.int32)
    total = 13 * width
    Compiled(text, disjoint=True)(
        {"a": a, "b": b, "c": c}, [(0, 1, 13), (0, 1, width)], (0, total // 3, total)
    )
    assert np.array_equal(c, a @ b)


@pytest.mark.skipif(not jit.vector_bits(), reason="no vector registers that code is written for")
@pytest.mark.parametrize("case", ["window", "in the array itself", "the same for all", "nested"])
def test_sums_are_in_vector_registers(case: str) -> None:
    optimized = jit.optimized_ir(generate(parse(kernel(TOGETHER[case][0])), disjoint=True))
    assert "phi <" in optimized  # a sum that the inner loop carries
    assert "alloca" not in optimized
