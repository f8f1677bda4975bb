"""Throughput on 16 Mi f32 elements: saxpy, 3-point stencil, sin, exp and sum, beside C and other peers.

The C peer is ``gcc -O3 -march=native -ffast-math -fopenmp``, which may use vectorized math functions.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import Benchmark, Case, main

N = 16 * 1024 * 1024
ALPHA = 2.0
CASES = ("saxpy", "stencil", "sin", "exp", "sum")


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random(N, dtype=np.float32), rng.random(N, dtype=np.float32), np.zeros(N, np.float32)


def check(case: str, result: Any) -> bool:
    """Whether ``result`` (the output array, or the sum) is what NumPy computes in f64 on a sample."""
    x, y, _ = data()
    if case == "sum":
        return bool(np.isclose(float(result), x.sum(dtype=np.float64), rtol=1e-3))
    sample = np.r_[1:4097, N // 2 : N // 2 + 4096, N - 4097 : N - 1]
    a = x.astype(np.float64)
    expected = {
        "saxpy": lambda: ALPHA * a[sample] + y[sample],
        "stencil": lambda: 0.25 * a[sample - 1] + 0.5 * a[sample] + 0.25 * a[sample + 1],
        "sin": lambda: np.sin(a[sample]),
        "exp": lambda: np.exp(a[sample]),
    }[case]()
    return bool(np.allclose(np.asarray(result)[sample], expected, rtol=1e-5))


def tack() -> dict[str, Case]:
    import tack as tk

    @tk.kernel
    def saxpy(x, y, out, alpha):
        for i in range(x.shape[0]):
            out[i] = alpha * x[i] + y[i]

    @tk.kernel
    def stencil(x, out):
        for i in range(1, x.shape[0] - 1):
            out[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]

    @tk.kernel
    def sine(x, out):
        for i in range(x.shape[0]):
            out[i] = sin(x[i])

    @tk.kernel
    def exponential(x, out):
        for i in range(x.shape[0]):
            out[i] = exp(x[i])

    x, y, out = (tk.asarray(a) for a in data())
    return {
        "saxpy": Case(lambda: saxpy(x, y, out, ALPHA), out.numpy),
        "stencil": Case(lambda: stencil(x, out), out.numpy),
        "sin": Case(lambda: sine(x, out), out.numpy),
        "exp": Case(lambda: exponential(x, out), out.numpy),
        "sum": Case(x.sum, x.sum),
    }


C_SOURCE = """
#include <math.h>
#define LOOP(first, last) _Pragma("omp parallel for simd") for (long i = first; i < last; i++)
void saxpy(const float *x, const float *y, float *restrict out, float alpha, long n) {
    LOOP(0, n) out[i] = alpha * x[i] + y[i];
}
void stencil(const float *x, float *restrict out, long n) {
    LOOP(1, n - 1) out[i] = 0.25f * x[i - 1] + 0.5f * x[i] + 0.25f * x[i + 1];
}
void sine(const float *x, float *restrict out, long n) { LOOP(0, n) out[i] = sinf(x[i]); }
void exponential(const float *x, float *restrict out, long n) { LOOP(0, n) out[i] = expf(x[i]); }
float sum(const float *x, long n) {
    float total = 0;
    #pragma omp parallel for simd reduction(+ : total)
    for (long i = 0; i < n; i++) total += x[i];
    return total;
}
"""


def gcc() -> dict[str, Case]:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        source.write_text(C_SOURCE)
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", library, source, "-lm"], check=True)
        c = ctypes.CDLL(str(library))
    c.sum.restype = ctypes.c_float
    arrays = data()
    x, y, out = (ctypes.c_void_p(a.ctypes.data) for a in arrays)
    n, alpha = ctypes.c_long(N), ctypes.c_float(ALPHA)

    def output() -> np.ndarray:
        return arrays[2]

    return {
        "saxpy": Case(lambda: c.saxpy(x, y, out, alpha, n), output),
        "stencil": Case(lambda: c.stencil(x, out, n), output),
        "sin": Case(lambda: c.sine(x, out, n), output),
        "exp": Case(lambda: c.exponential(x, out, n), output),
        "sum": Case(lambda: c.sum(x, n), lambda: c.sum(x, n)),
    }


def numpy() -> dict[str, Case]:
    x, y, out = data()
    alpha = np.float32(ALPHA)

    def saxpy() -> None:
        np.multiply(x, alpha, out=out)
        np.add(out, y, out=out)

    return {
        "saxpy": Case(saxpy, lambda: out),
        "sin": Case(lambda: np.sin(x, out=out), lambda: out),
        "exp": Case(lambda: np.exp(x, out=out), lambda: out),
        "sum": Case(x.sum, x.sum),
    }


def numba() -> dict[str, Case]:
    from math import exp, sin

    from numba import njit, prange

    @njit(parallel=True)
    def saxpy(x, y, out, alpha):
        for i in prange(x.shape[0]):
            out[i] = alpha * x[i] + y[i]

    @njit(parallel=True)
    def stencil(x, out):
        quarter, half = np.float32(0.25), np.float32(0.5)
        for i in prange(1, x.shape[0] - 1):
            out[i] = quarter * x[i - 1] + half * x[i] + quarter * x[i + 1]

    @njit(parallel=True)
    def sine(x, out):
        for i in prange(x.shape[0]):
            out[i] = sin(x[i])

    @njit(parallel=True)
    def exponential(x, out):
        for i in prange(x.shape[0]):
            out[i] = exp(x[i])

    @njit(parallel=True)
    def total(x):
        s = np.float32(0)
        for i in prange(x.shape[0]):
            s += x[i]
        return s

    x, y, out = data()
    alpha = np.float32(ALPHA)
    return {
        "saxpy": Case(lambda: saxpy(x, y, out, alpha), lambda: out),
        "stencil": Case(lambda: stencil(x, out), lambda: out),
        "sin": Case(lambda: sine(x, out), lambda: out),
        "exp": Case(lambda: exponential(x, out), lambda: out),
        "sum": Case(lambda: total(x), lambda: total(x)),
    }


def taichi() -> dict[str, Case]:
    import taichi as ti

    ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)
    vector = ti.types.ndarray(dtype=ti.f32, ndim=1)

    @ti.kernel
    def saxpy(x: vector, y: vector, out: vector, alpha: ti.f32):
        for i in range(x.shape[0]):
            out[i] = alpha * x[i] + y[i]

    @ti.kernel
    def stencil(x: vector, out: vector):
        for i in range(1, x.shape[0] - 1):
            out[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]

    @ti.kernel
    def sine(x: vector, out: vector):
        for i in range(x.shape[0]):
            out[i] = ti.sin(x[i])

    @ti.kernel
    def exponential(x: vector, out: vector):
        for i in range(x.shape[0]):
            out[i] = ti.exp(x[i])

    @ti.kernel
    def total(x: vector) -> ti.f32:
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i]
        return s

    def upload(a: np.ndarray) -> Any:
        array = ti.ndarray(ti.f32, a.shape)
        array.from_numpy(a)
        return array

    x, y, out = (upload(a) for a in data())
    return {
        "saxpy": Case(lambda: saxpy(x, y, out, ALPHA), out.to_numpy),
        "stencil": Case(lambda: stencil(x, out), out.to_numpy),
        "sin": Case(lambda: sine(x, out), out.to_numpy),
        "exp": Case(lambda: exponential(x, out), out.to_numpy),
        "sum": Case(lambda: total(x), lambda: total(x)),
    }


BENCHMARK = Benchmark(
    title="Throughput, 16 Mi f32 elements: median time of one call",
    contestants={"tack": tack, "gcc": gcc, "numpy": numpy, "numba": numba, "taichi": taichi},
    cases=CASES,
    unit="ms",
    check=check,
    rounds=9,
    burst=3,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
