"""The targets of ``--target``, and running a program on one.

python on_target.py TARGET PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

# Real devices and emulations that the specification names; a new one is added here and in `emulate`.
# opencl-emu is opencl-pocl with the system's C++ compiler, which is several times as fast.
# "toy" is the device type of tests/contract/toy.py.
DEVICES = {
    "cuda-emu": "cuda",
    "hip-emu": "hip",
    "opencl-emu": "level_zero",
    "opencl-pocl": "level_zero",
    "msl-emu": "metal",
}
TARGETS = ("cpu", "cuda", "hip", "level_zero", "metal", *DEVICES, "toy")


def device_of(target: str) -> str:
    """The device that a target runs on, as ``tack.device`` takes it."""
    return DEVICES.get(target, target)


class Steering(Protocol):
    """What the tests of any device ask of its emulation."""

    def held(self) -> AbstractContextManager[None]:
        """A block in which the device begins with no more work."""

    def release(self) -> None:
        """Lets it begin, inside the block."""

    def fail_run(self) -> None:
        """Makes the next kernel that runs fail."""

    def fail_launch(self) -> None:
        """Makes the driver refuse the next launch."""

    def limit(self, nbytes: int) -> None:
        """The memory of the device."""

    def heal(self) -> None:
        """Takes back planned failures, and what those left that happened."""

    def reset(self) -> None:
        """Takes back all that tests may have asked for."""

    def violations(self) -> list[str]:
        """The rules of the driver's API that have been broken since this was asked last."""


def emulate(target: str) -> Steering | None:
    """Puts the emulation of a target in the place of its driver, in this process; None for real devices.

    ``TACK_TEST_SOURCES`` names a folder for the sources of the kernels that are compiled (`offline`).

    Raises:
        RuntimeError: something that the emulation needs is not installed.
    """
    steering = _install(target)
    if os.environ.get("TACK_TEST_SOURCES"):
        from offline.recording import record

        record(os.environ["TACK_TEST_SOURCES"])
    return steering


def _install(target: str) -> Steering | None:
    if target in ("cuda-emu", "hip-emu"):
        from emulated.driver import install

        return install(DEVICES[target])
    if target in ("opencl-emu", "opencl-pocl"):
        from emulated.level_zero import install as install_level_zero

        return install_level_zero(target)
    if target == "msl-emu":
        from emulated import metal_driver

        return metal_driver.install()
    if target == "toy":
        from contract import toy

        return toy.install()
    return None


def add_option(parser: Any) -> None:
    """Adds ``--target``, which several suites of one run may ask for."""
    about = f"device that tests run on which take one, one of: {', '.join(TARGETS)}"
    with contextlib.suppress(ValueError):  # it is there
        parser.addoption("--target", default="cpu", metavar="T", help=about)


def require(target: str) -> None:
    """Skips the test if a target does not start; fails it where ``TACK_REQUIRE_TARGETS`` names the target."""
    import pytest

    import tack

    try:
        emulate(target)
        tack.device(device_of(target))
    except (RuntimeError, ValueError) as error:
        reason = f"target {target!r} does not start: {error}"
        required = os.environ.get("TACK_REQUIRE_TARGETS", "").replace(",", " ").split()
        if target in ("cpu", "toy", *required):
            pytest.fail(f"it is required, but {reason}")
        pytest.skip(reason)


def command(target: str, program: Path, *arguments: object) -> list[str]:
    """The command that runs a program on a target."""
    return [sys.executable, __file__, target, str(program), *map(str, arguments)]


if __name__ == "__main__":
    _, target, program, *arguments = sys.argv
    emulate(target)
    os.environ["TACK_DEVICE"] = device_of(target)
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        import tack

        # Programs that give every kernel NumPy arrays would run on the CPU; those that ask for it may.
        if target != "cpu" and not tack.device(device_of(target))._backend.cache:
            print(f"FAIL no kernel was compiled for {target}")
