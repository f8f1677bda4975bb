"""The IR: what a kernel is between its Python text and the code generators.

A kernel is a tree of statements over pure expressions. Everything that has an effect (stores,
atomics, inlined calls) is a statement, so the order in which a backend evaluates the parts of
one expression cannot be observed. `docs/design/ir.md` gives the grammar and the invariants.

The same nodes serve two stages. A *template* is what lowering makes from source: types are None
except where the source fixes them, and array extents are symbolic. A *typed* kernel is what the
passes make for one combination of argument types: every expression has a type, conversions are
explicit `Cast` nodes, and every array access has one flat i64 index.

Nodes are never changed once built: a pass builds new nodes and shares what it keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tack.record import Record, inherited

if TYPE_CHECKING:
    from tack.dtypes import DType
    from tack.lang.source import Loc

__all__ = [
    "Array",
    "Assign",
    "Atomic",
    "Barrier",
    "Binary",
    "Bitcast",
    "Block",
    "BlockReduce",
    "Bounds",
    "Break",
    "Call",
    "Cast",
    "Compare",
    "Const",
    "Continue",
    "Dim",
    "Expr",
    "Fetch",
    "For",
    "If",
    "Kernel",
    "LaneId",
    "Leave",
    "Load",
    "Local",
    "LocalArray",
    "Logical",
    "Lookup",
    "Meet",
    "Node",
    "NonZero",
    "Parallel",
    "Param",
    "Parameter",
    "Print",
    "Range",
    "Sample",
    "Select",
    "Stmt",
    "Store",
    "Table",
    "Unary",
    "While",
]


# An annotation that names one of these is of a field that holds nodes.
_NODE_TYPES = ("Expr", "Stmt", "Range", "Parallel", "Parameter")


class Node(Record):
    """The base of all nodes.

    ``_fields`` lists a class's fields in constructor order, ``_children`` those that hold nodes
    (``_backwards`` from the last on), and ``_bodies`` those that hold statements.
    """

    _children: ClassVar[tuple[str, ...]]
    _backwards: ClassVar[tuple[str, ...]]
    _bodies: ClassVar[tuple[str, ...]] = ()
    loc: Loc | None = inherited(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        notes: dict[str, str] = vars(cls).get("__annotations__", {})
        cls._children = tuple(f for f in notes if any(kind in notes[f] for kind in _NODE_TYPES))
        cls._backwards = cls._children[::-1]
        cls._bodies = tuple(f for f in notes if "Stmt" in notes[f] or notes[f] == "Parallel")


class Expr(Node):
    """A pure expression: its only interaction with memory is `Load`."""

    type: DType | None = inherited(default=None, kw_only=True)


class Stmt(Node):
    """A statement."""


# --- expressions ------------------------------------------------------------------------------


class Const(Expr):
    """A number. Untyped in a template: an int literal, or a float literal that is still weak."""

    value: int | float


class Param(Expr):
    """The value of a scalar parameter, which never changes (lowering copies the assigned ones)."""

    name: str


class Local(Expr):
    """The value of a local variable."""

    name: str


class Dim(Expr):
    """The extent of an array along ``axis``, or its ``"size"`` or ``"ndim"``. Template only.

    ``axis`` may be negative, counting from the end. ``"len"`` is axis 0, refused for a 0-d array.
    """

    array: str
    axis: int | str


class Load(Expr):
    """An element of an array parameter or local array; of an array of vectors, one component.

    ``component`` counts the components row by row. It is part of the index in a typed kernel.
    """

    array: str
    index: tuple[Expr, ...]
    component: Expr | None = None


class Lookup(Expr):
    """An element of a constant table of the kernel, converted to ``type``; ``index`` is in range."""

    table: str
    index: Expr


class Bounds(Expr):
    """The flat i64 index of an access, checked in debug mode.

    It is the sum of each ``index`` times its stride. If an index is not in [0, extent), that is
    recorded, and the value is -1, which no access follows.
    """

    array: str
    index: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]


class NonZero(Expr):
    """``operand``, the divisor of an integer division; zero is recorded. Debug mode only."""

    operand: Expr


class Fetch(Expr):
    """The f32 value of ``texture`` at a position in texels, x first, from the texture unit."""

    texture: str
    position: tuple[Expr, ...]


class Unary(Expr):
    """``neg``, ``invert`` or ``not``."""

    op: str
    operand: Expr


class Meet(Expr):
    """``value`` in the type that it has in common with ``others``, which are not evaluated.

    It makes the components of a vector agree. Template only.
    """

    value: Expr
    others: tuple[Expr, ...]


class Binary(Expr):
    """``add sub mul div floordiv mod pow shl shr bitand bitor bitxor``."""

    op: str
    left: Expr
    right: Expr


class Compare(Expr):
    """``eq ne lt le gt ge``, giving i32 0 or 1."""

    op: str
    left: Expr
    right: Expr


class Logical(Expr):
    """``and`` or ``or`` of two truth values, giving i32 0 or 1; ``right`` only runs if it decides."""

    op: str
    left: Expr
    right: Expr


class Select(Expr):
    """A conditional expression: only the selected arm runs."""

    cond: Expr
    then: Expr
    orelse: Expr


class Call(Expr):
    """A builtin function of `tack.lang.builtins`, applied to scalars."""

    function: str
    args: tuple[Expr, ...]


class LaneId(Expr):
    """The number of the iteration in its workgroup, i32 from 0 to 255."""


class Cast(Expr):
    """A conversion to ``to``, as numerics.md section 2 defines it."""

    operand: Expr
    to: DType


class Bitcast(Expr):
    """The same bits read as ``to``, a type of the same width."""

    operand: Expr
    to: DType


# --- statements -------------------------------------------------------------------------------


class Assign(Stmt):
    """``target = value``, for a local variable."""

    target: str
    value: Expr


class Store(Stmt):
    """``array[index] = value``; ``component`` as of `Load`."""

    array: str
    index: tuple[Expr, ...]
    value: Expr
    component: Expr | None = None


class Atomic(Stmt):
    """An atomic update of one element; ``target``, if any, receives its value just before.

    ``op`` is ``add sub min max and or xor exchange`` with one operand, ``cas`` with the expected and
    the desired value, or ``load`` with none. ``component`` is as of `Load`. The array is a parameter, or
    for ``add`` a shared one.
    """

    target: str | None
    op: str
    array: str
    index: tuple[Expr, ...]
    operands: tuple[Expr, ...]
    component: Expr | None = None


class LocalArray(Stmt):
    """Declares an array private to each iteration, with unspecified contents.

    Its elements have ``width`` components each. A ``shared`` one is the whole workgroup's.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    width: int = 1
    shared: bool = False


class Sample(Stmt):
    """``target`` becomes the value of ``texture`` at a position in texels, x first. Template only.

    ``body`` computes the same without a texture unit.
    """

    target: str
    texture: str
    position: tuple[Expr, ...]
    body: tuple[Stmt, ...]


class Barrier(Stmt):
    """No iteration of the workgroup goes on before all are here, and see each other's stores."""


class BlockReduce(Stmt):
    """``target`` becomes the ``sum``, ``min`` or ``max`` of ``value`` over the workgroup, in every lane."""

    target: str
    op: str
    value: Expr


class Range(Node):
    """``start``, ``stop`` and ``step`` of a loop, evaluated once on entry."""

    start: Expr
    stop: Expr
    step: Expr


class For(Stmt):
    """A sequential loop. ``var`` is set anew at the start of each iteration."""

    var: str
    range: Range
    body: tuple[Stmt, ...]


class While(Stmt):
    cond: Expr
    body: tuple[Stmt, ...]


class If(Stmt):
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


class Break(Stmt):
    """Ends the innermost `For` or `While`."""


class Continue(Stmt):
    """Ends this iteration of the innermost `For` or `While`, or of the parallel loop."""


class Block(Stmt):
    """Statements that a `Leave` with the same label ends: the body of an inlined function."""

    label: str
    body: tuple[Stmt, ...]


class Leave(Stmt):
    """Goes to the end of the enclosing `Block` with this label, out of any loops in between."""

    label: str


class Print(Stmt):
    """Writes one line: strings and scalars, one directly after the other."""

    parts: tuple[str | Expr, ...]


# --- kernels ----------------------------------------------------------------------------------


class Array(Node):
    """An array argument's type in a typed kernel; its elements have ``width`` components each."""

    dtype: DType
    ndim: int
    width: int = 1


class Parameter(Node):
    """A parameter. ``type`` is an `Array`, a scalar's dtype, or None in a template.

    ``pinned`` is the dtype that the source's annotation gives a scalar parameter. ``width`` is the
    number of components of an array's elements, which a template is made for. ``texture`` says that
    the kernel samples it; in a typed kernel, that it does so with the texture unit.
    """

    name: str
    type: Array | DType | None = None
    pinned: DType | None = None
    width: int = 1
    texture: bool = False


class Table(Node):
    """A constant table, flattened: its exact values, and the dtype that the source fixed, if any."""

    values: tuple[int | float, ...]
    dtype: DType | None = None


class Parallel(Node):
    """The parallel loop. Its ranges stay symbolic: the host evaluates them at each launch."""

    vars: tuple[str, ...]
    ranges: tuple[Range, ...]
    body: tuple[Stmt, ...]


class Kernel(Node):
    """A kernel. ``before`` and ``after`` have no effects and may run any number of times.

    ``result``, evaluated once after the launch, is converted to ``result_type``. ``locals`` gives
    each local variable's type in a typed kernel, and is empty in a template. ``tables`` are the
    constant tables that its `Lookup` nodes name.
    """

    name: str
    params: tuple[Parameter, ...]
    before: tuple[Stmt, ...]
    loop: Parallel
    after: tuple[Stmt, ...]
    result: Expr | None
    result_type: DType | None
    locals: dict[str, DType]
    tables: dict[str, Table]
    typed: bool = False
    fastmath: bool = False
