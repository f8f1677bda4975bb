"""saxpy from 16 elements to 256 Mi on 1 and on 2 threads, beside its peers; with --plot as a picture too.

The largest arrays take 3 GiB in each of the contestants' processes.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    Benchmark,
    Case,
    add_rounds,
    machine,
    measure,
    note,
    options,
    publish,
    serve,
    table,
    use_threads,
)

SIZES = [4**k for k in range(2, 15)]
THREADS = (1, 2)
ALPHA = 2.0
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


class Data:
    """The arrays of the size that was asked for last."""

    def __init__(self) -> None:
        self.size = 0
        self.arrays: Any = None

    def of(self, size: int) -> Arrays:
        if size != self.size:
            self.arrays = None  # first, so that both do not have to fit in memory
            self.arrays = np.ones(size, np.float32), np.full(size, 3, np.float32), np.zeros(size, np.float32)
            self.size = size
        return self.arrays  # type: ignore[no-any-return]


def check(case: str, result: Any) -> bool:
    return bool(result[0] == 5 and result[-1] == 5 and result.size == int(case))


def cases(saxpy: Callable[[np.ndarray, np.ndarray, np.ndarray], object]) -> dict[str, Case]:
    data = Data()
    return {
        str(n): Case(lambda n=n: saxpy(*data.of(n)), lambda n=n: data.of(n)[2])  # type: ignore[misc]
        for n in SIZES
    }


def tack() -> dict[str, Case]:
    import tack as tk

    @tk.kernel
    def saxpy(x, y, out, alpha):
        for i in range(x.shape[0]):
            out[i] = alpha * x[i] + y[i]

    return cases(lambda x, y, out: saxpy(x, y, out, ALPHA))


def numba() -> dict[str, Case]:
    from numba import njit, prange

    @njit(parallel=True)
    def saxpy(x, y, out, alpha):
        for i in prange(x.shape[0]):
            out[i] = alpha * x[i] + y[i]

    alpha = np.float32(ALPHA)
    return cases(lambda x, y, out: saxpy(x, y, out, alpha))


C_SOURCE = """
void saxpy(const float *x, const float *y, float *restrict out, float alpha, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) out[i] = alpha * x[i] + y[i];
}
"""


def gcc() -> dict[str, Case]:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        source.write_text(C_SOURCE)
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", library, source], check=True)
        c = ctypes.CDLL(str(library))
    c.saxpy.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_float, ctypes.c_long]

    known: dict[int, tuple[int, int, int]] = {}

    def saxpy(*arrays: np.ndarray) -> None:
        # NumPy takes a microsecond to tell an address.
        addresses = known.get(id(arrays[2]))
        if addresses is None:
            known.clear()
            addresses = known[id(arrays[2])] = tuple(a.ctypes.data for a in arrays)  # type: ignore[assignment]
        c.saxpy(*addresses, ALPHA, arrays[2].size)

    return cases(saxpy)


def burst(case: str) -> int:
    return 400 if int(case) <= 1 << 14 else 20 if int(case) <= 1 << 20 else 2


BENCHMARK = Benchmark(
    title="saxpy, f32: median time of one call by number of elements",
    contestants={"tack": tack, "gcc": gcc, "numba": numba},
    cases=tuple(map(str, SIZES)),
    unit="µs",
    check=check,
    rounds=7,
    burst=burst,
)


def size_text(size: int) -> str:
    for unit, scale in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return str(size)


def report(results: dict[int, dict[str, Any]]) -> str:
    """Microseconds of each contestant on each number of threads, and GB/s of ours."""
    columns = [(threads, name) for threads in results for name in BENCHMARK.contestants]
    rows = [["elements, µs", *(f"{name} {threads}" for threads, name in columns), "tack GB/s"]]
    for case in BENCHMARK.cases:
        found = [results[threads]["seconds"][case].get(name) for threads, name in columns]
        mine = min(
            (s for (_, name), s in zip(columns, found, strict=True) if name == "tack" and s), default=None
        )
        speed = "-" if mine is None else f"{12e-9 * int(case) / mine:.1f}"
        rows.append([size_text(int(case)), *("-" if s is None else f"{1e6 * s:.2f}" for s in found), speed])
    return "\n".join(
        [BENCHMARK.title, "12 bytes are read and written for an element", machine(), "", table(rows)]
    )


def plot(results: dict[int, dict[str, Any]], path: str) -> None:
    """Bytes per second by size, a panel for each number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(results), figsize=(11, 4.2), sharey=True, layout="constrained")
    for panel, (threads, result) in zip(panels, results.items(), strict=True):
        for name, marker in zip(BENCHMARK.contestants, "os^", strict=True):
            points = [(n, result["seconds"][str(n)].get(name)) for n in SIZES]
            known = [(n, 12e-9 * n / s) for n, s in points if s]
            if known:
                panel.plot(*zip(*known, strict=True), marker=marker, label="Tack" if name == "tack" else name)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(SIZES[::2], [size_text(n) for n in SIZES[::2]])
        panel.set_xlabel("elements")
        panel.set_title(f"{threads} thread{'s' if threads > 1 else ''}")
        panel.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("GB/s, of 12 bytes for an element")
    panels[0].legend()
    figure.suptitle("saxpy, f32")
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = options(__doc__)
    add_rounds(parser, BENCHMARK.rounds)
    parser.add_argument("--plot", metavar="FILE", help="draw the figures there, as PNG; needs matplotlib")
    parser.add_argument("--worker", metavar="NAME", help="(internal) serve this contestant")
    args = parser.parse_args()
    if args.worker:
        serve(BENCHMARK, args.worker)
        return 0
    benchmark = Benchmark(**{**vars(BENCHMARK), "rounds": args.rounds})
    results = {}
    for threads in THREADS:
        note(f"{threads} threads")
        use_threads(threads)
        results[threads] = measure(benchmark, __file__)
    publish({str(threads): result for threads, result in results.items()}, report(results), args.json)
    if args.plot:
        plot(results, args.plot)
    return int(any("tack" in result["missing"] for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
