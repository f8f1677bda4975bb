"""Stars that attract each other, with positions shared by the lanes of a workgroup.

    python nbody_tiled.py
    python nbody_tiled.py --size 20000 --steps 3
    python nbody_tiled.py --check

Every star needs every other's position. 256 lanes fetch 256 positions into shared memory, one each,
then each lane reads all of them there: a GPU goes to its main memory 256 times less often.

Reference: L. Nyland, M. Harris, J. Prins, "Fast N-Body Simulation with CUDA", GPU Gems 3, chapter 31, 2007.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int
from numpy.typing import NDArray

import tack

TILE = tack.constant(256)  # bodies in a tile: one for each lane
SOFTENING2 = tack.constant(0.05**2)  # squared distance below which gravity weakens


@tack.kernel
def attract(bodies, acceleration, tiles):
    """Accelerations of ``tiles`` * 256 bodies, each a position and, in ``w``, a mass."""
    for i in range(tiles * TILE):
        tile = tack.shared(TILE, tack.vec4)
        lane = tack.thread_id()
        here = bodies[i].xyz
        total = tack.vec3(0.0, 0.0, 0.0)
        for number in range(tiles):
            tile[lane] = bodies[number * TILE + lane]
            tack.barrier()  # the tile is full
            for k in range(TILE):
                away = tile[k].xyz - here
                near = tack.rsqrt(away.length_sq() + SOFTENING2)
                total += tile[k].w * near * near * near * away
            tack.barrier()  # all have read it, so the next one may replace it
        acceleration[i] = total


@tack.kernel
def kick(velocity, acceleration, dt):
    for i in range(len(velocity)):
        velocity[i] += acceleration[i] * dt


@tack.kernel
def drift(bodies, velocity, dt):
    for i in range(len(bodies)):
        bodies[i] += tack.vec4(velocity[i], 0.0) * dt


@tack.kernel
def kinetic_energy(bodies, velocity, energy):
    """energy[g]: that of the bodies of group g."""
    for i in range(len(energy) * TILE):
        total = tack.block_sum(0.5 * bodies[i].w * velocity[i].length_sq())
        if tack.thread_id() == 0:
            energy[i // TILE] = total


def cluster(size: int) -> NDArray[np.float32]:
    """A ball of ``size`` stars with total mass 1, and stars without mass up to the next multiple of 256."""
    rng = np.random.default_rng(3)
    bodies = np.zeros((-(-size // TILE) * TILE, 4), np.float32)
    direction = rng.normal(size=(len(bodies), 3))
    radius = np.cbrt(rng.uniform(size=(len(bodies), 1)))
    bodies[:, :3] = radius * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    bodies[:size, 3] = 1.0 / size
    return bodies


def check_attraction(bodies: NDArray[np.float32], got: NDArray[np.float32]) -> bool:
    """Compare accelerations with NumPy's in f64."""
    position, mass = bodies[:, :3].astype(np.float64), bodies[:, 3].astype(np.float64)
    away = position[None] - position[:, None]
    near = 1.0 / np.sqrt((away**2).sum(-1) + float(np.float32(SOFTENING2)))
    terms = (mass * near**3)[:, :, None] * away
    # Each term: one rounding of the difference, which squares and the root pass on at most twice
    # over; 4 of the sum of squares; rsqrt within 4 ULP (8 roundings), cubed; 4 products. Each
    # addition then rounds a partial sum, which is no larger than the sum of the magnitudes.
    roundings = 1 + 3 * (1 + 2 + 8) + 4 + len(bodies)
    bound = 1.01 * roundings * F32_ROUNDOFF * np.abs(terms).sum(1)
    return check(f"accelerations of {len(bodies)} bodies", got, terms.sum(1), bound)


def check_energy(bodies: NDArray[np.float32], velocity: NDArray[np.float32], got: float) -> bool:
    """Compare a kinetic energy with NumPy's in f64."""
    want = 0.5 * (bodies[:, 3].astype(np.float64) * (velocity.astype(np.float64) ** 2).sum(1)).sum()
    # Positive terms: 3 roundings of a sum of squares, 1 of a product, 8 levels of a group's sum. The
    # host adds the groups in f64.
    return check("kinetic energy", got, want, 1.01 * (3 + 1 + 8) * F32_ROUNDOFF * want)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=4000, help="stars (default: 4000)")
    parser.add_argument("--steps", type=positive_int, default=10, help="time steps (default: 10)")
    parser.add_argument("--dt", type=float, default=0.005, help="length of a step (default: 0.005)")
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    start = cluster(args.size)
    tiles = len(start) // TILE
    bodies = tack.asarray(start, dtype=tack.vec4)
    velocity, acceleration = (tack.zeros(len(start), tack.vec3) for _ in range(2))
    energy = tack.zeros(tiles)
    attract(bodies, acceleration, tiles)  # also compiles it
    passed = not args.check or check_attraction(start, acceleration.numpy())

    began = perf_counter()
    for _ in range(args.steps):  # leapfrog: half a kick, drift, half a kick
        kick(velocity, acceleration, args.dt / 2)
        drift(bodies, velocity, args.dt)
        attract(bodies, acceleration, tiles)
        kick(velocity, acceleration, args.dt / 2)
    kinetic_energy(bodies, velocity, energy)
    kinetic = float(energy.numpy().sum(dtype=np.float64))
    seconds = perf_counter() - began
    if args.check:
        return 0 if check_energy(bodies.numpy(), velocity.numpy(), kinetic) and passed else 1
    rate = len(start) ** 2 * args.steps / seconds / 1e6
    print(f"{args.steps} steps in {seconds:.2f} s, {rate:.0f} M pairs/s; kinetic energy {kinetic:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
