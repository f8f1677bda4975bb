"""What launches need of a kernel's template: facts that depend on its source only.

They are data, which the disk cache keeps beside the IR, so that a kernel found there launches
without its IR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tack.dtypes import ALL_DTYPES, DType
from tack.runtime.ranges import range_data, range_function

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.ir.passes.resolve_dims import Need
    from tack.lang.lowered import Lowered
    from tack.lang.source import Loc
    from tack.runtime.bounds import Bounds

__all__ = [
    "TemplateFacts",
    "TemplateParam",
    "atomic_params",
    "facts_of_template",
    "stored_params",
    "written_params",
]

_DTYPES = {d.name: d for d in ALL_DTYPES}


def written_params(kernel: ir.Kernel) -> tuple[tuple[int, str], ...]:
    """Position and name of each array parameter that the kernel stores to or updates."""
    from tack.ir import nodes as ir

    return _targets(kernel, (ir.Store, ir.Atomic))


def stored_params(kernel: ir.Kernel) -> tuple[tuple[int, str], ...]:
    """Position and name of each array parameter that it stores to other than atomically."""
    from tack.ir import nodes as ir

    return _targets(kernel, (ir.Store,))


def _targets(kernel: ir.Kernel, kinds: tuple[type[ir.Store | ir.Atomic], ...]) -> tuple[tuple[int, str], ...]:
    from tack.ir.traversal import nodes_of

    targets = {node.array for kind in kinds for node in nodes_of(kernel, kind)}
    return tuple((k, p.name) for k, p in enumerate(kernel.params) if p.name in targets)


def atomic_params(kernel: ir.Kernel) -> tuple[tuple[int, str, int], ...]:
    """Position, name and alignment of each array parameter that the kernel updates atomically."""
    from tack.ir import nodes as ir

    types = [p.type for p in kernel.params]
    found = []
    for k, name in _targets(kernel, (ir.Atomic,)):
        kind = types[k]
        if isinstance(kind, ir.Array):
            found.append((k, name, kind.dtype.itemsize))
    return tuple(found)


def facts_of_template(template: ir.Kernel) -> dict[str, Any]:
    """The facts of a template, as JSON can hold them.

    Raises:
        UnsupportedSyntaxError: the host cannot compute the bound of the parallel loop.
    """
    from tack.ir import nodes as ir
    from tack.ir.passes.resolve_dims import dims_needed
    from tack.ir.traversal import accesses, nodes_of
    from tack.ir.workgroups import primitives

    positions = {p.name: k for k, p in enumerate(template.params)}
    arrays = {n.array for n in nodes_of(template, ir.Dim)} | {n.array for n in accesses(template)}
    return {
        "params": [[p.name, None if p.pinned is None else p.pinned.name, p.texture] for p in template.params],
        "needs": [[positions[name], name, axis] for name, axis in dims_needed(template)],
        "written": [k for k, _ in written_params(template)],
        "stored": [name for _, name in stored_params(template)],
        "primitives": list(primitives(template)),
        "arrays": sorted(positions[n] for n in arrays if n in positions),
        "ranges": range_data(template),
    }


class TemplateParam:
    """A parameter of a template; its place is found when an error shows it."""

    __slots__ = ("_lowered", "name", "pinned", "position", "texture")

    def __init__(self, lowered: Lowered, position: int, name: str, pinned: str | None, texture: bool) -> None:
        self._lowered = lowered
        self.position = position
        self.name = name
        self.pinned: DType | None = None if pinned is None else _DTYPES[pinned]
        self.texture = texture

    @property
    def loc(self) -> Loc | None:
        return self._lowered.ir.params[self.position].loc


class TemplateFacts:
    """What variants need of a template, found once: it depends on the source only."""

    __slots__ = (
        *("arrays", "bounds", "lowered", "names", "needs", "params", "pinned", "positions", "primitives"),
        *("ranges", "seconds", "stored", "textures", "written"),
    )

    def __init__(self, lowered: Lowered) -> None:
        self.seconds = 0.0  # that lowering took, until the first variant counts them as its own
        data = lowered.facts or facts_of_template(lowered.ir)
        self.lowered = lowered
        self.params = tuple(TemplateParam(lowered, k, *p) for k, p in enumerate(data["params"]))
        self.textures = tuple(p.texture for p in self.params)
        self.names = tuple(p.name for p in self.params)
        self.positions = {name: k for k, name in enumerate(self.names)}
        self.needs: tuple[tuple[int, Need], ...] = tuple((k, (name, axis)) for k, name, axis in data["needs"])
        self.written: tuple[int, ...] = tuple(data["written"])
        self.stored: tuple[str, ...] = tuple(data["stored"])
        self.pinned = tuple((p.position, p) for p in self.params if p.pinned and p.pinned.is_integer)
        self.primitives: tuple[str, ...] = tuple(data["primitives"])
        self.arrays = frozenset(data["arrays"])
        self.ranges: list[Any] | None = data["ranges"]
        self.bounds: Bounds
        if data["ranges"] is None:
            from tack.runtime.bounds import compile_bounds

            self.bounds = compile_bounds(lowered.ir)
        else:
            self.bounds = range_function(data["ranges"])
