"""Runs every benchmark of the CPU, or of a GPU, one after the other, and prints their tables."""

import argparse
import subprocess
import sys
from pathlib import Path

CPU = ("startup", "dispatch", "throughput", "accumulate", "algorithms", "fan_out", "memory")
GPU = ("gpu/startup", "gpu/launch", "gpu/throughput", "gpu/algorithms")


def main() -> int:
    """The exit status is that of the worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="those of the NVIDIA GPU that is there")
    parser.add_argument(
        "--json", metavar="FOLDER", type=Path, help="write the figures there, a file for each"
    )
    options = parser.parse_args()
    worst = 0
    for name in GPU if options.gpu else CPU:
        program = Path(__file__).parent / f"{name}.py"
        extra = []
        if options.json:
            options.json.mkdir(parents=True, exist_ok=True)
            extra = ["--json", str(options.json / f"{program.stem}.json")]
        worst = max(worst, subprocess.run([sys.executable, str(program), *extra], check=False).returncode)
        print(flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
