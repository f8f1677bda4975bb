"""When kernels run code that is not optimized: at first, while that which is gets compiled in the background.

LLVM takes a sixth of the time for code that computes the same several times slower. For small launches the
first counts, and larger ones wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import TYPE_CHECKING, Any

from tack.runtime import settings
from tack.runtime.array import Array
from tack.runtime.cpu.background import Job, resume, submit

if TYPE_CHECKING:
    from tack.ir.nodes import Kernel
    from tack.runtime.cpu.program import Program

__all__ = ["Upgrade", "are_wanted"]

# Estimated nanoseconds of launches, with optimized code, from which on waiting for it pays.
_WORTH_WAITING = 4e6


def are_wanted() -> bool:
    """Whether ``TACK_CPU_COMPILE`` lets first launches run code that is not optimized.

    Raises:
        ValueError: it has a bad value.
    """
    return settings.choice("TACK_CPU_COMPILE", ("tiered", "optimized"), "tiered") == "tiered"


class Upgrade:
    """The way of ``program`` from its first form to the one that ``optimized`` compiles of ``kernel``."""

    __slots__ = ("_depth", "_job", "_optimized", "_program", "_then", "_trips", "_work")

    def __init__(self, program: Program, kernel: Kernel, optimized: Callable[[], Program]) -> None:
        from tack.codegen.cost import UNKNOWN_TRIPS, unknown_depth

        self._depth, self._trips = unknown_depth(kernel), UNKNOWN_TRIPS
        self._work = 0.0  # of the launches so far
        self._program = program
        self._optimized = optimized
        self._job = Job(self._run)
        self._then: Callable[[float], None] | None = None

    def start(self, then: Callable[[float], None]) -> None:
        """Begins; ``then`` is called at the end, with the seconds of processor time that it took."""
        self._then = then
        submit(self._job)

    def _run(self) -> None:
        start = thread_time()  # others go on meanwhile
        self._program.replace(self._optimized())
        if self._then is not None:
            self._then(thread_time() - start)
        self._program.upgrade = None

    def finish(self) -> None:
        """Returns when there is optimized code.

        Raises:
            RuntimeError: it did not compile.
        """
        self._job.finish()

    def before_launch(self, args: Sequence[Any], work: float) -> None:
        """Waits for the optimized code if a launch, with those before it, is worth that.

        ``work`` is what is estimated of it. Loops of unknown length may be as long as anything in the call.
        Raises as `finish` does.
        """
        if self._depth:
            work *= max(1.0, max(map(_longest, args), default=0) / self._trips) ** self._depth
        self._work += work
        if self._work > _WORTH_WAITING:
            self._job.finish()
        else:
            self._job.check()
            resume()


def _longest(arg: Any) -> int:
    """An integer, or the longest axis of an array."""
    if type(arg) is Array:
        return max(arg.shape, default=0)
    return abs(arg) if type(arg) is int else 0
