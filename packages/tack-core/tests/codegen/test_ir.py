"""LLVM IR as text: what LLVM reads of it is what was built."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

import tack
from tack.codegen.llvm import ir

DOUBLE, I64 = ir.DoubleType(), ir.IntType(64)


def parsed(module: ir.Module) -> str:
    """The module as LLVM prints it."""
    found = binding.parse_assembly(str(module))
    found.verify()
    return str(found)


def new_function(*args: ir.Type, result: ir.Type = DOUBLE) -> tuple[ir.Module, ir.Function, ir.IRBuilder]:
    module = ir.Module("test")
    function = ir.Function(module, ir.FunctionType(result, args), "f")
    return module, function, ir.IRBuilder(function.append_basic_block())


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (DOUBLE, 0.1, "0x3fb999999999999a"),
        (DOUBLE, -0.0, "0x8000000000000000"),
        (DOUBLE, math.inf, "0x7ff0000000000000"),
        (ir.FloatType(), 0.1, "0x3fb99999a0000000"),  # rounded to f32, written as the same double
        (ir.FloatType(), 2.0**-149, "0x36a0000000000000"),
        (I64, -(2**63), "-9223372036854775808"),
        (ir.IntType(1), 1, "true"),
        (ir.IntType(1), 0, "false"),
    ],
)
def test_constants(kind: ir.Type, number: float, text: str) -> None:
    assert ir.Constant(kind, number).text == text
    module, _, builder = new_function(result=kind)
    builder.ret(ir.Constant(kind, number))
    parsed(module)


def test_constants_of_several_numbers() -> None:
    pair = ir.VectorType(I64, 2)
    assert ir.Constant(pair, [ir.Constant(I64, 1), ir.Constant(I64, 2)]).text == "<i64 1, i64 2>"
    assert ir.Constant(pair, ir.Undefined).text == "undef"
    three = ir.Constant(ir.ArrayType(I64, 1), [ir.Constant(I64, 3)])
    assert three.operand == "[1 x i64] [i64 3]"


def test_blocks_phis_and_metadata() -> None:
    module, function, b = new_function(I64, DOUBLE)
    count, step = function.args
    start, loop, done = b.block, function.append_basic_block("loop"), function.append_basic_block("done")
    b.branch(loop)
    assert start.is_terminated
    assert not loop.is_terminated
    b.position_at_end(loop)
    at, total = b.phi(I64), b.phi(DOUBLE)
    following = b.add(at, ir.Constant(I64, 1), flags=("nsw",))
    more = b.fadd(total, step, flags=("nsz",))
    b.cbranch(b.icmp_signed("<", following, count), loop, done).set_weights([100, 1])
    for phi, first, later in ((at, ir.Constant(I64, 0), following), (total, ir.Constant(DOUBLE, 0.0), more)):
        phi.add_incoming(first, start)
        phi.add_incoming(later, loop)
    b.position_at_end(done)
    b.ret(more)
    text = parsed(module)
    assert "add nsw i64" in text
    assert "fadd nsz double" in text
    assert text.count(" = phi ") == 2
    assert '!{!"branch_weights", i32 100, i32 1}' in text


def test_equal_nodes_of_metadata_are_one() -> None:
    module = ir.Module("test")
    domain = module.add_metadata(["arrays"])
    assert module.add_metadata(["arrays"]) is domain
    assert module.add_metadata(["x", domain]) is not module.add_metadata(["y", domain])


def test_the_names_of_locals_clash_with_none_of_ours() -> None:
    module, function, b = new_function()
    names = ["loop", "loop", "loop.1", "loop", "a0", "v1", "1", "entry"]
    slots = [b.alloca(DOUBLE, name) for name in names] + [b.alloca(DOUBLE) for _ in range(3)]
    assert len({slot.text for slot in slots}) == len(slots)
    for slot in slots:
        b.store(ir.Constant(DOUBLE, 1.0), slot)
    done = function.append_basic_block("loop")
    b.branch(done)
    b.position_at_end(done)
    b.ret(b.load(slots[0], typ=DOUBLE))
    parsed(module)


def test_a_kernel_with_such_names() -> None:
    @tack.kernel
    def odd_names(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            loop, entry, v1, a0, größe = 0.0, 1.0, 2.0, 3.0, 4.0
            for start in range(3):
                loop += x[i] * start
                entry += loop
                v1 -= entry
                a0 += v1
                größe += a0
            out[i] = größe

    x, out = np.arange(5.0), np.zeros(5)
    odd_names(x, out)
    expected = []
    for number in x:
        loop, entry, v1, a0, size = 0.0, 1.0, 2.0, 3.0, 4.0
        for start in range(3):
            loop += number * start
            entry += loop
            v1 -= entry
            a0 += v1
            size += a0
        expected.append(size)
    assert out.tolist() == expected
