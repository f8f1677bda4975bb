"""Lowering of what is assigned to: variables, elements, and components of both."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import prod
from typing import NoReturn

from tack.dtypes import i64
from tack.ir.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    If,
    Load,
    Local,
    Logical,
    Meet,
    Select,
    Store,
)
from tack.ir.traversal import walk
from tack.lang.calls import Calls
from tack.lang.scope import ArrayName, Components, ParamName, Variable, names_of, shape_of
from tack.lang.values import Aggregate, Value, describe, parts_of
from tack.lang.vectors import COMPONENTS
from tack.record import Record

__all__ = ["Places"]


class Slot(Record):
    """Room for one scalar: a local, or an element (or its component) of an array."""

    name: str
    at: tuple[Expr, ...] | None = None
    component: Expr | None = None


class Place(Record):
    """Room for a value of a shape. With ``choice``, the slots are those of several alternatives, one
    after the other, of which the index ``choice`` selects one. ``siblings`` are the locals that make
    up a vector or matrix variable together with the slots."""

    shape: tuple[int, ...]
    slots: tuple[Slot, ...]
    choice: Expr | None = None
    siblings: tuple[str, ...] = ()

    def narrowed(self, k: int) -> Place:
        """Component ``k`` of a vector, row ``k`` of a matrix."""
        width = prod(self.shape[1:])
        kept = self.slots[k * width : (k + 1) * width]
        names = {s.name for s in kept if s.at is None}
        rest = tuple(s.name for s in self.slots if s.at is None and s.name not in names)
        return Place(self.shape[1:], kept, None, self.siblings + rest)


class Places(Calls):
    """Targets of assignments."""

    def place(self, target: ast.expr) -> Place:
        """The room that an element or a component names; its indices are evaluated here, once."""
        if isinstance(target, ast.Name):
            binding = self.binding(target)
            if isinstance(binding, (Variable, Components)):
                return Place(shape_of(binding), tuple(map(Slot, names_of(binding))))
            self.bad_target(target)
        if isinstance(target, ast.Subscript):
            array = self.array_name(target.value)
            if array is not None:
                return self.element_place(array, target)
            return self.indexed(self.base_place(target.value), target)
        if isinstance(target, ast.Attribute) and self.instance(target.value) is not None:
            hint = "store to an element of an array attribute"
            self.unsupported(
                f"'{ast.unparse(target)}': a kernel cannot change an object's attributes", target, hint
            )
        if isinstance(target, ast.Attribute):
            place = self.base_place(target.value)
            component = COMPONENTS.get(target.attr)
            if len(place.shape) != 1 or component is None:
                one = "assign one component at a time: v.x, v.y, ..." if len(target.attr) > 1 else None
                self.unsupported(f"'{ast.unparse(target)}' cannot be assigned in a kernel", target, one)
            if component >= place.shape[0]:
                raise self.error(TypeError, f"'.{target.attr}' of {describe(place.shape)}", target)
            return self.component_place(place, Const(component, loc=self.loc(target)), component)
        self.bad_target(target)

    def base_place(self, node: ast.expr) -> Place:
        """The place of the vector or matrix whose component is assigned."""
        if isinstance(node, ast.Name) and node.id in self.frame.local_names:
            self.binding(node)  # which must be assigned
        own = isinstance(node, ast.Name) and isinstance(self.frame.names.get(node.id), (Variable, Components))
        if not own and not isinstance(node, (ast.Subscript, ast.Attribute)):
            array = isinstance(node, ast.Name) and isinstance(
                self.frame.names.get(node.id), (ParamName, ArrayName)
            )
            hint = f"index it first: {ast.unparse(node)}[i].x" if array else None
            self.unsupported(f"'{ast.unparse(node)}' has no components that a kernel can assign", node, hint)
        place = self.place(node)
        if not place.shape:
            hint = "a store takes all its indices in one bracket: x[i, j] = ..."
            self.unsupported(f"'{ast.unparse(node)}' is a number and has no components", node, hint)
        return place

    def element_place(self, array: ParamName | ArrayName, target: ast.Subscript) -> Place:
        self.check_region(target, "a store")
        indices = self.indices(self.index_nodes(target))
        self.check_index_count(array, len(indices), target)
        if not array.element:
            return Place((), (Slot(array.ir, tuple(indices)),))
        at = tuple(self.once(i) for i in indices)
        loc = self.loc(target)
        count = prod(array.element)
        return Place(
            array.element, tuple(Slot(array.ir, at, Const(k, type=i64, loc=loc)) for k in range(count))
        )

    def indexed(self, place: Place, target: ast.Subscript) -> Place:
        """``v[i]``, ``m[i]`` and ``m[i, j]`` of a place."""
        nodes = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        for node in nodes:
            if not place.shape:
                raise self.error(TypeError, f"{len(nodes)} indices are too many here", target)
            index = self.expr(node)
            place = self.component_place(place, index, self.literal_index(index, place.shape[0], node))
        return place

    def component_place(self, place: Place, index: Expr, known: int | None) -> Place:
        """Component or row ``index`` of a place, which is ``known`` if it is a literal."""
        if place.choice is None:
            if known is not None:
                return place.narrowed(known)
            return Place(place.shape[1:], place.slots, self.temp(index), place.siblings)
        # A component of a row chosen at run time: one choice among all components.
        loc, extent = index.loc, place.shape[0]

        def const(value: int) -> Const:
            return Const(value, type=i64, loc=loc)

        rows = len(place.slots) // prod(place.shape)
        low = Call("max", (Cast(place.choice, i64, loc=loc), const(-1)), loc=loc)
        row = Call("min", (low, const(rows)), loc=loc)
        at = const(known) if known is not None else Cast(self.temp(index), i64, loc=loc)
        flat: Expr = Binary("add", Binary("mul", row, const(extent), loc=loc), at, loc=loc)
        if known is None:
            inside = Logical(
                "and",
                Compare("ge", at, const(0), loc=loc),
                Compare("lt", at, const(extent), loc=loc),
                loc=loc,
            )
            flat = Select(inside, flat, const(-1), loc=loc)
        return Place(place.shape[1:], place.slots, self.temp(flat), place.siblings)

    def options(self, place: Place) -> list[Place]:
        """The alternatives of a place with a choice."""
        width = prod(place.shape)
        slots = place.slots
        return [Place(place.shape, slots[k : k + width]) for k in range(0, len(slots), width)]

    # --- reading and writing ---

    def read(self, place: Place, node: ast.AST) -> Value:
        """The value in a place."""
        loc = self.loc(node)
        if place.choice is not None:
            options = self.options(place)
            parts = [part for option in options for part in parts_of(self.read(option, node))]
            return self.nearest(Aggregate((len(options), *place.shape), parts, loc), place.choice)
        slots = [
            Local(s.name, loc=loc) if s.at is None else Load(s.name, s.at, s.component, loc=loc)
            for s in place.slots
        ]
        return Aggregate(place.shape, slots, loc) if place.shape else slots[0]

    def write(self, place: Place, value: Value, node: ast.AST) -> None:
        """Emits the assignment of a value, whose effects are done, to a place."""
        loc = self.loc(node)
        value = self.spread(value, place.shape, node)
        if place.choice is not None:
            value = self.once(value)
            for k, option in enumerate(self.options(place)):
                here = Compare("eq", place.choice, Const(k, type=i64, loc=loc), loc=loc)
                with self.captured() as stores:
                    self.write(option, value, node)
                self.emit(If(here, tuple(stores), (), loc=loc))
            self.agree(place, node)
            return
        parts = parts_of(value)
        if len(parts) > 1 and self.may_change(parts, place.slots):
            parts = parts_of(self.saved(value))
        for slot, part in zip(place.slots, parts, strict=True):
            if slot.at is None:
                self.emit(Assign(slot.name, part, loc=loc))
            else:
                self.emit(Store(slot.name, slot.at, part, slot.component, loc=loc))
        if place.siblings:
            self.agree(place, node)

    def agree(self, place: Place, node: ast.AST) -> None:
        """Gives the rest of a variable the type of its components that were assigned."""
        loc = self.loc(node)
        assigned = tuple(Local(slot.name, loc=loc) for slot in place.slots)
        for name in place.siblings:
            self.emit(Assign(name, Meet(Local(name, loc=loc), assigned, loc=loc), loc=loc))

    def may_change(self, parts: Sequence[Expr], slots: Sequence[Slot]) -> bool:
        """Whether assigning one slot may change a part that is still to be read."""
        names = {slot.name for slot in slots if slot.at is None}
        return any(
            isinstance(n, Load) or (isinstance(n, Local) and n.name in names) for p in parts for n in walk(p)
        )

    def assign_name(self, node: ast.Name, value: Value) -> None:
        """Assigns to a local variable, which takes the shape of what it is assigned first."""
        shape = value.shape if isinstance(value, Aggregate) else ()
        variable = self.variable(node, shape)
        self.write(Place(shape, tuple(map(Slot, names_of(variable)))), value, node)

    def variable(self, node: ast.Name, shape: tuple[int, ...]) -> Variable | Components:
        """The local that is assigned here, which from now on is assigned."""
        frame, name = self.frame, node.id
        binding = frame.names.get(name)
        if isinstance(binding, ArrayName):
            raise self.error(TypeError, f"'{name}' is a local array and cannot be assigned a number", node)
        if name in frame.ended_loops:  # not the loop's variable any more
            del frame.ended_loops[name]
            binding = None
        if not isinstance(binding, (Variable, Components)):
            binding = frame.names[name] = self.new_variable(name, shape)
        if shape_of(binding) != shape:
            first = frame.assigned_at.get(name)
            notes = [("it is also assigned here", first)] if first is not None else []
            message = f"'{name}' is {describe(shape_of(binding))}, and this assigns {describe(shape)}"
            raise self.error(TypeError, message, node, "use another name", notes)
        if frame.assigned is not None:
            frame.assigned.add(name)
        frame.assigned_at.setdefault(name, node)
        return binding

    def bad_target(self, target: ast.expr) -> NoReturn:
        if isinstance(target, ast.Starred):
            self.unsupported("starred targets are not part of the kernel language", target)
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unsupported("targets cannot be nested", target, "unpack in two statements")
        self.unsupported(f"'{ast.unparse(target)}' cannot be assigned in a kernel", target)
