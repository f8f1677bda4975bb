"""Lowering of what only vectors and matrices have: components, constructors, methods."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from math import prod

from tack.dtypes import VectorType, i64
from tack.ir.nodes import Binary, Cast, Compare, Const, Expr, Local, Meet, Select, Stmt
from tack.lang.context import Context
from tack.lang.scope import Components, Variable
from tack.lang.values import (
    METHODS,
    Aggregate,
    ShapeError,
    Value,
    adjugate,
    describe,
    determinant,
    difference,
    divided,
    length,
    parts_of,
)

__all__ = ["COMPONENTS", "VECTOR_FUNCTIONS", "Vectors"]

COMPONENTS = {name: k % 4 for k, name in enumerate("xyzwrgba")}

# Names of functions and methods of vectors, with the number of arguments after the vector.
VECTOR_FUNCTIONS: dict[str, tuple[int, int]] = {
    **{name: (count, count) for name, (count, _) in METHODS.items()},
    "normalized": (0, 1),
    "distance": (1, 1),
    "inverse": (0, 0),
}

# The functions that take a number as a vector of one, as GLSL's do.
OF_NUMBERS = frozenset({"distance", "dot", "length", "length_sq", "sum"})


def agreed(parts: Sequence[Expr]) -> list[Expr]:
    """The components of a vector, each in the type that all have in common."""
    others = [(*parts[:k], *parts[k + 1 :]) for k in range(len(parts))]
    return [Meet(p, o, loc=p.loc) if o else p for p, o in zip(parts, others, strict=True)]


class Vectors(Context):
    """Operations on vectors and matrices, made of operations on their components."""

    def lift(self, node: ast.AST, make: Callable[..., Expr], *values: Value) -> Value:
        """``make`` of the values' components, one by one; a scalar goes with every component.

        Raises:
            TypeError: the vectors among the values differ in shape.
        """
        if Aggregate not in map(type, values):
            return make(*values)
        shapes = {v.shape for v in values if isinstance(v, Aggregate)}
        if len(shapes) > 1:
            first, second, *_ = dict.fromkeys(describe(v.shape) for v in values if isinstance(v, Aggregate))
            raise self.error(TypeError, f"{first} and {second} do not go together", node)
        (shape,) = shapes
        spread = [v.parts if isinstance(v, Aggregate) else [self.once(v)] * prod(shape) for v in values]
        return Aggregate(shape, [make(*parts) for parts in zip(*spread, strict=True)], self.loc(node))

    def algebra(self, node: ast.AST, make: Callable[..., Value], *values: Value) -> Value:
        """A rule of `tack.lang.values`, its complaint about shapes placed at ``node``."""
        try:
            return make(*values)
        except ShapeError as error:
            raise self.error(TypeError, f"'{ast.unparse(node)}' {error}", node) from None

    def once_in(self, block: list[Stmt], value: Value) -> Value:
        """`once`, saving at the end of ``block``."""
        with self.captured() as saving:
            value = self.once(value)
        block += saving
        return value

    # --- variables ---

    def new_variable(self, name: str, shape: tuple[int, ...]) -> Variable | Components:
        """A variable of the IR for a number, or one for each component of a vector or matrix."""
        base = self.unique(name)
        if not shape:
            return Variable(base)
        return Components(tuple(self.unique_suffix(base, k) for k in range(prod(shape))), shape)

    def variable_value(self, variable: Variable | Components, node: ast.AST) -> Value:
        loc = self.loc(node)
        if isinstance(variable, Components):
            return Aggregate(variable.shape, [Local(name, loc=loc) for name in variable.ir], loc)
        return Local(variable.ir, loc=loc)

    def check_shape(self, value: Value, shape: tuple[int, ...], node: ast.AST) -> None:
        """TypeError unless the value has the shape."""
        found = value.shape if isinstance(value, Aggregate) else ()
        if found != shape:
            raise self.error(TypeError, f"{describe(found)} where {describe(shape)} is needed", node)

    def spread(self, value: Value, shape: tuple[int, ...], node: ast.AST) -> Value:
        """A value for an element of this shape: a scalar goes to every component."""
        if isinstance(value, Aggregate) or not shape:
            self.check_shape(value, shape, node)
            return value
        return Aggregate(shape, [self.once(value)] * prod(shape), value.loc)

    # --- components ---

    def swizzle(self, value: Aggregate, node: ast.Attribute) -> Value:
        """``v.x``, ``v.rgb``: components by name."""
        numbers = [COMPONENTS.get(c, -1) for c in node.attr]
        mixed = any(c in "xyzw" for c in node.attr) and any(c in "rgba" for c in node.attr)
        if not value.is_vector or mixed or not 1 <= len(numbers) <= 4 or -1 in numbers:
            self.unsupported(f"{describe(value.shape)} has no '.{node.attr}'", node)
        if max(numbers) >= value.shape[0]:
            raise self.error(TypeError, f"'.{node.attr}' of {describe(value.shape)}", node)
        if len(numbers) == 1:
            return value.parts[numbers[0]]
        value = self.once(value)
        return Aggregate((len(numbers),), [value.parts[k] for k in numbers], self.loc(node))

    def component(self, value: Value, node: ast.Subscript) -> Value:
        """``v[i]``, ``m[i]`` and ``m[i, j]``."""
        if not isinstance(value, Aggregate):
            self.unsupported("a number cannot be indexed", node)
        nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(nodes) > len(value.shape):
            raise self.error(TypeError, f"{len(nodes)} indices for {describe(value.shape)}", node)
        for part in nodes:
            if not isinstance(value, Aggregate):
                break
            value = self.selected(value, self.expr(part), part)
        return value

    def selected(self, value: Aggregate, index: Expr, node: ast.expr) -> Value:
        """Component or row ``index``; one at run time reads the nearest that exists."""
        extent = value.shape[0]
        known = self.literal_index(index, extent, node)
        if known is not None:
            return value.row(known)
        return self.nearest(self.once(value), self.once(index))

    def nearest(self, value: Aggregate, at: Expr) -> Value:
        """Row ``at``, an index known at run time, or the nearest that exists."""
        result = value.row(value.shape[0] - 1)
        for k in reversed(range(value.shape[0] - 1)):
            is_k = Compare("le", at, Const(k, type=i64, loc=at.loc), loc=at.loc)
            pairs = zip(parts_of(value.row(k)), parts_of(result), strict=True)
            parts = [Select(is_k, a, b, loc=at.loc) for a, b in pairs]
            result = Aggregate(value.shape[1:], parts, value.loc) if len(value.shape) > 1 else parts[0]
        return result

    def literal_index(self, index: Expr, extent: int, node: ast.expr) -> int | None:
        """A literal component index, counted from the front; None if it is not a literal."""
        if not isinstance(index, Const):
            return None
        if not isinstance(index.value, int) or not -extent <= index.value < extent:
            raise self.error(TypeError, f"component {index.value} of {extent}", node)
        return index.value % extent

    # --- making vectors ---

    def expr_List(self, node: ast.List) -> Value:
        """``[x, y]``: a vector of scalars, in their common type."""
        if not node.elts:
            hint = "declare tack.local_array(shape, dtype)"
            self.unsupported("an empty list is not a value in a kernel", node, hint)
        for part in node.elts:
            if isinstance(part, ast.List):
                self.unsupported("a list in a list", part, "make a matrix: tack.mat2([a, b], [c, d])")
        parts = self.in_order(node.elts)
        if len(parts) > 16:
            self.unsupported(f"a vector has at most 16 components, not {len(parts)}", node)
        if len(parts) > 1 and not all(isinstance(p, Const) and p.type is None for p in parts):
            parts = [self.once(p) for p in parts]
        return Aggregate((len(parts),), agreed(parts), self.loc(node))

    def construct_vector(self, kind: VectorType, node: ast.Call) -> Value:
        """``tack.vec3(x, y, z)``, ``tack.vec3(0.0)``, ``tack.mat2([a, b], [c, d])``."""
        loc = self.loc(node)
        values = self.values_in_order(node.args)
        size = prod(kind.shape)
        parts = [part for value in values for part in parts_of(value)]
        if len(values) == 1 and not isinstance(values[0], Aggregate) and size > 1:
            parts = [self.once(parts[0])] * size
        if len(parts) != size:
            counts = f"{len(parts)} component{'s' if len(parts) != 1 else ''}"
            raise self.error(
                TypeError, f"{ast.unparse(node.func)}(...) takes {size} components, not {counts}", node
            )
        return Aggregate(kind.shape, [Cast(p, kind.dtype, loc=p.loc or loc) for p in parts], loc)

    def identity(self, kind: VectorType, node: ast.Call) -> Value:
        if len(kind.shape) != 2 or kind.shape[0] != kind.shape[1] or node.args:
            raise self.error(TypeError, "identity() makes a square matrix and takes no arguments", node)
        n = kind.shape[0]
        loc = self.loc(node)
        parts = [
            Const(kind.dtype.numpy.type(i == j).item(), type=kind.dtype, loc=loc)
            for i in range(n)
            for j in range(n)
        ]
        return Aggregate(kind.shape, parts, loc)

    # --- methods ---

    def vector_function(self, name: str, values: Sequence[Value], node: ast.Call) -> Value:
        """A method, or the function of the same name, of the first of ``values``."""
        least, most = VECTOR_FUNCTIONS[name]
        if not least <= len(values) - 1 <= most:
            self.unsupported(
                f"{name}() of a vector takes {least} more arguments, not {len(values) - 1}", node
            )
        if name in OF_NUMBERS and not any(isinstance(v, Aggregate) for v in values):
            ones = [Aggregate((1,), [self.scalar(v)]) for v in values]
            return parts_of(self.vector_function(name, ones, node))[0]
        first, *rest = (self.once(v) for v in values)
        for value in (first, *(rest if name != "normalized" else ())):
            if not isinstance(value, Aggregate):
                raise self.error(TypeError, f"{name}() needs vectors or matrices, not a number", node)
        assert isinstance(first, Aggregate)
        if name == "normalized":
            size: Expr = self.scalar(self.algebra(node, length, first))
            if rest:
                self.check_shape(rest[0], (), node)
                size = Binary("add", size, self.scalar(rest[0]), loc=self.loc(node))
            return divided(first, self.scalar(self.once(size)))
        if name == "distance":
            apart = self.algebra(node, difference, first, *rest)
            return self.algebra(node, length, self.once(apart))
        if name == "inverse":
            cofactors = self.algebra(node, adjugate, first)
            assert isinstance(cofactors, Aggregate)
            return divided(cofactors, self.scalar(self.once(self.algebra(node, determinant, first))))
        return self.algebra(node, METHODS[name][1], first, *rest)

    def scalar(self, value: Value) -> Expr:
        """A value known to be a scalar."""
        assert not isinstance(value, Aggregate)
        return value
