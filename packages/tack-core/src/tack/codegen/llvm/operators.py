"""Rules for operators and conversions: one function for each, in tables by name.

A rule takes the emitter, the node and the operands' values. Integer operations wrap and never
trap; `docs/design/ir.md` gives their meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from tack.codegen.llvm import helpers, ir
from tack.codegen.llvm.types import LLVM_TYPES, constant
from tack.dtypes import DType
from tack.ir.nodes import Binary, Unary

if TYPE_CHECKING:
    from tack.codegen.llvm.emitter import Emitter

__all__ = ["BINARY", "UNARY", "compare", "convert", "truth"]

UnaryRule = Callable[["Emitter", DType, ir.Value], ir.Value]
BinaryRule = Callable[["Emitter", DType, ir.Value, ir.Value], ir.Value]

_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# A power up to this constant exponent is written out as multiplications.
_UNROLLED_EXPONENT = 64


def type_of(node: Unary | Binary) -> DType:
    """The type of a node of a typed kernel."""
    assert node.type is not None
    return node.type


# --- truth, comparison, conversion --------------------------------------------------------------


def truth(fn: Emitter, value: ir.Value, dtype: DType) -> ir.Value:
    """Whether ``value`` is nonzero, as an i1. NaN is true."""
    zero = constant(dtype, 0)
    if dtype.is_float:
        return fn.builder.fcmp_unordered("!=", value, zero)
    return fn.builder.icmp_unsigned("!=", value, zero)


def compare(fn: Emitter, op: str, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    """A comparison as an i1. NaN is unequal to everything."""
    predicate = _PREDICATES[op]
    if not dtype.is_float:
        build = fn.builder.icmp_signed if dtype.is_signed else fn.builder.icmp_unsigned
    else:
        build = fn.builder.fcmp_unordered if op == "ne" else fn.builder.fcmp_ordered
    return build(predicate, left, right)


def convert(fn: Emitter, value: ir.Value, source: DType, target: DType) -> ir.Value:
    """``value`` of ``source`` as ``target``: floats saturate, integers keep their low bits."""
    if source is target:
        return value
    b = fn.builder
    kind = LLVM_TYPES[target]
    if source.is_float and target.is_float:
        return b.fpext(value, kind) if target.bits > source.bits else b.fptrunc(value, kind)
    if source.is_float:
        name = "fptosi" if target.is_signed else "fptoui"
        intrinsic = f"llvm.{name}.sat.i{target.bits}.f{source.bits}"
        return b.call(fn.unit.declare(intrinsic, kind, [LLVM_TYPES[source]]), [value])
    if target.is_float:
        return b.sitofp(value, kind) if source.is_signed else b.uitofp(value, kind)
    if target.bits == source.bits:
        return value
    if target.bits < source.bits:
        return b.trunc(value, kind)
    return b.sext(value, kind) if source.is_signed else b.zext(value, kind)


# --- unary --------------------------------------------------------------------------------------


def _neg(fn: Emitter, dtype: DType, value: ir.Value) -> ir.Value:
    if dtype.is_float:
        return fn.builder.fneg(value)
    return fn.builder.sub(constant(dtype, 0), value)


def _invert(fn: Emitter, dtype: DType, value: ir.Value) -> ir.Value:
    return fn.builder.xor(value, constant(dtype, -1))


UNARY: dict[str, UnaryRule] = {"neg": _neg, "invert": _invert}


# --- binary -------------------------------------------------------------------------------------


def _arithmetic(name: str) -> BinaryRule:
    float_rule: ir.Rule = getattr(ir.IRBuilder, f"f{name}")
    integer_rule: ir.Rule = getattr(ir.IRBuilder, name)

    def rule(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
        if dtype.is_float:
            return float_rule(fn.builder, left, right, flags=fn.unit.flags)
        return integer_rule(fn.builder, left, right)

    return rule


def _bitwise(name: str) -> BinaryRule:
    build: ir.Rule = getattr(ir.IRBuilder, name)

    def rule(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
        return build(fn.builder, left, right)

    return rule


def _div(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    return fn.builder.fdiv(left, right, flags=fn.unit.flags)


def _shl(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    return fn.builder.shl(left, _count(fn, dtype, right))


def _shr(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    shift = fn.builder.ashr if dtype.is_signed else fn.builder.lshr
    return shift(left, _count(fn, dtype, right))


def _count(fn: Emitter, dtype: DType, count: ir.Value) -> ir.Value:
    """A shift count modulo the width."""
    known = _known(count)
    if known is not None:
        return constant(dtype, known % dtype.bits)
    return fn.builder.and_(count, constant(dtype, dtype.bits - 1))


def _known(value: ir.Value) -> int | None:
    """The signed value of an integer constant."""
    return value.constant if isinstance(value, ir.Constant) else None


def _floordiv(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    if dtype.is_float:
        return fn.builder.call(helpers.float_floordiv(fn.unit, dtype), [left, right])
    b = fn.builder
    zero, one = constant(dtype, 0), constant(dtype, 1)
    known = _known(right)
    if known is not None and known > 0 and known & (known - 1) == 0:
        return _shr(fn, dtype, left, constant(dtype, known.bit_length() - 1))
    if not dtype.is_signed:
        by_zero = b.icmp_unsigned("==", right, zero)
        quotient = b.udiv(left, b.select(by_zero, one, right))
        return b.select(by_zero, zero, quotient)
    # Dividing by 1 instead of by 0 or -1 cannot trap; those two are selected afterwards.
    by_zero = b.icmp_signed("==", right, zero)
    by_minus_one = b.icmp_signed("==", right, constant(dtype, -1))
    divisor = b.select(b.or_(by_zero, by_minus_one), one, right)
    quotient = b.sdiv(left, divisor)
    remainder = b.sub(left, b.mul(quotient, divisor))
    quotient = b.add(quotient, b.sext(_needs_floor(fn, dtype, remainder, divisor), LLVM_TYPES[dtype]))
    quotient = b.select(by_minus_one, b.sub(zero, left), quotient)
    return b.select(by_zero, zero, quotient)


def _mod(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    if dtype.is_float:
        return fn.builder.call(helpers.float_mod(fn.unit, dtype), [left, right])
    b = fn.builder
    zero, one = constant(dtype, 0), constant(dtype, 1)
    known = _known(right)
    if known is not None and known > 0 and known & (known - 1) == 0:
        return b.and_(left, constant(dtype, known - 1))
    # The remainder by 1 is 0, which is also the answer for 0 and -1.
    unsafe = b.icmp_signed("==", right, zero)
    if not dtype.is_signed:
        return b.urem(left, b.select(unsafe, one, right))
    unsafe = b.or_(unsafe, b.icmp_signed("==", right, constant(dtype, -1)))
    divisor = b.select(unsafe, one, right)
    remainder = b.srem(left, divisor)
    return b.add(remainder, b.select(_needs_floor(fn, dtype, remainder, divisor), divisor, zero))


def _needs_floor(fn: Emitter, dtype: DType, remainder: ir.Value, divisor: ir.Value) -> ir.Value:
    """Whether truncation went up: a nonzero remainder whose sign is not the divisor's."""
    b = fn.builder
    zero = constant(dtype, 0)
    opposite = b.icmp_signed("<", b.xor(remainder, divisor), zero)
    return b.and_(opposite, b.icmp_signed("!=", remainder, zero))


def power(fn: Emitter, node: Binary, left: ir.Value, right: ir.Value) -> ir.Value:
    """``pow``: correct to the bounds on floats, exact modulo 2^N on integers."""
    dtype = type_of(node)
    if dtype.is_float:
        return _float_power(fn, dtype, left, right)
    exponent = node.right.type
    assert exponent is not None
    known = _known(right)
    if known is not None and 0 <= known <= _UNROLLED_EXPONENT:
        return _repeated(fn, dtype, left, known)
    helper = helpers.integer_power(fn.unit, dtype, exponent)
    return fn.builder.call(helper, [left, convert(fn, right, exponent, exponent)])


def _float_power(fn: Emitter, dtype: DType, left: ir.Value, right: ir.Value) -> ir.Value:
    exponent = right.constant if isinstance(right, ir.Constant) else None
    rule = _POWERS.get(exponent)
    return fn.math("pow", dtype, left, right) if rule is None else rule(fn, dtype, left)


def _square(fn: Emitter, dtype: DType, base: ir.Value) -> ir.Value:
    return fn.builder.fmul(base, base)


def _cube(fn: Emitter, dtype: DType, base: ir.Value) -> ir.Value:
    return fn.builder.fmul(_square(fn, dtype, base), base)


def _reciprocal(fn: Emitter, dtype: DType, base: ir.Value) -> ir.Value:
    return fn.builder.fdiv(constant(dtype, 1), base)


def _root(fn: Emitter, dtype: DType, base: ir.Value) -> ir.Value:
    """``base ** 0.5``, which is 0 for -0 and infinite for either infinity."""
    infinity = constant(dtype, inf)
    root = fn.intrinsic("fabs", dtype, fn.intrinsic("sqrt", dtype, base))
    return fn.builder.select(compare(fn, "eq", dtype, base, constant(dtype, -inf)), infinity, root)


# Two roundings at most. Where a square overflows or is denormal, so is the power.
_POWERS: dict[float | None, UnaryRule] = {
    0.0: lambda fn, dtype, base: constant(dtype, 1),
    1.0: lambda fn, dtype, base: base,
    -1.0: _reciprocal,
    2.0: _square,
    3.0: _cube,
    4.0: lambda fn, dtype, base: _square(fn, dtype, _square(fn, dtype, base)),
    0.5: _root,
}


def _repeated(fn: Emitter, dtype: DType, base: ir.Value, exponent: int) -> ir.Value:
    """``base ** exponent`` by squaring, for a constant exponent."""
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else fn.builder.mul(result, base)
        exponent >>= 1
        if exponent:
            base = fn.builder.mul(base, base)
    return constant(dtype, 1) if result is None else result


BINARY: dict[str, BinaryRule] = {
    "add": _arithmetic("add"),
    "sub": _arithmetic("sub"),
    "mul": _arithmetic("mul"),
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "shl": _shl,
    "shr": _shr,
    "bitand": _bitwise("and_"),
    "bitor": _bitwise("or_"),
    "bitxor": _bitwise("xor"),
}
