"""A sum that a kernel accumulates in an array, 2^20 elements of 16 terms, where the arrays are disjoint.

``overlapping`` is the same kernel called with arrays that share one element, so that it must store and load
each partial sum. The C peer says ``restrict``.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import Benchmark, Case, main

N = 1 << 20
TERMS = 16
CASE = "accumulate"


def data(overlap: int) -> tuple[np.ndarray, np.ndarray]:
    """The terms and the sums; the last ``overlap`` terms, which no sum uses, are the first sums."""
    memory = np.zeros(2 * N + TERMS, np.float32)
    memory[: N + TERMS - 1] = np.random.default_rng(0).random(N + TERMS - 1, dtype=np.float32)
    return memory[: N + TERMS - 1 + overlap], memory[N + TERMS - 1 : 2 * N + TERMS - 1]


def check(case: str, result: Any) -> bool:
    terms = data(0)[0].astype(np.float64)
    sums = np.lib.stride_tricks.sliding_window_view(terms, TERMS).sum(axis=1)
    return bool(np.allclose(result, sums, rtol=1e-5))


def _tack(overlap: int) -> dict[str, Case]:
    import tack as tk

    @tk.kernel
    def accumulate(x, out, terms):
        for i in range(out.shape[0]):
            out[i] = 0.0
            for k in range(terms):
                out[i] += x[i + k]

    x, out = data(overlap)
    return {CASE: Case(lambda: accumulate(x, out, TERMS), lambda: out)}


def tack() -> dict[str, Case]:
    return _tack(0)


def overlapping() -> dict[str, Case]:
    return _tack(1)


C_SOURCE = """
void accumulate(const float *restrict x, float *restrict out, long n, long terms) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) {
        out[i] = 0;
        for (long k = 0; k < terms; k++) out[i] += x[i + k];
    }
}
"""


def gcc() -> dict[str, Case]:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        source.write_text(C_SOURCE)
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", library, source], check=True)
        c = ctypes.CDLL(str(library))
    x, out = data(0)
    args = (
        ctypes.c_void_p(x.ctypes.data),
        ctypes.c_void_p(out.ctypes.data),
        ctypes.c_long(N),
        ctypes.c_long(TERMS),
    )
    return {CASE: Case(lambda: c.accumulate(*args), lambda: out)}


BENCHMARK = Benchmark(
    title="Accumulating 16 terms in an array of 2^20 f32: median time of one call",
    contestants={"tack": tack, "overlapping": overlapping, "gcc": gcc},
    cases=(CASE,),
    unit="ms",
    check=check,
    rounds=9,
    burst=5,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
