"""Code for processors with AVX-512 is compiled, wherever the tests run, and not run: LLVM's own assertions
must not end the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import tack
from tack.codegen.llvm import jit

@tack.kernel
def block_maximum(u, tops):
    for a, b in tack.ndindex(tops.shape[0], tops.shape[1]):
        top = u[a * 4, b * 4, 0]
        for i in range(max((a - 1) * 4, 0), min((a + 2) * 4 + 1, u.shape[0])):
            for j in range(max((b - 1) * 4, 0), min((b + 2) * 4 + 1, u.shape[1])):
                top = max(top, u[i, j, 0])
        tops[a, b, 0] = top

@tack.kernel
def row_maximum_30(x, y):
    for i in range(y.shape[0] // 64):
        m = x[i]
        for k in range(30):
            m = max(m, x[i * 40 + k])
        y[i] = m

@tack.kernel
def row_maximum_36(x, y):
    for i in range(y.shape[0] // 64):
        m = x[i]
        for k in range(36):
            m = max(m, x[i * 40 + k])
        y[i] = m

arrays = tack.empty((20, 22, 18)), tack.empty((5, 6, 5)), tack.empty(5000), tack.empty(6400)
host = jit._host()
host.cpu, host.features = sys.argv[1], ""
print("zmm" in tack.inspect(block_maximum, *arrays[:2], mode="asm"))
for kernel in (row_maximum_30, row_maximum_36):
    print("zmm" in tack.inspect(kernel, *arrays[2:], mode="asm"))
"""


@pytest.mark.parametrize("cpu", ["znver4", "sapphirerapids"])
def test_maxima_of_few_elements(cpu: str, tmp_path: object) -> None:
    """Loops of which a small bound is known: the vectorizer disagreed with itself on their best width."""
    program = f"{tmp_path}/program.py"
    with open(program, "w") as file:
        file.write(PROGRAM)
    done = subprocess.run([sys.executable, program, cpu], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    assert len(done.stdout.split()) == 3
