"""What an entry keeps of a kernel is the kernel: its IR, its places, and its launch range."""

from __future__ import annotations

import argparse
import ast
import inspect
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

import tack
from tack.ir.nodes import Expr
from tack.ir.nodes import Kernel as KernelIR
from tack.ir.printer import to_text
from tack.ir.traversal import walk
from tack.lang.lower import lower_kernel
from tack.lang.source import Source
from tack.runtime import native
from tack.runtime.bounds import compile_bounds
from tack.runtime.disk import content
from tack.runtime.disk.code import _pack, _unpack, from_sections, to_sections
from tack.runtime.launch import backend_of
from tack.runtime.ranges import range_data, range_function

HALF = tack.constant(0.5)
ODD = tack.constant((1, 3, 5))


@tack.func
def mean(a, b):
    if a > b:
        return (a + b) * HALF
    return a


@tack.kernel
def mixed(x, out, n: tack.i32) -> tack.f64:
    m = n - 1
    for i, j in tack.ndindex(m, x.shape[1]):
        v = tack.local_array(3, tack.f32)
        v[j % 3] = mean(x[i, j], 2.0) // (1 + j)
        if j > 2:
            print("row", i, v[j % 3])
        tack.atomic_add(out, i, ODD[j % 3] + v[j % 3])
    return out[0] * 2


@tack.kernel
def textured(t, out):
    for i in range(out.shape[0]):
        out[i] = t.sample(0.5, 0.5, float(i))


def typed(kernel: tack.Kernel, *args: Any) -> KernelIR:
    backend = backend_of(kernel, args)
    backend.compile(kernel, args)
    return next(iter(backend.cache[kernel].variants.values())).ir


def sources_in(form: KernelIR) -> list[Source]:
    """The functions that the form's places are in, but for Tack's own."""
    found: dict[int, Source] = {}
    for node in walk(form):
        loc = node.loc
        while loc is not None:
            found[id(loc.source)] = loc.source
            loc = loc.caller
    return [source for source in found.values() if source.name != "trilinear"]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kernel", [mixed, textured])
def test_text_and_places_come_back(kernel: tack.Kernel, debug: bool) -> None:
    args: tuple[Any, ...] = (np.zeros((4, 5), np.float32), np.zeros(4, np.float32), 4)
    if kernel is textured:
        args = (tack.Texture3D(tack.zeros((2, 3, 4))), tack.zeros(5))
    tack.set_debug(debug)
    try:
        forms = [lower_kernel(kernel), typed(tack.kernel(kernel.function), *args)]
    finally:
        tack.set_debug(False)
    for form in forms:
        used = sources_in(form)
        sections = to_sections(form, used)
        assert sections is not None
        back = from_sections(sections, used)
        assert to_text(back) == to_text(form)
        for old, new in zip(walk(form), walk(back), strict=True):
            assert place(old.loc) == place(new.loc)
            if form.typed and isinstance(old, Expr) and isinstance(new, Expr):
                assert old.type is new.type


def place(loc: Any) -> Any:
    if loc is None:
        return None
    return loc.source.name, loc.line, loc.col, loc.end_line, loc.end_col, place(loc.caller)


RANGES = {
    "range(x.shape[0])": True,
    "range(1, x.shape[0] - 1)": True,
    "range(n - 3, n * 2, 3)": True,
    "range(-n, len(x) // 2)": True,
    "range(min(n, x.shape[-1]), max(n, 7, x.size))": True,
    "tack.ndindex(n, x.ndim, 2)": True,
    "range(0, n, m)": False,  # a step of an argument is checked, with its place
    "range(int(n))": False,
}


@pytest.mark.parametrize("text", RANGES)
def test_launch_ranges_as_data(text: str, tmp_path: Any) -> None:
    import importlib.util

    path = tmp_path / "ranged.py"
    variables = "i, j, k" if "ndindex" in text else "i"
    body = f"    for {variables} in {text}:\n        x[0] = 1\n"
    path.write_text(f"import tack\n@tack.kernel\ndef ranged(x, n, m):\n{body}")
    spec = importlib.util.spec_from_file_location("ranged", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    template = lower_kernel(module.ranged)
    data = range_data(template)
    assert (data is not None) == RANGES[text]
    if data is not None:
        exact = compile_bounds(template)
        for size in (0, 1, 2, 9):
            for n in (-4, 0, 1, 5, 2**40):
                args = (tack.zeros(size), n, 2)
                assert range_function(data)(args) == exact(args)


@pytest.mark.parametrize(
    "data", [[["run", 0], 1, 1], [0, ["arg", "0); import os"], 1], [0, ["dim", 0, "x()"], 1]]
)
def test_data_brings_in_no_code(data: Any) -> None:
    with pytest.raises((ValueError, KeyError)):
        range_function([data])


@pytest.mark.parametrize("largest", [1, 2**15 - 1, 2**15, 2**31 - 1])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_places_are_packed_without_loss(largest: int, count: int) -> None:
    own = [["tack.lang.sampling", "trilinear"]]
    rows = [[k, -k, largest, 4, 5, k - 1] for k in range(count)]
    places = [-1, *range(count), largest]
    assert _unpack(_pack(own, rows, places)) == (own, [tuple(row) for row in rows], tuple(places))


MARGINS = '''\
def f(x):
    if x: return (1,
2)
    return x

def g(x):
    """A text
that goes on
"""

def h(a, b):
    return a.real + (
b
.imag)

class C:
    def m(self): pass
async def nothing(): ...
def wide():
''' + "\n" * 70 + "    return [\n" + "1,\n" * 300 + "]\n"  # fmt: skip


def _code_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _code_in(inner)


def test_the_last_line_of_code_is_that_of_its_positions() -> None:
    """The extension reads the interpreter's own table of lines, whose format is the interpreter's affair."""
    assert (native.module is not None and sys.version_info < (3, 15)) == content._READS_LINES
    texts = [MARGINS, *(Path(m.__file__).read_text() for m in (argparse, ast, inspect, tack.dtypes))]
    for text in texts:
        for code in _code_in(compile(text, "text", "exec")):
            ends = [end for _, end, _, _ in code.co_positions() if end is not None]
            assert content._last_line(code) == max(ends, default=0)


@pytest.mark.skipif(native.module is None, reason="needs the extension")
def test_no_table_of_lines_leads_astray() -> None:
    assert native.module is not None
    noise = random.Random(5)
    for length in range(40):
        for _ in range(200):
            last = native.module.last_line(noise.randbytes(length), 7)
            assert isinstance(last, int)  # whatever it says, it reads no further
    assert native.module.last_line(b"", 7) == 0
