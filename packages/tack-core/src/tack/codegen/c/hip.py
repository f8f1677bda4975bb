"""HIP C, as hipRTC and clang take it, without headers: CUDA C but for what is here."""

from __future__ import annotations

from typing import Final

from tack.codegen.c.cuda import Cuda
from tack.codegen.c.dialect import Dialect
from tack.dtypes import DType

__all__ = ["HIP"]

_KEYWORDS = """
    HIP_DYNAMIC_SHARED hipBlockDim_x hipBlockIdx_x hipGridDim_x hipThreadIdx_x
    __half half half2 hipTextureObject_t
"""
_SCOPE = "__ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT"


class Hip(Cuda):
    name = "HIP C"
    may_alias = Dialect.may_alias
    max_shared_bytes = 64 << 10
    max_local_bytes = 120 << 10  # of a lane, whose stack has 128 KiB
    texture = "hipTextureObject_t"
    # Denormals as zeros, approximate division and square roots; infinities and NaN stay what they are.
    fast_options = ("-fgpu-flush-denormals-to-zero", "-fno-hip-fp32-correctly-rounded-divide-sqrt")
    reserved = Cuda.reserved | frozenset(_KEYWORDS.split())

    def bounds(self, block: tuple[int, int, int], groups: int = 1) -> str:
        # A processor's 64 KiB of shared memory hold one block of a kernel for which CUDA asks for several.
        return super().bounds(block)

    def opaque(self, text: str, dtype: DType) -> str:
        return text

    def truncate(self, source: DType, to: DType) -> str | None:
        return None  # its conversions are C's, which leave open what does not fit

    def shuffle_down(self, value: str, distance: str) -> str:
        # Among 32 lanes, which are the whole of a wavefront or half of one.
        return f"__shfl_down({value}, {distance}, 32)"

    def atomic(self, op: str, dtype: DType, address: str, *operands: str) -> str:
        # The compiler's own: HIP's functions have no minimum of i64 in all versions.
        if op == "cas":
            return f"atomicCAS({', '.join([address, *operands])})"
        name = "exchange" if op == "exchange" else f"fetch_{op}"
        return f"__hip_atomic_{name}({', '.join([address, *operands])}, {_SCOPE})"


HIP: Final = Hip()
