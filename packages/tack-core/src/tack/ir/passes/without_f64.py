"""For devices without f64: what literals alone make of it is computed now, and the rest is found."""

from __future__ import annotations

from typing import Any

from tack.dtypes import f32, f64
from tack.ir import nodes as ir
from tack.ir.traversal import Rewriter, replace, walk

__all__ = ["find_f64", "fold_f64", "narrow_result"]


def narrow_result(kernel: ir.Kernel) -> ir.Kernel:
    """A template whose result is an f32 where it would be an f64, as that of ``-> float`` is."""
    return replace(kernel, result_type=f32) if kernel.result_type is f64 else kernel


def fold_f64(kernel: ir.Kernel) -> ir.Kernel:
    """A typed kernel in which what literals make in f64, as in ``tack.f32(0.1 + 0.2)``, is a literal."""
    folded: ir.Kernel = _Fold(kernel).visit(kernel)
    return folded


class _Fold(Rewriter):
    """Replaces expressions that take f64 and give something else, if they depend on nothing."""

    def __init__(self, kernel: ir.Kernel) -> None:
        super().__init__()
        self.kernel = replace(kernel, params=())

    def visit_Cast(self, node: Any) -> ir.Expr:
        new: ir.Expr = self.generic_visit(node)
        inner = [n for n in walk(new) if n is not new and isinstance(n, ir.Expr)]
        if new.type is f64 or all(n.type is not f64 for n in inner) or not all(map(_is_fixed, inner)):
            return new
        from tack.ir.interpreter import Machine

        return ir.Const(Machine(self.kernel, {}, print).value(new), type=new.type, loc=new.loc)

    visit_Compare = visit_Bitcast = visit_Cast


def _is_fixed(node: ir.Node) -> bool:
    return isinstance(node, ir.Const | ir.Unary | ir.Binary | ir.Call | ir.Cast | ir.Compare)


def find_f64(kernel: ir.Kernel) -> ir.Node | None:
    """The first node of a typed kernel that is of f64, if there is one."""
    for node in walk(kernel):
        dtype = node.type if isinstance(node, ir.Expr) else getattr(node, "dtype", None)
        if dtype is f64 and not isinstance(node, ir.Table):
            return node
    return None
