"""Algorithms on 16 Mi elements: a sort of i32 beside NumPy's, an inclusive scan of f32 beside C.

NumPy sorts in place, a fresh copy that is not timed. The C peer ``gcc`` scans as one does on several threads:
each adds up its part, and then scans it; ``gcc serial`` is one loop on one thread.
"""

import ctypes
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from harness import Benchmark, Case, main

N = 16 * 1024 * 1024
SORT, SCAN = "sort", "inclusive_scan"


@cache
def keys() -> np.ndarray:
    return np.random.default_rng(0).integers(-(2**31), 2**31, N).astype(np.int32)


@cache
def terms() -> np.ndarray:
    return np.random.default_rng(1).random(N, dtype=np.float32)


def check(case: str, result: Any) -> bool:
    """Whether the keys are sorted, or the sums those of NumPy in f64 up to the rounding of C's f32 sums."""
    if case == SORT:
        return bool(np.array_equal(result, np.sort(keys())))
    return bool(np.allclose(result, np.cumsum(terms(), dtype=np.float64), rtol=2e-3))


def tack() -> dict[str, Case]:
    import tack as tk
    from tack import algorithms

    unsorted, x = tk.asarray(keys()), tk.asarray(terms())
    ordered, sums = tk.zeros(N, tk.i32), tk.zeros(N, tk.f32)
    return {
        SORT: Case(lambda: algorithms.sort(unsorted, out=ordered), ordered.numpy),
        SCAN: Case(lambda: algorithms.inclusive_scan(x, out=sums), sums.numpy),
    }


C_SOURCE = """
#include <omp.h>
#include <stdlib.h>
void serial(const float *x, float *restrict out, long n) {
    float total = 0;
    for (long i = 0; i < n; i++) out[i] = total += x[i];
}
void parts(const float *x, float *restrict out, long n) {
    double *totals = calloc(omp_get_max_threads() + 1, sizeof *totals);
    #pragma omp parallel
    {
        long part = omp_get_thread_num(), count = omp_get_num_threads();
        long first = n * part / count, end = n * (part + 1) / count;
        double total = 0;
        for (long i = first; i < end; i++) total += x[i];
        totals[part + 1] = total;
        #pragma omp barrier
        total = 0;
        for (long k = 0; k <= part; k++) total += totals[k];
        for (long i = first; i < end; i++) out[i] = total += x[i];
    }
    free(totals);
}
"""


def _gcc(function: str) -> dict[str, Case]:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "scans.c"), Path(folder, "scans.so")
        source.write_text(C_SOURCE)
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", library, source], check=True)
        scan = getattr(ctypes.CDLL(str(library)), function)
    x, out = terms(), np.zeros(N, np.float32)
    args = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(N)
    return {SCAN: Case(lambda: scan(*args), lambda: out)}


def gcc() -> dict[str, Case]:
    return _gcc("parts")


def gcc_serial() -> dict[str, Case]:
    return _gcc("serial")


def numpy() -> dict[str, Case]:
    values, x, sums = keys().copy(), terms(), np.zeros(N, np.float32)
    return {
        SORT: Case(values.sort, lambda: values, after=lambda: np.copyto(values, keys())),
        SCAN: Case(lambda: np.cumsum(x, out=sums), lambda: sums),
    }


BENCHMARK = Benchmark(
    title="Algorithms on 16 Mi elements: median time of one call",
    contestants={"tack": tack, "gcc": gcc, "gcc serial": gcc_serial, "numpy": numpy},
    cases=(SORT, SCAN),
    unit="ms",
    check=check,
    rounds=7,
    burst=3,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
