"""MSL: what clang says of it as C++ for OpenCL (`emulated.msl.check`), and what the runtime relies on."""

from __future__ import annotations

import math
import os
import re
import shutil
from typing import Any

import numpy as np
import pytest
from emulated import msl
from emulated.harness import EmulatedMsl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from ir.strategies import generated_kernels, kernels

from codegen.fuzz import KERNELS, check, runs_on, shows_nan_or_zero
from codegen.fuzz_workgroups import check as check_workgroups
from codegen.fuzz_workgroups import proven, workgroup_kernels
from codegen.test_cuda import OTHERS, atomics_and_reductions, operations
from codegen.test_operations import column, const, table
from tack.codegen.c import MSL, Source, generate
from tack.codegen.c.names import _FUNCTIONS
from tack.dtypes import ALL_DTYPES, DType, f32, f64
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.traversal import replace, walk
from tack.ir.workgroups import BLOCK_DTYPES

DTYPES = [dtype for dtype in ALL_DTYPES if dtype is not f64]
few = settings(
    generated_kernels,
    max_examples=max(1, generated_kernels.max_examples // 4),
    phases=[Phase.generate],  # to make a failing kernel smaller takes minutes
)
REDUCED = [dtype for dtype in BLOCK_DTYPES if dtype is not f64]


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if shutil.which("clang-19") is None:
        reason = "there is no clang-19"
        if "msl-emu" in os.environ.get("TACK_REQUIRE_TARGETS", "").replace(",", " ").split():
            pytest.fail(f"TACK_REQUIRE_TARGETS names msl-emu, but {reason}")
        pytest.skip(reason)


def source(kernel: ir.Kernel | str, **options: Any) -> Source:
    return generate(parse(kernel) if isinstance(kernel, str) else kernel, MSL, **options)


def every_operation(dtype: DType) -> Source:
    found = [op for op in operations(dtype) if all(getattr(n, "type", None) is not f64 for n in walk(op))]
    return source(table(found, [(name, dtype) for name in "abc"]))


def on_metal(text: str, dtype: DType) -> str:
    """A kernel of `atomics_and_reductions` without the atomics that Metal lacks."""
    if dtype.name in MSL.atomic_dtypes:
        return text
    return "\n".join(line for line in text.splitlines() if "atomic_" not in line)


# --- what the compiler takes --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_operation_compiles(dtype: DType) -> None:
    msl.check(every_operation(dtype).text)


@pytest.mark.parametrize("dtype", REDUCED, ids=str)
def test_atomics_and_block_reductions_compile(dtype: DType) -> None:
    msl.check(source(on_metal(atomics_and_reductions(dtype), dtype)).text)


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_some_kernels_have_compiles(name: str) -> None:
    msl.check(source(OTHERS[name], disjoint=True).text)


@given(kernels(dtypes=DTYPES, workgroups=True))
@few
def test_generated_kernels_compile(kernel: ir.Kernel) -> None:
    dtypes = {p.name: p.type.dtype for p in kernel.params if isinstance(p.type, ir.Array)}
    atomics = [n for n in walk(kernel) if isinstance(n, ir.Atomic)]
    if proven(kernel) and all(dtypes[n.array].name in MSL.atomic_dtypes for n in atomics):
        msl.check(source(kernel).text, strict=False)


@given(workgroup_kernels(real=f32))
@few
def test_generated_workgroups_compile(drawn: tuple[ir.Kernel, Any]) -> None:
    if proven(drawn[0]):
        msl.check(source(drawn[0]).text, strict=False)


# --- what it computes ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["integers", "singles"])
def test_generated_kernels_compute_what_the_interpreter_does(kind: str) -> None:
    @few
    @given(KERNELS[kind], st.data())
    def run(kernel: ir.Kernel, data: st.DataObject) -> None:
        kernel = replace(kernel, fastmath=False)
        shown = kind == "singles" and any(map(shows_nan_or_zero, walk(kernel)))
        if runs_on("metal", kernel) and not shown:
            check(kernel, data, "metal")

    run()


@given(workgroup_kernels(real=f32), st.data())
@few
def test_generated_workgroups_compute_what_the_interpreter_does(
    drawn: tuple[ir.Kernel, Any], data: st.DataObject
) -> None:
    if proven(drawn[0]):
        check_workgroups(*drawn, data, EmulatedMsl)


# --- what the check finds -----------------------------------------------------------------------

SHARED = """kernel k(x: f32[], n: i32[]) -> f32 {
  local i: i64
  local v: f32
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    array a f32 (4:i64)
    shared s f32 (256:i64)
    a[0:i64] = x[%i]
    s[cast.i64(thread_id())] = a[0:i64]
    barrier
    %v = block_sum(s[7:i64])
    atomic_add n[0:i64], 1:i32
    x[%i] = %v
  }
  return x[0:i64]
}"""
# A statement at the end of the kernel function, whose arrays are x, n, s (shared) and a (local).
WRONG = {
    "device f32 *p = s;": "cannot initialize a variable of type '__global f32",
    "device f32 *p = a;": "cannot initialize a variable of type '__global f32",
    "threadgroup f32 *p = x;": "cannot initialize a variable of type '__local f32",
    "constant f32 *p = x;": "cannot initialize a variable of type '__constant f32",
    "thread f32 *p = x;": "cannot initialize a variable of type '__private f32",
    "device f32 *p = (device f32 *)s;": "converts between mismatching address spaces",
    "tack_block_sum_f32(x[i], x, tack_lane);": "no matching function for call",
    "atomic_fetch_add_explicit((device atomic_int *)s, 1, memory_order_relaxed);": "mismatching address",
    "atomic_fetch_add_explicit((threadgroup atomic_int *)s, 1, memory_order_relaxed);": "no matching",
    "tack_arguments.x = x;": "read-only variable is not assignable",
    "f32 *p = a;": "'f32 [*]' has no address space",
    "if (i) { threadgroup f32 t[3]; t[0] = 0; }": "can only be declared in the outermost scope of a kernel",
    "x[0] = (f32)(double)x[1];": "use of type 'double' requires",
    "x[0] = x[1] * 0.1;": "double precision constant",
    "x[0] = sin(x[1]);": "undeclared identifier 'sin'",
    "i = i == i;": "self-comparison",
}


def test_the_check_takes_the_kernel_that_it_is_tried_on() -> None:
    text = source(SHARED).text
    msl.check(text)
    assert "threadgroup f32 s[256];" in text
    assert "thread f32 *p" not in text


@pytest.mark.parametrize("statement", WRONG)
def test_the_check_finds(statement: str) -> None:
    entry, found, rest = source(SHARED).text.rpartition("\n}\n\nstruct ")  # the result's function follows
    assert found
    with pytest.raises(msl.MslError, match=WRONG[statement]):
        msl.check(f"{entry}\n    {statement}{found}{rest}")


# --- what the runtime and Apple's compiler rely on ----------------------------------------------

SLOTS = """kernel k(t: f32[,,] texture, x: f32[], s: i8, u: f32[,,] texture, y: i64[]) -> f32 {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    x[%i] = add(fetch(t, 1.0:f32, 2.0:f32, 3.0:f32), fetch(u, cast.f32($s), cast.f32(y[%i]), 0.0:f32))
  }
  return x[0:i64]
}"""


def test_the_slots_are_one_structure_and_textures_are_bound_in_their_order() -> None:
    entry, result = msl.functions(source(SLOTS).text)
    bounds = [False] * 3
    assert (entry.name, entry.textures, entry.max_threads) == ("k_kernel", 2, 128)
    assert entry.pointers == (False, True, False, False, True, *bounds)
    assert (result.name, result.textures, result.max_threads) == ("k_result", 2, 1)
    assert result.pointers == (*entry.pointers, True)


def test_every_kernel_function_has_one_buffer() -> None:
    texts = [source(SLOTS).text, source(SHARED).text, *(source(text).text for text in OTHERS.values())]
    for text in texts:
        assert text.count("[[buffer(") == text.count("[[buffer(0)]]") == text.count("[[kernel, ")
        assert len(msl.functions(text)) == text.count("[[kernel, ")


def test_units_have_what_msl_lacks_not() -> None:
    texts = [every_operation(dtype).text for dtype in DTYPES]
    texts += [source(on_metal(atomics_and_reductions(dtype), dtype)).text for dtype in REDUCED]
    texts += [source(text).text for text in OTHERS.values()]
    for text in texts:
        assert not re.search(r"\b(goto|double|f64|printf|asm|restrict)\b", text)
        assert text.startswith("#include <metal_stdlib>\nusing namespace metal;\n")
        for literal in re.findall(r"\b(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|0x[\da-f]+p-?\d+)\w*", text):
            assert literal.endswith("f"), literal  # without it they are of a type that MSL does not have


def test_functions_whose_error_is_bounded_are_called() -> None:
    """Those of the namespace ``precise``, or ours; the plain ones are fast where the math mode says so."""
    text = every_operation(f32).text
    for name in (
        *("sqrt", "rsqrt", "sin", "cos", "asin", "acos", "sinh", "cosh"),
        *("exp", "exp2", "log", "log2", "log10"),
    ):
        calls = re.findall(rf"([\w:]*)\b{name}\(", text)
        assert calls, name
        assert set(calls) == {"precise::"}, name
    ours = ("expm1", "log1p", "cbrt", "hypot", "erf", "erfc", "pow", "tan", "atan", "atan2", "tanh")
    for name in ours:
        assert set(re.findall(rf"([\w:]*)\b(?<!_){name}\(", text)) == set(), name
        assert f" tack_{name}(f32" in text


def test_fastmath_is_for_the_kernel_that_asks() -> None:
    kernel = parse(SHARED)
    assert source(kernel).options == ()
    assert source(replace(kernel, fastmath=True)).options == ("relaxed",)


def test_constants_are_exact() -> None:
    draw = np.random.default_rng(1)
    limits = np.finfo(np.float32)
    edges = [limits.max, limits.tiny, limits.smallest_subnormal, 0.0, -0.0, 0.1, -1.0, 1e10, 16777216.0]
    numbers = [*map(float, edges), math.inf, -math.inf, math.nan]
    drawn = draw.integers(0, 1 << 32, 500, np.uint32).view(np.float32)
    numbers += [float(v) for v in drawn if np.isfinite(v)]
    made = [ir.Call("copysign", (const(v, f32), column(0, "a", f32)), type=f32) for v in numbers]
    found = re.findall(r"copysign\((.*), a\[i\]\)", source(table(made, [("a", f32)])).text)
    assert len(found) == len(numbers)
    for text, number in zip(found, numbers, strict=True):
        bits = re.fullmatch(r"as_type<float>\(0x([0-9a-f]{8})u\)", text)
        assert bits or re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?f", text), text
        value = np.float32(text[:-1]) if not bits else np.uint32(int(bits[1], 16)).view(np.float32)
        assert value.tobytes() == np.float32(number).tobytes(), (text, number)


# --- names --------------------------------------------------------------------------------------

NAMES = (
    *("int", "device", "thread", "threadgroup", "constant", "kernel", "f32", "u64", "tack_lane", "_X"),
    *("metal", "precise", "fast", "half", "float4", "uint3", "as_type", "atomic_uint", "sampler", "coord"),
    *("memory_order_relaxed", "filter", "address", "texture3d", "vertex", "fragment", "é", "M_PI_F", "NAN"),
    *("FLT_MAX", "min", "sin", "popcount", "mem_flags", "bool", "true", "size_t", "template", "class"),
    *("operator", "long", "local", "global", "generic", "pipe", "read_only", "write_only", "read_write"),
    *("vec_step", "addrspace_cast", "image2d_t", "double2", "event_t"),
)


def test_names_that_mean_something_to_the_compiler() -> None:
    lines = "\n".join(f"%{n} = add(%{n}, call.min(call.sin($p), %int))" for n in NAMES)
    locals = "\n".join(f"local {n}: f32" for n in NAMES)
    text = f"""kernel main(main: f32[], p: f32) {{
      {locals}
      local i: i64
      parallel i in (0:i64, 1:i64, 1:i64) {{
        {lines}
        atomic_add main[%i], add(%{NAMES[0]}, %{NAMES[-1]})
      }}
    }}"""
    msl.check(source(text).text)


def test_every_name_that_units_use_is_reserved() -> None:
    """A local of a kernel that had one would hide it."""
    texts = [every_operation(dtype).text for dtype in DTYPES]
    texts += [source(on_metal(atomics_and_reductions(dtype), dtype)).text for dtype in REDUCED]
    texts += [source(text).text for text in OTHERS.values()]
    used: set[str] = set()
    for text in texts:
        code = re.sub(r"\[\[.*?\]\]|//.*|#.*|(?:\.|::)\w+|\b\d[\w.+-]*|tack_\w+|\w+_kernel", " ", text)
        declared = set(re.findall(r"\b(?:[iuf](?:8|16|32|64)|bool|int|float) (?:\*|&)?(\w+)", code))
        declared |= set(re.findall(r"[*&](\w+)", code)) | set(re.findall(r", (\w+) =", code)) | {"t"}
        used |= set(re.findall(r"\b[a-z]\w*", code)) - declared
    assert used <= MSL.reserved | _FUNCTIONS | {dtype.name for dtype in DTYPES}
