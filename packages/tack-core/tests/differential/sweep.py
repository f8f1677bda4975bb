"""The command line of a long run by hand: batches of generated programs until the count or a few failures."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable

from conformance.upload import uploaded_arguments
from on_target import device_of, emulate

import tack

__all__ = ["sweep"]


def sweep(name: str, batch: int, count: int, trial: Callable[[int], str | None]) -> int:
    """Run ``trial``, which returns a report or None, for the seeds that the options name; the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--count", type=int, default=count, help="programs to run")
    parser.add_argument("--seed", type=int, default=0, help="the first batch's seed; each batch adds one")
    parser.add_argument("--stop", type=int, default=3, help="failures after which to stop")
    parser.add_argument("--target", default="cpu", metavar="T", help="cpu, cuda, cuda-emu, ...")
    options = parser.parse_args()
    started, failures, done = time.monotonic(), 0, 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(device(options.target))
        if options.target != "cpu":
            stack.enter_context(uploaded_arguments())
        for seed in range(options.seed, options.seed + -(-options.count // batch)):
            found = trial(seed)
            done += batch
            if found is not None:
                failures += 1
                print(f"seed {seed}: {found}", flush=True)
                if failures >= options.stop:
                    break
            if seed % 100 == 99:
                rate = done / (time.monotonic() - started)
                print(f"{done} programs, {failures} failures, {rate:.0f} a second", flush=True)
    print(f"{done} programs, {failures} failures, {time.monotonic() - started:.0f} s")
    return 1 if failures else 0


def device(target: str) -> tack.Device:
    """The device of a target of the conformance suite."""
    if target == "cpu":
        return tack.device("cpu", num_threads=2)
    emulate(target)
    return tack.device(device_of(target))
