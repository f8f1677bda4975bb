"""Contour lines of a landscape, by marching squares.

    python marching_squares.py
    python marching_squares.py --size 800 --levels 24
    python marching_squares.py --check

Each cell looks up in a table how lines cross it, and appends them to a list. Shows a constant
table indexed at run time, and appending with `atomic_add`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack

# By which corners are above (1, 2, 4, 8 counter-clockwise from the lower left): the edges between which
# lines run, in pairs, or -1. Edge 0 is below, 1 right, 2 above, 3 left. Cases 5 and 10 have two lines.
LINES = tack.constant(
    (
        (-1, -1, -1, -1),
        (3, 0, -1, -1),
        (0, 1, -1, -1),
        (3, 1, -1, -1),
        (1, 2, -1, -1),
        (3, 0, 1, 2),
        (0, 2, -1, -1),
        (3, 2, -1, -1),
        (2, 3, -1, -1),
        (2, 0, -1, -1),
        (0, 1, 2, 3),
        (2, 1, -1, -1),
        (1, 3, -1, -1),
        (1, 0, -1, -1),
        (0, 3, -1, -1),
        (-1, -1, -1, -1),
    )
)
CORNERS = tack.constant(((0, 0), (1, 0), (1, 1), (0, 1)))  # (x, y) of corner k; edge k leads on to the next
LAND = ("#2b5c8a", "#6fa8c7", "#d9e4c1", "#8fae6b", "#b99a5f", "#8c6a4a", "#f4f2ee")


@tack.func
def crossing(heights, i, j, edge, level):
    """Where a level crosses an edge of cell (i, j), in cells."""
    a, b = CORNERS[edge], CORNERS[(edge + 1) % 4]
    low = heights[i + a.y, j + a.x]
    high = heights[i + b.y, j + b.x]
    return [j, i] + a + (level - low) / (high - low) * (b - a)


@tack.kernel
def contour(heights, level, segments, count):
    """Appends the level's lines to ``segments`` as pairs of points; ``count`` goes on beyond its end."""
    for i, j in tack.ndindex(heights.shape[0] - 1, heights.shape[1] - 1):
        case = 0
        for corner in range(4):
            at = CORNERS[corner]
            if heights[i + at.y, j + at.x] > level:
                case += 1 << corner
        for line in range(2):
            first, second = LINES[case][2 * line], LINES[case][2 * line + 1]
            if first >= 0:
                place = tack.atomic_add(count, 0, 1)
                if place < segments.shape[0]:
                    segments[place, 0] = crossing(heights, i, j, first, level)
                    segments[place, 1] = crossing(heights, i, j, second, level)


def lines(heights: NDArray[np.float32], level: float) -> NDArray[np.float32]:
    """The level's lines (n, 2, 2): from (x, y) to (x, y) in cells, higher ground to the right (y upwards)."""
    most = 2 * heights.size
    segments, count = tack.empty((most, 2), tack.vec2), tack.zeros(1, tack.i32)
    contour(tack.asarray(heights), level, segments, count)
    return segments[: count[0]].numpy()


def landscape(size: int) -> NDArray[np.float32]:
    """Hills of all sizes; rougher where they are higher."""
    rng = np.random.default_rng(15)
    y, x = np.mgrid[0:size, 0:size] / size
    heights = np.zeros((size, size))
    for octave in range(7):
        frequency = 1.7 * 1.75**octave
        for _ in range(6):
            angle, phase = rng.uniform(0.0, 2.0 * np.pi, 2)
            wave = 2.0 * np.pi * frequency * (np.cos(angle) * x + np.sin(angle) * y) + phase
            heights += np.sin(wave) * 0.5**octave / np.sqrt(6)
    heights -= 1.1 * ((x - 0.5) ** 2 + (y - 0.5) ** 2) * 2.0
    return heights.astype(np.float32)


def run_checks(size: int) -> bool:
    """Compare the lines around a cone with circles, and those of the landscape with NumPy's cells."""
    centre = (size - 1) / 2 + 0.123
    y, x = np.mgrid[0:size, 0:size]
    cone = np.hypot(x - centre, y - centre).astype(np.float32)
    radius = 0.37 * size
    found = lines(cone, radius).astype(np.float64)
    spread = found - centre
    # Between corners the cone is replaced by a line: it is lower by at most 1/8 of its curvature, 1 / radius.
    off = 1.0 / (8.0 * (radius - 2.0)) + 8 * size * F32_ROUNDOFF
    passed = check("distance from the centre", np.linalg.norm(spread, axis=2), radius, off)
    length = np.linalg.norm(found[:, 1] - found[:, 0], axis=1).sum()
    # A polygon between circles of radius +- off; its corners' angles sum to a turn.
    passed &= check("length of the circle", length, 2.0 * np.pi * radius, 2.0 * np.pi * (off + 1.0 / radius))
    # Higher ground, which is outside, is to the right: lines go counter-clockwise.
    area = 0.5 * (spread[:, 0, 0] * spread[:, 1, 1] - spread[:, 0, 1] * spread[:, 1, 0]).sum()
    passed &= check(
        "area, counter-clockwise", area, np.pi * radius**2, 2.0 * np.pi * radius * (off + 1.0 / radius)
    )

    heights = landscape(size)
    above = heights > np.float32(0.1)
    corners = np.stack([above[:-1, :-1], above[:-1, 1:], above[1:, 1:], above[1:, :-1]])
    changes = (corners != np.roll(corners, 1, axis=0)).sum()  # each line ends at two edges
    found = lines(heights, 0.1)
    passed &= check("number of lines", len(found), changes // 2, 0)
    # Lines of neighbouring cells meet: every end inside the map belongs to two of them, as first and second.
    ends = found[np.lexsort(found[:, 0].T), 0], found[np.lexsort(found[:, 1].T), 1]
    inside = [end[((end > 0) & (end < size - 1)).all(axis=1)] for end in ends]
    same = len(inside[0]) == len(inside[1])
    tolerance = 4 * size * F32_ROUNDOFF
    gaps = np.abs(np.sort(inside[0][:, 0]) - np.sort(inside[1][:, 0])) if same else np.inf
    return check("gaps between lines", gaps, 0.0, tolerance) and passed


def draw(heights: NDArray[np.float32], levels: int, pixels: int) -> NDArray[np.uint8]:
    """A map: colours by height, shaded from the upper left, and the contour lines."""
    from PIL import Image, ImageDraw

    low, high = np.percentile(heights, [1, 99.5])
    shade = colourise(np.clip((heights - low) / (high - low), 0.0, 1.0), LAND).astype(float)
    slope_y, slope_x = np.gradient(heights * len(heights) * 0.02)
    light = np.clip(1.0 + 1.1 * (slope_x + slope_y) / np.sqrt(1.0 + slope_x**2 + slope_y**2), 0.55, 1.25)
    ground = np.clip(shade * light[:, :, None], 0, 255).astype(np.uint8)
    wide = 2 * pixels
    image = Image.fromarray(ground).resize((wide, wide), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    scale = wide / len(heights)
    for n, level in enumerate(np.linspace(low, high, levels)):
        for (x0, y0), (x1, y1) in (lines(heights, float(level)) + 0.5) * scale:
            pen.line((x0, y0, x1, y1), fill=(60, 44, 34), width=4 if n % 5 == 0 else 2)
    return np.asarray(image.resize((pixels, pixels), Image.Resampling.BOX))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=400, help="points along a side (default: 400)")
    parser.add_argument("--levels", type=positive_int, default=16, help="heights to draw (default: 16)")
    parser.add_argument("--pixels", type=positive_int, default=600, help="pixels a side (default: 600)")
    parser.add_argument("--output", type=Path, default=Path("marching_squares.png"))
    parser.add_argument("--check", action="store_true", help="compare with circles and NumPy, and exit")
    args = parser.parse_args()
    if args.size < 16:
        parser.error("argument --size: at least 16")

    if args.check:
        return 0 if run_checks(args.size) else 1
    save_png(args.output, draw(landscape(args.size), args.levels, args.pixels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
