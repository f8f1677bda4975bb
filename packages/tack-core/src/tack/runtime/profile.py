"""`tack.profile`: what the launches of each kernel cost while it is on.

Native dispatch is paused meanwhile: its calls run no Python that could look at a clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from tack.runtime import native

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.backend import Backend
    from tack.runtime.variants import Variant

__all__ = ["KernelProfile", "Profile", "note_variant", "running"]

# Those that are on. Replaced as a whole, so that a launch reads it without a lock.
_active: tuple[Profile, ...] = ()
_lock = threading.Lock()
_MAX_QUEUED = 1024  # launches of a kernel, before a profile waits for them


class KernelProfile:
    """What the launches of one kernel on one device cost.

    Attributes:
        kernel: its module and qualified name.
        device: the label of the device where it ran.
        launches: how often its code ran.
        seconds: how long its code ran, all launches together, without dispatch and compiling; on devices
            that queue launches by their own clock.
        shortest, longest: of one launch, in seconds.
        compiles: how many variants were compiled.
        compile_seconds: what that took, front end included.
        cache_hits: how many variants came from the disk cache.
        cache_seconds: what reading them took.
    """

    __slots__ = (
        *("cache_hits", "cache_seconds", "compile_seconds", "compiles", "device", "kernel", "launches"),
        *("_queued", "longest", "seconds", "shortest"),
    )

    def __init__(self, kernel: str, device: str) -> None:
        self.kernel = kernel
        self.device = device
        self.launches = self.compiles = self.cache_hits = 0
        self.seconds = self.shortest = self.longest = 0.0
        self.compile_seconds = self.cache_seconds = 0.0
        self._queued: list[tuple[Backend, Any, Any]] = []  # launches whose stamps lie ahead

    def __repr__(self) -> str:
        return f"<{self.kernel} on {self.device}: {self.launches} launches, {1e3 * self.seconds:.3f} ms>"

    def to_dict(self) -> dict[str, Any]:
        """The attributes, as JSON can hold them."""
        return {name: getattr(self, name) for name in sorted(self.__slots__) if name[0] != "_"}

    def _was_queued(self, backend: Backend, first: Any, last: Any) -> None:
        self._queued.append((backend, first, last))
        if len(self._queued) >= _MAX_QUEUED:
            self._settle()

    def _settle(self) -> None:
        """Waits for the launches that were queued, and counts them."""
        while self._queued:
            backend, first, last = self._queued.pop(0)
            self._ran(backend.elapsed(first, last))

    def _ran(self, seconds: float) -> None:
        self.shortest = min(self.shortest, seconds) if self.launches else seconds
        self.longest = max(self.longest, seconds)
        self.launches += 1
        self.seconds += seconds


@final
class Profile:
    """The kernels that ran while it was on, in the order in which they came; printing it gives a table.

    It counts the launches of all threads. Used again, it goes on counting.
    """

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, str], KernelProfile] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Profile:
        global _active
        with _lock:
            if self in _active:
                raise RuntimeError("this profile is on already; make another one with tack.profile()")
            _active = (*_active, self)
            native.pause()
        return self

    def __exit__(self, *_: object) -> None:
        global _active
        with _lock:
            _active = tuple(p for p in _active if p is not self)
            native.resume()

    @property
    def kernels(self) -> tuple[KernelProfile, ...]:
        """One entry for each kernel and device; waits for the launches that are queued."""
        with self._lock:
            for entry in self._kernels.values():
                entry._settle()
        return tuple(self._kernels.values())

    def to_dict(self) -> dict[str, Any]:
        """``{"kernels": [...]}`` with the attributes of each `KernelProfile`, as JSON can hold them."""
        return {"kernels": [entry.to_dict() for entry in self.kernels]}

    def __str__(self) -> str:
        total = sum(entry.seconds for entry in self.kernels)
        rows = [_HEADING, *(_row(entry, total) for entry in self.kernels)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = zip(row, widths, strict=True)
            lines.append("  ".join(c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(cells)))
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])

    def __repr__(self) -> str:
        launches = sum(entry.launches for entry in self.kernels)
        return f"<tack.profile: {len(self.kernels)} kernels, {launches} launches>"

    def _entry(self, kernel: Kernel, backend: Backend) -> KernelProfile:
        """With the lock held."""
        key = f"{kernel.__module__}.{kernel.__qualname__}", backend.label
        return self._kernels.setdefault(key, KernelProfile(*key))


_HEADING = (
    "kernel",
    "device",
    "launches",
    "total ms",
    "mean µs",
    "share",
    "compiled",
    "ms",
    "from disk",
    "ms",
)


def _row(entry: KernelProfile, total: float) -> tuple[str, ...]:
    return (
        entry.kernel,
        entry.device,
        str(entry.launches),
        f"{1e3 * entry.seconds:.3f}",
        f"{1e6 * entry.seconds / entry.launches:.1f}" if entry.launches else "-",
        f"{entry.seconds / total:.1%}" if total else "-",
        str(entry.compiles),
        f"{1e3 * entry.compile_seconds:.1f}",
        str(entry.cache_hits),
        f"{1e3 * entry.cache_seconds:.1f}",
    )


@contextmanager
def running(kernel: Kernel, backend: Backend) -> Iterator[None]:
    """Times its block, in which a launch of ``kernel`` runs, for the profiles that are on."""
    profiles = _active
    if not profiles:
        yield
        return
    start = backend.stamp()
    try:
        yield
    finally:
        end = backend.stamp()
        for profile in profiles:
            with profile._lock:
                entry = profile._entry(kernel, backend)
                if backend.queues_launches:
                    entry._was_queued(backend, start, end)
                else:
                    entry._ran(backend.elapsed(start, end))


def note_variant(kernel: Kernel, backend: Backend, variant: Variant) -> None:
    """Tells the profiles that are on of a variant that was compiled or read from the disk cache."""
    for profile in _active:
        with profile._lock:
            entry = profile._entry(kernel, backend)
            if variant.from_disk:
                entry.cache_hits += 1
                entry.cache_seconds += variant.seconds
            else:
                entry.compiles += 1
                entry.compile_seconds += variant.seconds


def note_seconds(kernel: Kernel, backend: Backend, seconds: float) -> None:
    """Tells the profiles that are on how long a variant was compiled in the background."""
    for profile in _active:
        with profile._lock:
            profile._entry(kernel, backend).compile_seconds += seconds
