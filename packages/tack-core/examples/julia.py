"""Julia sets of z -> z**2 + c, coloured by their distance from each point.

    python julia.py
    python julia.py --c -0.8 0.156 --limit 500
    python julia.py --check

Shows complex numbers as `dvec2` values with device functions for their arithmetic, and a kernel
parameter annotated with a vector type, which takes a tuple.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import check, colourise, positive_int, save_png
from _pictures import shrink
from numpy.typing import NDArray

import tack

ESCAPE2 = tack.constant(1e8)  # |z|**2 beyond which the distance estimate is good
PALETTE = ("#fdf6e3", "#f2c14e", "#e4572e", "#7b1e5c", "#241347", "#0b0a1f")


@tack.func
def multiply(a, b):
    """The product of two complex numbers."""
    return tack.dvec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)


@tack.func
def escape(z, c, limit):
    """Steps until |z| is large, then z, and its derivative by the start."""
    slope = tack.dvec2(1.0, 0.0)
    count = 0
    while count < limit and z.length_sq() < ESCAPE2:
        slope = 2.0 * multiply(z, slope)
        z = multiply(z, z) + c
        count += 1
    return count, z, slope


@tack.kernel
def julia(counts, distances, c: tack.dvec2, pixel: tack.f64, limit):
    for row, column in tack.ndindex(counts.shape[0], counts.shape[1]):
        x = (column - 0.5 * (counts.shape[1] - 1)) * pixel
        y = (0.5 * (counts.shape[0] - 1) - row) * pixel
        count, z, slope = escape(tack.dvec2(x, y), c, limit)
        counts[row, column] = count
        size = z.length()
        inside = z.length_sq() < ESCAPE2
        distances[row, column] = 0.0 if inside else size * tack.log(size) / slope.length()


def draw(
    rows: int, columns: int, c: tuple[float, float], pixel: float, limit: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The steps and the distances of the pixels around 0."""
    counts, distances = tack.empty((rows, columns), tack.i32), tack.empty((rows, columns), tack.f64)
    julia(counts, distances, c, pixel, limit)
    return counts.numpy(), distances.numpy()


def reference(
    z: NDArray[np.complex128], c: complex, limit: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The counts by NumPy, and where no rounding can have changed them.

    Beside each z runs a bound on how far two computations of it can be apart.
    """
    counts, certain = np.zeros(z.shape, np.int32), np.ones(z.shape, bool)
    apart = np.full(z.shape, 4.0 * 2.0**-53)
    running = np.ones(z.shape, bool)
    for _ in range(limit):
        size = np.abs(z)
        certain &= ~running | (np.abs(size - np.sqrt(ESCAPE2)) > apart + 1e-10)
        running &= size**2 < ESCAPE2
        counts += running
        apart = (2.0 * size + apart) * apart + 16.0 * 2.0**-53 * (size**2 + abs(c))
        z, apart = np.where(running, z * z + c, 1e9), np.where(running, np.minimum(apart, 1e9), 0.0)
    return counts, certain


def run_checks(counts: NDArray[np.int32], pixel: float, c: complex, limit: int) -> bool:
    rows, columns = counts.shape
    x, y = np.arange(columns) - 0.5 * (columns - 1), 0.5 * (rows - 1) - np.arange(rows)
    want, certain = reference((x + 1j * y[:, None]) * pixel, c, limit)
    passed = check("counts that rounding cannot change", counts[certain], want[certain], 0)
    passed &= check("share of such counts", certain.mean(), 1.0, 0.05)
    # z and -z have the same square, so the set looks the same upside down, to the last bit.
    passed &= check("symmetry", counts, counts[::-1, ::-1], 0)

    # For c = 0 the set is the unit circle; the estimate of a distance d is right to the second order in d.
    _, disk = draw(64, 64, (0.0, 0.0), 0.05, 200)
    radius = np.hypot(*np.mgrid[-31.5:32, -31.5:32]) * 0.05
    near = (radius > 1.0) & (radius < 1.2)
    passed &= check(
        "distance from the unit circle", disk[near], radius[near] - 1.0, (radius[near] - 1.0) ** 2
    )
    return passed


def picture(distances: NDArray[np.float64], pixel: float) -> NDArray[np.uint8]:
    near = np.clip(distances / (600.0 * pixel), 1e-6, 1.0)
    pixels = colourise(np.clip(near**0.22, 0.0, 1.0), PALETTE)
    pixels[distances == 0.0] = (253, 246, 227)
    return pixels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=900, help="pixels across (default: 900)")
    parser.add_argument("--c", type=float, nargs=2, default=(-0.512511498, 0.521295573), metavar=("RE", "IM"))
    parser.add_argument("--width", type=float, default=3.1, help="width of the view (default: 3.1)")
    parser.add_argument("--limit", type=positive_int, default=400, help="most steps (default: 400)")
    parser.add_argument("--output", type=Path, default=Path("julia.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    samples = 1 if args.check else 2
    columns, rows = args.size * samples, max(1, args.size * 2 // 3) * samples
    pixel = args.width / columns
    counts, distances = draw(rows, columns, tuple(args.c), pixel, args.limit)
    if args.check:
        return 0 if run_checks(counts, pixel, complex(*args.c), args.limit) else 1
    save_png(args.output, shrink(picture(distances, pixel), samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
