"""Runs passes over a kernel, with a hook between them for timing, printing and checking."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

from tack.ir.nodes import Kernel
from tack.record import Record

__all__ = ["Hook", "Pass", "run_pipeline"]

# Receives the pass's name, the kernel before and after it, and the seconds it took.
Hook = Callable[[str, Kernel, Kernel, float], None]


class Pass(Record):
    """A step from one kernel to another; both are valid, and the first is left as it is.

    ``apply`` returns its argument itself if there is nothing to change.
    """

    name: str
    apply: Callable[[Kernel], Kernel]


def run_pipeline(
    kernel: Kernel, passes: Iterable[Pass], *, hook: Hook | None = None, verify: bool = False
) -> Kernel:
    """What ``passes``, in order, make of ``kernel``. ``verify`` checks it first and after each pass.

    Raises:
        VerificationError: the kernel, or what a pass made of it, breaks an invariant; the message
            names the pass. What a pass itself raises goes through.
    """
    if verify:
        _check(kernel, "before the first pass")
    for step in passes:
        start = perf_counter()
        after = step.apply(kernel)
        seconds = perf_counter() - start
        if verify:
            _check(after, f"after pass '{step.name}'")
        if hook is not None:
            hook(step.name, kernel, after, seconds)
        kernel = after
    return kernel


def _check(kernel: Kernel, when: str) -> None:
    from tack.ir.verify import VerificationError, verify

    try:
        verify(kernel)
    except VerificationError as error:
        raise VerificationError(f"{when}: {error}") from None
