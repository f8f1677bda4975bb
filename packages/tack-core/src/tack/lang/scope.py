"""Names while lowering: what each stands for, and which are certainly assigned."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tack.dtypes import DType, VectorType
from tack.ir.nodes import Const
from tack.lang.bindings import Bindings
from tack.lang.device_class import Layout
from tack.lang.source import Loc, Source
from tack.lang.values import Aggregate
from tack.record import Record

__all__ = [
    "ArrayName",
    "Binding",
    "Callee",
    "Components",
    "Frame",
    "Instance",
    "Loop",
    "ParamName",
    "Variable",
    "assigned_names",
    "component_targets",
    "first_assignment",
    "names_of",
    "shape_of",
]


class Variable(Record):
    """A local variable, by its name in the IR."""

    ir: str


class Components(Record):
    """A local vector or matrix: the names of its components, row by row."""

    ir: tuple[str, ...]
    shape: tuple[int, ...]


class ParamName(Record):
    """A parameter of the kernel that nothing assigns: a scalar or an array, known at the call.

    ``element`` is the shape of an array's elements, () for scalars.
    """

    ir: str
    element: tuple[int, ...] = ()


class ArrayName(Record):
    """A local or shared array."""

    ir: str
    ndim: int
    element: tuple[int, ...] = ()
    shared: bool = False


def names_of(variable: Variable | Components) -> tuple[str, ...]:
    """The IR's names of a variable's scalars."""
    return variable.ir if isinstance(variable, Components) else (variable.ir,)


def shape_of(variable: Variable | Components) -> tuple[int, ...]:
    """(), (n,) of a vector or (n, m) of a matrix."""
    return variable.shape if isinstance(variable, Components) else ()


class Instance(Record):
    """An instance of a device class: the path of its parameters' names, and its layout."""

    ir: str
    layout: Layout


Binding = Instance | Variable | Components | ParamName | ArrayName | Const | Aggregate


class Callee(Record):
    """What inlining a device function takes, whatever it is called with.

    ``pinned`` gives the types of the annotated parameters, ``assigned`` the names that its body assigns.
    """

    bindings: Bindings
    params: list[str]
    pinned: dict[str, DType | VectorType | None]
    assigned: frozenset[str]


class Loop:
    """A loop being lowered. ``breaks`` and ``continues`` hold the names assigned on those ways out.

    ``leave`` is the label that ``break`` goes to, where the loop is made of several nested ones.
    """

    __slots__ = ("breaks", "continues", "leave", "node", "parallel")

    def __init__(self, node: ast.For | ast.While, parallel: bool = False, leave: str | None = None) -> None:
        self.node = node
        self.parallel = parallel
        self.leave = leave
        self.breaks: list[set[str] | None] = []
        self.continues: list[set[str] | None] = []


class Frame:
    """One function being lowered: the kernel, or one inlined call of a device function."""

    def __init__(self, source: Source, bindings: Bindings, caller: Loc | None, prefix: str) -> None:
        self.source = source
        self.bindings = bindings
        self.caller = caller
        self.prefix = prefix
        self.names: dict[str, Binding] = {}
        self.local_names: frozenset[str] = frozenset()
        # Names assigned on every path to here; None where no path leads here.
        self.assigned: set[str] | None = set()
        # For a local that is not assigned on every path: where it was assigned, to say so.
        self.assigned_at: dict[str, ast.AST] = {}
        self.ended_loops: dict[str, ast.AST] = {}
        self.loops: list[Loop] = []
        # Of an inlined function: where a return goes, the locals that take its values, and their count.
        self.label = ""
        self.results: list[Variable | Components] | None = None
        self.result_count: int | None = None

    def snapshot(self) -> set[str] | None:
        return None if self.assigned is None else set(self.assigned)

    def join(self, *states: set[str] | None) -> None:
        """Continues after several paths meet: assigned is what all reachable ones assigned."""
        reachable = [s for s in states if s is not None]
        self.assigned = set.intersection(*reachable) if reachable else None


def targets(body: Iterable[ast.stmt], loops: bool = True) -> Iterator[ast.expr]:
    """What statements assign, elements of tuples one by one; without ``loops``, not their variables.

    Looks into the statements that kernels have; the others are rejected wherever they stand.
    """
    stack = list(body)
    while stack:
        stmt = stack.pop()
        found: list[ast.expr] = []
        if isinstance(stmt, ast.Assign):
            found = list(stmt.targets)
        elif isinstance(stmt, (ast.AugAssign, ast.AnnAssign)):
            found = [stmt.target]
        elif isinstance(stmt, (ast.For, ast.While, ast.If)):
            if isinstance(stmt, ast.For) and loops:
                found = [stmt.target]
            stack += stmt.body
            stack += stmt.orelse
        while found:
            target = found.pop()
            if isinstance(target, (ast.Tuple, ast.List)):
                found += target.elts
            else:
                yield target


def assigned_names(body: Iterable[ast.stmt], loops: bool = True) -> frozenset[str]:
    """The names that statements assign, as Python decides which names are local."""
    return frozenset([t.id for t in targets(body, loops) if isinstance(t, ast.Name)])


def first_assignment(body: Iterable[ast.stmt], name: str, loops: bool = True) -> ast.stmt | None:
    """The first statement of ``body``'s text that assigns ``name``; ``loops`` as above."""
    for stmt in body:
        if name in assigned_names([stmt], loops):
            inner = [s for field in ("body", "orelse") for s in getattr(stmt, field, [])]
            return first_assignment(inner, name, loops) or stmt
    return None


def component_targets(body: Iterable[ast.stmt]) -> frozenset[str]:
    """The names whose elements or components statements assign: ``v`` of ``v.x = 1`` and ``v[0] += 1``."""
    names: set[str] = set()
    for target in targets(body):
        base = target
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            base = base.value
        if base is not target and isinstance(base, ast.Name):
            names.add(base.id)
    return frozenset(names)
