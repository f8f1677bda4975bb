"""The inputs of pitfalls.md that apply to this version; numbers are that page's."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tack

from .helpers import Rejection, build, execute, launch, run, said, value, values

Rejects = Callable[..., Rejection]


# --- section 1: the probes --------------------------------------------------------------------


def test_floor_division_and_remainder_of_arrays() -> None:
    a, b = np.array([-7, 7, -7, -6], np.int32), np.array([2, -2, 3, 5], np.int32)
    q, r = np.zeros(4, np.int32), np.zeros(4, np.int32)
    run(
        """
            @tack.kernel
            def kernel(a, b, q, r):
                for i in range(4):
                    q[i] = a[i] // b[i]
                    r[i] = a[i] % b[i]
            """,
        a,
        b,
        q,
        r,
    )
    assert q.tolist() == [-4, -4, -3, -2]
    assert r.tolist() == [1, -1, 2, 4]


def test_minimum_and_maximum_with_nan() -> None:
    x = np.array([np.nan, 1.0])
    got = values(
        ["min(x[0], x[1])", "min(x[1], x[0])", "max(x[0], x[1])", "max(x[1], x[0])"], np.float64, x=x
    )
    assert got == [1, 1, 1, 1]
    assert math.isnan(value("min(x[0], x[0])", np.float64, x=x))


def test_truth_values_are_zero_and_one() -> None:
    x = np.array([3, -3], np.int32)
    setup = "b = x[0] > 0\nc = x[1] > 0\n"
    got = values(
        ["int(b)", "b + b", "not b", "b & c", "b | c", "-b", "b * 3.5", "b + c + (x[0] == 3)"],
        np.float64,
        setup=setup,
        x=x,
    )
    assert got == [1, 2, 0, 0, 1, -1, 3.5, 2]
    o = np.zeros(3, np.uint8)
    run(
        """
            @tack.kernel
            def kernel(o, x):
                for i in range(1):
                    o[0] = x[0] > 0
                    o[1] = True
                    o[2] = not x[0]
            """,
        o,
        x,
    )
    assert o.tolist() == [1, 1, 0]


def test_scalar_that_needs_64_bits() -> None:
    assert value("n", np.int64, n=2**40) == 2**40
    assert value("n + 1", np.int64, n=2**40) == 2**40 + 1
    assert (
        value("n * n", np.int64, n=100_000) == 100_000**2 - 2 * 2**32
    )  # i32, as section 5 of the language says
    assert value("tack.i64(n) * n", np.int64, n=100_000) == 10**10


def test_module_global_is_refused_not_stale(rejects: Rejects) -> None:
    rejects(
        NameError,
        "G = 1\n@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «G»\n",
        np.zeros(1),
    )


def test_strided_numpy_arrays_name_the_strides_and_the_fix() -> None:
    kernel = build("@tack.kernel\ndef kernel(x):\n    for i in range(x.shape[0]):\n        x[i] = 1\n")
    base = np.arange(24.0).reshape(4, 6)
    for view in (
        base[:, ::2],
        base.T,
        base[::-1],
        base[:, 0],
        np.asfortranarray(base),
        np.broadcast_to(np.zeros(1), (4,)),
        np.arange(10.0)[::2],
    ):
        before = view.copy()
        with pytest.raises(ValueError, match="x") as caught:
            launch(kernel, view)
        text = str(caught.value)
        assert "ascontiguousarray" in text or ".copy()" in text
        assert any(str(s) in text for s in view.strides)
        assert np.array_equal(view, before)


def test_extents_of_one_do_not_make_an_array_strided() -> None:
    kernel = build("@tack.kernel\ndef kernel(x):\n    for i in range(x.size):\n        x[i] += 1\n")
    for array in (
        np.zeros((5, 1), order="F"),
        np.zeros((1, 5), order="F"),
        np.zeros((1, 1)),
        np.zeros((0, 5), order="F"),
        np.zeros((5, 5))[:1],
        np.zeros((5, 5))[:, :1][:1],
        np.zeros(10)[::20],
        np.zeros(6)[2:5],
    ):
        expected = array + 1
        launch(kernel, array)
        assert np.array_equal(array, expected)


def test_read_only_arrays_are_refused_by_name_only_if_written() -> None:
    kernel = build(
        """
            @tack.kernel
            def kernel(source, sink):
                for i in range(sink.shape[0]):
                    sink[i] = source[i] + 1
            """
    )
    locked, free = np.zeros(3), np.zeros(3)
    locked.flags.writeable = False
    launch(kernel, locked, free)
    assert free.tolist() == [1, 1, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="sink"):
            launch(kernel, free, locked)
    assert locked.tolist() == [0, 0, 0]
    through_a_function = build(
        """
            @tack.func
            def put(a, v):
                a[0] = v
            @tack.kernel
            def kernel(sink):
                for i in range(1):
                    put(sink, 3)
            """
    )
    with pytest.raises(ValueError, match="sink"):
        launch(through_a_function, locked)


def test_numpy_booleans_as_scalars() -> None:
    assert values(["a", "b"], np.int32, a=np.True_, b=np.False_) == [1, 0]


def test_zero_length_arrays() -> None:
    kernel = build(
        """
            @tack.kernel
            def kernel(x, n):
                for i, j in tack.ndindex(x.shape[0], x.shape[1]):
                    x[i, j] = n
            """
    )
    for shape in ((0, 3), (3, 0), (0, 0)):
        launch(kernel, np.zeros(shape), 1)
        launch(kernel, np.zeros(shape), 1)


def test_bad_kernel_fails_every_time(rejects: Rejects) -> None:
    rejects(
        NameError, "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «yy»\n", np.zeros(1)
    )


def test_good_call_after_a_bad_one_and_back() -> None:
    kernel = build("@tack.kernel\ndef kernel(o, x):\n    for i in range(1):\n        o[i] = x[i] & 3\n")
    o = np.zeros(1)
    for _ in range(2):
        with pytest.raises(TypeError):
            launch(kernel, o, np.ones(1))
        launch(kernel, o, np.array([7]))
        assert o[0] == 3


# --- section 2 --------------------------------------------------------------------------------


def test_18_closure_values_are_the_kernels_own() -> None:
    source = """
        def factory(c):
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = c
            return kernel
        kernels = [factory(tack.constant(n)) for n in (1, 2, 3)]
        """
    o = np.zeros(1)
    for kernel, expected in zip(build(source, "kernels"), (1, 2, 3), strict=True):
        launch(kernel, o)
        assert o[0] == expected


def test_15_redefining_a_kernel_in_a_notebook_cell() -> None:
    o = np.zeros(1)
    for number in (1, 2, 3):
        space = execute(
            f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = {number}\n",
            "<ipython-input-7-redefined>",
        )
        launch(space["kernel"], o)
        assert o[0] == number


def test_11_local_and_global_with_one_name() -> None:
    o = np.zeros(2)
    run(
        """
            e = tack.constant(5)
            @tack.func
            def f(a):
                return a + e
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    e = 100
                    o[0] = e
                    o[1] = f(e)
            """,
        o,
    )
    assert o.tolist() == [100, 105]


def test_25_u64_with_i64_is_refused(rejects: Rejects) -> None:
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o, u, n):\n    for i in range(1):\n        z = «u[0] + n\n",
        np.zeros(1),
        np.zeros(1, np.uint64),
        3,
    )


def test_32_unused_scalar_past_32_bits() -> None:
    o = np.zeros(1)
    run("@tack.kernel\ndef kernel(o, numel):\n    for i in range(1):\n        o[i] = 1\n", o, 2**33)
    assert o[0] == 1


@pytest.mark.parametrize("number", [42.0, math.nan, 0.1])
@pytest.mark.f64
def test_29_float_scalars_reach_both_precisions(number: float) -> None:
    for dtype in (np.float32, np.float64):
        o = np.zeros(1, dtype)
        run("@tack.kernel\ndef kernel(o, s):\n    for i in range(1):\n        o[i] = s\n", o, number)
        assert np.array_equal(o, np.array([number], dtype), equal_nan=True)


def test_30_double_array_for_a_pinned_or_narrow_use() -> None:
    kernel = build("@tack.kernel\ndef kernel(x: tack.f32):\n    for i in range(1):\n        v = x\n")
    with pytest.raises(TypeError, match="x"):
        launch(kernel, np.zeros(2))


def test_34_all_sign_pairs() -> None:
    pairs = [(a, b) for a in (-7, -1, 0, 1, 7) for b in (-3, -1, 1, 3)]
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.float32, np.float64):
        a, b = (np.array(v, dtype) for v in zip(*pairs, strict=True))
        q, r = np.zeros(len(pairs), dtype), np.zeros(len(pairs), dtype)
        run(
            """
                @tack.kernel
                def kernel(a, b, q, r):
                    for i in range(a.shape[0]):
                        q[i] = a[i] // b[i]
                        r[i] = a[i] % b[i]
                """,
            a,
            b,
            q,
            r,
        )
        assert q.tolist() == [x // y for x, y in pairs]
        assert r.tolist() == [x % y for x, y in pairs]
        assert np.array_equal(a, q * b + r)


def test_36_round_and_integer_power() -> None:
    got = values(
        ["round(0.5)", "round(1.5)", "round(2.5)", "round(-0.5)", "3 ** 4", "k ** 4", "2.0 ** -1"],
        np.float64,
        k=3,
    )
    assert got == [0, 2, 2, -0.0, 81, 81, 0.5]


def test_45_lazy_arms_guard_loads() -> None:
    x = np.arange(4, dtype=np.int32)
    o = np.zeros(6, np.int32)
    run(
        """
            @tack.kernel
            def kernel(o, x, n, far):
                for i in range(6):
                    k = i if i < n else far
                    o[i] = x[k] if k < n else -1
                    if k < n and x[k] > 1:
                        o[i] += 100
            """,
        o,
        x,
        4,
        2**45,
    )
    assert o.tolist() == [0, 1, 102, 103, -1, -1]


def test_49_row_offsets_past_two_to_the_31() -> None:
    x = np.zeros((70_000, 40_000), np.uint8)  # 2.8 GB of address space, a few pages touched
    run(
        """
            @tack.kernel
            def kernel(x, r, c):
                for i in range(1):
                    x[r, c] = 7
                    x[r, 0] = x[r, c] + 1
            """,
        x,
        69_999,
        39_999,
    )
    assert x[69_999, 39_999] == 7
    assert x[69_999, 0] == 8


def test_62_compile_time_does_not_explode_with_array_length() -> None:
    import os

    times = []
    for n in (64, 4096):
        start = sum(os.times()[:4])  # of processors, with the compilers that are programs
        o = np.zeros(1, np.int64)
        run(
            f"""
                @tack.kernel
                def kernel(o):
                    for i in range(1):
                        a = tack.local_array({n}, tack.i64)
                        for k in range({n}):
                            a[k] = k
                        s = 0
                        for k in range({n}):
                            s += a[k] * a[{n} - 1 - k]
                        o[0] = s
                """,
            o,
        )
        times.append(sum(os.times()[:4]) - start)
        assert o[0] == sum(k * (n - 1 - k) for k in range(n))
    assert times[1] < 2.0


def test_63_five_hundred_statements() -> None:
    lines = "".join(
        f"        v = v * 3 % 100003 + x[{k % 4}] - {k}\n"
        f"        if v > {k * 1000}:\n            v = v % 1000\n"
        for k in range(250)
    )
    x, o = np.array([1, 2, 3, 4]), np.zeros(1, np.int64)
    run(
        f"@tack.kernel\ndef kernel(o, x):\n    for i in range(1):\n        v = 1\n{lines}        o[0] = v\n",
        o,
        x,
    )
    v = 1
    for k in range(250):
        v = v * 3 % 100003 + int(x[k % 4]) - k
        if v > k * 1000:
            v %= 1000
    assert o[0] == v


def test_88_threads_launch_the_same_parallel_kernel() -> None:
    kernel = build("@tack.kernel\ndef kernel(x):\n    for i in range(x.shape[0]):\n        x[i] += i\n")
    arrays = [np.zeros(50_000, np.int64) for _ in range(8)]

    def work(x: np.ndarray) -> None:
        for _ in range(100):
            launch(kernel, x)

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x in arrays:
        assert np.array_equal(x, np.arange(50_000) * 100)


CHILD = """
import os, sys, threading
import numpy as np, tack

@tack.kernel
def kernel(x):
    for i in range(x.shape[0]):
        x[i] += i

x = np.zeros(1 << 20, np.int64)
kernel(x)
status = []
def fork():
    child = os.fork()
    if child == 0:
        y = np.zeros(1 << 20, np.int64)
        kernel(y)
        os._exit(0 if np.array_equal(y, np.arange(1 << 20)) else 3)
    status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
fork()
t = threading.Thread(target=fork); t.start(); t.join()
kernel(x)
assert np.array_equal(x, 2 * np.arange(1 << 20))
print(status)
"""


def test_89_fork_after_a_launch(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    env = {**os.environ, "PYTHONPATH": str(Path(tack.__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "child.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout.strip() == "[0, 0]", result.stderr


def test_108_misspelled_module_attributes_get_a_suggestion(rejects: Rejects) -> None:
    found = rejects(
        (NameError, tack.UnsupportedSyntaxError),
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «tack.sqroot(2.0)\n",
        np.zeros(1),
    )
    assert "sqroot" in found.text
    found = rejects(
        (NameError, tack.UnsupportedSyntaxError),
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «math.sine(2.0)\n",
        np.zeros(1),
    )
    assert "sine" in found.text
    nested = types.SimpleNamespace(tid=3)
    rejects(
        (NameError, tack.UnsupportedSyntaxError),
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «lib.foo.bar.sin(1.0)\n",
        np.zeros(1),
        lib=nested,
    )


def test_115_prints_of_many_iterations_and_special_floats(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = build(
        """
            @tack.kernel
            def kernel(x):
                for i in range(x.shape[0]):
                    if i % 1000 == 0:
                        print(i, x[i])
            """
    )
    x = np.zeros(200_000, np.float32)
    x[[0, 1000, 2000]] = [np.nan, np.inf, -np.inf]
    launch(kernel, x)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(said(["a line"] * 200))
    assert set(said(["0 nan", "1000 inf", "2000 -inf", "199000 0.0"])) <= set(lines)


def test_117_lists_and_closures_are_errors_not_zeros(rejects: Rejects) -> None:
    rejects(
        (tack.UnsupportedSyntaxError, TypeError),
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        v = «[]\n        v.append(1)\n",
        np.zeros(1),
    )


def test_exceptions_leave_no_python_frames_of_the_compiler_in_the_message(rejects: Rejects) -> None:
    found = rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «o[i] & 1\n",
        np.zeros(1),
    )
    assert "Traceback" not in found.text
    assert "llvm" not in found.text.lower()


def test_arguments_of_every_foreign_kind() -> None:
    kernel = build("@tack.kernel\ndef kernel(x, n):\n    for i in range(1):\n        x[i] = n\n")
    big: Any = np.zeros(4, ">f8")
    for bad in (
        big,
        np.zeros(4, "S4"),
        np.zeros(4, "datetime64[s]"),
        np.zeros(4, object),
        np.ma.zeros(3).filled(0).astype(np.float16),
        np.zeros(3, np.complex64),
        np.zeros(3, [("a", "f4")]),
    ):
        with pytest.raises(TypeError, match="x"):
            launch(kernel, bad, 1)
