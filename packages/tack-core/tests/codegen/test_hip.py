"""HIP C: what AMD's compilers take, and that wavefronts of 32 lanes and of 64 compute what warps do."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from emulated import amd
from emulated.harness import Emulated
from hypothesis import given, settings
from hypothesis import strategies as st
from ir.strategies import generated_kernels, kernels

from codegen.fuzz_workgroups import proven, workgroup_kernels
from codegen.test_cuda import (
    OTHERS,
    atomics_and_reductions,
    check_block_reductions,
    has_narrow_atomics,
    operations,
)
from codegen.test_operations import table
from tack.codegen.c import CUDA, HIP, Source, generate
from tack.codegen.c.module import _CROWD
from tack.dtypes import ALL_DTYPES, DType, f32, i32
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.workgroups import BLOCK_DTYPES

# Two accelerators and a GPU with texture units; those that Debian's hipRTC knows.
CLANG_ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100")
HIPRTC_ARCHITECTURES = ("gfx906", "gfx90a", "gfx1030")

Check = Callable[[Source], None]
few = settings(generated_kernels, max_examples=max(1, generated_kernels.max_examples // 4))  # 0.1 s each


def by_clang(source: Source) -> None:
    for architecture in CLANG_ARCHITECTURES:
        amd.clang(source.text, architecture, source.options)


def by_hiprtc(source: Source) -> None:
    for architecture in HIPRTC_ARCHITECTURES:
        image = amd.hiprtc(source.text, architecture, source.options)
        assert image.startswith((b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__"))
        assert source.entry.encode() in image


@pytest.fixture(params=["clang", "hiprtc"])
def compiles(request: pytest.FixtureRequest) -> Check:
    """Compiles a source for each architecture by one of the compilers."""
    amd.require(amd.clang_missing() if request.param == "clang" else amd.hiprtc_missing())
    return by_clang if request.param == "clang" else by_hiprtc


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_every_operation_compiles(compiles: Check, dtype: DType) -> None:
    compiles(generate(table(operations(dtype), [(name, dtype) for name in "abc"]), HIP))


@pytest.mark.parametrize("dtype", BLOCK_DTYPES, ids=str)
def test_atomics_and_block_reductions_compile(compiles: Check, dtype: DType) -> None:
    compiles(generate(parse(atomics_and_reductions(dtype)), HIP))


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "fetch"])
def test_what_only_some_kernels_have_compiles(compiles: Check, name: str) -> None:
    compiles(generate(parse(OTHERS[name]), HIP, disjoint=True))


def test_texture_fetches_compile() -> None:
    """Only by hipRTC, whose headers have the function, and where there are texture units."""
    amd.require(amd.hiprtc_missing())
    assert amd.hiprtc(generate(parse(OTHERS["fetch"]), HIP).text, "gfx1030")


def test_fastmath_compiles(compiles: Check) -> None:
    kernel = parse(OTHERS["print"])
    kernel.fastmath = True
    source = generate(kernel, HIP)
    assert len(source.options) == 2
    compiles(source)


@given(kernels(workgroups=True), st.sampled_from(CLANG_ARCHITECTURES), st.booleans())
@few
def test_generated_kernels_compile(kernel: ir.Kernel, architecture: str, disjoint: bool) -> None:
    amd.require(amd.clang_missing())
    if proven(kernel) and not has_narrow_atomics(kernel):
        source = generate(kernel, HIP, disjoint=disjoint)
        amd.clang(source.text, architecture, source.options, strict=False)


@given(workgroup_kernels(), st.sampled_from(CLANG_ARCHITECTURES))
@few
def test_generated_workgroups_compile(drawn: tuple[ir.Kernel, Any], architecture: str) -> None:
    amd.require(amd.clang_missing())
    if proven(drawn[0]):
        amd.clang(generate(drawn[0], HIP).text, architecture, strict=False)


# --- hipRTC itself --------------------------------------------------------------------------------


def test_errors_of_the_compiler() -> None:
    amd.require(amd.hiprtc_missing())
    with pytest.raises(RuntimeError, match="hipRTC refuses the generated code") as caught:
        amd.hiprtc('extern "C" __global__ void k() { int unused; nothing(); }', "gfx90a")
    text = str(caught.value)
    assert "error: use of undeclared identifier 'nothing'" in text
    assert "unused" not in text


def test_the_version_is_that_of_the_library() -> None:
    """hipRTC says 9.0 of itself, whichever it is."""
    amd.require(amd.hiprtc_missing())
    library = os.path.realpath(f"{amd.root()}/lib/libhiprtc.so")
    if found := re.search(r"\.so\.(\d+)\.(\d+)\.", library):
        assert amd.hiprtc_version() == (int(found[1]), int(found[2]))


def test_an_architecture_that_would_end_the_process() -> None:
    """An old hipRTC dies of those that it does not know, so that is tried in another process."""
    amd.require(amd.hiprtc_missing())
    source = generate(parse(OTHERS["print"]), HIP)
    with pytest.raises(RuntimeError, match=r"hipRTC \d+\.\d+ does not compile for .* gfx9999; install"):
        amd.hiprtc(source.text, "gfx9999")
    if amd.hiprtc_version() < (5, 5):
        with pytest.raises(RuntimeError, match=r"does not compile for the device's architecture gfx942;"):
            amd.hiprtc(source.text, "gfx942:sramecc+:xnack-")
    assert amd.hiprtc(source.text, "gfx90a:sramecc+:xnack-")  # the process lives


# --- wavefronts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wavefront", [32, 64])
@pytest.mark.parametrize("dtype", BLOCK_DTYPES, ids=str)
def test_block_reductions_agree_to_the_bit(dtype: DType, wavefront: int) -> None:
    check_block_reductions(dtype, functools.partial(Emulated, wavefront=wavefront))


def test_shuffles_stay_among_32_lanes() -> None:
    """Those of a wavefront's other half are not there, and their values would be anything."""
    text = generate(parse(atomics_and_reductions(f32)), HIP).text
    assert "__shfl_down(value, distance, 32)" in text
    assert "if (lane < 32)" in text


ALIASES = """kernel k(f: f32[], u: u32[], o: u32[]) {
  local i: i64
  parallel i in (0:i64, 1:i64, 1:i64) {
    f[0:i64] = 1.0:f32
    o[0:i64] = u[0:i64]
    u[0:i64] = 0:u32
    f[1:i64] = f[0:i64]
  }
}"""


@pytest.mark.parametrize("architecture", CLANG_ARCHITECTURES)
def test_arrays_of_two_types_may_overlap(architecture: str) -> None:
    """Without the attribute of types, clang moves the load of `u` before the store to `f`."""
    amd.require(amd.clang_missing())
    text = generate(parse(ALIASES), HIP).text
    accesses = re.compile(r"^\s+global_(store|load)_", re.MULTILINE)
    order = ["store", "load", "store", "store", "load", "store"]
    assert accesses.findall(amd.clang(text, architecture))[:6] == order
    without = amd.clang(text.replace(HIP.may_alias, ""), architecture)
    assert accesses.findall(without)[0] == "load", "the attribute is needed"


def body(kind: str, count: int) -> ir.Kernel:
    return parse(f"""kernel k(x: i32[]) {{
      local i: i64
      parallel i in (0:i64, dim(x, 0), 1:i64) {{
        {kind} t i32 ({count}:i64)
        t[%i] = 1:i32
        x[%i] = t[%i]
      }}
    }}""")


def test_a_processor_is_not_asked_to_hold_more_blocks_than_it_can(compiles: Check) -> None:
    """CUDA's have more shared memory; AMD's compilers warn of what cannot be, and save registers for it."""
    kernel = body("shared", 11 << 10)
    assert f"__launch_bounds__(256, {_CROWD}) k_kernel" in generate(kernel, CUDA).text
    source = generate(kernel, HIP)
    assert "__launch_bounds__(256) k_kernel" in source.text
    compiles(source)


def test_limits() -> None:
    generate(body("shared", 16 << 10), HIP)
    with pytest.raises(ValueError, match="shared arrays take 65540 bytes; HIP C has at most 65536"):
        generate(body("shared", (16 << 10) + 1), HIP)
    largest = HIP.max_local_bytes // i32.itemsize
    source = generate(body("array", largest), HIP)
    if amd.clang_missing() is None:
        by_clang(source)
    with pytest.raises(ValueError, match="local arrays take"):
        generate(body("array", largest + 1), HIP)
