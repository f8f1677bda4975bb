"""`launch`: what calling a kernel does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tack.lang.device_class import is_instance
from tack.runtime.dispatch import launch_backend
from tack.runtime.expand import expand
from tack.runtime.graph import recording

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.backend import Backend

__all__ = ["backend_of", "launch"]


def launch(kernel: Kernel, args: tuple[Any, ...]) -> Any:
    """Runs ``kernel`` where its arrays are, and returns its result; in a capture, records it."""
    graph = recording()
    if graph is not None:
        graph.record_launch(kernel, args)
        return None
    return backend_of(kernel, args).execute(kernel, args)


def backend_of(kernel: Kernel, args: tuple[Any, ...]) -> Backend:
    """Where a launch of ``kernel`` runs."""
    if any(map(is_instance, args)):  # where the arrays among their attributes are counts too
        return launch_backend(expand(kernel, args).args)
    return launch_backend(args, kernel.params)
