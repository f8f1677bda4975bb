"""Debug mode: planted faults are found and named exactly, and correct kernels report none."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tack


@pytest.fixture(autouse=True)
def debug_mode() -> Iterator[None]:
    tack.set_debug(True)
    yield
    tack.set_debug(False)


def place(error: BaseException) -> tuple[int, int]:
    """Line and column of a diagnostic."""
    found = re.search(r"--> .*:(\d+):(\d+)\n", str(error))
    assert found is not None, str(error)
    return int(found[1]), int(found[2])


def line_of(kernel: tack.Kernel, marker: str) -> tuple[int, int]:
    """Line and column of the first occurrence of ``marker`` in a kernel's or func's source."""
    source = kernel.source
    for number in range(source.first, len(source.lines) + 1):
        column = source.lines[number - 1].find(marker)
        if column >= 0:
            return number, column + 1
    raise AssertionError(marker)


def caught(kernel: tack.Kernel, *args: Any, error: type[Exception] = IndexError) -> Exception:
    with pytest.raises(error) as info:
        kernel(*args)
    assert f"kernel '{kernel.__name__}'" in str(info.value)
    return info.value


@tack.kernel
def load(x, o, at):
    for i in range(o.shape[0]):
        o[i] = x[i + at]


@tack.kernel
def store(x, o, at):
    for i in range(x.shape[0]):
        o[i + at] = x[i]


@tack.kernel
def update(x, o, at):
    for i in range(x.shape[0]):
        tack.atomic_add(o, i + at, x[i])


@pytest.mark.parametrize("n", [1, 7, 300])
@pytest.mark.parametrize("at", [-3, -1, 1, 5, 10**12])
@pytest.mark.parametrize("kernel", [load, store, update], ids=lambda k: k.__name__)
def test_one_index(kernel: tack.Kernel, at: int, n: int) -> None:
    x, o = np.ones(n, np.float32), np.zeros(n, np.float32)
    error = caught(kernel, x, o, at)
    first = next(i for i in range(n) if not 0 <= i + at < n)
    name = "x" if kernel is load else "o"
    assert (
        f"index {first + at} is out of range for '{name}', whose extent is {n}, in iteration {first}"
        in str(error)
    )
    marker = {"load": "x[i + at]", "store": "o[i + at]", "update": "tack.atomic_add"}[kernel.__name__]
    assert place(error) == line_of(kernel, marker)
    expected = np.zeros(n, np.float32)
    inside = [i for i in range(n) if 0 <= i + at < n]
    expected[[i if kernel is load else i + at for i in inside]] = 1
    np.testing.assert_array_equal(o, expected)


@tack.kernel
def axes(a, o, i0, j0, k0):
    for _ in range(1):
        o[0] = a[i0, j0, k0]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("past", [False, True])
def test_each_axis(axis: int, past: bool) -> None:
    a = np.zeros((4, 5, 6), np.int16)
    index = [1, 1, 1]
    index[axis] = a.shape[axis] if past else -1
    error = caught(axes, a, np.zeros(1), *index)
    assert (
        f"index {index[axis]} is out of range for 'a', whose extent along axis {axis} is {a.shape[axis]}"
        in str(error)
    )


def test_a_flat_index_has_the_whole_size() -> None:
    @tack.kernel
    def flat(a, o, at):
        for _ in range(1):
            o[0] = a[at]

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    o = np.zeros(1, np.float32)
    flat(a, o, 5)
    assert o[0] == 5
    assert "index 6 is out of range for 'a', whose extent is 6" in str(caught(flat, a, o, 6))


@tack.func
def pick(a, i):
    return a[i]


def test_inside_a_device_function_with_its_chain() -> None:
    @tack.kernel
    def outer(x, o):
        for i in range(o.shape[0]):
            o[i] = pick(x, i + 1)

    error = caught(outer, np.zeros(4), np.zeros(4))
    assert place(error) == line_of(pick, "a[i]")
    assert "in func 'pick', called from kernel 'outer', at " in str(error)
    assert "in iteration 3" in str(error)


def test_the_last_iteration_of_a_large_launch() -> None:
    n = 1_000_000
    error = caught(load, np.zeros(n - 1, np.float32), np.zeros(n, np.float32), 0)
    assert f"in iteration {n - 1}" in str(error)


def test_iterations_of_ndindex_are_tuples() -> None:
    @tack.kernel
    def grid(a):
        for i, j in tack.ndindex((2, 6), (1, 5)):
            a[i, j] = 1

    error = caught(grid, np.zeros((6, 4), np.float32))
    assert "index 4 is out of range for 'a', whose extent along axis 1 is 4, in iteration (2, 4)" in str(
        error
    )


def test_local_arrays() -> None:
    @tack.kernel
    def local(o, at):
        for i in range(o.shape[0]):
            buf = tack.local_array((2, 3), tack.f32)
            for j in range(6):
                buf[j] = j
            o[i] = buf[1, at]

    o = np.zeros(3, np.float32)
    local(o, 2)
    np.testing.assert_array_equal(o, 5)
    assert "index 3 is out of range for 'buf', whose extent along axis 1 is 3" in str(caught(local, o, 3))


def test_arrays_of_vectors() -> None:
    @tack.kernel
    def shift(v, o):
        for i in range(o.shape[0]):
            o[i] = v[i + 1]

    error = caught(shift, tack.ones(4, tack.vec3), tack.zeros(4, tack.vec3))
    assert "index 4 is out of range for 'v'" in str(error)


def test_methods_and_attributes_of_device_classes() -> None:
    @tack.device_class
    class Table:
        def __init__(self, data: tack.Array) -> None:
            self.data = data

        @tack.func
        def at(self, i):
            return self.data[i]

    @tack.kernel
    def read(t, o):
        for i in range(o.shape[0]):
            o[i] = t.at(i)

    error = caught(read, Table(tack.ones(3)), np.zeros(5, np.float32))
    assert "index 3 is out of range for 't.data', whose extent is 3, in iteration 3" in str(error)


@pytest.mark.parametrize("op", ["//", "%"])
def test_integer_division_by_zero(op: str) -> None:
    @tack.kernel
    def floor(o, n):
        for i in range(o.shape[0]):
            o[i] = 7 // (i - n)

    @tack.kernel
    def modulo(o, n):
        for i in range(o.shape[0]):
            o[i] = 7 % (i - n)

    kernel = floor if op == "//" else modulo
    o = np.zeros(9, np.int32)
    kernel(o, 9)
    error = caught(kernel, o, 4, error=ZeroDivisionError)
    assert "integer division by zero, in iteration 4" in str(error)
    assert place(error) == line_of(kernel, f"7 {op}")


def test_guards_keep_checks_from_running() -> None:
    @tack.kernel
    def guarded(x, o):
        for i in range(o.shape[0]):
            o[i] = x[i] if i < x.shape[0] else 0
            if i > 0 and 6 // i > 5:
                o[i] += 1

    o = np.zeros(8, np.float32)
    guarded(np.ones(3, np.float32), o)
    np.testing.assert_array_equal(o, [1, 2, 1, 0, 0, 0, 0, 0])


def test_outside_the_loop() -> None:
    @tack.kernel
    def before(x, o):
        first = x[5]
        for i in range(o.shape[0]):
            o[i] = first

    @tack.kernel
    def after(x, o) -> float:
        for i in range(o.shape[0]):
            o[i] = 1
        return x[5]

    for kernel in (before, after):
        error = caught(kernel, np.ones(3, np.float32), np.zeros(2, np.float32))
        assert "index 5 is out of range for 'x', whose extent is 3, outside the parallel loop" in str(error)


def test_races_name_both_iterations() -> None:
    @tack.kernel
    def clash(o, m):
        for i in range(20):
            o[i % m] = i

    o = np.zeros(20, np.int32)
    clash(o, 7)  # not looked for
    tack.set_debug(True, races=True)
    clash(o, 20)
    error = caught(clash, o, 7, error=RuntimeError)
    assert "iterations 0 and 7 both store to element 0 of 'o'" in str(error)
    assert place(error) == line_of(clash, "o[i % m]")

    @tack.kernel
    def own(o):
        for i in range(o.shape[0]):
            o[i] = 1
            o[i] += 2
            tack.atomic_add(o, 0, 1)

    own(o)


def test_the_mode_has_variants_of_its_own_and_leaves_the_others_text_alone() -> None:
    x, o = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for mode in ("ir", "source", "optimized"):
        tack.set_debug(False)
        plain = tack.inspect(load, x, o, 0, mode=mode)
        assert "debug" not in plain
        tack.set_debug(True)
        debugging = tack.inspect(load, x, o, 0, mode=mode)
        assert debugging != plain
        assert "debug" in debugging or mode != "ir"
        tack.set_debug(False)
        assert tack.inspect(load, x, o, 0, mode=mode) == plain
        load(x, o, 0)
    from tack.runtime.dispatch import default_backend

    variants = default_backend().cache[load].variants
    tack.set_debug(True)
    before = len(variants)
    load(x, o, 0)
    load(np.zeros(9, np.float32), np.zeros(9, np.float32), 0)
    assert len(variants) <= before + 1  # lengths are read at run time


def test_the_environment_variable() -> None:
    code = (
        "import tack, numpy as np, linecache\n"
        "src = '@tack.kernel\\ndef k(x):\\n    for i in range(9):\\n        x[i] = 1\\n'\n"
        "linecache.cache['k.py'] = (len(src), None, src.splitlines(True), 'k.py')\n"
        "exec(compile(src, 'k.py', 'exec'))\n"
        "try: k(np.zeros(4))\n"
        "except IndexError: print('caught')\n"
    )
    path = {"PYTHONPATH": str(__import__("pathlib").Path(tack.__file__).parents[1])}
    for value, expected in (("1", "caught"), ("on", "caught")):
        env = {**__import__("os").environ, **path, "TACK_DEBUG": value}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


def test_dimensions_that_no_index_shows_are_part_of_the_key() -> None:
    @tack.kernel
    def k(a, b, out):
        for i in range(a.size):
            out[i] = b[0]

    b, out = np.ones(1, np.float32), np.zeros(9, np.float32)
    k(np.zeros(9, np.float32), b, out)
    k(np.zeros((3, 3), np.float32), b, out)
    error = caught(k, np.zeros((5, 2), np.float32), b, out)
    assert "index 9 is out of range for 'out', whose extent is 9" in str(error)
