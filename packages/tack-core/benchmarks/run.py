"""Runs every benchmark, one after the other, and prints their tables."""

import subprocess
import sys
from pathlib import Path

PROGRAMS = ("startup", "dispatch", "throughput", "accumulate", "fan_out", "memory")


def main() -> int:
    """Passes ``--json FOLDER`` on as one file per benchmark. The exit status is that of the worst."""
    folder = Path(sys.argv[2]) if sys.argv[1:2] == ["--json"] and len(sys.argv) == 3 else None
    if len(sys.argv) > 1 and folder is None:
        print(f"usage: {Path(sys.argv[0]).name} [--json FOLDER]", file=sys.stderr)
        return 2
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name in PROGRAMS:
        extra = ["--json", str(folder / f"{name}.json")] if folder else []
        program = Path(__file__).with_name(f"{name}.py")
        worst = max(worst, subprocess.run([sys.executable, str(program), *extra], check=False).returncode)
        print(flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
