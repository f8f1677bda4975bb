"""A long run by hand: ``python -m differential --count 100000 [--seed S]`` in the tests folder."""

from __future__ import annotations

import argparse
import random
import sys
import time

import tack

from .floats import float_difference
from .runner import difference, generate, report

BATCH = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="programs to run")
    parser.add_argument("--seed", type=int, default=0, help="the first batch's seed; each batch adds one")
    parser.add_argument("--stop", type=int, default=5, help="failures after which to stop")
    options = parser.parse_args()
    started, failures, done = time.monotonic(), 0, 0
    with tack.device("cpu", num_threads=2):
        for seed in range(options.seed, options.seed + -(-options.count // BATCH)):
            programs = generate(random.Random(seed), BATCH)
            try:
                problem = difference(programs)
            except Exception as error:  # a valid program that is refused is a finding too
                problem = f"{type(error).__name__}: {error}"
            if problem is None and seed % 10 == 0:
                problem = float_difference(random.Random(seed))
            if problem is not None:
                failures += 1
                print(f"seed {seed}: {report(programs, problem)}", flush=True)
                if failures >= options.stop:
                    break
            done += BATCH
            if seed % 100 == 99:
                rate = done / (time.monotonic() - started)
                print(f"{done} programs, {failures} failures, {rate:.0f} a second", flush=True)
    print(f"{done} programs, {failures} failures, {time.monotonic() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
