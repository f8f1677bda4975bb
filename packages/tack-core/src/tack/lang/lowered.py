"""A kernel's IR template as a process has it: lowered here, or read from the disk cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.lang.source import Source

__all__ = ["Lowered"]


class Lowered:
    """A template whose IR is read when it is first asked for; most launches need its facts only.

    Attributes:
        from_disk: whether the disk cache had it.
        facts: what `tack.runtime.facts` keeps of the template, or None: ask the IR.
        identity: the digest of all that the template was made from, or None: not to be cached.
        sources: of each function that it was made from, in the order of its record. The functions
            themselves may lead back to the kernel, which nothing compiled may keep alive.
    """

    __slots__ = ("_ir", "_read", "facts", "from_disk", "identity", "sources")

    def __init__(
        self,
        template: ir.Kernel | None = None,
        read: Callable[[], ir.Kernel] | None = None,
        *,
        facts: dict[str, Any] | None = None,
        identity: str | None = None,
        sources: Sequence[Source | None] = (),
    ) -> None:
        self._ir = template
        self._read = read
        self.from_disk = read is not None
        self.facts = facts
        self.identity = identity
        self.sources = sources

    @property
    def ir(self) -> ir.Kernel:
        if self._ir is None:
            assert self._read is not None
            self._ir, self._read = self._read(), None
        return self._ir
