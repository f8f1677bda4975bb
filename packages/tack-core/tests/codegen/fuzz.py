"""Generated kernels: compiled code, whole and in parts, against the interpreter of the IR.

``python -m codegen.fuzz integers 10000``, run in the tests' folder, tries that many kernels. It is
a program of its own because wrong code may crash the process. With ``cuda`` as third argument it runs
emulated CUDA C, with ``cuda-checked`` such that undefined behaviour ends the process. ``metal`` is MSL, which
takes ``integers`` and ``singles``.
"""

from __future__ import annotations

import faulthandler
import functools
import math
import random
import sys
from typing import Any

import numpy as np
from emulated import compiler
from emulated.harness import Emulated, EmulatedMsl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ir.strategies import arguments, kernels, launches

from codegen.harness import Compiled, Printed
from tack.codegen.llvm import print_sites
from tack.dtypes import ALL_DTYPES, f32, f64, i32
from tack.ir import interpreter
from tack.ir import nodes as ir
from tack.ir.printer import to_text
from tack.ir.traversal import replace, walk

# With floats only what has one right answer: nothing that may be fused (mul), that rounds in its
# own way, or that shows which NaN or zero it is.
EXACT = (
    "sqrt",
    "fmod",
    "floor",
    "ceil",
    "round",
    "trunc",
    "abs",
    "isnan",
    "isinf",
    "isfinite",
    "any",
    "where",
)
FLOAT_OPERATORS = ("add", "sub", "div", "floordiv", "mod", "shl", "shr", "bitand", "bitor", "bitxor")
KERNELS = {
    "integers": kernels(dtypes=[d for d in ALL_DTYPES if d.is_integer]),
    "floats": kernels(dtypes=(f32, f64, i32), functions=EXACT, binary=FLOAT_OPERATORS),
    "singles": kernels(dtypes=(f32, i32), functions=EXACT, binary=FLOAT_OPERATORS),
}


def shows_nan_or_zero(node: ir.Node) -> bool:
    """Whether a float's bits beyond its value could show: a NaN's sign, or that of min(0, -0)."""
    if isinstance(node, ir.Bitcast):
        return node.operand.type is not node.type
    return isinstance(node, ir.Atomic) and node.op in ("min", "max", "exchange")


def rereads(kernel: ir.Kernel) -> bool:
    """Whether ``before`` or ``after`` loads what the loop changes, so that it matters when they run."""
    changed = {n.array for n in walk(kernel.loop) if isinstance(n, ir.Store | ir.Atomic)}
    return any(isinstance(n, ir.Load) and n.array in changed for s in kernel.before for n in walk(s))


# The generators, by what a command line calls them.
TARGETS = {
    "cpu": Compiled,
    "cuda": Emulated,
    "cuda-checked": functools.partial(Emulated, options=compiler.CHECKED),
    "hip": functools.partial(Emulated, wavefront=32),
    "hip-64": functools.partial(Emulated, wavefront=64),
    "metal": EmulatedMsl,
}


def runs_on(target: str, kernel: ir.Kernel) -> bool:
    """Whether ``target`` compiles ``kernel``, and its result does not depend on when ``before`` runs."""
    if target == "cpu":
        return True
    dtypes = {p.name: p.type.dtype for p in kernel.params if isinstance(p.type, ir.Array)}
    atomics = [dtypes[n.array] for n in walk(kernel) if isinstance(n, ir.Atomic)]
    if target == "metal" and any(isinstance(n, ir.Print) for n in walk(kernel)):
        return False
    taken = (32,) if target == "metal" else (32, 64)
    return all(dtype.bits in taken for dtype in atomics) and not rereads(kernel)  # every thread runs it


def fitting(bounds: ir.Range, launch: tuple[int, int, int]) -> tuple[int, int, int]:
    """``launch`` with the start and step that are constants of the kernel, as the host passes them."""
    start, step, count = launch
    start = int(bounds.start.value) if isinstance(bounds.start, ir.Const) else start
    step = int(bounds.step.value) if isinstance(bounds.step, ir.Const) else step
    return start, step, count


def same(a: Any, b: Any) -> bool:
    """Equal numbers, lists of numbers, or arrays; NaN equals NaN, and zeros differ in sign."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return same(a.ravel().tolist(), b.ravel().tolist())
    if isinstance(a, float) and isinstance(b, float):
        return repr(a) == repr(b) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def check(kernel: ir.Kernel, data: st.DataObject, target: str) -> None:
    args = data.draw(arguments(kernel))
    launch = [fitting(*part) for part in zip(kernel.loop.ranges, data.draw(launches(kernel)), strict=True)]
    if target != "cpu":  # a thread may have several rows, and the iterations of generated kernels race
        launch = [*((start, step, min(count, 1)) for start, step, count in launch[:-1]), launch[-1]]
    expected = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in args.items()}
    lines: list[str] = []
    result = interpreter.run(kernel, expected, launch, lines.append)
    total = math.prod(count for _, _, count in launch)
    cuts = sorted(random.Random(total).choices(range(total + 1), k=2))
    fixed = not rereads(kernel)
    printed: list[Printed] = []
    compiled = TARGETS[target](kernel)
    found = compiled(args, launch, (0, *cuts, total) if fixed else None, printed)
    for name, array in expected.items():
        if isinstance(array, np.ndarray):
            assert same(args[name], array), (name, args[name], array)
    assert not fixed or same(found, result), (found, result)
    assert [line(kernel, *p) for p in printed] == lines


def line(kernel: ir.Kernel, site: int, values: list[int | float]) -> str:
    """The text of one print."""
    rest = iter(values)
    texts = []
    for part in print_sites(kernel)[site].parts:
        value = part if isinstance(part, str) else next(rest)
        texts.append(str(np.float32(value) if isinstance(part, ir.Expr) and part.type is f32 else value))
    return "".join(texts)


def main(kind: str, count: int, target: str = "cpu") -> None:
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(KERNELS[kind], st.data())
    def run(kernel: ir.Kernel, data: st.DataObject) -> None:
        if kind != "integers":
            kernel = replace(kernel, fastmath=False)
            if any(map(shows_nan_or_zero, walk(kernel))):
                return
        if not runs_on(target, kernel):
            return
        nonlocal tried, latest
        tried, latest = tried + 1, kernel
        try:
            check(kernel, data, target)
        except Exception:
            print(to_text(kernel))
            raise

    tried, latest = 0, None
    faulthandler.enable()
    run()
    print(f"{tried} kernels agree")
    assert tried > count / 4, "too few kernels could be compared"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
