"""Printing and parsing: the round trip, what the text looks like, and errors on malformed text."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tack.dtypes import f32, i64
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.printer import number_text, to_text
from tack.ir.verify import verify

from .strategies import generated, generated_kernels, kernels, same, templates

TYPED = """\
kernel render(x: f32[], image: u8[,,], best: i64[.], n: i32 pin i32, scale: f64) -> f64 fastmath {
  local acc: f32
  local i: i64
  local j: i64
  local k: i64
  local old: i64
  local shade.x.2: f64
  table colors f32 (0.5, 1.0, -0.0)
  table mod.primes (2, 3, 18446744073709551615, 1e+300, inf, -nan)
  %acc = -inf:f32
  %shade.x.2 = call.fma($scale, 1e-310:f64, nan:f64)
  parallel i in (0, dim(x, len), 2), j in (sub(0, $n), call.max(dim(image, -1), 1), 1) {
    array stack.1 f32(2:i64, 3:i64)
    shared tile f32(256:i64)
    tile[cast.i64(thread_id())] = 0.0:f32
    barrier
    %acc = block_max(tile[0:i64])
    stack.1[5:i64] = lookup.f32(colors, call.min(%i, 2:i64))
    if and(lt(x[%i], 1.5:f32), not($n)) {
      continue
    } else {
      for %k in (0:i64, cast.i64($n), 1:i64) {
        while 1:i32 {
          break
        }
      }
    }
    block shade.3 {
      %old = atomic_cas best[0:i64], %i, neg(%j)
      atomic_add x[%i], stack.1[5:i64]
      leave shade.3
    }
    print "a \\"b\\" // c\\n\\u00e9", %old
    print
  }
  %acc = bitcast.f32(-2147483648:i32)
  return select(eq(%acc, 0.0:f32), %shade.x.2, pow($scale, 2.0:f64))
}
"""

TEMPLATE = """\
template k(x, image, n pin f64, m, print, nan, table) {
  table T (1, 2.0)
  parallel i in (0, $m, 1) {
    %y = add(x[], image[%i, add(%i, 1)])
    print[0] = 0.1
    shared block_sum f32x2(add(dim(x, 0), 1), 2)
    block_sum[0; 1] = thread_id()
    %y = block_sum[0; 0]
    %s = block_sum(%y)
    image[%i, -1] = call.where(%y, cast.f32(0.1), 2:i64)
    atomic_max x[dim(x, size)], dim(image, 0)
    %z = lookup(T, shl(%i, 1))
    if lt(%i, nan[0]) {
      table[0] = nan
    }
  }
}
"""


@pytest.mark.parametrize("text", [TYPED, TEMPLATE], ids=["typed", "template"])
def test_text_of_parsed_text_is_that_text(text: str) -> None:
    assert to_text(parse(text)) == text.rstrip("\n")


@generated_kernels
@given(kernels(workgroups=True))
def test_typed_kernels_round_trip(kernel: ir.Kernel) -> None:
    text = to_text(kernel)
    parsed = parse(text)
    assert same(parsed, kernel)
    assert to_text(parsed) == text


@generated_kernels
@given(templates())
def test_templates_round_trip(kernel: ir.Kernel) -> None:
    text = to_text(kernel)
    parsed = parse(text)
    assert same(parsed, kernel)
    assert to_text(parsed) == text


@generated
@given(st.floats() | st.integers())
def test_numbers_round_trip(value: float) -> None:
    text = number_text(value)
    template = parse(f"template k() {{\n%x = {text}\nparallel i in (0, 1, 1) {{\n}}\n}}")
    assign = template.before[0]
    assert isinstance(assign, ir.Assign)
    assert same(assign.value, ir.Const(value))
    assert number_text(math.copysign(math.nan, -1)) == "-nan"


def test_layout_is_free_but_for_one_statement_a_line() -> None:
    text = (
        "\n\n// head\ntemplate  k( x,y ){ // open\n\n  // none\nparallel i in(0,1,1){\n\n}\n\n}\n\n// end\n\n"
    )
    assert to_text(parse(text)) == "template k(x, y) {\n  parallel i in (0, 1, 1) {\n  }\n}"


def test_parts_of_kernels_have_texts() -> None:
    one = ir.Const(1, type=i64)
    assert to_text(ir.Binary("add", one, ir.Local("i", type=i64))) == "add(1:i64, %i)"
    assert to_text(ir.Range(one, one, one)) == "(1:i64, 1:i64, 1:i64)"
    assert to_text(ir.Parameter("x", ir.Array(f32, 0))) == "x: f32[.]"
    assert to_text(ir.Table((1, 0.5))) == "(1, 0.5)"
    assert to_text(ir.If(one, (ir.Break(),), (ir.Leave("f"),))) == (
        "if 1:i64 {\n  break\n} else {\n  leave f\n}"
    )


def test_comparison_of_trees_sees_differences() -> None:
    assert same(ir.Const(math.nan), ir.Const(math.nan))
    for a, b in [
        (ir.Const(0.0), ir.Const(-0.0)),
        (ir.Const(1), ir.Const(1.0)),
        (ir.Const(1), ir.Const(1, type=i64)),
        (ir.Local("a"), ir.Param("a")),
        (ir.Call("min", (ir.Const(1),)), ir.Call("min", (ir.Const(1), ir.Const(1)))),
    ]:
        assert not same(a, b)


LOOP = "  parallel i in (0, 1, 1) {\n  }\n}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '1:1: expected "kernel" or "template", found the end of the text'),
        ("kernal k() {", '1:1: expected "kernel" or "template", found "kernal"'),
        ("kernel 3() {", '1:8: expected the kernel\'s name, found "3"'),
        ("kernel k(x: f16) {", "1:13: expected a dtype (i8, u8,"),
        ("kernel k(x: f32[;]) {", '1:17: expected "]", found ";"'),
        ("kernel k(x y) {", '1:12: expected "," or ")", found "y"'),
        ("kernel k() { parallel", "1:14: expected the end of the line"),
        ("template k() {\n}", '2:1: expected a statement or "parallel", found "}"'),
        ("template k() {\n  %x = \n" + LOOP, "2:8: expected an expression, found the end of the line"),
        ("template k() {\n  %x = 1 2\n" + LOOP, '2:10: expected the end of the line, found "2"'),
        ("template k() {\n  %x = frob(1)\n" + LOOP, '2:8: expected an operation, found "frob"'),
        ("template k() {\n  %x = call.frob(1)\n" + LOOP, '2:8: expected an operation, found "call.frob"'),
        ("template k() {\n  %x = add(1)\n" + LOOP, '2:8: expected an operation with 1 operands, found "add"'),
        ("template k() {\n  %x = cast.f16(1)\n" + LOOP, '2:8: expected an operation, found "cast.f16"'),
        ("template k() {\n  %x = dim(x, 1.0)\n" + LOOP, '2:15: expected an axis, "size", "ndim" or "len"'),
        ("template k() {\n  frob\n" + LOOP, '2:3: expected a statement, found "frob"'),
        ("template k() {\n  x[0] = @\n" + LOOP, '2:10: expected an expression, found "@"'),
        ("template k() {\n  atomic_inc x[0]\n" + LOOP, "2:3: expected an atomic operation (add, sub,"),
        ('template k() {\n  print "\\q"\n' + LOOP, "2:9: expected a JSON string"),
        ('template k() {\n  print "a\n' + LOOP, '2:9: expected an expression, found "\\""'),
        ("template k() {\n  %x = " + "9" * 5000 + "\n" + LOOP, "2:8: expected an integer of fewer digits"),
        ("template k() {\n  %x = " + "neg(" * 5000 + "\n" + LOOP, ": expected less nesting"),
        (
            "template k() {\n  for %i in (0, 1) {\n  }\n" + LOOP,
            '2:13: expected start, stop and step, found "("',
        ),
        ("kernel k() {\n  local a: i8\n  local a: i8\n" + LOOP, '3:9: expected a new name, found "a"'),
        ("kernel k() {\n  table a (1)\n  table a (1)\n" + LOOP, '3:9: expected a new name, found "a"'),
        ("kernel k() {\n  %x = 1\n" + LOOP, '2:9: expected ":", found the end of the line'),
        ("kernel k() {\n  %x = %y\n" + LOOP, '2:8: expected a declared local, found "%y"'),
        ("kernel k() {\n  %x = $y\n" + LOOP, '2:8: expected a scalar parameter, found "$y"'),
        ("kernel k() {\n  %x = y[0:i64]\n" + LOOP, '2:8: expected a declared array, found "y"'),
        (
            "kernel k() {\n  %x = lookup(T, 0:i64)\n" + LOOP,
            '2:8: expected "lookup.", a dtype, found "lookup"',
        ),
        ("template k() {\n" + LOOP + " x", '4:3: expected the end of the text, found "x"'),
        ("template k() {\n" + LOOP[:-1], "4:1: expected a statement"),
    ],
)
def test_malformed_text_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        parse(text)
    assert message in str(caught.value)


@generated_kernels
@given(kernels(), st.randoms(use_true_random=False))
def test_damaged_text_parses_or_is_refused(kernel: ir.Kernel, rng: random.Random) -> None:
    text = to_text(kernel)
    start = rng.randrange(len(text))
    damage = rng.choice(["", " ", "\n", "}", "(", "%x", "nan", '"', "call.", text[: rng.randrange(20)]])
    damaged = text[:start] + damage + text[start + rng.randrange(6) :]
    try:
        parsed = parse(damaged)
    except ValueError as error:
        line, column, _ = str(error).split(":", 2)
        assert 1 <= int(line) <= damaged.count("\n") + 1
        assert int(column) >= 1
    else:
        assert to_text(parse(to_text(parsed))) == to_text(parsed)


@generated_kernels
@given(kernels() | templates())
def test_strategies_make_valid_kernels(kernel: ir.Kernel) -> None:
    verify(kernel)
