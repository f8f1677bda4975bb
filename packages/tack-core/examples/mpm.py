"""Water and jelly by the material point method (MLS-MPM) in two dimensions.

    python mpm.py
    python mpm.py --size 160 --frames 5
    python mpm.py --check

Particles carry velocity and deformation; each step scatters them to a grid, moves the grid's
nodes, and gathers their velocities back. All have the same mass, and a density of 1 at rest.
Shows `vec2` and `mat2` values, arrays of them, `@`, and atomic additions of vectors.

Reference: Y. Hu et al., "A Moving Least Squares Material Point Method with Displacement
Discontinuity and Two-Way Rigid Body Coupling", ACM Trans. Graph. 37(4), 2018.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _common import check, positive_int, save_png
from _pictures import dots, side_by_side
from numpy.typing import NDArray

import tack

WATER = tack.constant(0)
JELLY = tack.constant(1)
BULK = tack.constant(1000.0)  # resistance to compression (the first Lamé parameter)
SHEAR = tack.constant(80.0)  # resistance of jelly to shear (the second)
GRAVITY = tack.constant((0.0, -9.8))
WALL = tack.constant(3)  # cells at each side that nothing enters


@tack.func
def weights(f):
    """The quadratic B-spline at the three nodes around a point that is ``f`` beyond the first."""
    return 0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2


@tack.func
def rotation(F):
    """The rotation in ``F`` = rotation @ stretch."""
    c = F[0, 0] + F[1, 1]
    s = F[1, 0] - F[0, 1]
    return tack.mat2([c, -s], [s, c]) / tack.hypot(c, s)


@tack.func
def stress(F, material):
    """The Kirchhoff stress of a deformation (fixed corotated; without shear for water)."""
    J = F.determinant()
    pressure = BULK * J * (J - 1.0) * tack.mat2.identity()
    return pressure + 2.0 * SHEAR * (F - rotation(F)) @ F.transpose() if material == JELLY else pressure


@tack.kernel
def scatter(x, v, C, F, material, momentum, mass, dt):
    h = 1.0 / mass.shape[0]  # the grid's spacing
    for p in range(x.shape[0]):
        position = x[p] / h
        base = tack.i32(position - 0.5)
        f = position - base
        deformed = F[p] + dt * C[p] @ F[p]
        if material[p] == WATER:  # forgets all but its volume, which is all that its stress needs
            deformed = tack.sqrt(deformed.determinant()) * tack.mat2.identity()
        F[p] = deformed
        affine = C[p] - dt * 4.0 / (h * h) * stress(deformed, material[p])
        w = tack.local_array(3, tack.vec2)
        w[0], w[1], w[2] = weights(f)
        for i in range(3):
            for j in range(3):
                offset = [i, j]
                weight = w[i].x * w[j].y
                carried = v[p] + affine @ ((offset - f) * h)
                tack.atomic_add(momentum, base + offset, weight * carried)
                tack.atomic_add(mass, base + offset, weight)


@tack.kernel
def move(momentum, mass, dt):
    n = mass.shape[0]
    for i, j in tack.ndindex(mass.shape[0], mass.shape[1]):
        if mass[i, j] > 0.0:
            v = momentum[i, j] / mass[i, j] + dt * GRAVITY
            if i < WALL or i >= n - WALL:
                v.x = 0.0
            if j < WALL or j >= n - WALL:
                v.y = 0.0
            momentum[i, j] = v  # a velocity from here on


@tack.kernel
def gather(x, v, C, velocity, dt):
    h = 1.0 / velocity.shape[0]
    for p in range(x.shape[0]):
        position = x[p] / h
        base = tack.i32(position - 0.5)
        f = position - base
        w = tack.local_array(3, tack.vec2)
        w[0], w[1], w[2] = weights(f)
        mean = tack.vec2(0.0)
        slope = tack.mat2(0.0)
        for i in range(3):
            for j in range(3):
                offset = [i, j]
                part = w[i].x * w[j].y * velocity[base + offset]
                mean += part
                slope += tack.outer(part, offset - f)
        v[p] = mean
        C[p] = 4.0 / h * slope
        x[p] += dt * mean


@dataclass
class State:
    """Particles, and the grid that they share: positions x, velocities v, their slopes C, deformations F."""

    x: tack.Array
    v: tack.Array
    C: tack.Array
    F: tack.Array
    material: tack.Array
    momentum: tack.Array
    mass: tack.Array

    @classmethod
    def of(cls, x: NDArray[np.float32], material: NDArray[np.int32], size: int) -> State:
        """Particles at rest on a grid of ``size`` x ``size`` nodes."""
        n = len(x)
        return cls(
            x=tack.asarray(x, tack.vec2, copy=True),
            v=tack.zeros(n, tack.vec2),
            C=tack.zeros(n, tack.mat2),
            F=tack.asarray(np.tile(np.eye(2, dtype=np.float32), (n, 1, 1)), tack.mat2),
            material=tack.asarray(material),
            momentum=tack.zeros((size, size), tack.vec2),
            mass=tack.zeros((size, size)),
        )

    def step(self, dt: float) -> None:
        self.momentum.fill(0.0)
        self.mass.fill(0.0)
        scatter(self.x, self.v, self.C, self.F, self.material, self.momentum, self.mass, dt)
        move(self.momentum, self.mass, dt)
        gather(self.x, self.v, self.C, self.momentum, dt)


def scene(size: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Positions and materials: a column of water beside jelly, four particles a cell, and one above."""
    rng = np.random.default_rng(8)
    blocks = [
        (WATER, (0.06, 0.06), (0.42, 0.62)),
        (JELLY, (0.52, 0.14), (0.68, 0.30)),
        (JELLY, (0.70, 0.42), (0.86, 0.58)),
        (JELLY, (0.44, 0.68), (0.60, 0.84)),
    ]
    x, material = [], []
    for kind, low, high in blocks:
        extent = np.subtract(high, low)
        count = int(4 * extent.prod() * size**2)
        x.append(low + rng.random((count, 2)) * extent)
        material.append(np.full(count, kind))
    return np.concatenate(x).astype(np.float32), np.concatenate(material).astype(np.int32)


def reference(
    x: NDArray[np.float64], material: NDArray[np.int32], size: int, dt: float, steps: int
) -> NDArray[np.float64]:
    """The positions by NumPy in f64."""
    h, eye = 1.0 / size, np.eye(2)
    v, C = np.zeros_like(x), np.zeros((len(x), 2, 2))
    F = np.tile(eye, (len(x), 1, 1))
    for _ in range(steps):
        base = (x / h - 0.5).astype(int)
        f = x / h - base
        w = np.stack([0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2])
        F = F + dt * C @ F
        J = np.linalg.det(F)[:, None, None]
        F = np.where((material == WATER)[:, None, None], np.sqrt(J) * eye, F)
        u, _, vt = np.linalg.svd(F)
        shear = 2.0 * SHEAR * (F - u @ vt) @ F.transpose(0, 2, 1) * (material == JELLY)[:, None, None]
        affine = C - dt * 4.0 / h**2 * (BULK * J * (J - 1.0) * eye + shear)
        momentum, mass = np.zeros((size, size, 2)), np.zeros((size, size))
        nodes = []
        for i in range(3):
            for j in range(3):
                weight = w[i, :, 0] * w[j, :, 1]
                away = ([i, j] - f)[:, :, None]
                at = (base[:, 0] + i, base[:, 1] + j)
                np.add.at(momentum, at, weight[:, None] * (v + (affine @ away * h)[:, :, 0]))
                np.add.at(mass, at, weight)
                nodes.append((at, weight, away))
        velocity = momentum / np.maximum(mass, 1e-300)[:, :, None] + dt * np.asarray(GRAVITY)
        index = np.arange(size)
        walled = (index < WALL) | (index >= size - WALL)
        velocity[walled, :, 0] = 0.0
        velocity[:, walled, 1] = 0.0
        parts = [(weight[:, None] * velocity[at], away) for at, weight, away in nodes]
        v = sum(part for part, _ in parts)
        C = 4.0 / h * sum(part[:, :, None] * away.transpose(0, 2, 1) for part, away in parts)
        x = x + dt * v
    return x


def run_checks(state: State, x: NDArray[np.float32], material: NDArray[np.int32], dt: float) -> bool:
    """Compare a short run with NumPy, and see that the grid has all the mass and momentum."""
    size, steps = state.mass.shape[0], 30
    for _ in range(steps):
        state.step(dt)
    # A step rounds positions (below 1) by 2**-25 and moves particles by velocities below 1 that are off
    # by the roundings of some 50 operations, far less once times dt; 4 for what the steps amplify.
    bound = 4 * steps * 2.0**-25
    want = reference(x.astype(np.float64), material, size, dt, steps)
    passed = check(f"positions after {steps} steps", state.x.numpy(), want, bound)

    # Weights of one particle sum to 1, so scattering loses nothing; internal forces cancel.
    total = state.v.numpy().astype(np.float64).sum(axis=0)
    state.momentum.fill(0.0)
    state.mass.fill(0.0)
    scatter(state.x, state.v, state.C, state.F, state.material, state.momentum, state.mass, 0.0)
    mass = state.mass.numpy().astype(np.float64).sum()
    passed &= check("mass on the grid", mass, len(x), len(x) * 64 * 2.0**-24)
    magnitude = np.abs(state.momentum.numpy()).sum(axis=(0, 1)) + np.abs(state.v.numpy()).sum(axis=0)
    got = state.momentum.numpy().astype(np.float64).sum(axis=(0, 1))
    return check("momentum on the grid", got, total, magnitude * 64 * 2.0**-24) and passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=96, help="cells along a side (default: 96)")
    parser.add_argument("--frames", type=positive_int, default=3, help="pictures in a row (default: 3)")
    parser.add_argument("--interval", type=float, default=0.22, help="seconds between (default: 0.22)")
    parser.add_argument("--pixels", type=positive_int, default=400, help="pixels a side (default: 400)")
    parser.add_argument("--output", type=Path, default=Path("mpm.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()
    if args.size < 24:
        parser.error("argument --size: at least 24")

    x, material = scene(args.size)
    state = State.of(x, material, args.size)
    dt = 0.013 / args.size  # well below the time that sound takes to cross a cell
    if args.check:
        return 0 if run_checks(state, x, material, dt) else 1
    palette = np.array([[64, 141, 214], [240, 132, 98]], np.uint8)
    pictures = []
    for _ in range(args.frames):
        for _ in range(round(args.interval / dt)):
            state.step(dt)
        at = state.x.numpy()
        pictures.append(
            dots(at[:, 0], at[:, 1], palette[material], args.pixels, args.pixels / args.size / 2.2)
        )
    save_png(args.output, side_by_side(pictures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
