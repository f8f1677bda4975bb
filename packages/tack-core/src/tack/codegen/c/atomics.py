"""Atomic operations: the language's own, or for some of floats a loop around compare-and-swap."""

from __future__ import annotations

from tack.codegen.c.emitter import Emitter, Unit
from tack.codegen.c.terms import UNARY, Term, cast, exact
from tack.dtypes import DType, u32, u64

__all__ = ["atomic"]


def atomic(fn: Emitter, op: str, dtype: DType, address: str, operands: list[Term]) -> str:
    """The text of an atomic operation, whose value is the element before it.

    That may be of an unsigned type: there are few functions for signed numbers, and only the order
    depends on the sign. Operands and the value are converted where C assigns them.
    """
    d = fn.dialect
    bits = u32 if dtype.bits == 32 else u64
    of_bits = f"({d.global_space}{bits} *){address}"
    if op == "sub":  # in unsigned numbers, where each has an opposite
        op, operand = "add", operands[0]
        if not (dtype.is_float or operand.raw):
            operand = cast(str(bits), operand)
        operands = [Term(f"-({operand.text})", UNARY)]
    if dtype.is_float:
        if op == "exchange":
            return d.bitcast(
                d.atomic(op, bits, of_bits, d.bitcast(operands[0].text, dtype, bits)), bits, dtype
            )
        if op != "add" or not d.has_float_atomics:
            return f"{_loop(fn.unit, op, dtype)}({address}, {operands[0].text})"
    elif op in ("min", "max"):
        return d.atomic(op, dtype, address, exact(operands[0], dtype).text)
    elif dtype.is_signed:
        address, dtype = of_bits, bits
    return d.atomic(op, dtype, address, *(o.text for o in operands))


def _loop(unit: Unit, op: str, dtype: DType) -> str:
    """``add``, ``min`` or ``max`` of floats: the latter store only where that changes the element, and a
    number wins over NaN."""
    name = f"tack_atomic_{op}_{dtype}"
    bits = u32 if dtype.bits == 32 else u64

    def write(fn: Emitter) -> None:
        d = fn.dialect
        with fn.function(f"{d.function} {dtype} {name}({d.global_space}{dtype} *address, {dtype} value)"):
            fn.line(f"{d.global_space}{bits} *cell = ({d.global_space}{bits} *)address;")
            fn.line(f"{bits} seen = *(volatile {d.global_space}{bits} *)cell;")
            with fn.braces("for (;;)"):
                fn.line(f"const {dtype} old = {d.bitcast('seen', bits, dtype)};")
                if op != "add":
                    fn.line(f"if (old {'<=' if op == 'min' else '>='} value || value != value)")
                    fn.line("    return old;")
                changed = d.bitcast("old + value" if op == "add" else "value", dtype, bits)
                swap = d.atomic("cas", bits, "cell", "seen", changed)
                fn.line(f"const {bits} found = {swap};")
                fn.line("if (found == seen)")
                fn.line("    return old;")
                fn.line("seen = found;")

    return unit.helper(name, write)
