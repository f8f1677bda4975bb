"""Decides for each sample of a texture what computes it."""

from __future__ import annotations

from collections.abc import Set

from tack.ir.nodes import Assign, Fetch, Kernel, Sample, Stmt
from tack.ir.traversal import Rewriter, replace

__all__ = ["choose_sampling"]


class _Choose(Rewriter):
    def __init__(self, in_hardware: Set[str]) -> None:
        super().__init__()
        self.in_hardware = in_hardware

    def visit_Sample(self, node: Sample) -> Stmt | tuple[Stmt, ...]:
        node = self.generic_visit(node)
        if node.texture not in self.in_hardware:
            return node.body
        return Assign(node.target, Fetch(node.texture, node.position, loc=node.loc), loc=node.loc)


def choose_sampling(kernel: Kernel, in_hardware: Set[str]) -> Kernel:
    """The template ``kernel`` without `Sample` nodes: `Fetch` for textures ``in_hardware``, else code."""
    if not any(p.texture for p in kernel.params):
        return kernel
    params = tuple(replace(p, texture=p.name in in_hardware) for p in kernel.params)
    chosen: Kernel = _Choose(in_hardware).visit(kernel)
    return replace(chosen, params=params)
