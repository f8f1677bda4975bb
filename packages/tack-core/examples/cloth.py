"""A cloth of masses and springs that falls over a ball.

    python cloth.py
    python cloth.py --size 120 --seconds 2
    python cloth.py --check

Shows arrays of `vec3`, methods such as `dot` and `length`, and a constant table of springs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int, save_png
from _pictures import shrink
from numpy.typing import NDArray

import tack

# To the neighbours that each mass is tied to: beside it, across the diagonals, and next but one.
TIES = tuple(
    (sign * di, sign * dj) for di, dj in ((0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0)) for sign in (1, -1)
)
SPRINGS = tack.constant(TIES)
STIFFNESS = tack.constant(8000.0)  # acceleration per strain
DAMPING = tack.constant(2.0)  # acceleration per speed along a spring
DRAG = tack.constant(0.4)  # of the air
WIDTH = 1.3  # of the cloth
RADIUS = tack.constant(0.38)  # of the ball, whose centre is the origin
SKIN = tack.constant(0.012)  # the distance at which the cloth rests on the ball


@tack.func
def pull(x, v, i, j, spacing):
    """The acceleration by the springs of mass (i, j)."""
    total = tack.vec3(0.0)
    for k in range(len(SPRINGS)):
        other_i, other_j = i + SPRINGS[k][0], j + SPRINGS[k][1]
        if 0 <= other_i < x.shape[0] and 0 <= other_j < x.shape[1]:
            along = x[other_i, other_j] - x[i, j]
            length = along.length()
            along /= length
            rest = spacing * tack.hypot(SPRINGS[k][0], SPRINGS[k][1])
            closing = tack.dot(v[other_i, other_j] - v[i, j], along)
            total += (STIFFNESS * (length / rest - 1.0) + DAMPING * closing) * along
    return total


@tack.kernel
def move(x, v, new_x, new_v, spacing, gravity, dt):
    for i, j in tack.ndindex(x.shape[0], x.shape[1]):
        force = pull(x, v, i, j, spacing) - DRAG * v[i, j]
        force.y -= gravity
        speed = v[i, j] + dt * force
        place = x[i, j] + dt * speed
        height = place.length() - (RADIUS + SKIN)
        if gravity > 0.0 and height < 0.0:  # slides on the ball, and slows down
            out = place.normalized()
            place -= height * out
            speed -= min(tack.dot(speed, out), 0.0) * out
            speed *= 1.0 - 4.0 * dt
        new_x[i, j] = place
        new_v[i, j] = speed


def flat(size: int) -> NDArray[np.float32]:
    """A square cloth just above the ball, turned a little."""
    line = np.linspace(-0.5, 0.5, size) * WIDTH
    a, b = np.meshgrid(line, line, indexing="ij")
    cos, sin = np.cos(0.35), np.sin(0.35)
    return np.stack([cos * a - sin * b, np.full_like(a, RADIUS + 0.06), sin * a + cos * b], axis=-1).astype(
        np.float32
    )


def time_step(size: int) -> float:
    """Half of what is stable: 12 springs, each as stiff as the shortest."""
    return 0.5 * 2.0 / np.sqrt(2 * 6 * STIFFNESS / (WIDTH / (size - 1)))


def simulate(
    x: NDArray[np.float32], v: NDArray[np.float32], gravity: float, steps: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Places and speeds after ``steps`` steps."""
    size = len(x)
    now = tack.asarray(x, tack.vec3, copy=True), tack.asarray(v, tack.vec3, copy=True)
    following = tack.empty_like(now[0]), tack.empty_like(now[1])
    for _ in range(steps):
        move(*now, *following, WIDTH / (size - 1), gravity, time_step(size))
        now, following = following, now
    return now[0].numpy(), now[1].numpy()


def reference(
    x: NDArray[np.float32], v: NDArray[np.float32], gravity: float, steps: int
) -> NDArray[np.float64]:
    """The places by NumPy in f64."""
    x, v = x.astype(np.float64), v.astype(np.float64)
    size, dt = len(x), time_step(len(x))
    i, j = np.mgrid[0:size, 0:size]
    for _ in range(steps):
        force = -DRAG * v
        force[:, :, 1] -= gravity
        for di, dj in TIES:
            there = (i + di >= 0) & (i + di < size) & (j + dj >= 0) & (j + dj < size)
            at = (i + di)[there], (j + dj)[there]
            along = x[at] - x[there]
            length = np.linalg.norm(along, axis=1, keepdims=True)
            along /= length
            rest = WIDTH / (size - 1) * np.hypot(di, dj)
            closing = ((v[at] - v[there]) * along).sum(axis=1, keepdims=True)
            force[there] += (STIFFNESS * (length / rest - 1.0) + DAMPING * closing) * along
        v = v + dt * force
        x = x + dt * v
        distance = np.linalg.norm(x, axis=2, keepdims=True)
        out, height = x / distance, distance - (RADIUS + SKIN)
        touching = (height < 0.0) & (gravity > 0.0)
        x = np.where(touching, x - height * out, x)
        inwards = np.minimum((v * out).sum(axis=2, keepdims=True), 0.0)
        v = np.where(touching, (v - inwards * out) * (1.0 - 4.0 * dt), v)
    return x


def run_checks(size: int) -> bool:
    """Compare a short fall with NumPy, and see that springs conserve momentum."""
    rng = np.random.default_rng(2)
    x, steps = flat(size), 30
    x[:, :, 1] = RADIUS - 0.02  # in the ball, so that some of it touches
    v = rng.normal((1.0, -0.5, 0.5), 0.3, x.shape).astype(np.float32)
    got, _ = simulate(x, v, 9.81, steps)
    # A spring's length is rounded by 2**-24 of a place below 1. With half the stable step, 12 pulls that
    # are wrong by that move a mass by at most 12 such roundings a step; the place itself rounds too.
    bound = steps * (12 + 4) * F32_ROUNDOFF
    passed = check(f"places after {steps} steps", got, reference(x, v, 9.81, steps), bound)

    _, after = simulate(x, v, 0.0, steps)
    # Springs pull both ends alike, so only the drag changes the sum of velocities, by 1 - DRAG * dt a step.
    dt = time_step(size)
    want = v.sum(axis=(0, 1), dtype=np.float64) * (1.0 - DRAG * dt) ** steps
    # What each step rounds: a velocity, and the sum of 12 pulls, strained by less than a half, times dt.
    bound = steps * size**2 * F32_ROUNDOFF * (np.abs(v).max() + 12 * dt * STIFFNESS * 0.5)
    return check("momentum", after.sum(axis=(0, 1), dtype=np.float64), want, bound) and passed


# --- The picture -------------------------------------------------------------------------------

Quads = tuple[
    NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]
]  # corners (n, 4, 3), normals, colours


def quads(grid: NDArray[np.float64], colours: NDArray[np.float64]) -> Quads:
    """The cells of a grid of points; ``colours`` (rows - 1, columns - 1, 3)."""

    def corners(values: NDArray[np.float64]) -> NDArray[np.float64]:
        cells = np.stack([values[:-1, :-1], values[1:, :-1], values[1:, 1:], values[:-1, 1:]], axis=2)
        return cells.reshape(-1, 4, 3)

    normals = corners(np.cross(np.gradient(grid, axis=0), np.gradient(grid, axis=1))).sum(axis=1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True) + 1e-12
    return corners(grid), normals, colours.reshape(-1, 3)


def ball() -> Quads:
    down, around = np.meshgrid(np.linspace(0.0, np.pi, 49), np.linspace(0.0, 2 * np.pi, 97), indexing="ij")
    grid = [np.sin(down) * np.cos(around), np.cos(down), np.sin(down) * np.sin(around)]
    return quads(RADIUS * np.stack(grid, axis=-1), np.tile([0.45, 0.47, 0.52], (48 * 96, 1)))


def draw(x: NDArray[np.float64], pixels: int) -> NDArray[np.uint8]:
    """The cloth and the ball, far faces first."""
    from PIL import Image, ImageDraw

    cells = len(x) - 1
    stripe = (np.arange(cells) * 9 // cells) % 2
    checks = (stripe[:, None] ^ stripe[None, :])[:, :, None]
    cloth = quads(x, np.where(checks, [0.87, 0.33, 0.25], [0.96, 0.88, 0.76]))
    corners, normals, colours = (np.concatenate(parts) for parts in zip(cloth, ball(), strict=True))
    eye = np.array([1.1, 1.25, 1.9])
    forward = np.array([0.0, -0.08, 0.0]) - eye
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    seen = corners - eye
    depth = seen @ forward
    scale = 1.9 * pixels
    across, upwards = seen @ right / depth * scale + pixels / 2, pixels * 0.42 - seen @ up / depth * scale
    normals *= np.sign(-(normals * seen[:, 0]).sum(axis=1, keepdims=True))  # towards the eye
    lamp = np.array([-0.35, 0.85, 0.40])
    shade = 0.28 + 0.78 * np.maximum(normals @ (lamp / np.linalg.norm(lamp)), 0.0)
    rgb = np.rint(255 * np.clip(colours * shade[:, None], 0.0, 1.0)).astype(int)
    image = Image.new("RGB", (pixels, pixels), (22, 26, 38))
    pen = ImageDraw.Draw(image)
    for n in np.argsort(-depth.mean(axis=1)):
        colour = tuple(rgb[n])
        pen.polygon(list(zip(across[n], upwards[n], strict=True)), fill=colour, outline=colour)
    return np.asarray(image)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=90, help="masses along a side (default: 90)")
    parser.add_argument("--seconds", type=float, default=1.5, help="time that it falls (default: 1.5)")
    parser.add_argument("--pixels", type=positive_int, default=640, help="pixels a side (default: 640)")
    parser.add_argument("--output", type=Path, default=Path("cloth.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()
    if args.size < 3:
        parser.error("argument --size: at least 3")

    if args.check:
        return 0 if run_checks(args.size) else 1
    start = flat(args.size)
    x, _ = simulate(start, np.zeros_like(start), 9.81, round(args.seconds / time_step(args.size)))
    save_png(args.output, shrink(draw(x.astype(np.float64), 2 * args.pixels), 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
