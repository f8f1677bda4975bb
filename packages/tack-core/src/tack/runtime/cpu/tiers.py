"""When kernels run code that is not optimized: at first, while that which is gets compiled in the background.

LLVM takes a sixth of the time for code that computes the same several times slower. For small launches the
first counts, and larger ones wait. Where loops of unknown length leave open which a launch is, it runs in
parts, and waits between two of them once it has turned out to be large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
# Seconds that uncertain launches of a kernel may run the first form, and that a part of one should take.
_PATIENCE = 0.01
_PART = 0.001
_PARTS = 256  # the most that a launch is cut into; the first is the smallest
_MANY = 32  # iterations, of which the first costs little beside the launch, whichever form runs it


def are_wanted() -> bool:
    """Whether ``TACK_CPU_COMPILE`` lets first launches run code that is not optimized.

    Raises:
        ValueError: it has a bad value.
    """
    return settings.choice("TACK_CPU_COMPILE", ("tiered", "optimized"), "tiered") == "tiered"


class Upgrade:
    """The way of ``program`` from its first form to the one that ``optimized`` compiles of ``kernel``.

    Launches ``are_uncertain`` if there are loops of unknown length.
    """

    __slots__ = (
        *("_job", "_longest_cost", "_optimized", "_patience", "_program", "_then", "_work"),
        "are_uncertain",
    )

    def __init__(self, program: Program, kernel: Kernel, optimized: Callable[[], Program]) -> None:
        from tack.codegen.cost import has_known_lengths, longest_cost

        self._longest_cost = partial(longest_cost, kernel)
        self.are_uncertain = not has_known_lengths(kernel)
        self._work = 0.0  # of the launches so far
        self._patience = _PATIENCE  # that they have left
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

    def before_launch(self, args: Sequence[Any], total: int, work: float) -> None:
        """Waits for the optimized code if a launch, with those before it, is worth that.

        ``work`` is what is estimated of its ``total`` iterations. Of an uncertain launch that counts only if
        iterations are few, and then loops may be as long as anything in the call. Raises as `finish` does.
        """
        if self.are_uncertain:
            work = 0.0 if total >= _MANY else total * self._longest_cost(max(map(_longest, args), default=0))
        self._work += work
        if self._work > _WORTH_WAITING:
            self._job.finish()
        else:
            self._job.check()
            resume()

    def run(self, total: int, runner: Callable[[int], Callable[[int, int], object]]) -> None:
        """Runs the iterations [0, total) of an uncertain launch, in parts, by the first form of the code.

        Once there is the optimized form, that runs the rest. When patience is at an end it is waited for.

        Args:
            total: the number of iterations, at least 1.
            runner: gives what runs the iterations between two numbers, about so many, by the best code that
                there is. It must be C, where no exception arrives before it starts.
        """
        program, group = self._program, self._program.group
        size = -(-total // (_PARTS * group)) * group
        high = 0  # the iterations below have been started
        try:
            while high < total:
                if program.upgrade is None or self._patience <= 0:
                    self._job.wait()
                    size = total
                run = runner(size)
                start = thread_time()  # on a busy machine waiting for a processor says nothing
                low, high = high, min(high + size, total)
                run(low, high)
                elapsed = thread_time() - start
                self._patience -= elapsed
                if elapsed < _PART:
                    size *= 2
        except BaseException:  # what a signal handler raises; what has begun is finished all the same
            low, high = high, total
            if 0 < low < total:
                run(low, total)
            raise


def _longest(arg: Any) -> int:
    """An integer, or the longest axis of an array."""
    if type(arg) is Array:
        return max(arg.shape, default=0)
    return abs(arg) if type(arg) is int else 0
