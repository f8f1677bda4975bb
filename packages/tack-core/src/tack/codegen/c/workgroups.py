"""Workgroups: a block of 256 threads is one, so barriers and shared arrays are the device's own."""

from __future__ import annotations

from collections.abc import Callable

from tack.codegen.c.dialect import Dialect
from tack.codegen.c.emitter import Emitter, Unit
from tack.codegen.c.expressions import dtype_of, text
from tack.dtypes import DType
from tack.ir.nodes import Barrier, BlockReduce, Kernel
from tack.ir.traversal import walk_statements
from tack.ir.workgroups import WORKGROUP

__all__ = ["barrier", "block_reduce", "scratch_arrays"]

_WARP = 32
# The values that are left after each step without shuffles.
_STEPS = (32, 4)


def barrier(fn: Emitter, node: Barrier) -> None:
    fn.line(fn.dialect.barrier)


def block_reduce(fn: Emitter, node: BlockReduce) -> None:
    dtype = dtype_of(node.value)
    function = _reduction(fn.unit, node.op, dtype)
    arguments = f"{text(fn, node.value)}, {_scratch(dtype)}, {fn.lane}"
    fn.line(f"{fn.name(node.target)} = {function}({arguments});")


def scratch_arrays(kernel: Kernel, dialect: Dialect) -> dict[str, tuple[DType, int]]:
    """The type and size of each shared array that the block reductions of a kernel need."""
    reductions = [n for n in walk_statements(kernel) if isinstance(n, BlockReduce)]
    size = WORKGROUP + 1 if dialect.has_shuffles else WORKGROUP + sum(_STEPS)
    return {_scratch(t): (t, size) for t in (dtype_of(n.value) for n in reductions)}


def _scratch(dtype: DType) -> str:
    return f"tack_scratch_{dtype}"


def _reduction(unit: Unit, op: str, dtype: DType) -> str:
    """A function that combines lane l with lane l + 128, then with l + 64, and so on.

    The first warp does the steps down to 32 lanes from shared memory, in that order, and the rest by
    shuffles. The result has a place of its own, so that two barriers are enough: lanes that write
    their values for the next reduction have all passed the second, after which none is read.
    """
    name = f"tack_block_{op}_{dtype}"
    combine = _combining(unit, op, dtype)

    def write(fn: Emitter) -> None:
        d = fn.dialect
        head = f"{d.function} {dtype} {name}({dtype} value, {d.shared_space}{dtype} *scratch, int lane)"
        with fn.function(head):
            fn.line("scratch[lane] = value;")
            fn.line(d.barrier)
            if not d.has_shuffles:
                _steps(fn, dtype, combine)
                return
            with fn.braces(f"if (lane < {_WARP})"):
                _combine_parts(fn, dtype, combine, "scratch", WORKGROUP, _WARP)
                fn.line("value = part[0];")
                with fn.braces(f"for (int distance = {_WARP // 2}; distance > 0; distance /= 2)"):
                    fn.line(f"const {dtype} other = {d.shuffle_down('value', 'distance')};")
                    fn.line(f"value = {combine('value', 'other')};")
                with fn.braces("if (lane == 0)"):
                    fn.line(f"scratch[{WORKGROUP}] = value;")
            fn.line(d.barrier)
            fn.line(f"return scratch[{WORKGROUP}];")

    return unit.helper(name, write)


def _combine_parts(
    fn: Emitter, dtype: DType, combine: Callable[[str, str], str], values: str, count: int, lanes: int
) -> None:
    """Leaves in ``part[0]`` what a lane makes of every so many of ``count`` values in shared memory."""
    parts = count // lanes
    lane = "" if lanes == 1 else "lane + "
    fn.line(f"{dtype} part[{parts}];")
    fn.line(fn.dialect.unrolled)
    fn.line(f"for (int k = 0; k < {parts}; ++k)")
    fn.line(f"    part[k] = {values}[{lane}{lanes} * k];")
    fn.line(fn.dialect.unrolled)
    fn.line(f"for (int width = {parts // 2}; width > 0; width /= 2)")
    fn.line("    for (int k = 0; k < width; ++k)")
    fn.line(f"        part[k] = {combine('part[k]', 'part[k + width]')};")


def _steps(fn: Emitter, dtype: DType, combine: Callable[[str, str], str]) -> None:
    """The combination without shuffles, in the same order: fewer lanes at each step, and all in the end.

    Each step writes to a place of its own, which lanes read before the next reduction's first barrier.
    """
    values, count, at = "scratch", WORKGROUP, WORKGROUP
    for lanes in _STEPS:
        with fn.braces(f"if (lane < {lanes})"):
            _combine_parts(fn, dtype, combine, values, count, lanes)
            fn.line(f"scratch[{at} + lane] = part[0];")
        fn.line(fn.dialect.barrier)
        values, count, at = f"(scratch + {at})", lanes, at + lanes
    _combine_parts(fn, dtype, combine, values, count, 1)
    fn.line("return part[0];")


def _combining(unit: Unit, op: str, dtype: DType) -> Callable[[str, str], str]:
    """The text of two values combined, which C converts to their type."""
    if op == "sum":
        wrapping = f"(u{dtype.bits})" if not dtype.is_float and dtype.is_signed else ""
        return lambda a, b: f"{wrapping}{a} + {b}"
    function = _extremum(unit, op, dtype) if dtype.is_float else op
    return lambda a, b: f"{function}({a}, {b})"


def _extremum(unit: Unit, op: str, dtype: DType) -> str:
    """``min`` or ``max`` in which a NaN wins, and -0.0 is less than 0.0."""
    name = f"tack_{op}_{dtype}"
    sign, one = unit.dialect.math("copysign", dtype), "1.0f" if dtype.bits == 32 else "1.0"

    def write(fn: Emitter) -> None:
        with fn.function(f"{fn.dialect.function} {dtype} {name}({dtype} a, {dtype} b)"):
            fn.line("if (a != a || b != b)")
            fn.line("    return a + b;")
            fn.line("if (a == b)")
            fn.line(f"    return {sign}({one}, a) {'<' if op == 'min' else '>'} 0 ? a : b;")
            fn.line(f"return a {'<' if op == 'min' else '>'} b ? a : b;")

    return unit.helper(name, write)
