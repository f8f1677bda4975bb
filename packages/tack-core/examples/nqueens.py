"""In how many ways can n queens stand on an n x n board without attacking each other?

    python nqueens.py
    python nqueens.py -n 14
    python nqueens.py --check

Each iteration places the first rows and searches the rest, with the rows' remaining squares as bits
on a stack of its own. Shows integers, `tack.local_array`, a `while` loop, and a reduction on the device.
"""

from __future__ import annotations

import argparse
import sys
from itertools import permutations
from time import perf_counter

from _common import check, positive_int

import tack

MOST = tack.constant(20)  # rows of the stack
SPLIT = 3  # rows whose queens the iteration's number places


@tack.func
def search(columns, falling, rising, full, stack):
    """The ways to fill the remaining rows; the three masks say which squares are attacked."""
    found = 0
    depth = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = columns, falling, rising
    stack[0, 3] = full & ~(columns | falling | rising)
    while depth >= 0:
        free = stack[depth, 3]
        if free == 0:
            depth -= 1
            continue
        queen = free & -free  # the lowest free square
        stack[depth, 3] = free ^ queen
        columns = stack[depth, 0] | queen
        if columns == full:
            found += 1
            continue
        falling = ((stack[depth, 1] | queen) << 1) & full
        rising = (stack[depth, 2] | queen) >> 1
        depth += 1
        stack[depth, 0], stack[depth, 1], stack[depth, 2] = columns, falling, rising
        stack[depth, 3] = full & ~(columns | falling | rising)
    return found


@tack.kernel
def count_from(counts, n, split):
    """counts[i]: the solutions whose first ``split`` queens stand on the digits of i, written to base n."""
    for i in range(len(counts)):
        full = (1 << n) - 1
        columns, falling, rising = 0, 0, 0
        code = i
        legal = 1
        for _ in range(split):
            queen = 1 << int(code % n)
            code //= n
            if queen & (columns | falling | rising):
                legal = 0
            columns |= queen
            falling = ((falling | queen) << 1) & full
            rising = (rising | queen) >> 1
        stack = tack.local_array((MOST, 4), tack.i32)
        counts[i] = 0
        if legal and columns == full:
            counts[i] = 1
        elif legal:
            counts[i] = search(columns, falling, rising, full, stack)


def solutions(n: int) -> int:
    """The number of solutions, for n from 1 to MOST."""
    split = min(SPLIT, n)
    counts = tack.empty(n**split, tack.i64)
    count_from(counts, n, split)
    return counts.sum()


def by_permutations(n: int) -> int:
    """The same by trying every permutation of the columns."""
    return sum(
        len({row + column for row, column in enumerate(p)})
        == len({row - column for row, column in enumerate(p)})
        == n
        for p in permutations(range(n))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", type=positive_int, default=13, help="up to 20 (default: 13)")
    parser.add_argument(
        "--check", action="store_true", help="compare with a plain search, n up to 7, and exit"
    )
    args = parser.parse_args()
    if args.n > MOST:
        parser.error(f"argument -n: at most {int(MOST)}")

    if args.check:
        sizes = range(1, min(args.n, 7) + 1)
        results = [check(f"n = {n}", solutions(n), by_permutations(n), 0) for n in sizes]
        # Gauss knew the number for 8; those for larger n are in the OEIS as sequence A000170.
        known = {8: 92, 9: 352, 10: 724, 11: 2680, 12: 14200}
        results += [check(f"n = {n}", solutions(n), want, 0) for n, want in known.items() if n <= args.n]
        return 0 if all(results) else 1
    began = perf_counter()
    found = solutions(args.n)
    print(f"{args.n} queens: {found:,} solutions in {perf_counter() - began:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
