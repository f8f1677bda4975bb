"""Reducing a picture's colours to a few, by k-means clustering.

    python kmeans.py
    python kmeans.py photo.jpg --colours 12
    python kmeans.py --check

Each pixel goes to the nearest of k colours; each colour moves to the mean of its pixels; and again.
Shows atomic additions of vectors, and copying arrays to and from NumPy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int, save_png
from _pictures import side_by_side
from numpy.typing import NDArray

import tack


@tack.kernel
def assign(points, centres, labels, sums, counts):
    """Adds each point to the sum of the nearest centre; sums and counts must be 0."""
    for i in range(len(points)):
        nearest = 0
        least = tack.length_sq(points[i] - centres[0])
        for k in range(1, len(centres)):
            distance = tack.length_sq(points[i] - centres[k])
            if distance < least:
                nearest, least = k, distance
        labels[i] = nearest
        tack.atomic_add(sums, nearest, points[i])
        tack.atomic_add(counts, nearest, 1)


@tack.kernel
def recentre(centres, sums, counts):
    for k in range(len(centres)):
        if counts[k] > 0:  # an empty cluster stays where it is
            centres[k] = sums[k] / counts[k]


def cluster(
    points: NDArray[np.float32], start: NDArray[np.float32], rounds: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Centres (k, 3) and the labels of all points (n, 3) after at most ``rounds`` rounds."""
    data = tack.asarray(points, tack.vec3)
    centres = tack.asarray(start, tack.vec3, copy=True)
    labels = tack.empty(len(points), tack.i32)
    sums, counts = tack.empty_like(centres), tack.empty(len(start), tack.i32)
    for _ in range(rounds):
        sums.fill(0.0)
        counts.fill(0)
        assign(data, centres, labels, sums, counts)
        before = centres.numpy()
        recentre(centres, sums, counts)
        if np.abs(centres.numpy() - before).max() < 1e-4:
            break
    return centres.numpy(), labels.numpy()


def spread_out(points: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """k of the points, chosen with a chance that grows with their distance from those before (k-means++)."""
    rng = np.random.default_rng(11)
    sample = points[rng.permutation(len(points))[:4096]].astype(np.float64)
    chosen = [sample[0]]
    far = np.full(len(sample), np.inf)  # squared distances to the nearest chosen point
    for _ in range(1, k):
        far = np.minimum(far, ((sample - chosen[-1]) ** 2).sum(axis=1))
        weights = far if far.sum() > 0 else np.ones(len(sample))
        chosen.append(sample[rng.choice(len(sample), p=weights / weights.sum())])
    return np.array(chosen, np.float32)


def check_round(points: NDArray[np.float32], start: NDArray[np.float32]) -> bool:
    """Compare one round with NumPy."""
    centres, labels = cluster(points, start, 1)
    distances = ((points[:, None].astype(np.float64) - start[None]) ** 2).sum(axis=2)
    least = distances.min(axis=1)
    # Of distances rounded 6 times a point may take one that is larger by as much.
    taken = distances[np.arange(len(points)), labels]
    passed = check("distances to the centres", taken, least, 12 * F32_ROUNDOFF * (least + taken))

    sizes = np.bincount(labels, minlength=len(start))
    sums = np.stack([np.bincount(labels, points[:, axis], len(start)) for axis in range(3)], axis=1)
    want = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], start)
    # The sum of m values, in any order, rounds m times a partial sum of at most all of them.
    bound = (sizes[:, None] + 2) * F32_ROUNDOFF * np.abs(points).max()
    return check("centres", centres, want, bound) and passed


def run_checks(count: int, k: int) -> bool:
    """Compare rounds with NumPy, and find clusters that were planted."""
    rng = np.random.default_rng(3)
    points = rng.uniform(-1.0, 1.0, (count, 3)).astype(np.float32)
    start = rng.uniform(-1.0, 1.0, (k, 3)).astype(np.float32)
    passed = check_round(points, start)

    planted = rng.uniform(-1.0, 1.0, (k, 3))
    planted *= 10.0 * np.arange(1, k + 1)[:, None] / np.linalg.norm(planted, axis=1, keepdims=True)
    points = planted[rng.integers(0, k, count)] + rng.uniform(-1.0, 1.0, (count, 3))
    points = points.astype(np.float32)
    passed &= check_round(points, planted.astype(np.float32))
    centres, labels = cluster(points, planted.astype(np.float32), 100)
    sizes = np.bincount(labels, minlength=k)
    # Each mean of m values within 1 of a planted centre: five standard deviations, plus rounding as above.
    bound = 5.0 / np.sqrt(3.0 * np.maximum(sizes, 1)) + count * F32_ROUNDOFF * 10.0 * k
    gap = np.linalg.norm(planted[:, None] - planted, axis=2) + 1e9 * np.eye(k)
    clear = gap.min(axis=1) > 4.0 * np.sqrt(3.0)  # clusters that no other touches
    return check("planted centres", centres[clear], planted[clear], bound[clear][:, None]) and passed


def sunset(size: int) -> NDArray[np.float32]:
    """A picture with many colours: a sun over hills; (rows, columns, 3), 0 to 1."""
    rows, columns = size * 3 // 4, size
    y, x = np.mgrid[0:rows, 0:columns] / size
    sky = np.stack(
        [
            np.interp(y, [0, 0.35, 0.6], v)
            for v in ([0.12, 0.75, 1.0], [0.14, 0.38, 0.72], [0.36, 0.42, 0.45])
        ],
        -1,
    )
    distance = np.hypot(x - 0.62, y - 0.38)
    glow = np.exp(-9.0 * distance)[:, :, None]
    picture = sky * (1.0 - glow) + glow * [1.0, 0.86, 0.5]
    picture[distance < 0.075] = (1.0, 0.95, 0.78)
    for n, base in enumerate((0.46, 0.54, 0.63)):
        ridge = (
            base + 0.035 * np.sin(9.0 * x + 2.0 * n) + 0.02 * np.sin(23.0 * x + n) + 0.008 * np.sin(61.0 * x)
        )
        depth = np.clip((y - ridge) / 0.25, 0.0, 1.0)[:, :, None]
        hill = np.array([[0.42, 0.24, 0.36], [0.22, 0.17, 0.28], [0.07, 0.10, 0.13]][n])
        picture = np.where((y > ridge)[:, :, None], hill * (1.15 - 0.5 * depth), picture)
    return np.clip(picture, 0.0, 1.0).astype(np.float32)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("picture", type=Path, nargs="?", help="(default: a sunset)")
    parser.add_argument("--colours", type=positive_int, default=8, help="(default: 8)")
    parser.add_argument("--size", type=positive_int, default=560, help="pixels across (default: 560)")
    parser.add_argument("--output", type=Path, default=Path("kmeans.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    if args.check:
        return 0 if run_checks(args.size * 40, args.colours) else 1
    if args.picture:
        from PIL import Image

        try:
            image = Image.open(args.picture).convert("RGB")
        except OSError as error:
            sys.exit(f"cannot read {args.picture}: {error}")
        image.thumbnail((args.size, args.size))
        pixels = np.asarray(image, np.float32) / 255.0
    else:
        pixels = sunset(max(args.size, 4))
    points = pixels.reshape(-1, 3).copy()
    centres, labels = cluster(points, spread_out(points, args.colours), 60)
    reduced = centres[labels].reshape(pixels.shape)
    both = [np.rint(255 * np.clip(part, 0.0, 1.0)).astype(np.uint8) for part in (pixels, reduced)]
    save_png(args.output, side_by_side(both))
    return 0


if __name__ == "__main__":
    sys.exit(main())
