"""Flow past a cylinder by the lattice Boltzmann method (D2Q9, BGK).

    python lbm.py
    python lbm.py --height 240 --steps 16000
    python lbm.py --check

Each cell holds nine populations, which hop to its neighbours and then relax to equilibrium. Shows
constant tables for the nine directions, and a local array.

Reference: Y. H. Qian, D. d'Humières, P. Lallemand, "Lattice BGK Models for Navier-Stokes Equation",
Europhys. Lett. 17(6), 1992.
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

DIRECTIONS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
TOWARDS = tack.constant(DIRECTIONS)  # (x, y) of each population's hop
OPPOSITE = tack.constant((0, 3, 4, 1, 2, 7, 8, 5, 6))
WEIGHT = tack.constant((4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36))

INFLOW = 0.1  # cells per step; well below the speed of sound, 1 / sqrt(3)
FLOW = ("#0b3d91", "#3f7fd0", "#a9c9e8", "#f4f1ea", "#f0b48a", "#d4552e", "#7d1128")


@tack.func
def equilibrium(k, density, ux, uy):
    along = TOWARDS[k][0] * ux + TOWARDS[k][1] * uy
    return WEIGHT[k] * density * (1.0 + 3.0 * along + 4.5 * along * along - 1.5 * (ux * ux + uy * uy))


@tack.func
def wrap(i, count):
    """An index at most one step outside 0..count - 1, on a torus."""
    return i + count if i < 0 else i - count if i >= count else i


@tack.kernel
def step(old, new, solid, velocity, omega, inflow):
    """One step of every cell; from left to right at speed ``inflow``, or periodic if it is 0."""
    rows = solid.shape[0]
    columns = solid.shape[1]
    for i, j in tack.ndindex(solid.shape[0], solid.shape[1]):
        if solid[i, j]:
            continue
        f = tack.local_array(9, tack.f32)
        here = min(j, columns - 2) if inflow > 0.0 else j  # the last column copies the one before it
        for k in range(9):
            row = wrap(i - TOWARDS[k][1], rows)
            column = wrap(here - TOWARDS[k][0], columns)
            if solid[row, column]:  # bounced back from a wall half-way
                f[k] = old[OPPOSITE[k], i, here]
            else:
                f[k] = old[k, row, column]
        density, ux, uy = 0.0, 0.0, 0.0
        for k in range(9):
            density += f[k]
            ux += TOWARDS[k][0] * f[k]
            uy += TOWARDS[k][1] * f[k]
        ux /= density
        uy /= density
        if inflow > 0.0 and j == 0:
            for k in range(9):
                new[k, i, j] = equilibrium(k, 1.0, inflow, 0.0)
            ux, uy = inflow, 0.0
        else:
            for k in range(9):
                new[k, i, j] = f[k] + omega * (equilibrium(k, density, ux, uy) - f[k])
        velocity[i, j] = [ux, uy]


@tack.kernel
def rest(f, velocity):
    """Populations in equilibrium at density 1."""
    for k, i, j in tack.ndindex(9, velocity.shape[0], velocity.shape[1]):
        f[k, i, j] = equilibrium(k, 1.0, velocity[i, j].x, velocity[i, j].y)


def simulate(
    start: NDArray[np.float32], solid: NDArray[np.uint8], viscosity: float, inflow: float, steps: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The velocities (rows, columns, 2) and populations (9, rows, columns) after ``steps`` steps."""
    omega = 1.0 / (3.0 * viscosity + 0.5)
    velocity = tack.asarray(start, tack.vec2, copy=True)
    walls = tack.asarray(solid)
    old = tack.empty((9, *solid.shape))
    rest(old, velocity)
    new = old.copy()
    for _ in range(steps):
        step(old, new, walls, velocity, omega, inflow)
        old, new = new, old
    return velocity.numpy(), old.numpy()


def channel(height: int) -> tuple[NDArray[np.uint8], NDArray[np.float32], int]:
    """Walls above and below, a cylinder between them, the flow at the start, and the cylinder's width."""
    width = height * 10 // 3
    y, x = np.mgrid[0:height, 0:width]
    radius = height // 9
    # A little off the middle, so that the eddies soon leave it from one side and the other in turn.
    cylinder = np.hypot(x - 2.3 * height / 3, y - 0.5 * height - 0.7) < radius
    solid = (cylinder | (y == 0) | (y == height - 1)).astype(np.uint8)
    start = np.zeros((height, width, 2), np.float32)
    start[:, :, 0] = np.where(solid, 0.0, INFLOW)
    return solid, start, 2 * radius


def reference(
    start: NDArray[np.float32], solid: NDArray[np.uint8], viscosity: float, inflow: float, steps: int
) -> NDArray[np.float64]:
    """The populations by NumPy in f64."""
    omega = 1.0 / (3.0 * viscosity + 0.5)
    weights = np.array(WEIGHT)[:, None, None]

    def relaxed(density: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.float64]:
        along = np.tensordot(np.array(DIRECTIONS, np.float64), u, 1)
        return weights * density * (1.0 + 3.0 * along + 4.5 * along**2 - 1.5 * (u**2).sum(axis=0))

    f = relaxed(np.ones(solid.shape), start.transpose(2, 0, 1).astype(np.float64))
    entering = relaxed(np.ones(solid.shape), np.stack([np.full(solid.shape, inflow), np.zeros(solid.shape)]))
    for _ in range(steps):
        moved = np.empty_like(f)
        for k, (x, y) in enumerate(DIRECTIONS):
            from_wall = np.roll(solid, (y, x), (0, 1)) != 0
            moved[k] = np.where(from_wall, f[OPPOSITE[k]], np.roll(f[k], (y, x), (0, 1)))
        density = moved.sum(axis=0)
        u = np.tensordot(np.array(DIRECTIONS, np.float64).T, moved, 1) / density
        moved += omega * (relaxed(density, u) - moved)
        moved[:, :, -1] = moved[:, :, -2]
        moved[:, :, 0] = entering[:, :, 0]
        f = np.where(solid, f, moved)
    return f


def run_checks(height: int) -> bool:
    """Compare with NumPy, and the decay of eddies with that of the Navier-Stokes equations."""
    solid, start, diameter = channel(height)
    viscosity, steps = INFLOW * diameter / 100.0, 40
    _, f = simulate(start, solid, viscosity, INFLOW, steps)
    # Populations below 1/2 take some 60 roundings a step; relaxing does not enlarge errors before by more
    # than 2 (omega's largest value) in the velocities' few per cent, for which the 4 stands.
    bound = 4 * steps * 60 * F32_ROUNDOFF / 2
    passed = check(
        f"populations after {steps} steps", f, reference(start, solid, viscosity, INFLOW, steps), bound
    )

    size, steps, viscosity, speed = 32, 200, 0.05, 0.02
    wave = 2.0 * np.pi / size
    y, x = np.mgrid[0:size, 0:size] * wave
    eddies = speed * np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)], axis=-1)
    velocity, f = simulate(eddies.astype(np.float32), np.zeros((size, size), np.uint8), viscosity, 0.0, steps)
    want = eddies * np.exp(-2.0 * viscosity * wave**2 * steps)
    # The method's error: second order in the cell's size (here k**2 = 0.04) and in the speed.
    passed &= check("Taylor-Green eddies", velocity, want, speed * 0.5 * wave**2)
    return check("mass", f.sum(dtype=np.float64), size**2, steps * 20 * F32_ROUNDOFF * size**2) and passed


def picture(velocity: NDArray[np.float32], solid: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The vorticity: blue turns clockwise, red the other way."""
    turning = np.gradient(velocity[:, :, 1], axis=1) - np.gradient(velocity[:, :, 0], axis=0)
    scale = 2.2 * INFLOW * 9 / solid.shape[0]
    pixels = colourise(np.clip(0.5 + turning / (2.0 * scale), 0.0, 1.0), FLOW)
    pixels[solid != 0] = (58, 60, 66)
    return pixels[::-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--height", type=positive_int, default=120, help="cells across (default: 120)")
    parser.add_argument("--steps", type=positive_int, default=8000, help="time steps (default: 8000)")
    parser.add_argument("--reynolds", type=float, default=150.0, help="Reynolds number (default: 150)")
    parser.add_argument("--output", type=Path, default=Path("lbm.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()
    if args.height < 27:
        parser.error("argument --height: at least 27")

    if args.check:
        return 0 if run_checks(args.height) else 1
    solid, start, diameter = channel(args.height)
    began = perf_counter()
    velocity, _ = simulate(start, solid, INFLOW * diameter / args.reynolds, INFLOW, args.steps)
    print(f"{solid.size * args.steps / (perf_counter() - began) / 1e6:.0f} M cells/s")
    scale = max(1, 960 // solid.shape[1])
    save_png(args.output, picture(velocity, solid).repeat(scale, axis=0).repeat(scale, axis=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
