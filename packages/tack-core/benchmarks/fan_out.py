"""Serial or parallel: the choice for each launch, against both, on 3 kernels, 12 sizes and 2 loads.

The loads are an otherwise idle machine, and one with a busy process for every other core. A choice is judged
time of what it chose over that of the better one, medians of interleaved runs; within 10 % counts as right.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness import machine, note, options, publish, table

SIZES = [2**k for k in range(4, 28, 2)]
RUNS = 31


def kernels() -> dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]]:
    """Each kernel with a function from a size to its arguments."""
    import tack as tk

    @tk.kernel
    def saxpy(x, y, out, alpha):
        for i in range(x.shape[0]):
            out[i] = alpha * x[i] + y[i]

    @tk.kernel
    def sine(x, out):
        for i in range(x.shape[0]):
            out[i] = sin(x[i])

    @tk.kernel
    def escape(out, steps):
        for i in range(out.shape[0]):
            x, y, count = 0.0, 0.0, 0
            c = -0.7 + i / out.shape[0]
            while count < steps and x * x + y * y < 4.0:
                x, y = x * x - y * y + c, 2.0 * x * y + 0.1
                count += 1
            out[i] = count

    def full(n: int) -> Any:
        return tk.full(n, 0.5, tk.f32)

    return {
        "saxpy": (saxpy, lambda n: (full(n), full(n), full(n), 2.0)),
        "sine": (sine, lambda n: (full(n), full(n))),
        "escape": (escape, lambda n: (tk.zeros(max(1, n // 64), tk.f32), 200)),
    }


class Launch:
    """One launch that can be run in either way."""

    def __init__(self, kernel: Any, args: tuple[Any, ...]) -> None:
        from tack.runtime.cpu import launch
        from tack.runtime.dispatch import default_backend

        backend: Any = default_backend()
        variant, self.args = launch.prepare_launch(backend, kernel, args)
        self.program = variant.payload
        self.total, parts = launch.launch_range(kernel, variant, self.args, "the CPU")
        self.slots = self.program.pack(self.args, parts, ())
        self.pool = backend.pool
        self.chosen = (
            "parallel" if self.total * self.program.cost >= self.pool.WORTH_FANNING_OUT else "serial"
        )

    def serial(self) -> None:
        self.program.functions.launch(self.slots, 0, self.total)

    def parallel(self) -> None:
        address = ctypes.cast(ctypes.c_char_p(self.slots), ctypes.c_void_p).value or 0
        chunk = max(1, -(-self.total // (4 * self.pool.num_threads)))
        self.pool.run(self.args, self.program.functions.address, address, chunk, 0, self.total)


@contextmanager
def load(busy: int) -> Iterator[None]:
    """``busy`` other processes that compute all the time."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(launch: Launch) -> dict[str, float]:
    """Median microseconds of both ways, in turns."""
    ways = {"serial": launch.serial, "parallel": launch.parallel}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(RUNS + 2):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if run >= 2:
                times[name].append(1e6 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    import tack as tk

    args = options(__doc__).parse_args()
    threads = tk.default_device()._backend.pool.num_threads
    results: dict[str, Any] = {}
    right = 0
    text = [f"Serial or parallel, µs: medians of {RUNS} runs; {threads} threads", machine()]
    for busy in (0, threads - 1):
        rows = [["kernel", "iterations", "serial", "parallel", "chosen", "chosen / better"]]
        with load(busy):
            for name, (kernel, arguments) in kernels().items():
                for size in SIZES:
                    note(f"{name}, {size}")
                    launch = Launch(kernel, arguments(size))
                    found = measure(launch)
                    ratio = found[launch.chosen] / min(found.values())
                    right += ratio <= 1.1
                    times = [f"{found[way]:.1f}" for way in ("serial", "parallel")]
                    rows.append([name, str(launch.total), *times, launch.chosen, f"{ratio:.2f}"])
                    results[f"{name} {size} {busy}"] = {**found, "chosen": launch.chosen}
        text += ["", f"{busy} busy processes beside it", table(rows)]
    text += ["", f"{right} of {len(results)} choices within 10 % of the better one"]
    note("")
    publish(results, "\n".join(text), args.json)


if __name__ == "__main__":
    main()
