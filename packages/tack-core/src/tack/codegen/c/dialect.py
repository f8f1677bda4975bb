"""What differs between the languages of the C family. `Dialect` is what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tack.dtypes import DType
from tack.record import Record

__all__ = ["Dialect", "Head", "Slot"]


class Slot(Record):
    """A parameter of a kernel function: its type, up to the name, and the name."""

    type: str
    name: str
    is_texture: bool = False

    @property
    def text(self) -> str:
        return f"{self.type}{self.name}"


class Head(Record):
    """How a kernel function begins: lines before it, its head, and the first lines of its body."""

    text: str
    before: Sequence[str] = ()
    first: Sequence[str] = ()


class Dialect:
    """A language. Subclasses say how it spells what `tack.codegen.c` emits.

    Attributes:
        name: of the language, for people.
        types: the C type of each scalar type that the language has, by its name.
        prelude: what a unit starts with.
        may_alias: the attribute of a type whose elements may be read and written as another one's, because
            arrays may overlap; empty where the compiler takes all types so.
        suffixes: of integer literals, by type.
        entry, function: the qualifiers of a kernel and of the functions that it calls.
        constant, shared: of a constant table and of a workgroup's array.
        max_constant_bytes: what fits in constant memory; larger tables are in global memory, with the
            qualifiers ``constant_global``.
        max_shared_bytes, max_local_bytes: what the shared arrays of a workgroup, and the local ones of an
            iteration, may take.
        global_space, shared_space: before the type of an element that a pointer points to.
        texture: the type of a texture's handle.
        sampler: what a unit with textures defines before its functions.
        fence: the statement that orders a thread's memory accesses for the others.
        restrict: the qualifier of a pointer that shares no element with the others.
        barrier: the statement.
        unrolled, rolled: the line before a loop that is to be unrolled, or that is not to be.
        atomic_dtypes: names of the element types that atomics work on.
        has_float_atomics: whether ``add`` is among those on floats.
        has_long_atomics: whether there are atomics on numbers of 64 bits for our own records.
        has_shuffles: whether `shuffle_down` exists.
        has_goto: whether there is that statement.
        has_print: whether ``print`` does anything.
        precise_options, fast_options: what the compiler is told for a kernel without and with
            ``fastmath=True``.
        functions: the names of builtin functions where they differ from C's; ``"f32"`` ones then have no
            suffix of their own.
        library: functions that a unit gets if it calls them, by name. One may call those before it.
        reserved: identifiers that a kernel's variables must not have.
    """

    name: str
    types: ClassVar[dict[str, str]]
    suffixes: ClassVar[dict[str, str]] = {"u32": "u", "i64": "ll", "u64": "ull"}
    prelude: str = ""
    may_alias: str = " __attribute__((__may_alias__))"
    entry: str
    function: str
    constant: str
    constant_global: str
    max_constant_bytes: int
    shared: str
    max_shared_bytes: int
    max_local_bytes: int
    global_space: str = ""
    shared_space: str = ""
    texture: str
    sampler: str = ""
    fence: str
    restrict: str
    barrier: str
    unrolled: str
    rolled: str
    atomic_dtypes: tuple[str, ...]
    has_float_atomics: bool = True
    has_long_atomics: bool = True
    has_shuffles: bool = True
    has_goto: bool = True
    has_print: bool = True
    precise_options: tuple[str, ...] = ()
    fast_options: tuple[str, ...] = ()
    functions: ClassVar[dict[str, str]] = {}
    library: ClassVar[dict[str, str]] = {}
    reserved: frozenset[str]

    def math(self, name: str, dtype: DType) -> str:
        """The name of a function of C's ``math.h`` in the precision of ``dtype``."""
        name = self.functions.get(name, name)
        return f"{name}f" if dtype.bits == 32 else name

    def kernel(self, name: str, block: tuple[int, int, int], slots: Sequence[Slot], groups: int = 1) -> Head:
        """How a kernel function begins, of which a processor should hold ``groups`` blocks."""
        listed = ",\n    ".join(slot.text for slot in slots)
        return Head(f"{self.entry} void {self.bounds(block, groups)} {name}(\n    {listed})")

    def bounds(self, block: tuple[int, int, int], groups: int = 1) -> str:
        """What a kernel function says of the size of its blocks, and how many a processor should hold."""
        raise NotImplementedError

    def block_index(self, axis: int) -> str:
        raise NotImplementedError

    def thread_index(self, axis: int) -> str:
        raise NotImplementedError

    def block_size(self, axis: int) -> str:
        """The number of threads of a block along an axis."""
        raise NotImplementedError

    def grid_size(self, axis: int) -> str:
        """The number of blocks along an axis."""
        raise NotImplementedError

    def table_length(self, count: int) -> int:
        """How many elements a constant table of ``count`` values has; those after them are zero."""
        return count

    def fetch(self, texture: str, position: Sequence[str]) -> str:
        """The value of a texture at a position in texels, x first; 0 is the centre of the first."""
        raise NotImplementedError

    def opaque(self, text: str, dtype: DType) -> str:
        """A negated number of fewer than 32 bits, of which a compiler must not see that it is one."""
        return text

    def bitcast(self, text: str, source: DType, to: DType) -> str:
        """The bits of a number of ``source`` read as ``to``, one of the two a float and one an integer."""
        raise NotImplementedError

    def count(self, name: str, text: str, bits: int) -> str:
        """``popcount``, ``clz`` or ``ctz`` of an unsigned number of 32 or 64 bits."""
        raise NotImplementedError

    def truncate(self, source: DType, to: DType) -> str | None:
        """A function from floats to integers that saturates and gives 0 for NaN, if there is one."""
        return None

    def shuffle_down(self, value: str, distance: str) -> str:
        """The value that the lane ``distance`` higher in the warp has."""
        raise NotImplementedError

    def atomic_load(self, address: str, dtype: DType) -> str:
        """A relaxed load, which sees what other workgroups store."""
        return f"*({self.global_space}volatile {dtype} *)({address})"

    def shared_add(self, address: str, operand: str) -> str:
        """An atomic addition of u32 to an element of a shared array, whose value is the old element."""
        raise NotImplementedError

    def atomic(self, op: str, dtype: DType, address: str, *operands: str) -> str:
        """A relaxed atomic operation on a ``dtype``, whose value is the old element: ``min`` and ``max`` of
        integers, ``add`` of floats (`has_float_atomics`) and unsigned numbers, others of unsigned ones."""
        raise NotImplementedError
