"""Throughput on a GPU: saxpy, sin and sum of 64 Mi f32, and a 7-point stencil on 512^3, beside the peers.

A timed run is a batch of launches and the wait for them, so that launch costs hide behind the device's
work; figures are for one launch. ``copy`` is the driver's device-to-device copy, the ceiling. Tack's sum is a
Python number, for which the host has to wait each time; those of the peers stay on the device, so there is
also what they take for a number.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Benchmark, Case, main

N = 64 * 1024 * 1024
SIDE = 512
ALPHA, CENTRE, EDGE = 2.0, 0.4, 0.1
BATCH = 20
CASES = ("copy", "saxpy", "sin", "stencil", "sum", "sum, a number")


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two flat arrays and a cube."""
    rng = np.random.default_rng(0)
    cube = rng.random((SIDE, SIDE, SIDE), dtype=np.float32)
    return rng.random(N, dtype=np.float32), rng.random(N, dtype=np.float32), cube


def check(case: str, result: Any) -> bool:
    """Whether ``result`` (an array, or the sum) is what NumPy computes in f64, on samples of arrays."""
    x, y, cube = data()
    if case.startswith("sum"):
        return bool(np.isclose(float(result), x.sum(dtype=np.float64), rtol=1e-4))
    if case == "stencil":
        u = cube[200:260].astype(np.float64)
        inner = u[1:-1, 1:-1, 1:-1]
        around = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
        around += u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
        found = np.asarray(result)[201:259, 1:-1, 1:-1]
        return bool(np.allclose(found, CENTRE * inner + EDGE * around, rtol=1e-5))
    at = np.r_[0:4096, N // 2 : N // 2 + 4096, N - 4096 : N]
    expected = {"copy": x, "saxpy": ALPHA * x.astype(np.float64) + y, "sin": np.sin(x.astype(np.float64))}
    return bool(np.allclose(np.asarray(result)[at], expected[case][at], rtol=1e-5))


def batch(launch: Any, wait: Any, result: Any) -> Case:
    """``launch`` is done `BATCH` times in one run."""

    def run() -> None:
        for _ in range(BATCH):
            launch()
        wait()

    return Case(run, result)


def tack() -> dict[str, Case]:
    import tack as tk

    tk.set_default_device("cuda")

    @tk.kernel
    def saxpy(x, y, out, alpha):
        for i in range(x.shape[0]):
            out[i] = alpha * x[i] + y[i]

    @tk.kernel
    def sine(x, out):
        for i in range(x.shape[0]):
            out[i] = sin(x[i])

    @tk.kernel
    def stencil(u, v, centre, edge):
        for i, j, k in tk.ndindex((1, u.shape[0] - 1), (1, u.shape[1] - 1), (1, u.shape[2] - 1)):
            around = u[i - 1, j, k] + u[i + 1, j, k] + u[i, j - 1, k] + u[i, j + 1, k]
            v[i, j, k] = centre * u[i, j, k] + edge * (around + u[i, j, k - 1] + u[i, j, k + 1])

    x, y, u = (tk.asarray(a) for a in data())
    out, v = tk.zeros_like(x), tk.zeros_like(u)
    return {
        "copy": batch(lambda: tk.copyto(out, x), tk.sync, out.numpy),
        "saxpy": batch(lambda: saxpy(x, y, out, ALPHA), tk.sync, out.numpy),
        "sin": batch(lambda: sine(x, out), tk.sync, out.numpy),
        "stencil": batch(lambda: stencil(u, v, CENTRE, EDGE), tk.sync, v.numpy),
        "sum": batch(x.sum, tk.sync, x.sum),
        "sum, a number": batch(x.sum, tk.sync, x.sum),
    }


def torch() -> dict[str, Case]:
    import torch as th

    x, y, _ = (th.from_numpy(a).cuda() for a in data())
    out = th.zeros_like(x)

    def output() -> Any:
        return out.cpu().numpy()

    wait = th.cuda.synchronize
    return {
        "copy": batch(lambda: out.copy_(x), wait, output),
        "saxpy": batch(lambda: th.add(y, x, alpha=ALPHA, out=out), wait, output),
        "sin": batch(lambda: th.sin(x, out=out), wait, output),
        "sum": batch(x.sum, wait, lambda: float(x.sum())),
        "sum, a number": batch(lambda: x.sum().item(), wait, lambda: float(x.sum())),
    }


STENCIL = r"""
extern "C" __global__ void stencil(const float *u, float *v, float centre, float edge, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z;
    if (i < 1 || j < 1 || k < 1 || i >= n - 1 || j >= n - 1 || k >= n - 1) return;
    long long row = n, plane = (long long)n * n, c = k * plane + j * row + i;
    float around = u[c - 1] + u[c + 1] + u[c - row] + u[c + row] + u[c - plane] + u[c + plane];
    v[c] = centre * u[c] + edge * around;
}
extern "C" __global__ void saxpy(const float *x, const float *y, float *out, float alpha, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = alpha * x[i] + y[i];
}
"""


def cupy() -> dict[str, Case]:
    import cupy as cp

    x, y, u = (cp.asarray(a) for a in data())
    out, v = cp.zeros_like(x), cp.zeros_like(u)
    module = cp.RawModule(code=STENCIL)
    stencil, saxpy = module.get_function("stencil"), module.get_function("saxpy")
    numbers = (np.float32(CENTRE), np.float32(EDGE), np.int32(SIDE))
    grid = (SIDE // 64, SIDE // 4, SIDE)
    flat = (x, y, out, np.float32(ALPHA), np.int64(N))
    wait = cp.cuda.runtime.deviceSynchronize
    return {
        "copy": batch(lambda: cp.copyto(out, x), wait, out.get),
        "saxpy": batch(lambda: saxpy((N // 256,), (256,), flat), wait, out.get),
        "sin": batch(lambda: cp.sin(x, out=out), wait, out.get),
        "stencil": batch(lambda: stencil(grid, (64, 4, 1), (u, v, *numbers)), wait, v.get),
        "sum": batch(x.sum, wait, lambda: float(x.sum())),
        "sum, a number": batch(lambda: x.sum().item(), wait, lambda: float(x.sum())),
    }


def triton() -> dict[str, Case]:
    import torch as th
    import triton as tr
    import triton.language as tl

    globals()["tl"] = tl  # Triton finds it through a function's globals

    @tr.jit
    def saxpy(x, y, out, alpha, n, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, alpha * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

    x, y, _ = (th.from_numpy(a).cuda() for a in data())
    out = th.zeros_like(x)
    return {
        "saxpy": batch(
            lambda: saxpy[(N // 1024,)](x, y, out, ALPHA, N, 1024),
            th.cuda.synchronize,
            lambda: out.cpu().numpy(),
        )
    }


def warp() -> dict[str, Case]:
    import warp as wp
    import warp.utils

    wp.config.quiet = True
    wp.init()
    floats, cubes = wp.array(dtype=float), wp.array3d(dtype=float)

    def saxpy(x: floats, y: floats, out: floats, alpha: float):
        i = wp.tid()
        out[i] = alpha * x[i] + y[i]

    def sine(x: floats, out: floats):
        i = wp.tid()
        out[i] = wp.sin(x[i])

    saxpy, sine = wp.kernel(saxpy), wp.kernel(sine)
    x, y, _ = (wp.array(a, device="cuda:0") for a in data())
    out = wp.zeros_like(x)

    def launch(kernel: Any, *inputs: Any) -> Any:
        return lambda: wp.launch(kernel, dim=N, inputs=list(inputs), device="cuda:0")

    return {
        "saxpy": batch(launch(saxpy, x, y, out, ALPHA), wp.synchronize, out.numpy),
        "sin": batch(launch(sine, x, out), wp.synchronize, out.numpy),
        "sum": batch(lambda: warp.utils.array_sum(x), wp.synchronize, lambda: warp.utils.array_sum(x)),
    }


BENCHMARK = Benchmark(
    title=f"GPU throughput, 64 Mi f32 elements, stencil on {SIDE}^3: one launch, from batches of {BATCH}",
    contestants={"tack": tack, "torch": torch, "cupy": cupy, "triton": triton, "warp": warp},
    cases=CASES,
    unit="ms",
    check=check,
    rounds=7,
    burst=3,
    launches=BATCH,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
