"""The launch range of common kernels as data, so that a cached kernel needs no IR to launch.

``[start, stop, step]`` of each dimension; an expression is an int or ``[operation, operands...]``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.runtime.bounds import Bounds

__all__ = ["range_data", "range_function"]

_ARITHMETIC = ("add", "sub", "mul", "floordiv")
_FUNCTIONS = ("min", "max")
_FACTS = ("size", "ndim")
_OPERATIONS: dict[str, Callable[..., int]] = {
    "neg": operator.neg,
    "min": min,
    "max": max,
    **{name: getattr(operator, name) for name in _ARITHMETIC},
}


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

    It is put together from functions that are here, so that data cannot bring in any other code; and so it
    is made in microseconds.
    """
    dimensions = [_dimension(*dimension) for dimension in ranges]
    if len(dimensions) == 1:
        only = dimensions[0]
        return lambda args: (only(args),)
    return lambda args: tuple([dimension(args) for dimension in dimensions])


def _dimension(start: Any, stop: Any, step: Any) -> Callable[[Sequence[Any]], tuple[int, int, int]]:
    end, step = _function(stop), int(step)

    def dimension(first: int, last: int) -> tuple[int, int, int]:
        return first, step, (last - first + step - 1) // step if last > first else 0

    if type(start) is int:
        return lambda args: dimension(start, end(args))
    begin = _function(start)
    return lambda args: dimension(begin(args), end(args))


def _function(data: Any) -> Callable[[Sequence[Any]], int]:
    """The function that evaluates an expression."""
    if type(data) is int:
        return lambda args: data
    op, *operands = data
    if op == "arg":
        return operator.itemgetter(int(operands[0]))
    if op == "dim":
        position, axis = int(operands[0]), operands[1]
        if axis in _FACTS:
            return lambda args: getattr(args[position], axis)
        axis = int(axis)
        return lambda args: args[position].shape[axis]
    parts = [_function(operand) for operand in operands]
    apply = _OPERATIONS[op]
    return lambda args: apply(*[part(args) for part in parts])
