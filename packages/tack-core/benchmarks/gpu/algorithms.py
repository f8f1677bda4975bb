"""Algorithms on a GPU beside those of CuPy and torch: 64 Mi elements, results checked with NumPy.

A timed run is a batch of calls and the wait for them, as in `throughput`; figures are for one call. Calls
that give a number, or an array whose size they find out, wait each time. The axes reduced are of 8192 × 8192.
"""

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Benchmark, Case, main

N = 64 * 1024 * 1024
SIDE = 8192
BATCH = 4
CASES = (
    *("scan f32", "scan i32", "scan f64", "sort i32", "sort f32", "sort i64", "argsort i32"),
    *("compact f32", "where", "histogram f32", "unique i32", "sum f32", "max f32"),
    *("reduce, axis 0", "reduce, axis 1", "var f32"),
)


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Random f32 and i32."""
    rng = np.random.default_rng(0)
    return rng.random(N, dtype=np.float32), rng.integers(-(2**31), 2**31, N).astype(np.int32)


def in_order(found: np.ndarray, values: np.ndarray) -> bool:
    """Whether these are the same numbers in order, told by sums of what is made of their bits."""
    bits = [np.ascontiguousarray(a).view(f"u{a.itemsize}").astype(np.uint64) for a in (found, values)]
    sums = [(b.sum(), (b * b).sum(), (b * b % np.uint64(1_000_003)).sum()) for b in bits]
    return bool((found[1:] >= found[:-1]).all()) and sums[0] == sums[1]


def check(case: str, result: Any) -> bool:
    """Whether ``result`` is what NumPy computes, floats within the errors of a sum."""
    x, k = data()
    name = case.split()[0]
    if name == "scan":
        wide = np.cumsum(k if case == "scan i32" else x, dtype=np.int64 if case == "scan i32" else np.float64)
        if case == "scan i32":
            return bool((result == wide.astype(np.int32)).all())
        return bool(np.allclose(result, wide, rtol=1e-4 if case == "scan f32" else 1e-10))
    if name == "sort":
        values = {"f32": x, "i32": k}.get(case.split()[1])
        return in_order(result, k.astype(np.int64) << 20 if values is None else values)
    if name == "argsort":
        order = np.asarray(result, np.int64)
        return in_order(k[order], k) and bool((np.bincount(order, minlength=N) == 1).all())
    expected = {
        "compact f32": lambda: x[x > 0.5],
        "where": lambda: np.flatnonzero(x > 0.5),
        "histogram f32": lambda: np.bincount((x * np.float32(256)).astype(np.int32), minlength=256),
        "unique i32": lambda: np.flatnonzero(np.bincount((k >> 12) + 2**19)) - 2**19,
        "sum f32": lambda: x.sum(dtype=np.float64),
        "max f32": lambda: x.max(),
        "reduce, axis 0": lambda: x.reshape(SIDE, SIDE).sum(axis=0, dtype=np.float64),
        "reduce, axis 1": lambda: x.reshape(SIDE, SIDE).sum(axis=1, dtype=np.float64),
        "var f32": lambda: x.var(dtype=np.float64),
    }[case]()
    if name in ("sum", "var", "reduce,"):
        return bool(np.allclose(result, expected, rtol=1e-4))
    return bool((np.asarray(result) == expected).all())


def batch(call: Any, wait: Any, host: Any) -> Case:
    """``call`` is done `BATCH` times in one run; ``host`` turns its result into one of NumPy's."""

    def run() -> None:
        for _ in range(BATCH):
            call()
        wait()

    return Case(run, lambda: host(call()))


def tack() -> dict[str, Case]:
    import tack as tk
    from tack import algorithms as al

    tk.set_default_device("cuda")
    x, k = (tk.asarray(a) for a in data())
    wide, long = x.astype("f8"), tk.asarray(k.numpy().astype(np.int64) << 20)
    few = tk.asarray(k.numpy() >> 12)
    mask = tk.asarray((x.numpy() > 0.5).view(np.uint8))
    square = x.reshape((SIDE, SIDE))
    out, ints, doubles = tk.empty_like(x), tk.empty_like(k), tk.empty_like(wide)
    longs = tk.empty_like(long)

    def case(call: Any, host: Any = lambda found: found.numpy()) -> Case:
        return batch(call, tk.sync, host)

    return {
        "scan f32": case(lambda: al.inclusive_scan(x, out=out)),
        "scan i32": case(lambda: al.inclusive_scan(k, out=ints)),
        "scan f64": case(lambda: al.inclusive_scan(wide, out=doubles)),
        "sort i32": case(lambda: al.sort(k, out=ints)),
        "sort f32": case(lambda: al.sort(x, out=out)),
        "sort i64": case(lambda: al.sort(long, out=longs)),
        "argsort i32": case(lambda: al.argsort(k)),
        "compact f32": case(lambda: al.compact(x, mask)),
        "where": case(lambda: al.where(mask)),
        "histogram f32": case(lambda: al.histogram(x, 256, range=(0, 1))[0]),
        "unique i32": case(lambda: al.unique(few)),
        "sum f32": case(x.sum, float),
        "max f32": case(x.max, float),
        "reduce, axis 0": case(lambda: al.reduce(square, axis=0)),
        "reduce, axis 1": case(lambda: al.reduce(square, axis=1)),
        "var f32": case(lambda: al.var(x), float),
    }


def torch() -> dict[str, Case]:
    import torch as th

    x, k = (th.from_numpy(a).cuda() for a in data())
    wide, long, few, mask = x.double(), k.long() << 20, k >> 12, x > 0.5
    square = x.reshape(SIDE, SIDE)
    out, doubles = th.empty_like(x), th.empty_like(wide)

    def case(call: Any, host: Any = lambda found: found.cpu().numpy()) -> Case:
        return batch(call, th.cuda.synchronize, host)

    return {
        "scan f32": case(lambda: th.cumsum(x, 0, out=out)),
        "scan i32": case(lambda: th.cumsum(k, 0, dtype=th.int32)),
        "scan f64": case(lambda: th.cumsum(wide, 0, out=doubles)),
        "sort i32": case(lambda: th.sort(k)[0]),
        "sort f32": case(lambda: th.sort(x)[0]),
        "sort i64": case(lambda: th.sort(long)[0]),
        "argsort i32": case(lambda: th.argsort(k, stable=True)),
        "compact f32": case(lambda: th.masked_select(x, mask)),
        "where": case(lambda: th.nonzero(mask).ravel()),
        "histogram f32": case(lambda: th.histc(x, 256, 0, 1)),
        "unique i32": case(lambda: th.unique(few)),
        "sum f32": case(lambda: x.sum().item(), float),
        "max f32": case(lambda: x.max().item(), float),
        "reduce, axis 0": case(lambda: square.sum(0)),
        "reduce, axis 1": case(lambda: square.sum(1)),
        "var f32": case(lambda: x.var(correction=0).item(), float),
    }


def cupy() -> dict[str, Case]:
    import cupy as cp

    x, k = (cp.asarray(a) for a in data())
    wide, long, few, mask = x.astype("f8"), k.astype("i8") << 20, k >> 12, x > 0.5
    square = x.reshape(SIDE, SIDE)
    out, ints, doubles = cp.empty_like(x), cp.empty_like(k), cp.empty_like(wide)

    def case(call: Any, host: Any = lambda found: found.get()) -> Case:
        return batch(call, cp.cuda.runtime.deviceSynchronize, host)

    return {
        "scan f32": case(lambda: cp.cumsum(x, out=out)),
        "scan i32": case(lambda: cp.cumsum(k, dtype=cp.int32, out=ints)),
        "scan f64": case(lambda: cp.cumsum(wide, out=doubles)),
        "sort i32": case(lambda: cp.sort(k)),
        "sort f32": case(lambda: cp.sort(x)),
        "sort i64": case(lambda: cp.sort(long)),
        "argsort i32": case(lambda: cp.argsort(k, kind="stable")),
        "compact f32": case(lambda: x[mask]),
        "where": case(lambda: cp.flatnonzero(mask)),
        "histogram f32": case(lambda: cp.histogram(x, 256, (0, 1))[0]),
        "unique i32": case(lambda: cp.unique(few)),
        "sum f32": case(lambda: x.sum().item(), float),
        "max f32": case(lambda: x.max().item(), float),
        "reduce, axis 0": case(lambda: square.sum(0)),
        "reduce, axis 1": case(lambda: square.sum(1)),
        "var f32": case(lambda: x.var().item(), float),
    }


BENCHMARK = Benchmark(
    title=f"Algorithms on a GPU, {N >> 20} Mi elements: one call, from batches of {BATCH}",
    contestants={"tack": tack, "torch": torch, "cupy": cupy},
    cases=CASES,
    unit="ms",
    check=check,
    rounds=5,
    burst=3,
    launches=BATCH,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
