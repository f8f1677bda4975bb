"""A program of 18 kernels: the MRI example's and those of seven others, each called once.

Run as a script it measures the first pass in fresh processes: how long it takes, the processor time of its
own thread, and that of the whole process until then and until all code is optimized. In turn they optimize in
the background and at once, with nothing cached and LLVM loaded, or find everything in the disk cache and load
no LLVM, with Tack as pip would install it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tack

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import wave

import _raymarch
import heat2d
import histogram
import jacobi
import kmeans
import lbm
import mri
import prefix_sum

Call = tuple[Any, tuple[Any, ...]]


def calls() -> list[Call]:
    """The kernels with small arguments, such as the examples pass."""

    def f32(*shape: int) -> np.ndarray[Any, Any]:
        return np.zeros(shape, np.float32)

    def i64(*shape: int) -> np.ndarray[Any, Any]:
        return np.zeros(shape, np.int64)

    volume, other, plane, result = f32(16, 16, 16), f32(16, 16, 16), f32(32, 32), f32(32, 32)
    spacing, lamp = np.ones(3, np.float32), np.array([0.6, 0.0, 0.8], np.float32)
    camera = _raymarch.look_at(np.argwhere(volume == 0.0), 35.0, 20.0)
    tops, surface, colours = f32(4, 4, 4), f32(8, 8, 4), f32(8, 8, 3)
    points, centres = tack.zeros(64, tack.vec3), tack.zeros(4, tack.vec3)
    sums, counts = tack.zeros(4, tack.vec3), tack.zeros(4, tack.i32)
    flow, solid = f32(9, 16, 16), np.zeros((16, 16), np.uint8)
    velocity = tack.zeros((16, 16), tack.vec2)
    return [
        (mri.diffuse, (volume, other, 0.1, 0.1, 0.1, 1.0, 1.0, 1.0)),
        (mri.gradient_magnitude, (volume, other, 1.0, 1.0, 1.0)),
        (_raymarch.find_tops, (volume, tops)),
        (_raymarch.trace, (volume, spacing, tops, camera, surface, 0, 8, 0.5, 0.5)),
        (_raymarch.shade, (volume, spacing, camera, lamp, surface, colours, 0, 8, 0.5, 3.0)),
        (_raymarch.develop, (colours, np.zeros((4, 4, 3), np.uint8), 2)),
        (prefix_sum.add_up, (i64(512), i64(2), 512)),
        (prefix_sum.scan, (i64(512), i64(2), 512, 2)),
        (kmeans.assign, (points, centres, tack.zeros(64, tack.i32), sums, counts)),
        (kmeans.recentre, (centres, sums, counts)),
        (heat2d.step, (plane, result)),
        (wave.step, (plane, f32(32, 32), result, f32(32, 32))),
        (wave.drive, (plane, 8, 8, 4.0, 1.0)),
        (jacobi.sweep, (volume, f32(16, 16, 16), other)),
        (jacobi.largest_change, (volume, other, f32(1))),
        (histogram.histogram, (f32(64), np.zeros(16, np.int32), 0.0, 1.0)),
        (lbm.rest, (flow, velocity)),
        (lbm.step, (flow, flow.copy(), solid, velocity, 1.0, 0.0)),
    ]


def run(program: list[Call]) -> None:
    for kernel, args in program:
        kernel(*args)


def first_pass() -> dict[str, float]:
    """The times of a first pass in this process, in seconds."""
    program = calls()
    if os.environ["TACK_CACHE"] == "off":
        from tack.codegen.llvm import jit

        jit.vector_bits()  # loads LLVM
    start, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    run(program)
    found = {
        "first pass": time.perf_counter() - start,
        "its thread": time.thread_time() - thread,
        "process, until then": time.process_time() - process,
    }
    if os.environ["TACK_CACHE"] == "off":
        from tack.runtime.cpu.background import finish_all

        finish_all()
    found["process, all optimized"] = time.process_time() - process
    start = time.perf_counter()
    run(program)
    return {**found, "second pass": time.perf_counter() - start}


MODES = ("tiered", "optimized", "disk cache")


def measure(rounds: int, chosen: Sequence[str], folder: Path) -> dict[str, list[dict[str, float]]]:
    """What `first_pass` gives in processes of each kind; a first round fills the caches."""
    from startup import install

    installed = folder / "installed"
    installed.mkdir()
    install(installed)
    cached = {"TACK_CACHE": "write", "TACK_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(installed)}
    variables = {
        "tiered": {"TACK_CACHE": "off", "TACK_CPU_COMPILE": "tiered"},
        "optimized": {"TACK_CACHE": "off", "TACK_CPU_COMPILE": "optimized"},
        "disk cache": {**cached, "TACK_CPU_COMPILE": "optimized"},
    }
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for turn in range(rounds + 1):
        for name in chosen:
            environment = {**inherited, "TACK_LOG": "off", **variables[name]}
            command = [sys.executable, __file__, "--here"]
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
            if turn:
                found[name].append(json.loads(done.stdout))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="The first pass of 18 kernels.")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="which kinds (all)")
    args = parser.parse_args()
    rounds = args.rounds
    with tempfile.TemporaryDirectory() as folder:
        found = measure(rounds, args.modes, Path(folder))
    print(f"ms, the least and the median of {rounds} processes")
    for name in found[args.modes[0]][0]:
        cells = []
        for mode, times in found.items():
            values = [1e3 * each[name] for each in times]
            cells.append(f"{mode} {min(values):7.1f} {statistics.median(values):7.1f}")
        print(f"{name:24}", "   ".join(cells))


if __name__ == "__main__":
    if sys.argv[1:] == ["--here"]:
        print(json.dumps(first_pass()))
    else:
        main()
