"""What a kernel uses of workgroups: 256 consecutive iterations of the row-major linear range."""

from __future__ import annotations

from tack.dtypes import DType, f32, f64, i32, i64, u32, u64
from tack.ir.nodes import Barrier, BlockReduce, Kernel, LaneId, LocalArray, Node
from tack.ir.traversal import nodes_of, walk_statements
from tack.lang.builtins import WORKGROUP

__all__ = [
    "BLOCK_DTYPES",
    "COLLECTIVES",
    "WORKGROUP",
    "has_collective",
    "primitives",
    "requires_full_workgroups",
]

# What every iteration of the workgroup has to take part in.
COLLECTIVES = (Barrier, BlockReduce)

# The types that block reductions work on.
BLOCK_DTYPES: tuple[DType, ...] = (i32, u32, i64, u64, f32, f64)


def has_collective(node: Node) -> bool:
    """Whether ``node`` is a barrier or block reduction, or has one below it."""
    return any(isinstance(n, COLLECTIVES) for n in walk_statements(node))


def requires_full_workgroups(kernel: Kernel) -> bool:
    """Whether a launch of the kernel must be made of whole workgroups."""
    return any(nodes_of(kernel, kind) for kind in COLLECTIVES)


def primitives(kernel: Kernel) -> tuple[str, ...]:
    """The names, as the language has them, of what the kernel uses of workgroups."""
    used = {
        "shared": any(array.shared for array in nodes_of(kernel, LocalArray)),
        "thread_id": bool(nodes_of(kernel, LaneId)),
        "barrier": bool(nodes_of(kernel, Barrier)),
        **{f"block_{node.op}": True for node in nodes_of(kernel, BlockReduce)},
    }
    return tuple(name for name, found in used.items() if found)
