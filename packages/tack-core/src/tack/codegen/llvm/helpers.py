"""Internal functions that a module gets when an operation needs one: powers, floored division."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tack.codegen.llvm import ir
from tack.codegen.llvm.types import I64, LLVM_TYPES, constant, index
from tack.dtypes import DType

if TYPE_CHECKING:
    from tack.codegen.llvm.emitter import Emitter, Unit

__all__ = ["float_floordiv", "float_mod", "integer_power"]


def integer_power(unit: Unit, dtype: DType, exponent: DType) -> ir.Function:
    """``base ** exponent`` modulo 2^N, with an i64 or u64 exponent, by repeated squaring."""
    kind = LLVM_TYPES[dtype]

    def build(fn: Emitter) -> None:
        b = fn.builder
        first_base, first_exponent = fn.function.args
        entry = b.block
        loop, done = fn.block("loop"), fn.block("done")
        one, zero = constant(dtype, 1), constant(dtype, 0)
        b.branch(loop)
        fn.at(loop)
        base, rest, result = b.phi(kind), b.phi(I64), b.phi(kind)
        odd = b.trunc(rest, ir.IntType(1))
        next_result = b.select(odd, b.mul(result, base), result)
        next_base = b.mul(base, base)
        next_rest = b.lshr(rest, index(1))
        for phi, first, following in (
            (base, first_base, next_base),
            (rest, first_exponent, next_rest),
            (result, one, next_result),
        ):
            phi.add_incoming(first, entry)
            phi.add_incoming(following, loop)
        b.cbranch(b.icmp_unsigned("==", next_rest, index(0)), done, loop)
        fn.at(done)
        if exponent.is_signed:
            # Read as unsigned, a negative exponent keeps its parity, which is right for 1 and -1.
            is_unit = b.icmp_signed("==", first_base, one)
            if dtype.is_signed:
                is_unit = b.or_(is_unit, b.icmp_signed("==", first_base, constant(dtype, -1)))
            negative = b.icmp_signed("<", first_exponent, index(0))
            next_result = b.select(b.and_(negative, b.not_(is_unit)), zero, next_result)
        b.ret(next_result)

    return unit.helper(f"tack.pow.{dtype}.{exponent}", kind, [kind, I64], build)


def float_mod(unit: Unit, dtype: DType) -> ir.Function:
    """Python's ``x % y``: the remainder with the divisor's sign; NaN if ``y`` is zero."""
    kind = LLVM_TYPES[dtype]

    def build(fn: Emitter) -> None:
        x, y = fn.function.args
        remainder, _ = _floored(fn, dtype, x, y)
        fn.builder.ret(remainder)

    return unit.helper(f"tack.mod.{dtype}", kind, [kind, kind], build)


def float_floordiv(unit: Unit, dtype: DType) -> ir.Function:
    """Python's ``x // y``, and ``x / y`` if ``y`` is zero."""
    kind = LLVM_TYPES[dtype]

    def build(fn: Emitter) -> None:
        b = fn.builder
        x, y = fn.function.args
        zero, half, one = constant(dtype, 0), constant(dtype, 0.5), constant(dtype, 1)
        truncated = fn.math("fmod", dtype, x, y)
        _, adjusted = _floored(fn, dtype, x, y, truncated)
        # x - fmod(x, y) is a multiple of y up to rounding, so the division is nearly whole.
        ratio = b.fdiv(b.fsub(x, truncated), y)
        ratio = b.select(adjusted, b.fsub(ratio, one), ratio)
        floor = fn.intrinsic("floor", dtype, ratio)
        snapped = b.select(b.fcmp_ordered(">", b.fsub(ratio, floor), half), b.fadd(floor, one), floor)
        plain = b.fdiv(x, y)
        signed_zero = fn.intrinsic("copysign", dtype, zero, plain)
        quotient = b.select(b.fcmp_ordered("==", ratio, zero), signed_zero, snapped)
        b.ret(b.select(b.fcmp_ordered("==", y, zero), plain, quotient))

    return unit.helper(f"tack.floordiv.{dtype}", kind, [kind, kind], build)


def _floored(
    fn: Emitter, dtype: DType, x: ir.Value, y: ir.Value, truncated: ir.Value | None = None
) -> tuple[ir.Value, ir.Value]:
    """The floored remainder, and whether it differs from the truncated one."""
    b = fn.builder
    zero = constant(dtype, 0)
    if truncated is None:
        truncated = fn.math("fmod", dtype, x, y)
    nonzero = b.fcmp_unordered("!=", truncated, zero)
    opposite = b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", truncated, zero))
    adjusted = b.and_(nonzero, opposite)
    remainder = b.select(adjusted, b.fadd(truncated, y), truncated)
    signed_zero = fn.intrinsic("copysign", dtype, zero, y)
    return b.select(nonzero, remainder, signed_zero), adjusted
