"""The launch range of common kernels as data, so that a cached kernel needs no IR to launch.

``[start, stop, step]`` of each dimension; an expression is an int or ``[operation, operands...]``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.runtime.bounds import Bounds

__all__ = ["range_data", "range_function"]

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//"}
_FUNCTIONS = ("min", "max")
_FACTS = ("size", "ndim")


def range_data(template: ir.Kernel) -> list[Any] | None:
    """The ranges of a template, or None if they need more than arguments, shapes and arithmetic."""
    from tack.ir import nodes as ir

    positions = {p.name: k for k, p in enumerate(template.params)}

    def data(node: ir.Expr) -> Any:
        if isinstance(node, ir.Const) and type(node.value) is int:
            return node.value
        if isinstance(node, ir.Param):
            return ["arg", positions[node.name]]
        if isinstance(node, ir.Dim) and node.array in positions:
            return ["dim", positions[node.array], 0 if node.axis == "len" else node.axis]
        if isinstance(node, ir.Unary) and node.op == "neg":
            return ["neg", data(node.operand)]
        if isinstance(node, ir.Binary) and node.op in _ARITHMETIC:
            return [node.op, data(node.left), data(node.right)]
        if isinstance(node, ir.Call) and node.function in _FUNCTIONS:
            return [node.function, *map(data, node.args)]
        raise LookupError(type(node).__name__)

    try:
        ranges = [[data(r.start), data(r.stop), data(r.step)] for r in template.loop.ranges]
    except LookupError:
        return None
    # Of another step, an error shows the place in the source.
    return ranges if all(type(step) is int and step > 0 for _, _, step in ranges) else None


def range_function(ranges: list[Any]) -> Bounds:
    """The function from a call's arguments to its launch range.

    Every part is checked, so that data cannot bring in any other code.
    """
    lines = ["def bounds(args):"]
    parts = []
    for k, (start, stop, step) in enumerate(ranges):
        first, step = _text(start), int(step)
        lines.append(f"  stop{k} = {_text(stop)}")
        if type(start) is int:
            length = f"stop{k} - {start}" if start else f"stop{k}"
        else:
            lines.append(f"  start{k} = {first}")
            first = f"start{k}"
            length = f"stop{k} - {first}"
        count = length if step == 1 else f"({length} + {step - 1}) // {step}"
        parts.append(f"({first}, {step}, {count} if stop{k} > {first} else 0)")
    lines.append(f"  return ({', '.join(parts)},)")
    return _compiled("\n".join(lines))


@cache
def _compiled(text: str) -> Bounds:
    """The function of this text; kernels that loop over the same extents share one."""
    names: dict[str, Any] = {}
    exec(text, names)
    bounds: Bounds = names["bounds"]
    return bounds


def _text(data: Any) -> str:
    if type(data) is int:
        return f"({data})" if data < 0 else str(data)
    op, *operands = data
    if op == "arg":
        return f"args[{int(operands[0])}]"
    if op == "dim":
        axis = operands[1]
        return f"args[{int(operands[0])}]." + (axis if axis in _FACTS else f"shape[{int(axis)}]")
    texts = [_text(operand) for operand in operands]
    if op == "neg":
        return f"(-{texts[0]})"
    if op in _FUNCTIONS:
        return f"{op}({', '.join(texts)})"
    return f"({texts[0]} {_ARITHMETIC[op]} {texts[1]})"
