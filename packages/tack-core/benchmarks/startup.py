"""Start-up: import, compiler load and first call of each contestant, in fresh processes with nothing cached.

``import`` is over ``import numpy``. ``load`` is what must be loaded before the first compile: for Tack,
llvmlite, which ``import tack`` leaves alone; the peers load theirs at import or at ``init``. ``first call``
runs from before the decorator to the result of a ``saxpy`` on 1,024 elements. ``front end`` is Tack's time
from the source of a 30-line kernel to its final IR, for the first kernel of a process and for later ones.
``18 kernels`` is the first pass of `program`, one by one or with ``tack.compile_all`` before it.
With the disk cache, Tack runs from a copy as pip would install it, in a process that finds everything there,
and so loads LLVM only where code cannot be loaded without it (then that is in its first call).
"""

import hashlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import add_rounds, machine, note, options, ours, publish, table

N = 1024
ROUNDS = 7
clock = time.perf_counter

Times = dict[str, float]


def timed(times: Times, name: str, work: Callable[[], Any]) -> Any:
    start = clock()
    result = work()
    times[name] = times.get(name, 0.0) + clock() - start
    return result


def tack(times: Times) -> None:
    import numpy as np

    tk = timed(times, "import", lambda: __import__("tack"))
    if os.environ["TACK_CACHE"] == "off":
        timed(times, "load", load_llvm)
    x, y, out = (np.full(N, v, np.float32) for v in (1, 2, 0))

    def first_call() -> None:
        @tk.kernel
        def saxpy(x, y, out, alpha):
            for i in range(x.shape[0]):
                out[i] = alpha * x[i] + y[i]

        saxpy(x, y, out, 3.0)

    timed(times, "first call", first_call)
    assert (out == 5).all()
    if "load" in times:
        front_end(tk, times)


def load_llvm() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def tack_program(times: Times) -> None:
    import program

    if os.environ["TACK_CACHE"] == "off":
        load_llvm()
    calls = program.calls()
    assert len(calls) == 18
    timed(times, "18 kernels", lambda: program.run(calls))


def tack_program_at_once(times: Times) -> None:
    import program

    import tack

    load_llvm()
    calls = program.calls()

    def run() -> None:
        tack.compile_all([(kernel, *args) for kernel, args in calls])
        program.run(calls)

    timed(times, "18 kernels", run)


def front_end(tk: Any, times: Times) -> None:
    """Times ``inspect`` of a 30-line kernel that nothing has parsed yet, first once and then as a median."""
    import numpy as np

    def make() -> Any:
        @tk.kernel
        def thirty(volume, light, out, steps, threshold, gain):
            depth, height, width = volume.shape[0], volume.shape[1], volume.shape[2]
            scale = 1.0 / (width + height)
            for y, x in tk.ndindex(height, width):
                u = (2 * x - width) * scale
                v = (2 * y - height) * scale
                length = sqrt(u * u + v * v + 1.0)
                dx, dy, dz = u / length, v / length, 1.0 / length
                px, py, pz = x + 0.5, y + 0.5, 0.0
                shade = 0.0
                travelled = 0
                while travelled < steps:
                    i, j, k = int(px), int(py), int(pz)
                    if i < 1 or j < 1 or i >= width - 1 or j >= height - 1 or k >= depth - 1:
                        break
                    here = volume[k, j, i]
                    if here > threshold:
                        gx = volume[k, j, i + 1] - volume[k, j, i - 1]
                        gy = volume[k, j + 1, i] - volume[k, j - 1, i]
                        gz = volume[k + 1, j, i] - here
                        norm = max(sqrt(gx * gx + gy * gy + gz * gz), 1e-6)
                        shade = abs(gx * light[0] + gy * light[1] + gz * light[2]) / norm
                        break
                    px += dx
                    py += dy
                    pz += dz
                    travelled += 1
                value = min(1.0, 0.1 + gain * shade) if shade > 0.0 else 0.0
                out[y, x] = value

        return thirty

    args = (
        np.zeros((8, 8, 8), np.float32),
        np.ones(3, np.float32),
        np.zeros((8, 8), np.float32),
        16,
        0.5,
        0.8,
    )
    kernel = make()
    timed(times, "front end, first", lambda: tk.inspect(kernel, *args, mode="ir"))
    later = []
    for _ in range(15):
        kernel, start = make(), clock()
        tk.inspect(kernel, *args, mode="ir")
        later.append(clock() - start)
    times["front end, later"] = statistics.median(later)


def numba(times: Times) -> None:
    import numpy as np

    nb = timed(times, "import", lambda: __import__("numba"))
    x, y, out = (np.full(N, v, np.float32) for v in (1, 2, 0))

    def first_call() -> None:
        @nb.njit(parallel=True)
        def saxpy(x, y, out, alpha):
            for i in nb.prange(x.shape[0]):
                out[i] = alpha * x[i] + y[i]

        saxpy(x, y, out, np.float32(3))

    timed(times, "first call", first_call)
    assert (out == 5).all()


def taichi(times: Times) -> None:
    import numpy as np

    ti = timed(times, "import", lambda: __import__("taichi"))
    timed(times, "load", lambda: ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False))
    vector = ti.types.ndarray(dtype=ti.f32, ndim=1)
    x, y, out = (np.full(N, v, np.float32) for v in (1, 2, 0))

    def first_call() -> None:
        @ti.kernel
        def saxpy(x: vector, y: vector, out: vector, alpha: ti.f32):
            for i in range(x.shape[0]):
                out[i] = alpha * x[i] + y[i]

        saxpy(x, y, out, 3.0)

    timed(times, "first call", first_call)
    assert (out == 5).all()


def warp(times: Times) -> None:
    import numpy as np

    wp = timed(times, "import", lambda: __import__("warp"))

    def load() -> None:
        wp.config.quiet = True
        wp.config.kernel_cache_dir = tempfile.mkdtemp(dir=os.environ["BENCHMARK_SCRATCH"])
        wp.init()

    timed(times, "load", load)
    vector = wp.array(dtype=float)
    x, y, out = (wp.array(np.full(N, v, np.float32), dtype=float, device="cpu") for v in (1, 2, 0))

    def first_call() -> None:
        @wp.kernel
        def saxpy(x: vector, y: vector, out: vector, alpha: float):
            i = wp.tid()
            out[i] = alpha * x[i] + y[i]

        wp.launch(saxpy, dim=N, inputs=[x, y, out, 3.0], device="cpu")

    timed(times, "first call", first_call)
    assert (out.numpy() == 5).all()


CONTESTANTS: dict[str, Callable[[Times], None]] = {
    "tack": tack,
    "numba": numba,
    "taichi": taichi,
    "warp": warp,
}


PARTS = {**CONTESTANTS, "program": tack_program, "program at once": tack_program_at_once}


def child(name: str) -> None:
    """Times a contestant or part in this process, and prints the seconds as JSON on the last line."""
    times: Times = {}
    timed(times, "numpy", lambda: __import__("numpy"))
    try:
        PARTS[name](times)
    except ImportError as error:
        print(json.dumps({"missing": f"not installed ({error})"}))
    else:
        if "first call" in times:
            times["import to result"] = times["import"] + times.get("load", 0.0) + times["first call"]
        print(json.dumps(times))


def install(folder: Path) -> None:
    """A copy of Tack as pip would make it: with a RECORD, by which the disk cache knows its version."""
    found = importlib.util.find_spec("tack")
    assert found is not None
    assert found.submodule_search_locations
    package = folder / "tack"
    shutil.copytree(
        found.submodule_search_locations[0], package, ignore=shutil.ignore_patterns("__pycache__")
    )
    lines = [
        f"{path.relative_to(folder)},sha256={hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(package.rglob("*.py"))
    ]
    init = (package / "__init__.py").read_text().splitlines()
    version = next(line.split('"')[1] for line in init if line.startswith("__version__"))
    about = folder / f"tack_core-{version}.dist-info"
    about.mkdir()
    (about / "RECORD").write_text("\n".join(lines))


def run_once(name: str, scratch: str, installed: Path | None = None) -> dict[str, Any]:
    """What `child` prints; with the disk cache if Tack is ``installed`` there."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"TACK_CACHE": "off", "BENCHMARK_SCRATCH": scratch}
    if installed is not None:
        environment |= {"TACK_CACHE": "write", "TACK_CACHE_DIR": f"{scratch}/cache"}
        environment["PYTHONPATH"] = str(installed)
    command = [sys.executable, __file__, "--child", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"missing": f"failed: {last}"}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(rounds: int) -> dict[str, Any]:
    """Median seconds of each part of each contestant's start; a first round only warms the file caches."""
    runs: dict[str, list[Times]] = {name: [] for name in CONTESTANTS}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        installed = Path(scratch) / "installed"
        installed.mkdir()
        install(installed)
        for turn in range(rounds + 1):
            note(f"round {turn} of {rounds}")
            for name in CONTESTANTS:
                if name in missing:
                    continue
                answer = run_once(name, scratch)
                if "missing" in answer:
                    missing[name] = answer["missing"]
                else:
                    if name == "tack":
                        answer |= cached_parts(scratch, installed)
                    if turn:
                        runs[name].append(answer)
    note("")
    seconds = {
        name: {part: statistics.median(run[part] for run in found) for part in found[0]}
        for name, found in runs.items()
        if found
    }
    return {
        "title": "Start-up in a fresh process",
        "machine": machine(),
        "seconds": seconds,
        "missing": missing,
    }


def cached_parts(scratch: str, installed: Path) -> Times:
    """The parts that the disk cache speeds up, where LLVM is not loaded. The first round fills it."""
    cold = run_once("program", scratch)
    at_once = run_once("program at once", scratch)
    warm = {name: run_once(name, scratch, installed) for name in ("tack", "program")}
    return {
        "first call, disk cache": warm["tack"]["first call"],
        "from import to result, disk cache": warm["tack"]["import to result"],
        "18 kernels": cold["18 kernels"],
        "18 kernels, compile_all": at_once["18 kernels"],
        "18 kernels, disk cache": warm["program"]["18 kernels"],
    }


def report(results: dict[str, Any]) -> str:
    names = list(results["seconds"])
    rows = [["ms", *names, "tack / best peer"]]
    for part in dict.fromkeys(p for found in results["seconds"].values() for p in found):
        row = {name: found[part] for name, found in results["seconds"].items() if part in found}
        peers = {name: s for name, s in row.items() if not ours(name)}
        best = min(peers, key=peers.__getitem__, default=None)
        ratio = (
            f"{row['tack'] / peers[best]:.2f} ({best})" if best and "tack" in row and part != "numpy" else "-"
        )
        rows.append([part, *(f"{row[name] * 1e3:.1f}" if name in row else "-" for name in names), ratio])
    lines = [results["title"], results["machine"], "", table(rows)]
    lines += [f"missing: {name}: {why}" for name, why in results["missing"].items()]
    return "\n".join(lines)


def main() -> int:
    parser = options(__doc__)
    add_rounds(parser, ROUNDS)
    parser.add_argument("--child", help="(internal) measure this contestant in this process")
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return 0
    results = measure(args.rounds)
    publish(results, report(results), args.json)
    return int("tack" in results["missing"])


if __name__ == "__main__":
    sys.exit(main())
