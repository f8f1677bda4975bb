"""Spots and stripes that grow by themselves: the Gray-Scott reaction.

    python reaction_diffusion.py
    python reaction_diffusion.py --feed 0.035 --kill 0.0615 --steps 12000
    python reaction_diffusion.py --check

Two substances u and v spread and react: u + 2 v -> 3 v. Shows an array of `vec2`, whose two
concentrations spread in one expression.

Reference: J. E. Pearson, "Complex Patterns in a Simple System", Science 261, 1993.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack

SPREAD = tack.constant((0.16, 0.08))  # diffusivities of u and v, in cells squared a step
PALETTE = ("#0d1b2a", "#1b4965", "#3aa6a0", "#b8e0a4", "#fdf3c8", "#f4a259", "#c8553d")


@tack.kernel
def react(now, after, feed, kill):
    rows = now.shape[0]
    columns = now.shape[1]
    for i, j in tack.ndindex(now.shape[0], now.shape[1]):
        c = now[i, j]
        around = (
            now[(i + 1) % rows, j]
            + now[(i - 1) % rows, j]
            + now[i, (j + 1) % columns]
            + now[i, (j - 1) % columns]
        )
        made = c.x * c.y * c.y
        change = [feed * (1.0 - c.x) - made, made - (feed + kill) * c.y]
        after[i, j] = c + SPREAD * (around - 4.0 * c) + change


def start(size: int) -> NDArray[np.float32]:
    """u = 1 with specks of v here and there; (size, size * 3 / 2, 2)."""
    rng = np.random.default_rng(20)
    state = np.zeros((size, size * 3 // 2, 2), np.float32)
    state[:, :, 0] = 1.0
    for _ in range(max(4, size // 10)):
        i, j = rng.integers(0, size - 6), rng.integers(0, size * 3 // 2 - 6)
        state[i : i + 6, j : j + 6] = 0.5, 0.5
    state += rng.uniform(-0.01, 0.01, state.shape)
    return np.clip(state, 0.0, 1.0)


def simulate(state: NDArray[np.float32], feed: float, kill: float, steps: int) -> NDArray[np.float32]:
    now = tack.asarray(state, tack.vec2, copy=True)
    after = tack.empty_like(now)
    for _ in range(steps):
        react(now, after, feed, kill)
        now, after = after, now
    return now.numpy()


def reference(
    state: NDArray[np.float32], feed: float, kill: float, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The state by NumPy in f64, and how far from it f32 may be.

    Beside the state runs a bound of the error, which spreads and reacts like the state: to first order
    the reaction passes on v**2 of u's error and 2 u v of v's.
    """
    c, error = state.astype(np.float64), np.zeros(state.shape)

    def around(field: NDArray[np.float64]) -> NDArray[np.float64]:
        return sum(np.roll(field, side, axis) for axis in (0, 1) for side in (1, -1))

    spread = np.asarray(SPREAD)
    for _ in range(steps):
        u, v = c[:, :, 0], c[:, :, 1]
        grown = (v * v * error[:, :, 0] + 2.0 * u * v * error[:, :, 1])[:, :, None]
        # A step takes 16 roundings of values up to 4 times the spread of 1, at most 1.
        error = spread * around(error) + (1.0 - 4.0 * spread) * error + 1.01 * grown + 16 * F32_ROUNDOFF
        made = u * v * v
        change = np.stack([feed * (1.0 - u) - made, made - (feed + kill) * v], axis=-1)
        c = c + spread * (around(c) - 4.0 * c) + change
    return c, error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=320, help="cells high (default: 320)")
    parser.add_argument("--steps", type=positive_int, default=8000, help="time steps (default: 8000)")
    parser.add_argument("--feed", type=float, default=0.0545, help="supply of u (default: 0.0545)")
    parser.add_argument("--kill", type=float, default=0.062, help="removal of v (default: 0.062)")
    parser.add_argument("--output", type=Path, default=Path("reaction_diffusion.png"))
    parser.add_argument("--check", action="store_true", help="compare 15 steps with NumPy and exit")
    args = parser.parse_args()
    if args.size < 8:
        parser.error("argument --size: at least 8")

    state = start(args.size)
    if args.check:
        want, bound = reference(state, args.feed, args.kill, 15)
        got = simulate(state, args.feed, args.kill, 15)
        return 0 if check("concentrations after 15 steps", got, want, bound) else 1
    v = simulate(state, args.feed, args.kill, args.steps)[:, :, 1]
    save_png(args.output, colourise(np.clip(v / 0.36, 0.0, 1.0), PALETTE).repeat(2, axis=0).repeat(2, axis=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
