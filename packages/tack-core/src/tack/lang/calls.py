"""Lowering of calls: builtins, casts, atomics, and device functions, which are inlined."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from tack.constants import ConstantTable
from tack.dtypes import DType, VectorType, as_dtype, f32, i32, i64, matrix, vector
from tack.errors import UnsupportedSyntaxError
from tack.ir.nodes import (
    Assign,
    Atomic,
    Binary,
    Bitcast,
    Block,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Leave,
    Local,
    Logical,
    Param,
    Sample,
    Unary,
)
from tack.lang.annotations import annotated_types
from tack.lang.bindings import UNBOUND, Bindings
from tack.lang.builtins import ATOMICS, Builtin, Construct, meaning_of
from tack.lang.expressions import Expressions
from tack.lang.kernel import Func, Kernel
from tack.lang.scope import (
    ArrayName,
    Binding,
    Callee,
    Frame,
    Instance,
    ParamName,
    Variable,
    assigned_names,
    names_of,
    shape_of,
)
from tack.lang.source import Source
from tack.lang.values import Aggregate, Value, map_parts, parts_of
from tack.lang.vectors import VECTOR_FUNCTIONS

__all__ = ["Calls"]

_CASTS: dict[Any, DType] = {int: i32, float: f32}


class Calls(Expressions):
    """Calls, as expressions and as statements."""

    def callee(self, node: ast.Call) -> Any:
        """The host object that a call calls."""
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "identity":
            kind = self.vector_type(func.value)
            if kind is not None:
                return kind.identity
        if isinstance(func, ast.Call):
            kind = self.vector_type(func)
            if kind is not None:
                return kind
        found = self.attribute(func)
        if isinstance(found, Func):
            return found
        callee = self.entity(node.func)
        if callee is UNBOUND:
            if isinstance(node.func, ast.Name):
                self.unsupported(
                    f"'{node.func.id}' is a variable here, and a variable cannot be called",
                    node,
                    "call a @tack.func by its own name",
                )
            if isinstance(node.func, ast.Attribute):
                self.unsupported(f"'.{node.func.attr}(...)' is not a method that kernels know", node)
            self.unsupported("only functions named directly can be called", node)
        return callee

    def expr_Call(self, node: ast.Call) -> Value:
        method = self.method(node)
        if method is not None:
            return method
        callee = self.callee(node)
        if isinstance(callee, Func):
            values = self.inline(callee, node)
            if len(values) != 1:
                message = f"'{callee.__name__}' returns {len(values) or 'no'} values where one is needed"
                raise self.error(TypeError, message, node)
            return values[0]
        self.check_plain(node, callee)
        loc = self.loc(node)
        if callee is bool:
            (value,) = self.arguments(node, 1, 1, "bool")
            return self.lift(node, lambda v: Unary("not", Unary("not", v, loc=loc), loc=loc), value)
        dtype = self.cast_type(callee)
        if dtype is not None:
            (value,) = self.arguments(node, 1, 1, ast.unparse(node.func))
            return self.lift(node, lambda v: Cast(v, dtype, loc=loc), value)
        if isinstance(callee, VectorType):
            return self.construct_vector(callee, node)
        if getattr(callee, "__func__", None) is VectorType.identity:
            return self.identity(callee.__self__, node)
        if callee is len:
            return self.length(node)
        if callee is sum and len(node.args) == 1 and self.passed_array(node.args[0]) is not None:
            hint = "loop over its elements, or call .sum() on the host"
            self.unsupported("sum() of an array: kernels reduce vectors only", node, hint)
        if callee is sum:
            return self.vector_function("sum", self.values_in_order(node.args), node)
        meaning = meaning_of(callee)
        if isinstance(meaning, Builtin):
            return self.builtin(meaning, node)
        if isinstance(meaning, Construct) and meaning.name in VECTOR_FUNCTIONS:
            return self.vector_function(meaning.name, self.values_in_order(node.args), node)
        if isinstance(meaning, Construct):
            return self.construct(meaning.name, node)
        self.reject_call(callee, node)

    def method(self, node: ast.Call) -> Value | None:
        """``v.dot(w)``: a method of a vector or matrix; None if this is another call."""
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "sample":
            texture = self.passed_array(func.value)
            if isinstance(texture, ParamName):
                return self.sample(texture, node)
        if not isinstance(func, ast.Attribute) or func.attr not in VECTOR_FUNCTIONS:
            return None
        if self.instance(func.value) is not None:
            return None
        if not self.is_own(func) and not self.in_constant(func.value):
            return None
        self.check_plain(node, func)
        return self.vector_function(func.attr, self.values_in_order([func.value, *node.args]), node)

    def sample(self, texture: ParamName, node: ast.Call) -> Value:
        """``tex.sample(u, v, w)``, and the same without a texture unit: device functions over its storage."""
        from tack.lang import sampling  # which is written in the language

        assert isinstance(node.func, ast.Attribute)
        if len(node.args) != 3:
            self.unsupported(f"sample() takes 3 coordinates, not {len(node.args)}", node)
        self.textures.add(texture.ir)
        call = ast.copy_location(ast.Call(node.func, [node.func.value, *node.args], node.keywords), node)
        parts = [part for value in self.inline(sampling.position, call) for part in parts_of(value)]
        position = [self.once(part) for part in parts]

        def bind(frame: Frame) -> list[str]:
            frame.names["t"] = texture
            for axis, value in zip("xyz", position, strict=True):
                assert isinstance(value, (Local, Const))
                frame.names[axis] = value if isinstance(value, Const) else Variable(value.name)
            return list(frame.names)

        loc = self.loc(node)
        target = self.unique("sample")
        with self.captured() as body:
            (value,) = self.inline_with(sampling.trilinear, node, bind)
            self.emit(Assign(target, parts_of(value)[0], loc=loc))
        self.emit(Sample(target, texture.ir, tuple(position), tuple(body), loc=loc))
        return Local(target, loc=loc)

    def builtin(self, builtin: Builtin, node: ast.Call) -> Value:
        """A builtin of scalars, component by component; any, all, min and max reduce one vector."""
        name = builtin.name
        loc = self.loc(node)
        if len(node.args) == 1 and name in ("any", "all", "min", "max"):
            (value,) = self.values_in_order(node.args)
            if isinstance(value, Aggregate):
                parts = self.once(value).parts
                if name in ("min", "max"):
                    return Call(name, parts, loc=loc) if len(parts) > 1 else parts[0]
                op = "or" if name == "any" else "and"
                tests: Expr = Unary("not", Unary("not", parts[0], loc=loc), loc=loc)
                for part in parts[1:]:
                    tests = Logical(op, tests, part, loc=loc)
                return tests
            if builtin.min_args == 1:
                return Call(name, (value,), loc=loc)
        args = self.arguments(node, builtin.min_args, builtin.max_args, name)
        return self.lift(node, lambda *parts: Call(name, parts, loc=loc), *args)

    def cast_type(self, callee: Any) -> DType | None:
        """The dtype that calling ``callee`` converts to: a Tack dtype, int, float, or NumPy's types."""
        if isinstance(callee, DType):
            return callee
        if callee in (int, float):
            return _CASTS[callee]
        if isinstance(callee, type) and issubclass(callee, np.number):
            try:
                return as_dtype(callee)
            except TypeError:
                return None
        return None

    def reject_call(self, callee: Any, node: ast.Call) -> NoReturn:
        name = ast.unparse(node.func)
        if isinstance(callee, Kernel):
            self.unsupported(
                f"'{name}' is a kernel, and kernels are launched from Python only",
                node,
                "make it a @tack.func",
            )
        if callee is range:
            self.unsupported("range(...) stands in a for statement only", node)
        if callee is print:
            self.unsupported("print(...) is a statement and has no value", node)
        if not callable(callee):
            self.unsupported(f"'{name}' is not a function", node)
        own = isinstance(callee, FunctionType) and callee.__module__.partition(".")[0] not in (
            "tack",
            "numpy",
        )
        hint = (
            f"decorate '{name}' with @tack.func" if own else "kernels work on numbers and elements of arrays"
        )
        self.unsupported(f"'{name}' is an ordinary Python function, which kernels cannot call", node, hint)

    def check_plain(self, node: ast.Call, callee: Any) -> None:
        if node.keywords:
            name = ast.unparse(node.func)
            self.unsupported(
                f"keyword arguments are not allowed in a call of '{name}'",
                node.keywords[0],
                "pass them by position",
            )
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                self.unsupported(
                    "starred arguments are not part of the kernel language", arg, "write the arguments out"
                )

    def arguments(self, node: ast.Call, least: int, most: int | None, name: str) -> list[Value]:
        """The arguments' values, after their count was checked."""
        count = len(node.args)
        if count < least or (most is not None and count > most):
            wanted = (
                str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            )
            plural = "" if wanted == "1" else "s"
            self.unsupported(f"{name}() takes {wanted} argument{plural}, not {count}", node)
        return self.values_in_order(node.args)

    def length(self, node: ast.Call) -> Expr:
        """``len`` of an array, of a constant table or of a vector."""
        if len(node.args) != 1:
            self.unsupported(f"len() takes 1 argument, not {len(node.args)}", node)
        (arg,) = node.args
        if self.is_table(arg):
            table = self.entity(arg)
            if isinstance(table, ConstantTable):
                return self.literal(table.shape[0], node)
        array = self.array_name(arg)
        if array is not None:
            return Dim(array.ir, "len", loc=self.loc(node))
        value = self.value(arg)
        if not isinstance(value, Aggregate):
            self.unsupported("len() takes an array, a table or a vector", node)
        return self.literal(value.shape[0], node)

    # --- the language's own functions ---

    def construct(self, name: str, node: ast.Call) -> Value:
        loc = self.loc(node)
        if name == "pow":
            base, exponent = self.arguments(node, 2, 2, "pow")
            return self.lift(node, lambda a, b: Binary("pow", a, b, loc=loc), base, exponent)
        if name == "bitcast":
            if len(node.args) != 2:
                self.unsupported(f"bitcast() takes 2 arguments, not {len(node.args)}", node)
            to = self.dtype(node.args[1])
            return self.lift(node, lambda v: Bitcast(v, to, loc=loc), self.value(node.args[0]))
        if name.startswith(("atomic_", "shared_")):
            return self.atomic(name, node)
        where = {"ndindex": "in a for statement only", "local_array": "alone on the right of an assignment"}[
            name
        ]
        self.unsupported(f"tack.{name}(...) stands {where}", node)

    def dtype(self, node: ast.expr) -> DType:
        """The dtype that an argument names."""
        value = node.value if isinstance(node, ast.Constant) else self.entity(node)
        try:
            return as_dtype(_CASTS.get(value, value) if isinstance(value, type) else value)
        except TypeError as error:
            raise self.error(TypeError, str(error), node) from None

    def element_type(self, node: ast.expr) -> DType | VectorType:
        """The element type of a local array that an argument names."""
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
            kind = self.vector_type(node)
            if kind is not None:
                return kind
        return self.dtype(node)

    def vector_type(self, node: ast.expr) -> VectorType | None:
        """The vector type that an expression names: ``tack.vec3``, ``tack.vector(5, tack.f32)``."""
        if isinstance(node, ast.Call):
            maker: Any = self.entity(node.func)
            if maker not in (vector, matrix) or not node.args:
                return None
            sizes = [
                n.value if isinstance(n, ast.Constant) else self.constant_value(n) for n in node.args[:-1]
            ]
            try:
                kind: VectorType = maker(*sizes, self.dtype(node.args[-1]))
            except (TypeError, ValueError) as error:
                raise self.error(type(error), str(error), node) from None
            return kind
        kind_or_other = self.entity(node)
        return kind_or_other if isinstance(kind_or_other, VectorType) else None

    def atomic(self, name: str, node: ast.Call, wanted: bool = True) -> Value:
        """Emits an atomic update; its value is the element just before.

        An element that is a vector is updated component by component.
        """
        of, op = name.split("_")
        operands = ATOMICS[op]
        if len(node.args) != 2 + operands:
            form = "array, index, expected, desired" if op == "cas" else "array, index, value"
            message = f"atomic_{op}() takes {2 + operands} arguments, not {len(node.args)}"
            self.unsupported(message, node, f"write atomic_{op}({form})")
        self.check_region(node, f"atomic_{op}")
        target, index, *values = node.args
        array = self.array_name(target) if isinstance(target, (ast.Name, ast.Attribute)) else None
        fits = array.shared and of == "shared" if isinstance(array, ArrayName) else array is not None
        if array is None or not fits:
            what = "this expression"
            if isinstance(array, ArrayName):
                what = "a shared array" if array.shared else "a local array"
            hint = "the target is an array parameter of the kernel"
            raise self.error(TypeError, f"atomic_{op} cannot update {what}", target, hint)
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        if len(indices) == 1 and isinstance(indices[0], ast.Constant) and indices[0].value is None:
            indices = []
        for part in indices:
            if isinstance(part, (ast.Slice, ast.Starred)):
                self.unsupported("an index is one number for each dimension, or one flat number", part)
        evaluated = self.values_in_order([*indices, *values])
        at = [part for value in evaluated[: len(indices)] for part in parts_of(value)]
        operands_given = evaluated[len(indices) :]
        loc = self.loc(node)

        def update(component: Expr | None, parts: tuple[Expr, ...]) -> Expr:
            old = self.unique("old") if wanted else None
            self.emit(Atomic(old, op, array.ir, tuple(at), parts, component, loc=loc))
            return Local(old, loc=loc) if old is not None else Const(0, loc=loc)

        if not array.element:
            for value in operands_given:
                self.check_shape(value, (), node)
            return update(None, tuple(part for value in operands_given for part in parts_of(value)))
        at = [self.once(i) for i in at]
        spread = [parts_of(self.spread(value, array.element, node)) for value in operands_given]
        parts = [
            update(Const(k, type=i64, loc=loc), operand)
            for k, operand in enumerate(zip(*spread, strict=True))
        ]
        return Aggregate(array.element, parts, loc)

    def check_region(self, node: ast.AST, what: str) -> None:
        if self.region != "loop":
            self.unsupported(
                f"{what} outside the parallel loop: what stands there may run any number of times",
                node,
                "move it into the loop",
            )

    # --- device functions ---

    def inline(self, func: Func, node: ast.Call) -> list[Value]:
        """Emits the body of ``func`` for this call; the values that it returns."""
        self.check_plain(node, func)
        if func in self.inlining:
            names = " -> ".join(f.__name__ for f in [*self.inlining[self.inlining.index(func) :], func])
            self.unsupported(f"recursion: {names}", node, "write it as a loop")
        return self.inline_with(func, node, lambda frame: self.inline_params(func, node, frame))

    def inline_with(self, func: Func, node: ast.Call, bind: Callable[[Frame], list[str]]) -> list[Value]:
        """`inline`, where ``bind`` binds the parameters in the callee's frame and gives their names."""
        source = func.source
        callee = self.known_callee(func)
        frame = Frame(source, callee.bindings, self.loc(node), f"{func.__name__}.")
        params = bind(frame)
        frame.local_names = callee.assigned.union(params)
        frame.assigned = set(params)
        caller, self.frame = self.frame, frame
        self.inlining.append(func)
        try:
            return self.inline_body(source, node)
        finally:
            self.inlining.pop()
            self.frame = caller

    def known_callee(self, func: Func) -> Callee:
        """What is the same for all calls of ``func``."""
        found = self.callees.get(func)
        if found is None:
            function = func.function
            code = function.__code__
            params = list(code.co_varnames[: code.co_argcount])
            kinds = annotated_types(function)
            pinned = {param: kinds.get(param) for param in params}
            assigned = assigned_names(func.source.tree.body)
            found = self.callees[func] = Callee(Bindings(function), params, pinned, assigned)
        return found

    def inline_params(self, func: Func, node: ast.Call, frame: Frame) -> list[str]:
        """Binds the arguments in the callee's frame; the parameters' names."""
        callee = self.known_callee(func)
        params, assigned = callee.params, callee.assigned
        tree = func.source.tree
        if tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs:
            raise self.error_in(
                frame, "a device function takes a fixed number of positional parameters", tree
            )
        args = self.call_arguments(func, node)
        defaults = func.function.__defaults__ or ()
        missing = len(params) - len(args)
        if not 0 <= missing <= len(defaults):
            message = f"'{func.__name__}' takes {len(params)} arguments, not {len(args)}"
            raise self.error(TypeError, message, node, f"its parameters are ({', '.join(params)})")
        bindings: list[Binding | None] = []
        values: list[Value] = []
        marks: list[int] = []
        for param, arg in zip(params, args, strict=False):
            array = self.passed_array(arg)
            keep = array is not None and param not in assigned
            bindings.append(array if keep else None)
            if not keep:
                values.append(self.value(arg))
                marks.append(len(self.block))
        ready = iter(self.settle(values, marks))
        for value in defaults[len(defaults) - missing :] if missing else ():
            if not isinstance(value, (int, float)):
                raise self.error(
                    TypeError, f"the default {value!r} of '{func.__name__}' is not a number", node
                )
            bindings.append(self.literal(value, node, getattr(value, "dtype", None)))
        for param, binding in zip(params, bindings, strict=True):
            pinned = callee.pinned[param]
            frame.names[param] = self.bind_value(param, binding, ready, pinned, frame, assigned, node)
        return params

    def bind_value(
        self,
        param: str,
        binding: Binding | None,
        values: Any,
        pinned: DType | VectorType | None,
        frame: Frame,
        assigned: frozenset[str],
        node: ast.Call,
    ) -> Binding:
        """The binding of one parameter; emits the assignment of a value that needs a local."""
        value: Value
        if binding is None:
            value = next(values)
        elif isinstance(binding, Const):
            value = binding
        elif pinned is None or not isinstance(binding, ParamName):
            return binding
        else:
            value = Param(binding.ir, loc=frame.caller)
        if isinstance(pinned, VectorType):
            kind = pinned
            self.check_shape(value, kind.shape, node)
            value = map_parts(value, lambda part: Cast(part, kind.dtype, loc=part.loc))
        elif pinned is not None:
            self.check_shape(value, (), node)
            value = Cast(parts_of(value)[0], pinned, loc=value.loc)
        if isinstance(value, Const) and param not in assigned:
            return value
        caller, self.frame = self.frame, frame
        made = self.new_variable(param, value.shape if isinstance(value, Aggregate) else ())
        self.frame = caller
        for name, part in zip(names_of(made), parts_of(value), strict=True):
            self.emit(Assign(name, part, loc=part.loc))
        return made

    def call_arguments(self, func: Func, node: ast.Call) -> list[ast.expr]:
        """The arguments of a call; a method's first is the instance it is called on."""
        target = node.func
        if isinstance(target, ast.Attribute) and self.instance(target.value) and self.is_method(target, func):
            return [target.value, *node.args]
        return node.args

    def passed_array(self, arg: ast.expr) -> ParamName | ArrayName | Instance | None:
        """The array or instance that an argument may hand on by name."""
        if isinstance(arg, ast.Name):
            binding = self.binding(arg)
            if isinstance(binding, (ParamName, ArrayName, Instance)):
                return binding
        found = self.attribute(arg)
        return found if isinstance(found, (ParamName, Instance)) else None

    def error_in(self, frame: Frame, message: str, node: ast.AST) -> Exception:
        """An UnsupportedSyntaxError at a place in a callee."""
        caller, self.frame = self.frame, frame
        try:
            return self.error(UnsupportedSyntaxError, message, node)
        finally:
            self.frame = caller

    def inline_body(self, source: Source, node: ast.Call) -> list[Value]:
        """Lowers a device function's body. A single return at its end needs no block to leave."""
        tree, returns = source.tree, source.returns
        body = tree.body
        last = body[-1]
        if not returns or (returns == [last] and isinstance(last, ast.Return)):
            self.statements([stmt for stmt in body if stmt is not last or not returns])
            return self.returned(last) if isinstance(last, ast.Return) else []
        frame = self.frame
        frame.label = self.unique("body")
        with self.captured() as block:
            self.statements(body)
        if frame.assigned is not None and frame.result_count:
            name = tree.name
            raise self.error(
                TypeError,
                f"'{name}' returns a value on some paths only",
                returns[0],
                "end it with a return statement",
            )
        self.emit(Block(frame.label, tuple(block), loc=self.loc(tree)))
        return [self.variable_value(result, tree) for result in frame.results or ()]

    def returned(self, node: ast.Return) -> list[Value]:
        """The values of a return statement."""
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            return []
        return self.values(node.value)

    def values(self, node: ast.expr) -> list[Value]:
        """The values of an expression that may be several: a tuple, or a call that returns several."""
        if isinstance(node, ast.Tuple):
            return self.values_in_order(node.elts)
        if isinstance(node, ast.Call):
            callee = self.attribute(node.func) or self.entity(node.func)
            if isinstance(callee, Func):
                return self.inline(callee, node)
        return [self.value(node)]

    def stmt_Return(self, node: ast.Return) -> None:
        frame = self.frame
        if frame.caller is None:
            where = "inside the parallel loop" if self.region == "loop" else "here"
            self.unsupported(
                f"return {where}: a kernel may return a value in its last statement only",
                node,
                "use continue to end an iteration" if self.region == "loop" else None,
            )
        values = self.returned(node)
        if frame.results is None:
            frame.result_count = len(values)
            shapes = [v.shape if isinstance(v, Aggregate) else () for v in values]
            frame.results = [self.new_variable("result", shape) for shape in shapes]
        if len(values) != frame.result_count:
            message = f"this returns {len(values)} values, an earlier return {frame.result_count}"
            raise self.error(TypeError, message, node)
        for result, value in zip(frame.results, values, strict=True):
            self.check_shape(value, shape_of(result), node)
            for name, part in zip(names_of(result), parts_of(value), strict=True):
                self.emit(Assign(name, part, loc=part.loc))
        self.emit(Leave(frame.label, loc=self.loc(node)))
        frame.assigned = None
