"""The cost of a warm call: a kernel that adds seven arrays of 16 f32 elements into an eighth.

``tack numpy`` passes NumPy arrays where ``tack`` passes Tack arrays, ``tack python`` does without the
native dispatcher, and ``numba parallel`` is ``njit(parallel=True)``. The other rows show what the parts
of a call cost: without anything to run, with numbers, by keyword, with instances of device classes.
"""

import os
import sys
from typing import Any

import numpy as np
from harness import Benchmark, Case, main

N = 16
CASE = "8 arrays"
PARALLEL = "the same on all threads"
EMPTY = "8 arrays, no iterations"
NUMBER = "1 number, no iterations"
NUMBERS = "7 numbers and an array, no iterations"
KEYWORDS = "the same by keyword"
INSTANCES = "4 instances of 12 attributes"


def check(case: str, result: Any) -> bool:
    if case not in (CASE, PARALLEL):
        return bool(np.all(np.asarray(result) == (N * (2.0 + 5.0) if case == INSTANCES else 0)))
    return bool(np.array_equal(np.asarray(result), np.full(N, 0 + 1 + 2 + 3 + 4 + 5 + 6, np.float32)))


def data() -> list[np.ndarray]:
    return [np.full(N, i, np.float32) for i in range(8)]


def _tack(arrays: list[Any]) -> dict[str, Case]:
    import tack as tk

    @tk.kernel
    def add7(a, b, c, d, e, f, g, out):
        for i in range(a.shape[0]):
            out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    # Loops that do not run, for which the estimate of its cost calls for threads.
    @tk.kernel
    def costly(a, b, c, d, e, f, g, out, none):
        for i in range(a.shape[0]):
            for _j in range(none):
                for _k in range(none):
                    for _l in range(none):
                        for _m in range(none):
                            out[i] = 0.0
            out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    return {
        CASE: Case(lambda: add7(*arrays), lambda: np.asarray(arrays[7])),
        PARALLEL: Case(lambda: costly(*arrays, 0), lambda: np.asarray(arrays[7])),
        **_parts(tk, add7),
    }


def _parts(tk: Any, add7: Any) -> dict[str, Case]:
    @tk.device_class
    class Things:
        COUNT = N

        def __init__(self) -> None:
            for k in range(12):
                setattr(self, f"a{k}", float(k))

    @tk.kernel
    def one(n):
        for i in range(n):
            _unused = i

    @tk.kernel
    def eight(n, a, b, c, d, e, f, out):
        for i in range(n):
            out[i] = a + b + c + d + e + f

    @tk.kernel
    def attributes(p, q, r, s, out):
        for i in range(out.shape[0]):
            out[i] = (p.a2 + s.a5) * q.COUNT + r.a0

    empty = [tk.zeros(0) for _ in range(8)]
    out = tk.zeros(N)
    p, q, r, s = (Things() for _ in range(4))
    return {
        EMPTY: Case(lambda: add7(*empty), lambda: empty[7]),
        NUMBER: Case(lambda: one(0), lambda: 0),
        NUMBERS: Case(lambda: eight(0, 1.5, 2.5, 3.5, 4.5, 1, 2, out), lambda: 0),
        KEYWORDS: Case(lambda: eight(n=0, a=1.5, b=2.5, c=3.5, d=4.5, e=1, f=2, out=out), lambda: 0),
        INSTANCES: Case(lambda: attributes(p, q, r, s, out), lambda: out),
    }


def tack_python() -> dict[str, Case]:
    os.environ["TACK_DISPATCH"] = "python"
    return tack()


def tack() -> dict[str, Case]:
    import tack as tk

    return _tack([tk.asarray(a) for a in data()])


def tack_numpy() -> dict[str, Case]:
    return _tack(data())


def numba() -> dict[str, Case]:
    from numba import njit

    @njit
    def add7(a, b, c, d, e, f, g, out):
        for i in range(a.shape[0]):
            out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    arrays = data()
    return {CASE: Case(lambda: add7(*arrays), lambda: arrays[7])}


def numba_parallel() -> dict[str, Case]:
    from numba import njit, prange

    @njit(parallel=True)
    def add7(a, b, c, d, e, f, g, out):
        for i in prange(a.shape[0]):
            out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    arrays = data()
    return {PARALLEL: Case(lambda: add7(*arrays), lambda: arrays[7])}


def taichi() -> dict[str, Case]:
    import taichi as ti

    ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)
    vector = ti.types.ndarray(dtype=ti.f32, ndim=1)

    @ti.kernel
    def add7(a: vector, b: vector, c: vector, d: vector, e: vector, f: vector, g: vector, out: vector):
        for i in range(a.shape[0]):
            out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    arrays = [ti.ndarray(ti.f32, (N,)) for _ in range(8)]
    for array, values in zip(arrays, data(), strict=True):
        array.from_numpy(values)
    return {CASE: Case(lambda: add7(*arrays), arrays[7].to_numpy)}


def warp() -> dict[str, Case]:
    import warp as wp

    wp.config.quiet = True
    wp.init()
    vector = wp.array(dtype=float)

    @wp.kernel
    def add7(a: vector, b: vector, c: vector, d: vector, e: vector, f: vector, g: vector, out: vector):
        i = wp.tid()
        out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    arrays = [wp.array(a, dtype=float, device="cpu") for a in data()]
    inputs, outputs = arrays[:7], arrays[7:]
    return {
        CASE: Case(
            lambda: wp.launch(add7, dim=N, inputs=inputs, outputs=outputs, device="cpu"), outputs[0].numpy
        )
    }


BENCHMARK = Benchmark(
    title="Warm call: median time of one call, of arrays with 16 f32 elements",
    contestants={
        "tack": tack,
        "tack numpy": tack_numpy,
        "tack python": tack_python,
        "numba": numba,
        "numba parallel": numba_parallel,
        "taichi": taichi,
        "warp": warp,
    },
    cases=(CASE, PARALLEL, EMPTY, NUMBER, NUMBERS, KEYWORDS, INSTANCES),
    unit="µs",
    check=check,
    rounds=15,
    burst=400,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
