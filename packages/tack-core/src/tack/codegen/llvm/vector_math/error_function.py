"""The error function: a polynomial up to 1, and from there on ``1 - exp(-x - x P(x))``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tack.codegen.llvm.vector_math import coefficients as table
from tack.codegen.llvm.vector_math.exponentials import exp

if TYPE_CHECKING:
    from llvmlite import ir

    from tack.codegen.llvm.vector_math.lanes import Lanes

__all__ = ["erf"]

_NEAR: Final = {32: table.ERF_F32, 64: table.ERF_F64}
_TAIL: Final = {32: table.ERF_TAIL_F32, 64: table.ERF_TAIL_F64}
_ONE: Final = {32: 4.0, 64: 6.1}  # from here on, the result is 1


def erf(v: Lanes, x: ir.Value) -> ir.Value:
    size = v.abs(x)
    near = v.fma(size, v.polynomial(v.mul(size, size), _NEAR[v.bits]), size)
    bounded = v.at_most(size, _ONE[v.bits])
    exponent = v.fma(bounded, v.polynomial(bounded, _TAIL[v.bits]), bounded)
    far = v.sub(1.0, exp(v, v.neg(exponent)))
    return v.copysign(v.select(v.less(size, 1.0), near, far), x)
