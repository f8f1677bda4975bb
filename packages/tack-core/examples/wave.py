"""Water waves that pass two slits in a wall, and cross behind it.

    python wave.py
    python wave.py --size 900
    python wave.py --check

Shows a stencil over three arrays (before, now, after), and a kernel called again and again with
other arrays and another scalar, which compiles nothing new.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack

COURANT2 = tack.constant(0.25)  # (speed * time step / spacing)**2; up to 0.5 is stable
SEA = ("#06283d", "#1363a5", "#7cc4e8", "#f5f9fb", "#f2c79a", "#c2602c", "#4a1606")


@tack.kernel
def step(before, now, after, damping):
    """One step of the inner points; those at the border stay still."""
    for i, j in tack.ndindex((1, now.shape[0] - 1), (1, now.shape[1] - 1)):
        here = now[i, j]
        around = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1]
        lost = damping[i, j]
        moved = 2.0 * here - before[i, j] + COURANT2 * (around - 4.0 * here)
        after[i, j] = (1.0 - lost) * moved + lost * here


@tack.kernel
def drive(u, row, column, width, height):
    """Adds a smooth bump of so much height around a point."""
    for i, j in tack.ndindex((1, u.shape[0] - 1), (1, u.shape[1] - 1)):
        distance2 = ((i - row) ** 2 + (j - column) ** 2) / (width * width)
        if distance2 < 16.0:
            u[i, j] += height * tack.exp(-distance2)


def pond(size: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The damping of each point, strong in a shore along the border, and the wall with its slits."""
    rows, columns = size, size * 4 // 3
    y, x = np.mgrid[0:rows, 0:columns]
    to_shore = np.minimum.reduce([x, y, rows - 1 - y, columns - 1 - x]) / (0.06 * size)
    damping = 0.12 * np.maximum(1.0 - to_shore, 0.0) ** 2
    wall = np.abs(x - 0.45 * size) < 0.008 * size
    for centre in (0.36, 0.64):
        wall &= np.abs(y - centre * size) > 0.028 * size
    damping[wall] = 1.0
    return damping.astype(np.float32), wall


def ripple(size: int, steps: int) -> NDArray[np.float32]:
    """The water's height after waves have run in from the left for ``steps`` steps."""
    shore, wall = pond(size)
    damping = tack.asarray(shore)
    before, now, after = (tack.zeros(shore.shape) for _ in range(3))
    wavelength = 0.05 * size
    for count in range(steps):
        step(before, now, after, damping)
        phase = 2.0 * np.pi * 0.5 * count / wavelength  # half a cell a step
        drive(after, size // 2, size // 8, 0.2 * wavelength, 0.3 * np.sin(phase))
        before, now, after = now, after, before
    height = now.numpy()
    height[wall] = np.nan
    return height


def picture(height: NDArray[np.float32]) -> NDArray[np.uint8]:
    shown = np.nan_to_num(height)
    scale = np.percentile(np.abs(shown[:, shown.shape[1] * 2 // 5 :]), 98.0)
    pixels = colourise(0.5 + 0.5 * np.tanh(shown / (1.6 * scale)), SEA)
    pixels[np.isnan(height)] = (40, 40, 44)
    return pixels


def run_checks(size: int, steps: int) -> bool:
    """Compare a standing wave with the solution of the difference equation.

    A product of sines keeps its shape, and swings with cos(n * theta), where
    sin(theta / 2)**2 = COURANT2 * (sin(kx / 2)**2 + sin(ky / 2)**2).
    """
    kx, ky = 3 * np.pi / (size - 1), 2 * np.pi / (size - 1)
    shape = np.outer(np.sin(kx * np.arange(size)), np.sin(ky * np.arange(size)))
    theta = 2.0 * np.arcsin(np.sqrt(COURANT2 * (np.sin(kx / 2) ** 2 + np.sin(ky / 2) ** 2)))
    still = tack.zeros(shape.shape)
    before = tack.asarray((np.cos(theta) * shape).astype(np.float32))
    now, after = tack.asarray(shape.astype(np.float32)), tack.zeros(shape.shape)
    for _ in range(steps):
        step(before, now, after, still)
        before, now, after = now, after, before
    # A step rounds sums of up to 4 values below 1 times COURANT2, and a result below 2; an error grows by
    # no more than itself in each step after.
    bound = 5 * F32_ROUNDOFF * (steps + 1) * (steps + 2) / 2
    return check(f"a standing wave after {steps} steps", now.numpy(), np.cos(steps * theta) * shape, bound)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=540, help="pixels high (default: 540)")
    parser.add_argument("--steps", type=positive_int, help="(default: what it takes to cross the pond)")
    parser.add_argument("--output", type=Path, default=Path("wave.png"))
    parser.add_argument("--check", action="store_true", help="compare with the exact solution and exit")
    args = parser.parse_args()
    if args.size < 8:
        parser.error("argument --size: at least 8")

    if args.check:
        return 0 if run_checks(args.size, args.steps or 200) else 1
    save_png(args.output, picture(ripple(args.size, args.steps or round(2.6 * args.size))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
