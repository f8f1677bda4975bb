"""Compiles kernels for the CPU and launches them."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.dtypes import ALL_DTYPES
from tack.runtime.cpu.code import load as load_code
from tack.runtime.cpu.code import loads_images
from tack.runtime.cpu.memory import large_write
from tack.runtime.debug import HIDDEN, raise_violation
from tack.runtime.profile import running
from tack.runtime.slots import (
    DTYPES,
    MAX_ITERATIONS,
    PrintSite,
    join_artifact,
    launch_range,
    pack,
    print_line,
    print_site,
    print_template,
    slot_format,
    split_artifact,
)
from tack.runtime.variants import Variant, resolve_variant
from tack.runtime.workgroups import check_workgroup_launch

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.lang.kernel import Kernel
    from tack.runtime.cpu.backend import CpuBackend
    from tack.runtime.learn import Plan

__all__ = ["Program", "build", "describe", "execute", "native_plan", "prepare_launch"]

_CHUNKS_PER_THREAD = 4
_PLAIN_LAUNCHES = 8  # how many large launches run before streaming code, which saves some ms of each, is made
_SMALL = 20_000.0  # ns, which no pool shares

_LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)
_RESULT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_PRINT = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)


def describe(kernel: ir.Kernel) -> dict[str, Any]:
    """What launches need of a typed kernel besides its machine code, as data for the disk cache."""
    from tack.codegen.cost import is_bounded, iteration_cost
    from tack.codegen.llvm import check_sites, print_sites
    from tack.ir.workgroups import WORKGROUP, primitives

    prints = [print_template(site) for site in print_sites(kernel)]
    checked = bool(check_sites(kernel))
    return {
        "slots": slot_format(kernel, bool(prints)),
        "result": None if kernel.result is None else str(kernel.result_type),
        "cost": iteration_cost(kernel),
        "bounded": is_bounded(kernel),
        "group": WORKGROUP if primitives(kernel) else 1,  # what a chunk is a multiple of
        "streamed": _streamed_bytes(kernel),
        "prints": prints,
        "record": [p.name for p in kernel.params].index(HIDDEN[1]) if checked else None,
    }


def _streamed_bytes(kernel: ir.Kernel) -> int:
    """The least that an iteration writes to an array which streaming stores may write; 0: there is none."""
    from tack.codegen.llvm import streamed
    from tack.ir import nodes as ir

    types = {p.name: p.type.dtype for p in kernel.params if isinstance(p.type, ir.Array)}
    return min((types[s.array].itemsize for s in streamed(kernel)), default=0)


class Program:
    """A variant's machine code: what ``Variant.payload`` is on the CPU.

    ``about`` is what `describe` gives and, as ``image``, what `load_code` takes besides the ``artifact``, an
    image or an object file. ``checks`` are debug mode's sites. ``slots`` packs the arguments and the launch
    range as `docs/design/ir.md` lays them out.
    Launches of ``large`` iterations or more have code of their own, ``streaming``, once there have been
    some: ``large_launches`` counts them.
    """

    __slots__ = (
        *("about", "address", "artifact", "checks", "code", "cost", "group", "large", "large_launches"),
        *("launch", "prints", "record", "result", "result_dtype", "slots", "streaming"),
    )

    def __init__(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> None:
        self.about = about
        self.artifact: bytes | None = artifact
        self.code = load_code(artifact, about["image"])
        self.address = self.code.address("launch")
        self.launch = _LAUNCH(self.address)
        result = about["result"]
        self.result_dtype = None if result is None else DTYPES[result]
        self.result = None if result is None else _RESULT(self.code.address("result"))
        self.cost: float = about["cost"]
        self.group: int = about["group"]
        streamed: int = about["streamed"]
        self.large = -(-large_write() // streamed) if streamed else MAX_ITERATIONS
        self.large_launches = 0
        self.streaming: Program | None = None
        self.checks = checks
        self.record: int = about["record"] or 0
        self.prints = [print_site(template) for template in about["prints"]]
        self.slots = struct.Struct(about["slots"])

    def pack(self, args: Sequence[Any], launch: Sequence[int], tail: Sequence[int]) -> bytes:
        return pack(self.slots, args, launch, tail)


def build(kernel: ir.Kernel, disjoint: bool, streaming: bool = False) -> Program:
    """Compiles a typed kernel; ``streaming`` is for large launches, see `tack.codegen.streaming`."""
    from tack.codegen.llvm import check_sites, generate
    from tack.codegen.llvm.jit import compile_object
    from tack.stages import stage

    try:
        with stage("code generation"):
            module = generate(kernel, disjoint=disjoint, streaming=streaming)
        compiled = compile_object(module)
        with stage("link"):
            return _program(describe(kernel), compiled, check_sites(kernel))
    except RuntimeError as error:
        raise RuntimeError(f"Kernel '{kernel.name}' failed on CPU: {error}") from error


def _program(about: dict[str, Any], compiled: bytes, checks: Sequence[Any]) -> Program:
    from tack.codegen.llvm.image import link

    linked = link(compiled) if loads_images() else None
    if linked is not None:
        with contextlib.suppress(LookupError):  # it may call what only LLVM has
            return Program({**about, "image": linked[1]}, linked[0], checks)
    return Program({**about, "image": None}, compiled, checks)


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
    total, launch = launch_range(kernel, variant, accepted, "the CPU")
    if total >= program.large and variant.key.disjoint:
        program = _for_large(program, variant)
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


def _for_large(program: Program, variant: Variant) -> Program:
    """The code that writes past the caches, once it has been worth compiling, else ``program``."""
    if program.streaming is None:
        program.large_launches += 1
        if program.large_launches <= _PLAIN_LAUNCHES:
            return program
        program.streaming = build(variant.ir, True, streaming=True)
        program.streaming.artifact = None
    return program.streaming


def prepare_launch(backend: CpuBackend, kernel: Kernel, args: tuple[Any, ...]) -> tuple[Variant, list[Any]]:
    """The variant for a call, compiled if need be, and the arguments that it takes."""
    return resolve_variant(backend, kernel, args, build)


def native_plan(kernel: Kernel, variant: Variant, args: Sequence[Any]) -> Plan | None:
    """See `Backend.native_plan`."""
    from tack.runtime.learn import Plan  # who asks is there

    program: Program = variant.payload
    if program.prints or program.checks:
        return None
    total, launch = launch_range(kernel, variant, args, "the CPU")
    dtype = program.result_dtype
    result = 0 if dtype is None else program.code.address("result")
    number = -1 if dtype is None else ALL_DTYPES.index(dtype)
    packed = program.pack(args, launch, ())
    large = program.large if variant.key.disjoint else MAX_ITERATIONS
    bounded, cost, group = program.about["bounded"], program.cost, program.group
    return Plan(program.address, result, number, bounded, cost, group, packed, total, large=large)


def save(program: Program) -> bytes:
    """A program as bytes."""
    assert program.artifact is not None
    return join_artifact(program.about, program.artifact)


def load(read: Callable[[], ir.Kernel], data: bytes) -> Program:
    """The program that `save` wrote; ``read`` gives the typed kernel, which debug mode's errors show."""
    about, code = split_artifact(data)
    checks: Sequence[Any] = ()
    if about["record"] is not None:
        from tack.codegen.llvm import check_sites

        checks = check_sites(read())
    return Program(about, code, checks)


def run(backend: CpuBackend, program: Program, slots: bytes, total: int, used: Any) -> None:
    """Runs all iterations, on the pool if there is enough work; ``used`` is kept alive as long."""
    if not total:
        return
    work = total * program.cost
    # Checked launches are serial, so that the violation they report is the first. Before a launch that
    # threads could be worth for, nobody asks how many there may be.
    if (
        work < _SMALL
        or program.checks
        or work < (pool := backend.pool).WORTH_FANNING_OUT
        or pool.num_threads == 1
    ):
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


def _line(site: PrintSite, values: int) -> str:
    """The line of one print: ``values`` is the address of its values, in 8-byte slots."""
    count = sum(not isinstance(part, str) for part in site)
    return print_line(site, ctypes.string_at(values, 8 * count))
