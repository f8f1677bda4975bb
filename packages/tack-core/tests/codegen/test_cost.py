"""The cost estimate orders kernels as their work does."""

from __future__ import annotations

import pytest

from tack.codegen.cost import longest_cost
from tack.codegen.llvm import iteration_cost
from tack.ir.parser import parse


def cost(body: str) -> float:
    return iteration_cost(
        parse(
            f"""kernel k(x: f32[], n: i64[]) {{
              local i: i64
              local j: i64
              local v: f32
              parallel i in (0:i64, dim(x, 0), 1:i64) {{
                %v = 1.0:f32
                {body}
              }}
            }}"""
        )
    )


def test_more_work_costs_more() -> None:
    empty = cost("")
    add = cost("%v = add(%v, 2.0:f32)")
    load = cost("%v = add(%v, x[%i])")
    sine = cost("%v = call.sin(%v)")
    assert 0 < empty < add < load < sine < 100
    assert cost("%v = div(%v, 3.0:f32)") > add
    assert cost("n[%i] = floordiv(n[%i], 3:i64)") > cost("n[%i] = add(n[%i], 3:i64)")
    assert cost("atomic_add x[0:i64], %v") > cost("x[0:i64] = %v")
    assert cost("print %v") > 100


def test_loops_multiply() -> None:
    once = cost("%v = call.erf(%v)") - cost("")
    loop = "for %j in (0:i64, {}, 1:i64) {{\n %v = call.erf(%v)\n }}"
    assert 100 * once < cost(loop.format("100:i64")) < 110 * once
    assert 10 * once < cost(loop.format("n[%i]")) < 30 * once  # unknown: some
    assert 10 * once < cost("while lt(%v, 0.5:f32) {\n %v = call.erf(%v)\n }") < 30 * once
    assert cost(loop.format("call.min(100:i64, n[%i])")) > 100 * once  # at most: that many
    assert cost(loop.format("0:i64")) < once
    assert cost("for %j in (0:i64, 5:i64, 0:i64) {\n %v = call.erf(%v)\n }") < once


def test_one_branch_counts() -> None:
    sine, cube = "%v = call.sin(%v)", "%v = call.cbrt(%v)"
    both = cost(f"if %v {{\n {sine}\n }} else {{\n {cube}\n }}")
    assert cost(sine) < both < cost(f"{sine}\n {cube}")


def test_index_arithmetic_is_nearly_free_but_gathers_are_not() -> None:
    plain = cost("%v = x[%i]")
    assert cost("%v = x[add(mul(%i, 3:i64), mul(%i, %i))]") == pytest.approx(plain)
    assert cost("%v = x[add(n[%i], 1:i64)]") > plain
    assert cost("%v = x[floordiv(%i, 3:i64)]") > plain + 1


def test_loops_of_unknown_length_may_be_longer() -> None:
    """Those alone, and those outside the parallel loop too."""
    sine = "for %j in (0:i64, {}, 1:i64) {{\n %v = call.sin(%v)\n }}"
    text = """kernel k(x: f32[], n: i64) {{
      local i: i64
      local j: i64
      local v: f32
      %v = 1.0:f32
      {before}
      parallel i in (0:i64, dim(x, 0), 1:i64) {{
        {body}
      }}
    }}"""

    def longest(trips: int, before: str, body: str) -> float:
        return longest_cost(parse(text.format(before=before, body=body)), trips)

    fixed, unknown = sine.format("1000:i64"), sine.format("$n")
    assert longest(5000, "", fixed) == longest(0, "", fixed)
    assert longest(5000, "", unknown) == pytest.approx(5 * longest(1000, "", unknown), rel=0.01)
    assert longest(1000, "", fixed + "\n" + unknown) == pytest.approx(2 * longest(0, "", fixed), rel=0.01)
    assert longest(5000, unknown, "") == pytest.approx(longest(5000, "", unknown))
    assert longest(3, "", unknown) == longest(0, "", unknown) > 0
