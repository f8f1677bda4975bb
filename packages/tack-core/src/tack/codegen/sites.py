"""The places of a kernel that its compiled code names by number."""

from __future__ import annotations

from tack.ir.nodes import Bounds, Kernel, NonZero, Print
from tack.ir.traversal import nodes_of

__all__ = ["check_sites", "print_sites"]


def print_sites(kernel: Kernel) -> tuple[Print, ...]:
    """The kernel's `Print` statements, in the order of their site numbers."""
    return tuple(nodes_of(kernel, Print))


def check_sites(kernel: Kernel) -> tuple[Bounds | NonZero, ...]:
    """The checks of a kernel compiled in debug mode, in the order of their numbers."""
    return (*nodes_of(kernel, Bounds), *nodes_of(kernel, NonZero))
