"""Workgroups in the IR: invariants, the lane-by-lane interpreter, and the analysis of participation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tack.dtypes import i8, i32
from tack.ir import nodes as ir
from tack.ir.interpreter import run
from tack.ir.parser import parse
from tack.ir.passes.localize import localize
from tack.ir.passes.participation import participation
from tack.ir.semantics import BLOCK_REDUCTIONS
from tack.ir.traversal import replace, walk
from tack.ir.verify import VerificationError, verify
from tack.ir.workgroups import primitives, requires_full_workgroups

LOCALS = "  local a: i32\n  local b: i32\n  local i: i64\n  local j: i64\n  local k: i64\n  local w: i64\n"


def kernel(body: str, before: str = "", after: str = "") -> ir.Kernel:
    """A typed kernel over 1-D ``x`` and ``o`` of i32, with the scalar ``n``."""
    found = parse(
        f"kernel k(x: i32[], o: i32[], n: i64) {{\n{LOCALS}{before}\n"
        f"parallel i in (0, $n, 1) {{\n{body}\n}}\n{after}\n}}"
    )
    verify(found)
    return found


def results(found: ir.Kernel, x: Any, count: int = 256) -> list[int]:
    o = np.zeros(len(x), np.int32)
    run(found, {"x": np.asarray(x, np.int32), "o": o, "n": count}, [(0, 1, count)])
    return list(o.tolist())


# --- invariants -------------------------------------------------------------------------------------


def test_what_a_kernel_uses() -> None:
    none = kernel("o[%i] = 1:i32")
    assert primitives(none) == ()
    assert not requires_full_workgroups(none)
    lanes = kernel("shared s i32(4:i64)\no[%i] = thread_id()")
    assert primitives(lanes) == ("shared", "thread_id")
    assert not requires_full_workgroups(lanes)
    for text, name in (("barrier", "barrier"), ("%a = block_min(1:i32)", "block_min")):
        found = kernel(f"if gt($n, 7:i64) {{\n{text}\n}}")
        assert primitives(found) == (name,)
        assert requires_full_workgroups(found)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("barrier", "", "an effect outside the parallel loop"),
        ("", "barrier", "an effect outside the parallel loop"),
        ("%a = block_sum(1:i32)", "", "an effect outside the parallel loop"),
        ("%a = thread_id()", "", "a lane's number outside the parallel loop"),
    ],
)
def test_only_the_loop_has_lanes(before: str, after: str, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        kernel("o[%i] = 1:i32", before, after)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": "mul"}, "'mul' is not a block reduction"),
        ({"target": "i"}, "local 'i' is i64, its new value i32"),
        ({"target": "x"}, "'x' is assigned as a local"),
        ({"value": ir.Const(1, type=i8)}, "a block reduction of i8"),
    ],
)
def test_a_block_reduction_that_is_not_one(changes: dict[str, Any], message: str) -> None:
    found = kernel("%a = block_sum(x[%i])")
    (reduce,) = found.loop.body
    loop = replace(found.loop, body=(replace(reduce, **changes),))
    with pytest.raises(VerificationError, match=message):
        verify(replace(found, loop=loop))


def test_a_shared_array_is_no_atomic_target() -> None:
    with pytest.raises(VerificationError, match=r"the target of an atomic, 's', is not a parameter"):
        kernel("shared s i32(4:i64)\natomic_add s[0:i64], 1:i32")


def test_a_reduced_outer_local_gets_a_copy() -> None:
    found = localize(kernel("%a = block_sum(%a)\no[%i] = %a", before="%a = 2:i32"))
    verify(found)
    assert [s.target for s in walk(found.loop) if isinstance(s, ir.BlockReduce)] == ["a.own"]
    assert results(found, range(256)) == [512] * 256


# --- the interpreter --------------------------------------------------------------------------------


def test_lanes_see_what_others_stored_before_the_barrier() -> None:
    found = kernel(
        """shared s i32(256:i64)
        s[cast.i64(thread_id())] = x[%i]
        barrier
        o[%i] = s[bitxor(cast.i64(thread_id()), 255:i64)]"""
    )
    assert results(found, range(512), 512) == [*range(255, -1, -1), *range(511, 255, -1)]


def test_workgroups_share_nothing_and_begin_without_values() -> None:
    body = "shared s i32(1:i64)\nif eq(%i, 0:i64) {\ns[0:i64] = 7:i32\n}\nbarrier\no[%i] = s[0:i64]"
    with pytest.raises(UnboundLocalError, match="array 's': element 0 is read before it is stored"):
        results(kernel(body), range(512), 512)
    assert results(kernel(body), range(256)) == [7] * 256


@pytest.mark.parametrize(
    "body",
    [
        "if eq(thread_id(), 3:i32) {\nbarrier\n}",
        "if lt(thread_id(), 3:i32) {\ncontinue\n}\nbarrier",
        "if lt(%i, 100:i64) {\nbarrier\n} else {\nbarrier\n}",
        "for %j in (0:i64, %i, 1:i64) {\n%a = block_sum(1:i32)\n}",
    ],
)
def test_a_barrier_that_some_lanes_miss_is_an_error(body: str) -> None:
    with pytest.raises(RuntimeError, match="do not all take part"):
        results(kernel(body), range(256))
    with pytest.raises(ValueError, match="not all iterations of a workgroup are certain"):
        participation(kernel(body))


def test_incomplete_workgroups() -> None:
    assert results(kernel("o[%i] = thread_id()"), range(300), 300) == [*range(256), *range(44)]
    with pytest.raises(RuntimeError, match="do not all take part"):
        results(kernel("barrier"), range(300), 300)


@pytest.mark.parametrize("op", ["sum", "min", "max"])
def test_block_reductions(op: str) -> None:
    x = np.random.default_rng(1).integers(-(2**31), 2**31, 256)
    exact = {"sum": int(x.sum()), "min": int(x.min()), "max": int(x.max())}[op]
    assert results(kernel(f"%a = block_{op}(x[%i])\no[%i] = %a"), x) == [i32.wrap(exact)] * 256


def test_zeros_and_nan_in_extremes() -> None:
    from tack.dtypes import f64

    low, high = BLOCK_REDUCTIONS["min"], BLOCK_REDUCTIONS["max"]
    for a, b in ((0.0, -0.0), (-0.0, 0.0)):
        assert math.copysign(1, low(a, b, f64)) == -1
        assert math.copysign(1, high(a, b, f64)) == 1
    for f in (low, high):
        assert math.isnan(f(math.nan, 1.0, f64))
        assert math.isnan(f(-math.inf, math.nan, f64))


# --- participation ----------------------------------------------------------------------------------

UNIFORM = [
    "if gt($n, 4:i64) {\nbarrier\n}",
    "for %j in (0:i64, $n, 1:i64) {\nbarrier\n}",
    "%w = 3:i64\nwhile gt(%w, 0:i64) {\nbarrier\n%w = sub(%w, 1:i64)\n}",
    "%a = block_sum(x[%i])\nif %a {\nbarrier\n}",
    "%a = 1:i32\nfor %j in (0:i64, 4:i64, 1:i64) {\nif eq(%j, 2:i64) {\nbreak\n}\n"
    "%a = add(%a, cast.i32(%j))\n}\nif %a {\nbarrier\n}",
    # What varies may end, or be skipped, where it meets again before the next collective.
    "if x[%i] {\no[%i] = 1:i32\n}\nbarrier",
    "for %j in (0:i64, cast.i64(x[%i]), 1:i64) {\nif gt(%j, 5:i64) {\nbreak\n}\n}\nbarrier",
    "block f {\nif x[%i] {\nleave f\n}\no[%i] = 1:i32\n}\nbarrier",
    "for %j in (0:i64, 4:i64, 1:i64) {\nbarrier\nif x[%i] {\ncontinue\n}\no[%i] = 1:i32\n}\nbarrier",
    "barrier\nif x[%i] {\ncontinue\n}\no[%i] = 1:i32",
    "block f {\nfor %j in (0:i64, 3:i64, 1:i64) {\nbarrier\nif eq(%j, $n) {\nleave f\n}\n}\nbarrier\n}",
]
VARYING = [
    "%a = x[0:i64]\nif %a {\nbarrier\n}",
    "if thread_id() {\n%a = block_sum(1:i32)\n}",
    "%a = 1:i32\nif x[%i] {\n%a = 2:i32\n}\nif %a {\nbarrier\n}",
    "%a = atomic_add o[0:i64], 1:i32\nif %a {\nbarrier\n}",
    # Values that come to vary through a chain of locals and rounds.
    "%a = 0:i32\n%b = 0:i32\nfor %j in (0:i64, 4:i64, 1:i64) {\nif %b {\nbarrier\n}\n%b = %a\n%a = x[%i]\n}",
    "%w = 0:i64\nfor %j in (0:i64, cast.i64(x[%i]), 1:i64) {\n%w = %j\n}\nif %w {\nbarrier\n}",
    # Loops that some lanes leave early: the others come to the barrier once more.
    "for %j in (0:i64, 4:i64, 1:i64) {\nbarrier\nif x[%i] {\nbreak\n}\n}",
    "while 1:i32 {\nbarrier\nif x[%i] {\nbreak\n}\n}",
    "block f {\nfor %j in (0:i64, 4:i64, 1:i64) {\nbarrier\nif x[%i] {\nleave f\n}\n}\n}",
    "%w = 0:i64\nfor %j in (0:i64, 4:i64, 1:i64) {\nif x[%i] {\nbreak\n}\n%w = %j\n}\nif %w {\nbarrier\n}",
    "for %j in (0:i64, 4:i64, 1:i64) {\nfor %k in (0:i64, 4:i64, 1:i64) {\nif x[%i] {\ncontinue\n}\n"
    "barrier\n}\n}",
    "block f {\nblock g {\nif x[%i] {\nleave f\n}\n}\nbarrier\n}",
    "block f {\nif gt($n, 3:i64) {\nif x[%i] {\nleave f\n}\n}\n%a = block_sum(1:i32)\n}",
    "if x[%i] {\nif gt($n, 3:i64) {\ncontinue\n}\n}\nbarrier",
]


@pytest.mark.parametrize("body", UNIFORM)
def test_proven_participation(body: str) -> None:
    found = kernel(body)
    participation(found)
    x = np.random.default_rng(2).integers(0, 9, 256)
    for n in (256, 512):  # the lanes do take part
        results(found, np.resize(x, n), n)


@pytest.mark.parametrize("body", VARYING)
def test_participation_that_is_not_proven(body: str) -> None:
    with pytest.raises(ValueError, match=r"kernel 'k': a b.*not all iterations of a workgroup are"):
        participation(kernel(body))


def test_loads_before_the_loop_vary_and_scalars_do_not() -> None:
    body = "if %a {\nbarrier\n}"
    participation(kernel(body, before="%a = cast.i32($n)"))
    with pytest.raises(ValueError, match="a barrier"):
        participation(kernel(body, before="%a = x[0:i64]"))
