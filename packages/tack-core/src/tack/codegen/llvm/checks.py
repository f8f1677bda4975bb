"""Rules for the checks of debug mode.

A check that fails records the first violation in the hidden array of i64 ``debug.errors``: a mark
that it is taken, the check's number, the axis, the index, the extent, and the iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tack.codegen.llvm import ir
from tack.codegen.llvm.expressions import VALUES, value
from tack.codegen.llvm.types import ADDRESS, I64, VOID, index
from tack.ir.nodes import Bounds, NonZero

if TYPE_CHECKING:
    from tack.codegen.llvm.emitter import Emitter

__all__ = ["ERRORS", "FIELDS", "RACE", "WRITERS", "check_race"]

# Prefix of the hidden parameters that hold, for each element of an array, the iteration that stored
# to it last, counted from 1; and what stands for the axis where a race is recorded.
WRITERS = "debug.writers."
RACE = -1
# The hidden parameter that receives the record, and how many i64 it has.
ERRORS = "debug.errors"
FIELDS = 6


def _record(fn: Emitter, site: int, *facts: ir.Value) -> None:
    """Records a violation, unless an earlier one was recorded."""
    errors, _ = fn.arrays[ERRORS]
    function = fn.unit.helper("tack.violation", VOID, [ADDRESS] + [I64] * (FIELDS - 1), _build_record)
    at = fn.iteration if fn.iteration is not None else index(-1)
    fn.builder.call(function, [errors, index(site), *facts, at])


def _build_record(fn: Emitter) -> None:
    errors, *facts = fn.function.args
    b = fn.builder
    free = b.extract_value(b.cmpxchg(errors, index(0), index(1), "monotonic", "monotonic"), 1)
    first, done = fn.block("first"), fn.block("done")
    b.cbranch(free, first, done)
    fn.at(first)
    for position, fact in enumerate(facts, start=1):
        b.store(fact, b.gep(errors, [index(position)], source_etype=I64))
    b.branch(done)
    fn.at(done)
    b.ret_void()


def _bounds(fn: Emitter, node: Bounds) -> ir.Value:
    b = fn.builder
    site = fn.unit.sites[id(node)]
    done = fn.block("bounds.end")
    results: list[tuple[ir.Value, ir.Block]] = []
    flat: ir.Value = index(0)
    for axis, (part, limit, stride) in enumerate(zip(node.index, node.extents, node.strides, strict=True)):
        at, extent = value(fn, part), value(fn, limit)
        bad, good = fn.block("bounds.bad"), fn.block("bounds.good")
        b.cbranch(b.icmp_unsigned("<", at, extent), good, bad)
        fn.at(bad)
        _record(fn, site, index(axis), at, extent)
        results.append((index(-1), b.block))
        b.branch(done)
        fn.at(good)
        flat = b.add(flat, b.mul(at, value(fn, stride)))
    results.append((flat, b.block))
    b.branch(done)
    fn.at(done)
    phi = b.phi(I64)
    for result, block in results:
        phi.add_incoming(result, block)
    return phi


def check_race(fn: Emitter, array: str, site: Bounds, at: ir.Value) -> None:
    """Records a race if another iteration has stored to element ``at``, and notes that this one has."""
    if WRITERS + array not in fn.arrays or fn.iteration is None:
        return
    b = fn.builder
    slot, _ = fn.element(WRITERS + array, at)
    last, own = b.load(slot, typ=I64), b.add(fn.iteration, index(1))
    other = b.and_(b.icmp_signed("!=", last, index(0)), b.icmp_signed("!=", last, own))
    race, done = fn.block("race"), fn.block("race.end")
    b.cbranch(other, race, done)
    fn.at(race)
    _record(fn, fn.unit.sites[id(site)], index(RACE), at, b.sub(last, index(1)))
    b.branch(done)
    fn.at(done)
    b.store(own, slot)


def _nonzero(fn: Emitter, node: NonZero) -> ir.Value:
    b = fn.builder
    divisor = value(fn, node.operand)
    bad, good = fn.block("zero"), fn.block("nonzero")
    b.cbranch(b.icmp_unsigned("==", divisor, ir.Constant(divisor.type, 0)), bad, good)
    fn.at(bad)
    _record(fn, fn.unit.sites[id(node)], index(0), index(0), index(0))
    b.branch(good)
    fn.at(good)
    return divisor


VALUES[Bounds] = _bounds
VALUES[NonZero] = _nonzero
