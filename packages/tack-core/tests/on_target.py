"""The targets of ``--target``, and running a program on one.

python on_target.py TARGET PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

# Real devices and emulations that the specification names; a new one is added here and in `emulate`.
TARGETS = ("cpu", "cuda", "hip", "level_zero", "metal", "cuda-emu", "hip-emu", "opencl-pocl", "msl-emu")
DEVICES = {"cuda-emu": "cuda", "hip-emu": "hip", "opencl-pocl": "level_zero", "msl-emu": "metal"}


def device_of(target: str) -> str:
    """The device that a target runs on, as ``tack.device`` takes it."""
    return DEVICES.get(target, target)


def emulate(target: str) -> None:
    """Puts the emulation of a target in the place of its driver, in this process; nothing for real devices.

    ``TACK_TEST_SOURCES`` names a folder for the sources of the kernels that are compiled (`offline`).

    Raises:
        RuntimeError: something that the emulation needs is not installed.
    """
    if target in ("cuda-emu", "hip-emu"):
        from emulated.driver import install

        install(DEVICES[target])
    elif target == "opencl-pocl":
        from emulated.level_zero import install as install_level_zero

        install_level_zero()
    elif target == "msl-emu":
        from emulated import metal_driver

        metal_driver.install()
    elif target in DEVICES:
        raise RuntimeError("there is no emulation in this version")
    if os.environ.get("TACK_TEST_SOURCES"):
        from offline.recording import record

        record(os.environ["TACK_TEST_SOURCES"])


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
        if target in os.environ.get("TACK_REQUIRE_TARGETS", "").replace(",", " ").split():
            pytest.fail(f"TACK_REQUIRE_TARGETS names it, but {reason}")
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
