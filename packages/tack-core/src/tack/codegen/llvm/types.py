"""LLVM types and constants for the ten scalar types."""

from __future__ import annotations

from functools import cache, lru_cache

from tack.codegen.llvm import ir
from tack.dtypes import ALL_DTYPES, DType, i64

__all__ = ["ADDRESS", "FLAG", "I64", "LLVM_TYPES", "VOID", "constant", "flag", "index"]

FLAG = ir.IntType(1)
I64 = ir.IntType(64)
ADDRESS = ir.PointerType()
VOID = ir.VoidType()


def _llvm_type(dtype: DType) -> ir.Type:
    if dtype.is_float:
        return ir.FloatType() if dtype.bits == 32 else ir.DoubleType()
    return ir.IntType(dtype.bits)


LLVM_TYPES: dict[DType, ir.Type] = {dtype: _llvm_type(dtype) for dtype in ALL_DTYPES}


def constant(dtype: DType, value: int | float) -> ir.Constant:
    """``value`` as a constant of ``dtype``; an integer is reduced to its low bits."""
    if dtype.is_float:
        return ir.Constant(LLVM_TYPES[dtype], float(value))
    return _integer(dtype.bits, int(value))


@lru_cache(maxsize=1024)  # most are indices, zeros and ones
def _integer(bits: int, value: int) -> ir.Constant:
    # LLVM's integers have no sign; the signed reading is in range for every width.
    half = 1 << (bits - 1)
    return ir.Constant(ir.IntType(bits), ((value + half) & ((1 << bits) - 1)) - half)


def index(value: int) -> ir.Constant:
    """An i64 constant."""
    return constant(i64, value)


@cache
def flag(value: bool) -> ir.Constant:
    """An i1 constant."""
    return ir.Constant(FLAG, int(value))
