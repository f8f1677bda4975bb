"""Many solutions of one differential equation: how fast weather that began alike becomes unlike.

    python ode_ensemble.py
    python ode_ensemble.py --members 200000 --time 40
    python ode_ensemble.py --check

Each iteration integrates the Lorenz equations from its own start by the classical Runge-Kutta
method. Shows `dvec3` states in a device function, and equations as a device class, so that one
kernel integrates any of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from _common import check, colourise, positive_int, save_png
from _pictures import side_by_side
from numpy.typing import NDArray

import tack

NIGHT = ("#070b14", "#10294d", "#1f6f8b", "#58c4b0", "#f3f0c0", "#ffffff")


@tack.device_class
class Lorenz:
    """Convection, reduced to three numbers (E. N. Lorenz, 1963)."""

    sigma = 10.0
    beta = 8.0 / 3.0

    def __init__(self, rho: float = 28.0) -> None:
        self.rho = float(rho)

    @tack.func
    def slope(self, y):
        return tack.dvec3(
            self.sigma * (y.y - y.x),
            y.x * (self.rho - y.z) - y.y,
            y.x * y.y - self.beta * y.z,
        )


@tack.device_class
class Rotation:
    """Turns about the z axis by one radian per unit of time, while z decays."""

    @tack.func
    def slope(self, y):
        return tack.dvec3(-y.y, y.x, -y.z)


@tack.func
def runge_kutta(equation, y, h):
    a = equation.slope(y)
    b = equation.slope(y + 0.5 * h * a)
    c = equation.slope(y + 0.5 * h * b)
    d = equation.slope(y + h * c)
    return y + h / 6.0 * (a + 2.0 * (b + c) + d)


@tack.kernel
def integrate(equation, states, h: tack.f64, steps):
    for i in range(len(states)):
        y = states[i]
        for _ in range(steps):
            y = runge_kutta(equation, y, h)
        states[i] = y


@tack.kernel
def splat(states, image, scale):
    """Counts states by pixel, seen along y."""
    for i in range(len(states)):
        column = int(tack.floor(0.5 * image.shape[1] + scale * states[i].x))
        row = int(tack.floor(0.94 * image.shape[0] - scale * states[i].z))
        if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
            tack.atomic_add(image, (row, column), 1.0)


def starts(members: int) -> NDArray[np.float64]:
    """States that differ by a hundredth of a unit."""
    return np.array([-2.0, -3.0, 18.0]) + 0.01 * np.random.default_rng(4).normal(size=(members, 3))


def reference(y: NDArray[np.float64], rho: float, h: float, steps: int) -> NDArray[np.float64]:
    """The Lorenz equations by NumPy."""

    def slope(s: NDArray[np.float64]) -> NDArray[np.float64]:
        a, b, c = s.T
        return np.stack([10.0 * (b - a), a * (rho - c) - b, a * b - 8.0 / 3.0 * c], axis=1)

    for _ in range(steps):
        k1 = slope(y)
        k2 = slope(y + 0.5 * h * k1)
        k3 = slope(y + 0.5 * h * k2)
        y = y + h / 6.0 * (k1 + 2.0 * (k2 + k3) + slope(y + h * k3))
    return y


def run_checks(members: int) -> bool:
    rng = np.random.default_rng(1)
    begin = rng.normal(size=(members, 3))
    passed = True
    want = begin @ np.array(
        [[np.cos(2.0), np.sin(2.0), 0], [-np.sin(2.0), np.cos(2.0), 0], [0, 0, np.exp(-2.0)]]
    )
    sizes = np.linalg.norm(begin, axis=1, keepdims=True)
    for steps in (20, 40, 80):
        states = tack.asarray(begin, tack.dvec3, copy=True)
        integrate(Rotation(), states, 2.0 / steps, steps)
        # A step's error is h**5 / 120 of the state's size, and the rest of the series, here below a fifth.
        bound = 1.2 * steps * (2.0 / steps) ** 5 / 120.0 * sizes
        passed &= check(f"a rotation in {steps} steps", states.numpy(), want, bound)

    states = tack.asarray(starts(members), tack.dvec3)
    h, steps = 0.01, 200
    integrate(Lorenz(), states, h, steps)
    # Differences grow by exp(0.9 t) on the average, and for a while by as much as exp(12 t): after 2 units of
    # time 1e5 times is more than this orbit does. The states stay below 50.
    bound = 1e5 * steps * 8 * 2.0**-53 * 50
    return check("Lorenz", states.numpy(), reference(starts(members), 28.0, h, steps), bound) and passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--members", type=positive_int, default=50_000, help="(default: 50000)")
    parser.add_argument("--time", type=float, default=15.0, help="of the last picture (default: 15)")
    parser.add_argument("--frames", type=positive_int, default=3, help="pictures in a row (default: 3)")
    parser.add_argument("--pixels", type=positive_int, default=420, help="pixels a side (default: 420)")
    parser.add_argument("--output", type=Path, default=Path("ode_ensemble.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    if args.check:
        return 0 if run_checks(args.members) else 1
    states, h = tack.asarray(starts(args.members), tack.dvec3), 0.005
    pictures, spent, done = [], 0.0, 0
    for frame in range(1, args.frames + 1):
        image = tack.zeros((args.pixels, args.pixels))
        until = round(frame / args.frames * args.time / h)
        began = perf_counter()
        integrate(Lorenz(), states, h, max(until - 40 - done, 0))
        for _ in range(40):  # a short trail
            integrate(Lorenz(), states, h, 1)
            splat(states, image, args.pixels / 52.0)
        trails = image.numpy()
        spent += perf_counter() - began
        done = until
        light = np.log1p(trails) / np.log1p(max(1.0, float(np.percentile(trails, 99.9))))
        pictures.append(colourise(np.minimum(light, 1.0), NIGHT))
    print(f"{args.members * done / spent / 1e6:.0f} M steps/s")
    save_png(args.output, side_by_side(pictures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
