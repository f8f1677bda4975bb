"""A long run by hand: ``python -m fuzz --count 10000 [--seed S]`` in the tests folder."""

from __future__ import annotations

import argparse
import sys
import time

from .mutate import mutated
from .runner import run, work

BATCH = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="cases to compile")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--show", type=int, metavar="N", help="print the source of case N and stop")
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return 0
    if options.show is not None:
        print(mutated(options.show))
        return 0
    started, found = time.monotonic(), 0
    end = options.seed + options.count
    for first in range(options.seed, end, BATCH):
        last = min(first + BATCH, end)
        for finding in run(first, last - first):
            found += 1
            print(f"case {finding.seed}: {finding.problem}", flush=True)
        seconds = time.monotonic() - started
        print(f"{last - options.seed} cases, {found} findings, {seconds:.0f} s", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
