"""Conway's Game of Life on a torus.

    python life.py                            a picture: cells glow, and fade where they died
    python life.py --output life.gif          an animation
    python life.py --check

Shows integer arrays, nested sequential loops inside the parallel one, and wrapping with `%`,
whose result has the divisor's sign as in Python.
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
def generation(cells, following, trail):
    rows = cells.shape[0]
    columns = cells.shape[1]
    for i, j in tack.ndindex(cells.shape[0], cells.shape[1]):
        block = 0  # live cells among the nine around and at (i, j)
        for di in range(-1, 2):
            for dj in range(-1, 2):
                block += cells[(i + di) % rows, (j + dj) % columns]
        alive = block == 3 or (block == 4 and cells[i, j] == 1)
        following[i, j] = alive
        trail[i, j] = 1.0 if alive else trail[i, j] * 0.97


def reference(cells: NDArray[np.uint8], generations: int) -> NDArray[np.uint8]:
    """The cells by NumPy."""
    for _ in range(generations):
        shifts = [(di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1) if (di, dj) != (0, 0)]
        neighbours = sum(np.roll(cells, shift, axis=(0, 1)).astype(int) for shift in shifts)
        cells = ((neighbours == 3) | ((neighbours == 2) & (cells == 1))).astype(np.uint8)
    return cells


def picture(trail: NDArray[np.float32], scale: int) -> NDArray[np.uint8]:
    """RGB bytes, ``scale`` pixels a cell."""
    shown = np.where(trail >= 1.0, 0.95, 0.55 * trail)
    return colourise(shown).repeat(scale, axis=0).repeat(scale, axis=1)


def save_animation(path: Path, frames: list[NDArray[np.uint8]]) -> None:
    """Write RGB frames as a GIF that repeats."""
    from PIL import Image

    first, *rest = (Image.fromarray(frame).quantize(32) for frame in frames)
    try:
        first.save(path, save_all=True, append_images=rest, duration=50, loop=0)
    except OSError as error:
        sys.exit(f"cannot write {path}: {error}")
    print(f"wrote {path} ({len(frames)} frames)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=240, help="cells along a side (default: 240)")
    parser.add_argument("--generations", type=positive_int, default=200, help="(default: 200)")
    parser.add_argument("--scale", type=positive_int, default=4, help="pixels a cell (default: 4)")
    parser.add_argument(
        "--output", type=Path, default=Path("life.png"), help="a .png, or a .gif to see it move"
    )
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    start = (np.random.default_rng(3).random((args.size, args.size + 1)) < 0.3).astype(np.uint8)
    cells, trail = tack.asarray(start, copy=True), tack.zeros(start.shape)
    following = tack.empty_like(cells)
    animate = args.output.suffix.lower() == ".gif" and not args.check
    frames = []
    for _ in range(args.generations):
        generation(cells, following, trail)
        cells, following = following, cells
        if animate:
            frames.append(picture(trail.numpy(), args.scale))

    if args.check:
        name = f"cells after {args.generations} generations"
        return 0 if check(name, cells.numpy(), reference(start, args.generations), 0) else 1
    if animate:
        save_animation(args.output, frames)
    else:
        save_png(args.output, picture(trail.numpy(), args.scale))
    return 0


if __name__ == "__main__":
    sys.exit(main())
