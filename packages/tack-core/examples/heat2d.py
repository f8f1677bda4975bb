"""Heat spreading over a plate: a hot picture on a cold sheet, and a radiator along one side.

    python heat2d.py
    python heat2d.py --steps 5000 --size 768
    python heat2d.py --check

Shows a stencil: an explicit time step from one array into another, with the edges held fixed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack

RATE = tack.constant(0.2)  # diffusivity * time step / spacing^2; up to 0.25 is stable


@tack.kernel
def step(old, new):
    for i, j in tack.ndindex((1, old.shape[0] - 1), (1, old.shape[1] - 1)):
        middle = old[i, j]
        around = old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
        new[i, j] = middle + RATE * (around - 4.0 * middle)


def initial_plate(size: int) -> NDArray[np.float32]:
    """A ring and two bars at temperature 1 on a plate at 0, whose left edge stays at 1."""
    y, x = np.mgrid[0:size, 0:size] / size
    radius = np.hypot(x - 0.6, y - 0.5)
    hot = (radius > 0.22) & (radius < 0.28)
    hot |= (np.abs(x - 0.6) < 0.02) & (radius < 0.14)
    hot |= (np.abs(y - 0.5) < 0.02) & (radius < 0.14)
    plate = hot.astype(np.float32)
    plate[:, 0] = 1.0
    return plate


def simulate(plate: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    """The plate's temperatures after ``steps`` steps."""
    old = tack.asarray(plate)
    new = tack.asarray(plate.copy())  # a copy, so that the edges are right in both
    for _ in range(steps):
        step(old, new)
        old, new = new, old
    return old.numpy()


def reference(plate: NDArray[np.float32], steps: int) -> NDArray[np.float64]:
    """The same by NumPy in f64."""
    t = plate.astype(np.float64)
    rate = float(np.float32(RATE))
    for _ in range(steps):
        around = t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:]
        t[1:-1, 1:-1] += rate * (around - 4.0 * t[1:-1, 1:-1])
    return t


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=640, help="cells along a side (default: 640)")
    parser.add_argument("--steps", type=positive_int, default=1500, help="time steps (default: 1500)")
    parser.add_argument("--output", type=Path, default=Path("heat2d.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    plate = initial_plate(args.size)
    heat = simulate(plate.copy(), args.steps)
    if args.check:
        # Temperatures stay within 0 and 1, where each step makes at most 8 roundings of values up
        # to 4 times RATE, and is an average: it does not enlarge the error of those before.
        bound = args.steps * F32_ROUNDOFF * 8
        return 0 if check(f"heat after {args.steps} steps", heat, reference(plate, args.steps), bound) else 1
    save_png(args.output, colourise(np.sqrt(heat)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
