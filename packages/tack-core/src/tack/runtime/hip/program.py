"""Code objects that HIP has loaded."""

from __future__ import annotations

from typing import Final, final

from tack.runtime.streams.program import StreamProgram

__all__ = ["HipProgram"]

_MAX_THREADS: Final = (1 << 32) - 1  # along an axis of a grid, of all its blocks together


@final
class HipProgram(StreamProgram):
    """A module of HIP."""

    __slots__ = ()

    max_threads = _MAX_THREADS
