"""The 256 elementary cellular automata, each run as a task of Dask in one of several worker processes.

    python dask_automata.py
    python dask_automata.py --workers 4 --width 255 --steps 128
    python dask_automata.py --check

Shows a kernel that travels: it is an argument of the tasks. The workers of `LocalCluster` are processes
of this machine; those of a cluster take it just as well, since it brings its source and what it reads.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _common import check, colourise, positive_int, save_png
from distributed import Client, LocalCluster, as_completed
from numpy.typing import NDArray

import tack

RULES = 256
COLUMNS = 16
GAP = 2  # pixels between the pictures of two rules


@tack.func
def neighbourhood(row, i):
    """The number 0 to 7 that a cell and its two neighbours spell, on a ring of cells."""
    n = row.shape[0]
    return 4 * row[(i + n - 1) % n] + 2 * row[i] + row[(i + 1) % n]


@tack.kernel
def evolve(row, following, rule):
    for i in range(row.shape[0]):
        following[i] = (rule >> neighbourhood(row, i)) & 1


class Result(NamedTuple):
    """What a task returns: ``cells`` has a row for each generation."""

    rule: int
    cells: NDArray[np.uint8]
    process: int


def run(kernel: tack.Kernel, width: int, steps: int, rule: int) -> Result:
    """The task: ``steps`` generations of a rule, from one live cell."""
    cells = np.zeros((steps, width), np.uint8)
    cells[0, width // 2] = 1
    for t in range(1, steps):
        kernel(cells[t - 1], cells[t], rule)
    return Result(rule, cells, os.getpid())


def reference(width: int, steps: int) -> NDArray[np.uint8]:
    """All rules at once by NumPy: [rule, generation, cell]."""
    cells = np.zeros((RULES, steps, width), np.uint8)
    cells[:, 0, width // 2] = 1
    rules = np.arange(RULES)[:, None]
    for t in range(1, steps):
        row = cells[:, t - 1].astype(int)
        cells[:, t] = rules >> 4 * np.roll(row, 1, 1) + 2 * row + np.roll(row, -1, 1) & 1
    return cells


def montage(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """One picture of all rules, in rows of `COLUMNS`; live cells get redder with time."""
    _, steps, width = cells.shape
    age = np.linspace(1.0, 0.4, steps)[:, None]
    framed = np.full((RULES, steps + GAP, width + GAP), 0.15)
    framed[:, GAP:, GAP:] = cells * age
    rows = framed.reshape(RULES // COLUMNS, COLUMNS, steps + GAP, width + GAP)
    return colourise(np.block([list(row) for row in rows]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=positive_int, default=2, help="processes (default: 2)")
    parser.add_argument("--width", type=positive_int, default=95, help="cells of an automaton (default: 95)")
    parser.add_argument("--steps", type=positive_int, default=48, help="generations (default: 48)")
    parser.add_argument("--output", type=Path, default=Path("dask_automata.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    cells = np.zeros((RULES, args.steps, args.width), np.uint8)
    processes = set()
    # The processes share the processors, so each launches on one thread.
    cluster = LocalCluster(
        n_workers=args.workers,
        threads_per_worker=1,
        dashboard_address=None,
        env={"TACK_CPU_THREADS": "1"},
    )
    with cluster, Client(cluster) as client:
        start = time.perf_counter()
        task = functools.partial(run, evolve, args.width, args.steps)
        futures = client.map(task, range(RULES))
        for done, (_, result) in enumerate(as_completed(futures, with_results=True), 1):
            cells[result.rule] = result.cells
            processes.add(result.process)
            if done % (RULES // 4) == 0:
                print(f"  {done} of {RULES} rules, {time.perf_counter() - start:.2f} s")
    print(f"{RULES} rules by {len(processes)} processes of {args.workers}")

    if args.check:
        passed = check("cells of all rules", cells, reference(args.width, args.steps), 0)
        here = check("rules run in this process", os.getpid() in processes, False, 0)
        return 0 if passed and here else 1
    save_png(args.output, montage(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
