"""What a check is, the list of all, and comparing results with what they should be."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

import tack
from tack.runtime.device import Device

__all__ = ["CHECKS", "Check", "Context", "Lacking", "check", "expect", "lacks", "load", "refused"]


class Context(NamedTuple):
    """What a check is given: the device, which is the default one, and whether to be quick about it."""

    device: Device
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """How many elements to take."""
        return quick if self.quick else full

    @property
    def floats(self) -> list[tack.DType]:
        return [tack.f32, tack.f64] if self.device.supports_f64 else [tack.f32]

    @property
    def integers(self) -> list[tack.DType]:
        return [dtype for dtype in self.device.supported_dtypes if dtype.is_integer]


class Check(NamedTuple):
    """A check: ``run`` returns what to say beside its result, and raises if something is wrong.

    ``fresh``: it looks at what the process before has left, so it has one of its own.
    """

    name: str
    run: Callable[[Context], str]
    fresh: bool


class Lacking(Exception):
    """The device declares that it has not what is checked, and refuses it as it should."""


CHECKS: Final[dict[str, Check]] = {}


def check(
    name: str, *, fresh: bool = False
) -> Callable[[Callable[[Context], str]], Callable[[Context], str]]:
    """Adds a function to the checks, in the order of their definition."""

    def add(run: Callable[[Context], str]) -> Callable[[Context], str]:
        CHECKS[name] = Check(name, run, fresh)
        return run

    return add


def load() -> dict[str, Check]:
    """All checks."""
    for module in ("language", "device", "library"):
        importlib.import_module(f"tack.validate.{module}")
    return CHECKS


def expect(got: Any, expected: Any, what: str) -> None:
    """Raises ``AssertionError`` with the first difference, unless both are equal, NaN and NaN included."""
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape:
        raise AssertionError(f"{what}: shape {a.shape}, expected {b.shape}")
    same = (a == b) | ((a != a) & (b != b))
    if not same.all():
        at = tuple(int(k) for k in np.argwhere(~same)[0])
        count = int((~same).sum())
        place = f"element {at[0] if len(at) == 1 else at}: " if at else ""
        raise AssertionError(
            f"{what}: {place}got {a[at]!r}, expected {b[at]!r}; {count:,} of {same.size:,} differ"
        )


@contextmanager
def refused(kind: type[Exception], text: str) -> Iterator[None]:
    """A block that has to raise an error of a kind, whose message contains a text."""
    try:
        yield
    except kind as error:
        if text not in str(error):
            raise AssertionError(f"the error should say {text!r}: {error}") from error
        return
    raise AssertionError(f"nothing was raised, and it should be a {kind.__name__} with {text!r}")


def lacks(kind: type[Exception], text: str, use: Callable[[], object]) -> Lacking:
    """What to raise for something that the device has not; it has to be refused by such an error."""
    with refused(kind, text):
        use()
    return Lacking("refused, as declared")
