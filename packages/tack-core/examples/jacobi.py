"""The potential of electric charges in a grounded box: Poisson's equation by Jacobi iteration.

    python jacobi.py
    python jacobi.py --size 160 --sweeps 4000
    python jacobi.py --check

Shows a 7-point stencil over a 3-D `tack.ndindex`, and a kernel that returns a number.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack

CHARGES = ("#2a0a5e", "#3a57c4", "#8fc7e8", "#fbfaf5", "#f3b16b", "#cf3d2e", "#5c0621")


@tack.kernel
def sweep(u, source, new):
    """new = the value at each inner point that its neighbours and the source there ask for."""
    for i, j, k in tack.ndindex((1, u.shape[0] - 1), (1, u.shape[1] - 1), (1, u.shape[2] - 1)):
        along_x = u[i - 1, j, k] + u[i + 1, j, k]
        along_y = u[i, j - 1, k] + u[i, j + 1, k]
        along_z = u[i, j, k - 1] + u[i, j, k + 1]
        new[i, j, k] = (along_x + along_y + along_z + source[i, j, k]) / 6.0


@tack.kernel
def largest_change(u, new, most) -> float:
    for i, j, k in tack.ndindex(u.shape[0], u.shape[1], u.shape[2]):
        tack.atomic_max(most, 0, abs(new[i, j, k] - u[i, j, k]))
    return most[0]


def solve(source: NDArray[np.float32], sweeps: int) -> tuple[NDArray[np.float32], float]:
    """The potential after ``sweeps`` sweeps from 0, and how much the last one changed it at most.

    ``source`` is the charge density times the spacing squared.
    """
    right = tack.asarray(source)
    u, new = tack.zeros(source.shape), tack.zeros(source.shape)
    for _ in range(sweeps):
        sweep(u, right, new)
        u, new = new, u
    return u.numpy(), largest_change(new, u, tack.zeros(1))


def charges(size: int) -> NDArray[np.float32]:
    """Two positive balls and a negative plate in a box of side 1."""
    x, y, z = np.meshgrid(*[np.linspace(0.0, 1.0, size)] * 3, indexing="ij")
    source = np.zeros((size, size, size))
    for centre in ((0.35, 0.3, 0.5), (0.62, 0.36, 0.5)):
        inside = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 + (z - centre[2]) ** 2 < 0.08**2
        source[inside] = 1.0 / inside.sum()
    plate = (np.abs(y - 0.72) < 0.02) & (np.abs(x - 0.5) < 0.25) & (np.abs(z - 0.5) < 0.25)
    source[plate] = -2.4 / plate.sum()
    return (source * size).astype(np.float32)


def run_checks(size: int) -> bool:
    """Compare the iterates with their closed form.

    With a product of sines as the source, every iterate is one: a sweep shrinks it by the mean of the
    cosines of its three wave numbers, and adds the source over 6.
    """
    k = np.array([1, 2, 1]) * np.pi / (size - 1)
    wave = [np.sin(rate * np.arange(size)) for rate in k]
    shape = wave[0][:, None, None] * wave[1][:, None] * wave[2]
    shrink = np.cos(k).mean()
    passed = True
    for sweeps in (1, 10, 100):
        got, change = solve(shape.astype(np.float32), sweeps)
        want = (1.0 - shrink**sweeps) / (6.0 * (1.0 - shrink)) * shape
        # A sweep is an average, which enlarges no error, and rounds sums of values below this 8 times.
        bound = 8 * sweeps * F32_ROUNDOFF * (6 * np.abs(want).max() + 1.0) / 6
        passed &= check(f"potential after {sweeps} sweeps", got, want, bound)
        last = shrink ** (sweeps - 1) / 6.0 * np.abs(shape).max()
        passed &= check("its last change", change, last, 2 * bound)
    return passed


def picture(u: NDArray[np.float32], pixels: int) -> NDArray[np.uint8]:
    """The middle slice, with lines of equal potential."""
    from PIL import Image

    cut = np.asarray(
        Image.fromarray(u[:, :, u.shape[2] // 2].T[::-1]).resize((pixels, pixels), Image.Resampling.BICUBIC)
    )
    level = np.cbrt(cut / np.abs(cut).max())
    shades = colourise(0.5 + 0.5 * level, CHARGES).astype(float)
    spaced = level * 14.0
    slope = np.hypot(*np.gradient(spaced)) + 1e-9
    to_line = np.abs(spaced - np.rint(spaced)) / slope  # in pixels
    ink = 0.45 * np.clip(1.4 - to_line, 0.0, 1.0)[:, :, None]
    return np.rint(shades * (1.0 - ink)).astype(np.uint8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=96, help="points along a side (default: 96)")
    parser.add_argument("--sweeps", type=positive_int, default=3000, help="(default: 3000)")
    parser.add_argument("--pixels", type=positive_int, default=560, help="pixels a side (default: 560)")
    parser.add_argument("--output", type=Path, default=Path("jacobi.png"))
    parser.add_argument("--check", action="store_true", help="compare with closed forms and exit")
    args = parser.parse_args()

    if args.check:
        return 0 if run_checks(max(args.size, 4)) else 1
    began = perf_counter()
    potential, change = solve(charges(args.size), args.sweeps)
    speed = potential.size * args.sweeps / (perf_counter() - began) / 1e6
    print(f"{speed:.0f} M points/s; the last sweep changed the potential by {change:.2g} at most")
    save_png(args.output, picture(potential, args.pixels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
