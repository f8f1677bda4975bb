"""Lowering of arrays that a kernel declares, and of what the lanes of a workgroup do together."""

from __future__ import annotations

import ast
from math import prod

from tack.dtypes import VectorType
from tack.ir.nodes import Barrier, BlockReduce, LaneId, Local, LocalArray
from tack.lang.builtins import Construct, meaning_of
from tack.lang.places import Places
from tack.lang.scope import ArrayName
from tack.lang.values import Value

__all__ = ["Workgroups"]

_ARRAYS = {"local_array": "local array", "shared": "shared array"}


class Workgroups(Places):
    """``tack.local_array``, ``tack.shared``, ``tack.barrier``, ``tack.thread_id`` and block reductions."""

    def declares_array(self, node: ast.Assign) -> bool:
        """Declares ``name = tack.local_array(shape, dtype)`` or ``tack.shared``; False if it is neither."""
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
            return False
        meaning = meaning_of(self.entity(call.func))
        if not isinstance(meaning, Construct) or meaning.name not in _ARRAYS:
            return False
        what, shared = _ARRAYS[meaning.name], meaning.name == "shared"
        self.check_plain(call, meaning)
        if len(call.args) != 2:
            message = f"{meaning.name}() takes a shape and a dtype, not {len(call.args)} arguments"
            self.unsupported(message, call)
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            self.unsupported(f"a {what} is assigned to one name", node)
        target = node.targets[0]
        frame = self.frame
        if frame.names.get(target.id) is not None:
            hint = f"give the {what} a name of its own"
            raise self.error(TypeError, f"'{target.id}' already has another meaning", target, hint)
        shape = call.args[0]
        sizes = shape.elts if isinstance(shape, ast.Tuple) else [shape]
        extents = tuple(self.in_order(sizes))
        name = self.unique(target.id)
        kind = self.element_type(call.args[1])
        dtype, element = (kind.dtype, kind.shape) if isinstance(kind, VectorType) else (kind, ())
        self.emit(LocalArray(name, extents, dtype, prod(element), shared, loc=self.loc(call)))
        frame.names[target.id] = ArrayName(name, len(extents), element, shared)
        if frame.assigned is not None:
            frame.assigned.add(target.id)
        frame.assigned_at.setdefault(target.id, target)
        return True

    def barrier(self, node: ast.Call) -> None:
        self.check_plain(node, node.func)
        self.arguments(node, 0, 0, "barrier")
        self.check_region(node, "a barrier")
        self.emit(Barrier(loc=self.loc(node)))

    def construct(self, name: str, node: ast.Call) -> Value:
        loc = self.loc(node)
        if name == "thread_id":
            self.arguments(node, 0, 0, name)
            self.check_region(node, "thread_id()")
            return LaneId(loc=loc)
        if name.startswith("block_"):
            self.check_region(node, "a block reduction")
            if len(node.args) != 1:
                self.unsupported(f"{name}() takes 1 argument, not {len(node.args)}", node)
            value = self.expr(node.args[0])
            target = self.unique("block")
            self.emit(BlockReduce(target, name.removeprefix("block_"), value, loc=loc))
            return Local(target, loc=loc)
        if name == "barrier":
            self.unsupported("tack.barrier() is a statement and has no value", node)
        if name == "shared":
            self.unsupported("tack.shared(...) stands alone on the right of an assignment", node)
        return super().construct(name, node)
