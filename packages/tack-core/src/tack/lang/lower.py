"""Lowering: a kernel's source to its IR template."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from math import prod
from typing import Any

from tack.dtypes import DType, VectorType
from tack.errors import UnsupportedSyntaxError, diagnostic
from tack.ir.nodes import Assign, Parallel, Param, Parameter, Range, Stmt
from tack.ir.nodes import Kernel as KernelIR
from tack.ir.traversal import replace
from tack.lang.annotations import annotated_types, return_type
from tack.lang.bindings import Bindings
from tack.lang.device_class import Layout
from tack.lang.kernel import Elements, Kernel
from tack.lang.scope import (
    Components,
    Frame,
    Instance,
    Loop,
    ParamName,
    assigned_names,
    component_targets,
    first_assignment,
    names_of,
)
from tack.lang.source import Loc
from tack.lang.statements import REJECTED, Statements
from tack.lang.values import Aggregate, parts_of

__all__ = ["lower_kernel"]

# Statements in which no loop of the kernel can be.
_WITHOUT_LOOPS = (
    *(ast.Assign, ast.AugAssign, ast.Expr, ast.Return),
    *(ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef),
)


class KernelLowering(Statements):
    """A kernel as a whole: what stands before, in and after its parallel loop."""

    loop_assigns: frozenset[str] = frozenset()  # the names that the parallel loop assigns

    def kernel(self, kernel: Kernel, elements: Elements, layouts: Mapping[str, Layout]) -> KernelIR:
        tree = kernel.source.tree
        args = tree.args
        for star, word in ((args.vararg, "*"), (args.kwarg, "**")):
            if star is not None:
                self.unsupported(f"a kernel cannot take {word}{star.arg}", star, "name each parameter")
        arguments = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        self.elements = dict(elements)
        self.layouts = layouts
        params = tuple(p for a in arguments for p in self.parameters(kernel, a))
        self.frame.local_names = frozenset(kernel.params) | assigned_names(tree.body)
        self.frame.assigned = set(kernel.params)
        position = self.find_loop(tree)
        before = self.kernel_part(lambda: self.enter(tree, kernel.params, position))
        loop = self.parallel(tree.body[position])
        result, result_type = None, None
        last = (
            tree.body[-1] if isinstance(tree.body[-1], ast.Return) and position < len(tree.body) - 1 else None
        )
        with self.captured() as after:
            self.region = "after"
            self.statements(tree.body[position + 1 : -1 if last else None])
            if last is not None and last.value is not None:
                result_type = self.result_type(kernel, last)
                result = self.expr(last.value)
        return KernelIR(
            kernel.__name__,
            tuple(replace(p, texture=p.name in self.textures) for p in params),
            tuple(before),
            Parallel(loop[0], loop[1], loop[2], loc=self.loc(tree.body[position])),
            tuple(after),
            result,
            result_type,
            {},
            self.tables,
            fastmath=kernel.fastmath,
            loc=self.loc(tree),
        )

    def parameters(self, kernel: Kernel, arg: ast.arg) -> list[Parameter]:
        """The IR's parameters for one of the kernel's: a vector has one for each component."""
        loc = self.loc(arg)
        layout = self.layouts.get(arg.arg)
        if layout is not None:
            self.frame.names[arg.arg] = Instance(arg.arg, layout)
            return self.instance_parameters(arg.arg, layout, loc)
        kind = annotated_types(kernel.function).get(arg.arg)
        if not isinstance(kind, VectorType):
            width = prod(self.elements.get(arg.arg, ()))
            self.frame.names[arg.arg] = ParamName(arg.arg, self.elements.get(arg.arg, ()))
            return [Parameter(arg.arg, None, kind, width, loc=loc)]
        names = [self.unique_suffix(arg.arg, k) for k in range(kind.size)]
        self.frame.names[arg.arg] = Aggregate(kind.shape, [Param(name, loc=loc) for name in names], loc)
        return [Parameter(name, None, kind.dtype, loc=loc) for name in names]

    def instance_parameters(self, path: str, layout: Layout, loc: Loc) -> list[Parameter]:
        """The parameters for an instance of a device class, in the order of `describe`."""
        params: list[Parameter] = []
        for name in sorted({*layout.scalars, *layout.arrays, *layout.parts}):
            inner = f"{path}.{name}"
            if name in layout.parts:
                params += self.instance_parameters(inner, layout.parts[name], loc)
            else:
                self.unique_path(inner, loc)
                params.append(Parameter(inner, None, None, prod(layout.arrays.get(name, ())), loc=loc))
        return params

    def unique_path(self, path: str, loc: Loc) -> None:
        """Claims a parameter's name."""
        if path in self._used:
            raise diagnostic(TypeError, f"two attributes flatten to the name '{path}'", loc)
        self._used[path] = 0

    def kernel_part(self, lower: Any) -> list[Stmt]:
        with self.captured() as block:
            lower()
        return block

    def enter(self, tree: ast.FunctionDef, params: tuple[str, ...], position: int) -> None:
        """Binds the parameters, copying those that the kernel assigns, and lowers up to the loop."""
        assigned = assigned_names(tree.body, loops=False)
        loop = tree.body[position]
        for name in params:
            value = self.frame.names[name]
            if isinstance(value, Instance) and name in assigned:
                where = first_assignment(tree.body, name, loops=False) or tree
                self.unsupported(f"'{name}' is an object, which a kernel cannot assign", where)
            parts = component_targets(tree.body) if isinstance(value, Aggregate) else frozenset()
            if name in assigned or name in parts:
                loc = self.loc(first_assignment(tree.body, name, loops=False) or tree)
                whole = value if isinstance(value, Aggregate) else Param(name, loc=loc)
                shape = whole.shape if isinstance(whole, Aggregate) else ()
                self.frame.names[name] = variable = self.new_variable(name, shape)
                for target, part in zip(names_of(variable), parts_of(whole), strict=True):
                    self.emit(Assign(target, part, loc=loc))
        self.statements(tree.body[:position])
        assert isinstance(loop, ast.For)
        if loop.orelse:
            self.unsupported("a loop's else is not part of the kernel language", loop)
        self.iterated = self.iteration(loop)

    def find_loop(self, tree: ast.FunctionDef) -> int:
        """The position of the parallel loop in the kernel's body, the only loop there."""
        loops = [k for k, stmt in enumerate(tree.body) if isinstance(stmt, ast.For)]
        for k, stmt in enumerate(tree.body):
            if k in loops or isinstance(stmt, _WITHOUT_LOOPS):
                continue
            for inner in ast.walk(stmt):
                if isinstance(inner, ast.For):
                    if type(stmt).__name__ in REJECTED:
                        self.unsupported(*self.rejection(stmt))
                    self.unsupported(
                        "the parallel loop must stand directly in the kernel's body",
                        inner,
                        "put the condition inside the loop",
                    )
        if not loops:
            for stmt in tree.body:
                if type(stmt).__name__ in REJECTED:
                    self.unsupported(*self.rejection(stmt))
            self.unsupported(
                "a kernel needs one parallel for loop", tree, "write: for i in range(x.shape[0]): ..."
            )
        if len(loops) > 1:
            self.unsupported(
                "a second loop: a kernel has exactly one parallel for loop",
                tree.body[loops[1]],
                "put it in a kernel of its own, or inside the first loop",
            )
        return loops[0]

    def parallel(self, node: ast.stmt) -> tuple[tuple[str, ...], tuple[Range, ...], tuple[Stmt, ...]]:
        assert isinstance(node, ast.For)
        self.region = "loop"
        before = self.frame.snapshot()
        if before is None:
            self.unsupported("the parallel loop is never reached: a loop before it does not end", node)
        names = dict(self.frame.names)
        variables, body = self.loop_body(node, Loop(node, parallel=True), self.iterated, entered=False)
        # What the loop assigns belongs to its iterations; after it, those names are unassigned.
        components = {n for n in component_targets([node]) if isinstance(names.get(n), Components)}
        lost = assigned_names([node]) | components
        self.frame.assigned = before - lost
        self.frame.names = {k: v for k, v in names.items() if k not in lost}
        self.loop_assigns = lost
        self.region = "after"
        return tuple(variables), tuple(self.iterated.ranges), tuple(body)

    def binding(self, node: ast.Name) -> Any:
        frame = self.frame
        if (
            self.region == "after"
            and frame.caller is None
            and node.id in self.loop_assigns
            and node.id not in (frame.assigned or ())
            and node.id not in frame.ended_loops
        ):
            self.unsupported(
                f"'{node.id}' is assigned in the parallel loop, so it has no one value after it",
                node,
                "store it in an array and read the element",
            )
        return super().binding(node)

    def result_type(self, kernel: Kernel, node: ast.Return) -> DType:
        """The type that the return annotation names."""
        dtype = return_type(kernel.function)
        if dtype is not None:
            return dtype
        raise self.error(
            UnsupportedSyntaxError,
            "a kernel that returns a value needs a return annotation",
            node,
            "write -> int, -> float or a dtype such as -> tack.f64 after the parameters",
        )


def lower_kernel(
    kernel: Kernel, elements: Elements = (), layouts: Mapping[str, Layout] | None = None
) -> KernelIR:
    """The IR template of a kernel for the elements and instances that `Kernel.template` takes.

    Raises:
        UnsupportedSyntaxError, NameError, TypeError: with the place in the source.
    """
    frame = Frame(kernel.source, Bindings(kernel.function), None, "")
    lowering = KernelLowering(frame, kernel.params)
    try:
        return lowering.kernel(kernel, elements, layouts or {})
    except RecursionError:
        tree = kernel.source.tree
        raise lowering.error(
            UnsupportedSyntaxError,
            "an expression or a call nests too deeply",
            tree,
            "split it into several statements",
        ) from None
