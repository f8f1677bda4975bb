"""Programs started as MPI jobs, for the tests that need one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT = 120


def mpiexec(
    ranks: int, command: Sequence[str | Path], cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs ``command`` as so many processes; the launcher is the one installed beside this Python."""
    launcher = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"
    return subprocess.run(
        [launcher, "-n", str(ranks), *map(str, command)],
        env={**env, "MPIEXEC_TIMEOUT": str(TIMEOUT - 20)},  # then the launcher ends the processes
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
