"""`Device`: the value that names where arrays live and kernels run."""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from tack.dtypes import DType
from tack.runtime import native

if TYPE_CHECKING:
    from tack.runtime.backend import Backend

__all__ = ["Device", "as_device", "entered_device"]

# The devices of the enclosing `with` blocks of this thread or task, outermost first.
_entered: Final[ContextVar[tuple[Device, ...]]] = ContextVar("tack_device", default=())


class Device:
    """A device, made by ``tack.device``. Devices are equal when they share a backend.

    ``with device:`` makes it the default for the block, in this thread and in this async task only.
    """

    __slots__ = ("__weakref__", "_backend")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        """The device type: ``"cpu"``, ``"cuda"``, ``"hip"``, ``"level_zero"`` or ``"metal"``."""
        return self._backend.name

    @property
    def index(self) -> int:
        """Which of the type's devices."""
        return self._backend.ordinal

    @property
    def label(self) -> str:
        """The device as messages write it."""
        return self._backend.label

    @property
    def supported_dtypes(self) -> tuple[DType, ...]:
        """The element types that its arrays may have."""
        return self._backend.supported_dtypes

    @property
    def supported_atomic_dtypes(self) -> tuple[DType, ...]:
        """The element types that atomics may update."""
        return self._backend.supported_atomic_dtypes

    @property
    def supports_f64(self) -> bool:
        return self._backend.supports_f64

    @property
    def supports_workgroups(self) -> bool:
        """Whether kernels may use shared memory, barriers and lane ids."""
        return self._backend.supports_workgroups

    @property
    def supports_print(self) -> bool:
        """Whether ``print`` in kernels prints; on other devices it does nothing."""
        return self._backend.supports_print

    @property
    def supports_device_reductions(self) -> bool:
        """Whether ``Array.sum`` and friends run on the device rather than in NumPy."""
        return self._backend.supports_device_reductions

    @property
    def memory_spaces(self) -> tuple[str, ...]:
        """The memory spaces that ``tack.array_from_ptr`` takes; empty if it does not check."""
        return self._backend.device_memory_spaces

    def synchronize(self) -> None:
        """Wait for every launch queued on this device; raises the error of one that failed."""
        self._backend.synchronize()

    def __enter__(self) -> Device:
        native.note_entered()
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The innermost entry of this device: blocks of generators may end out of order.
        stack = _entered.get()
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is self:
                _entered.set(stack[:i] + stack[i + 1 :])
                return

    def __eq__(self, other: object) -> bool:
        return self._backend is other._backend if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(id(self._backend))

    def __str__(self) -> str:
        return self._backend.spec

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self._backend.options.items())
        return f"tack.device({self._backend.spec!r}{options})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._backend.spec, dict(self._backend.options))


def _rebuild(spec: str, options: dict[str, Any]) -> Device:
    from tack.runtime.dispatch import device  # which imports this module

    return device(spec, **options)


def as_device(backend: Backend) -> Device:
    """The `Device` of ``backend``: the same one as long as somebody holds it."""
    found = backend._device() if backend._device is not None else None
    if found is None:
        found = Device(backend)
        backend._device = weakref.ref(found)
    return found


def entered_device() -> Device | None:
    """The device of the innermost ``with`` block of this thread or task."""
    stack = _entered.get()
    return stack[-1] if stack else None
