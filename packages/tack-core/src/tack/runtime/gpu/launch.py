"""From a call to a launch, on any GPU: compiling, checks, slots, and what the host looks at afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tack.record import Record
from tack.runtime.array import Array, new_array
from tack.runtime.debug import raise_violation
from tack.runtime.gpu.program import Program, describe
from tack.runtime.profile import running
from tack.runtime.slots import (
    check_capturable,
    join_artifact,
    launch_range,
    pack,
    split_artifact,
)
from tack.runtime.variants import Variant, resolve_variant
from tack.runtime.workgroups import check_workgroup_launch

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.lang.kernel import Kernel
    from tack.runtime.gpu.backend import GpuBackend

__all__ = ["Launch", "build", "execute", "generate", "load", "prepare", "resolve", "save"]


# --- compiling --------------------------------------------------------------------------------


def generate(backend: GpuBackend, kernel: ir.Kernel, disjoint: bool) -> Any:
    """The `tack.codegen.c.Source` of a typed kernel."""
    from tack.codegen.c import generate

    return generate(kernel, backend.dialect, disjoint=disjoint)


def build(backend: GpuBackend, kernel: ir.Kernel, disjoint: bool) -> Program:
    """Compiles a typed kernel."""
    from tack.codegen.llvm import check_sites
    from tack.stages import stage

    try:
        with stage("code generation"):
            source = generate(backend, kernel, disjoint)
        with stage(backend.compiler):
            artifact = backend.compile_source(kernel.name, source)
        with stage("load"):
            return backend.make_program(describe(kernel, source), artifact, check_sites(kernel))
    except RuntimeError as error:
        if backend.has_failed:  # of which that is the error
            raise
        raise RuntimeError(f"Kernel '{kernel.name}' failed on {backend.label}: {error}") from error


def save(program: Program) -> bytes:
    """A program as bytes."""
    assert program.artifact is not None
    return join_artifact(program.about, program.artifact)


def load(backend: GpuBackend, read: Callable[[], ir.Kernel], data: bytes) -> Program:
    """The program that `save` wrote; ``read`` gives the typed kernel, which debug mode's errors show."""
    about, code = split_artifact(data)
    checks: Sequence[Any] = ()
    if about["record"] is not None:
        from tack.codegen.llvm import check_sites

        checks = check_sites(read())
    program = backend.make_program(about, code, checks)
    program.artifact = None
    return program


def prepare(backend: GpuBackend, kernel: Kernel, args: tuple[Any, ...]) -> tuple[Variant, list[Any]]:
    """The variant for a call, compiled if need be, and the arguments that it takes."""
    return resolve_variant(backend, kernel, args, lambda typed, disjoint: build(backend, typed, disjoint))


# --- launching --------------------------------------------------------------------------------


class Launch(Record):
    """A call that has been checked: what runs, on which arguments, over which range."""

    variant: Variant
    program: Program
    args: list[Any]
    total: int
    spans: list[int]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(a for a in self.args if type(a) is Array)

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.program.grid(self.spans, self.total)

    def slots(self, tail: Sequence[int] = ()) -> bytes:
        """The slots; textures are in them with the handles that they are sampled by."""
        program, values = self.program, self.args
        if program.textures:
            values = [a._image.handle if k in program.textures else a for k, a in enumerate(values)]
        return pack(program.slots, values, self.spans, tail)


def resolve(backend: GpuBackend, kernel: Kernel, args: tuple[Any, ...], *, captured: bool = False) -> Launch:
    """The launch for a call. Raises what is wrong with the call, before anything runs.

    ``captured``: it becomes part of a graph, at whose end nobody looks at anything.
    """
    variant, accepted = prepare(backend, kernel, args)
    program: Program = variant.payload
    if captured:
        check_capturable(kernel, program)
    total, spans = launch_range(kernel, variant, accepted, backend.label, program.most)
    check_workgroup_launch(kernel, variant, total)
    return Launch(variant, program, accepted, total, spans)


def execute(backend: GpuBackend, kernel: Kernel, args: tuple[Any, ...]) -> int | float | None:
    """Queues a launch of ``kernel``, and returns its result, for which it waits."""
    from tack.runtime.gpu.prints import print_buffer, printed

    call = resolve(backend, kernel, args)
    program, arrays = call.program, call.arrays
    with backend.among(arrays):
        output = print_buffer(backend) if program.prints else None
        slots = call.slots(() if output is None else (output.address,))
        used = call.args if output is None else [*call.args, output]
        with running(kernel, backend):
            if call.total:
                program.launch(slots, call.grid, used)
        result = None if program.result_dtype is None else _result(backend, program, slots, used)
    if output is not None:
        sys.stdout.write(printed(program, output))
    if any(array._buffer.is_foreign for array in arrays):
        backend.synchronize()
    if program.checks:
        spans = call.variant.launch_range(call.args)
        raise_violation(call.variant.ir, program.checks, call.args[program.record], spans)
    return result


def _result(backend: GpuBackend, program: Program, slots: bytes, args: Sequence[Any]) -> int | float:
    """The value of the kernel's return expression."""
    dtype = program.result_dtype
    assert dtype is not None
    out = new_array(backend, dtype, ())
    program.evaluate(slots, out, args)
    value: int | float = out[()]
    return value
