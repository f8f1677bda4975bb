"""y = a * x + y: a first kernel.

    python saxpy.py            time it beside NumPy
    python saxpy.py --check    compare with NumPy, exactly to rounding

A kernel's outermost loop is the parallel one: each of its iterations runs once, in no particular
order. Types follow the arguments: here f32 arrays, so `a` is f32 too.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int

import tack


@tack.kernel
def saxpy(a, x, y):
    for i in range(x.shape[0]):
        y[i] = a * x[i] + y[i]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", type=positive_int, default=1 << 24, help="elements (default: 16 Mi)")
    parser.add_argument("-a", type=float, default=2.5, help="the factor (default: 2.5)")
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    rng = np.random.default_rng(1)
    x_host = rng.standard_normal(args.n, dtype=np.float32)
    y_host = rng.standard_normal(args.n, dtype=np.float32)
    x, y = tack.asarray(x_host), tack.asarray(y_host.copy())

    saxpy(args.a, x, y)  # the first call compiles
    if args.check:
        a = float(np.float32(args.a))
        product = a * x_host.astype(np.float64)
        want = product + y_host
        # The product and the sum round once each, or once together if they are fused.
        bound = F32_ROUNDOFF * (np.abs(product) + np.abs(want)) * 1.01 + 2.0**-149
        return 0 if check("saxpy", y.numpy(), want, bound) else 1

    start = perf_counter()
    saxpy(args.a, x, y)
    tack.sync()
    ours = perf_counter() - start
    start = perf_counter()
    y_host += np.float32(args.a) * x_host
    theirs = perf_counter() - start
    gigabytes = 3 * x_host.nbytes / 1e9  # x and y are read, y is written
    print(f"tack  {ours * 1e3:8.2f} ms  {gigabytes / ours:6.1f} GB/s")
    print(f"numpy {theirs * 1e3:8.2f} ms  {gigabytes / theirs:6.1f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
