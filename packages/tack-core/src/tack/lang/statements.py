"""Lowering of statements."""

from __future__ import annotations

import ast

from tack.ir.nodes import (
    Assign,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    If,
    Leave,
    Local,
    Print,
    Range,
    Stmt,
    Unary,
    While,
)
from tack.lang.bindings import UNBOUND
from tack.lang.builtins import Construct, meaning_of
from tack.lang.device_class import member
from tack.lang.kernel import Func
from tack.lang.places import Place
from tack.lang.scope import Components, Instance, Loop, Variable, assigned_names, component_targets
from tack.lang.values import Aggregate, Value
from tack.lang.workgroups import Workgroups
from tack.record import Record, replace

__all__ = ["REJECTED", "Iteration", "Statements"]

REJECTED: dict[str, tuple[str, str | None]] = {
    "AnnAssign": (
        "annotated assignment is not part of the kernel language",
        "convert the value: x = tack.f64(...)",
    ),
    "Delete": ("del is not part of the kernel language", None),
    "Global": ("global is not part of the kernel language", "pass an array and store to it"),
    "Nonlocal": ("nonlocal is not part of the kernel language", "pass an array and store to it"),
    "Assert": (
        "assert is not part of the kernel language",
        "store a flag in an array and test it on the host",
    ),
    "Raise": ("raise is not part of the kernel language", "store a flag in an array and test it on the host"),
    "Try": ("try is not part of the kernel language", "kernels raise no exceptions; test with if before"),
    "TryStar": ("try is not part of the kernel language", "kernels raise no exceptions; test with if before"),
    "With": ("with is not part of the kernel language", None),
    "Import": ("imports are not part of the kernel language", "import at the top of the file"),
    "ImportFrom": ("imports are not part of the kernel language", "import at the top of the file"),
    "FunctionDef": ("a function inside a kernel is not supported", "define a @tack.func outside"),
    "AsyncFunctionDef": ("a function inside a kernel is not supported", "define a @tack.func outside"),
    "ClassDef": ("a class inside a kernel is not supported", None),
    "Match": ("match is not part of the kernel language", "write if and elif"),
    "AsyncFor": ("async for is not part of the kernel language", None),
    "AsyncWith": ("async with is not part of the kernel language", None),
    "TypeAlias": ("type statements are not part of the kernel language", None),
}


class Iteration(Record):
    """What a ``for`` runs over: its variables and a range for each dimension.

    With ``order``, the one variable is a vector, whose component k is the index of range ``order[k]``.
    """

    names: list[ast.Name]
    ranges: list[Range]
    order: tuple[int, ...] | None = None


class Statements(Workgroups):
    """Statements, in a kernel and in device functions."""

    def statements(self, body: list[ast.stmt]) -> None:
        for node in body:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        rule = self.rule("stmt", node)
        if rule is None:
            self.unsupported(*self.rejection(node))
        rule(self, node)

    def rejection(self, node: ast.stmt) -> tuple[str, ast.AST, str | None]:
        name = type(node).__name__
        message, hint = REJECTED.get(name, (f"{name} is not part of the kernel language", None))
        return message, node, hint

    # --- simple statements ---

    def stmt_Pass(self, node: ast.Pass) -> None:
        del node

    def stmt_Expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return  # a docstring
        if isinstance(value, ast.Call):
            callee = self.attribute(value.func) or self.entity(value.func)
            if callee is print:
                self.print(value)
                return
            if isinstance(callee, Func):
                self.inline(callee, value)
                return
            meaning = meaning_of(callee)
            if isinstance(meaning, Construct) and meaning.name == "barrier":
                self.barrier(value)
                return
            if isinstance(meaning, Construct) and meaning.name.startswith(("atomic_", "shared_")):
                self.check_plain(value, callee)
                self.atomic(meaning.name, value, wanted=False)
                return
        # Any other expression has no effect, but its errors count: the value goes to a local.
        self.saved(self.value(value))

    def print(self, node: ast.Call) -> None:
        self.check_plain(node, print)
        self.check_region(node, "print")
        texts = {
            k: arg.value
            for k, arg in enumerate(node.args)
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        }
        values = iter(self.values_in_order([arg for k, arg in enumerate(node.args) if k not in texts]))
        pieces: list[str | Expr] = []
        for k in range(len(node.args)):
            pieces += [" "] if k else []
            pieces += [texts[k]] if k in texts else _shown(next(values))
        self.emit(Print(tuple(_merged(pieces)), loc=self.loc(node)))

    def stmt_Assign(self, node: ast.Assign) -> None:
        if self.declares_array(node):
            return
        first = node.targets[0]
        if len(node.targets) == 1 and not isinstance(first, (ast.Tuple, ast.List)):
            self.assign(first, node.value)
            return
        for target in node.targets:
            if isinstance(target, ast.List):
                self.unsupported("a list is not a target", target, "write a tuple: a, b = ...")
        if len(node.targets) > 1:  # a = b = value
            if isinstance(node.value, ast.Tuple):
                self.unsupported(
                    "one of several targets cannot be a tuple", node, "write one assignment a line"
                )
            saved = self.saved(self.value(node.value))
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    self.unsupported(
                        "one of several targets cannot be a tuple", target, "write one assignment a line"
                    )
                self.store(target, saved)
            return
        assert isinstance(first, ast.Tuple)
        self.unpack(first, node)

    def unpack(self, target: ast.Tuple, node: ast.Assign) -> None:
        """``a, b = x, y``: every value is computed before the first target changes."""
        for part in target.elts:
            if not isinstance(part, (ast.Name, ast.Subscript, ast.Attribute)):
                self.bad_target(part)
        values = self.values(node.value)
        if len(values) != len(target.elts):
            message = f"{len(values)} value{'s' if len(values) != 1 else ''} for {len(target.elts)} targets"
            one = values[0] if len(values) == 1 else None
            hint = "take its components: v.x, v.y, v.z" if isinstance(one, Aggregate) else None
            raise self.error(TypeError, message, node, hint)
        saved = [self.saved(value) for value in values]
        for part, value in zip(target.elts, saved, strict=True):
            self.store(part, value)

    def assign(self, target: ast.expr, value_node: ast.expr) -> None:
        """``target = value``: the value is computed before the index of the target."""
        value = self.value(value_node)
        if isinstance(target, ast.Name):
            self.assign_name(target, value)
            return
        mark = len(self.block)
        place = self.place(target)
        (value,) = self.settle([value], [mark])
        self.write(place, value, target)

    def store(self, target: ast.expr, value: Value) -> None:
        """Assigns a value, whose effects are done, to a name, an element or a component."""
        if isinstance(target, ast.Name):
            self.assign_name(target, value)
        else:
            self.write(self.place(target), value, target)

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        name = target if isinstance(target, ast.Name) else None
        place = None if name is not None else self.one_use(self.place(target))
        if name is not None:
            old = self.expr_Name(ast.copy_location(ast.Name(name.id, ast.Load()), name))
        else:
            assert place is not None
            old = self.read(place, target)
        mark = len(self.block)
        right = self.value(node.value)
        old, right = self.settle([old, right], [mark, len(self.block)])
        value = self.binary(node.op, old, right, node)
        if name is not None:
            self.assign_name(name, value)
        else:
            assert place is not None
            self.write(place, value, target)

    def one_use(self, place: Place) -> Place:
        """A place whose indices may be evaluated twice: once to read, once to write."""
        slots = [s if s.at is None else replace(s, at=tuple(self.once(i) for i in s.at)) for s in place.slots]
        return replace(place, slots=tuple(slots))

    # --- control flow ---

    def stmt_If(self, node: ast.If) -> None:
        cond = self.condition(node.test)
        frame = self.frame
        before = frame.snapshot()
        with self.captured() as then:
            self.statements(node.body)
        after_then, frame.assigned = frame.assigned, before
        with self.captured() as orelse:
            self.statements(node.orelse)
        frame.join(after_then, frame.assigned)
        self.emit(If(cond, tuple(then), tuple(orelse), loc=self.loc(node)))

    def stmt_While(self, node: ast.While) -> None:
        if node.orelse:
            self.unsupported("a loop's else is not part of the kernel language", node)
        frame = self.frame
        with self.captured() as test:
            cond = self.condition(node.test)
        loop = Loop(node)
        frame.loops.append(loop)
        before = frame.snapshot()
        with self.captured() as body:
            self.statements(node.body)
        frame.loops.pop()
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        frame.join(*loop.breaks, *([] if endless else [before]))
        loc = self.loc(node)
        if test:  # the condition has statements of its own, which each round runs again
            stop = If(Unary("not", cond, loc=cond.loc), (Break(loc=loc),), (), loc=loc)
            cond, body = Const(1, loc=loc), [*test, stop, *body]
        self.emit(While(cond, tuple(body), loc=loc))

    def stmt_Break(self, node: ast.Break) -> None:
        frame = self.frame
        loop = frame.loops[-1]
        if loop.parallel:
            self.unsupported(
                "break out of the parallel loop: its iterations have no order",
                node,
                "use continue, or a flag",
            )
        loop.breaks.append(frame.snapshot())
        frame.assigned = None
        self.emit(Leave(loop.leave, loc=self.loc(node)) if loop.leave else Break(loc=self.loc(node)))

    def stmt_Continue(self, node: ast.Continue) -> None:
        frame = self.frame
        frame.loops[-1].continues.append(frame.snapshot())
        frame.assigned = None
        self.emit(Continue(loc=self.loc(node)))

    def stmt_For(self, node: ast.For) -> None:
        if node.orelse:
            self.unsupported("a loop's else is not part of the kernel language", node)
        if self.frame.caller is None and self.region != "loop":
            self.unsupported("the parallel loop must stand directly in the kernel's body", node)
        iteration = self.iteration(node)
        ranges = iteration.ranges
        fixed = [self.saved_range(r) for r in ranges] if len(ranges) > 1 else ranges
        loop = Loop(node, leave=self.unique("loop") if len(ranges) > 1 else None)
        loc = self.loc(node)
        variables, body = self.loop_body(node, loop, iteration, all(map(_runs, ranges)))
        stmts: tuple[Stmt, ...] = tuple(body)
        if len(ranges) > 1 and _assigns(node.body, iteration.names):
            # An assignment to an outer index must not reach the next iteration of an inner loop.
            counters = [self.unique(variable) for variable in variables]
            copies = [Assign(v, Local(c, loc=loc), loc=loc) for v, c in zip(variables, counters, strict=True)]
            variables, stmts = counters, (*copies, *stmts)
        for variable, part in zip(reversed(variables), reversed(fixed), strict=True):
            stmts = (For(variable, part, stmts, loc=loc),)
        self.emit(Block(loop.leave, stmts, loc=loc) if loop.leave else stmts[0])

    def saved_range(self, part: Range) -> Range:
        """A range evaluated once, for an inner loop of several made from one ``ndindex``."""
        start, stop, step = (self.temp(e) for e in (part.start, part.stop, part.step))
        return Range(start, stop, step, loc=part.loc)

    def loop_body(
        self, node: ast.For, loop: Loop, iteration: Iteration, entered: bool
    ) -> tuple[list[str], list[Stmt]]:
        """The IR names of the loop variables, and the lowered body."""
        frame, names = self.frame, iteration.names
        outer = {name.id: frame.names.get(name.id) for name in names}
        before = frame.snapshot()
        if iteration.order is None:
            variables = [self.unique(name.id) for name in names]
            frame.names |= {name.id: Variable(v) for name, v in zip(names, variables, strict=True)}
        else:
            base = self.unique(names[0].id)
            variables = [self.unique_suffix(base, k) for k in range(len(iteration.ranges))]
            parts = tuple(variables[k] for k in iteration.order)
            frame.names[names[0].id] = Components(parts, (len(parts),))
        for name in names:
            frame.ended_loops.pop(name.id, None)
            if frame.assigned is not None:
                frame.assigned.add(name.id)
        frame.loops.append(loop)
        with self.captured() as body:
            self.statements(node.body)
        frame.loops.pop()
        ends = [frame.assigned, *loop.continues] if entered else [before]
        frame.join(*ends, *loop.breaks)
        for name_id, old in outer.items():
            if frame.assigned is not None:
                frame.assigned.discard(name_id)
            frame.ended_loops[name_id] = node
            if old is None:
                del frame.names[name_id]
            else:
                frame.names[name_id] = old
        return variables, body

    def iteration(self, node: ast.For) -> Iteration:
        """What a ``for`` runs over: ``range``, ``tack.ndindex`` or an object with ``__tack_iterate__``."""
        owner = self.instance(node.iter)
        if owner is not None:
            return self.object_iteration(owner, node)
        call = node.iter
        callee = self.callee(call) if isinstance(call, ast.Call) else UNBOUND
        meaning = meaning_of(callee)
        is_ndindex = isinstance(meaning, Construct) and meaning.name == "ndindex"
        if not isinstance(call, ast.Call) or not (callee is range or is_ndindex):
            self.unsupported("a for loop runs over range(...) or tack.ndindex(...)", node.iter)
        self.check_plain(call, callee)
        targets = node.target.elts if isinstance(node.target, ast.Tuple) and is_ndindex else [node.target]
        names = [target for target in targets if isinstance(target, ast.Name)]
        if len(names) != len(targets):
            self.unsupported("a loop variable must be a name", node.target)
        ranges = self.ndindex_ranges(call) if is_ndindex else [self.range(call)]
        if len(names) == 1 and len(ranges) > 1:
            return Iteration(names, ranges, tuple(range(len(ranges))))
        if len(ranges) != len(names):
            raise self.error(
                TypeError, f"{len(ranges)} dimensions for {len(names)} loop variables", node.target
            )
        return Iteration(names, ranges)

    def object_iteration(self, owner: Instance, node: ast.For) -> Iteration:
        """``for c in obj``: over the extents that ``__tack_iterate__`` names, the fastest first."""
        cls = owner.layout.owner
        named = member(cls, "__tack_iterate__")
        extents = (named,) if isinstance(named, str) else named
        if not isinstance(extents, (tuple, list)) or not 1 <= len(extents) <= 3:
            message = f"{cls.__name__} has no __tack_iterate__ of one to three attribute names"
            raise self.error(ValueError, message, node.iter)
        if not isinstance(node.target, ast.Name):
            self.unsupported("a loop over an object has one variable, its index", node.target)
        loc = self.loc(node.iter)
        ranges = []
        for name in reversed(extents):
            attribute = ast.copy_location(ast.Attribute(node.iter, str(name), ast.Load()), node.iter)
            extent = self.expr(attribute)
            ranges.append(Range(Const(0, loc=loc), extent, Const(1, loc=loc), loc=loc))
        order = tuple(reversed(range(len(ranges)))) if len(ranges) > 1 else None
        return Iteration([node.target], ranges, order)

    def range(self, call: ast.Call) -> Range:
        if not 1 <= len(call.args) <= 3:
            self.unsupported(f"range() takes 1 to 3 arguments, not {len(call.args)}", call)
        values = self.in_order(call.args)
        loc = self.loc(call)
        start = values[0] if len(values) > 1 else Const(0, loc=loc)
        stop = values[1] if len(values) > 1 else values[0]
        step = values[2] if len(values) > 2 else Const(1, loc=loc)
        if isinstance(step, Const) and isinstance(step.value, int) and step.value <= 0:
            self.unsupported(
                f"the step of range() must be positive, not {step.value}",
                call.args[2],
                "count upwards, and compute the index: n - 1 - i",
            )
        return Range(start, stop, step, loc=loc)

    def ndindex_ranges(self, call: ast.Call) -> list[Range]:
        if not 1 <= len(call.args) <= 6:
            self.unsupported(f"ndindex() takes 1 to 6 dimensions, not {len(call.args)}", call)
        nodes: list[ast.expr] = []
        for arg in call.args:
            if isinstance(arg, ast.Tuple) and len(arg.elts) != 2:
                self.unsupported("a dimension of ndindex() is a size or a (start, end) pair", arg)
            nodes += arg.elts if isinstance(arg, ast.Tuple) else [arg]
        values = iter(self.in_order(nodes))
        ranges = []
        for arg in call.args:
            loc = self.loc(arg)
            start: Expr = next(values) if isinstance(arg, ast.Tuple) else Const(0, loc=loc)
            ranges.append(Range(start, next(values), Const(1, loc=loc), loc=loc))
        return ranges


def _assigns(body: list[ast.stmt], names: list[ast.Name]) -> bool:
    """Whether a loop's body assigns one of its variables, or a component of one."""
    changed = assigned_names(body) | component_targets(body)
    return any(name.id in changed for name in names)


def _runs(part: Range) -> bool:
    """Whether a range is certain to run: literal and not empty."""
    start, stop = part.start, part.stop
    return (
        isinstance(start, Const)
        and isinstance(stop, Const)
        and isinstance(part.step, Const)
        and start.value < stop.value
    )


def _shown(value: Value) -> list[str | Expr]:
    """The pieces of a printed value: vectors and the rows of matrices in brackets."""
    if not isinstance(value, Aggregate):
        return [value]
    pieces: list[str | Expr] = ["["]
    for i in range(value.shape[0]):
        pieces += [", "] if i else []
        pieces += _shown(value.row(i))
    return [*pieces, "]"]


def _merged(pieces: list[str | Expr]) -> list[str | Expr]:
    """``pieces`` with neighbouring strings joined."""
    merged: list[str | Expr] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged
