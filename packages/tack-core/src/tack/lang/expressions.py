"""Lowering of expressions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from tack.constants import ConstantFloat, ConstantInt, ConstantTable
from tack.dtypes import DType, i64, integer_dtype_of
from tack.errors import did_you_mean
from tack.ir.nodes import (
    Assign,
    Binary,
    Call,
    Compare,
    Const,
    Dim,
    Expr,
    If,
    Load,
    Local,
    Logical,
    Lookup,
    Param,
    Select,
    Stmt,
    Table,
    Unary,
)
from tack.lang.bindings import UNBOUND
from tack.lang.builtins import BARE, NUMBERS, meaning_of
from tack.lang.kernel import Func, Kernel
from tack.lang.objects import Objects
from tack.lang.scope import ArrayName, Binding, Components, Instance, ParamName, Variable, first_assignment
from tack.lang.values import Aggregate, Value, describe, matmul, parts_of
from tack.lang.vectors import agreed

__all__ = ["Expressions"]

_BINARY: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
}

_COMPARE: dict[type, str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}

# What newcomers write, and what to write instead.
_REJECTED: dict[type, tuple[str, str | None]] = {
    ast.NamedExpr: (
        "assignment expressions (:=) are not part of the kernel language",
        "assign on a line of its own",
    ),
    ast.Lambda: ("lambda is not part of the kernel language", "define a @tack.func"),
    ast.ListComp: ("comprehensions are not part of the kernel language", "write a for loop"),
    ast.SetComp: ("comprehensions are not part of the kernel language", "write a for loop"),
    ast.DictComp: ("comprehensions are not part of the kernel language", "write a for loop"),
    ast.GeneratorExp: ("generators are not part of the kernel language", "write a for loop"),
    ast.Await: ("await is not part of the kernel language", None),
    ast.Yield: ("yield is not part of the kernel language", "store results in an array"),
    ast.YieldFrom: ("yield is not part of the kernel language", "store results in an array"),
    ast.JoinedStr: ("f-strings are not part of the kernel language", 'print("label", value) prints values'),
    ast.Set: ("sets are not part of the kernel language", None),
    ast.Dict: ("dictionaries are not part of the kernel language", "pass arrays and numbers"),
    ast.Starred: ("starred expressions are not part of the kernel language", "write the elements out"),
    ast.Slice: (
        "slices are not part of the kernel language",
        "loop over the elements, or pass a view made on the host",
    ),
    ast.Tuple: ("a tuple is not a value in a kernel", "assign its elements to names: a, b = x, y"),
}


class Expressions(Objects):
    """Expressions to IR expressions, emitting statements for the effects on the way."""

    def value(self, node: ast.expr) -> Value:
        rule = self.rule("expr", node)
        if rule is None:
            message, hint = _REJECTED.get(
                type(node), (f"{type(node).__name__} is not part of the kernel language", None)
            )
            self.unsupported(message, node, hint)
        value: Value = rule(self, node)
        return value

    def condition(self, node: ast.expr) -> Expr:
        """A condition, which must be a scalar."""
        value = self.value(node)
        if isinstance(value, Aggregate):
            self.unsupported(
                f"{describe(value.shape)} as a condition", node, "write any(...) or all(...) of it"
            )
        return value

    # --- literals and names ---

    def expr_Constant(self, node: ast.Constant) -> Expr:
        value = node.value
        if isinstance(value, (bool, int, float)):
            return self.literal(value, node)
        what = {
            complex: "complex literals are",
            bytes: "bytes are",
            str: "strings (except in print) are",
            type(None): "None is",
            type(...): "... is",
        }[type(value)]
        self.unsupported(f"{what} not part of the kernel language", node)

    def literal(self, value: Any, node: ast.AST, dtype: DType | None = None) -> Const:
        """A Python number as a literal, untyped unless ``dtype`` is given."""
        if isinstance(value, int):
            value = int(value)
            if dtype is None and integer_dtype_of(value) is None:
                raise self.error(
                    TypeError, f"the integer {value} fits no type (i64 and u64 are the widest)", node
                )
        else:
            value = float(value)
        if dtype is not None and dtype.is_float:
            value = float(dtype.numpy.type(value))
        return Const(value, type=dtype, loc=self.loc(node))

    def number(self, value: Any, node: ast.AST, dtype: Any) -> Const:
        whole = isinstance(value, (int, np.integer, np.bool_))
        return self.literal(int(value) if whole else value, node, dtype)

    def expr_Name(self, node: ast.Name) -> Value:
        binding = self.binding(node)
        if binding is None:
            return self.host_value(self.entity(node), node)
        if isinstance(binding, Variable):
            return Local(binding.ir, loc=self.loc(node))
        if isinstance(binding, Components):
            loc = self.loc(node)
            return Aggregate(binding.shape, [Local(name, loc=loc) for name in binding.ir], loc)
        if isinstance(binding, Aggregate):
            return Aggregate(binding.shape, binding.parts, self.loc(node))
        if isinstance(binding, Instance):
            raise self.error(
                TypeError, f"'{node.id}' is an object, used as a number", node, f"use {node.id}.attribute"
            )
        if isinstance(binding, ParamName):
            return Param(binding.ir, loc=self.loc(node))
        if isinstance(binding, ArrayName):
            raise self.error(
                TypeError, f"local array '{node.id}' is used as a number", node, f"index it: {node.id}[...]"
            )
        return Const(binding.value, type=binding.type, loc=self.loc(node))

    def binding(self, node: ast.Name) -> Binding | None:
        """What a name stands for in the function; None if it is not one of its own names.

        Raises NameError for a local that some path here leaves unassigned.
        """
        frame, name = self.frame, node.id
        found = frame.names.get(name)
        if name not in frame.local_names:
            return found
        if frame.assigned is None or name in frame.assigned:
            if found is None:  # in unreachable code, before any assignment
                found = frame.names[name] = Variable(self.unique(name))
            return found
        if name in frame.ended_loops:
            raise self.error(
                NameError,
                f"loop variable '{name}' is read after its loop",
                node,
                "assign it to another variable inside the loop",
                [("the loop is here", frame.ended_loops[name])],
            )
        if name in frame.assigned_at:
            raise self.error(
                NameError,
                f"'{name}' may be read before it is assigned",
                node,
                f"assign '{name}' a value before the branch or loop",
                [("it is assigned here, which some path to the read does not pass", frame.assigned_at[name])],
            )
        later = first_assignment(frame.source.tree.body, name)
        notes = [("it is assigned here", later)] if later is not None else []
        raise self.error(NameError, f"'{name}' is read before it is assigned", node, notes=notes)

    def entity(self, node: ast.expr) -> Any:
        """The host object that a name, or a dotted name, outside the function's own names means.

        `UNBOUND` for an expression of another form, or one that starts at a local.
        """
        frame = self.frame
        if isinstance(node, ast.Name):
            if node.id in frame.names or node.id in frame.local_names:
                return UNBOUND
            value = frame.bindings.name(node.id)
            if value is not UNBOUND:
                return value
            if node.id in BARE:
                return BARE[node.id]
            known = [*frame.names, *frame.bindings.names(), *BARE]
            raise self.error(
                NameError, f"name '{node.id}' is not defined", node, did_you_mean(node.id, known)
            )
        if isinstance(node, ast.Attribute):
            owner = self.entity(node.value)
            if owner is UNBOUND:
                return UNBOUND
            value = frame.bindings.attribute(owner, node.attr)
            if value is UNBOUND and isinstance(owner, ModuleType):
                hint = did_you_mean(node.attr, vars(owner))
                raise self.error(NameError, f"module '{owner.__name__}' has no '{node.attr}'", node, hint)
            return value
        return UNBOUND

    def host_value(self, value: Any, node: ast.expr) -> Value:
        """A host object read as a value: a constant, or an error that says what to do."""
        if isinstance(value, (ConstantInt, ConstantFloat)):
            return self.literal(value, node, value.dtype)
        if isinstance(value, ConstantTable) and _is_value(value.shape):
            parts: list[Expr] = [self.literal(v, node, value.dtype) for v in value.values]
            if (
                value.dtype is None
                and len({integer_dtype_of(v) for v in value.values if isinstance(v, int)}) > 1
            ):
                parts = agreed(parts)
            return Aggregate(value.shape, parts, self.loc(node))
        if isinstance(node, ast.Attribute) and node.attr in NUMBERS and type(value) is float:
            return self.literal(value, node)
        name = ast.unparse(node)
        if isinstance(value, ConstantTable):
            raise self.error(TypeError, f"table '{name}' is used as a number", node, f"index it: {name}[...]")
        if value is UNBOUND:
            hint = f"bind the value to a name of its own: NAME = tack.constant({name})"
            raise self.error(
                NameError, f"'{name}' is an attribute of a host object, which kernels do not read", node, hint
            )
        if (
            isinstance(value, (Func, Kernel))
            or meaning_of(value)
            or isinstance(value, (DType, type))
            or callable(value)
        ):
            self.unsupported(
                f"'{name}' is a function, which is not a value in a kernel", node, f"call it: {name}(...)"
            )
        if isinstance(value, ModuleType):
            self.unsupported(f"module '{name}' is not a value in a kernel", node)
        hint = (
            f"pass '{name}' as an argument"
            if not isinstance(value, (int, float))
            else f"mark it with {name} = tack.constant({value!r}), or pass it as an argument"
        )
        raise self.error(
            NameError, f"'{name}' is a Python variable of the host, which kernels do not read", node, hint
        )

    def in_constant(self, node: ast.expr) -> bool:
        """Whether a dotted name is a constant table, or components of one."""
        while isinstance(node, ast.Attribute) and not isinstance(self.entity(node), ConstantTable):
            node = node.value
        return isinstance(node, (ast.Name, ast.Attribute)) and isinstance(self.entity(node), ConstantTable)

    def is_own(self, node: ast.expr) -> bool:
        """Whether a dotted name starts at one of the function's own names."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return (
            not isinstance(node, ast.Name) or node.id in self.frame.names or node.id in self.frame.local_names
        )

    # --- operators ---

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            if isinstance(value, (int, float)):  # the whole signed value chooses the type
                return self.literal(-value, node)
        operand = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        op = {ast.USub: "neg", ast.Invert: "invert", ast.Not: "not"}[type(node.op)]
        loc = self.loc(node)
        return self.lift(node, lambda part: Unary(op, part, loc=loc), operand)

    def expr_BinOp(self, node: ast.BinOp) -> Value:
        # Not `values_in_order`: a sum of hundreds of terms needs the stack.
        left = self.value(node.left)
        mark = len(self.block)
        right = self.value(node.right)
        left, right = self.settle([left, right], [mark, len(self.block)])
        return self.binary(node.op, left, right, node)

    def binary(self, op: ast.operator, left: Value, right: Value, node: ast.AST) -> Value:
        """``left op right``; ``@`` is the product of matrices and vectors."""
        if isinstance(op, ast.MatMult):
            if not isinstance(left, Aggregate) or not isinstance(right, Aggregate):
                raise self.error(
                    TypeError, "@ multiplies vectors and matrices, and one side is a number", node
                )
            return self.algebra(node, matmul, self.once(left), self.once(right))
        name, loc = _BINARY[type(op)], self.loc(node)
        return self.lift(node, lambda a, b: Binary(name, a, b, loc=loc), left, right)

    def expr_Compare(self, node: ast.Compare) -> Value:
        for op, operand in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                word = {ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}[type(op)]
                self.unsupported(
                    f"'{word}' is not part of the kernel language", node, "compare numbers with == or !="
                )
            del operand
        loc = self.loc(node)
        if len(node.ops) == 1:
            left, right = self.values_in_order([node.left, node.comparators[0]])
            return self.lift(
                node, lambda a, b: Compare(_COMPARE[type(node.ops[0])], a, b, loc=loc), left, right
            )
        return self.chain(self.expr(node.left), node.ops, node.comparators, node)

    def chain(
        self, left: Expr, ops: Sequence[ast.cmpop], operands: Sequence[ast.expr], node: ast.Compare
    ) -> Expr:
        """``left op operand op ...``: each operand is evaluated once, and only if it is needed."""
        mark = len(self.block)
        right = self.expr(operands[0])
        (left, right) = self.settle([left, right], [mark, len(self.block)])
        if len(ops) > 1 and not isinstance(right, (Const, Local, Param)):
            # Saved, since the next link reads it too; so `left` is settled before it.
            right = self.temp(right)
        link = Compare(_COMPARE[type(ops[0])], left, right, loc=self.loc(node))
        if len(ops) == 1:
            return link
        with self.captured() as rest:
            value = self.chain(right, ops[1:], operands[1:], node)
        return self.short_circuit("and", link, rest, value, node)

    def expr_BoolOp(self, node: ast.BoolOp) -> Value:
        op = "and" if isinstance(node.op, ast.And) else "or"
        loc = self.loc(node)
        value = self.value(node.values[0])
        for operand in node.values[1:]:
            mark = len(self.block)
            with self.captured() as rest:
                right = self.value(operand)
            if isinstance(value, Aggregate) or isinstance(
                right, Aggregate
            ):  # per component, so both sides run
                self.block += rest
                value, right = self.settle([value, right], [mark, len(self.block)])
                value = self.lift(node, lambda a, b: Logical(op, a, b, loc=loc), value, right)
            else:
                value = self.short_circuit(op, value, rest, right, node)
        return value

    def short_circuit(self, op: str, left: Expr, rest: list[Stmt], right: Expr, node: ast.AST) -> Expr:
        """``left op right``, where ``rest`` must run before ``right`` and only if it decides."""
        loc = self.loc(node)
        if not rest:
            return Logical(op, left, right, loc=loc)
        target = self.unique(op)
        decided = Local(target, loc=loc)
        self.emit(Assign(target, _truth(left), loc=loc))
        test = decided if op == "and" else Unary("not", decided, loc=loc)
        self.emit(If(test, (*rest, Assign(target, _truth(right), loc=loc)), (), loc=loc))
        return decided

    def expr_IfExp(self, node: ast.IfExp) -> Value:
        cond = self.condition(node.test)
        with self.captured() as first:
            then = self.value(node.body)
        with self.captured() as second:
            orelse = self.value(node.orelse)
        loc = self.loc(node)
        if not first and not second and not isinstance(then, Aggregate) and not isinstance(orelse, Aggregate):
            return Select(cond, then, orelse, loc=loc)
        # Each arm assigns its components to the same locals; a scalar arm goes to all of them.
        names: list[str] = []

        def assigned(a: Expr, b: Expr) -> Expr:
            target = self.unique("if")
            names.append(target)
            first.append(Assign(target, a, loc=loc))
            second.append(Assign(target, b, loc=loc))
            return Local(target, loc=loc)

        then, orelse = self.once_in(first, then), self.once_in(second, orelse)
        value = self.lift(node, assigned, then, orelse)
        self.emit(If(cond, tuple(first), tuple(second), loc=loc))
        return value

    # --- arrays ---

    def array_name(self, node: ast.expr) -> ParamName | ArrayName | None:
        """The array that an expression names, if it is a name that may be one."""
        if isinstance(node, ast.Name):
            binding = self.binding(node)
            if isinstance(binding, (ParamName, ArrayName)):
                return binding
            if binding is not None and not isinstance(binding, (Components, Aggregate, Instance)):
                hint = "x[i] of an array x is one element, whatever its dimensions; index x itself"
                raise self.error(TypeError, f"'{node.id}' is a number, not an array", node, hint)
        found = self.attribute(node)
        return found if isinstance(found, ParamName) else None

    def index_nodes(self, node: ast.Subscript) -> list[ast.expr]:
        """The index expressions of ``x[i, j]``; none for ``x[None]``, a 0-d array's element."""
        index = node.slice
        if isinstance(index, ast.Constant) and index.value is None:
            return []
        nodes = index.elts if isinstance(index, ast.Tuple) else [index]
        for part in nodes:
            if isinstance(part, (ast.Slice, ast.Starred)) or (
                isinstance(part, ast.Constant) and part.value is None
            ):
                self.unsupported("an index is one number for each dimension, or one flat number", part)
        return list(nodes)

    def check_index_count(self, array: ParamName | ArrayName, count: int, node: ast.expr) -> None:
        if isinstance(array, ArrayName) and count not in (1, array.ndim):
            raise self.error(TypeError, f"{count} indices for a local array of {array.ndim} dimensions", node)

    def indices(self, nodes: list[ast.expr]) -> list[Expr]:
        """The values of index expressions; a vector alone is an index for each dimension."""
        if len(nodes) == 1:
            value = self.value(nodes[0])
            return list(parts_of(value))
        return self.in_order(nodes)

    def load(self, array: ParamName | ArrayName, indices: list[Expr], node: ast.AST) -> Value:
        """An element of an array."""
        loc = self.loc(node)
        if not array.element:
            return Load(array.ir, tuple(indices), loc=loc)
        at = tuple(self.once(i) for i in indices)
        parts = [Load(array.ir, at, Const(k, type=i64, loc=loc), loc=loc) for k in range(prod(array.element))]
        return Aggregate(array.element, parts, loc)

    def expr_Subscript(self, node: ast.Subscript) -> Value:
        base = node.value
        if isinstance(base, ast.Attribute) and base.attr == "shape":
            array = self.array_name(base.value)
            if array is not None:
                return self.extent(array, node)
        array = self.array_name(base)
        if array is not None:
            indices = self.indices(self.index_nodes(node))
            self.check_index_count(array, len(indices), node)
            return self.load(array, indices, node)
        if not self.is_table(base):
            return self.component(self.value(base), node)
        return self.table_element(node)

    def is_table(self, node: ast.expr) -> bool:
        """Whether an indexed expression is a constant table, or an element of one."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name) and (node.id in self.frame.names or node.id in self.frame.local_names):
            return False
        return isinstance(node, (ast.Name, ast.Attribute)) and not self.is_own(node)

    def extent(self, array: ParamName | ArrayName, node: ast.Subscript) -> Expr:
        axis = node.slice
        sign = 1
        if isinstance(axis, ast.UnaryOp) and isinstance(axis.op, ast.USub):
            sign, axis = -1, axis.operand
        value = axis.value if isinstance(axis, ast.Constant) else self.constant_value(axis)
        if not isinstance(value, int) or isinstance(value, bool):
            self.unsupported("the axis of .shape[...] must be a literal integer", node.slice)
        return Dim(array.ir, sign * value, loc=self.loc(node))

    def constant_value(self, node: ast.expr) -> int | float | None:
        """The value of a name that stands for a constant, else None."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        binding = self.frame.names.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(binding, Const):
            return binding.value
        value = self.entity(node) if binding is None else UNBOUND
        return value if isinstance(value, (ConstantInt, ConstantFloat)) else None

    def expr_Attribute(self, node: ast.Attribute) -> Value:
        base = node.value
        binding = self.frame.names.get(base.id) if isinstance(base, ast.Name) else None
        if isinstance(binding, (ParamName, ArrayName)) and isinstance(base, ast.Name):
            self.binding(base)
            return self.array_attribute(binding, node)
        found = self.attribute(node)
        if isinstance(found, (Const, Param)):
            return found
        if found is not None:
            hint = f"use {ast.unparse(node)}[...]" if isinstance(found, ParamName) else None
            raise self.error(TypeError, f"'{ast.unparse(node)}' is used as a number", node, hint)
        array = self.attribute(base)
        if isinstance(array, ParamName):
            return self.array_attribute(array, node)
        if self.is_own(node) or self.in_constant(base):
            value = self.value(base)
            if not isinstance(value, Aggregate):
                self.unsupported(f"'{ast.unparse(node)}': numbers have no attributes in kernels", node)
            return self.swizzle(value, node)
        return self.host_value(self.entity(node), node)

    def array_attribute(self, array: ParamName | ArrayName, node: ast.Attribute) -> Expr:
        if node.attr in ("size", "ndim"):
            return Dim(array.ir, node.attr, loc=self.loc(node))
        if node.attr == "shape":
            self.unsupported("a shape is not a value in a kernel", node, "take one extent: .shape[0]")
        hint = did_you_mean(node.attr, ("shape", "size", "ndim"))
        self.unsupported(f"arrays have no '.{node.attr}' in kernels", node, hint)

    # --- constant tables ---

    def table_element(self, node: ast.Subscript) -> Value:
        """``T[i][j]`` or ``T[i, j]`` of a table: a literal, or a look-up clamped to its extents."""
        nodes: list[ast.expr] = []
        base: ast.expr = node
        while isinstance(base, ast.Subscript):
            nodes = self.index_nodes(base) + nodes
            base = base.value
        table = self.entity(base)
        if not isinstance(table, ConstantTable):
            if table is not UNBOUND:
                self.host_value(table, base)
            self.unsupported("only arrays and constant tables can be indexed", node)
        if len(nodes) < len(table.shape) and _is_value(table.shape):
            return self.component(self.host_value(table, base), node)
        if len(nodes) != len(table.shape):
            raise self.error(
                TypeError, f"{len(nodes)} indices for a table of {len(table.shape)} dimensions", node
            )
        indices = self.in_order(nodes)
        if all(isinstance(i, Const) and isinstance(i.value, int) for i in indices):
            flat = 0
            for i, extent in zip(indices, table.shape, strict=True):
                position = int(i.value)  # type: ignore[attr-defined]
                position += extent if position < 0 else 0
                flat = flat * extent + max(0, min(position, extent - 1))
            return self.literal(table.values[flat], node, table.dtype)
        loc = self.loc(node)
        index = self.clamped(indices[0], table.shape[0])
        for i, extent in zip(indices[1:], table.shape[1:], strict=True):
            scaled = Binary("mul", index, Const(extent, type=i64, loc=loc), loc=loc)
            index = Binary("add", scaled, self.clamped(i, extent), loc=loc)
        return Lookup(self.table(ast.unparse(base), table), index, loc=loc)

    def clamped(self, index: Expr, extent: int) -> Expr:
        """``index``, an integer, between 0 and ``extent - 1``."""
        loc = index.loc
        low = Call("max", (index, Const(0, type=i64, loc=loc)), loc=loc)
        return Call("min", (low, Const(extent - 1, type=i64, loc=loc)), loc=loc)

    def table(self, name: str, table: ConstantTable) -> str:
        """The IR's name for a constant table of the host."""
        for known, entry in self.tables.items():
            if entry.values is table.values and entry.dtype is table.dtype:
                return known
        ir = self.unique(name.rpartition(".")[2])
        self.tables[ir] = Table(table.values, table.dtype)
        return ir


def _truth(value: Expr) -> Expr:
    """``value`` as i32 0 or 1."""
    if isinstance(value, (Compare, Logical)):
        return value
    return Unary("not", Unary("not", value, loc=value.loc), loc=value.loc)


def _is_value(shape: tuple[int, ...]) -> bool:
    """Whether a table of this shape is a vector or matrix too."""
    return (len(shape) == 1 and shape[0] <= 16) or (len(shape) == 2 and max(shape) <= 4)
