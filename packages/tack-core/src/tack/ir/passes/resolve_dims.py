"""Replaces array extents by the constants of this call, and makes local array shapes constant."""

from __future__ import annotations

from collections.abc import Mapping

from tack.dtypes import i64
from tack.errors import UnsupportedSyntaxError, diagnostic
from tack.ir.nodes import (
    Binary,
    Call,
    Const,
    Dim,
    Expr,
    Kernel,
    LocalArray,
    Parallel,
    Unary,
)
from tack.ir.traversal import Rewriter, accesses, nodes_of, replace, walk, walk_statements

__all__ = ["LOCAL_ARRAY_LIMIT", "Need", "dims_needed", "resolve_dims"]

# Local arrays live on a thread's stack.
LOCAL_ARRAY_LIMIT = 256 * 1024

Shapes = Mapping[str, tuple[int, ...]]

# A fact about an array parameter that generated code depends on: the extent along an axis
# (counted from the front or the end), or its size, len or ndim, or the strides that an access
# with this many indices needs.
Need = tuple[str, int | str]


def dims_needed(template: Kernel) -> tuple[Need, ...]:
    """What `resolve_dims` and flat indices take from the arrays' shapes, in the order of the parameters.

    The bound of the parallel loop is left out: the host evaluates it at each launch.
    """
    bound = {id(node) for part in template.loop.ranges for node in walk(part)}
    needs: dict[Need, None] = {}
    for dim in nodes_of(template, Dim):
        if id(dim) not in bound:
            needs[dim.array, dim.axis] = None
    for access in accesses(template):
        if len(access.index) != 1:
            needs[access.array, f"indices {len(access.index)}"] = None
    return tuple(need for param in template.params for need in needs if need[0] == param.name)


class _ResolveDims(Rewriter):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.shapes = dict(shapes)
        self.local_bytes = 0

    def visit_Parallel(self, node: Parallel) -> Parallel:
        return replace(node, body=self.body(node.body))  # its ranges are the host's

    def visit_Dim(self, node: Dim) -> Expr:
        shape = self.shapes.get(node.array)
        if shape is None:
            raise diagnostic(TypeError, f"'{node.array}' is a number, which has no shape", node.loc)
        return Const(_extent(node, shape), type=i64, loc=node.loc)

    def visit_LocalArray(self, node: LocalArray) -> LocalArray:
        new = self.generic_visit(node)
        kind = "shared" if node.shared else "local"
        shape = tuple(_constant(e) for e in new.shape)
        if any(extent < 1 for extent in shape):
            raise diagnostic(
                ValueError, f"a {kind} array of shape {shape}: extents must be positive", node.loc
            )
        size = node.dtype.itemsize * node.width
        for extent in shape:
            size *= extent
        self.local_bytes += size
        if self.local_bytes > LOCAL_ARRAY_LIMIT:
            message = f"{kind} arrays of {self.local_bytes} bytes: a kernel may use {LOCAL_ARRAY_LIMIT}"
            raise diagnostic(
                ValueError, message, node.loc, hint="pass an array with one row for each iteration"
            )
        self.shapes[node.name] = shape
        consts = tuple(Const(n, type=i64, loc=e.loc) for n, e in zip(shape, node.shape, strict=True))
        return replace(node, shape=consts)


def _extent(node: Dim, shape: tuple[int, ...]) -> int:
    if node.axis == "size":
        size = 1
        for extent in shape:
            size *= extent
        return size
    if node.axis == "ndim":
        return len(shape)
    if node.axis == "len":
        if not shape:
            raise diagnostic(TypeError, f"len() of the 0-d array '{node.array}'", node.loc)
        return shape[0]
    assert isinstance(node.axis, int)
    if not -len(shape) <= node.axis < len(shape):
        message = f"'{node.array}' has {len(shape)} dimensions, so no shape[{node.axis}]"
        raise diagnostic(TypeError, message, node.loc)
    return shape[node.axis]


def _constant(node: Expr) -> int:
    """The value of an extent made of constants."""
    if isinstance(node, Const) and isinstance(node.value, int):
        return node.value
    if isinstance(node, Unary) and node.op == "neg":
        return -_constant(node.operand)
    if isinstance(node, Binary) and node.op in ("add", "sub", "mul", "floordiv", "mod"):
        a, b = _constant(node.left), _constant(node.right)
        if node.op in ("floordiv", "mod") and b == 0:
            raise diagnostic(ZeroDivisionError, "the extent of a local array divides by zero", node.loc)
        return {"add": a + b, "sub": a - b, "mul": a * b, "floordiv": b and a // b, "mod": b and a % b}[
            node.op
        ]
    if isinstance(node, Call) and node.function in ("min", "max"):
        return (min if node.function == "min" else max)(_constant(a) for a in node.args)
    raise diagnostic(
        UnsupportedSyntaxError,
        "the extent of a local array must be a constant",
        node.loc,
        hint="use literals, tack.constant and array extents",
    )


def resolve_dims(kernel: Kernel, shapes: Shapes) -> Kernel:
    """``kernel`` without `Dim` nodes, but for the ranges of its parallel loop.

    Raises:
        TypeError: an extent that an array does not have.
        UnsupportedSyntaxError, ValueError: a local array's shape is not constant, or too large.
    """
    if not nodes_of(kernel, Dim) and not nodes_of(kernel, LocalArray):
        return kernel  # cheaper to see than to rewrite
    return _ResolveDims(shapes).visit(kernel)  # type: ignore[no-any-return]


def local_shapes(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    """The shapes of a kernel's local arrays, after `resolve_dims`."""
    return {
        node.name: tuple(_constant(e) for e in node.shape)
        for node in walk_statements(kernel)
        if isinstance(node, LocalArray)
    }
