"""Arithmetic on one number or on a vector of them, for functions that are written once for both.

The scalar and the vector form of a function run the same operations, so that a lane's result does
not depend on whether, and how, LLVM vectorized the loop around the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tack.codegen.llvm import ir
from tack.codegen.llvm.types import FLAG, LLVM_TYPES
from tack.dtypes import DType, f64

__all__ = ["Lanes"]

_MANTISSA = {32: 23, 64: 52}
_BIAS = {32: 127, 64: 1023}


class Lanes:
    """Builds one function on ``width`` lanes of ``dtype``; each method emits one operation on all lanes.

    Operands may be LLVM values or Python numbers.
    """

    def __init__(self, builder: ir.IRBuilder, dtype: DType, width: int) -> None:
        self.builder = builder
        self.dtype = dtype
        self.width = width
        self.bits = dtype.bits
        self.mantissa = _MANTISSA[dtype.bits]
        self.bias = _BIAS[dtype.bits]
        self.kind = self._lanes(LLVM_TYPES[dtype])
        self.integer = self._lanes(ir.IntType(dtype.bits))

    def _lanes(self, kind: ir.Type) -> ir.Type:
        return kind if self.width == 1 else ir.VectorType(kind, self.width)

    def _suffix(self, kind: ir.Type) -> str:
        element = kind.element or kind
        name = element.text if element.text.startswith("i") else f"f{self.bits}"
        return name if self.width == 1 else f"v{self.width}{name}"

    # --- constants ---

    def const(self, value: float | Fraction) -> ir.Constant:
        return self._constant(self.kind, float(value))

    def whole(self, value: int) -> ir.Constant:
        """An integer constant as wide as the floats."""
        half = 1 << (self.bits - 1)
        return self._constant(self.integer, ((value + half) & ((1 << self.bits) - 1)) - half)

    def _constant(self, kind: ir.Type, value: float) -> ir.Constant:
        if self.width == 1:
            return ir.Constant(kind, value)
        assert kind.element is not None
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * self.width)

    def _value(self, operand: ir.Value | float) -> ir.Value:
        return self.const(operand) if isinstance(operand, (int, float)) else operand

    # --- floats ---

    def add(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.builder.fadd(self._value(a), self._value(b))

    def sub(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.builder.fsub(self._value(a), self._value(b))

    def mul(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.builder.fmul(self._value(a), self._value(b))

    def div(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.builder.fdiv(self._value(a), self._value(b))

    def neg(self, a: ir.Value) -> ir.Value:
        return self.builder.fneg(a)

    def fma(self, a: ir.Value | float, b: ir.Value | float, c: ir.Value | float) -> ir.Value:
        """``a * b + c`` with one rounding."""
        return self.intrinsic("fma", self._value(a), self._value(b), self._value(c))

    def sqrt(self, a: ir.Value) -> ir.Value:
        return self.intrinsic("sqrt", a)

    def abs(self, a: ir.Value) -> ir.Value:
        return self.intrinsic("fabs", a)

    def copysign(self, magnitude: ir.Value | float, sign: ir.Value) -> ir.Value:
        return self.intrinsic("copysign", self._value(magnitude), sign)

    def polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """The polynomial with these coefficients, lowest power first, by Horner's rule."""
        *rest, first = coefficients
        result: ir.Value = self.const(first)
        for c in reversed(rest):
            result = self.fma(result, x, c)
        return result

    # Adding this to a small number rounds it to a whole one, which is then in the low bits of the sum.
    @property
    def _shift(self) -> float:
        return 1.5 * 2.0**self.mantissa

    @property
    def _shift_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) + (1 << (self.mantissa - 1))

    def nearest(self, x: ir.Value, scale: float) -> tuple[ir.Value, ir.Value]:
        """``k = round(x * scale)`` as a float and as an integer.

        Right for |k| < 2^(mantissa - 2); past that, and for NaN, the integer is arbitrary.
        """
        sum_ = self.fma(x, scale, self._shift)
        return self.sub(sum_, self._shift), self.isub(self.as_int(sum_), self._shift_bits)

    def small_to_float(self, k: ir.Value) -> ir.Value:
        """An integer with |k| < 2^(mantissa - 2) as a float."""
        return self.sub(self.as_float(self.iadd(k, self._shift_bits)), self._shift)

    # --- bits ---

    def as_int(self, x: ir.Value) -> ir.Value:
        return self.builder.bitcast(x, self.integer)

    def as_float(self, x: ir.Value) -> ir.Value:
        return self.builder.bitcast(x, self.kind)

    def iadd(self, a: ir.Value, b: ir.Value | int) -> ir.Value:
        return self.builder.add(a, self.whole(b) if isinstance(b, int) else b)

    def isub(self, a: ir.Value, b: ir.Value | int) -> ir.Value:
        return self.builder.sub(a, self.whole(b) if isinstance(b, int) else b)

    def iand(self, a: ir.Value, b: ir.Value | int) -> ir.Value:
        return self.builder.and_(a, self.whole(b) if isinstance(b, int) else b)

    def xor(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.xor(a, b)

    def shl(self, a: ir.Value, count: int) -> ir.Value:
        return self.builder.shl(a, self.whole(count))

    def sar(self, a: ir.Value, count: int) -> ir.Value:
        return self.builder.ashr(a, self.whole(count))

    def power_of_two(self, k: ir.Value) -> ir.Value:
        """2^k for an integer ``k`` within the exponents of normal numbers."""
        return self.as_float(self.shl(self.iadd(k, self.bias), self.mantissa))

    def flip_sign(self, x: ir.Value, k: ir.Value) -> ir.Value:
        """``x``, negated where the lowest bit of the integer ``k`` is set."""
        return self.as_float(self.xor(self.as_int(x), self.shl(k, self.bits - 1)))

    def with_sign_of(self, x: ir.Value, other: ir.Value) -> ir.Value:
        """``x``, negated where the sign bit of ``other`` is set."""
        return self.as_float(self.xor(self.as_int(x), self.iand(self.as_int(other), 1 << (self.bits - 1))))

    # --- choices ---

    def less(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.builder.fcmp_ordered("<", self._value(a), self._value(b))

    def equal(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.builder.fcmp_ordered("==", self._value(a), self._value(b))

    def negative(self, x: ir.Value) -> ir.Value:
        """Whether the sign bit is set."""
        return self.builder.icmp_signed("<", self.as_int(x), self.whole(0))

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.and_(a, b)

    def negated(self, condition: ir.Value) -> ir.Value:
        return self.builder.not_(condition)

    def select(self, condition: ir.Value, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.builder.select(condition, self._value(a), self._value(b))

    def odd(self, k: ir.Value) -> ir.Value:
        zero = self.whole(0)
        return self.builder.icmp_signed("!=", self.iand(k, 1), zero)

    def at_most(self, x: ir.Value, limit: float) -> ir.Value:
        """``x`` or ``limit``, whichever is less; NaN stays."""
        return self.select(self.less(limit, x), limit, x)

    def at_least(self, x: ir.Value, limit: float) -> ir.Value:
        """``x`` or ``limit``, whichever is greater; NaN stays."""
        return self.select(self.less(x, limit), limit, x)

    def any(self, condition: ir.Value) -> ir.Value:
        """Whether some lane is set, as an i1."""
        if self.width == 1:
            return condition
        name = f"llvm.vector.reduce.or.v{self.width}i1"
        return self._call(name, FLAG, [condition])

    # --- widening, for f32 functions that compute in f64 ---

    def widened(self) -> Lanes:
        return Lanes(self.builder, f64, self.width)

    def widen(self, x: ir.Value) -> ir.Value:
        return self.builder.fpext(x, self.widened().kind)

    def narrow(self, x: ir.Value) -> ir.Value:
        return self.builder.fptrunc(x, self.kind)

    # --- calls ---

    def intrinsic(self, name: str, *args: ir.Value) -> ir.Value:
        kind = args[0].type
        return self._call(f"llvm.{name}.{self._suffix(kind)}", kind, args)

    def _call(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, [a.type for a in args]), name)
        return self.builder.call(function, args)

    def each(self, function: ir.Function, args: Sequence[ir.Value]) -> ir.Value:
        """``function`` of one lane, called for each."""
        if self.width == 1:
            return self.builder.call(function, args)
        result: ir.Value = ir.Constant(self.kind, ir.Undefined)
        for lane in range(self.width):
            at = ir.Constant(ir.IntType(32), lane)
            parts = [self.builder.extract_element(a, at) for a in args]
            result = self.builder.insert_element(result, self.builder.call(function, parts), at)
        return result
