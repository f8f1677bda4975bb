"""Lowering of instances of device classes: attributes, methods, iteration."""

from __future__ import annotations

import ast
from typing import Any

from tack.errors import did_you_mean
from tack.ir.nodes import Const, Param
from tack.lang.device_class import Layout, constant_dtype, member
from tack.lang.kernel import Func
from tack.lang.scope import Instance, ParamName
from tack.lang.vectors import Vectors

__all__ = ["Objects"]


class Objects(Vectors):
    """What ``obj.attribute`` means for an instance of a device class."""

    def instance(self, node: ast.expr) -> Instance | None:
        """The instance that a name, or a dotted name, stands for."""
        if isinstance(node, ast.Name):
            binding = self.frame.names.get(node.id)
            return binding if isinstance(binding, Instance) else None
        if isinstance(node, ast.Attribute):
            owner = self.instance(node.value)
            if owner is not None and node.attr in owner.layout.parts:
                return Instance(f"{owner.ir}.{node.attr}", owner.layout.parts[node.attr])
        return None

    def attribute(self, node: ast.expr) -> Any:
        """The attribute of an instance that ``node`` names: a Const, Param, ParamName, Func or Instance.

        None if it is no attribute of an instance.

        Raises:
            ValueError: the class has no such attribute that kernels can use.
        """
        if not isinstance(node, ast.Attribute):
            return None
        owner = self.instance(node.value)
        if owner is None:
            return None
        layout, name, loc = owner.layout, node.attr, self.loc(node)
        if name in layout.constants:
            value = layout.constants[name]
            return self.number(value, node, constant_dtype(value))
        if name in layout.scalars:
            return Param(f"{owner.ir}.{name}", loc=loc)
        if name in layout.arrays:
            return ParamName(f"{owner.ir}.{name}", layout.arrays[name])
        if name in layout.parts:
            return Instance(f"{owner.ir}.{name}", layout.parts[name])
        if name in layout.funcs:
            return layout.funcs[name]
        found = member(layout.owner, name)
        if isinstance(found, staticmethod):
            found = found.__func__
        if isinstance(found, Func):
            return found
        raise self.bad_attribute(layout, found, node)

    def bad_attribute(self, layout: Layout, found: Any, node: ast.Attribute) -> ValueError:
        cls, name = layout.owner.__name__, node.attr
        hint = None
        if isinstance(found, property):
            message = f"'{name}' is a property of {cls}, which kernels cannot compute"
            hint = "make it a @tack.func method, or store the value in an attribute"
        elif callable(found):
            message = f"method '{name}' of {cls} is not a @tack.func"
            hint = "decorate it with @tack.func"
        else:
            known = [*layout.constants, *layout.scalars, *layout.arrays, *layout.parts, *layout.funcs]
            hint = did_you_mean(name, known)
            private = (
                ", as names that start with an underscore stay on the host" if name.startswith("_") else ""
            )
            message = f"{cls} has no attribute '{name}' for kernels{private}"
        return self.error(ValueError, message, node, hint)

    def is_method(self, node: ast.Attribute, func: Func) -> bool:
        """Whether a call of an instance's func passes the instance as its first argument."""
        owner = self.instance(node.value)
        assert owner is not None
        return member(owner.layout.owner, node.attr) is func and node.attr not in owner.layout.funcs

    def number(self, value: Any, node: ast.AST, dtype: Any) -> Const:
        """A class constant as a literal."""
        raise NotImplementedError
