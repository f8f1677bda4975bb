"""CUDA C: what NVRTC takes, how iterations are dealt out, and what only a GPU's code has."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulated import compiler
from emulated.harness import Emulated
from hypothesis import given
from hypothesis import strategies as st
from ir.strategies import generated_kernels, kernels

from codegen.fuzz_workgroups import proven, workgroup_kernels
from codegen.test_operations import column, const, table
from tack.codegen.c import CUDA, generate
from tack.codegen.c.early import early_loads
from tack.dtypes import ALL_DTYPES, DType, f32, f64, i16, i32, i64
from tack.ir import interpreter, semantics
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.semantics import BINARY_OPS, COMPARISONS
from tack.ir.traversal import walk
from tack.ir.workgroups import BLOCK_DTYPES
from tack.lang.builtins import BUILTINS
from tack.lang.source import Loc

ARCHITECTURES = ("sm_75", "sm_90", "sm_121")
INTEGERS_ONLY = ("shl", "shr", "bitand", "bitor", "bitxor")


def nvrtc(text: str, architecture: str = "sm_90", options: Sequence[str] = ()) -> bytes:
    """The CUBIN of a text, or the PTX for a virtual architecture, by NVIDIA's compiler."""
    library = pytest.importorskip("cuda.bindings.nvrtc")
    made, program = library.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    assert int(made) == 0
    arguments = [f"--gpu-architecture={architecture}".encode(), *(o.encode() for o in options)]
    (status,) = library.nvrtcCompileProgram(program, len(arguments), arguments)
    _, size = library.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    library.nvrtcGetProgramLog(program, log)
    assert int(status) == 0, f"{log.decode()}\n{text}"
    kind = "CUBIN" if architecture.startswith("sm") else "PTX"
    _, size = getattr(library, f"nvrtcGet{kind}Size")(program)
    found = bytearray(size)
    getattr(library, f"nvrtcGet{kind}")(program, found)
    library.nvrtcDestroyProgram(program)
    return bytes(found)


# --- what NVRTC takes ---------------------------------------------------------------------------


def operations(dtype: DType) -> list[ir.Expr]:
    """Every operator, function and conversion on arrays ``a``, ``b`` and ``c`` of ``dtype``."""
    a, b, c = (column(0, name, dtype) for name in "abc")
    ops = [op for op in BINARY_OPS if op not in (INTEGERS_ONLY if dtype.is_float else ("div", "pow"))]
    found: list[ir.Expr] = [ir.Binary(op, a, b, type=dtype) for op in ops]
    found += [ir.Binary(op, a, const(3, dtype), type=dtype) for op in ops]
    found += [ir.Unary(op, a, type=dtype) for op in ("neg", *(() if dtype.is_float else ("invert",)))]
    found += [ir.Unary("not", a, type=i32)]
    found += [ir.Compare(op, a, b, type=i32) for op in COMPARISONS]
    found += [ir.Logical(op, a, b, type=i32) for op in ("and", "or")]
    found += [ir.Select(a, b, c, type=dtype)]
    found += [ir.Cast(a, to, type=to) for to in ALL_DTYPES]
    found += [ir.Bitcast(a, to, type=to) for to in ALL_DTYPES if to.bits == dtype.bits]
    if dtype.is_float:
        found += [ir.Binary("pow", a, const(e, dtype), type=dtype) for e in (2.0, 3.0, 4.0, -1.0, 0.5, 1.7)]
    else:
        found += [ir.Binary("pow", a, ir.Cast(b, i64, type=i64), type=dtype)]
    for name, builtin in BUILTINS.items():
        if builtin.rule == ("float" if dtype.is_integer else "bits"):
            continue
        args = (a, b, c)[: builtin.max_args or 3]
        result = i32 if builtin.rule in ("test", "truth", "bits") else dtype
        found.append(ir.Call(name, args, type=result))
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_every_operation_compiles(dtype: DType, architecture: str) -> None:
    kernel = table(operations(dtype), [(name, dtype) for name in "abc"])
    assert nvrtc(generate(kernel, CUDA).text, architecture).startswith(b"\x7fELF")


def atomics_and_reductions(dtype: DType) -> str:
    """A kernel with every atomic and block reduction on ``dtype``."""
    ops = ["add", "sub", "min", "max", "exchange"] + ([] if dtype.is_float else ["and", "or", "xor", "cas"])
    lines = []
    for op in ops:
        operands = "x[%i], x[0:i64]" if op == "cas" else "x[%i]"
        lines += [
            f"%old = atomic_{op} x[1:i64], {operands}",
            f"atomic_{op} x[2:i64], {operands}",
            "o[%i] = %old",
        ]
    for op in ("sum", "min", "max"):
        lines += [
            f"%old = block_{op}(x[%i])",
            "barrier",
            "t[cast.i64(thread_id())] = %old",
            "o[%i] = t[3:i64]",
        ]
    body = "\n".join(lines)
    return f"""kernel k(x: {dtype}[], o: {dtype}[]) {{
      local i: i64
      local old: {dtype}
      parallel i in (0:i64, dim(x, 0), 1:i64) {{
        shared t {dtype} (256:i64)
        {body}
      }}
    }}"""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", BLOCK_DTYPES, ids=str)
def test_atomics_and_block_reductions_compile(dtype: DType, architecture: str) -> None:
    source = generate(parse(atomics_and_reductions(dtype)), CUDA)
    assert nvrtc(source.text, architecture).startswith(b"\x7fELF")


FETCH = """kernel k(t: f32[,,] texture, o: f32[], u: f32) {
  local i: i64
  parallel i in (0:i64, dim(o, 0), 1:i64) {
    o[%i] = fetch(t, cast.f32(%i), mul($u, 2.0:f32), $u)
  }
}"""
CHECKED = """kernel k(x: i32[], o: i32[], debug.extents: i64[], debug.errors: i64[]) {
  local i: i64
  local j: i64
  local q: i32
  parallel i in (0:i64, 2:i64, 1:i64), j in (0:i64, 300:i64, 1:i64) {
    %q = floordiv(x[bounds(x, %j, 300:i64, 1:i64)], nonzero(x[%j]))
    o[bounds(o, %i, 2:i64, 200:i64, %j, 200:i64, 1:i64)] = %q
  }
}"""
PRINT = """kernel k(x: f32[]) {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    print "x ", x[%i], " of ", %i
  }
}"""
OTHERS = {"fetch": FETCH, "checks": CHECKED, "print": PRINT}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", OTHERS)
def test_what_only_some_kernels_have_compiles(name: str, architecture: str) -> None:
    source = generate(parse(OTHERS[name]), CUDA, disjoint=True)
    assert nvrtc(source.text, architecture).startswith(b"\x7fELF")


def has_narrow_atomics(kernel: ir.Kernel) -> bool:
    """Whether it has atomics that the C family refuses."""
    dtypes = {p.name: p.type.dtype for p in kernel.params if isinstance(p.type, ir.Array)}
    return any(isinstance(n, ir.Atomic) and dtypes[n.array].bits < 32 for n in walk(kernel))


@given(kernels(workgroups=True), st.sampled_from(ARCHITECTURES), st.booleans())
@generated_kernels
def test_generated_kernels_compile(kernel: ir.Kernel, architecture: str, disjoint: bool) -> None:
    if proven(kernel) and not has_narrow_atomics(kernel):
        source = generate(kernel, CUDA, disjoint=disjoint)
        nvrtc(source.text, architecture, source.options)


@given(workgroup_kernels())
@generated_kernels
def test_generated_workgroups_compile(drawn: tuple[ir.Kernel, Any]) -> None:
    if proven(drawn[0]):
        nvrtc(generate(drawn[0], CUDA).text)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_constants_are_exact(dtype: DType) -> None:
    draw = np.random.default_rng(1)
    bits = (
        draw.integers(0, 1 << dtype.bits, 200, np.uint64, endpoint=False)
        if dtype is f32
        else draw.integers(0, 1 << 63, 200, np.uint64)
    )
    raw = bits.astype(f"u{dtype.itemsize}").view(dtype.numpy)
    limits = np.finfo(dtype.numpy)
    edges = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        float(limits.max),
        float(limits.tiny),
        float(limits.smallest_subnormal),
    ]
    values = [*edges, 0.1, -1.0, 1e10, *(float(v) for v in raw if v == v)]
    # The addition of an unknown number keeps the constants apart.
    exprs = [ir.Call("copysign", (const(v, dtype), column(0, "a", dtype)), type=dtype) for v in values]
    text = nvrtc(generate(table(exprs, [("a", dtype)]), CUDA).text, "compute_90").decode()
    found = {int(h, 16) for h in re.findall(r"\b0[fd]([0-9A-F]{8,16})\b", text)}
    found |= set(map(int, re.findall(r"\b\d+\b", text)))
    magnitude = (1 << (dtype.bits - 1)) - 1
    wanted = {semantics.to_bits(v, dtype) & magnitude for v in values}
    found = {n & magnitude for n in found} | {0}
    assert wanted <= found, [hex(n) for n in wanted - found]


def test_names_that_mean_something_to_the_compiler() -> None:
    names = [
        "int",
        "threadIdx",
        "blockDim",
        "linux",
        "f32",
        "u64",
        "tack_lane",
        "_X",
        "__global__",
        "asm",
        "NULL",
    ]
    names += [
        "atomicAdd",
        "sinf",
        "min",
        "warpSize",
        "register",
        "clock",
        "dim3",
        "half",
        "float4",
        "é",
        "not",
    ]
    lines = "\n".join(f"%{n} = add(%{n}, call.min(call.sin($p), %int))" for n in names)
    locals = "\n".join(f"local {n}: f32" for n in names)
    total = names[0]
    text = f"""kernel main(main: f32[], p: f32) {{
      {locals}
      local i: i64
      parallel i in (0:i64, 1:i64, 1:i64) {{
        {lines}
        atomic_add main[%i], add(%{total}, %{names[-1]})
      }}
    }}"""
    kernel = parse(text)
    nvrtc(generate(kernel, CUDA).text)
    out = np.zeros(1, np.float32)
    Emulated(kernel)({"main": out, "p": -1.0}, [(0, 1, 1)])
    sine = float(np.sin(np.float32(-1)))
    assert abs(out[0] - 2 * sine) < 1e-5


# --- iterations ---------------------------------------------------------------------------------

SAXPY = """kernel saxpy(x: f32[], y: f32[], a: f32) {
  local i: i64
  parallel i in (0:i64, dim(y, 0), 1:i64) {
    y[%i] = add(mul($a, x[%i]), y[%i])
  }
}"""


def visits(ndim: int) -> str:
    """A kernel that counts each iteration in ``o``, at its index."""
    names = "ijklmn"[:ndim]
    at = "0:i64"
    for n in names:
        at = f"add(mul({at}, $n{n}), %{n})"
    locals = "\n".join(f"local {n}: i64" for n in names)
    ranges = ", ".join(f"{n} in (0:i64, $n{n}, 1:i64)" for n in names)
    params = "".join(f", n{n}: i64" for n in names)
    count = f"o[{at}] = add(o[{at}], 1:i32)"
    return f"kernel k(o: i32[]{params}) {{\n{locals}\nparallel {ranges} {{\n{count}\n}}\n}}"


@pytest.mark.parametrize("blocks", [None, (1, 1, 1), (2, 3, 2)])
@pytest.mark.parametrize(
    "counts",
    [
        (1,),
        (511,),
        (512,),
        (5000,),
        (1, 1),
        (9, 130),
        (40, 33),
        (3, 5, 7),
        (9, 6, 300),
        (3, 4, 5, 6),
        (2, 1, 3, 2, 2, 1),
    ],
)
def test_each_iteration_runs_once(counts: tuple[int, ...], blocks: tuple[int, int, int] | None) -> None:
    compiled = Emulated(visits(len(counts)))
    o = np.zeros(math.prod(counts), np.int32)
    if blocks is not None:  # along the axes that the loop has
        used = 1 if compiled.source.geometry.flat else len(counts)
        blocks = tuple(n if axis < used else 1 for axis, n in enumerate(blocks))
    scalars = {f"n{n}": count for n, count in zip("ijklmn", counts, strict=False)}
    compiled({"o": o, **scalars}, [(0, 1, count) for count in counts], blocks=blocks)
    assert o.tolist() == [1] * len(o)


TILES = {
    "in place": "x[%i] = mul(x[%i], 2.0:f32)\nx[%i] = add(x[%i], y[%i])",
    "after a store": "y[%i] = x[add(%i, 1:i64)]\n%t = y[%i]\ny[%i] = add(%t, x[%i])",
    "conditional": "if lt(x[%i], 5.0:f32) {\ncontinue\n}\ny[%i] = add(x[add(%i, 1:i64)], 1.0:f32)",
    "selected": "y[%i] = select(lt(x[%i], 5.0:f32), x[add(%i, 1:i64)], y[%i])",
    "gather": "y[%i] = x[cast.i64(call.abs(call.min(x[%i], 3.0:f32)))]",
    "changed index": "%i = add(%i, 1:i64)\ny[%i] = x[%i]",
    "carried": "%b = add(%b, x[%i])\ny[%i] = %b",
    "empty": "%t = x[%i]",
}


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("name", TILES)
def test_whole_tiles_compute_what_others_do(name: str, disjoint: bool) -> None:
    text = f"""kernel k(x: f32[], y: f32[], s: f32) {{
      local b: f32
      local i: i64
      local t: f32
      %b = add($s, 0.5:f32)
      parallel i in (2:i64, sub(dim(x, 0), 1:i64), 1:i64) {{
        {TILES[name]}
      }}
    }}"""
    kernel = parse(text)
    draw = np.random.default_rng(3)
    args = {"x": draw.integers(0, 9, 1300).astype(np.float32), "y": draw.random(1300, np.float32), "s": 1.5}
    expected = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}
    interpreter.run(kernel, expected, [(2, 1, 1297)])
    Emulated(kernel, disjoint=disjoint)(args, [(2, 1, 1297)])
    assert args["x"].tolist() == expected["x"].tolist()
    assert args["y"].tolist() == expected["y"].tolist()


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("shape", [(9, 7, 300), (4, 4, 4), (6, 11, 130), (12, 9), (300, 140)])
def test_stencils_over_whole_and_other_tiles(shape: tuple[int, ...], disjoint: bool) -> None:
    names, strides = "ijk"[: len(shape)], [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    at = "0:i64"
    for name, stride in zip(names, strides, strict=True):
        at = f"add({at}, mul(%{name}, {stride}:i64))"
    total = f"x[{at}]"
    for stride in strides:
        total = f"add({total}, add(x[sub({at}, {stride}:i64)], x[add({at}, {stride}:i64)]))"
    locals = "\n".join(f"local {name}: i64" for name in names)
    ranges = ", ".join(f"{n} in (1:i64, {size - 1}:i64, 1:i64)" for n, size in zip(names, shape, strict=True))
    text = f"kernel k(x: f64[], o: f64[]) {{\n{locals}\nparallel {ranges} {{\no[{at}] = {total}\n}}\n}}"
    compiled = Emulated(text, disjoint=disjoint)
    assert max(compiled.source.geometry.items) == 4
    x = np.random.default_rng(6).integers(0, 99, shape).astype(np.float64)
    o, expected, inner = np.zeros(shape), np.zeros(shape), (slice(1, -1),) * len(shape)
    expected[inner] = x[inner]
    for axis in range(len(shape)):
        expected[inner] += (np.roll(x, 1, axis) + np.roll(x, -1, axis))[inner]
    compiled({"x": x.ravel(), "o": o.ravel()}, [(1, 1, size - 2) for size in shape])
    assert np.array_equal(o, expected)


def test_what_is_loaded_early() -> None:
    def early(body: str, disjoint: bool = False) -> set[str]:
        kernel = parse(
            "kernel k(x: f32[], y: f32[], s: f32) {\nlocal i: i64\nlocal t: f32\nlocal j: i64\n"
            f"parallel i in (0:i64, dim(x, 0), 1:i64) {{\n{body}\n}}\n}}"
        )
        return {to_text(loads[0]) for loads in early_loads(kernel, disjoint)}

    assert early("y[%i] = add(x[%i], y[%i])") == {"x[%i]", "y[%i]"}
    assert early("y[%i] = x[%i]\ny[%i] = x[add(%i, 1:i64)]") == {"x[%i]"}  # y may be x
    assert early("y[%i] = x[%i]\ny[%i] = x[add(%i, 1:i64)]", disjoint=True) == {"x[%i]", "x[add(%i, 1:i64)]"}
    assert early("y[%i] = x[%i]\nx[%i] = y[%i]", disjoint=True) == {"x[%i]"}
    assert early("y[%i] = select(x[%i], x[1:i64], x[2:i64])") == {"x[%i]"}
    assert early("if x[%i] {\ncontinue\n}\ny[%i] = x[1:i64]") == {"x[%i]"}
    assert early("%j = 3:i64\ny[%i] = x[%j]") == set()


def test_geometry() -> None:
    streaming = generate(parse(SAXPY), CUDA).geometry
    assert (streaming.items, streaming.flat) == ((4, 1, 1), True)
    looping = SAXPY.replace(
        "y[%i] = add", "for %k in (0:i64, 3:i64, 1:i64) {\ny[%k] = add(x[%k], $a)\n}\ny[%i] = add"
    )
    looping = looping.replace("local i: i64", "local i: i64\nlocal k: i64")
    assert generate(parse(looping), CUDA).geometry.items == (1, 1, 1)
    assert generate(parse(CHECKED), CUDA).geometry.flat
    assert generate(parse(visits(3)), CUDA).geometry.flat is False
    assert generate(parse(visits(4)), CUDA).geometry.flat is True


def test_streams_load_before_they_store() -> None:
    """Each thread has the loads of its four iterations in flight at once."""
    text = nvrtc(generate(parse(SAXPY), CUDA).text, "compute_90").decode()
    accesses = "".join(re.findall(r"\b(ld|st)\.global", text)).replace("ld", "L").replace("st", "S")
    assert "LLLLLLLLSSSS" in accesses


# --- what is refused, and the rest --------------------------------------------------------------


def body(params: str, lines: str) -> str:
    """A kernel over the elements of ``x``."""
    return f"kernel k({params}) {{\nlocal i: i64\nparallel i in (0:i64, dim(x, 0), 1:i64) {{\n{lines}\n}}\n}}"


def test_disjoint_arrays_are_restricted_and_read_ones_constant() -> None:
    assert "const f32 *x" in generate(parse(SAXPY), CUDA).text
    text = generate(parse(SAXPY), CUDA, disjoint=True).text
    assert "const f32 *__restrict__ x" in text
    assert "    f32 *__restrict__ y" in text


def test_fastmath_is_the_kernels_own() -> None:
    kernel = parse(SAXPY)
    assert generate(kernel, CUDA).options == ()
    kernel.fastmath = True
    options = generate(kernel, CUDA).options
    assert "--prec-div=false" in options
    assert not any("fast_math" in o or "use_fast" in o for o in options)
    nvrtc(generate(kernel, CUDA).text, options=options)


def test_negated_i16_keeps_its_sign() -> None:
    """ptxas 13.0 forgets to extend the sign of a negated i16; see `Cuda.opaque`."""
    a, b, zero, minus = column(0, "a", i16), column(0, "b", i16), const(0, i16), const(-1, i16)
    negated = [ir.Unary("neg", a, type=i16), ir.Call("abs", (a,), type=i16)]
    pairs = [
        ("mul", a, minus),
        ("mul", minus, a),
        ("sub", zero, a),
        ("floordiv", a, minus),
        ("floordiv", a, b),
        ("sub", ir.Binary("bitxor", a, a, type=i16), a),  # 0, as the compiler finds out
    ]
    negated += [ir.Binary(op, left, right, type=i16) for op, left, right in pairs]
    kernel = table([ir.Cast(e, i64, type=i64) for e in negated], [("a", i16), ("b", i16)])
    text = nvrtc(generate(kernel, CUDA).text, "compute_90").decode()
    assert "neg.s16" not in text
    assert "abs.s16" not in text
    x, y = np.array([-32768, 32767, 5], np.int16), np.array([-1, -1, -1], np.int16)
    outs = {f"out{k}": np.zeros(3, np.int64) for k in range(len(negated))}
    Emulated(kernel)({"a": x, "b": y, **outs}, [(0, 1, 3)])
    for k, out in enumerate(outs.values()):
        assert out.tolist() == ([-32768, 32767, 5] if k == 1 else [-32768, -32767, -5])


def test_narrow_atomics_are_refused() -> None:
    text = body("x: i16[]", "atomic_add x[0:i64], 1:i16")
    with pytest.raises(TypeError, match="kernel 'k': CUDA C has no atomics on i16"):
        generate(parse(text), CUDA)


@pytest.mark.parametrize(("kind", "count"), [("array", 64_001), ("shared", 6_145)])
def test_large_arrays_are_refused(kind: str, count: int) -> None:
    def text(size: int) -> str:
        return body("x: f64[]", f"{kind} t f64 ({size}:i64)\nx[%i] = t[0:i64]")

    generate(parse(text(count - 1)), CUDA)
    with pytest.raises(ValueError, match=rf"kernel 'k': .* take {8 * count} bytes; CUDA C has at most"):
        generate(parse(text(count)), CUDA)


def test_unproven_participation_is_refused() -> None:
    text = body("x: f32[]", "if x[%i] {\nbarrier\n}")
    with pytest.raises(ValueError, match="kernel 'k': a barrier that not all iterations"):
        generate(parse(text), CUDA)


def test_prints_past_the_buffer_are_dropped_and_counted() -> None:
    compiled = Emulated(PRINT)
    printed: list[tuple[int, list[int | float]]] = []
    x = np.arange(3000, dtype=np.float32)
    compiled({"x": x}, [(0, 1, 3000)], printed=printed)
    assert len(printed) == 4096 // 3  # a record has three words
    assert printed == [(0, [float(k), k]) for k in range(len(printed))]


def test_the_violation_of_the_first_iteration_is_recorded() -> None:
    x = np.arange(1, 301, dtype=np.int32)
    x[[40, 250]] = 0
    args = {"x": x, "o": np.zeros(400, np.int32)}
    errors = np.zeros(6, np.int64)
    launch = [(0, 1, 2), (0, 1, 300)]
    Emulated(CHECKED)({**args, "debug.extents": np.zeros(1, np.int64), "debug.errors": errors}, launch)
    # The divisor is zero in iteration 40; the index is out of range from 200 on.
    assert errors.tolist()[0] == 1
    assert errors.tolist()[5] == 40
    x[40] = 1
    errors[:] = 0
    Emulated(CHECKED)({**args, "debug.extents": np.zeros(1, np.int64), "debug.errors": errors}, launch)
    assert errors.tolist()[2:] == [1, 200, 200, 200]


def test_checked_loads_anywhere_in_an_expression() -> None:
    load = "x[bounds(x, sub(%i, 1:i64), 4:i64, 1:i64)]"
    lines = [
        f"%k = cast.i32(bitcast.u32(x[cast.i64({load.replace('x[', 'n[')})]))",
        f"o[%i] = call.max({load}, add({load}, call.sin({load})), neg({load}))",
        f"if {load} {{\n%k = add(%k, 1:i32)\n}}",
        f"for %j in (0:i64, cast.i64({load}), 1:i64) {{\n%k = add(%k, floordiv(7:i32, nonzero(%k)))\n}}",
        f"while lt(cast.f32(%k), {load}) {{\n%k = 100:i32\n}}",
        "q[%i] = %k",
        f"atomic_max o[4:i64], {load}",
        f"print {load}",
    ]
    locals = "local i: i64\nlocal j: i64\nlocal k: i32"
    params = "x: f32[], n: f32[], o: f32[], q: i32[], debug.extents: i64[], debug.errors: i64[]"
    loop = "parallel i in (0:i64, 4:i64, 1:i64)"
    text = f"kernel k({params}) -> f32 {{\n{locals}\n{loop} {{\n" + "\n".join(lines)
    text += "\n}\nreturn x[bounds(x, 2:i64, 4:i64, 1:i64)]\n}"
    compiled = Emulated(text, options=compiler.CHECKED)
    nvrtc(compiled.source.text)
    x = np.array([1.5, 2.5, 0.0, -3.0], np.float32)
    o, q = np.zeros(5, np.float32), np.zeros(4, np.int32)
    errors, extents, printed = np.zeros(6, np.int64), np.zeros(1, np.int64), []
    hidden = {"debug.extents": extents, "debug.errors": errors}
    args = {"x": x, "n": np.zeros(4, np.float32), "o": o, "q": q, **hidden}
    assert compiled(args, [(0, 1, 4)], printed=printed) == 0.0
    loaded = np.array([0.0, *x[:3]], np.float32)  # the first is out of range
    assert np.allclose(o[:4], np.maximum(np.maximum(loaded, loaded + np.sin(loaded)), -loaded))
    assert o[4] == 2.5
    assert [values for _, values in printed] == [[v] for v in loaded.tolist()]
    assert errors.tolist()[2:] == [0, -1, 4, 0]
    bits = int(np.float32(1.5).view(np.int32))
    assert q.tolist() == [bits, bits + 1, bits + 1, bits]


def test_a_fetch_interpolates_between_texels() -> None:
    kernel = parse(FETCH)
    texels = np.random.default_rng(2).random((3, 4, 5), np.float32)
    described = np.zeros(3, np.uint64)
    described[0] = texels.ctypes.data
    described[1:].view(np.uint32)[:3] = (5, 4, 3)
    for u in (0.0, 0.25, 1.0, 1.75, 9.0, -1.0):
        expected, out = np.zeros(7, np.float32), np.zeros(7, np.float32)
        interpreter.run(kernel, {"t": texels, "o": expected, "u": u}, [(0, 1, 7)])
        Emulated(kernel)({"t": described.ctypes.data, "o": out, "u": u}, [(0, 1, 7)])
        assert np.allclose(out, expected, rtol=1e-6, atol=1e-7)


def check_block_reductions(dtype: DType, generator: Any) -> None:
    """Those of ``generator``'s code give the interpreter's bits."""
    draw = np.random.default_rng(4)
    x = (draw.standard_normal(512) * 1e3).astype(dtype.numpy)
    for op in ("sum", "min", "max"):
        text = f"""kernel k(x: {dtype}[], o: {dtype}[]) {{
          local i: i64
          local r: {dtype}
          parallel i in (0:i64, dim(x, 0), 1:i64) {{
            %r = block_{op}(x[%i])
            o[%i] = %r
          }}
        }}"""
        expected, out = np.zeros_like(x), np.zeros_like(x)
        interpreter.run(parse(text), {"x": x, "o": expected}, [(0, 1, 512)])
        generator(text)({"x": x, "o": out}, [(0, 1, 512)])
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", BLOCK_DTYPES, ids=str)
def test_block_reductions_agree_to_the_bit(dtype: DType) -> None:
    check_block_reductions(dtype, Emulated)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_literal_exponents_keep_the_special_values_of_pow(dtype: DType) -> None:
    limits = np.finfo(dtype.numpy)
    edges = [0.0, 1.0, 4.0, math.inf, float(limits.max), float(limits.tiny), float(limits.smallest_subnormal)]
    values = [*edges, *(-v for v in edges), math.nan]
    exponents = [2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -4.0, 0.5, -0.5]
    a = column(0, "a", dtype)
    kernel = table([ir.Binary("pow", a, const(e, dtype), type=dtype) for e in exponents], [("a", dtype)])
    outs = {f"out{k}": np.zeros(len(values), dtype.numpy) for k in range(len(exponents))}
    Emulated(kernel)({"a": np.array(values, dtype.numpy), **outs}, [(0, 1, len(values))])
    for exponent, out in zip(exponents, outs.values(), strict=True):
        powers = [semantics.binary("pow", value, exponent, dtype) for value in values]
        expected = np.array(powers, dtype.numpy)
        assert np.allclose(out, expected, 1e-6, 0, equal_nan=True)
        numbers = ~np.isnan(expected)
        assert np.array_equal(np.signbit(out)[numbers], np.signbit(expected)[numbers])


def test_comments_are_lines_of_the_source() -> None:
    lines = ["x[0] = 1  # \\ \\\n", "\tx[1] = 2\f  # é \\\n"]
    source = SimpleNamespace(lines=lines)

    def store(line: int, value: float) -> ir.Store:
        return ir.Store("x", (const(line - 1),), const(value, f32), loc=Loc(source, line, 1, line, 2))

    body = (store(1, 1.0), store(1, 1.0), store(2, 2.0))
    loop = ir.Parallel(("i",), (ir.Range(const(0), const(1), const(1)),), body)
    params = (ir.Parameter("x", ir.Array(f32, 1)),)
    kernel = ir.Kernel("k", params, (), loop, (), None, None, {"i": i64}, {}, typed=True)
    compiled = Emulated(kernel)
    comments = [line.strip() for line in compiled.source.text.splitlines() if line.strip().startswith("//")]
    assert comments == ["// x[0] = 1  #", "// x[1] = 2   # é"]
    nvrtc(compiled.source.text)
    x = np.zeros(2, np.float32)
    compiled({"x": x}, [(0, 1, 1)])
    assert x.tolist() == [1.0, 2.0]
