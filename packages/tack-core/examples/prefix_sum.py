"""Running totals of an array: out[i] = values[0] + ... + values[i].

    python prefix_sum.py
    python prefix_sum.py --size 100000000
    python prefix_sum.py --check

Groups cannot wait for each other, but launches do. The first adds up each group of 256 values; the
totals get running totals in the same way; the last launch scans each group in shared memory, and
adds what stands before it. The count is an argument, since an extent in a kernel's body is compiled
in, and the three sizes would compile three times.

Reference: W. D. Hillis, G. L. Steele, "Data Parallel Algorithms", Communications of the ACM 29, 1986.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

import numpy as np
from _common import check, positive_int

import tack

LANES = tack.constant(256)
DOUBLINGS = tack.constant(8)  # 2**8 lanes


@tack.kernel
def add_up(values, totals, count):
    """totals[g]: the sum of the values of group g."""
    for i in range(len(totals) * LANES):
        value = tack.i64(0)
        if i < count:
            value = values[i]
        total = tack.block_sum(value)
        if tack.thread_id() == 0:
            totals[i // LANES] = total


@tack.kernel
def scan(values, before, count, groups):
    """Replace values by running totals; before[g] is the running total of all groups up to g."""
    for i in range(groups * LANES):
        sums = tack.shared(LANES, tack.i64)
        lane = tack.thread_id()
        total = tack.i64(0)
        if i < count:
            total = values[i]
        for doubling in range(DOUBLINGS):  # total is of the last 1, 2, 4, ... values
            reach = 1 << doubling
            sums[lane] = total
            tack.barrier()  # all have written
            if lane >= reach:
                total += sums[lane - reach]
            tack.barrier()  # all have read
        if i >= LANES:
            total += before[i // LANES - 1]
        if i < count:
            values[i] = total


def prefix_sum(values: tack.Array) -> None:
    """Replace the i64 ``values`` by their running totals."""
    groups = -(-len(values) // LANES)
    totals = tack.zeros(groups, tack.i64)
    if groups > 1:
        add_up(values, totals, len(values))
        prefix_sum(totals)
    scan(values, totals, len(values), groups)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=5_000_000, help="values (default: 5 million)")
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    rng = np.random.default_rng(2)
    if args.check:
        results = []
        for size in sorted({1, 255, 256, 257, 256 * 256, 256 * 256 + 1, args.size}):
            values = rng.integers(-(2**40), 2**40, size)
            got = tack.asarray(values.copy())
            prefix_sum(got)
            # The differences are integers, computed before check() takes them to f64.
            results.append(check(f"{size} values", got.numpy() - np.cumsum(values), 0, 0))
        return 0 if all(results) else 1
    values = tack.asarray(rng.integers(-100, 100, args.size))
    prefix_sum(tack.zeros(LANES + 1, tack.i64))  # compiles it
    began = perf_counter()
    prefix_sum(values)
    seconds = perf_counter() - began
    rate = args.size / seconds / 1e6
    print(f"{args.size:,} values in {seconds:.3f} s, {rate:.1f} M values/s; sum {values[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
