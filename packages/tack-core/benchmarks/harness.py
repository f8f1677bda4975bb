"""Measures contestants side by side: each in its own process, their runs interleaved.

A contestant is a function that builds its kernels and returns one `Case` per benchmark. It runs in a
process of its own, so that compilers and thread pools cannot disturb each other, and it fails alone: a
peer that is not installed is reported as missing. The parent asks the processes for short bursts in
turn, so that a slow spell of the machine hits all of them, and reports medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = "tack"


@dataclass(frozen=True)
class Case:
    """One benchmark of one contestant: ``run`` is timed; ``result`` gives what it computed, to check it.

    ``after`` is what has to be done before the next run, and is not timed.
    """

    run: Callable[[], object]
    result: Callable[[], Any]
    after: Callable[[], object] = lambda: None


Contestant = Callable[[], dict[str, Case]]


@dataclass(frozen=True)
class Benchmark:
    """A table of contestants against cases.

    ``check(case, result)`` returns whether what a contestant computed is right.
    """

    title: str
    contestants: dict[str, Contestant]
    cases: Sequence[str]
    unit: str  # "ms" or "µs"
    check: Callable[[str, Any], bool]
    rounds: int
    burst: int | Callable[[str], int]  # how often a case runs in one turn
    launches: int = 1  # in one timed run; figures are for one


# What tells the contestants' runtimes how many threads to use.
THREADS = ("TACK_CPU_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TI_CPU_MAX_NUM_THREADS")


def machine() -> str:
    """The machine in general terms: cores, architecture, widest vector extension."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    vector = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        flags = cpuinfo.read_text()
        vector = next((f", {n}" for f, n in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if f in flags), "")
    return (
        f"{cores}-core {platform.machine()}{vector}, {platform.system()}, Python {platform.python_version()}"
    )


# The worker's side.


def serve(benchmark: Benchmark, name: str) -> None:
    """Builds contestant ``name``, checks its results, then times a burst per line ``case count`` on stdin."""
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints must not get between the replies

    def send(message: object) -> None:
        print(json.dumps(message), file=reply, flush=True)

    try:
        cases = benchmark.contestants[name]()
    except ImportError as error:
        return send({"missing": f"not installed ({error})"})
    except FileNotFoundError as error:
        return send({"missing": f"not installed ({error.filename})"})
    except Exception as error:
        return send(
            {"missing": f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        )
    for case, work in cases.items():
        work.run()
        if not benchmark.check(case, work.result()):
            return send({"missing": f"wrong result in {case}"})
    send({"cases": list(cases)})
    clock = time.perf_counter_ns
    for line in sys.stdin:
        case, count = line.rsplit(" ", 1)
        run, after = cases[case].run, cases[case].after
        run()  # brings this process's code and data back into the caches
        after()
        times = []
        for _ in range(int(count)):
            start = clock()
            run()
            times.append(clock() - start)
            after()
        send(times)
    return None


# The parent's side.


class Worker:
    """The process of one contestant."""

    def __init__(self, script: str, name: str) -> None:
        self.name = name
        command = [sys.executable, script, "--worker", name]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        hello = self.receive() or {"missing": f"its process ended with status {self.process.wait()}"}
        self.cases: list[str] = hello.get("cases", [])
        self.missing: str | None = hello.get("missing")

    def receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def burst(self, case: str, count: int) -> list[int]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{case} {count}\n")
        self.process.stdin.flush()
        return self.receive() or []

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def measure(benchmark: Benchmark, script: str) -> dict[str, Any]:
    """Median seconds of each contestant in each case, and why contestants are missing."""
    note("starting " + ", ".join(benchmark.contestants))
    workers = [Worker(script, name) for name in benchmark.contestants]
    times: dict[tuple[str, str], list[int]] = {}
    try:
        for turn in range(benchmark.rounds):
            note(f"round {turn + 1} of {benchmark.rounds}")
            for case in benchmark.cases:
                burst = benchmark.burst if isinstance(benchmark.burst, int) else benchmark.burst(case)
                # Who starts changes, so that nobody always runs after the same neighbour.
                for worker in workers[turn % len(workers) :] + workers[: turn % len(workers)]:
                    if case in worker.cases:
                        times.setdefault((case, worker.name), []).extend(worker.burst(case, burst))
                        time.sleep(0.005)  # idle threads of a pool may spin for a while
    finally:
        for worker in workers:
            worker.close()
        note("")
    seconds = {
        case: {
            w.name: statistics.median(times[case, w.name]) / 1e9 / benchmark.launches
            for w in workers
            if times.get((case, w.name))
        }
        for case in benchmark.cases
    }
    missing = {w.name: w.missing for w in workers if w.missing}
    return {"title": benchmark.title, "machine": machine(), "seconds": seconds, "missing": missing}


def note(text: str) -> None:
    """Progress on a terminal's last line; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def ours(name: str) -> bool:
    return name.split()[0] == OURS


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left and the others to the right, with a rule under the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def report(results: dict[str, Any], unit: str) -> str:
    """The results as text: one row per case, one column per contestant, and our ratio to the best peer."""
    scale = {"ms": 1e3, "µs": 1e6}[unit]
    names = list(dict.fromkeys(name for row in results["seconds"].values() for name in row))
    mine = [name for name in names if ours(name)]
    heading = [unit, *names, *(f"{name} / best peer" for name in mine)]
    rows = [heading]
    for case, row in results["seconds"].items():
        cells = [f"{row[name] * scale:.3f}" if name in row else "-" for name in names]
        peers = {name: s for name, s in row.items() if not ours(name)}
        best = min(peers, key=peers.__getitem__, default=None)
        for name in mine:
            known = name in row and best is not None
            cells.append(f"{row[name] / peers[best]:.2f} ({best})" if known and best else "-")
        rows.append([case, *cells])
    lines = [results["title"], results["machine"], "", table(rows)]
    lines += [f"missing: {name}: {why}" for name, why in results["missing"].items()]
    return "\n".join(lines)


def options(description: str | None) -> argparse.ArgumentParser:
    """The command line that all benchmarks share."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument(
        "--json", metavar="FILE", help="write the figures there too ('-': print them instead)"
    )
    return parser


def add_rounds(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument("--rounds", type=int, default=default, help="how often each contestant's turn comes")


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=int, help="how many threads each contestant uses; as many as it likes"
    )


def use_threads(count: int | None) -> None:
    """Tells contestants that start from now on how many threads to use."""
    if count is not None:
        os.environ.update(dict.fromkeys(THREADS, str(count)))


def publish(results: dict[str, Any], text: str, where: str | None) -> None:
    """Prints the table, and writes the figures as JSON where asked."""
    if where == "-":
        print(json.dumps(results, indent=2))
        return
    print(text)
    if where:
        Path(where).write_text(json.dumps(results, indent=2) + "\n")


def main(benchmark: Benchmark, script: str, description: str | None) -> int:
    """Runs a benchmark's command line. The exit status is 1 if our own contestant did not run."""
    parser = options(description)
    add_rounds(parser, benchmark.rounds)
    add_threads(parser)
    parser.add_argument("--worker", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="leave a contestant out"
    )
    args = parser.parse_args()
    if args.worker:
        serve(benchmark, args.worker)
        return 0
    use_threads(args.threads)
    chosen = {k: v for k, v in benchmark.contestants.items() if k not in args.without}
    benchmark = Benchmark(**{**vars(benchmark), "contestants": chosen, "rounds": args.rounds})
    results = measure(benchmark, script)
    publish(results, report(results, benchmark.unit), args.json)
    return int(any(ours(name) for name in results["missing"]))
