"""The speed targets on the CPU in one table: our figure, the best peer's, their ratio and what it must be.

Runs the programs beside it, those about throughput on 1 and on 2 threads. Our figure and the peers' are from
the same run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from harness import add_rounds, machine, note, options, ours, publish, table


class Row(NamedTuple):
    """A target: ``tack`` takes at most ``limit`` times what the best of ``peers`` does, or ``limit`` ms."""

    work: str
    program: str
    case: str
    limit: float
    peers: tuple[str, ...] = ()  # all: whoever was measured
    is_ratio: bool = True
    threads: tuple[int | None, ...] = (None,)


BOTH = (1, 2)
ROWS = (
    Row("warm call, 8 arrays of 16 f32", "dispatch", "8 arrays", 0.5, ("numba",)),
    Row("the same on 2 threads", "dispatch", "the same on all threads", 1.0, ("numba parallel",)),
    Row("import, over NumPy", "startup", "import", 15.0, is_ratio=False),
    Row("first saxpy, nothing cached", "startup", "first call", 15.0, is_ratio=False),
    Row("first saxpy, disk cache", "startup", "first call, disk cache", 2.0, is_ratio=False),
    Row("saxpy, 16 Mi f32", "throughput", "saxpy", 1.0, threads=BOTH),
    Row("3-point stencil, 16 Mi f32", "throughput", "stencil", 1.0, threads=BOTH),
    Row("sin, 16 Mi f32", "throughput", "sin", 1.1, ("gcc",), threads=BOTH),
    Row("exp, 16 Mi f32", "throughput", "exp", 1.1, ("gcc",), threads=BOTH),
    Row("sum, 16 Mi f32", "throughput", "sum", 1.1, ("gcc",), threads=BOTH),
    Row("accumulate in an array, 2^20", "accumulate", "accumulate", 1 / 3, ("overlapping",), threads=BOTH),
    Row("sort, 16 Mi i32", "algorithms", "sort", 1.0, threads=(2,)),
    Row("inclusive scan, 16 Mi f32", "algorithms", "inclusive_scan", 1.1, threads=(2,)),
)


def run(program: str, threads: int | None, rounds: int | None) -> dict[str, Any]:
    """The JSON of a program."""
    command = [sys.executable, str(Path(__file__).with_name(f"{program}.py")), "--json", "-"]
    command += [] if threads is None else ["--threads", str(threads)]
    command += [] if rounds is None else ["--rounds", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    if program == "startup":  # by contestant and part; the others by case and contestant
        parts = dict.fromkeys(part for found in answer["seconds"].values() for part in found)
        answer["seconds"] = {
            part: {name: found[part] for name, found in answer["seconds"].items() if part in found}
            for part in parts
        }
    return answer


def judge(row: Row, seconds: dict[str, float]) -> dict[str, Any]:
    """Our time, the best peer's and its name, their ratio, and whether the target is met."""
    mine = seconds.get("tack")
    peers = {k: s for k, s in seconds.items() if not ours(k) and (not row.peers or k in row.peers)}
    best = min(peers, key=peers.__getitem__, default=None)
    ratio = mine / peers[best] if mine is not None and best is not None else None
    value = ratio if row.is_ratio else None if mine is None else 1e3 * mine
    return {
        "tack": mine,
        "peer": best,
        "peer_seconds": peers.get(best) if best else None,
        "ratio": ratio,
        "met": None if value is None else value <= row.limit,
    }


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{1e3 * seconds:.4f}" if seconds < 1e-4 else f"{1e3 * seconds:.2f}"


def main() -> int:
    parser = options(__doc__)
    add_rounds(parser, 0)
    args = parser.parse_args()
    answers: dict[tuple[str, int | None], dict[str, Any]] = {}
    found = []
    for row in ROWS:
        for threads in row.threads:
            key = row.program, threads
            if key not in answers:
                note(f"{row.program}{f', {threads} threads' if threads else ''}")
                answers[key] = run(*key, args.rounds or None)
            found.append((row, threads, judge(row, answers[key]["seconds"].get(row.case, {}))))
    note("")
    rows = [["ms", "threads", "tack", "best peer", "", "ratio", "must be", "met"]]
    for row, threads, result in found:
        ratio = result["ratio"]
        rows.append(
            [
                row.work,
                str(threads or "-"),
                milliseconds(result["tack"]),
                milliseconds(result["peer_seconds"]),
                result["peer"] or "-",
                "-" if ratio is None else f"{ratio:.2f}",
                f"{row.limit:.2f}" if row.is_ratio else f"{row.limit:.0f} ms",
                {True: "yes", False: "no", None: "-"}[result["met"]],
            ]
        )
    missing = {name: why for answer in answers.values() for name, why in answer["missing"].items()}
    lines = ["Targets on the CPU", machine(), "", table(rows)]
    lines += [f"missing: {name}: {why}" for name, why in missing.items()]
    data = [{"work": row.work, "threads": threads, **result} for row, threads, result in found]
    publish(
        {"title": lines[0], "machine": machine(), "rows": data, "missing": missing},
        "\n".join(lines),
        args.json,
    )
    return int(any(ours(name) for name in missing))


if __name__ == "__main__":
    sys.exit(main())
