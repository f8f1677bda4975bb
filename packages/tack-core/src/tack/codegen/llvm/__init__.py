"""LLVM code for typed kernels: `generate` builds a module, `jit` turns it into machine code.

A kernel from the disk cache needs `jit` only, so the rest is imported when first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tack.codegen.cost import iteration_cost
    from tack.codegen.llvm.module import generate, streamed
    from tack.codegen.sites import check_sites, print_sites

__all__ = ["check_sites", "generate", "iteration_cost", "print_sites", "streamed"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tack.codegen import cost, sites
    from tack.codegen.llvm import module

    return getattr(
        {"iteration_cost": cost, "check_sites": sites, "print_sites": sites}.get(name, module), name
    )
