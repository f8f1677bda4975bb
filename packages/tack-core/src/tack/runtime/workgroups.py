"""What every backend checks of a kernel that uses workgroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tack.lang.builtins import WORKGROUP

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel
    from tack.runtime.backend import Backend
    from tack.runtime.variants import Variant

__all__ = ["check_workgroup_launch", "check_workgroup_support"]


def check_workgroup_support(
    kernel: Kernel, primitives: Sequence[str], backend: Backend, error: type[Exception]
) -> None:
    """Raises ``error`` if the kernel uses ``primitives`` of workgroups, which the backend lacks."""
    if primitives and not backend.supports_workgroups:
        used = ", ".join(f"tack.{name}" for name in primitives)
        raise error(
            f"kernel '{kernel.__name__}' uses {used}, and {backend.label} runs no workgroups; "
            "an iteration's own memory is tack.local_array"
        )


def check_workgroup_launch(kernel: Kernel, variant: Variant, count: int) -> None:
    """Every dispatch calls this with its number of iterations, before anything runs.

    Raises:
        ValueError: the kernel has a barrier or block reduction, and the count is not a multiple of 256.
    """
    if variant.requires_full_workgroups and count % WORKGROUP:
        raise ValueError(
            f"kernel '{kernel.__name__}': {count} iterations; a kernel with barriers or block reductions "
            f"runs in whole workgroups, so the count must be a multiple of {WORKGROUP}"
        )
