"""Compiles kernels for the CPU and launches them."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.codegen.llvm.jit import load_object
from tack.dtypes import ALL_DTYPES, DType
from tack.runtime.array import Array
from tack.runtime.debug import HIDDEN, raise_violation
from tack.runtime.profile import running
from tack.runtime.variants import Variant, resolve_variant
from tack.runtime.workgroups import check_workgroup_launch

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.lang.kernel import Kernel
    from tack.runtime.cpu.backend import CpuBackend
    from tack.runtime.learn import Plan

__all__ = ["Program", "build", "describe", "execute", "native_plan", "prepare_launch"]

_CHUNKS_PER_THREAD = 4
_MAX_ITERATIONS = (1 << 63) - 1

_LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)
_RESULT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_PRINT = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)

_FORMATS = {"i8": "b7x", "u8": "B7x", "i16": "h6x", "u16": "H6x", "i32": "i4x", "u32": "I4x"}
_FORMATS |= {"i64": "q", "u64": "Q", "f32": "f4x", "f64": "d"}


_DTYPES = {d.name: d for d in ALL_DTYPES}


def describe(kernel: ir.Kernel) -> dict[str, Any]:
    """What launches need of a typed kernel besides its machine code, as data for the disk cache."""
    from tack.codegen.cost import is_bounded, iteration_cost
    from tack.codegen.llvm import check_sites, print_sites
    from tack.ir import nodes as ir
    from tack.ir.workgroups import WORKGROUP, primitives

    prints = [_parts(site) for site in print_sites(kernel)]
    fields = ["Q" if isinstance(p.type, ir.Array) else _FORMATS[str(p.type)] for p in kernel.params]
    dims = "qqq" * len(kernel.loop.vars)
    checked = bool(check_sites(kernel))
    return {
        "slots": "=" + "".join(fields) + dims + ("Q" if prints else ""),
        "result": None if kernel.result is None else str(kernel.result_type),
        "cost": iteration_cost(kernel),
        "bounded": is_bounded(kernel),
        "group": WORKGROUP if primitives(kernel) else 1,  # what a chunk is a multiple of
        "prints": prints,
        "record": [p.name for p in kernel.params].index(HIDDEN[1]) if checked else None,
    }


class Program:
    """A variant's machine code: what ``Variant.payload`` is on the CPU.

    ``about`` is what `describe` gives, ``checks`` are debug mode's sites, and ``artifact`` is the
    object file. ``slots`` packs the arguments and the launch range as `docs/design/ir.md` lays them out.
    """

    __slots__ = (
        *("about", "address", "artifact", "checks", "code", "cost", "group", "launch", "prints", "record"),
        *("result", "result_dtype", "slots"),
    )

    def __init__(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> None:
        self.about = about
        self.artifact: bytes | None = artifact
        self.code = load_object(artifact)
        self.address = self.code.address("launch")
        self.launch = _LAUNCH(self.address)
        result = about["result"]
        self.result_dtype = None if result is None else _DTYPES[result]
        self.result = None if result is None else _RESULT(self.code.address("result"))
        self.cost: float = about["cost"]
        self.group: int = about["group"]
        self.checks = checks
        self.record: int = about["record"] or 0
        self.prints: list[_Site] = [
            [part if isinstance(part, str) else _DTYPES[part[0]] for part in site] for site in about["prints"]
        ]
        self.slots = struct.Struct(about["slots"])

    def pack(self, args: Sequence[Any], launch: Sequence[int], tail: Sequence[int]) -> bytes:
        values = [a._address if type(a) is Array else a for a in args]
        try:
            return self.slots.pack(*values, *launch, *tail)
        except OverflowError:  # a float past f32 is an infinity there
            with np.errstate(over="ignore"):
                values = [float(np.float32(v)) if type(v) is float else v for v in values]
            return self.slots.pack(*values, *launch, *tail)


def build(kernel: ir.Kernel, disjoint: bool) -> Program:
    """Compiles a typed kernel."""
    from tack.codegen.llvm import check_sites, generate
    from tack.codegen.llvm.jit import compile_object
    from tack.stages import stage

    try:
        with stage("code generation"):
            module = generate(kernel, disjoint=disjoint)
        artifact = compile_object(module)
        with stage("link"):
            return Program(describe(kernel), artifact, check_sites(kernel))
    except RuntimeError as error:
        raise RuntimeError(f"Kernel '{kernel.name}' failed on CPU: {error}") from error


def inspect(kernel: ir.Kernel, mode: str, disjoint: bool) -> str:
    """A typed kernel as LLVM IR (``"source"``, ``"optimized"``) or assembly (``"asm"``)."""
    from tack.codegen.llvm import generate
    from tack.codegen.llvm.jit import assembly, optimized_ir

    module = generate(kernel, disjoint=disjoint)
    if mode == "source":
        return str(module)
    return optimized_ir(module) if mode == "optimized" else assembly(module)


def execute(backend: CpuBackend, kernel: Kernel, args: tuple[Any, ...]) -> int | float | None:
    """Launches ``kernel`` and returns its result; everything has run when this returns."""
    variant, accepted = prepare_launch(backend, kernel, args)
    program: Program = variant.payload
    total, launch = launch_range(kernel, variant, accepted)
    check_workgroup_launch(kernel, variant, total)
    if not program.prints:
        slots = program.pack(accepted, launch, ())
        with running(kernel, backend):
            run(backend, program, slots, total, accepted)
    else:
        lines: list[str] = []
        callback = _PRINT(lambda site, values: lines.append(_line(program.prints[site], values)))
        address = ctypes.cast(callback, ctypes.c_void_p).value or 0
        slots = program.pack(accepted, launch, (address,))
        try:
            with running(kernel, backend):
                run(backend, program, slots, total, (accepted, callback))
        finally:
            sys.stdout.write("".join(lines))
    result = None if program.result is None else read_result(program, slots)
    if program.checks:
        raise_violation(variant.ir, program.checks, accepted[program.record], variant.launch_range(accepted))
    return result


def prepare_launch(backend: CpuBackend, kernel: Kernel, args: tuple[Any, ...]) -> tuple[Variant, list[Any]]:
    """The variant for a call, compiled if need be, and the arguments that it takes."""
    return resolve_variant(backend, kernel, args, build)


def native_plan(kernel: Kernel, variant: Variant, args: Sequence[Any]) -> Plan | None:
    """See `Backend.native_plan`."""
    from tack.runtime.learn import Plan  # who asks is there

    program: Program = variant.payload
    if program.prints or program.checks:
        return None
    total, launch = launch_range(kernel, variant, args)
    dtype = program.result_dtype
    result = 0 if dtype is None else program.code.address("result")
    number = -1 if dtype is None else ALL_DTYPES.index(dtype)
    packed = program.pack(args, launch, ())
    return Plan(
        program.address, result, number, program.about["bounded"], program.cost, program.group, packed, total
    )


def save(program: Program) -> bytes:
    """A program as bytes: the length of its description, that as JSON, and the object file."""
    from tack.runtime.disk.fastjson import dumps

    assert program.artifact is not None
    about = dumps(program.about).encode()
    return struct.pack("<I", len(about)) + about + program.artifact


def load(read: Callable[[], ir.Kernel], data: bytes) -> Program:
    """The program that `save` wrote; ``read`` gives the typed kernel, which debug mode's errors show."""
    from tack.runtime.disk.fastjson import loads

    (length,) = struct.unpack_from("<I", data)
    about = loads(data[4 : 4 + length].decode())
    checks: Sequence[Any] = ()
    if about["record"] is not None:
        from tack.codegen.llvm import check_sites

        checks = check_sites(read())
    return Program(about, data[4 + length :], checks)


def target() -> tuple[tuple[str, str], ...]:
    """The named parts of what machine code depends on besides the kernel."""
    from tack.codegen.llvm import jit

    return (
        ("llvm", jit.llvm_version()),
        ("cpu", jit.host_cpu()),
        ("options", jit.options()),
        ("platform", f"{sys.platform} {struct.calcsize('P') * 8}"),
    )


def launch_range(kernel: Kernel, variant: Variant, args: Sequence[Any]) -> tuple[int, list[int]]:
    """The number of iterations, and start, step and count of each dimension, flat.

    Raises:
        ValueError: more iterations than an i64 counts.
        ZeroDivisionError: the bound divides by zero.
    """
    total = 1
    launch: list[int] = []
    for start, step, count in variant.launch_range(args):
        total *= count
        launch += (start, step, count)
    if total > _MAX_ITERATIONS or any(abs(value) > _MAX_ITERATIONS for value in launch):
        if total:
            message = f"{total} iterations; a launch on the CPU has at most {_MAX_ITERATIONS}"
            raise ValueError(f"kernel '{kernel.__name__}': {message}")
        return 0, [0] * len(launch)
    return total, launch


def run(backend: CpuBackend, program: Program, slots: bytes, total: int, used: Any) -> None:
    """Runs all iterations, on the pool if there is enough work; ``used`` is kept alive as long."""
    if not total:
        return
    work = total * program.cost
    # Checked launches are serial, so that the violation they report is the first.
    pool = backend.pool
    if work < pool.WORTH_FANNING_OUT or program.checks or pool.num_threads == 1:
        program.launch(slots, 0, total)
        return
    address = ctypes.cast(ctypes.c_char_p(slots), ctypes.c_void_p).value or 0
    groups = -(-total // program.group)
    chunks = min(groups, pool.num_threads * _CHUNKS_PER_THREAD)
    pool.run(
        program.address, address, total, -(-groups // chunks) * program.group, owner=(program, slots, used)
    )


def read_result(program: Program, slots: bytes) -> int | float:
    """Evaluates the kernel's return expression."""
    assert program.result is not None
    assert program.result_dtype is not None
    out = np.zeros(1, program.result_dtype.numpy)
    program.result(slots, out.ctypes.data)
    value: int | float = out[0].item()
    return value


# --- print ------------------------------------------------------------------------------------

_Site = list[str | DType]


def _parts(site: ir.Print) -> list[str | list[str]]:
    """A print statement's strings, and the dtypes of its values, each in a list of its own."""
    return [part if isinstance(part, str) else [str(part.type)] for part in site.parts]


def _line(site: _Site, values: int) -> str:
    """The line of one print: ``values`` is the address of its values, in 8-byte slots."""
    texts = []
    slot = 0
    for part in site:
        if isinstance(part, str):
            texts.append(part)
            continue
        raw = ctypes.string_at(values + 8 * slot, part.itemsize)
        texts.append(str(np.frombuffer(raw, part.numpy)[0]))
        slot += 1
    return "".join(texts) + "\n"
