"""A histogram by atomic additions: many iterations add to one bin at the same time.

    python histogram.py                       prints it as bars
    python histogram.py --output bars.png     and draws it
    python histogram.py --check

Shows `tack.atomic_add`, which no other iteration can interrupt, and `continue`, which ends one
iteration of the parallel loop.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack


@tack.kernel
def histogram(values, bins, low, scale):
    for i in range(values.shape[0]):
        place = (values[i] - low) * scale
        if not (0.0 <= place < bins.shape[0]):
            continue  # outside the range, or a NaN
        tack.atomic_add(bins, int(place), 1)


def reference(values: NDArray[np.float32], bins: int, low: float, scale: float) -> NDArray[np.int64]:
    """The counts by NumPy, in the same f32 arithmetic."""
    place = (values - np.float32(low)) * np.float32(scale)
    inside = (place >= 0) & (place < bins)
    return np.bincount(place[inside].astype(np.int64), minlength=bins)


def bars(counts: NDArray[np.int32], height: int = 360) -> NDArray[np.uint8]:
    """A bar for each bin on a dark ground, as RGB bytes; higher bars are lighter."""
    wide = max(1, 960 // counts.size)
    lengths = counts / max(1, counts.max()) * (height - 20)
    level = np.arange(height)[::-1, None]
    inside = np.repeat(level < lengths, wide, axis=1)
    if wide > 2:
        inside[:, wide - 1 :: wide] = False  # a gap between bars
    shade = np.repeat(0.35 + 0.5 * lengths / height, wide)
    return np.where(inside[:, :, None], colourise(shade), np.uint8(14)).astype(np.uint8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", type=positive_int, default=10_000_000, help="values (default: 10 million)")
    parser.add_argument("--bins", type=positive_int, default=60, help="bins from -3 to 5 (default: 60)")
    parser.add_argument("--output", type=Path, help="write a picture here")
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    rng = np.random.default_rng(7)
    values = rng.standard_normal(args.n, dtype=np.float32)
    values[::3] = values[::3] * np.float32(0.5) + np.float32(3.0)  # a second, narrower hill
    low, high = -3.0, 5.0
    scale = args.bins / (high - low)

    counts = tack.zeros(args.bins, tack.i32)
    histogram(tack.asarray(values), counts, low, scale)
    bins = counts.numpy()
    if args.check:
        # Subtracting and then multiplying leaves nothing to fuse, so every value lands in the same bin.
        return 0 if check("bins", bins, reference(values, args.bins, low, scale), 0) else 1

    edges = low + np.arange(args.bins) / scale
    for edge, count in zip(edges, bins, strict=True):
        print(f"{edge:6.2f} {count:9d} {'#' * round(60 * count / max(1, bins.max()))}")
    if args.output:
        save_png(args.output, bars(bins))
    return 0


if __name__ == "__main__":
    sys.exit(main())
