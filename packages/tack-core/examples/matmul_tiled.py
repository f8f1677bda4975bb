"""The product of two matrices, by tiles in shared memory.

    python matmul_tiled.py
    python matmul_tiled.py --size 1000
    python matmul_tiled.py --check

A workgroup computes 16 x 16 entries of the product. In each round it fetches a tile of the left
matrix and one of the right, an element a lane, so each element fetched serves 16 lanes.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int

import tack

SIDE = tack.constant(16)  # of a tile, whose elements are a group's 256 lanes
LANES = tack.constant(256)


@tack.func
def entry(matrix, row, column):
    """An entry of the matrix, or 0 beyond its edges."""
    if row < matrix.shape[0] and column < matrix.shape[1]:
        return matrix[row, column]
    return 0.0


@tack.kernel
def multiply(a, b, product, down, across, rounds):
    """``down`` x ``across`` tiles of a @ b, each the sum of ``rounds`` products of tiles."""
    for i in range(down * across * LANES):
        left = tack.shared((SIDE, SIDE), tack.f32)
        right = tack.shared((SIDE, SIDE), tack.f32)
        lane = tack.thread_id()
        y, x = lane // SIDE, lane % SIDE
        tile = i // LANES
        row, column = tile // across * SIDE + y, tile % across * SIDE + x
        total = 0.0
        for number in range(rounds):
            left[y, x] = entry(a, row, number * SIDE + x)
            right[y, x] = entry(b, number * SIDE + y, column)
            tack.barrier()  # both tiles are full
            for k in range(SIDE):
                total += left[y, k] * right[k, x]
            tack.barrier()  # all have read them, so the next ones may replace them
        if row < product.shape[0] and column < product.shape[1]:
            product[row, column] = total


def matmul(a: tack.Array, b: tack.Array) -> tack.Array:
    """The product (n, m) of f32 matrices (n, k) and (k, m)."""
    product = tack.empty((a.shape[0], b.shape[1]))
    down, across, rounds = (-(-extent // SIDE) for extent in (*product.shape, a.shape[1]))
    multiply(a, b, product, down, across, rounds)
    return product


def check_product(shape: tuple[int, int, int], rng: np.random.Generator) -> bool:
    """Compare a product of random matrices, (n, k) and (k, m), with NumPy's in f64."""
    n, k, m = shape
    a, b = (rng.normal(size=size).astype(np.float32) for size in ((n, k), (k, m)))
    got = matmul(tack.asarray(a), tack.asarray(b)).numpy()
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    # A term is rounded once as a product, and at most k times as part of a sum.
    bound = 1.01 * (k + 1) * F32_ROUNDOFF * (np.abs(wide_a) @ np.abs(wide_b))
    return check(f"({n}, {k}) @ ({k}, {m})", got, wide_a @ wide_b, bound)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=positive_int, default=512, help="rows and columns (default: 512)")
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    n = args.size
    rng = np.random.default_rng(1)
    if args.check:
        shapes = [(n, n, n), (n, 1, 2 * n + 1), (1, n, 1), (5, n + 3, 40)]
        results = [check_product(shape, rng) for shape in shapes]
        return 0 if all(results) else 1
    a, b = (tack.asarray(rng.normal(size=(n, n)).astype(np.float32)) for _ in range(2))
    matmul(a, b)  # compiles it
    began = perf_counter()
    product = matmul(a, b).numpy()
    seconds = perf_counter() - began
    rate = 2 * n**3 / seconds / 1e9
    print(f"{n} x {n} in {seconds:.3f} s, {rate:.2f} GFLOP/s; trace {np.trace(product):.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
