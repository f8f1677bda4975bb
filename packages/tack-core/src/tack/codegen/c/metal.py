"""MSL, the Metal Shading Language, version 3.0: C++ with address spaces, without f64 and ``goto``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Final

from tack.codegen.c.dialect import Dialect, Head, Slot
from tack.codegen.c.f32_functions import FUNCTIONS, spelled
from tack.dtypes import DType

__all__ = ["MSL"]

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl
    const const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    constant device fragment kernel thread threadgroup threadgroup_imageblock object_data ray_data vertex
    visible intersection mesh object half bfloat quad uchar ushort uint ulong size_t ptrdiff_t uintptr_t
    metal precise fast sampler coord address filter texture3d as_type popcount clz ctz atomic_int atomic_uint
    atomic_float atomic_load_explicit atomic_store_explicit atomic_exchange_explicit
    atomic_compare_exchange_weak_explicit atomic_fetch_add_explicit atomic_fetch_and_explicit
    atomic_fetch_max_explicit atomic_fetch_min_explicit atomic_fetch_or_explicit atomic_fetch_xor_explicit
    atomic_thread_fence memory_order_relaxed memory_order_seq_cst mem_flags thread_scope_device
    threadgroup_barrier assert main NULL INFINITY NAN MAXFLOAT MAXHALF HUGE_VALF HUGE_VALH access swap
    coherent
"""
_VECTORS = ("bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float")
# The constants of the headers are macros.
_LIMITS = "DIG MANT_DIG MAX_10_EXP MAX_EXP MIN_10_EXP MIN_EXP RADIX MAX MIN EPSILON"
_INTEGERS = "CHAR SCHAR UCHAR SHRT USHRT INT UINT LONG ULONG"
_NUMBERS = "E LOG2E LOG10E LN2 LN10 PI PI_2 PI_4 1_PI 2_PI 2_SQRTPI SQRT2 SQRT1_2"

# The weak form may fail without a reason, and there is no other.
_CAS = """\
static inline u32 tack_cas(device u32 *address, u32 expected, u32 desired) {
    u32 seen = expected;
    while (!atomic_compare_exchange_weak_explicit((device atomic_uint *)address, &seen, desired,
                                                  memory_order_relaxed, memory_order_relaxed) &&
           seen == expected) {
    }
    return seen;
}
"""
# Before 3.2 there is none for the device.
_FENCE = """\
static inline void tack_fence() {
#if __METAL_VERSION__ >= 320
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
#endif
}
"""
_COUNTS = {
    "tack_popcount": "popcount(low) + popcount(high)",
    "tack_clz": "high ? clz(high) : 32 + clz(low)",
    "tack_ctz": "low ? ctz(low) : 32 + ctz(high)",
}
_COUNT = """\
static inline i32 {name}(u64 x) {{
    const u32 low = (u32)x, high = (u32)(x >> 32);
    return (i32)({found});
}}
"""
_OPERATIONS = {
    "exchange": "exchange",
    **{op: f"fetch_{op}" for op in ("add", "and", "max", "min", "or", "xor")},
}
_ATTRIBUTES = {
    "tack_group": "threadgroup_position_in_grid",
    "tack_thread": "thread_position_in_threadgroup",
    "tack_size": "threads_per_threadgroup",
    "tack_groups": "threadgroups_per_grid",
}
_PRECISE = """
    sqrt rsqrt sin cos asin acos sinh cosh exp exp2 log log2 log10
"""
_SPELLED = {
    **{f"as_{name}(": f"as_type<{name}>(" for name in ("f32", "i32", "u32")},
    " sqrt(": " precise::sqrt(",
}
# What MSL does not have, or with an error that may be 5 ULP (atan, tanh), 6 (tan, atan2) or 16 (pow).
_OURS = ("expm1", "log1p", "cbrt", "hypot", "erf", "erfc", "pow", "atan", "atan2", "tan", "tanh")


class Msl(Dialect):
    """A kernel function's slots are the members of one structure, 8 bytes each, at buffer index 0. Textures
    have slots there too, without meaning, and are bound in their order."""

    name = "MSL"
    types: ClassVar[dict[str, str]] = {
        "i8": "char",
        "u8": "uchar",
        "i16": "short",
        "u16": "ushort",
        "i32": "int",
        "u32": "uint",
        "i64": "long",
        "u64": "ulong",
        "f32": "float",
    }
    suffixes: ClassVar[dict[str, str]] = {"u32": "u", "i64": "l", "u64": "ul"}
    prelude = "#include <metal_stdlib>\nusing namespace metal;\n\n"
    entry = "kernel"
    function = "static inline"
    constant = constant_global = "constant"
    max_constant_bytes = 1 << 15
    shared = "threadgroup"
    max_shared_bytes = 32 << 10
    max_local_bytes = 64 << 10
    global_space = "device "
    shared_space = "threadgroup "
    texture = "texture3d<float>"
    sampler = "constexpr sampler tack_sampler(coord::normalized, address::clamp_to_edge, filter::linear);\n"
    fence = "tack_fence();"
    restrict = ""
    barrier = "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);"
    unrolled = "#pragma clang loop unroll(full)"
    rolled = "#pragma clang loop unroll(disable)"
    atomic_dtypes = ("i32", "u32", "f32")
    has_long_atomics = False
    has_shuffles = False  # of 64 bits, or of as many lanes on every GPU
    has_goto = False
    has_print = False
    fast_options = ("relaxed",)
    functions: ClassVar[dict[str, str]] = {
        **{name: f"precise::{name}" for name in _PRECISE.split()},
        **{name: f"tack_{name}" for name in _OURS},
    }
    library: ClassVar[dict[str, str]] = {
        "tack_cas": _CAS,
        "tack_fence": _FENCE,
        **{name: _COUNT.format(name=name, found=found) for name, found in _COUNTS.items()},
        **spelled(FUNCTIONS, _SPELLED),
    }
    reserved = frozenset(
        [
            *_KEYWORDS.split(),
            *(f"{name}{width}" for name in _VECTORS for width in (2, 3, 4)),
            *(f"packed_{name}{width}" for name in _VECTORS for width in (2, 3, 4)),
            *(f"{name}{n}x{m}" for name in ("half", "float") for n in (2, 3, 4) for m in (2, 3, 4)),
            *(f"{kind}_{name}" for kind in ("FLT", "HALF") for name in _LIMITS.split()),
            *(f"{kind}_{end}" for kind in _INTEGERS.split() for end in ("MAX", "MIN", "BIT")),
            *(f"M_{name}_{suffix}" for name in _NUMBERS.split() for suffix in "FH"),
        ]
    )

    def math(self, name: str, dtype: DType) -> str:
        return self.functions.get(name, name)  # overloaded

    def kernel(self, name: str, block: tuple[int, int, int], slots: Sequence[Slot], groups: int = 1) -> Head:
        arguments = f"tack_{name}_arguments"
        before = [f"struct {arguments} {{"]
        parameters = [f"constant {arguments} &tack_arguments [[buffer(0)]]"]
        first = []
        textures = 0
        for slot in slots:
            if slot.is_texture:
                before.append(f"    alignas(8) ulong {slot.name};")
                parameters.append(f"{slot.text} [[texture({textures})]]")
                textures += 1
            else:
                before.append(f"    alignas(8) {slot.text};")
                first.append(f"{slot.text} = tack_arguments.{slot.name};")
        before += ["};", ""]
        parameters += [f"uint3 {own} [[{attribute}]]" for own, attribute in _ATTRIBUTES.items()]
        listed = ",\n    ".join(parameters)
        qualifiers = f"[[kernel, max_total_threads_per_threadgroup({prod(block)})]]"
        return Head(f"{qualifiers} void {name}(\n    {listed})", before, first)

    def block_index(self, axis: int) -> str:
        return f"tack_group.{'xyz'[axis]}"

    def thread_index(self, axis: int) -> str:
        return f"tack_thread.{'xyz'[axis]}"

    def block_size(self, axis: int) -> str:
        return f"tack_size.{'xyz'[axis]}"

    def grid_size(self, axis: int) -> str:
        return f"tack_groups.{'xyz'[axis]}"

    def fetch(self, texture: str, position: Sequence[str]) -> str:
        extents = ", ".join(f"{texture}.get_{extent}()" for extent in ("width", "height", "depth"))
        at = f"(float3({', '.join(position)}) + 0.5f) / float3({extents})"
        return f"{texture}.sample(tack_sampler, {at}).x"

    def bitcast(self, text: str, source: DType, to: DType) -> str:
        return f"as_type<{self.types[to.name]}>({text})"

    def count(self, name: str, text: str, bits: int) -> str:
        return f"tack_{name}({text})" if bits == 64 else f"(int){name}((uint)({text}))"

    def shared_add(self, address: str, operand: str) -> str:
        target = f"(threadgroup atomic_uint *){address}"
        return f"atomic_fetch_add_explicit({target}, {operand}, memory_order_relaxed)"

    def atomic(self, op: str, dtype: DType, address: str, *operands: str) -> str:
        if op == "cas":
            return f"tack_cas({', '.join([address, *operands])})"
        target = f"(device atomic_{self.types[dtype.name]} *){address}"
        return f"atomic_{_OPERATIONS[op]}_explicit({target}, {operands[0]}, memory_order_relaxed)"


MSL: Final = Msl()
