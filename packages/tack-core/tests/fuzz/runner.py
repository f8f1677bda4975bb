"""Compiles mutated kernels in subprocesses, so that a crash or a hang is a finding and not the end."""

from __future__ import annotations

import linecache
import os
import random
import re
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CASE_SECONDS = 20  # of processor time: a case that takes longer hangs

_PLACE = re.compile(r"<fuzz-\d+>:\d+:\d+")


@dataclass(frozen=True)
class Finding:
    """A case that did what no case may do."""

    seed: int
    problem: str


def judge(seed: int) -> str | None:
    """What is wrong with how the compiler takes case ``seed``, or None."""
    import math

    import numpy as np

    import tack

    from .corpus import arguments, odd_arguments
    from .mutate import mutated

    text = mutated(seed)
    filename = f"<fuzz-{seed}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"tack": tack, "math": math, "np": np, "__name__": "fuzz_case"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, filename, "exec"), space)
        if not isinstance(space["kernel"], tack.Kernel):
            return None
        rng = random.Random(seed)
        given = odd_arguments(rng) if rng.random() < 0.3 else arguments()
        tack.inspect(space["kernel"], *given, mode="asm")
    except (tack.UnsupportedSyntaxError, TypeError, NameError, ValueError) as error:
        if not _PLACE.search(str(error)):
            return f"no position: {type(error).__name__}: {error}"
        if isinstance(error, tack.UnsupportedSyntaxError) and not (
            error.filename and error.lineno and error.offset
        ):
            return f"no position fields: {error}"
    except BaseException as error:
        import traceback

        return f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
    finally:
        linecache.cache.pop(filename, None)
    return None


def work(first: int, count: int) -> None:
    """The subprocess: names each case before it starts, so that the parent knows which one killed it."""
    for seed in range(first, first + count):
        print(f"case {seed}", flush=True)
        if hasattr(signal, "setitimer"):
            # Its signal ends the process, whatever it is doing; a busy machine does not count.
            signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
        problem = judge(seed)
        if problem is not None:
            print(f"finding {seed} {problem!r}", flush=True)
    print("done", flush=True)


def run(first: int, count: int) -> list[Finding]:
    """Judges the cases ``first`` to ``first + count - 1``."""
    findings: list[Finding] = []
    end = first + count
    while first < end:
        output, code = _subprocess(first, end - first)
        last = first
        for line in output.splitlines():
            word, _, rest = line.partition(" ")
            if word == "case":
                last = int(rest)
            elif word == "finding":
                seed, _, problem = rest.partition(" ")
                findings.append(Finding(int(seed), problem))
        if code == 0 and output.endswith("done\n"):
            break
        what = "hangs" if code in (-signal.SIGPROF, None) else f"ends the process with status {code}"
        findings.append(Finding(last, what))
        first = last + 1
    return findings


def _subprocess(first: int, count: int) -> tuple[str, int | None]:
    import tack

    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(Path(tack.__file__).parents[1]), str(tests)])
    command = [sys.executable, "-m", "fuzz", "--worker", str(first), str(count)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60 + 2 * count,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
        return (output.decode() if isinstance(output, bytes) else output), None
    return done.stdout, done.returncode
