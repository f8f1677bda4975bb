"""Which products are fused with the sum that takes them.

The generator says so. LLVM would too (its flag ``contract``), but by what its passes have left, so that other
passes would give other last bits. A product is fused if nothing else uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tack.ir.nodes import Assign, Binary, Const, Expr, Kernel, Local, Node
from tack.ir.traversal import nodes_of

__all__ = ["fused_locals", "is_product", "is_sum"]


def is_sum(node: Node) -> bool:
    """Whether a node of a typed kernel adds or subtracts floats."""
    return (
        isinstance(node, Binary)
        and node.op in ("add", "sub")
        and node.type is not None
        and node.type.is_float
    )


def is_product(node: Expr) -> bool:
    """Whether an expression of a typed kernel multiplies floats that are not both constants."""
    if not isinstance(node, Binary) or node.op != "mul" or node.type is None or not node.type.is_float:
        return False
    return not (isinstance(node.left, Const) and isinstance(node.right, Const))


def fused_locals(kernel: Kernel, single: Collection[str]) -> set[str]:
    """The locals that hold a product which one sum reads, and nothing else, of those set in one place."""
    reads = Counter(node.name for node in nodes_of(kernel, Local))
    products = {
        node.target
        for node in nodes_of(kernel, Assign)
        if node.target in single and reads[node.target] == 1 and _is_kept_product(kernel, node)
    }
    if not products:
        return products
    sums = [node for node in nodes_of(kernel, Binary) if is_sum(node)]
    return products & {n.name for s in sums for n in (s.left, s.right) if isinstance(n, Local)}


def _is_kept_product(kernel: Kernel, node: Assign) -> bool:
    """Whether an assignment is of a product, in its own type."""
    return is_product(node.value) and kernel.locals.get(node.target) is node.value.type
