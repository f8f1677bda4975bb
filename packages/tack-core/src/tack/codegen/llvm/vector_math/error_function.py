"""The error function and its complement.

The one is a polynomial up to 1, and from there on ``1 - exp(-x - x P(x))``. The other is from 1/2 on
``exp(-x^2) P(t) / (x + c)`` with ``t = (x - c) / (x + c)``: Shepherd and Laframboise, Mathematics of
Computation 36 (1981).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tack.codegen.llvm.vector_math import coefficients as table
from tack.codegen.llvm.vector_math.exponentials import exp

if TYPE_CHECKING:
    from tack.codegen.llvm import ir
    from tack.codegen.llvm.vector_math.lanes import Lanes

__all__ = ["erf", "erfc"]

_NEAR: Final = {32: table.ERF_F32, 64: table.ERF_F64}
_TAIL: Final = {32: table.ERF_TAIL_F32, 64: table.ERF_TAIL_F64}
_ONE: Final = {32: 4.0, 64: 6.1}  # from here on, the result is 1

_COMPLEMENT: Final = {32: (2.0, table.ERFC_F32), 64: (4.0, table.ERFC_F64)}
_ZERO: Final = {32: 10.1, 64: 27.3}  # from here on, the complement is 0


def erf(v: Lanes, x: ir.Value) -> ir.Value:
    size = v.abs(x)
    near = _near(v, size)
    bounded = v.at_most(size, _ONE[v.bits])
    exponent = v.fma(bounded, v.polynomial(bounded, _TAIL[v.bits]), bounded)
    far = v.sub(1.0, exp(v, v.neg(exponent)))
    return v.copysign(v.select(v.less(size, 1.0), near, far), x)


def _near(v: Lanes, x: ir.Value) -> ir.Value:
    """The error function up to 1."""
    return v.fma(x, v.polynomial(v.mul(x, x), _NEAR[v.bits]), x)


def erfc(v: Lanes, x: ir.Value) -> ir.Value:
    centre, coefficients = _COMPLEMENT[v.bits]
    size = v.at_most(v.abs(x), _ZERO[v.bits])
    square = v.mul(size, size)
    lost = v.fma(size, size, v.neg(square))
    power = exp(v, v.neg(square))
    power = v.fma(v.neg(lost), power, power)
    above = v.add(size, centre)
    t = v.div(v.sub(size, centre), above)
    far = v.div(v.mul(power, v.polynomial(t, coefficients)), above)
    far = v.select(v.less(x, 0.0), v.sub(2.0, far), far)
    return v.select(v.less(size, 0.5), v.sub(1.0, _near(v, x)), far)
