"""Runs a program on a target of ``--target``: ``python on_target.py TARGET PROGRAM [ARGUMENT ...]``."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

DEVICES = {"cuda-emu": "cuda", "hip-emu": "hip", "opencl-pocl": "level_zero", "msl-emu": "metal"}


def device_of(target: str) -> str:
    """The device that a target runs on, as ``tack.device`` takes it."""
    return DEVICES.get(target, target)


def emulate(target: str) -> None:
    """Puts the emulation of a target in the place of its driver, in this process; nothing for real devices.

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

        # Programs that give every kernel NumPy arrays would run on the CPU.
        if not tack.device(device_of(target))._backend.cache:
            print(f"FAIL no kernel was compiled for {target}")
