"""What the Python texts of vector programs call: operations on numbers and tuples, a component at a time.

Integers are Python's, wrapped by the conformance oracle; floats are NumPy's scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance import oracle

EXACT = {"f32": 2**24, "f64": 2**53}  # integers of up to this magnitude are exact


def convert(name: str, x: Any) -> Any:
    """A number, or each component of a vector, cast to a type."""
    if isinstance(x, tuple):
        return tuple(convert(name, c) for c in x)
    if name[0] == "f":
        dtype = oracle.numpy_dtype(name).type
        exact = not isinstance(x, int) or abs(x) <= EXACT[name]
        return dtype(x) if exact else dtype(oracle.round_to(name, x))
    return oracle.wrap(name, x) if isinstance(x, int) else oracle.float_to_int(name, float(x))


def each(f: Callable[..., Any], *args: Any) -> Any:
    """``f`` of numbers, or of each component; a number goes with every component."""
    width = next((len(a) for a in args if isinstance(a, tuple)), 0)
    if not width:
        return f(*args)
    return tuple(f(*(a[c] if isinstance(a, tuple) else a for a in args)) for c in range(width))


def floor(op: str, a: Any, b: Any) -> Any:
    if b == 0:
        return 0
    exact = a if isinstance(a, int) else float(a)
    return type(a)(exact // type(exact)(b) if op == "//" else exact % type(exact)(b))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: floor("//", a, b),
    "%": lambda a, b: floor("%", a, b),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "min": lambda a, b: b if b < a else a,
    "max": lambda a, b: b if b > a else a,
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def binary(op: str, name: str, a: Any, b: Any) -> Any:
    return each(lambda x, y: convert(name, OPERATIONS[op](x, y)), convert(name, a), convert(name, b))


def compare(op: str, name: str, a: Any, b: Any) -> Any:
    return each(lambda x, y: int(COMPARE[op](x, y)), convert(name, a), convert(name, b))


def shift(op: str, name: str, a: Any, b: Any) -> Any:
    move = oracle.shift_left if op == "<<" else oracle.shift_right
    return each(lambda x, y: move(name, x, y), a, b)


def negative(name: str, a: Any) -> Any:
    return each(lambda x: convert(name, -x), a)


def invert(name: str, a: Any) -> Any:
    return each(lambda x: convert(name, ~x), a)


def absolute(name: str, a: Any) -> Any:
    return each(lambda x: convert(name, abs(x)), a)


def logic(op: str, a: Any, b: Any) -> Any:
    return each(lambda x, y: int(bool(x and y) if op == "and" else bool(x or y)), a, b)


def negate(a: Any) -> Any:
    return each(lambda x: int(not x), a)


def where(name: str, m: Any, a: Any, b: Any) -> Any:
    return each(lambda c, x, y: x if c else y, m, convert(name, a), convert(name, b))


def total(name: str, a: Any) -> Any:
    result = a[0]
    for c in a[1:]:
        result = convert(name, result + c)
    return result


def dot(name: str, a: Any, b: Any) -> Any:
    return total(name, binary("*", name, a, b))


def cross(name: str, a: Any, b: Any) -> Any:
    a, b = convert(name, a), convert(name, b)
    return tuple(
        convert(name, a[(c + 1) % 3] * b[(c + 2) % 3] - a[(c + 2) % 3] * b[(c + 1) % 3]) for c in range(3)
    )


def smallest(a: Any) -> Any:
    return min(a)


def largest(a: Any) -> Any:
    return max(a)


def spread(width: int, a: Any) -> Any:
    return (a,) * width


def read(a: Any, index: int) -> Any:
    return a[min(max(index, 0), len(a) - 1)]


def stored(a: Any, index: int, value: Any) -> Any:
    """The vector after a store to one component; a store out of range does nothing."""
    return tuple(value if c == index else x for c, x in enumerate(a))


MODEL = (
    *(convert, binary, compare, shift, negative, invert, absolute, logic, negate, where, total, dot, cross),
    *(smallest, largest, spread, read, stored),
)
