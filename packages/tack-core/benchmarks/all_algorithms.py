"""Every algorithm on 16 Mi elements beside what NumPy has for it.

Both make their results anew in each call, as users would write it. Where NumPy has no function, it is the
usual few: `reduceat` behind a search for the runs, an `argsort` and what it indexes.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from harness import Benchmark, Case, main

N = 16 * 1024 * 1024
SIDE = 4096  # of a square of N elements


@cache
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    few = rng.integers(0, 1000, N, dtype=np.int32)
    f32 = rng.random(N, dtype=np.float32)
    return {
        "i32": rng.integers(-(2**31), 2**31, N, dtype=np.int32),
        "i64": rng.integers(-(2**62), 2**62, N),
        "f32": f32,
        "f64": rng.random(N),
        "square": f32.reshape(SIDE, SIDE),
        "few": few,
        "runs": np.sort(few),
        "mask": rng.integers(0, 2, N, dtype=np.uint8),
        "order": rng.permutation(N).astype(np.int32),
        "sorted": np.sort(f32),
        "wanted": rng.random(N // 16, dtype=np.float32),
    }


def _starts(runs: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.concatenate([[True], runs[1:] != runs[:-1]]))


def _scatter(algorithms: Any, x: Any, order: Any) -> Any:
    import tack as tk

    out = tk.empty_like(x)
    algorithms.scatter(out, order, x)
    return out


def _scattered(x: np.ndarray, order: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    out[order] = x
    return out


# By case: what NumPy calls, what Tack calls, and the inputs of both.
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "inclusive_scan i32": (
        lambda x: np.cumsum(x, dtype=np.int32),
        lambda a, x: a.inclusive_scan(x),
        ("i32",),
    ),
    "inclusive_scan f64": (np.cumsum, lambda a, x: a.inclusive_scan(x), ("f64",)),
    "inclusive_scan max f32": (np.maximum.accumulate, lambda a, x: a.inclusive_scan(x, "max"), ("f32",)),
    "reduce f32": (lambda x: x.sum(dtype=np.float64), lambda a, x: a.reduce(x), ("f32",)),
    "reduce i32": (np.sum, lambda a, x: a.reduce(x), ("i32",)),
    "reduce max f32": (np.max, lambda a, x: a.reduce(x, "max"), ("f32",)),
    "reduce axis 0 f32": (lambda x: x.sum(axis=0), lambda a, x: a.reduce(x, axis=0), ("square",)),
    "reduce axis 1 f32": (lambda x: x.sum(axis=1), lambda a, x: a.reduce(x, axis=1), ("square",)),
    "sort i32": (np.sort, lambda a, x: a.sort(x), ("i32",)),
    "sort i64": (np.sort, lambda a, x: a.sort(x), ("i64",)),
    "sort f32": (np.sort, lambda a, x: a.sort(x), ("f32",)),
    "sort f64": (np.sort, lambda a, x: a.sort(x), ("f64",)),
    "argsort i32": (lambda x: np.argsort(x, kind="stable"), lambda a, x: a.argsort(x), ("i32",)),
    "sort_by_key 1000 keys": (
        lambda k, v: v[np.argsort(k, kind="stable")],
        lambda a, k, v: a.sort_by_key(k, v)[1],
        ("few", "f32"),
    ),
    "unique 1000 values": (np.unique, lambda a, x: a.unique(x), ("few",)),
    "run_length": (
        lambda x: np.diff(_starts(x), append=x.size),
        lambda a, x: a.run_length(x)[1],
        ("runs",),
    ),
    "reduce_by_key": (
        lambda k, v: np.add.reduceat(v, _starts(k), dtype=np.float64),
        lambda a, k, v: a.reduce_by_key(k, v)[1],
        ("runs", "f32"),
    ),
    "histogram 100 bins": (lambda x: np.histogram(x, 100)[0], lambda a, x: a.histogram(x, 100)[0], ("f32",)),
    "compact half": (lambda x, m: x[m.view(bool)], lambda a, x, m: a.compact(x, m), ("f32", "mask")),
    "where half": (np.flatnonzero, lambda a, m: a.where(m), ("mask",)),
    "gather anywhere": (np.take, lambda a, x, k: a.gather(x, k), ("f32", "order")),
    "scatter anywhere": (_scattered, _scatter, ("f32", "order")),
    "searchsorted 1 Mi": (np.searchsorted, lambda a, x, v: a.searchsorted(x, v), ("sorted", "wanted")),
    "copy f32": (np.copy, lambda a, x: a.copy(x), ("f32",)),
    "var f32": (lambda x: x.var(dtype=np.float64), lambda a, x: a.var(x), ("f32",)),
    "norm f32": (np.linalg.norm, lambda a, x: a.norm(x), ("f32",)),
    "absmax f32": (lambda x: np.abs(x).max(), lambda a, x: a.absmax(x), ("f32",)),
    "dot f32": (np.dot, lambda a, x, y: a.dot(x, y), ("f32", "sorted")),
    "dot f64": (np.dot, lambda a, x, y: a.dot(x, y), ("f64", "f64")),
    "count_nonzero": (np.count_nonzero, lambda a, x: a.count_nonzero(x), ("few",)),
}


def check(case: str, result: Any) -> bool:
    """Whether it is what NumPy gives, up to the rounding of sums."""
    function, _, names = CASES[case]
    expected = np.asarray(function(*(inputs()[name] for name in names)))
    found = np.asarray(result)
    if expected.dtype.kind != "f" or case.startswith("sort"):
        return bool(np.array_equal(found, expected))
    return bool(np.allclose(found, expected, rtol=1e-4))


def tack() -> dict[str, Case]:
    import tack as tk
    from tack import algorithms

    arrays = {name: tk.asarray(values) for name, values in inputs().items()}

    def made(call: Callable[..., Any], names: tuple[str, ...]) -> Callable[[], Any]:
        args = [arrays[name] for name in names]
        return lambda: call(algorithms, *args)

    runs = {case: made(call, names) for case, (_, call, names) in CASES.items()}
    return {case: Case(run, run) for case, run in runs.items()}


def numpy() -> dict[str, Case]:
    def made(call: Callable[..., Any], names: tuple[str, ...]) -> Callable[[], Any]:
        args = [inputs()[name] for name in names]
        return lambda: call(*args)

    runs = {case: made(call, names) for case, (call, _, names) in CASES.items()}
    return {case: Case(run, run) for case, run in runs.items()}


BENCHMARK = Benchmark(
    title="Algorithms on 16 Mi elements: median time of one call",
    contestants={"tack": tack, "numpy": numpy},
    cases=tuple(CASES),
    unit="ms",
    check=check,
    rounds=3,
    burst=3,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
