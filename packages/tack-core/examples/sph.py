"""A breaking dam of water, by smoothed particle hydrodynamics (weakly compressible SPH) in 2-D.

    python sph.py
    python sph.py --particles 12000 --seconds 3
    python sph.py --check

Particles find their neighbours through a grid of cells that is filled anew each step. Shows lists
filled through `atomic_add`, whose value is the place to write to, and device functions that loop
over neighbours.

Reference: J. J. Monaghan, "Simulating Free Surface Flows with SPH", J. Comput. Phys. 110, 1994.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, save_png
from _pictures import dots, side_by_side
from numpy.typing import NDArray

import tack

CAPACITY = tack.constant(32)  # places for particles in a cell; at rest there are about 4 (h is 2 spacings)
SOUND = tack.constant(20.0)  # the speed of sound: ten times that of the water keeps it nearly incompressible
VISCOSITY = tack.constant(0.08)
GRAVITY = tack.constant((0.0, -9.81))
WATER = ("#0a2a5c", "#1b5fae", "#3f9ad6", "#9fd8ef", "#ffffff")


@tack.kernel
def fill_cells(x, counts, cells, h):
    """Writes each particle's number into the list of its cell; counts must be 0."""
    for p in range(len(x)):
        cell = tack.i32(tack.floor(x[p] / h))
        place = tack.atomic_add(counts, cell, 1)
        if place < CAPACITY:
            cells[cell.x, cell.y, place] = p


@tack.func
def bump(r, h):
    """Wendland's C2 kernel at distance r; its integral over the plane is 1."""
    q = 2.0 * r / h
    side = max(1.0 - 0.5 * q, 0.0)
    return 7.0 / (math.pi * h * h) * side**4 * (2.0 * q + 1.0)


@tack.func
def slope(r, h):
    """The kernel's derivative, divided by r."""
    q = 2.0 * r / h
    side = max(1.0 - 0.5 * q, 0.0)
    return -140.0 / (math.pi * h**4) * side**3


@tack.kernel
def find_density(x, counts, cells, density, mass, h):
    for p in range(len(x)):
        cell = tack.i32(tack.floor(x[p] / h))
        total = 0.0
        for i in range(max(cell.x - 1, 0), min(cell.x + 2, counts.shape[0])):
            for j in range(max(cell.y - 1, 0), min(cell.y + 2, counts.shape[1])):
                for k in range(min(counts[i, j], CAPACITY)):
                    total += bump(tack.distance(x[p], x[cells[i, j, k]]), h)
        density[p] = mass * total


@tack.func
def pressure_term(density):
    """Pressure over density squared, by Tait's equation for a density of 1 at rest; no tension."""
    return max(SOUND**2 / 7.0 * (density**7 - 1.0), 0.0) / density**2


@tack.kernel
def accelerate(x, v, counts, cells, density, force, mass, h, gravity):
    for p in range(len(x)):
        cell = tack.i32(tack.floor(x[p] / h))
        own = pressure_term(density[p])
        total = gravity * GRAVITY
        for i in range(max(cell.x - 1, 0), min(cell.x + 2, counts.shape[0])):
            for j in range(max(cell.y - 1, 0), min(cell.y + 2, counts.shape[1])):
                for k in range(min(counts[i, j], CAPACITY)):
                    other = cells[i, j, k]
                    away = x[p] - x[other]
                    r = away.length()
                    if other != p and r < h:
                        closing = min(tack.dot(v[p] - v[other], away), 0.0)  # only while they come closer
                        mean = 0.5 * (density[p] + density[other])
                        drag = VISCOSITY * SOUND * h * closing / ((r * r + 0.01 * h * h) * mean)
                        push = own + pressure_term(density[other]) - drag
                        total -= mass * push * slope(r, h) * away
        force[p] = total


@tack.kernel
def move(x, v, force, fixed, dt):
    """The first ``fixed`` particles are walls."""
    for p in range(fixed, len(x)):
        v[p] += dt * force[p]
        x[p] += dt * v[p]


@dataclass
class Fluid:
    """Particles in a box; the walls are the first ``fixed`` of them."""

    x: tack.Array
    v: tack.Array
    fixed: int
    spacing: float
    h: float
    density: tack.Array
    force: tack.Array
    counts: tack.Array
    cells: tack.Array

    @classmethod
    def of(cls, x: NDArray[np.float32], v: NDArray[np.float32], fixed: int, spacing: float) -> Fluid:
        h = 2.6 * spacing
        grid = tuple(int(n) + 1 for n in np.floor(x.max(axis=0) / h) + 2)
        return cls(
            x=tack.asarray(x, tack.vec2, copy=True),
            v=tack.asarray(v, tack.vec2, copy=True),
            fixed=fixed,
            spacing=spacing,
            h=h,
            density=tack.empty(len(x)),
            force=tack.empty(len(x), tack.vec2),
            counts=tack.empty(grid, tack.i32),
            cells=tack.empty((*grid, int(CAPACITY)), tack.i32),
        )

    def find_forces(self, gravity: float) -> None:
        mass = self.spacing**2
        self.counts.fill(0)
        fill_cells(self.x, self.counts, self.cells, self.h)
        find_density(self.x, self.counts, self.cells, self.density, mass, self.h)
        accelerate(self.x, self.v, self.counts, self.cells, self.density, self.force, mass, self.h, gravity)

    def step(self) -> None:
        self.find_forces(1.0)
        move(self.x, self.v, self.force, self.fixed, self.time_step)

    @property
    def time_step(self) -> float:
        return 0.25 * self.h / (1.2 * SOUND)


BOX = (1.6, 1.0)  # width and height of the tank


def dam(particles: int) -> Fluid:
    """Water against the left wall of a tank whose walls are three particles thick."""
    spacing = float(np.sqrt(0.55 * 0.6 / particles))
    thick = 3 * spacing
    across, up = (np.arange(spacing / 2, extent + 2 * thick, spacing) for extent in BOX)
    tank = np.stack(np.meshgrid(across, up, indexing="ij"), axis=-1).reshape(-1, 2)
    inner = ((tank > thick) & (tank < np.add(BOX, thick))).all(axis=1)
    wet = inner & (tank[:, 0] < thick + 0.55) & (tank[:, 1] < thick + 0.6)
    walls, water = tank[~inner], tank[wet]
    x = np.concatenate([walls, water]).astype(np.float32)
    return Fluid.of(x, np.zeros_like(x), len(walls), spacing)


def run_checks(particles: int) -> bool:
    """Compare densities and forces with NumPy over all pairs, and see that forces cancel."""
    rng = np.random.default_rng(9)
    side = int(np.sqrt(particles))
    spacing = 1.0 / side
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    x = ((grid + 3.0 + rng.uniform(-0.2, 0.2, grid.shape)) * spacing).astype(np.float32)
    v = rng.normal(size=x.shape).astype(np.float32)
    fluid = Fluid.of(x, v, 0, spacing)
    fluid.find_forces(0.0)
    most = int(fluid.counts.numpy().max())
    passed = check("cells that overflow", max(most - CAPACITY, 0), 0, 0)

    h, mass = fluid.h, spacing**2
    away = x[:, None].astype(np.float64) - x[None]
    r = np.linalg.norm(away, axis=2)
    reach = np.maximum(1.0 - r / h, 0.0)
    terms = mass * 7.0 / (np.pi * h * h) * reach**4 * (4.0 * r / h + 1.0)
    want = terms.sum(axis=1)
    # Positions below 2 are rounded, so a distance is off by 2**-24 * 4, relative to h; the kernel's slope is
    # at most 4 / h times its height, over some 20 neighbours, and each term takes some 24 roundings.
    height = mass * 7.0 / (np.pi * h * h)
    bound = F32_ROUNDOFF * (20 * height * 4.0 * 4.0 / h + 48 * want)
    passed &= check("density", fluid.density.numpy(), want, bound)

    density = fluid.density.numpy().astype(np.float64)  # ours, so that only the forces' own error counts
    own = np.maximum(SOUND**2 / 7.0 * (density**7 - 1.0), 0.0) / density**2
    closing = np.minimum(((v[:, None].astype(np.float64) - v[None]) * away).sum(axis=2), 0.0)
    mean = 0.5 * (density[:, None] + density)
    drag = VISCOSITY * SOUND * h * closing / ((r * r + 0.01 * h * h) * mean)
    factor = mass * (own[:, None] + own - drag) * 140.0 / (np.pi * h**4) * reach**3
    pulls = factor[:, :, None] * away
    # The same distances; and Tait's equation subtracts 1 from density**7, with some 10 roundings of that.
    push = SOUND**2 / 7.0 * (density**7)[:, None] * mass * 140.0 / (np.pi * h**4) * reach**3 * r
    bound = F32_ROUNDOFF * (64 * (1.0 + 1.0 / h) * np.abs(pulls).sum(axis=(1, 2)) + 40 * push.sum(axis=1))
    passed &= check("forces", fluid.force.numpy(), pulls.sum(axis=1), bound[:, None])
    got = fluid.force.numpy().sum(axis=0, dtype=np.float64)
    return check("sum of all forces", got, 0.0, bound.sum()) and passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--particles", type=positive_int, default=2200, help="of water (default: 2200)")
    parser.add_argument("--frames", type=positive_int, default=3, help="pictures in a row (default: 3)")
    parser.add_argument("--seconds", type=float, default=0.9, help="simulated time (default: 0.9)")
    parser.add_argument("--pixels", type=positive_int, default=400, help="pixels across (default: 400)")
    parser.add_argument("--output", type=Path, default=Path("sph.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    if args.check:
        return 0 if run_checks(args.particles) else 1
    fluid = dam(args.particles)
    width = BOX[0] + 6 * fluid.spacing
    pictures = []
    for _ in range(args.frames):
        for _ in range(round(args.seconds / args.frames / fluid.time_step)):
            fluid.step()
        x, v = fluid.x.numpy() / width, fluid.v.numpy()
        colours = colourise(np.clip(np.hypot(v[:, 0], v[:, 1]) / 3.0, 0.0, 1.0), WATER)
        colours[: fluid.fixed] = (92, 88, 84)
        radius = 0.75 * fluid.spacing / width * args.pixels
        picture = dots(x[:, 0], x[:, 1], colours, args.pixels, radius)
        pictures.append(picture[round(args.pixels * (1.0 - 1.03 * BOX[1] / width)) :])
    save_png(args.output, side_by_side(pictures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
