"""Start-up on a GPU, in fresh processes: import, start of the device, and the first kernel with its result.

Tack runs from a copy as pip would install it. ``cold`` has nothing cached; ``warm`` is another process after
it, with the same cache folders. ``start`` is the first array on the device, with the context's creation,
which every contestant pays once.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import add_rounds, machine, note, options, publish, table
from startup import install

N = 1024
CACHES = ("TACK_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "WARP_CACHE_PATH", "CUDA_CACHE_PATH")
clock = time.perf_counter


def tack() -> list[Callable[[], Any]]:
    def load() -> None:
        global tk
        import tack as tk

    def start() -> None:
        tk.set_default_device("cuda")
        tk.zeros(N)
        tk.sync()

    def first() -> None:
        @tk.kernel
        def saxpy(x, y, out, alpha):
            for i in range(x.shape[0]):
                out[i] = alpha * x[i] + y[i]

        out = tk.zeros(N)
        saxpy(tk.ones(N), tk.full(N, 2.0), out, 3.0)
        assert (out.numpy() == 5).all()

    return [load, start, first]


def cupy() -> list[Callable[[], Any]]:
    def load() -> None:
        global cp
        import cupy as cp

    def start() -> None:
        cp.zeros(N, cp.float32)
        cp.cuda.runtime.deviceSynchronize()

    def first() -> None:
        import numpy as np

        saxpy = cp.RawKernel(
            'extern "C" __global__ void saxpy(const float *x, const float *y, float *out, float a, int n) {'
            "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = a * x[i] + y[i]; }",
            "saxpy",
        )
        x, y, out = (cp.asarray(np.full(N, v, np.float32)) for v in (1, 2, 0))
        saxpy((4,), (256,), (x, y, out, np.float32(3), np.int32(N)))
        assert (out.get() == 5).all()

    return [load, start, first]


def triton() -> list[Callable[[], Any]]:
    def load() -> None:
        global torch, tr, tl
        import torch
        import triton as tr
        import triton.language as tl

    def start() -> None:
        torch.zeros(N, device="cuda")
        torch.cuda.synchronize()

    def first() -> None:
        @tr.jit
        def saxpy(x, y, out, alpha, n, BLOCK: tl.constexpr):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + at, alpha * tl.load(x + at) + tl.load(y + at))

        x, y, out = (torch.full((N,), float(v), device="cuda") for v in (1, 2, 0))
        saxpy[(N // 256,)](x, y, out, 3.0, N, 256)
        assert (out.cpu().numpy() == 5).all()

    return [load, start, first]


def warp() -> list[Callable[[], Any]]:
    def load() -> None:
        global wp
        import warp as wp

    def start() -> None:
        wp.config.quiet = True
        wp.init()
        wp.zeros(N, dtype=float, device="cuda:0")
        wp.synchronize()

    def first() -> None:
        floats = wp.array(dtype=float)

        def saxpy(x: floats, y: floats, out: floats, alpha: float):
            i = wp.tid()
            out[i] = alpha * x[i] + y[i]

        x, y, out = (wp.full(N, float(v), dtype=float, device="cuda:0") for v in (1, 2, 0))
        wp.launch(wp.kernel(saxpy), dim=N, inputs=[x, y, out, 3.0], device="cuda:0")
        assert (out.numpy() == 5).all()

    return [load, start, first]


CONTESTANTS = {"tack": tack, "cupy": cupy, "triton": triton, "warp": warp}
STAGES = ("import", "start", "first kernel")


def worker(name: str) -> None:
    import numpy as _numpy  # noqa: F401  (everybody needs it)

    times = {}
    try:
        for stage, work in zip(STAGES, CONTESTANTS[name](), strict=True):
            begin = clock()
            work()
            times[stage] = clock() - begin
    except ImportError as error:
        print(json.dumps({"missing": f"not installed ({error})"}))
        return
    print(json.dumps(times))


def fresh(name: str, folder: str, installed: Path) -> dict[str, Any]:
    environment = os.environ | {variable: f"{folder}/{variable}" for variable in CACHES}
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join([str(installed), *(path for path in others if path)])
    environment["TACK_CACHE"] = "write"
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    os.makedirs(f"{folder}/TACK_CACHE_DIR", mode=0o700, exist_ok=True)
    command = [sys.executable, __file__, "--worker", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else {"missing": f"failed: {done.stderr.strip().splitlines()[-1:]}"}


def measure(rounds: int, installed: Path) -> dict[str, Any]:
    rows: dict[str, dict[str, list[float]]] = {}
    missing = {}
    with tempfile.TemporaryDirectory() as folder:  # byte code, which pip would have made
        for name in CONTESTANTS:
            fresh(name, folder, installed)
    for turn in range(rounds):
        for name in CONTESTANTS:
            if name in missing:
                continue
            note(f"round {turn + 1} of {rounds}: {name}")
            with tempfile.TemporaryDirectory() as folder:
                for state in ("cold", "warm"):
                    times = fresh(name, folder, installed)
                    if "missing" in times:
                        missing[name] = times["missing"]
                        break
                    for stage, seconds in times.items():
                        rows.setdefault(f"{stage}, {state}", {}).setdefault(name, []).append(seconds)
    note("")
    seconds = {row: {n: statistics.median(v) for n, v in found.items()} for row, found in rows.items()}
    return {"title": "Start-up on a GPU", "machine": machine(), "seconds": seconds, "missing": missing}


def report(results: dict[str, Any]) -> str:
    names = [name for name in CONTESTANTS if name not in results["missing"]]
    rows = [["ms", *names]]
    for row, found in results["seconds"].items():
        rows.append([row, *(f"{found[name] * 1e3:.1f}" if name in found else "-" for name in names)])
    lines = [results["title"], results["machine"], "", table(rows)]
    return "\n".join(lines + [f"missing: {name}: {why}" for name, why in results["missing"].items()])


def main() -> int:
    parser = options(__doc__)
    add_rounds(parser, 5)
    parser.add_argument("--worker", metavar="NAME")
    args = parser.parse_args()
    if args.worker:
        worker(args.worker)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        results = measure(args.rounds, Path(folder))
    publish(results, report(results), args.json)
    return int("tack" in results["missing"])


if __name__ == "__main__":
    sys.exit(main())
