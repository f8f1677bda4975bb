"""Two disks of stars that fall past each other under gravity.

    python nbody.py
    python nbody.py --bodies 8000
    python nbody.py --check

Shows an inner sequential loop over all bodies with scalar accumulators, `rsqrt`, and a splatting
kernel that draws with atomic additions.
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

SOFTENING2 = tack.constant(0.05**2)  # squared distance below which gravity weakens


@tack.kernel
def attract(position, mass, acceleration):
    for i in range(position.shape[0]):
        x, y, z = position[i, 0], position[i, 1], position[i, 2]
        ax, ay, az = 0.0, 0.0, 0.0
        for j in range(position.shape[0]):
            dx = position[j, 0] - x
            dy = position[j, 1] - y
            dz = position[j, 2] - z
            near = tack.rsqrt(dx * dx + dy * dy + dz * dz + SOFTENING2)
            pull = mass[j] * near * near * near
            ax += pull * dx
            ay += pull * dy
            az += pull * dz
        acceleration[i, 0], acceleration[i, 1], acceleration[i, 2] = ax, ay, az


@tack.kernel
def advance(target, rate, dt):
    for i, axis in tack.ndindex(target.shape[0], target.shape[1]):
        target[i, axis] += rate[i, axis] * dt


@tack.kernel
def splat(position, image, scale):
    for i in range(position.shape[0]):
        column = int(tack.floor(position[i, 0] * scale + image.shape[1] / 2))
        row = int(tack.floor(image.shape[0] / 2 - position[i, 1] * scale))
        if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
            tack.atomic_add(image, (row, column), 1.0)


def disk(
    rng: np.random.Generator, stars: int, tilt: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and velocities of stars that circle a unit mass spread over themselves."""
    radius = np.sqrt(rng.uniform(0.01, 1.0, stars))
    angle = rng.uniform(0.0, 2.0 * np.pi, stars)
    height = rng.normal(0.0, 0.02, stars)
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)
    speed = radius / np.sqrt(np.hypot(radius, 0.15))  # circular: the mass within grows as radius^2
    velocity = np.stack([-speed * np.sin(angle), speed * np.cos(angle), 0.0 * angle], axis=1)
    turn = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    return position @ turn.T, velocity @ turn.T


def two_disks(bodies: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Positions (n, 3), velocities (n, 3) and masses (n,) of the start."""
    rng = np.random.default_rng(5)
    first, second = bodies - bodies // 2, bodies // 2
    parts = []
    for stars, tilt, side in ((first, 0.4, -1.0), (second, -0.9, 1.0)):
        position, velocity = disk(rng, stars, tilt)
        parts.append(
            (position + np.array([1.3, 0.55, 0.0]) * side, velocity - np.array([0.45, 0.0, 0.0]) * side)
        )
    position = np.concatenate([part[0] for part in parts]).astype(np.float32)
    velocity = np.concatenate([part[1] for part in parts]).astype(np.float32)
    return position, velocity, np.full(bodies, 2.0 / bodies, np.float32)


def check_attraction(
    position: NDArray[np.float32], mass: NDArray[np.float32], got: NDArray[np.float32]
) -> bool:
    """Compare accelerations with NumPy's in f64."""
    away = position[None].astype(np.float64) - position[:, None]
    near = 1.0 / np.sqrt((away**2).sum(-1) + float(np.float32(SOFTENING2)))
    terms = (mass * near**3)[:, :, None] * away
    # Each term: one rounding of the difference, which squares and the root pass on at most twice
    # over; 4 of the sum of squares; rsqrt within 4 ULP (8 roundings), cubed; 4 products. Each
    # addition then rounds a partial sum, which is no larger than the sum of the magnitudes.
    roundings = 1 + 3 * (1 + 2 + 8) + 4 + len(position)
    bound = 1.01 * roundings * F32_ROUNDOFF * np.abs(terms).sum(1)
    return check(f"accelerations of {len(position)} bodies", got, terms.sum(1), bound)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bodies", type=positive_int, default=2000, help="(default: 2000)")
    parser.add_argument("--steps", type=positive_int, default=220, help="time steps (default: 220)")
    parser.add_argument("--dt", type=float, default=0.01, help="length of a step (default: 0.01)")
    parser.add_argument("--size", type=positive_int, default=720, help="pixels across (default: 720)")
    parser.add_argument("--output", type=Path, default=Path("nbody.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    start, speed, masses = two_disks(args.bodies)
    position, velocity, mass = tack.asarray(start.copy()), tack.asarray(speed), tack.asarray(masses)
    acceleration = tack.empty(start.shape)
    attract(position, mass, acceleration)
    if args.check:
        return 0 if check_attraction(start, masses, acceleration.numpy()) else 1

    image = tack.zeros((args.size * 3 // 4, args.size))
    began = perf_counter()
    for count in range(args.steps):  # leapfrog: half a kick, drift, half a kick
        advance(velocity, acceleration, args.dt / 2)
        advance(position, velocity, args.dt)
        attract(position, mass, acceleration)
        advance(velocity, acceleration, args.dt / 2)
        if count >= args.steps * 3 // 4:  # the last quarter leaves light trails
            splat(position, image, args.size / 4.8)
    trails = image.numpy()
    seconds = perf_counter() - began
    print(
        f"{args.steps} steps in {seconds:.2f} s, {args.bodies**2 * args.steps / seconds / 1e6:.0f} M pairs/s"
    )
    light = np.log1p(trails) / np.log1p(max(1.0, np.percentile(trails, 99.8)))
    save_png(args.output, colourise(np.minimum(light, 1.0)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
