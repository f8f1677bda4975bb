"""CUDA C, as NVRTC takes it, without headers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Final

from tack.codegen.c.dialect import Dialect
from tack.dtypes import DType, u32

__all__ = ["CUDA"]

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
    class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    NULL atomicAdd atomicAnd atomicCAS atomicExch atomicMax atomicMin atomicOr atomicXor tex3D
    assert clock clock64 dim3 blockDim blockIdx gridDim threadIdx warpSize linux unix main
"""


class Cuda(Dialect):
    name = "CUDA C"
    types: ClassVar[dict[str, str]] = {
        "i8": "signed char",
        "u8": "unsigned char",
        "i16": "short",
        "u16": "unsigned short",
        "i32": "int",
        "u32": "unsigned int",
        "i64": "long long",
        "u64": "unsigned long long",
        "f32": "float",
        "f64": "double",
    }
    may_alias = ""
    entry = 'extern "C" __global__'
    function = "static __device__ __forceinline__"
    constant = "static __constant__ const"
    constant_global = "static __device__ const"
    max_constant_bytes = 1 << 15
    shared = "__shared__"
    max_shared_bytes = 48 << 10
    max_local_bytes = 500 << 10
    texture = "unsigned long long"
    fence = "__threadfence();"
    restrict = "__restrict__"
    barrier = "__syncthreads();"
    unrolled = "#pragma unroll"
    rolled = "#pragma unroll 1"
    atomic_dtypes = ("i32", "u32", "i64", "u64", "f32", "f64")
    # Approximate division and square roots, and denormals as zeros; infinities and NaN stay what they are.
    fast_options: tuple[str, ...] = ("--ftz=true", "--prec-div=false", "--prec-sqrt=false")
    reserved = frozenset(_KEYWORDS.split())

    def bounds(self, block: tuple[int, int, int], groups: int = 1) -> str:
        threads = prod(block)
        return f"__launch_bounds__({threads}, {groups})" if groups > 1 else f"__launch_bounds__({threads})"

    def block_index(self, axis: int) -> str:
        return f"blockIdx.{'xyz'[axis]}"

    def thread_index(self, axis: int) -> str:
        return f"threadIdx.{'xyz'[axis]}"

    def block_size(self, axis: int) -> str:
        return f"blockDim.{'xyz'[axis]}"

    def grid_size(self, axis: int) -> str:
        return f"gridDim.{'xyz'[axis]}"

    def fetch(self, texture: str, position: Sequence[str]) -> str:
        return f"tex3D<float>({texture}, {', '.join(f'{part} + 0.5f' for part in position)})"

    def opaque(self, text: str, dtype: DType) -> str:
        # ptxas 13.0 takes the result of neg.s16 for one with a right sign in 32 bits; of -(-32768) it is not.
        return f"__byte_perm({text}, 0u, 0x4410u)" if dtype.name == "i16" else text

    def bitcast(self, text: str, source: DType, to: DType) -> str:
        if source.is_float:
            kind = "float_as_int" if source.bits == 32 else "double_as_longlong"
        else:
            kind = "int_as_float" if to.bits == 32 else "longlong_as_double"
        return f"__{kind}({text})"

    def count(self, name: str, text: str, bits: int) -> str:
        wide = "ll" if bits == 64 else ""
        if name == "ctz":
            return f"__clz{wide}(__brev{wide}({text}))"
        return f"__{'popc' if name == 'popcount' else 'clz'}{wide}({text})"

    def truncate(self, source: DType, to: DType) -> str | None:
        # A conversion to 64 bits, or from f64, gives something else for NaN.
        if source.bits == to.bits == 32:
            return "__float2int_rz" if to.is_signed else "__float2uint_rz"
        return None

    def shuffle_down(self, value: str, distance: str) -> str:
        return f"__shfl_down_sync(0xffffffffu, {value}, {distance})"

    def shared_add(self, address: str, operand: str) -> str:
        return self.atomic("add", u32, address, operand)

    def atomic(self, op: str, dtype: DType, address: str, *operands: str) -> str:
        name = {"exchange": "Exch", "cas": "CAS"}.get(op, op.title())
        return f"atomic{name}({', '.join([address, *operands])})"


CUDA: Final = Cuda()
