"""Memory that dropped kernels leave behind: resident size after 100 distinct ones and after 1,000."""

import gc
import linecache
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, note, options, publish, table

LIMIT = 1.2  # how much the larger figure may exceed the smaller

SOURCE = """\
import tack

@tack.kernel
def kernel_{n}(x, out, scale):
    for i in range(x.shape[0]):
        value = x[i] * scale
        for k in range({n} % 7 + 1):
            value = value * {n}.5 + k
        out[i] = value if value > {n} else -value
"""


def resident_mib() -> float:
    """The memory of this process that is in RAM, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def compile_and_drop(n: int) -> None:
    """Compiles kernel number ``n``, runs it once, checks one element, and lets go of it."""
    name = f"<memory benchmark {n}>"
    source = SOURCE.format(n=n)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    x, out = np.full(64, 2.0, np.float32), np.zeros(64, np.float32)
    namespace[f"kernel_{n}"](x, out, 0.5)
    value = np.float32(1)
    for k in range(n % 7 + 1):
        value = np.float32(value * np.float32(n + 0.5) + np.float32(k))
    expected = value if value > n else -value
    assert np.allclose(out, expected, rtol=1e-4), (n, out[0], expected)
    del linecache.cache[name]


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--kernels", type=int, default=1000, help="how many kernels to compile")
    args = parser.parse_args()
    marks: dict[int, float] = {0: resident_mib()}
    for n in range(1, args.kernels + 1):
        compile_and_drop(n)
        if n in (100, args.kernels):
            gc.collect()
            marks[n] = resident_mib()
            note(f"{n} kernels: {marks[n]:.0f} MiB")
    note("")
    growth = marks[args.kernels] / marks[min(100, args.kernels)]
    verdict = "within" if growth <= LIMIT else "ABOVE"
    rows = [["kernels compiled", "resident MiB"], *([str(n), f"{mib:.1f}"] for n, mib in marks.items())]
    text = f"""\
Memory after compiling and dropping distinct kernels
{machine()}

{table(rows)}
growth {growth:.3f}, {verdict} the limit of {LIMIT}"""
    results = {
        "title": "Memory",
        "machine": machine(),
        "resident_mib": marks,
        "growth": growth,
        "limit": LIMIT,
    }
    publish(results, text, args.json)
    return int(growth > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
