"""Compiled kernels: what launches need to know of them besides the machine code."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tack.runtime.debug import HIDDEN
from tack.runtime.slots import DTYPES, MAX_ITERATIONS, print_site, print_template, slot_format

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.runtime.array import Array

__all__ = ["MAX_BLOCKS", "Program", "describe"]

MAX_BLOCKS: Final = ((1 << 31) - 1, 65_535, 65_535)  # of a grid, along x, y and z


def describe(kernel: ir.Kernel, source: Any) -> dict[str, Any]:
    """What launches need of a typed kernel besides its machine code, as data for the disk cache.

    ``source`` is its `tack.codegen.c.Source`.
    """
    from tack.codegen.llvm import check_sites, print_sites
    from tack.ir.workgroups import primitives

    geometry = source.geometry
    prints = [print_template(site) for site in print_sites(kernel)] if source.prints else []
    return {
        "name": kernel.name,
        "slots": slot_format(kernel, bool(prints)),
        "entry": source.entry,
        "result": source.result,
        "result_dtype": None if kernel.result is None else str(kernel.result_type),
        "block": list(geometry.block),
        "items": list(geometry.items),
        "flat": geometry.flat,
        "strides": not primitives(kernel),
        "prints": prints,
        "textures": [k for k, p in enumerate(kernel.params) if p.texture],
        "record": [p.name for p in kernel.params].index(HIDDEN[1]) if check_sites(kernel) else None,
    }


class Program(ABC):
    """A variant's machine code: what ``Variant.payload`` is on a GPU.

    Attributes:
        about: what `describe` gives.
        artifact: the machine code, until it has been stored.
        name: the kernel's.
        block, items, flat: see `tack.codegen.c.source.Geometry`.
        most_blocks: of a grid, along each axis.
        most: iterations of a launch.
        slots: how a call's arguments are packed.
        textures: the positions of the arguments that texture units sample.
        prints: the print statements.
        checks, record: in debug mode, the places that are checked, and the position of the hidden argument
            that receives a violation.
        result_dtype: of the return expression, or None.
    """

    __slots__ = (
        *("__weakref__", "about", "artifact", "block", "checks", "flat", "items", "most", "most_blocks"),
        *("name", "prints", "record", "result_dtype", "slots", "textures"),
    )

    max_threads: ClassVar[int | None] = None  # along an axis of a grid

    def __init__(
        self,
        about: dict[str, Any],
        artifact: bytes,
        checks: Sequence[Any],
        max_blocks: tuple[int, int, int] = MAX_BLOCKS,
    ) -> None:
        """``max_blocks``: what a grid of the device may have along each axis."""
        self.about = about
        self.artifact: bytes | None = artifact
        self.name: str = about["name"]
        self.block: tuple[int, int, int] = tuple(about["block"])
        self.items: tuple[int, int, int] = tuple(about["items"])
        self.flat: bool = about["flat"]
        x, y, z = max_blocks
        if self.max_threads is not None:
            x, y, z = (
                min(n, self.max_threads // size) for n, size in zip((x, y, z), self.block, strict=True)
            )
        self.most_blocks = x, y, z
        self.most: int = MAX_ITERATIONS if about["strides"] else x * self.block[0] * self.items[0]
        self.slots = struct.Struct(about["slots"])
        self.textures: list[int] = about["textures"]
        self.prints = [print_site(template) for template in about["prints"]]
        self.checks = checks
        self.record: int = about["record"] or 0
        dtype = about["result_dtype"]
        self.result_dtype = None if dtype is None else DTYPES[dtype]

    @property
    def is_plain(self) -> bool:
        """Whether nobody looks at anything after a launch, and its arguments are numbers and arrays."""
        return not (self.prints or self.checks or self.textures or self.result_dtype is not None)

    def grid(self, launch: Sequence[int], total: int) -> tuple[int, int, int]:
        """The number of blocks along each axis; see `docs/design/cuda.md`."""
        counts = [total] if self.flat else list(launch[-1:0:-3])  # the last dimension first
        blocks = [
            min(-(-count // (size * items)), most)
            for count, size, items, most in zip(
                counts + [1] * (3 - len(counts)), self.block, self.items, self.most_blocks, strict=True
            )
        ]
        return blocks[0], blocks[1], blocks[2]

    @abstractmethod
    def launch(self, slots: bytes, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        """Queues a launch. ``slots`` are copied; ``args`` are the values that were packed into them."""

    @abstractmethod
    def evaluate(self, slots: bytes, out: Array, args: Sequence[Any]) -> None:
        """Queues the evaluation of the return expression into ``out``, an array of one element."""
