"""Launches kernels on the CPU."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.dtypes import ALL_DTYPES
from tack.runtime.cpu.program import Program, build, build_quickly
from tack.runtime.debug import raise_violation
from tack.runtime.profile import running
from tack.runtime.slots import (
    MAX_ITERATIONS,
    PrintSite,
    launch_range,
    print_line,
)
from tack.runtime.variants import Variant, resolve_variant
from tack.runtime.workgroups import check_workgroup_launch

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.cpu.backend import CpuBackend
    from tack.runtime.cpu.pool import NativePool, Pool
    from tack.runtime.learn import Plan

__all__ = ["execute", "native_plan", "prepare_launch", "read_result", "run"]

_CHUNKS_PER_THREAD = 4
_PLAIN_LAUNCHES = 8  # how many large launches run before streaming code, which saves some ms of each, is made
_SMALL = 20_000.0  # ns, which no pool shares

_PRINT = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)


def execute(backend: CpuBackend, kernel: Kernel, args: tuple[Any, ...]) -> int | float | None:
    """Launches ``kernel`` and returns its result; everything has run when this returns."""
    variant, accepted = resolve_variant(backend, kernel, args, build_quickly)
    program: Program = variant.payload
    total, launch = launch_range(kernel, variant, accepted, "the CPU")
    upgrade = program.upgrade
    if upgrade is not None:
        upgrade.before_launch(accepted, total, total * program.cost)
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
    result = None if program.result_dtype is None else read_result(program, slots)
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
    """The variant for a call, compiled and optimized if need be, and the arguments that it takes."""
    variant, accepted = resolve_variant(backend, kernel, args, build)
    variant.payload.finish()
    return variant, accepted


def native_plan(kernel: Kernel, variant: Variant, args: Sequence[Any]) -> Plan | None:
    """See `Backend.native_plan`."""
    from tack.runtime.learn import Plan  # who asks is there

    program: Program = variant.payload
    if program.prints or program.checks:
        return None
    total, launch = launch_range(kernel, variant, args, "the CPU")
    dtype = program.result_dtype
    functions = program.functions
    number = -1 if dtype is None else ALL_DTYPES.index(dtype)
    packed = program.pack(args, launch, ())
    large = program.large if variant.key.disjoint else MAX_ITERATIONS
    bounded, cost, group = program.about["bounded"], program.cost, program.group
    return Plan(
        functions.address, functions.result_address, number, bounded, cost, group, packed, total, large=large
    )


def run(backend: CpuBackend, program: Program, slots: bytes, total: int, used: Any) -> None:
    """Runs all iterations, on the pool if there is enough work; ``used`` is kept alive as long."""
    if not total:
        return
    work = total * program.cost
    pool = None
    # Checked launches are serial, so that the violation they report is the first. Before a launch that
    # threads could be worth for, nobody asks how many there may be.
    if work >= _SMALL and not program.checks:
        pool = backend.pool
        if work < pool.WORTH_FANNING_OUT or pool.num_threads == 1:
            pool = None
    upgrade = program.upgrade
    if upgrade is not None and upgrade.are_uncertain:
        if pool is None or pool.native is not None:
            upgrade.run(total, lambda count: _runner(program, pool, slots, count, used))
            return
        upgrade.finish()  # an exception could arrive before Python's pool starts a part
    _runner(program, pool, slots, total, used)(0, total)


def _runner(
    program: Program, pool: NativePool | Pool | None, slots: bytes, count: int, used: Any
) -> Callable[[int, int], object]:
    """What runs the iterations between two numbers, about ``count``: on ``pool``, or else in this thread.

    It holds on to the code that it runs, though an optimized form may take its place.
    """
    functions = program.functions
    if pool is None:
        return partial(functions.launch, slots)
    address = ctypes.cast(ctypes.c_char_p(slots), ctypes.c_void_p).value or 0
    groups = -(-count // program.group)
    chunk = -(-groups // (pool.num_threads * _CHUNKS_PER_THREAD)) * program.group
    return partial(pool.run, (functions, slots, used), functions.address, address, chunk)


def read_result(program: Program, slots: bytes) -> int | float:
    """Evaluates the kernel's return expression."""
    functions = program.functions
    assert functions.result is not None
    assert program.result_dtype is not None
    out = np.zeros(1, program.result_dtype.numpy)
    functions.result(slots, out.ctypes.data)
    value: int | float = out[0].item()
    return value


def _line(site: PrintSite, values: int) -> str:
    """The line of one print: ``values`` is the address of its values, in 8-byte slots."""
    count = sum(not isinstance(part, str) for part in site)
    return print_line(site, ctypes.string_at(values, 8 * count))
