"""Host time of a queued launch with eight arrays of 16 f32 elements, and of replaying a graph of 100.

A timed run queues 200 launches and does not wait; the wait afterwards is not timed. Or it replays the graph
twice, and the time of the wait counts. The C peer calls ``cuLaunchKernel`` and ``cuGraphLaunch`` in a loop,
on a stream that keeps no order with the default stream, as ours does; ``c blocking`` has one that does.
That loop also runs in the process of Tack, between its turns.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Benchmark, Case, main

N = 16
LAUNCHES = 200  # fewer than the driver queues before a launch has to wait for an earlier one
GRAPH = 100
SAME = "C, our process"  # processes differ by a fifth, by the core that each got
CASES = ("launch", SAME, "graph, a kernel")


def check(case: str, result: Any) -> bool:
    return bool(np.array_equal(np.asarray(result), np.full(N, sum(range(7)), np.float32)))


def data() -> list[np.ndarray]:
    return [np.full(N, i, np.float32) for i in range(8)]


def repeat(launch: Any, count: int) -> Any:
    def run() -> None:
        for _ in range(count):
            launch()

    return run


def tack() -> dict[str, Case]:
    import tack as tk

    tk.set_default_device("cuda")

    @tk.kernel
    def add7(a, b, c, d, e, f, g, out):
        for i in range(a.shape[0]):
            out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    arrays = x0, x1, x2, x3, x4, x5, x6, out = [tk.asarray(a) for a in data()]
    add7(*arrays)

    def launches(count: int) -> None:
        for _ in range(count):
            add7(x0, x1, x2, x3, x4, x5, x6, out)

    with tk.capture() as graph:
        launches(GRAPH)

    def replay() -> None:
        for _ in range(LAUNCHES // GRAPH):
            graph.launch()
        tk.sync()

    try:
        same = {SAME: c()["launch"]}
    except FileNotFoundError:  # no CUDA toolkit
        same = {}
    return {
        "launch": Case(lambda: launches(LAUNCHES), out.numpy, tk.sync),
        "graph, a kernel": Case(replay, out.numpy),
        **same,
    }


KERNEL = """
extern "C" __global__ void add7(const float *a, const float *b, const float *c, const float *d,
                                const float *e, const float *f, const float *g, float *out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i];
}
"""

C_LOOP = """
#include <cuda.h>
static CUfunction function; static CUstream stream; static CUgraphExec graph;
static CUdeviceptr arrays[8]; static long long n = 16; static void *params[9];
int start(const char *cubin, const float *values, int flags) {
    CUdevice device; CUcontext context; CUmodule module; int bad = cuInit(0);
    bad |= cuDeviceGet(&device, 0) | cuDevicePrimaryCtxRetain(&context, device) | cuCtxSetCurrent(context);
    bad |= cuModuleLoad(&module, cubin) | cuModuleGetFunction(&function, module, "add7");
    bad |= cuStreamCreate(&stream, flags);
    for (int k = 0; k < 8; k++) {
        bad |= cuMemAlloc(&arrays[k], 64) | cuMemcpyHtoD(arrays[k], values + 16 * k, 64);
        params[k] = &arrays[k];
    }
    params[8] = &n;
    return bad;
}
int launches(int count) {
    int bad = 0;
    for (int k = 0; k < count; k++) bad |= cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, stream, params, 0);
    return bad;
}
int record(int count) {
    CUgraph captured;
    return cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) | launches(count) |
           cuStreamEndCapture(stream, &captured) | cuGraphInstantiate(&graph, captured, 0);
}
int finish(void) { return cuStreamSynchronize(stream); }
int replays(int count) {
    int bad = 0;
    while (count--) bad |= cuGraphLaunch(graph, stream);
    return bad | finish();
}
int result(float *out) { return finish() | cuMemcpyDtoH(out, arrays[7], 64); }
"""


def c(flags: int = 1) -> dict[str, Case]:
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    with tempfile.TemporaryDirectory() as folder:
        kernel, cubin = Path(folder, "add7.cu"), Path(folder, "add7.cubin")
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        kernel.write_text(KERNEL)
        source.write_text(C_LOOP)
        subprocess.run([f"{toolkit}/bin/nvcc", "-arch=native", "-cubin", "-o", cubin, kernel], check=True)
        linked = [f"-I{toolkit}/include", f"-L{toolkit}/lib64/stubs", "-lcuda"]
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, *linked], check=True)
        loop = ctypes.CDLL(str(library))
        values = np.concatenate(data())
        assert loop.start(str(cubin).encode(), ctypes.c_void_p(values.ctypes.data), flags) == 0
    assert loop.launches(1) == loop.record(GRAPH) == 0

    def result() -> np.ndarray:
        out = np.zeros(N, np.float32)
        assert loop.result(ctypes.c_void_p(out.ctypes.data)) == 0
        return out

    return {
        "launch": Case(lambda: loop.launches(LAUNCHES), result, loop.finish),
        "graph, a kernel": Case(lambda: loop.replays(LAUNCHES // GRAPH), result),
    }


def c_blocking() -> dict[str, Case]:
    return c(flags=0)


def cupy() -> dict[str, Case]:
    import cupy as cp

    kernel = cp.RawKernel(KERNEL, "add7")
    arrays = tuple(cp.asarray(a) for a in data())
    args = (*arrays, np.int64(N))
    wait = cp.cuda.runtime.deviceSynchronize
    return {"launch": Case(repeat(lambda: kernel((1,), (256,), args), LAUNCHES), arrays[7].get, wait)}


def triton() -> dict[str, Case]:
    import torch as th
    import triton as tr
    import triton.language as tl

    globals()["tl"] = tl  # Triton finds it through a function's globals

    @tr.jit
    def add7(a, b, c, d, e, f, g, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        ok = at < n
        left = tl.load(a + at, mask=ok) + tl.load(b + at, mask=ok) + tl.load(c + at, mask=ok)
        right = tl.load(d + at, mask=ok) + tl.load(e + at, mask=ok) + tl.load(f + at, mask=ok)
        tl.store(out + at, left + right + tl.load(g + at, mask=ok), mask=ok)

    arrays = [th.from_numpy(a).cuda() for a in data()]
    return {
        "launch": Case(
            repeat(lambda: add7[(1,)](*arrays, N, 256), LAUNCHES),
            lambda: arrays[7].cpu().numpy(),
            th.cuda.synchronize,
        )
    }


def warp() -> dict[str, Case]:
    import warp as wp

    wp.config.quiet = True
    wp.init()
    floats = wp.array(dtype=float)

    def add7(a: floats, b: floats, c: floats, d: floats, e: floats, f: floats, g: floats, out: floats):
        i = wp.tid()
        out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]

    add7 = wp.kernel(add7)
    arrays = [wp.array(a, device="cuda:0") for a in data()]
    run = repeat(lambda: wp.launch(add7, dim=N, inputs=arrays, device="cuda:0"), LAUNCHES)
    return {"launch": Case(run, arrays[7].numpy, wp.synchronize)}


BENCHMARK = Benchmark(
    title=f"Host time of a queued launch, 8 arrays of {N} elements, from runs of {LAUNCHES}",
    contestants={
        "tack": tack,
        "c": c,
        "c blocking": c_blocking,
        "cupy": cupy,
        "triton": triton,
        "warp": warp,
    },
    cases=CASES,
    unit="µs",
    check=check,
    rounds=15,
    burst=5,
    launches=LAUNCHES,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK, __file__, __doc__))
