"""The print buffer, in which launches leave what they print: see `docs/design/cuda.md`."""

from __future__ import annotations

import struct
import warnings
from typing import TYPE_CHECKING, Final

import numpy as np

from tack.dtypes import u64
from tack.runtime.array import Array, new_array
from tack.runtime.slots import print_line

if TYPE_CHECKING:
    from tack.runtime.backend import Backend
    from tack.runtime.gpu.program import Program

__all__ = ["print_buffer", "printed"]

_WORDS: Final = 1 << 17  # of the buffer
_NO_RECORD: Final = (1 << 64) - 1  # instead of a site's number: the rest did not fit


def print_buffer(backend: Backend) -> Array:
    """An empty one."""
    buffer = new_array(backend, u64, (2 + _WORDS,))
    buffer._buffer.write(0, np.array([0, _WORDS], np.uint64))
    return buffer


def printed(program: Program, output: Array) -> str:
    """The lines of a launch, in the order in which they came. Waits for it."""
    claimed = int(output[0])
    words = output.numpy(2, 2 + min(claimed, _WORDS)).tobytes()
    lines = []
    at = 0
    while at < len(words):
        (number,) = struct.unpack_from("<Q", words, at)
        if number == _NO_RECORD:
            break
        site = program.prints[number]
        size = 8 * (1 + sum(not isinstance(part, str) for part in site))
        lines.append(print_line(site, words[at + 8 : at + size]))
        at += size
    if claimed > _WORDS:
        warnings.warn(
            f"kernel '{program.name}' printed more than the buffer of {8 * _WORDS} bytes holds; "
            f"{8 * claimed} bytes came, and the rest is lost",
            RuntimeWarning,
            stacklevel=5,
        )
    return "".join(lines)
