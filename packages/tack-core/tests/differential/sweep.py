"""The command line of a long run by hand: batches of generated programs until the count or a few failures."""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator

from conformance.upload import uploaded_arguments
from emulated import together
from on_target import device_of, emulate

import tack

__all__ = ["Trial", "sweep"]

Trial = Callable[[], str | None]
"""Runs programs on the default device: a report of what is wrong, or None."""

TOGETHER = 40  # kernels that emulated targets compile at once


def sweep(name: str, batch: int, count: int, draw: Callable[[int], Trial]) -> int:
    """Run what ``draw`` makes of the seeds that the options name, on every target; the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--count", type=int, default=count, help="programs to run on each target")
    parser.add_argument("--seed", type=int, default=0, help="the first batch's seed; each batch adds one")
    parser.add_argument("--stop", type=int, default=3, help="failures after which to stop")
    parser.add_argument("--target", default="cpu", metavar="T,...", help="cpu, cuda, cuda-emu, ...")
    options = parser.parse_args()
    # Nobody needs these kernels again; and those of a batch wait for each other, which takes long.
    os.environ.setdefault("TACK_CACHE", "off")
    logging.getLogger("tack").setLevel(logging.ERROR)
    targets = options.target.split(",")
    devices = {target: device(target) for target in targets}
    started, failures, done = time.monotonic(), 0, 0
    end = options.seed + -(-options.count // batch)
    step = TOGETHER if any(target.endswith("-emu") for target in targets) else 1
    with collected_rarely(), contextlib.nullcontext() if targets == ["cpu"] else uploaded_arguments():
        for first in range(options.seed, end, step):
            seeds = range(first, min(first + step, end))
            tasks = [functools.partial(on_devices, devices, draw, seed) for seed in seeds]
            for seed, found in zip(seeds, together.run(tasks), strict=True):
                failures += len(found)
                for text in found:
                    print(f"seed {seed}: {text}", flush=True)
            before, done = done, done + batch * len(seeds)
            # Undefined behaviour ends the process: it is in the seeds after those that were named last.
            if step > 1 or done // 500 > before // 500:
                rate = f"{done / (time.monotonic() - started):.0f} a second"
                print(f"{done} programs to seed {seeds[-1]}, {failures} failures, {rate}", flush=True)
                gc.collect()
            if failures >= options.stop:
                break
    print(f"{done} programs on {options.target}, {failures} failures, {time.monotonic() - started:.0f} s")
    return 1 if failures else 0


@contextlib.contextmanager
def collected_rarely() -> Iterator[None]:
    """Kernels are cycles; looking for them at each allocation would take a third of the time."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def on_devices(devices: dict[str, tack.Device], draw: Callable[[int], Trial], seed: int) -> list[str]:
    """The reports of one seed."""
    trial = draw(seed)
    found = []
    for target, device in devices.items():
        with device:
            report = trial()
        if report is not None:
            found.append(f"{target}: {report}")
    return found


def device(target: str) -> tack.Device:
    """The device of a target of the conformance suite."""
    if target == "cpu":
        return tack.device("cpu", num_threads=2)
    emulate(target)
    return tack.device(device_of(target))
