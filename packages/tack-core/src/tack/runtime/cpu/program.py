"""Compiled kernels of the CPU: what a variant's payload is there, how it is made, kept and read."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tack.runtime.cpu.code import load as load_code
from tack.runtime.cpu.code import loads_images
from tack.runtime.cpu.memory import large_write
from tack.runtime.debug import HIDDEN
from tack.runtime.slots import (
    DTYPES,
    MAX_ITERATIONS,
    join_artifact,
    pack,
    print_site,
    print_template,
    slot_format,
    split_artifact,
)

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.runtime.cpu.tiers import Upgrade

__all__ = ["Program", "build", "build_quickly", "describe", "inspect", "load", "save"]

_LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)
_RESULT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)


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


class Functions:
    """The functions of a program's machine code, which stays in memory as long as this or ``launch`` does."""

    __slots__ = ("address", "code", "launch", "result", "result_address")

    def __init__(self, artifact: bytes, about: dict[str, Any]) -> None:
        self.code = load_code(artifact, about["image"])
        self.address = self.code.address("launch")
        launch: Any = _LAUNCH(self.address)
        launch.code = self.code
        self.launch = launch
        self.result_address = 0 if about["result"] is None else self.code.address("result")
        self.result = _RESULT(self.result_address) if self.result_address else None


class Program:
    """A variant's machine code: what ``Variant.payload`` is on the CPU.

    ``about`` is what `describe` gives and, as ``image``, what `load_code` takes besides the ``artifact``, an
    image or an object file. ``checks`` are debug mode's sites. ``slots`` packs the arguments and the launch
    range as `docs/design/ir.md` lays them out.
    Launches of ``large`` iterations or more have code of their own, ``streaming``, once there have been
    some: ``large_launches`` counts them.
    ``upgrade`` is there while ``functions`` are a first form of the code, which is not optimized.
    """

    __slots__ = (
        *("about", "artifact", "checks", "cost", "functions", "group", "large", "large_launches", "prints"),
        *("record", "result_dtype", "slots", "streaming", "upgrade"),
    )

    def __init__(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> None:
        self.about = about
        self.artifact: bytes | None = artifact
        self.functions = Functions(artifact, about)
        self.upgrade: Upgrade | None = None
        result = about["result"]
        self.result_dtype = None if result is None else DTYPES[result]
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

    def replace(self, other: Program) -> None:
        """Takes the code of ``other``. A launch under way holds on to that which it runs."""
        self.about, self.artifact, self.functions = other.about, other.artifact, other.functions

    def finish(self) -> None:
        """Returns with optimized code.

        Raises:
            RuntimeError: it could not be compiled.
        """
        upgrade = self.upgrade
        if upgrade is not None:
            upgrade.finish()


def build(kernel: ir.Kernel, disjoint: bool, streaming: bool = False) -> Program:
    """Compiles a typed kernel; ``streaming`` is for large launches, see `tack.codegen.streaming`."""
    from tack.codegen.llvm.jit import compile_object

    with _failing(kernel):
        about, text = _generated(kernel, disjoint, streaming)
        return _program(about, text, compile_object(text), _checks(kernel))


def build_quickly(kernel: ir.Kernel, disjoint: bool) -> Program:
    """As `build`, to something that may be slow at first, while it is optimized in the background.

    Both forms compute the same. They would not with fast-math flags, nor where LLVM knows functions of the
    C library; and debug mode looks at optimized code.
    """
    from tack.codegen.llvm.jit import compile_object, compile_quickly, vector_bits
    from tack.runtime.cpu.tiers import Upgrade, are_wanted

    if not are_wanted() or kernel.fastmath or not vector_bits() or _checks(kernel):
        return build(kernel, disjoint)
    with _failing(kernel):
        about, text = _generated(kernel, disjoint, False)
        program = _program(about, text, compile_quickly(text), ())
    program.artifact = None

    def optimized() -> Program:
        with _failing(kernel):
            return _program(about, text, compile_object(text), ())

    program.upgrade = Upgrade(program, kernel, optimized)
    return program


def _generated(kernel: ir.Kernel, disjoint: bool, streaming: bool) -> tuple[dict[str, Any], str]:
    from tack.codegen.llvm import generate
    from tack.stages import stage

    with stage("code generation"):
        return describe(kernel), str(generate(kernel, disjoint=disjoint, streaming=streaming))


def _checks(kernel: ir.Kernel) -> Sequence[Any]:
    from tack.codegen.llvm import check_sites

    return check_sites(kernel)


@contextlib.contextmanager
def _failing(kernel: ir.Kernel) -> Iterator[None]:
    """Names the kernel in errors of LLVM's."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(f"Kernel '{kernel.name}' failed on CPU: {error}") from error


def _program(about: dict[str, Any], text: str, compiled: bytes, checks: Sequence[Any]) -> Program:
    """The program of an object file, which was compiled from ``text``."""
    from tack.codegen.llvm.image import link
    from tack.codegen.llvm.jit import compile_object
    from tack.stages import stage

    if loads_images():
        with stage("link"), contextlib.suppress(LookupError):  # it may call what only LLVM has
            linked = link(compiled)
            if linked is not None:
                return Program({**about, "image": linked[1]}, linked[0], checks)
        compiled = compile_object(text, far=True)
    with stage("link"):
        return Program({**about, "image": None}, compiled, checks)


def inspect(kernel: ir.Kernel, mode: str, disjoint: bool) -> str:
    """A typed kernel as LLVM IR (``"source"``, ``"optimized"``) or assembly (``"asm"``)."""
    from tack.codegen.llvm import generate
    from tack.codegen.llvm.jit import assembly, optimized_ir

    module = generate(kernel, disjoint=disjoint)
    if mode == "source":
        return str(module)
    return optimized_ir(module) if mode == "optimized" else assembly(module)


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
