"""Constant tables."""

from __future__ import annotations

import math

from tack.codegen.c.emitter import Emitter
from tack.codegen.c.operators import bitcast, constant
from tack.codegen.c.terms import Term
from tack.dtypes import DType, u32, u64

__all__ = ["table"]


def table(fn: Emitter, name: str, dtype: DType, at: Term) -> Term:
    """Element ``at`` of a table, whose values are converted to ``dtype``."""
    from tack.ir.semantics import convert, to_bits

    unit = fn.unit
    values = [convert(v, dtype) for v in unit.kernel.tables[name].values]
    # Infinities and NaN have no literals, so a table with one in it has their bits.
    as_bits = dtype.is_float and not all(map(math.isfinite, values))
    stored = dtype if not as_bits else u32 if dtype.bits == 32 else u64
    symbol = unit.names[f"{name}.{dtype}"]
    if symbol not in unit.pieces:
        numbers = [to_bits(v, dtype) for v in values] if as_bits else values
        literals = ", ".join(constant(fn, stored, v).text for v in numbers)
        size = len(values) * dtype.itemsize
        unit.table_bytes += size
        small = unit.table_bytes <= fn.dialect.max_constant_bytes
        qualifiers = fn.dialect.constant if small else fn.dialect.constant_global
        length = fn.dialect.table_length(len(values))
        unit.pieces[symbol] = f"{qualifiers} {stored} {symbol}[{length}] = {{{literals}}};\n"
    element = Term(f"{symbol}[{at.text}]")
    return bitcast(fn, element, stored, dtype) if as_bits else element
