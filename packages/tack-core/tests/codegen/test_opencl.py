"""OpenCL C: what Intel's offline compiler takes, for devices with and without f64, and valid SPIR-V."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir.strategies import generated_kernels, kernels
from offline.compilers import COMPILERS, required

from codegen.fuzz_workgroups import proven, workgroup_kernels
from codegen.test_cuda import OTHERS, operations
from codegen.test_operations import table
from tack.codegen.c import OPENCL, OPENCL_WITHOUT_F64, Source, generate
from tack.dtypes import ALL_DTYPES, DType, f32, f64
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.traversal import walk
from tack.ir.workgroups import BLOCK_DTYPES
from tack.runtime.level_zero import ocloc
from tack.runtime.level_zero.program import BUILD_FLAGS

# Data centre GPUs, which have f64, and two that do not: integrated ones and those for desktops.
DEVICES = {"pvc": True, "tgllp": False, "dg2": False}
ATOMIC_DTYPES = OPENCL.atomic_dtypes


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    missing = next(compiler for compiler in COMPILERS if compiler.name == "ocloc").missing()
    if missing is not None:
        if "ocloc" in required():
            pytest.fail(f"TACK_REQUIRE_COMPILERS names ocloc, but {missing}")
        pytest.skip(missing)


def native(source: Source, device: str) -> bytes:
    """The machine code of a source for a device; nothing may be warned of but that registers are few."""
    options = " ".join((*ocloc.OPTIONS, *source.options, "-cl-intel-greater-than-4GB-buffer-required"))
    arguments = ("compile", "-file", "k.cl", "-device", device, "-output", "k", "-options", options)
    status, files = ocloc.invoke(arguments, {"k.cl": source.text.encode() + b"\0"})
    log = files.get("stdout.log", b"").decode()
    assert status == 0, f"{log}\n{source.text}"
    warnings = [line for line in log.splitlines() if "warning" in line and "spilled" not in line]
    assert not warnings, f"{log}\n{source.text}"
    validate(next(data for name, data in files.items() if name.endswith(".spv")))
    return next(data for name, data in files.items() if name.endswith(".bin"))


def validate(spirv: bytes) -> None:
    done = subprocess.run(
        ["spirv-val", "--target-env", "spv1.4", "-"], input=spirv, capture_output=True, check=False
    )
    # The translator of LLVM 14 leaves constant tables out of an entry's variables, as before SPIR-V 1.4.
    errors = done.stderr.decode()
    assert done.returncode == 0 or "but is not listed as an interface" in errors, errors


def source_for(device: str, kernel: ir.Kernel | str, **options: Any) -> Source:
    dialect = OPENCL if DEVICES[device] else OPENCL_WITHOUT_F64
    return generate(parse(kernel) if isinstance(kernel, str) else kernel, dialect, **options)


def uses_f64(node: ir.Node) -> bool:
    return any(getattr(part, "type", None) is f64 for part in walk(node))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_every_operation_compiles(dtype: DType, device: str) -> None:
    found = [op for op in operations(dtype) if DEVICES[device] or not uses_f64(op)]
    if found:
        assert len(native(source_for(device, table(found, [(name, dtype) for name in "abc"])), device)) > 1000


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", BLOCK_DTYPES, ids=str)
def test_atomics_and_block_reductions_compile(dtype: DType, device: str) -> None:
    lines = []
    for op in ["add", "sub", "min", "max", "exchange"] + (
        [] if dtype.is_float else ["and", "or", "xor", "cas"]
    ):
        operands = "x[%i], x[0:i64]" if op == "cas" else "x[%i]"
        if dtype.name in ATOMIC_DTYPES:
            lines += [f"%old = atomic_{op} x[1:i64], {operands}", f"atomic_{op} x[2:i64], {operands}"]
            lines += ["o[%i] = %old"]
    for op in ("sum", "min", "max"):
        lines += [
            f"%old = block_{op}(x[%i])",
            "barrier",
            "t[cast.i64(thread_id())] = %old",
            "o[%i] = t[3:i64]",
        ]
    body = "\n".join(lines)
    text = f"""kernel k(x: {dtype}[], o: {dtype}[]) {{
      local i: i64
      local old: {dtype}
      parallel i in (0:i64, dim(x, 0), 1:i64) {{
        shared t {dtype} (256:i64)
        {body}
      }}
    }}"""
    if dtype is not f64 or DEVICES[device]:
        native(source_for(device, text), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OTHERS)
def test_what_only_some_kernels_have_compiles(name: str, device: str) -> None:
    native(source_for(device, OTHERS[name], disjoint=True), device)


@given(kernels(workgroups=True), st.booleans())
@generated_kernels
def test_generated_kernels_compile(kernel: ir.Kernel, disjoint: bool) -> None:
    dtypes = {p.name: p.type.dtype for p in kernel.params if isinstance(p.type, ir.Array)}
    atomics = [n for n in walk(kernel) if isinstance(n, ir.Atomic)]
    if proven(kernel) and all(dtypes[n.array].name in ATOMIC_DTYPES for n in atomics):
        source = generate(kernel, OPENCL, disjoint=disjoint)
        validate(ocloc.compile_spirv(source.text, "k", f64=True, options=source.options))


@given(workgroup_kernels())
@generated_kernels
def test_generated_workgroups_compile(drawn: tuple[ir.Kernel, Any]) -> None:
    if proven(drawn[0]):
        ocloc.compile_spirv(generate(drawn[0], OPENCL).text, "k", f64=True)


NAMES = (
    *("int", "get_global_id", "get_group_id", "linux", "f32", "u64", "tack_lane", "_X", "__global", "local"),
    *("constant", "atomic_add", "sin", "min", "half", "float4", "uint16", "é", "image3d_t", "M_PI", "NAN"),
    *("as_float", "kernel", "read_imagef", "bool", "true", "NULL", "FLT_MAX", "global", "double", "size_t"),
    *("convert_int", "dot", "mix", "select", "clamp", "printf", "vload4", "native_sin", "get_work_dim"),
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
    native(source_for("tgllp", text), "tgllp")


@pytest.mark.parametrize(
    "operation",
    ["cast.f32(mul(cast.f64(x[%i]), 2.0:f64))", "cast.f32(add(cast.f64(%i), 0.5:f64))"],
)
def test_f64_is_refused_where_there_is_none(operation: str) -> None:
    text = f"""kernel k(x: f32[]) {{
      local i: i64
      parallel i in (0:i64, dim(x, 0), 1:i64) {{
        x[%i] = {operation}
      }}
    }}"""
    generate(parse(text), OPENCL)
    with pytest.raises(TypeError, match=r"OpenCL C without f64 does not have the type f64"):
        generate(parse(text), OPENCL_WITHOUT_F64)


TABLE = """kernel k(x: i32[], at: i64[]) {{
  local i: i64
  local j: i64
  table T ({})
  parallel i in (0:i64, dim(x, 0), 1:i64) {{
    for %j in (0:i64, at[%i], 1:i64) {{
      x[add(%i, %j)] = lookup.i32(T, at[%j])
    }}
  }}
}}"""


@pytest.mark.parametrize("device", DEVICES)
def test_small_tables_that_loops_read(device: str) -> None:
    """In another process, since releases of 2022 end theirs over some lengths."""
    program = "\n".join(
        [
            "from codegen.test_opencl import TABLE, native, source_for",
            "for count in (3, 9, 18, 33):",
            "    text = TABLE.format(', '.join(str(k % 9) for k in range(count)))",
            f"    assert native(source_for({device!r}, text), {device!r})",
            "print('compiled')",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert done.stdout == "compiled\n", done.stderr


def test_what_is_refused_names_the_error() -> None:
    with pytest.raises(RuntimeError, match=r"ocloc refuses the generated code:\n.*error.*undeclared"):
        ocloc.compile_spirv("__kernel void k(__global int *x) { *x = y; }", "k", f64=True)


DIVIDE = """kernel k(x: f32[], y: f32[]) {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    y[%i] = call.sqrt(div(x[%i], y[%i]))
  }
}"""


def from_spirv(spirv: bytes, device: str, options: str) -> bytes:
    """Machine code of SPIR-V, by the compiler that is in the driver."""
    arguments = (
        "compile",
        "-file",
        "k.spv",
        "-spirv_input",
        "-device",
        device,
        "-output",
        "k",
        "-options",
        options,
    )
    status, files = ocloc.invoke(arguments, {"k.spv": spirv})
    assert status == 0, files
    return next(data for name, data in files.items() if name.endswith(".bin"))


@pytest.mark.parametrize("device", DEVICES)
def test_the_driver_is_told_how_exact_divisions_are(device: str) -> None:
    """SPIR-V does not say so: without the option among the module's flags, machine code is shorter."""
    source = source_for(device, DIVIDE)
    (exact,) = source.options
    spirv = ocloc.compile_spirv(source.text, "k", f64=DEVICES[device], options=source.options)
    assert len(from_spirv(spirv, device, exact)) > len(from_spirv(spirv, device, ""))


@pytest.mark.parametrize(
    "call",
    [
        *("pow(x[%i], x[%i])", "call.atan2(x[%i], x[%i])"),
        *(f"call.{name}(x[%i])" for name in ("erf", "erfc", "tan", "atan", "tanh")),
    ],
)
def test_functions_that_may_be_far_off_are_ours(call: str) -> None:
    name = call.removeprefix("call.").partition("(")[0]
    for dtype, own in (("f32", f"tack_{name}"), ("f64", name if name == "tan" else f"tack_{name}_f64")):
        text = f"""kernel k(x: {dtype}[]) {{
          local i: i64
          parallel i in (0:i64, dim(x, 0), 1:i64) {{
            x[%i] = {call}
          }}
        }}"""
        assert f"= {own}(" in generate(parse(text), OPENCL).text


def test_flags_of_modules_are_those_of_the_api() -> None:
    assert all(flag.startswith("-ze-") for flag in BUILD_FLAGS)
    assert f32.name in ATOMIC_DTYPES


ASSEMBLY = """
import sys
from tack.runtime.level_zero import ocloc
from tack.runtime.level_zero.program import BUILD_FLAGS
print(ocloc.assembly(sys.stdin.buffer.read(), sys.argv[1], BUILD_FLAGS))
"""


@pytest.mark.parametrize("device", DEVICES)
def test_machine_code_as_text(device: str, tmp_path: Path) -> None:
    """Where there is the disassembler under the name without a number, which is in a package of its own."""
    library = ctypes.util.find_library("iga64")
    assert library is not None, "it comes with the compiler"
    (tmp_path / "libiga64.so").symlink_to(Path(ocloc.find().path).parent / library)
    source = source_for(device, DIVIDE)
    spirv = ocloc.compile_spirv(source.text, "k", f64=DEVICES[device], options=source.options)
    done = subprocess.run(
        [sys.executable, "-c", ASSEMBLY, device],
        input=spirv,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    text = done.stdout.decode()
    assert text.startswith(f"// {source.entry}\n")
    assert "math.sqt" in text


def test_machine_code_without_a_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(arguments: Any, sources: Any) -> tuple[int, dict[str, bytes]]:
        status, files = invoke(arguments, sources)
        return status, {name: data for name, data in files.items() if not name.endswith(".asm")}

    invoke = ocloc.invoke
    monkeypatch.setattr(ocloc, "invoke", without)
    spirv = ocloc.compile_spirv(source_for("pvc", DIVIDE).text, "k", f64=True)
    with pytest.raises(NotImplementedError, match=r"libiga64\.so.*package libigc-dev"):
        ocloc.assembly(spirv, "pvc")
    with pytest.raises(NotImplementedError, match="no machine code for the device 0x1234"):
        ocloc.assembly(spirv, "0x1234")
