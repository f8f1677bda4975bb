"""A translation unit for one typed kernel: its iteration, the kernel function, and ``result``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from tack.codegen.c.dialect import Dialect, Slot
from tack.codegen.c.early import early_loads
from tack.codegen.c.emitter import Emitter, Unit
from tack.codegen.c.expressions import dtype_of, text, value
from tack.codegen.c.grid import Tile, geometry, iterations, positions
from tack.codegen.c.operators import convert
from tack.codegen.c.printing import BUFFER
from tack.codegen.c.scopes import declarations, reads
from tack.codegen.c.source import Source
from tack.codegen.c.statements import statements
from tack.codegen.c.workgroups import scratch_arrays
from tack.codegen.sites import check_sites, print_sites
from tack.dtypes import DType
from tack.errors import diagnostic
from tack.ir.nodes import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Const,
    Fetch,
    Kernel,
    Load,
    LocalArray,
    Node,
    Param,
    Stmt,
    Store,
)
from tack.ir.passes.localize import assigned
from tack.ir.passes.participation import participation
from tack.ir.traversal import walk, walk_statements
from tack.ir.workgroups import WORKGROUP, primitives

__all__ = ["generate"]


def generate(kernel: Kernel, dialect: Dialect, *, disjoint: bool = False) -> Source:
    """The source of a typed kernel.

    Args:
        kernel: a verified typed kernel.
        dialect: the language to write.
        disjoint: whether no array that the kernel writes overlaps another of its arrays.

    Raises:
        ValueError: the kernel's local or shared arrays take more than there is, or not all lanes are
            proven to reach a barrier.
        TypeError: an atomic on elements for which the language has none.
    """
    module = _Module(kernel, dialect, disjoint)
    grouped = bool(primitives(kernel))
    if grouped:
        participation(kernel)
    functions = module.group_functions() if grouped else module.grid_functions()
    if kernel.result is not None:
        functions.append(module.result_function())
    return Source(
        module.unit.text(functions),
        module.entry,
        module.result if kernel.result is not None else None,
        module.geometry,
        module.prints,
        dialect.fast_options if kernel.fastmath else dialect.precise_options,
    )


# Where shared arrays leave room for a few groups only, registers are to leave room for three as well: so many
# hide each other's waits, and a compiler that does not know takes more registers than it gains by.
_CROWDED, _CROWD = 40 << 10, 3


class _Module:
    """The names of a translation unit that its functions share, and how each function is written."""

    def __init__(self, kernel: Kernel, dialect: Dialect, disjoint: bool) -> None:
        self.kernel = kernel
        self.dialect = dialect
        self.disjoint = disjoint
        nodes = list(walk(kernel))
        self.inside = list(walk(kernel.loop))  # the nodes of the loop, of which large kernels have many
        prints, checks = print_sites(kernel), check_sites(kernel)
        self.prints, self.checked = bool(prints) and dialect.has_print, bool(checks)
        sites = [*enumerate(prints), *enumerate(checks)]
        self.unit = Unit(kernel, dialect, {id(site): number for number, site in sites})
        self.written = {n.array for n in nodes if isinstance(n, Store | Atomic)}
        self.arrays = [n for n in walk_statements(kernel) if isinstance(n, LocalArray)]
        self.buffer = Slot(f"{dialect.global_space}u64 *", BUFFER)
        self.scratch = scratch_arrays(kernel, dialect)
        self.check_types(nodes)
        self.groups = _CROWD if self.check_sizes() >= _CROWDED else 1
        self.geometry = geometry(kernel, self.inside, self.checked)
        names = self.unit.names
        self.entry, self.result = names.fresh(f"{kernel.name}_kernel"), names.fresh(f"{kernel.name}_result")
        # Start, step and count of each dimension; parameters come first, so that they keep their names.
        self.textures = {p.name for p in kernel.params if p.texture}
        self.params = {p.name: p.type for p in kernel.params if p.type is not None and names[p.name]}
        self.dims = [[names.fresh(f"{v}_{part}") for part in _PARTS] for v in kernel.loop.vars]
        self.counts = [count for _, _, count in self.dims]

    def check_types(self, nodes: Iterable[Node]) -> None:
        """Refuses a kernel that computes in a type that the language does not have."""
        types = self.dialect.types
        for node in nodes:
            used = node.dtype if isinstance(node, LocalArray) else getattr(node, "type", None)
            if isinstance(used, DType) and used.name not in types:
                message = f"{self.dialect.name} does not have the type {used}"
                raise diagnostic(TypeError, message, node.loc, kernel=self.kernel.name)

    def check_sizes(self) -> int:
        """The size of the shared arrays; refuses a kernel whose arrays are too large."""
        d = self.dialect
        scratch = sum(dtype.itemsize * size for dtype, size in self.scratch.values())
        for shared, extra, limit in ((False, 0, d.max_local_bytes), (True, scratch, d.max_shared_bytes)):
            arrays = [node for node in self.arrays if node.shared is shared]
            total = extra + sum(_size(node) * node.dtype.itemsize for node in arrays)
            if total > limit:
                kind = "shared" if shared else "local"
                message = f"{kind} arrays take {total} bytes; {d.name} has at most {limit}"
                place = arrays[0].loc if arrays else self.kernel.loc
                raise diagnostic(ValueError, message, place, kernel=self.kernel.name)
        return total

    # --- parameters ---

    def slot(self, name: str, restrict: str = "") -> Slot:
        """A parameter."""
        kind, own = self.params[name], self.unit.names[name]
        if isinstance(kind, DType):
            return Slot(f"{kind} ", own)
        if name in self.textures:
            return Slot(f"{self.dialect.texture} ", own, is_texture=True)
        const = "" if name in self.written or name.startswith("debug.") else "const "
        return Slot(f"{self.dialect.global_space}{const}{kind.dtype} *{restrict}", own)

    @contextmanager
    def kernel_function(
        self,
        fn: Emitter,
        name: str,
        block: tuple[int, int, int],
        restrict: str = "",
        extra: Iterable[Slot] = (),
    ) -> Iterator[None]:
        """A function that launches call, whose parameters are their slots."""
        slots = [self.slot(p, restrict) for p in self.params]
        slots += [Slot("i64 ", name) for dimension in self.dims for name in dimension]
        slots += [self.buffer] if self.prints else []
        head = self.dialect.kernel(name, block, [*slots, *extra], self.groups)
        for line in head.before:
            fn.line(line)
        with fn.function(head.text):
            for line in head.first:
                fn.line(line)
            yield

    def entry_function(self, fn: Emitter) -> AbstractContextManager[None]:
        restrict = f"{self.dialect.restrict} " if self.disjoint and self.dialect.restrict else ""
        return self.kernel_function(fn, self.entry, self.geometry.block, restrict)

    # --- functions ---

    def grid_functions(self) -> list[str]:
        """The function of an iteration, and the kernel function, which calls it."""
        kernel, unit = self.kernel, self.unit
        names, body = unit.names, kernel.loop.body
        used = {n.name for n in self.inside if isinstance(n, Param)}
        used |= {n.array for n in self.inside if isinstance(n, Load | Store | Atomic)}
        used |= {n.texture for n in self.inside if isinstance(n, Fetch)}
        passed = [p for p in self.params if p in used or p.startswith("debug.")]
        in_body = _names_in(body) - {*kernel.loop.vars}
        carried = [name for name in assigned(kernel.before) if name in in_body]
        early = early_loads(kernel, self.disjoint) if max(self.geometry.items) > 1 else []
        values = [names.fresh(f"{loads[0].array}_value") for loads in early]

        fn = Emitter(unit)
        fn.iteration = "tack_number" if self.checked else None
        fn.loaded = {id(load): name for name, loads in zip(values, early, strict=True) for load in loads}
        head = [self.slot(p).text for p in passed]
        head += [self.buffer.text] if self.prints else []
        head += ["i64 tack_number"] if self.checked else []
        head += [f"{unit.arrays[loads[0].array]} {name}" for name, loads in zip(values, early, strict=True)]
        head += [f"{fn.local_type(name)} {names[name]}" for name in (*carried, *kernel.loop.vars)]
        with fn.function(f"{self.dialect.function} void tack_iteration({', '.join(head)})"):
            self.begin(fn, body, (*carried, *kernel.loop.vars))
            statements(fn, body)

        entry = Emitter(unit)
        first = [names[p] for p in passed] + ([BUFFER] if self.prints else [])
        if self.checked:
            first.append("tack_number" if len(self.dims) > 1 else "tack_at0")
        iteration = _Iteration(self, entry, first, early, values, [names[name] for name in carried])
        with self.entry_function(entry):
            self.begin(entry, kernel.before)
            statements(entry, kernel.before)
            iterations(entry, self.geometry, self.counts, iteration)
        return [fn.text(), entry.text()]

    def group_functions(self) -> list[str]:
        """The kernel function of a kernel that uses workgroups: each thread has one iteration."""
        kernel, names = self.kernel, self.unit.names
        body = (*kernel.before, *kernel.loop.body)
        fn = Emitter(self.unit)
        fn.lane, fn.iteration = "tack_lane", "tack_number" if self.checked else None
        with self.entry_function(fn):
            fn.line(f"const i32 tack_lane = {self.dialect.thread_index(0)};")
            fn.line(f"const i64 tack_number = (i64){self.dialect.block_index(0)} * {WORKGROUP} + tack_lane;")
            for name, (dtype, size) in self.scratch.items():
                fn.line(f"{self.dialect.shared} {dtype} {name}[{size}];")
            if not any(
                isinstance(n, Barrier | BlockReduce) for n in self.inside
            ):  # which are for whole groups
                fn.line(f"if (tack_number >= {' * '.join(self.counts)})")
                fn.line("    return;")
            at = [f"tack_at{axis}" for axis in range(len(self.dims))]
            positions(fn, self.counts, at, "tack_number")
            self.begin(fn, body, kernel.loop.vars)
            early = [name for name in kernel.loop.vars if name in _names_in(kernel.before)]
            for name in early:
                fn.line(f"i64 {names[name]} = 0;")
            statements(fn, kernel.before)
            for name, term in zip(kernel.loop.vars, self.variables(at), strict=True):
                fn.line(f"{names[name]} = {term};" if name in early else f"i64 {names[name]} = {term};")
            statements(fn, kernel.loop.body)
        return [fn.text()]

    def result_function(self) -> str:
        """The function of one thread that writes the return expression's value."""
        kernel = self.kernel
        assert kernel.result is not None
        assert kernel.result_type is not None
        body = (*kernel.before, *kernel.after)
        fn = Emitter(self.unit)
        out = Slot(f"{self.dialect.global_space}{kernel.result_type} *", "tack_out")
        with self.kernel_function(fn, self.result, (1, 1, 1), extra=[out]):
            self.begin(fn, (*body, Assign("", kernel.result)), ("",))
            statements(fn, body)
            found = convert(fn, value(fn, kernel.result), dtype_of(kernel.result), kernel.result_type)
            fn.line(f"*tack_out = {found.text};")
        return fn.text()

    def begin(self, fn: Emitter, body: tuple[Stmt, ...], outer: Iterable[str] = ()) -> None:
        """What ``body`` has declared where its function starts. ``outer`` are declared already."""
        fn.declarations = declarations(body, {*outer})
        for name in fn.declarations.top:
            fn.line(f"{fn.local_type(name)} {fn.name(name)} = 0;")
        used = set()
        if self.arrays:
            used = {n.array for s in body for n in walk(s) if isinstance(n, Load | Store | Atomic)}
        for node in self.arrays:
            if node.name in used:
                self.unit.arrays[node.name] = node.dtype
                if node.shared:
                    self.unit.shared.add(node.name)
                qualifier = f"{self.dialect.shared} " if node.shared else ""
                # A value from the start, so that reading an element that nothing has stored is defined.
                initial = "" if node.shared else " = {0}"
                fn.line(f"{qualifier}{node.dtype} {fn.name(node.name)}[{_size(node)}]{initial};")

    def variables(self, at: Sequence[str]) -> list[str]:
        """The loop variables' values, given the position along each dimension."""
        found = []
        for bounds, (start, step, _), position in zip(self.kernel.loop.ranges, self.dims, at, strict=True):
            unit_step, from_zero = _is_constant(bounds.step, 1), _is_constant(bounds.start, 0)
            if unit_step:
                found.append(position if from_zero else f"(u64){start} + {position}")
            else:
                found.append(f"(u64){position} * {step}" + ("" if from_zero else f" + {start}"))
        return found


class _Iteration(Tile):
    """An iteration as a call, whose arguments are loaded early in a whole tile."""

    def __init__(
        self,
        module: _Module,
        entry: Emitter,
        first: list[str],
        early: Sequence[list[Load]],
        values: Sequence[str],
        carried: list[str],
    ) -> None:
        self.module = module
        self.entry = entry
        self.first = first
        self.early = early
        self.values = values
        self.carried = carried

    def call(self, loaded: Sequence[str], variables: Sequence[str]) -> None:
        arguments = [*self.first, *loaded, *self.carried, *variables]
        self.entry.line(f"tack_iteration({', '.join(arguments)});")

    def run(self, at: Sequence[str]) -> None:
        if not self.early:
            self.call((), self.module.variables(at))
            return
        variables = self.declare(at)
        self.call([text(self.entry, loads[0]) for loads in self.early], variables)

    def declare(self, at: Sequence[str]) -> list[str]:
        """Gives the loop variables their names and values."""
        variables = [self.module.unit.names[name] for name in self.module.kernel.loop.vars]
        for name, value_text in zip(variables, self.module.variables(at), strict=True):
            self.entry.line(f"const i64 {name} = {value_text};")
        return variables

    def begin(self, items: int) -> bool:
        for name, loads in zip(self.values, self.early, strict=True):
            self.entry.line(f"{self.module.unit.arrays[loads[0].array]} {name}[{items}];")
        return bool(self.early)

    def load(self, at: Sequence[str], item: str) -> None:
        self.declare(at)
        for name, loads in zip(self.values, self.early, strict=True):
            self.entry.line(f"{name}[{item}] = {text(self.entry, loads[0])};")

    def run_loaded(self, at: Sequence[str], item: str) -> None:
        self.call([f"{name}[{item}]" for name in self.values], self.module.variables(at))


_PARTS = ("start", "step", "count")


def _names_in(body: Iterable[Node]) -> set[str]:
    """The locals that something in ``body`` reads or assigns."""
    parts = list(body)
    return set().union(*map(reads, parts)) | assigned(parts).keys()


def _is_constant(node: Node, expected: int) -> bool:
    return isinstance(node, Const) and node.value == expected


def _size(node: LocalArray) -> int:
    """The number of elements of a local array; its shape is constants in a typed kernel."""
    size = node.width
    for extent in node.shape:
        assert isinstance(extent, Const)
        size *= int(extent.value)
    return size
