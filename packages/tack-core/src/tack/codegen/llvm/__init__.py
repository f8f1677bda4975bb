"""LLVM code for typed kernels: `generate` builds a module, `jit` turns it into machine code.

A kernel from the disk cache needs `jit` only, so the rest is imported when first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tack.codegen.cost import iteration_cost
    from tack.codegen.llvm.module import check_sites, generate, print_sites, streamed

__all__ = ["check_sites", "generate", "iteration_cost", "print_sites", "streamed"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tack.codegen import cost
    from tack.codegen.llvm import module

    return getattr(cost if name == "iteration_cost" else module, name)
