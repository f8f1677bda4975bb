"""OpenCL C 1.2, for Level Zero: pointers have address spaces, functions are overloaded, and no shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from tack.codegen.c import f32_functions, f64_functions
from tack.codegen.c.dialect import Dialect
from tack.codegen.c.f32_functions import spelled
from tack.dtypes import DType

__all__ = ["OPENCL", "OPENCL_WITHOUT_F64"]

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile
    while bool half uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t image1d_t
    image1d_array_t image1d_buffer_t image2d_t image2d_array_t image3d_t pipe queue_t ndrange_t
    reserve_id_t clk_event_t complex imaginary quad asm typeof true false NULL main
    kernel global local constant private generic read_only write_only read_write uniform
    get_group_id get_local_id get_local_size get_num_groups barrier mem_fence read_imagef popcount clz
    as_int as_uint as_long as_ulong as_float as_double
    atomic_add atomic_and atomic_cmpxchg atomic_max atomic_min atomic_or atomic_xchg atomic_xor
    atom_add atom_and atom_cmpxchg atom_max atom_min atom_or atom_xchg atom_xor
    CHAR_BIT CHAR_MAX CHAR_MIN INT_MAX INT_MIN LONG_MAX LONG_MIN SCHAR_MAX SCHAR_MIN SHRT_MAX SHRT_MIN
    UCHAR_MAX UINT_MAX ULONG_MAX USHRT_MAX HUGE_VAL HUGE_VALF INFINITY MAXFLOAT NAN
    linux unix
"""
_VECTORS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "double")
# The constants of the headers are macros.
_LIMITS = "DIG EPSILON MANT_DIG MAX MAX_10_EXP MAX_EXP MIN MIN_10_EXP MIN_EXP RADIX"
_NUMBERS = "E LOG2E LOG10E LN2 LN10 PI PI_2 PI_4 1_PI 2_PI 2_SQRTPI SQRT2 SQRT1_2"

# Texels are at whole numbers and a half, as on other devices.
_SAMPLER = (
    "__constant sampler_t tack_sampler = "
    "CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_LINEAR;\n"
)
_TYPES = {
    "i8": "char",
    "u8": "uchar",
    "i16": "short",
    "u16": "ushort",
    "i32": "int",
    "u32": "uint",
    "i64": "long",
    "u64": "ulong",
    "f32": "float",
    "f64": "double",
}
# Whose error may be 5 (atan, tan, tanh), 6 (atan2) or 16 ULP.
_OURS_IN_F64 = ("atan", "atan2", "erf", "erfc", "pow", "tanh")
_OURS_IN_F32 = (*_OURS_IN_F64, "tan")
_SPELLED = {f"as_{name}(": f"as_{_TYPES[name]}(" for name in ("f32", "i32", "u32", "f64", "i64", "u64")}

# The error that OpenCL allows may turn a denormal into zero, which is not within what the language allows.
_LOG1P = """\
static inline __attribute__((always_inline)) {T} tack_log1p_{T}({T} a) {{
    return fabs(a) < ({T})1e-30f ? a : log1p(a);
}}
"""


class OpenCL(Dialect):
    name = "OpenCL C"
    types: ClassVar[dict[str, str]] = _TYPES
    suffixes: ClassVar[dict[str, str]] = {"u32": "u", "i64": "l", "u64": "ul"}
    # The second is for the print buffer and the records of debug mode.
    prelude = (
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
    )
    entry = "__kernel"
    # Some of them have barriers, for which compilers would have to inline them anyway.
    function = "static inline __attribute__((always_inline))"
    constant = constant_global = "__constant"
    max_constant_bytes = 1 << 15
    shared = "__local"
    max_shared_bytes = 48 << 10
    max_local_bytes = 64 << 10
    global_space = "__global "
    shared_space = "__local "
    texture = "__read_only image3d_t"
    sampler = _SAMPLER
    fence = "mem_fence(CLK_GLOBAL_MEM_FENCE);"
    restrict = "restrict"
    barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
    unrolled = "#pragma unroll"
    rolled = "#pragma unroll 1"
    atomic_dtypes = ("i32", "u32", "f32")
    has_float_atomics = False
    has_shuffles = False
    precise_options = ("-cl-fp32-correctly-rounded-divide-sqrt",)
    fast_options = ("-cl-denorms-are-zero",)
    library: ClassVar[dict[str, str]] = {
        **{f"tack_log1p_{t}": _LOG1P.format(T=t) for t in ("f32", "f64")},
        **spelled(f32_functions.FUNCTIONS, _SPELLED),
        **spelled(f64_functions.FUNCTIONS, _SPELLED),
    }
    reserved = frozenset(
        [
            *_KEYWORDS.split(),
            *(f"{name}{width}" for name in _VECTORS for width in (2, 3, 4, 8, 16)),
            *(f"{kind}_{name}" for kind in ("FLT", "DBL", "HALF") for name in _LIMITS.split()),
            *(f"M_{name}{suffix}" for name in _NUMBERS.split() for suffix in ("", "_F", "_H")),
        ]
    )

    def math(self, name: str, dtype: DType) -> str:
        if name == "log1p":
            return f"tack_log1p_{dtype}"
        if dtype.bits == 64:
            return f"tack_{name}_f64" if name in _OURS_IN_F64 else name
        return f"tack_{name}" if name in _OURS_IN_F32 else name  # which are overloaded

    def bounds(self, block: tuple[int, int, int], groups: int = 1) -> str:
        return f"__attribute__((reqd_work_group_size({', '.join(map(str, block))})))"

    def block_index(self, axis: int) -> str:
        return f"get_group_id({axis})"

    def thread_index(self, axis: int) -> str:
        return f"get_local_id({axis})"

    def block_size(self, axis: int) -> str:
        return f"get_local_size({axis})"

    def grid_size(self, axis: int) -> str:
        return f"get_num_groups({axis})"

    def table_length(self, count: int) -> int:
        # Intel's compiler makes a vector of a table of up to 32, padded with undefined elements.
        # If a loop reads one whose numbers fit in 8 bits, releases of 2022 end the process over those.
        return 1 << (count - 1).bit_length() if count <= 32 else count

    def fetch(self, texture: str, position: Sequence[str]) -> str:
        at = ", ".join(f"{part} + 0.5f" for part in position)
        return f"read_imagef({texture}, tack_sampler, (float4)({at}, 0.0f)).x"

    def bitcast(self, text: str, source: DType, to: DType) -> str:
        return f"as_{self.types[to.name]}({text})"

    def count(self, name: str, text: str, bits: int) -> str:
        kind = self.types[f"u{bits}"]
        if name == "ctz":
            return f"(int)popcount(~({kind})({text}) & (({kind})({text}) - 1))"
        return f"(int){name}(({kind})({text}))"

    def shared_add(self, address: str, operand: str) -> str:
        return f"atomic_add({address}, {operand})"

    def atomic(self, op: str, dtype: DType, address: str, *operands: str) -> str:
        prefix = "atom" if dtype.bits == 64 else "atomic"
        name = {"exchange": "xchg", "cas": "cmpxchg"}.get(op, op)
        return f"{prefix}_{name}({', '.join([address, *operands])})"


class _WithoutF64(OpenCL):
    name = "OpenCL C without f64"
    types: ClassVar[dict[str, str]] = {name: kind for name, kind in _TYPES.items() if name != "f64"}
    prelude = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"


OPENCL: Final = OpenCL()
OPENCL_WITHOUT_F64: Final = _WithoutF64()
