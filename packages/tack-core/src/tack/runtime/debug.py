"""Debug mode: checked launches, and the errors that they raise."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.dtypes import i64
from tack.errors import diagnostic
from tack.runtime import native, settings
from tack.runtime.array import Array, new_array

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.runtime.backend import Backend
    from tack.runtime.bounds import LaunchRange

__all__ = [
    "HIDDEN",
    "enabled",
    "extent_offsets",
    "hidden_args",
    "hidden_names",
    "raise_violation",
    "set_debug",
    "state",
]

# The hidden parameters of a kernel compiled in debug mode, both arrays of i64: the extents and the
# size of each array argument (`EXTENTS` of type inference), and the record of the first violation
# (`tack.codegen.llvm.checks`).
HIDDEN = ("debug.extents", "debug.errors")
WRITERS = "debug.writers."
_FIELDS = 6
_RACE = -1  # stands for the axis where a race is recorded

_enabled: bool | None = None
_races = False


def set_debug(on: bool = True, *, races: bool = False) -> None:
    """Switches debug mode for the process: launches check every index and every integer divisor.

    The first violation raises `IndexError` or `ZeroDivisionError` once the launch is done, with the
    kernel, the place in the source, the array, the index, the extent and the iteration. A load out
    of range gives 0, a store or atomic out of range does nothing. Kernels are compiled anew for
    debug mode, and their code without it is what it would be if there were no debug mode. The
    environment variable ``TACK_DEBUG`` sets what a process starts with.

    Args:
        races: also report two iterations that store to one element without an atomic, as
            `RuntimeError`. It takes 8 bytes for each element of each array that is stored to.
    """
    global _enabled, _races
    _enabled, _races = bool(on), bool(races)
    native.set_debug(_enabled)


def hidden_names(stored: Sequence[str]) -> tuple[str, ...]:
    """The hidden parameters of a kernel that stores to these array parameters."""
    return (*HIDDEN, *((WRITERS + name for name in stored) if _races else ()))


def enabled() -> bool:
    """Whether debug mode is on.

    Raises:
        ValueError: ``TACK_DEBUG`` has a value that is not a flag.
    """
    return settings.flag("TACK_DEBUG") if _enabled is None else _enabled


def state() -> tuple[bool, bool]:
    """What of the mode decides which variant a call runs."""
    return enabled(), _races


def extent_offsets(args: Sequence[Any], names: Sequence[str]) -> dict[str, int]:
    """Where the extents of each array argument start in the hidden array; its size follows them."""
    offsets: dict[str, int] = {}
    at = 0
    for name, arg in zip(names, args, strict=True):
        if type(arg) is Array:
            offsets[name] = at
            at += arg.ndim + 1
    return offsets


def hidden_args(backend: Backend, args: Sequence[Any], stored: Sequence[int]) -> list[Array]:
    """The extents and an empty record, for one launch; for races, who wrote the arrays ``stored``."""
    extents = [n for arg in args if type(arg) is Array for n in (*arg.shape, arg.size)]
    hidden = []
    for values in (extents or [0], [0] * _FIELDS):
        array = new_array(backend, i64, (len(values),))
        array._buffer.write(0, np.array(values, np.int64))
        hidden.append(array)
    for position in stored if _races else ():
        count = args[position].size * prod(args[position].components)
        writers = new_array(backend, i64, (count,))
        writers._buffer.write(0, np.zeros(count, np.int64))  # a fill may be a checked launch itself
        hidden.append(writers)
    return hidden


def raise_violation(
    kernel: ir.Kernel, sites: Sequence[ir.Bounds | ir.NonZero], record: Array, launch: LaunchRange
) -> None:
    """Raises the error of the first violation that a launch recorded, if there was one."""
    taken, number, axis, index, extent, iteration = (int(v) for v in record.numpy())
    if not taken:
        return
    site = sites[number]
    where = (
        f", in iteration {_iteration(iteration, launch)}" if iteration >= 0 else ", outside the parallel loop"
    )
    from tack.ir import nodes as ir

    if isinstance(site, ir.NonZero):
        raise diagnostic(ZeroDivisionError, f"integer division by zero{where}", site.loc, kernel=kernel.name)
    if axis == _RACE:
        first, second = _iteration(extent, launch), _iteration(iteration, launch)
        message = f"a race: iterations {first} and {second} both store to element {index} of '{site.array}'"
        hint = "use tack.atomic_add and its like, or let each iteration store to elements of its own"
        raise diagnostic(RuntimeError, message, site.loc, kernel=kernel.name, hint=hint)
    along = f" along axis {axis}" if len(site.index) > 1 else ""
    message = f"index {index} is out of range for '{site.array}', whose extent{along} is {extent}{where}"
    raise diagnostic(IndexError, message, site.loc, kernel=kernel.name)


def _iteration(number: int, launch: LaunchRange) -> int | tuple[int, ...]:
    """The values of the loop variables in an iteration, by its number."""
    values: list[int] = []
    for start, step, count in reversed(launch):
        number, position = divmod(number, count)
        values.insert(0, start + step * position)
    return values[0] if len(values) == 1 else tuple(values)
