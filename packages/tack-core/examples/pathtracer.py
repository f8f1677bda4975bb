"""A path tracer: glass, metal and matte spheres lit by a sky and a lamp.

    python pathtracer.py
    python pathtracer.py --width 960 --samples 400
    python pathtracer.py --check

Each iteration follows the paths of one pixel. Shows a device class that holds arrays of `vec3`,
`tack.random` with its explicit state, and `tack.math`.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int, save_png
from numpy.typing import NDArray

import tack

MATTE = tack.constant(0)
METAL = tack.constant(1)
GLASS = tack.constant(2)
GLASS_INDEX = tack.constant(1.5)
FAR = tack.constant(1e30)
NEAR = tack.constant(1e-3)  # closer hits are of the surface that the ray starts from


@tack.device_class
class Scene:
    """Spheres by index, a sky that grows brighter upwards, and how many times a path may bounce."""

    def __init__(self, spheres: list[Sphere], horizon: float, zenith: float, bounces: int = 8) -> None:
        centre, radius, colour, light, material, rough = zip(*spheres, strict=True)
        self.centre = tack.asarray(np.array(centre, np.float32), tack.vec3)
        self.radius = tack.asarray(np.array(radius, np.float32))
        self.colour = tack.asarray(np.array(colour, np.float32), tack.vec3)
        self.light = tack.asarray(np.array(light, np.float32))
        self.material = tack.asarray(np.array(material, np.int32))
        self.rough = tack.asarray(np.array(rough, np.float32))
        self.horizon, self.zenith = float(horizon), float(zenith)
        self.bounces = bounces

    @tack.func
    def hit(self, origin, direction):
        """The distance to the nearest sphere along a ray, and its index; -1 if there is none."""
        nearest = FAR
        index = -1
        for k in range(len(self.radius)):
            away = origin - self.centre[k]
            b = tack.dot(away, direction)
            # The ray's distance to the centre, squared, by a difference of vectors: exact for large spheres.
            root = self.radius[k] ** 2 - (away - b * direction).length_sq()
            if root > 0.0:
                root = tack.sqrt(root)
                t = -b - root if -b - root > NEAR else root - b
                if NEAR < t < nearest:
                    nearest, index = t, k
        return nearest, index

    @tack.func
    def sky(self, direction):
        blue = [0.5, 0.7, 1.0]
        height = 0.5 * (direction.y + 1.0)
        return tack.math.mix(self.horizon * tack.vec3(1.0), self.zenith * blue, height)


# centre, radius, colour, light emitted, material, roughness of metal
Sphere = tuple[tuple[float, float, float], float, tuple[float, float, float], float, int, float]


@tack.func
def scatter_glass(direction, normal, state):
    """Through the surface, or back from it as often as Schlick's approximation says."""
    into = tack.dot(direction, normal) < 0.0
    outward = normal if into else -normal
    eta = 1.0 / GLASS_INDEX if into else GLASS_INDEX
    bent = tack.math.refract(direction, outward, eta)
    # Schlick's cosine is that on the side of air.
    cosine = -tack.dot(direction, outward) if into else -tack.dot(bent, outward)
    base = ((1.0 - GLASS_INDEX) / (1.0 + GLASS_INDEX)) ** 2
    chance = base + (1.0 - base) * (1.0 - cosine) ** 5
    u, state = tack.random.uniform(state)
    if bent.length_sq() == 0.0 or u < chance:
        return tack.math.reflect(direction, outward), state
    return bent, state


@tack.func
def radiance(scene, origin, direction, state):
    """The light that arrives along a path, and the random state after it."""
    light = tack.vec3(0.0)
    share = tack.vec3(1.0)  # of the light here that reaches the path's start
    for _ in range(scene.bounces):
        t, k = scene.hit(origin, direction)
        if k < 0:
            return light + share * scene.sky(direction), state
        light += share * scene.light[k]
        share *= scene.colour[k]
        origin += t * direction
        normal = (origin - scene.centre[k]) / scene.radius[k]
        if scene.material[k] == GLASS:
            direction, state = scatter_glass(direction, normal, state)
        else:
            if tack.dot(direction, normal) > 0.0:
                normal = -normal  # seen from inside
            random, state = tack.random.direction3(state)
            if scene.material[k] == METAL:
                mirrored = tack.math.reflect(direction, normal)
                direction = tack.math.normalize(mirrored + scene.rough[k] * random)
            else:  # cosine-weighted, so matte surfaces need no further factor
                direction = tack.math.normalize(normal + 0.999 * random)
    return light, state


@tack.kernel
def render(
    scene,
    image,
    eye: tack.vec3,
    forward: tack.vec3,
    right: tack.vec3,
    up: tack.vec3,
    samples,
    aperture,
    stream,
):
    for row, column in tack.ndindex(image.shape[0], image.shape[1]):
        state = tack.random.seed(row * image.shape[1] + column, stream)
        total = tack.vec3(0.0)
        for _ in range(samples):
            u, state = tack.random.uniform(state)
            v, state = tack.random.uniform(state)
            lens, state = tack.random.direction2(state)
            spread, state = tack.random.uniform(state)
            lens *= aperture * tack.sqrt(spread)
            across = (2.0 * (column + u) / image.shape[1] - 1.0) * right
            down = (1.0 - 2.0 * (row + v) / image.shape[0]) * up
            shift = lens.x * tack.math.normalize(right) + lens.y * tack.math.normalize(up)
            focus = forward + across + down  # where all rays of this point of the picture meet
            light, state = radiance(scene, eye + shift, tack.math.normalize(focus - shift), state)
            total += light
        image[row, column] = total / samples


def display_scene() -> Scene:
    """A lamp, a ground, three large spheres, and small ones scattered about."""
    rng = np.random.default_rng(12)
    spheres: list[Sphere] = [
        ((0.0, -1000.0, 0.0), 1000.0, (0.42, 0.43, 0.46), 0.0, MATTE, 0.0),
        ((0.0, 1.0, 0.0), 1.0, (1.0, 1.0, 1.0), 0.0, GLASS, 0.0),
        ((-2.3, 1.0, -0.9), 1.0, (0.75, 0.30, 0.20), 0.0, MATTE, 0.0),
        ((2.2, 1.0, -0.7), 1.0, (0.90, 0.78, 0.55), 0.0, METAL, 0.04),
        ((-5.0, 8.0, 3.5), 3.0, (0.0, 0.0, 0.0), 5.5, MATTE, 0.0),
    ]
    for _ in range(400):
        x, z = rng.uniform(-4.2, 4.2), rng.uniform(-3.5, 2.8)
        radius = rng.uniform(0.14, 0.3)
        clear = all(
            math.dist((x, radius, z), s[0]) > radius + s[1] + 0.03 for s in spheres[1:] if s[1] < 100.0
        )
        if not clear or len(spheres) >= 34:
            continue
        hue, material = rng.random(), int(rng.choice([MATTE, MATTE, METAL, GLASS]))
        tint = 0.5 + 0.42 * np.cos(2.0 * np.pi * (hue + np.array([0.0, 0.33, 0.67])))
        colour = (1.0, 1.0, 1.0) if material == GLASS else tuple(float(c) for c in tint)
        spheres.append(((x, radius, z), radius, colour, 0.0, material, float(rng.uniform(0.0, 0.3))))
    return Scene(spheres, horizon=0.55, zenith=0.35)


Camera = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], tuple[float, ...]]


def camera(
    eye: tuple[float, float, float], target: tuple[float, float, float], half: float, aspect: float
) -> Camera:
    """The eye, the way to the target, and the picture's half width and height there, as vectors."""
    forward = np.subtract(target, eye)
    right = np.cross(forward, (0.0, 1.0, 0.0))
    right *= half * np.linalg.norm(forward) / np.linalg.norm(right)
    up = np.cross(right, forward)
    up *= half / aspect * np.linalg.norm(forward) / np.linalg.norm(up)
    return eye, tuple(forward), tuple(right), tuple(up)


def run_checks(size: int) -> bool:
    """Three scenes whose light is known in closed form."""
    image = tack.empty((size, size), tack.vec3)
    grey = (0.5, 0.5, 0.5)

    # Inside a closed sphere that glows with 1 and reflects half, each bounce adds half of the one before.
    bounces = 6
    furnace = Scene([((0.0, 0.0, 0.0), 2.0, grey, 1.0, MATTE, 0.0)], 0.0, 0.0, bounces)
    render(furnace, image, *camera((0.3, 0.2, 0.5), (0.0, 0.1, -1.0), 0.7, 1.0), 4, 0.0, 1)
    passed = check("light in a furnace", image.numpy(), 2.0 - 0.5 ** (bounces - 1), 16 * F32_ROUNDOFF)

    # A path leaves a convex body after one bounce. This sky's brightness falls linearly from 1 to 0 with the
    # direction's height, and above and below the middle of the picture its means add up to 1.
    colour = np.array([0.8, 0.4, 0.2])
    ball = Scene([((0.0, 0.0, 0.0), 1.0, tuple(colour), 0.0, MATTE, 0.0)], 1.0, 0.0)
    render(ball, image, *camera((0.0, 0.0, 3.0), (0.0, 0.0, 0.0), 0.1, 1.0), 16, 0.0, 1)
    # Five standard deviations of the mean; one of a value between 0 and 1 is at most a half.
    bound = 5.0 * 0.5 * colour / math.sqrt(16 * size**2)
    passed &= check("light of one bounce", image.numpy().mean(axis=(0, 1)), colour / 2, bound)

    # A lamp of radius r and brightness L, d above a matte ground: it reflects colour * L * (r / d)**2 below.
    lamp, height, radius, samples = 5.0, 4.0, 1.0, 64
    lit = Scene(
        [
            ((0.0, -1000.0, 0.0), 1000.0, grey, 0.0, MATTE, 0.0),
            ((0.0, height, 0.0), radius, (0.0, 0.0, 0.0), lamp, MATTE, 0.0),
        ],
        0.0,
        0.0,
    )
    render(lit, image, *camera((0.02, 2.0, 0.0), (0.0, 0.0, 0.0), 0.001, 1.0), samples, 0.0, 2)
    got = image.numpy()[:, :, 0]
    chance = (radius / height) ** 2
    # Each path brings 0.5 * lamp with this chance: five standard deviations of the mean of all.
    bound = 5.0 * 0.5 * lamp * math.sqrt(chance * (1.0 - chance) / (samples * got.size))
    return check("light below a lamp", got.mean(), 0.5 * lamp * chance, bound) and passed


def tone(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Bytes for display: bright light compressed, then sRGB's gamma."""
    x = image.astype(np.float64)
    mapped = x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14)  # a film-like curve (K. Narkowicz, 2015)
    return np.rint(np.clip(mapped, 0.0, 1.0) ** (1 / 2.2) * 255).astype(np.uint8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=positive_int, default=640, help="pixels across (default: 640)")
    parser.add_argument("--samples", type=positive_int, default=100, help="paths a pixel (default: 100)")
    parser.add_argument("--output", type=Path, default=Path("pathtracer.png"))
    parser.add_argument("--check", action="store_true", help="compare with closed forms and exit")
    args = parser.parse_args()

    if args.check:
        return 0 if run_checks(min(args.width, 256)) else 1
    image = tack.empty((max(1, args.width * 9 // 16), args.width), tack.vec3)
    view = camera((1.2, 2.1, 7.5), (0.0, 0.75, 0.0), 0.48, image.shape[1] / image.shape[0])
    began = perf_counter()
    render(display_scene(), image, *view, args.samples, 0.04, 0)
    seconds = perf_counter() - began
    print(f"{image.size * args.samples / seconds / 1e6:.2f} M paths/s")
    save_png(args.output, tone(image.numpy()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
