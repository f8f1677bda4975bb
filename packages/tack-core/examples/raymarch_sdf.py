"""A scene of signed distance functions, drawn by sphere tracing with soft shadows.

    python raymarch_sdf.py
    python raymarch_sdf.py --width 1280 --samples 3
    python raymarch_sdf.py --check

Shapes are device classes with a method `distance`, and the scene is a device class made of them.
Moving a shape changes an attribute, and compiles nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int, save_png
from _pictures import shrink
from numpy.typing import NDArray

import tack

FAR = tack.constant(60.0)
CLOSE = tack.constant(2e-4)  # a ray that comes this close, per unit of the way it went, has arrived
LIGHT = tack.constant((0.48, 0.72, 0.50))  # of length 1
Colour = tuple[float, float, float]


@tack.device_class
class Shape:
    """Something at a place, with a colour."""

    def __init__(self, at: tuple[float, float, float], colour: Colour) -> None:
        self.x, self.y, self.z = map(float, at)
        self.red, self.green, self.blue = map(float, colour)

    @tack.func
    def local(self, p):
        return p - tack.vec3(self.x, self.y, self.z)

    @tack.func
    def colour(self):
        return tack.vec3(self.red, self.green, self.blue)


@tack.device_class
class Ball(Shape):
    def __init__(self, at: tuple[float, float, float], colour: Colour, radius: float) -> None:
        super().__init__(at, colour)
        self.radius = float(radius)

    @tack.func
    def distance(self, p):
        return self.local(p).length() - self.radius


@tack.device_class
class RoundedBox(Shape):
    def __init__(
        self, at: tuple[float, float, float], colour: Colour, half: float, rounding: float, turn: float
    ) -> None:
        super().__init__(at, colour)
        self.half, self.rounding = float(half), float(rounding)
        self.cos, self.sin = float(np.cos(turn)), float(np.sin(turn))

    @tack.func
    def distance(self, p):
        q = self.local(p)
        q = [self.cos * q.x - self.sin * q.z, q.y, self.sin * q.x + self.cos * q.z]
        beyond = abs(q) - (self.half - self.rounding)
        return tack.length(max(beyond, 0.0)) + min(beyond.max(), 0.0) - self.rounding


@tack.device_class
class Torus(Shape):
    def __init__(
        self, at: tuple[float, float, float], colour: Colour, radius: float, thickness: float
    ) -> None:
        super().__init__(at, colour)
        self.radius, self.thickness = float(radius), float(thickness)

    @tack.func
    def distance(self, p):
        q = self.local(p)
        ring = [q.xy.length() - self.radius, q.z]
        return tack.length(ring) - self.thickness


@tack.func
def blend(a, b, width):
    """The smaller of two distances, and the share of the second, rounded where they are equal."""
    share = tack.math.saturate(0.5 + 0.5 * (a - b) / width)
    return tack.math.mix(a, b, share) - width * share * (1.0 - share), share


@tack.device_class
class Scene:
    """Two balls that run into one another, a box with a ball cut out, a ring, and a floor at y = 0."""

    def __init__(self) -> None:
        self.large = Ball((-1.7, 0.95, 0.1), (0.85, 0.33, 0.22), 0.95)
        self.small = Ball((-0.55, 1.55, 0.55), (0.95, 0.72, 0.25), 0.45)
        self.box = RoundedBox((1.15, 0.85, -0.35), (0.25, 0.52, 0.75), 0.85, 0.08, 0.55)
        self.hole = Ball((1.55, 1.35, 0.5), (0.92, 0.90, 0.82), 0.72)
        self.ring = Torus((0.35, 0.52, 1.6), (0.45, 0.70, 0.40), 0.42, 0.1)
        self.softness = 0.25

    @tack.func
    def distance(self, p):
        balls, _ = blend(self.large.distance(p), self.small.distance(p), self.softness)
        box = max(self.box.distance(p), -self.hole.distance(p))
        return min(balls, box, self.ring.distance(p), p.y)

    @tack.func
    def colour(self, p):
        balls, share = blend(self.large.distance(p), self.small.distance(p), self.softness)
        found = tack.math.mix(self.large.colour(), self.small.colour(), share)
        nearest = balls
        box = max(self.box.distance(p), -self.hole.distance(p))
        if box < nearest:
            cut = -self.hole.distance(p) > self.box.distance(p)
            nearest, found = box, self.hole.colour() if cut else self.box.colour()
        if self.ring.distance(p) < nearest:
            nearest, found = self.ring.distance(p), self.ring.colour()
        if p.y < nearest:
            tile = tack.floor(p.x) + tack.floor(p.z)
            found = tack.vec3(0.42 if tile % 2.0 == 0.0 else 0.30)
        return found


@tack.func
def march(scene, origin, direction):
    """The distance along a ray to the surface; FAR or more if it meets none."""
    t = 0.0
    while t < FAR:
        step = scene.distance(origin + t * direction)
        if step < CLOSE * (1.0 + t):
            return t
        t += step
    return FAR


@tack.func
def normal(scene, p):
    """The gradient of the distance, from the corners of a tetrahedron around ``p``."""
    h = 5e-4
    total = tack.vec3(0.0)
    for corner in range(4):
        side = tack.vec3(
            -1.0 if corner == 1 or corner == 2 else 1.0,
            -1.0 if corner == 2 or corner == 3 else 1.0,
            -1.0 if corner == 1 or corner == 3 else 1.0,
        )
        total += side * scene.distance(p + h * side)
    return tack.normalized(total)


@tack.func
def shadow(scene, p, direction, sharpness):
    """The share of light that arrives from a direction: less the closer its way leads past something."""
    share = 1.0
    t = 0.02
    while t < 12.0:
        clearance = scene.distance(p + t * direction)
        share = min(share, sharpness * clearance / t)
        if share < 0.001:
            return 0.0
        t += max(clearance, 0.01)
    return share


@tack.func
def openness(scene, p, n):
    """How much of the sky a point sees, from how far the surroundings keep off its normal."""
    closed = 0.0
    weight = 1.0
    for k in range(1, 6):
        height = 0.09 * k
        closed += weight * (height - scene.distance(p + height * n))
        weight *= 0.7
    return tack.math.saturate(1.0 - 1.4 * closed)


@tack.func
def sky(direction):
    return tack.math.mix([0.86, 0.89, 0.92], [0.35, 0.55, 0.82], tack.math.saturate(1.6 * direction.y))


@tack.kernel
def render(scene, image, eye: tack.vec3, forward: tack.vec3, right: tack.vec3, up: tack.vec3):
    for row, column in tack.ndindex(image.shape[0], image.shape[1]):
        across = (2.0 * column + 1.0) / image.shape[1] - 1.0
        down = 1.0 - (2.0 * row + 1.0) / image.shape[0]
        direction = tack.normalized(forward + across * right + down * up)
        light = sky(direction)
        t = march(scene, eye, direction)
        if t < FAR:
            p = eye + t * direction
            n = normal(scene, p)
            sun = max(tack.dot(n, LIGHT), 0.0)
            if sun > 0.0:
                sun *= shadow(scene, p + 2e-3 * n, LIGHT, 14.0)
            half = tack.normalized(LIGHT - direction)
            shine = max(tack.dot(n, half), 0.0) ** 60 * sun
            ambient = openness(scene, p, n) * (0.55 + 0.45 * n.y)
            lit = sun * tack.vec3(1.30, 1.16, 0.95) + ambient * tack.vec3(0.36, 0.44, 0.56)
            haze = 1.0 - tack.exp(-1e-3 * t * t)
            light = tack.math.mix(scene.colour(p) * lit + 0.45 * shine, light, haze)
        image[row, column] = light


# --- Checks ------------------------------------------------------------------------------------


@tack.kernel
def distances(scene, points, out):
    for i in range(len(points)):
        out[i] = scene.distance(points[i])


@tack.kernel
def arrivals(scene, origins, directions, out):
    for i in range(len(out)):
        out[i] = march(scene, origins[i], directions[i])


def reference(scene: Scene, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scene's distances by NumPy."""

    def local(shape: Shape) -> NDArray[np.float64]:
        return points - [shape.x, shape.y, shape.z]

    def ball(shape: Ball) -> NDArray[np.float64]:
        return np.linalg.norm(local(shape), axis=1) - shape.radius

    a, b = ball(scene.large), ball(scene.small)
    share = np.clip(0.5 + 0.5 * (a - b) / scene.softness, 0.0, 1.0)
    balls = a + share * (b - a) - scene.softness * share * (1.0 - share)
    box, ring = scene.box, scene.ring
    q = local(box) @ np.array([[box.cos, 0.0, box.sin], [0.0, 1.0, 0.0], [-box.sin, 0.0, box.cos]])
    beyond = np.abs(q) - (box.half - box.rounding)
    inside = np.minimum(beyond.max(axis=1), 0.0)
    solid = np.linalg.norm(np.maximum(beyond, 0.0), axis=1) + inside - box.rounding
    r = local(ring)
    tube = np.hypot(np.hypot(r[:, 0], r[:, 1]) - ring.radius, r[:, 2]) - ring.thickness
    return np.min([balls, np.maximum(solid, -ball(scene.hole)), tube, points[:, 1]], axis=0)


def run_checks(count: int) -> bool:
    """Compare distances with NumPy, and rays with where they meet a ball and a ring in closed form."""
    rng = np.random.default_rng(6)
    scene = Scene()
    points = rng.uniform(-4.0, 4.0, (count, 3)).astype(np.float32)
    out = tack.empty(count)
    distances(scene, tack.asarray(points, tack.vec3), out)
    # Distances and coordinates stay below 16, and take fewer than 32 roundings.
    bound = 32 * 16 * F32_ROUNDOFF
    passed = check("distances", out.numpy(), reference(scene, points.astype(np.float64)), bound)

    # Rays at a single ball: |origin + t * direction - centre| = radius.
    ball = Ball((0.3, -0.2, 0.1), (1.0, 1.0, 1.0), 1.0)
    origins = rng.normal(size=(count, 3))
    origins *= 4.0 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = rng.normal(scale=0.3, size=(count, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    away = origins - [ball.x, ball.y, ball.z]
    b = (away * directions).sum(axis=1)
    square = 1.0 - (away**2).sum(axis=1) + b * b
    want = np.where(square > 0.0, -b - np.sqrt(np.maximum(square, 0.0)), FAR)
    arrivals(ball, *(tack.asarray(v.astype(np.float32), tack.vec3) for v in (origins, directions)), out)
    # A ray stops where it is within CLOSE * (1 + t) of the surface, t below 6. Rays that pass that
    # close to the edge may stop there, or not; the others come in at a slope of at least root.
    stop = 7.0 * CLOSE
    root = np.sqrt(np.maximum(square, 0.0))
    clear = np.abs(square) > 64.0 * stop
    bound = stop / np.maximum(root, 1e-3) + 64 * F32_ROUNDOFF
    passed &= check(
        "rays at a ball", out.numpy()[clear], want[clear], np.broadcast_to(bound, want.shape)[clear]
    )
    return check("share of such rays", clear.mean(), 1.0, 0.05) and passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=positive_int, default=720, help="pixels across (default: 720)")
    parser.add_argument("--samples", type=positive_int, default=2, help="rays across a pixel (default: 2)")
    parser.add_argument("--output", type=Path, default=Path("raymarch_sdf.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    if args.check:
        return 0 if run_checks(args.width * 10) else 1
    wide, high = args.width, max(1, args.width * 9 // 16)
    image = tack.empty((high * args.samples, wide * args.samples), tack.vec3)
    eye, target = np.array([0.6, 2.6, 6.2]), np.array([-0.1, 0.75, 0.2])
    forward = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right *= 0.52 / np.linalg.norm(right)
    up = np.cross(right, forward) * high / wide
    began = perf_counter()
    render(Scene(), image, eye, forward, right, up)
    print(f"{image.size / (perf_counter() - began) / 1e6:.2f} M rays/s")
    bright = np.clip(image.numpy(), 0.0, 1.0) ** (1 / 2.2)
    save_png(args.output, shrink(np.rint(bright * 255).astype(np.uint8), args.samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
