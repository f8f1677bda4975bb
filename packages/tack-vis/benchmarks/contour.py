"""Contours of a sphere beside vtkFlyingEdges3D on one thread, or on a GPU beside the floor of reading it.

    python contour.py
    python contour.py --sizes 21 256 --repeat 30
    python contour.py --device cuda --sizes 21 512 --first 5

Both are measured in turns, so that a busy machine slows both. Times are medians of calls after the first;
what is cold or comes from the disk cache is measured by starting processes (--first).

On a GPU there is no VTK to compare with. The floor is the time of reading the volume once, half of what a
copy of it takes on the device; contours are measured one by one, with a wait, and 20 in a row.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter

import numpy as np

FIRST = """
import numpy as np
from time import perf_counter, thread_time
import tack, tack.vis
g = np.linspace(-1, 1, 21, dtype=np.float32)
z, y, x = np.meshgrid(g, g, g, indexing="ij")
volume = np.sqrt(x * x + y * y + z * z)
DEVICE
began, thread = perf_counter(), thread_time()
tack.vis.contour(volume, 0.7)
tack.sync()
print((perf_counter() - began) * 1e3, (thread_time() - thread) * 1e3)
"""


def sphere(n: int) -> np.ndarray:
    axis = np.linspace(-1, 1, n, dtype=np.float32)
    z, y, x = np.meshgrid(axis, axis, axis, indexing="ij")
    return np.sqrt(x * x + y * y + z * z)


def vtk_contour(volume: np.ndarray, level: float) -> Callable[[], object] | None:
    """A function that runs VTK's filter once more, or None without VTK."""
    try:
        from vtkmodules.util.numpy_support import numpy_to_vtk
        from vtkmodules.vtkCommonCore import vtkSMPTools
        from vtkmodules.vtkCommonDataModel import vtkImageData
        from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D
    except ImportError:
        return None
    vtkSMPTools.Initialize(1)
    image = vtkImageData()
    image.SetDimensions(*volume.shape[::-1])
    image.GetPointData().SetScalars(numpy_to_vtk(volume.ravel()))
    filter_ = vtkFlyingEdges3D()
    filter_.SetInputData(image)
    filter_.SetValue(0, level)
    filter_.ComputeNormalsOff()
    filter_.ComputeGradientsOff()
    filter_.ComputeScalarsOff()

    def run() -> object:
        filter_.Modified()
        filter_.Update()
        return filter_.GetOutput()

    return run


def timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return (perf_counter() - began) * 1e3


def steady(n: int, level: float, repeat: int) -> None:
    from tack.vis import contour

    volume = sphere(n)
    peer = vtk_contour(volume, level)
    calls = [lambda: contour(volume, level), *([peer] if peer else [])]
    for call in calls * 3:
        call()
    times = [[timed(call) for call in calls] for _ in range(repeat)]
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    mesh = contour(volume, level)
    size = f"{n}³: {mesh.points.shape[0]:,} points, {mesh.triangles.shape[0]:,} triangles"
    line = f"{size}; Tack {medians[0]:.3f} ms"
    if peer:
        ratio = statistics.median(ours / theirs for ours, theirs in times)
        line += f", VTK (1 thread) {medians[1]:.3f} ms, ratio {ratio:.2f}"
    print(line)


def steady_on_device(n: int, level: float, repeat: int, device: str) -> None:
    import tack
    from tack.vis import contour

    volume = tack.asarray(sphere(n), device=device)
    copy = tack.empty_like(volume)

    def batch(call: Callable[[], object], count: int) -> float:
        """Milliseconds of one call of several in a row."""

        def calls() -> None:
            for _ in range(count):
                call()
            tack.sync()

        tack.sync()
        return timed(calls) / count

    calls = {
        "copy": lambda: batch(lambda: tack.copyto(copy, volume), 20),
        "row": lambda: batch(lambda: contour(volume, level), 20),
        "one": lambda: batch(lambda: contour(volume, level), 1),
    }
    for call in [*calls.values()] * 3:
        call()
    times = {name: statistics.median(call() for _ in range(repeat)) for name, call in calls.items()}
    floor = times["copy"] / 2
    mesh = contour(volume, level)
    print(
        f"{n}³ on {device}: {mesh.points.shape[0]:,} points, {mesh.triangles.shape[0]:,} triangles; in a row "
        f"{times['row']:.3f} ms, {floor / times['row']:.0%} of the floor of {floor:.3f} ms; with a wait "
        f"{times['one']:.3f} ms"
    )


def first(count: int, device: str, given: dict[str, str]) -> None:
    """The first contour of a process after imports, without a disk cache and with a warm one.

    ``given`` is the environment of the processes.
    """
    ready = "import llvmlite.binding"
    if device != "cpu":
        ready = f"tack.set_default_device({device!r}); volume = tack.asarray(volume); tack.sync()"
    with tempfile.TemporaryDirectory() as folder:
        for name, cache in (("cold", {"TACK_CACHE": "off"}), ("warm cache", {"TACK_CACHE_DIR": folder})):
            environment = {k: v for k, v in given.items() if k != "TACK_CACHE"} | cache
            runs = [
                subprocess.run(
                    [sys.executable, "-c", FIRST.replace("DEVICE", ready)],
                    env=environment,
                    capture_output=True,
                    check=True,
                )
                for _ in range(count + 1)
            ]
            pairs = [map(float, run.stdout.split()) for run in runs[1:]]
            clock, thread = (
                f"{statistics.median(t):.1f}, least {min(t):.1f}" for t in zip(*pairs, strict=True)
            )
            print(f"first contour of 21³, {name}: {clock} ms, processor time of the calling thread {thread}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[21, 256], help="voxels along an axis")
    parser.add_argument("--level", type=float, default=0.7, help="the radius; the volume's half-width is 1")
    parser.add_argument("--repeat", type=int, default=21, help="calls that are timed")
    parser.add_argument(
        "--first", type=int, default=0, metavar="N", help="also time N first calls of processes"
    )
    parser.add_argument("--device", default="cpu", help="where the volume is, as tack.device takes it")
    args = parser.parse_args()
    given = dict(os.environ)
    os.environ.setdefault("TACK_CPU_COMPILE", "optimized")  # calls after the first would come before it
    for n in args.sizes:
        repeat = args.repeat * (10 if n < 64 else 1)
        if args.device == "cpu":
            steady(n, args.level, repeat)
        else:
            steady_on_device(n, args.level, repeat, args.device)
    if args.first:
        first(args.first, args.device, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
