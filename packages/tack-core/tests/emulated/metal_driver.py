"""The fake of Metal: putting it in the place of Apple's, and steering it."""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["CONTROL", "Control", "Misuse", "install"]

_MODULES = Path(__file__).with_name("metal")
_MEMORY = 1 << 36


class Misuse(AssertionError):
    """A call that breaks a rule of the API: Metal's validation layer would end the process."""


class Control:
    """What tests ask of the fake, and what it tells them."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.memory = _MEMORY  # bytes of all buffers and textures
        self.name = "Emulated GPU"
        self.system = 15  # macOS
        self.filters = True  # whether texture units interpolate f32
        self.calls: Counter[str] = Counter()
        self.misuse: list[str] = []  # what was found where no exception goes anywhere
        self.objects: dict[str, weakref.WeakSet[Any]] = {}
        self._faults: dict[str, int] = {}

    def begin(self, selector: str) -> bool:
        """Counts a call; whether it is to fail."""
        self.calls[selector] += 1
        left = self._faults.get(selector)
        if left is None:
            return False
        if left > 1:
            self._faults[selector] = left - 1
            return False
        del self._faults[selector]
        return True

    def fail(self, selector: str, call: int = 1) -> None:
        """Makes a call of a selector fail, the first from now on or a later one.

        One that returns an object gives nil then, and another throws. ``"run"`` is the execution of a kernel.
        """
        self._faults[selector] = call

    def pending(self, selector: str) -> bool:
        """Whether a failure has been planned that did not happen."""
        return selector in self._faults

    def heal(self) -> None:
        """Takes back planned failures."""
        self._faults.clear()

    def fail_run(self) -> None:
        """Makes the next kernel that runs fail."""
        self.fail("run")

    def fail_launch(self) -> None:
        """Makes the API refuse the next launch."""
        self.fail("dispatchThreadgroups_threadsPerThreadgroup_")

    def limit(self, nbytes: int) -> None:
        """The memory of the device."""
        self.memory = nbytes

    def reset(self) -> None:
        """Takes back all that tests may have asked for."""
        self.release()
        self.heal()
        self.limit(_MEMORY)

    def violations(self) -> list[str]:
        """The rules of the API that have been broken since this was asked last."""
        found = list(self.misuse)
        self.misuse.clear()
        return found

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A block in which no queue begins with another command buffer."""
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()

    def release(self) -> None:
        """Opens the gate inside `held`."""
        self.gate.set()

    def track(self, item: Any) -> None:
        self.objects.setdefault(type(item).__name__, weakref.WeakSet()).add(item)

    def live(self, kind: str) -> int:
        """How many objects there are of a class."""
        return len(self.objects.get(kind, ()))

    def alive(self) -> dict[str, int]:
        """The same for every class."""
        return {kind: len(found) for kind, found in sorted(self.objects.items()) if len(found)}


CONTROL = Control()


@functools.cache
def install() -> Control:
    """The fake in the place of PyObjC's modules, for this process.

    Raises:
        RuntimeError: something that this needs is not installed.
    """
    for needed in ("g++", "ld", "clang-19"):
        if shutil.which(needed) is None:
            raise RuntimeError(f"the emulation needs {needed}")
    if "Metal" in sys.modules:
        raise RuntimeError("another module Metal is in use in this process")
    sys.path.insert(0, str(_MODULES))
    try:
        import Metal  # noqa: F401
        import objc  # noqa: F401
    finally:
        sys.path.remove(str(_MODULES))
    return CONTROL
