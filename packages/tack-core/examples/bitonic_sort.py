"""Sorting by a network of comparisons that does not depend on the values.

    python bitonic_sort.py
    python bitonic_sort.py --size 10000000
    python bitonic_sort.py --check

Runs of 2, 4, 8, ... values are sorted, alternately up and down, so that two neighbours rise and fall
and merge into one. A merge compares values half a run apart, then a quarter, and so on. Distances
below 256 stay in a workgroup and its shared memory; each larger one takes a launch.

Reference: K. E. Batcher, "Sorting Networks and Their Applications", AFIPS Spring Joint Computer
Conference, 1968.
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


@tack.func
def smaller_stays(i, distance, run):
    """Whether place i is to have the smaller value of the two; runs go up and down in turn."""
    lower = (i & distance) == 0
    rising = (i & run) == 0
    return lower == rising


@tack.func
def exchange(tile, value, i, distance, run):
    """A lane's value after it was compared with that of the lane ``distance`` away."""
    lane = tack.thread_id()
    tile[lane] = value
    tack.barrier()  # all have written
    other = tile[lane ^ distance]
    tack.barrier()  # all have read
    return min(value, other) if smaller_stays(i, distance, run) else max(value, other)


@tack.kernel
def sort_groups(values):
    """Sort each 256 values, up and down in turn."""
    for i in range(len(values)):
        tile = tack.shared(LANES, tack.i32)
        value = values[i]
        for doubling in range(DOUBLINGS):
            for halving in range(doubling + 1):
                value = exchange(tile, value, i, 1 << (doubling - halving), 2 << doubling)
        values[i] = value


@tack.kernel
def merge_groups(values, run):
    """The rest of a merge: distances from 128 down to 1."""
    for i in range(len(values)):
        tile = tack.shared(LANES, tack.i32)
        value = values[i]
        for halving in range(DOUBLINGS):
            value = exchange(tile, value, i, LANES >> (halving + 1), run)
        values[i] = value


@tack.kernel
def compare(values, distance, run):
    """One step of a merge, at a distance of at least a group; an iteration has a pair of values."""
    for pair in range(len(values) // 2):
        low = pair // distance * 2 * distance + pair % distance
        high = low + distance
        small = min(values[low], values[high])
        large = max(values[low], values[high])
        if smaller_stays(low, distance, run):
            values[low], values[high] = small, large
        else:
            values[low], values[high] = large, small


def sort(values: tack.Array) -> None:
    """Sort i32 ``values``, whose number is a power of two and at least 256."""
    sort_groups(values)
    run = 2 * LANES
    while run <= len(values):
        distance = run // 2
        while distance >= LANES:
            compare(values, distance, run)
            distance //= 2
        merge_groups(values, run)
        run *= 2


def padded(keys: np.ndarray) -> np.ndarray:
    """The keys, then the largest i32 up to a power of two."""
    size = max(LANES, 1 << (len(keys) - 1).bit_length())
    return np.concatenate([keys, np.full(size - len(keys), np.iinfo(np.int32).max, np.int32)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=1_000_000, help="values (default: 1 million)")
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    rng = np.random.default_rng(4)
    limits = np.iinfo(np.int32)
    if args.check:
        results = []
        for size in sorted({1, 256, 257, 1024, args.size}):
            inputs = {
                "any": rng.integers(limits.min, limits.max, size, np.int32, endpoint=True),
                "few different": rng.integers(-2, 3, size, np.int32),
                "descending": np.arange(size, 0, -1, dtype=np.int32),
            }
            for name, keys in inputs.items():
                values = tack.asarray(padded(keys))
                sort(values)
                results.append(check(f"{size} values, {name}", values.numpy()[:size], np.sort(keys), 0))
        return 0 if all(results) else 1
    keys = rng.integers(limits.min, limits.max, args.size, np.int32, endpoint=True)
    values = tack.asarray(padded(keys))
    sort(tack.zeros(2 * LANES, tack.i32))  # compiles it
    began = perf_counter()
    sort(values)
    seconds = perf_counter() - began
    rate = args.size / seconds / 1e6
    print(f"{args.size:,} values in {seconds:.2f} s, {rate:.2f} M values/s; least {values[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
