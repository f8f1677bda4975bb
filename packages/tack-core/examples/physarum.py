"""A slime mould: agents that follow the trails which they all leave.

    python physarum.py
    python physarum.py --size 900 --agents 400000
    python physarum.py --check

Each agent smells the trail ahead, to its left and to its right, turns, moves, and leaves a trace.
Shows `tack.random`, whose state lives in an array between steps, and its mirror on the host.

Reference: J. Jones, "Characteristics of Pattern Formation and Evolution in Approximations of
Physarum Transport Networks", Artificial Life 16(2), 2010.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, save_png
from numpy.typing import NDArray

import tack

REACH = tack.constant(9.0)  # cells ahead that an agent smells
SPREAD = tack.constant(0.55)  # radians to each side
TURN = tack.constant(0.5)  # radians per step, at most
KEPT = tack.constant(0.9)  # share of the trail that the next step still has
SLIME = ("#0c0f14", "#2b2a10", "#6b5f12", "#c2a81c", "#f2e24e", "#fffbd6")


@tack.func
def ahead(place, angle, distance):
    return place + distance * tack.vec2(tack.cos(angle), tack.sin(angle))


@tack.func
def smell(trail, place):
    """The trail at a place on the torus."""
    cell = tack.i32(tack.floor(place))
    return trail[cell.y % trail.shape[0], cell.x % trail.shape[1]]


@tack.kernel
def wander(places, angles, states, trail, traces):
    extent = tack.vec2(trail.shape[1], trail.shape[0])
    for k in range(len(places)):
        place, angle = places[k], angles[k]
        left = smell(trail, ahead(place, angle + SPREAD, REACH))
        middle = smell(trail, ahead(place, angle, REACH))
        right = smell(trail, ahead(place, angle - SPREAD, REACH))
        u, states[k] = tack.random.uniform(states[k])
        if left > middle and right > middle:
            angle += TURN if u < 0.5 else -TURN
        elif left > right:
            angle += TURN * u
        elif right > left:
            angle -= TURN * u
        place = ahead(place, angle, 1.0)
        place -= extent * tack.floor(place / extent)
        places[k], angles[k] = place, angle
        cell = tack.i32(tack.floor(place))
        tack.atomic_add(traces, (cell.y % trail.shape[0], cell.x % trail.shape[1]), 1)


@tack.kernel
def fade(trail, traces, faded):
    """faded = what is kept of the mean around each cell of the trail, with the new traces."""
    rows = trail.shape[0]
    columns = trail.shape[1]
    for i, j in tack.ndindex(trail.shape[0], trail.shape[1]):
        total = 0.0
        for di in range(-1, 2):
            for dj in range(-1, 2):
                at_i, at_j = (i + di) % rows, (j + dj) % columns
                total += trail[at_i, at_j] + traces[at_i, at_j]
        faded[i, j] = KEPT / 9.0 * total


@dataclass
class Mould:
    """Agents, and the trail; the traces are those of the last step."""

    places: tack.Array
    angles: tack.Array
    states: tack.Array
    trail: tack.Array
    traces: tack.Array

    @classmethod
    def scattered(cls, agents: int, rows: int, columns: int) -> Mould:
        """Agents all over the torus, each on its way in some direction."""
        states = tack.random.np_seed(np.arange(agents), 1)
        x, states = tack.random.np_uniform(states)
        y, states = tack.random.np_uniform(states)
        turn, states = tack.random.np_uniform(states)
        places = np.stack([x * np.float32(columns), y * np.float32(rows)], axis=1)
        return cls(
            places=tack.asarray(places, tack.vec2),
            angles=tack.asarray(turn * np.float32(2.0 * math.pi)),
            states=tack.asarray(states),
            trail=tack.zeros((rows, columns)),
            traces=tack.zeros((rows, columns), tack.i32),
        )

    def step(self) -> None:
        self.traces.fill(0)
        wander(self.places, self.angles, self.states, self.trail, self.traces)
        faded = tack.empty_like(self.trail)
        fade(self.trail, self.traces, faded)
        self.trail = faded


def reference(mould: Mould) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    """The agents' places and states after one more step, by NumPy in f32."""
    places, angles, trail = mould.places.numpy(), mould.angles.numpy(), mould.trail.numpy()
    extent = np.array(trail.shape[::-1], np.float32)

    def moved(angle: NDArray[np.float32], distance: np.float32) -> NDArray[np.float32]:
        return places + distance * np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def smelled(turn: float) -> NDArray[np.float32]:
        cell = np.floor(moved(angles + np.float32(turn), np.float32(REACH))).astype(int) % extent.astype(int)
        return trail[cell[:, 1], cell[:, 0]]

    left, middle, right = smelled(SPREAD), smelled(0.0), smelled(-SPREAD)
    u, states = tack.random.np_uniform(mould.states.numpy())
    between = (left > middle) & (right > middle)
    turn = np.where(between, np.where(u < 0.5, 1.0, -1.0), np.sign(left - right) * u)
    place = moved(angles + np.float32(TURN) * turn.astype(np.float32), np.float32(1.0))
    return place - extent * np.floor(place / extent), states


def run_checks(mould: Mould) -> bool:
    """Compare a step with NumPy after some have built up a trail."""
    agents, (rows, columns) = len(mould.places), mould.trail.shape
    for _ in range(20):
        mould.step()
    places, states = reference(mould)
    trail = mould.trail.numpy().astype(np.float64)
    mould.step()
    passed = check("random states", mould.states.numpy(), states, 0)
    passed &= check("traces", mould.traces.numpy().sum(), agents, 0)

    # Rounded by 2**-24 of up to the extent, and by 4 ULP of an angle, a place differs by this at most, unless
    # the rounding moved what it smells to another cell: that is rare.
    off = np.abs(mould.places.numpy() - places)
    off = np.minimum(off, np.abs(np.array([columns, rows]) - off)).max(axis=1)
    same = off <= 8 * F32_ROUNDOFF * max(rows, columns) + 64 * F32_ROUNDOFF
    passed &= check("share of agents at NumPy's places", same.mean(), 1.0, 0.002)

    laid = trail + mould.traces.numpy()
    mean = sum(np.roll(laid, (di, dj), (0, 1)) for di in (-1, 0, 1) for dj in (-1, 0, 1)) / 9.0
    bound = 16 * F32_ROUNDOFF * KEPT * mean
    return check("the faded trail", mould.trail.numpy(), KEPT * mean, bound) and passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=540, help="cells high (default: 540)")
    parser.add_argument("--agents", type=positive_int, default=150_000, help="(default: 150000)")
    parser.add_argument("--steps", type=positive_int, default=200, help="time steps (default: 200)")
    parser.add_argument("--output", type=Path, default=Path("physarum.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    mould = Mould.scattered(args.agents, args.size, max(1, args.size * 4 // 3))
    if args.check:
        return 0 if run_checks(mould) else 1
    for _ in range(args.steps):
        mould.step()
    trail = mould.trail.numpy()
    save_png(args.output, colourise(np.minimum(trail / np.percentile(trail, 99.0), 1.0) ** 0.7, SLIME))
    return 0


if __name__ == "__main__":
    sys.exit(main())
