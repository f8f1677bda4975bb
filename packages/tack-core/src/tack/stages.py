"""How long the stages of a compile take, for the log.

Each stage says where it starts and ends; nobody listens unless `collect` was called in this thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["collect", "stage"]


class _Listener(threading.local):
    times: dict[str, float] | None = None


_listener = _Listener()


class stage:  # a statement: with stage("passes"):
    """Adds the seconds that its block takes to those of the stage ``name``."""

    __slots__ = ("name", "start")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.start = perf_counter()

    def __exit__(self, *_: object) -> None:
        times = _listener.times
        if times is not None:
            times[self.name] = times.get(self.name, 0.0) + perf_counter() - self.start


@contextmanager
def collect(times: dict[str, float]) -> Iterator[None]:
    """Adds the seconds of each stage that this thread runs inside the block to ``times``, by name."""
    before, _listener.times = _listener.times, times
    try:
        yield
    finally:
        _listener.times = before
