"""Code for AArch64, which is compiled here and not run: math functions are vector code there too."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own, since it takes the place of this machine.
SCRIPT = """
import sys
import llvmlite.binding as llvm
from tack.codegen.llvm import generate, jit
from tack.ir.parser import parse

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
host = jit._host()
host._own.machine = target.create_target_machine(cpu="neoverse-n1", opt=2, reloc="pic", codemodel="small")
host.__dict__["layout"] = str(host.machine.target_data)
text = '''kernel k(x: f32[], y: f32[]) {
  local i: i64
  parallel i in (0, dim(x, 0), 1) {
    y[%i] = VALUE
  }
}
'''
kernel = parse(text.replace("VALUE", sys.argv[1]))
print(jit.assembly(generate(kernel, disjoint=True)))
"""


@pytest.mark.parametrize("function", ["sin", "cos", "exp", "log", "tanh", "erf"])
def test_math_functions_are_vector_code(function: str) -> None:
    command = [sys.executable, "-c", SCRIPT, f"call.{function}(x[%i])"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    fused = [line for line in lines if line and line[0] in ("fmla", "fmls") and ".4s" in line[1]]
    assert len(fused) >= 4
    # The C library is asked for the sine and cosine of huge arguments only.
    calls = [line for line in lines if line and line[0] == "bl" and line[1].startswith(function)]
    assert not calls or function in ("sin", "cos")
