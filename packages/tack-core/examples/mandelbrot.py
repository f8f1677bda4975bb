"""The Mandelbrot set, coloured by how fast each point escapes.

    python mandelbrot.py                                        the whole set
    python mandelbrot.py --centre -0.743643 0.131825 --width 0.0003 --limit 2000
    python mandelbrot.py --check

Shows a 2-D launch (`tack.ndindex`), a `while` loop, a device function that returns two values,
and f64 arithmetic, chosen by pinning the parameters' type.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack

ESCAPE = tack.constant(256.0)  # far beyond the 2 that suffices: the colours become smoother
PALETTE = ("#00071c", "#0b3c7a", "#2f8fc4", "#e8f6f3", "#ffd36b", "#d9702b", "#5a1846", "#00071c")


@tack.func
def iterate(x, y, limit):
    """The number of steps of z = z * z + c from 0 that stay within ESCAPE, and the last |z|^2."""
    re, im = 0.0, 0.0
    count = 0
    while count < limit:
        re, im = re * re - im * im + x, 2.0 * re * im + y
        if re * re + im * im > ESCAPE * ESCAPE:
            return count, re * re + im * im
        count += 1
    return count, re * re + im * im


@tack.kernel
def mandelbrot(counts, smooth, left: tack.f64, top: tack.f64, pixel: tack.f64, limit):
    for row, column in tack.ndindex(counts.shape[0], counts.shape[1]):
        count, square = iterate(left + column * pixel, top - row * pixel, limit)
        counts[row, column] = count
        if count < limit:
            # Fractional steps: |z| squares at each one, so its logarithm's logarithm is linear.
            smooth[row, column] = count + 1 - tack.log2(tack.log(square) / (2.0 * tack.log(ESCAPE)))
        else:
            smooth[row, column] = 0.0


def colours(counts: NDArray[np.int32], smooth: NDArray[np.float32], limit: int) -> NDArray[np.uint8]:
    """RGB bytes: the palette once per cycle of log(steps), black inside the set."""
    phase = np.log2(np.maximum(smooth, 0.0) + 1.0) * 0.28 - 0.54
    pixels = colourise(phase % 1.0, PALETTE)
    pixels[counts >= limit] = 0
    return pixels


def reference(
    x: NDArray[np.float64], y: NDArray[np.float64], limit: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The counts by NumPy, and where rounding cannot have changed them.

    Beside each z runs a bound on how far two correctly rounded computations of it can be apart:
    a step doubles and scales the difference by |z| and adds a few roundings. A count is certain
    if no |z| up to the escape is closer to the escape radius than that.
    """
    roundoff = 2.0**-53
    extent = np.abs(x).max() + np.abs(y).max()
    re, im, apart = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    counts = np.full(x.shape, limit, np.int32)
    certain = np.ones(x.shape, bool)
    running = np.ones(x.shape, bool)
    for step in range(limit):
        size = np.hypot(re, im)
        apart = (2.0 * size + apart) * apart + 16.0 * roundoff * (size * size + extent)
        apart = np.minimum(apart, 4.0 * ESCAPE**2)  # more than any |z|: uncertain from here on
        re, im = re * re - im * im + x, 2.0 * re * im + y
        size = np.hypot(re, im)
        certain &= ~running | (np.abs(size - ESCAPE) > apart + 8.0 * roundoff * ESCAPE)
        escaped = running & (size > ESCAPE)
        counts[escaped] = step
        running &= ~escaped
        re, im, apart = (np.where(running, value, 0.0) for value in (re, im, apart))
    return counts, certain


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=1200, help="pixels across (default: 1200)")
    parser.add_argument("--centre", type=float, nargs=2, default=(-0.65, 0.0), metavar=("X", "Y"))
    parser.add_argument("--width", type=float, default=3.2, help="width of the view (default: 3.2)")
    parser.add_argument("--limit", type=positive_int, default=500, help="most steps (default: 500)")
    parser.add_argument("--output", type=Path, default=Path("mandelbrot.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    columns = args.size
    rows = max(1, columns * 3 // 4)
    pixel = args.width / columns
    left = args.centre[0] - pixel * (columns - 1) / 2
    top = args.centre[1] + pixel * (rows - 1) / 2
    steps, fractional = tack.empty((rows, columns), tack.i32), tack.empty((rows, columns))
    mandelbrot(steps, fractional, left, top, pixel, args.limit)
    counts, smooth = steps.numpy(), fractional.numpy()

    if args.check:
        x, y = np.meshgrid(left + np.arange(columns) * pixel, top - np.arange(rows) * pixel)
        want, certain = reference(x, y, args.limit)
        passed = check("counts that rounding cannot change", counts[certain], want[certain], 0)
        return 0 if check("share of such counts", certain.mean(), 1.0, 0.05) and passed else 1
    save_png(args.output, colours(counts, smooth, args.limit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
