"""Workgroups in compiled code: how bodies are split, that lanes are vectorized, and generated kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tack.codegen.llvm import generate, jit
from tack.codegen.regions import Once, Plan, Region, Step, Together, prepared
from tack.ir import interpreter
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.verify import verify

from .harness import Compiled
from .test_jit import run_program

LOCALS = {
    "i32": ("a", "b", "t"),
    "i64": ("i", "j", "l", "w"),
    "f32": ("f", "g", "h"),
}


def kernel(body: str) -> ir.Kernel:
    locals = "\n".join(f"local {n}: {t}" for t, names in LOCALS.items() for n in names)
    found = parse(
        f"kernel k(x: f32[], o: f32[], n: i64) {{\n{locals}\n"
        f"parallel i in (0:i64, dim(x, 0), 1:i64) {{\n{body}\n}}\n}}"
    )
    verify(found)
    return found


def shown(steps: tuple[Step, ...]) -> list[object]:
    """Regions as lists of lines, what is done once as lines, and what is done together as tuples."""
    out: list[object] = []
    for step in steps:
        if isinstance(step, Once):
            out.append(to_text(step.stmt))
        elif isinstance(step, Together):
            head = type(step.stmt).__name__.lower()
            out.append((head, *shown(step.body), *(["else", *shown(step.orelse)] if step.orelse else [])))
        else:
            lines = [line for s in step.body for line in to_text(s).splitlines()]
            out.append(lines + ([f"block_{step.reduce.op}"] if step.reduce else []))
    return out


# --- regions ------------------------------------------------------------------------------------


def test_a_body_is_split_at_its_barriers() -> None:
    plan = Plan(
        kernel(
            """%t = thread_id()
            %f = x[%i]
            %g = mul(%f, 2.0:f32)
            %w = $n
            barrier
            for %j in (0:i64, %w, 1:i64) {
              %h = add(%f, 1.0:f32)
              o[%i] = %h
              %f = block_max(%h)
              if eq(%j, 3:i64) {
                break
              }
              if eq(%f, 0.0:f32) {
                o[%i] = 1.0:f32
              }
            }
            o[cast.i64(%t)] = %f"""
        )
    )
    assert shown(plan.steps) == [
        "%w = $n",
        ["%t = thread_id()", "%f = x[%i]", "%g = mul(%f, 2.0:f32)"],
        (
            "for",
            ["%h = add(%f, 1.0:f32)", "o[%i] = %h", "block_max"],
            ("if", "break"),
            ["if eq(%f, 0.0:f32) {", "  o[%i] = 1.0:f32", "}"],
        ),
        ["o[cast.i64(%t)] = %f"],
    ]
    assert plan.per_lane == ["f"]  # g and h stay in one region, t is computed anew, w and j are kept once
    assert list(plan.remade) == ["t"]
    assert not plan.masked


def test_what_only_some_lanes_leave_is_masked() -> None:
    plan = Plan(
        kernel(
            """block f {
              if gt($n, 3:i64) {
                barrier
                if x[%i] {
                  leave f
                }
                o[%i] = 1.0:f32
              }
              o[%i] = 2.0:f32
            }
            o[0:i64] = 3.0:f32"""
        )
    )
    (block, last) = plan.steps
    assert isinstance(block, Together)
    (branch, rest) = block.body
    assert isinstance(branch, Together)
    assert isinstance(rest, Region)
    assert isinstance(last, Region)
    (inner,) = branch.body
    assert isinstance(inner, Region)
    assert (inner.exits, inner.guards, rest.guards, last.guards) == ((block.stmt,), (), (block.stmt,), ())
    assert plan.masked == {id(block.stmt)}


def test_an_assignment_waits_for_what_it_depends_on() -> None:
    """a is uniform, but a loop inside a region assigns it; w has to be computed after that."""
    plan = Plan(
        kernel(
            """barrier
            %a = 1:i32
            for %j in (0:i64, 3:i64, 1:i64) {
              %a = add(%a, %a)
            }
            %w = cast.i64(%a)
            o[%i] = cast.f32(%w)
            %w = add(%w, 1:i64)
            o[%w] = 1.0:f32"""
        )
    )
    assert shown(plan.steps) == [
        ["%a = 1:i32", "for %j in (0:i64, 3:i64, 1:i64) {", "  %a = add(%a, %a)", "}"],
        "%w = cast.i64(%a)",
        ["o[%i] = cast.f32(%w)"],
        "%w = add(%w, 1:i64)",
        ["o[%w] = 1.0:f32"],
    ]
    assert plan.per_lane == ["a"]


def test_an_assigned_loop_variable_becomes_a_local() -> None:
    changed = prepared(kernel("%i = add(%i, 1:i64)\nbarrier\no[%i] = 1.0:f32"))
    verify(changed)
    assert changed.loop.vars == ("i",)
    assert Plan(changed).per_lane == ["i.own"]


# --- code ---------------------------------------------------------------------------------------

EXCHANGE = """shared s f32(256:i64)
%t = thread_id()
%f = mul(x[%i], 3.0:f32)
s[cast.i64(%t)] = %f
barrier
%g = add(mul(%f, s[cast.i64(sub(255:i32, %t))]), 1.0:f32)
barrier
s[cast.i64(%t)] = %g
%j = 1:i64
while lt(%j, 256:i64) {
  barrier
  if ge(%t, cast.i32(%j)) {
    %g = add(%g, s[sub(cast.i64(%t), %j)])
  }
  barrier
  s[cast.i64(%t)] = %g
  %j = mul(%j, 2:i64)
}
o[%i] = add(%g, %f)"""


def test_loops_over_lanes_are_vectorized() -> None:
    """No float is loaded, stored or added one at a time, with arrays that are known not to overlap."""
    found = kernel(EXCHANGE)
    optimized = jit.optimized_ir(generate(found, disjoint=True))
    assert len(re.findall(r"<\d+ x float>", optimized)) > 20
    vector = [block for block in re.split(r"\n(?=[\w.]+:)", optimized) if "x float>" in block]
    assert len(vector) >= 4
    for block in vector:
        assert not re.search(r"= load float|store float|= fadd (contract )?float", block), block
    x = np.random.default_rng(5).random(512).astype(np.float32)
    o, expected = np.zeros_like(x), np.zeros_like(x)
    Compiled(found, disjoint=True)({"x": x, "o": o, "n": 0}, [(0, 1, 512)])
    interpreter.run(found, {"x": x, "o": expected, "n": 0}, [(0, 1, 512)])
    np.testing.assert_allclose(o, expected, rtol=1e-5)


def test_any_whole_workgroups_may_be_a_chunk() -> None:
    compiled = Compiled(kernel("%f = block_sum(x[%i])\no[%i] = %f"))
    x = np.arange(1280, dtype=np.float32)
    o = np.zeros_like(x)
    compiled({"x": x, "o": o, "n": 0}, [(0, 1, 1280)], splits=(0, 256, 256, 1024, 1280))
    assert o.tolist() == x.reshape(5, 256).sum(1).repeat(256).tolist()


def test_state_of_lanes_that_does_not_fit_on_the_stack_is_refused() -> None:
    body = "array own f32({}:i64)\nown[0:i64] = x[%i]\nbarrier\no[%i] = own[0:i64]"
    generate(kernel(body.format(1000)))
    with pytest.raises(ValueError, match="bytes; at most 1048576 fit on the stack"):
        generate(kernel(body.format(1100)))
    generate(kernel(body.format(1100).replace("barrier\n", "")))


def test_unproven_participation_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel 'k': a barrier that not all iterations"):
        generate(kernel("if x[%i] {\nbarrier\n}"))


@pytest.mark.parametrize("target", ["cpu", "cuda", "cuda-checked", "hip", "hip-64"])
def test_generated_kernels(target: str) -> None:
    assert "kernels agree" in run_program("-m", "codegen.fuzz_workgroups", "12", target)
