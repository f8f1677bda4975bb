"""The types of a template's expressions, before conversions are placed.

A value is described by its dtype and by what else decides how it promotes: whether it is made of
literals only, and whether it cannot be negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tack.dtypes import DType, f32, f64, i32, integer_dtype_of, promote, u64
from tack.errors import diagnostic
from tack.ir import nodes
from tack.ir.nodes import (
    Array,
    Atomic,
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fetch,
    Kernel,
    LaneId,
    Load,
    Local,
    Logical,
    Lookup,
    Meet,
    Node,
    Param,
    Select,
    Store,
    Unary,
)
from tack.lang.builtins import BUILTINS
from tack.record import Record

__all__ = ["Ty", "Types", "join", "known"]


class Ty(Record):
    """What is known of a value before conversions are placed; `known` makes it.

    ``literal``: made of literals only; a float of this kind is ``weak``. ``natural``: an integer that
    cannot be negative, because it is a literal, a loop index or an extent; it may stand beside u64.
    """

    dtype: DType
    literal: bool
    natural: bool
    weak: bool


_KNOWN: dict[tuple[str, bool, bool], Ty] = {}


def known(dtype: DType, literal: bool = False, natural: bool = False) -> Ty:
    """The one `Ty` with these attributes, so that equal ones are identical."""
    key = dtype.name, literal, natural
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN.setdefault(key, Ty(dtype, literal, natural, literal and dtype.is_float))
    return found


def join(a: Ty, b: Ty) -> Ty | None:
    """The type that holds both, or None for a signed integer beside u64."""
    if a is b:
        return a
    dtype = promote(a.dtype, b.dtype)
    if dtype is None and (a.natural if a.dtype is not u64 else b.natural):
        dtype = u64
    if dtype is None:
        return None
    return known(dtype, a.literal and b.literal, a.natural and b.natural)


_INTEGER_ONLY = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    **_INTEGER_ONLY,
}
_BOOL = known(i32)


class Types:
    """The types of a kernel's expressions, given those of its locals."""

    def __init__(self, kernel: Kernel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.kernel = kernel
        self.shapes = shapes
        self.params = {p.name: p for p in kernel.params}
        self.arrays: dict[str, DType] = {
            p.name: p.type.dtype for p in kernel.params if isinstance(p.type, Array)
        }
        self.widths = {p.name: p.type.width for p in kernel.params if isinstance(p.type, Array)}
        self.locals: dict[str, Ty | None] = {}
        self.memo: dict[int, Ty] = {}
        self.used: set[str] = set()  # the locals whose types the memo depends on

    def set_local(self, name: str, ty: Ty | None) -> bool:
        """Changes a local's type. Whether that matters to anything whose type was asked for."""
        self.locals[name] = ty
        if name not in self.used:
            return False
        self.memo.clear()
        self.used.clear()
        return True

    # --- the type of an expression; None while a local in it has none yet ---

    def of(self, node: Expr) -> Ty | None:
        key = id(node)
        found = self.memo.get(key)
        if found is None:
            found = _RULES[type(node)](self, node)
            if found is not None:
                self.memo[key] = found
        return found

    def of_Const(self, node: Const) -> Ty:
        if isinstance(node.value, float):
            return known(node.type or f32, node.type is None)
        dtype = node.type or integer_dtype_of(node.value)
        assert dtype is not None  # lowering refused it
        return known(dtype, node.type is None, node.value >= 0 and dtype.is_integer)

    def of_Param(self, node: Param) -> Ty:
        dtype = self.params[node.name].type
        if isinstance(dtype, Array):
            hint = f"index it: {node.name}[...]"
            raise diagnostic(TypeError, f"array '{node.name}' is used as a number", node.loc, hint=hint)
        assert dtype is not None
        return known(dtype)

    def of_Local(self, node: Local) -> Ty | None:
        self.used.add(node.name)
        return self.locals.get(node.name)

    def of_Load(self, node: Load) -> Ty:
        return known(self.array(node))

    def of_Lookup(self, node: Lookup) -> Ty:
        table = self.kernel.tables[node.table]
        if table.dtype is not None:
            return known(table.dtype)
        if isinstance(table.values[0], float):
            return known(f32, literal=True)
        dtypes = [integer_dtype_of(int(v)) for v in (min(table.values), max(table.values))]
        low, high = dtypes
        dtype = promote(low, high) if low and high else None
        if dtype is None:
            message = f"no integer type holds all values of table '{node.table}'"
            raise diagnostic(TypeError, message, node.loc)
        return known(dtype, natural=min(table.values) >= 0)

    def of_Fetch(self, node: Fetch) -> Ty:
        return known(f32)

    def of_LaneId(self, node: LaneId) -> Ty:
        return known(i32, natural=True)

    def of_Unary(self, node: Unary) -> Ty | None:
        operand = self.of(node.operand)
        if operand is None or node.op == "not":
            return _BOOL if node.op == "not" else None
        if node.op == "invert" and operand.dtype.is_float:
            raise self.error(node, f"~ needs an integer, not {operand.dtype}")
        return known(operand.dtype, operand.literal)

    def of_Binary(self, node: Binary) -> Ty | None:
        left, right = self.of(node.left), self.of(node.right)
        if left is None or right is None:
            return None
        floats = left.dtype.is_float or right.dtype.is_float
        literal = left.literal and right.literal
        if node.op in _INTEGER_ONLY and floats:
            symbol = _SYMBOLS[node.op]
            message = f"{symbol} needs integers, not {left.dtype} and {right.dtype}"
            raise self.error(node, message, "convert with int(...) or a dtype, or use bitcast for the bits")
        if node.op in ("shl", "shr"):
            return known(left.dtype, literal)
        if node.op == "pow" and not floats:
            exponent = node.right
            while isinstance(exponent, Meet):
                exponent = exponent.value
            if isinstance(exponent, Const) and exponent.value < 0:
                hint = "make the base a float: float(x) ** -1"
                raise self.error(node, f"an integer to the power {exponent.value} is not an integer", hint)
            return known(left.dtype, literal)
        both = join(left, right)
        if both is None:
            raise self.mixed(node, left, right, f"'{_SYMBOLS[node.op]}' of")
        if node.op == "div" and not floats:
            return known(f32)
        return known(both.dtype, literal)

    def of_Compare(self, node: Compare) -> Ty | None:
        self.joined(node, [node.left, node.right], "a comparison of")
        return _BOOL

    def of_Logical(self, node: Logical) -> Ty:
        self.of(node.left), self.of(node.right)
        return _BOOL

    def of_Select(self, node: Select) -> Ty | None:
        self.of(node.cond)
        return self.joined(node, [node.then, node.orelse], "a conditional of")

    def of_Call(self, node: Call) -> Ty | None:
        rule = BUILTINS[node.function].rule
        args = [self.of(arg) for arg in node.args]
        if rule in ("test", "truth"):
            return _BOOL
        if any(arg is None for arg in args):
            return _BOOL if rule == "bits" else None
        given = [arg for arg in args if arg is not None]
        if rule == "bits":
            if given[0].dtype.is_float:
                raise self.error(node, f"{node.function}() needs an integer, not {given[0].dtype}")
            return _BOOL
        if rule == "where":
            return self.joined(node, list(node.args[1:]), "where() of")
        if rule == "promote":
            result = self.joined(node, list(node.args), f"{node.function}() of")
            return result and known(result.dtype, result.literal)
        if rule == "keep" and given[0].dtype.is_integer:
            return given[0]
        strong = any(arg.dtype is f64 and not arg.weak for arg in given)
        return known(f64 if strong else f32, all(arg.literal for arg in given))

    def of_Meet(self, node: Meet) -> Ty | None:
        return self.joined(node, [node.value, *node.others], "a vector of")

    def of_Cast(self, node: Cast) -> Ty:
        self.of(node.operand)
        return known(node.to)

    def of_Bitcast(self, node: Bitcast) -> Ty:
        operand = self.of(node.operand)
        bits = operand.dtype.bits if operand else node.to.bits
        if bits != node.to.bits and not (operand and operand.weak and node.to.bits == 64):
            message = (
                f"bitcast from {operand and operand.dtype} ({bits} bits) to {node.to} ({node.to.bits} bits)"
            )
            raise self.error(node, message, "the two types must have the same width")
        return known(node.to)

    def joined(self, node: Expr, parts: list[Expr], what: str) -> Ty | None:
        """The type of several expressions together."""
        result: Ty | None = None
        for part in parts:
            ty = self.of(part)
            if ty is None:
                return None
            both = ty if result is None else join(result, ty)
            if both is None:
                assert result is not None
                raise self.mixed(node, result, ty, what)
            result = both
        return result

    # --- arrays ---

    def array(self, node: Load | Store | Atomic) -> DType:
        """The element type of the array that a node accesses."""
        dtype = self.arrays.get(node.array)
        if dtype is None:
            kind = self.params[node.array].type
            hint = "pass an array, or a NumPy array, for it"
            raise diagnostic(
                TypeError,
                f"'{node.array}' is indexed, but the call passes a number ({kind})",
                node.loc,
                hint=hint,
            )
        shape = self.shapes[node.array]
        if len(node.index) not in (1, len(shape)):
            count = len(node.index)
            what = f"{count} indices" if count else "no index"
            message = f"{what} for '{node.array}', which has {len(shape)} dimensions"
            raise diagnostic(
                TypeError, message, node.loc, hint=f"use {len(shape)} indices, or one flat index"
            )
        return dtype

    # --- errors ---

    def error(self, node: Node, message: str, hint: str | None = None) -> TypeError:
        return diagnostic(TypeError, message, node.loc, hint=hint)

    def mixed(self, node: Node, a: Ty, b: Ty, what: str) -> TypeError:
        message = (
            f"{what} {a.dtype} and {b.dtype} mixes a signed integer with u64, and no integer type holds both"
        )
        return self.error(node, message, "convert one of them, with tack.u64(...) or tack.i64(...)")


# The rule for each class of expressions.
_RULES: dict[type, Callable[[Any, Any], Ty | None]] = {
    getattr(nodes, name.removeprefix("of_")): rule
    for name, rule in vars(Types).items()
    if name.startswith("of_")
}
