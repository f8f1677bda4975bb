"""Vectors and matrices while lowering: tuples of scalar expressions with a shape.

The IR knows scalars only. An operation on vectors becomes one on each component, and a vector
variable becomes one local for each component.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tack.ir.nodes import Binary, Call, Const, Expr, Unary
from tack.lang.source import Loc

__all__ = ["METHODS", "Aggregate", "Value", "describe", "map_parts", "parts_of"]


class Aggregate:
    """A vector, ``shape`` (n,), or a matrix, ``shape`` (n, m), of scalar ``parts``, row by row."""

    __slots__ = ("loc", "parts", "shape")

    def __init__(self, shape: tuple[int, ...], parts: Sequence[Expr], loc: Loc | None = None) -> None:
        assert math.prod(shape) == len(parts)
        self.shape = shape
        self.parts = tuple(parts)
        self.loc = loc

    @property
    def is_vector(self) -> bool:
        return len(self.shape) == 1

    def row(self, i: int) -> Value:
        """Component ``i`` of a vector, row ``i`` of a matrix."""
        if self.is_vector:
            return self.parts[i]
        width = self.shape[1]
        return Aggregate((width,), self.parts[i * width : (i + 1) * width], self.loc)

    def at(self, i: int, j: int) -> Expr:
        return self.parts[i * self.shape[1] + j]


Value = Expr | Aggregate


def parts_of(value: Value) -> tuple[Expr, ...]:
    """The scalars that a value is made of."""
    return value.parts if isinstance(value, Aggregate) else (value,)


def map_parts(value: Value, change: Callable[[Expr], Expr]) -> Value:
    """``value`` with each of its scalars changed."""
    if isinstance(value, Aggregate):
        return Aggregate(value.shape, [change(part) for part in value.parts], value.loc)
    return change(value)


def describe(shape: tuple[int, ...]) -> str:
    """A shape in words, for messages."""
    if not shape:
        return "a number"
    if len(shape) == 1:
        return f"a vector of {shape[0]}"
    return f"a {shape[0]}x{shape[1]} matrix"


# --- the algebra -------------------------------------------------------------------------------


class ShapeError(Exception):
    """Operands whose shapes do not go together; the text says how."""


def _add(a: Expr, b: Expr) -> Expr:
    return Binary("add", a, b, loc=b.loc or a.loc)


def _sub(a: Expr, b: Expr) -> Expr:
    return Binary("sub", a, b, loc=a.loc)


def _mul(a: Expr, b: Expr) -> Expr:
    return Binary("mul", a, b, loc=a.loc)


def _div(a: Expr, b: Expr) -> Expr:
    return Binary("div", a, b, loc=a.loc)


def total(parts: Sequence[Expr]) -> Expr:
    """The sum, from left to right."""
    result = parts[0]
    for part in parts[1:]:
        result = _add(result, part)
    return result


def _vectors(*values: Aggregate) -> None:
    for value in values:
        if not value.is_vector:
            raise ShapeError(f"needs vectors, not {describe(value.shape)}")
        if value.shape != values[0].shape:
            raise ShapeError(f"needs vectors of one size, not {values[0].shape[0]} and {value.shape[0]}")


def _square(m: Aggregate) -> int:
    if m.is_vector or m.shape[0] != m.shape[1]:
        raise ShapeError(f"needs a square matrix, not {describe(m.shape)}")
    return m.shape[0]


def dot(a: Aggregate, b: Aggregate) -> Expr:
    _vectors(a, b)
    return total([_mul(x, y) for x, y in zip(a.parts, b.parts, strict=True)])


def cross(a: Aggregate, b: Aggregate) -> Aggregate:
    _vectors(a, b)
    if a.shape != (3,):
        raise ShapeError(f"needs vectors of 3, not of {a.shape[0]}")
    (ax, ay, az), (bx, by, bz) = a.parts, b.parts
    pairs = ((ay, bz, az, by), (az, bx, ax, bz), (ax, by, ay, bx))
    return Aggregate((3,), [_sub(_mul(p, q), _mul(r, s)) for p, q, r, s in pairs])


def outer(a: Aggregate, b: Aggregate) -> Aggregate:
    if not (a.is_vector and b.is_vector):
        raise ShapeError("needs vectors")
    if a.shape[0] > 4 or b.shape[0] > 4:
        raise ShapeError("makes a matrix, which has at most 4 rows and columns")
    return Aggregate((a.shape[0], b.shape[0]), [_mul(x, y) for x in a.parts for y in b.parts])


def matmul(a: Aggregate, b: Aggregate) -> Value:
    """``a @ b``: a vector is a row on the left and a column on the right."""
    rows = [a] if a.is_vector else [a.row(i) for i in range(a.shape[0])]
    columns = [b] if b.is_vector else [transpose(b).row(j) for j in range(b.shape[1])]
    inner = (a.shape[-1], b.shape[0])
    if inner[0] != inner[1]:
        raise ShapeError(
            f"multiplies {describe(a.shape)} by {describe(b.shape)}: {inner[0]} is not {inner[1]}"
        )
    parts = [
        dot(r, c) for r in rows for c in columns if isinstance(r, Aggregate) and isinstance(c, Aggregate)
    ]
    shape = (*a.shape[:-1], *b.shape[1:])
    return Aggregate(shape, parts) if shape else parts[0]


def transpose(m: Aggregate) -> Aggregate:
    if m.is_vector:
        raise ShapeError("needs a matrix")
    n, k = m.shape
    return Aggregate((k, n), [m.at(i, j) for j in range(k) for i in range(n)], m.loc)


def trace(m: Aggregate) -> Expr:
    return total([m.at(i, i) for i in range(_square(m))])


def _minor(m: Aggregate, i: int, j: int) -> Aggregate:
    n = m.shape[0]
    kept = [m.at(r, c) for r in range(n) for c in range(n) if r != i and c != j]
    return Aggregate((n - 1, n - 1), kept)


def determinant(m: Aggregate) -> Expr:
    """By cofactors of the first row."""
    n = _square(m)
    if n == 1:
        return m.parts[0]
    if n == 2:
        a, b, c, d = m.parts
        return _sub(_mul(a, d), _mul(b, c))
    result = _mul(m.at(0, 0), determinant(_minor(m, 0, 0)))
    for j in range(1, n):
        term = _mul(m.at(0, j), determinant(_minor(m, 0, j)))
        result = _sub(result, term) if j % 2 else _add(result, term)
    return result


def adjugate(m: Aggregate) -> Aggregate:
    """The transposed cofactors."""
    n = _square(m)
    if n == 1:
        return Aggregate((1, 1), [Const(1, loc=m.loc)])
    parts = []
    for i in range(n):
        for j in range(n):
            cofactor = determinant(_minor(m, j, i))
            parts.append(Unary("neg", cofactor, loc=m.loc) if (i + j) % 2 else cofactor)
    return Aggregate((n, n), parts)


def length(a: Aggregate) -> Expr:
    if a.shape == (1,):
        return Call("abs", a.parts, loc=a.loc)
    # Times 1.0: the components of an integer vector become floats before they are squared.
    real = _each(a, lambda part: _mul(part, Const(1.0, loc=part.loc)))
    return Call("sqrt", (dot(real, real),), loc=a.loc)


def _each(a: Aggregate, make: Callable[[Expr], Expr]) -> Aggregate:
    return Aggregate(a.shape, [make(p) for p in a.parts], a.loc)


def _reduce(name: str) -> Callable[[Aggregate], Expr]:
    return lambda a: Call(name, a.parts, loc=a.loc) if len(a.parts) > 1 else a.parts[0]


def difference(a: Aggregate, b: Aggregate) -> Aggregate:
    _vectors(a, b)
    return Aggregate(a.shape, [_sub(x, y) for x, y in zip(a.parts, b.parts, strict=True)], a.loc)


# Methods of vectors and matrices, and functions of the same names: how many arguments follow the
# vector, and what they make of it. `normalized`, `distance` and `inverse`, which use a
# value several times, are in `tack.lang.vectors`.
METHODS: dict[str, tuple[int, Callable[..., Value]]] = {
    "dot": (1, dot),
    "cross": (1, cross),
    "length": (0, length),
    "length_sq": (0, lambda a: dot(a, a)),
    "outer": (1, outer),
    "sum": (0, lambda a: total(a.parts)),
    "min": (0, _reduce("min")),
    "max": (0, _reduce("max")),
    "transpose": (0, transpose),
    "trace": (0, trace),
    "determinant": (0, determinant),
}


def divided(a: Aggregate, by: Expr) -> Aggregate:
    return _each(a, lambda part: _div(part, by))
