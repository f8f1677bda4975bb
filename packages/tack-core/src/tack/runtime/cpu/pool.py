"""The threads that run one launch together.

A launch is cut into chunks of iterations, which the calling thread and the workers claim until
none is left. Compiled code runs without the GIL, so the threads run at the same time. There are two
kinds of pools, which behave alike: `NativePool` in C, and `Pool`, whose workers are Python's daemon
threads: they wait in a queue between launches, and the interpreter does not wait for them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from tack.runtime import native, settings

if TYPE_CHECKING:
    from queue import SimpleQueue

__all__ = ["NativePool", "Pool", "new_pool"]

_LAUNCH: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _new_queue() -> SimpleQueue[Any]:
    """A queue, whose module the native pool does not need."""
    from queue import SimpleQueue

    return SimpleQueue()


@final
class _Job:
    """One launch that threads share.

    An exception may arrive in the calling thread after any call that Python makes there, so no
    call lies between claiming a chunk and noting it, or between noting its start and starting it.
    """

    __slots__ = ("active", "chunk", "end", "launch", "left", "lock", "mine", "next", "owner", "slots")

    def __init__(self, owner: object, address: int, slots: int, chunk: int, low: int, high: int) -> None:
        self.launch = _LAUNCH(address)
        self.owner = owner
        self.slots = slots
        self.chunk = chunk
        self.end = high
        self.lock = threading.Lock()
        self.next = low  # the first iteration that nobody has claimed
        self.mine = [0, 0]  # the caller's chunk, see `work`
        self.active = 0  # workers that may be in compiled code
        self.left: SimpleQueue[None] = _new_queue()  # gets an item whenever one is no longer

    def work(self, mine: list[int]) -> None:
        """Claims and runs chunks until none is left.

        ``mine`` is a chunk that was claimed before but not started; it may be empty.
        """
        while True:
            low, high = mine
            if low == high:
                with self.lock:
                    low = self.next
                    high = low + self.chunk if self.chunk < self.end - low else self.end
                    mine[0], mine[1] = low, high
                    self.next = high
                if low == high:
                    return
            mine[0] = high
            self.launch(self.slots, low, high)

    def help(self) -> None:
        """What a worker does. One that comes late must not touch the launch, which may be over."""
        with self.lock:
            if self.next == self.end:
                return
            self.active += 1
        self.work([0, 0])
        with self.lock:
            self.active -= 1
        self.left.put(None)

    def finish(self) -> None:
        """What the caller does: takes part, then waits for the workers that are still busy.

        Workers that come late, or are slow to leave, have the job for longer. They must not have the owner:
        it keeps the memory of the launch, which the caller may give back now.
        """
        self.work(self.mine)
        while True:
            with self.lock:
                if not self.active:
                    self.owner = None
                    return
            self.left.get()


def _serve(jobs: SimpleQueue[_Job | None]) -> None:
    """A worker's life."""
    while (job := jobs.get()) is not None:
        job.help()
        del job  # before waiting: after an exception that nobody waited for, it has the owner


_pools: weakref.WeakSet[NativePool | Pool] = weakref.WeakSet()


def new_pool(num_threads: int) -> NativePool | Pool:
    """A pool of the kind that ``TACK_CPU_POOL`` names: native where that is installed, else Python's.

    Raises:
        ValueError: the variable has a bad value.
    """
    kind = settings.choice("TACK_CPU_POOL", ("native", "python"), "native")
    return Pool(num_threads) if kind == "python" or native.module is None else NativePool(num_threads)


@final
class NativePool:
    """As `Pool`; its workers look for the next launch for a moment before they sleep."""

    WORTH_FANNING_OUT: ClassVar[float] = 20_000.0  # as in launch.c

    def __init__(self, num_threads: int) -> None:
        assert native.module is not None
        self.native = native.module.Pool(num_threads)
        self.run = self.native.run  # see `Pool.run`
        self.num_threads = num_threads
        _pools.add(self)

    def _reset(self) -> None:
        self.native.forget()


@final
class Pool:
    """``num_threads`` threads, the calling one included, that share the work of a launch.

    The workers start at the first launch that needs them, and stop when the pool is dropped. One
    launch at a time fans out; launches from other threads meanwhile, and nested ones, run in the
    thread that makes them. After a fork the child's pool starts workers of its own.

    Raises:
        ValueError: ``num_threads`` is below 1.
    """

    # A launch fans out when its estimated serial time, in ns, is worth it.
    WORTH_FANNING_OUT: ClassVar[float] = 150_000.0
    native: ClassVar[None] = None

    def __init__(self, num_threads: int) -> None:
        if num_threads < 1:
            raise ValueError(f"a pool needs at least 1 thread, not {num_threads}")
        self.num_threads = num_threads
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = _new_queue()
        self._workers = 0
        self._fanned_out = threading.Lock()

    def __del__(self) -> None:
        for _ in range(getattr(self, "_workers", 0)):
            self._jobs.put(None)

    def run(self, owner: object, address: int, slots: int, chunk: int, low: int, high: int) -> None:
        """Runs the iterations [low, high) of a launch, ``chunk`` at a time, and returns when all are done.

        An exception that arrives meanwhile, such as a `KeyboardInterrupt`, is raised afterwards. (If
        another one follows within microseconds, workers may be busy for a moment longer.)

        Args:
            owner: what keeps the code, the slots and the arrays in memory; held until all is done, no longer.
            address: of ``void launch(ptr slots, i64 lo, i64 hi)``.
            slots: the address of the argument slots.
            chunk: how many iterations a thread claims at once, at least 1.
            low: the first iteration.
            high: the end of the iterations.
        """
        helpers = min(self.num_threads, -(-(high - low) // chunk)) - 1
        # Workers cannot take the GIL back once the interpreter is shutting down.
        if helpers < 1 or sys.is_finalizing() or not self._fanned_out.acquire(blocking=False):
            _LAUNCH(address)(slots, low, high)
            return
        try:
            self._fan_out(_Job(owner, address, slots, chunk, low, high), helpers)
        finally:
            self._fanned_out.release()

    def _fan_out(self, job: _Job, helpers: int) -> None:
        interruption: BaseException | None = None
        try:
            self._start(helpers)
            for _ in range(min(helpers, self._workers)):
                self._jobs.put(job)
        except BaseException as raised:
            interruption = raised
        while True:
            try:
                job.finish()
                break
            except BaseException as raised:  # workers still use the arguments: do not leave early
                interruption = raised
        try:
            if interruption is not None:
                raise interruption
        finally:
            interruption = None  # whose traceback has this frame and the arguments of those above

    def _start(self, helpers: int) -> None:
        """Starts workers up to ``helpers``, or as many as the system lets us have."""
        while self._workers < helpers:
            name = f"tack-{self._workers + 1}"
            worker = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
            try:
                worker.start()
            except RuntimeError:  # no more threads, or the interpreter is exiting
                return
            self._workers += 1


def _reset_pools() -> None:
    for pool in list(_pools):
        pool._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_pools)
