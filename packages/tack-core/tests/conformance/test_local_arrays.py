"""language.md section 10: arrays private to each iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, run

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_local_array_of_every_type_is_private(name: str) -> None:
    n = 20_000
    o = np.zeros((n, 3), oracle.numpy_dtype(name))
    run(
        f"""
        @tack.kernel
        def kernel(o):
            for i in range(o.shape[0]):
                a = tack.local_array(8, tack.{name})
                for k in range(8):
                    a[k] = i + k
                for k in range(7):
                    a[k + 1] += a[k]
                o[i, 0] = a[0]
                o[i, 1] = a[7]
                o[i, 2] = a[i % 8]
        """,
        o,
    )
    dtype = oracle.numpy_dtype(name)
    i = np.arange(n, dtype=np.int64)
    sums = np.cumsum([i + k for k in range(8)], axis=0)
    if name[0] == "f":
        assert np.array_equal(o[:, 1], sums[7].astype(dtype))
    else:
        assert o[:, 1].tolist() == [oracle.wrap(name, int(v)) for v in sums[7]]
        assert o[:, 2].tolist() == [oracle.wrap(name, int(sums[k % 8, k])) for k in range(n)]
    assert o[:200, 0].tolist() == i.astype(dtype)[:200].tolist()


def test_sizes_from_literals_constants_and_dimensions() -> None:
    x = np.zeros((3, 5), np.int32)
    o = np.zeros(4, np.int64)
    run(
        """
        N = tack.constant(4)
        @tack.kernel
        def kernel(o, x):
            for i in range(1):
                a = tack.local_array(N * 2 + 1, tack.i32)
                b = tack.local_array((2, N), tack.f32)
                c = tack.local_array(x.shape[1], tack.u8)
                d = tack.local_array((x.shape[0] + 1, 2), tack.i64)
                for k in range(9):
                    a[k] = k
                for r, k in tack.ndindex(2, 4):
                    b[r, k] = r * 10 + k
                for k in range(5):
                    c[k] = 250 + k * 2
                for r, k in tack.ndindex(4, 2):
                    d[r, k] = r * 100 + k
                o[0] = a[8] + a[3]
                o[1] = b[1, 3] * 100 + b[0, 1]
                o[2] = c[4] * 1000 + c[0]
                o[3] = d[3, 1] + d[6]
        """,
        o,
        x,
    )
    assert o.tolist() == [11, 1301, 2 * 1000 + 250, 301 + 300]


@pytest.mark.parametrize("dtype", ["np.float32", '"float32"', "tack.f32", '"f4"'])
def test_dtype_forms(dtype: str) -> None:
    o = np.zeros(1)
    run(
        f"""
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    a = tack.local_array(2, {dtype})
                    a[0] = 0.1
                    o[0] = a[0]
            """,
        o,
    )
    assert o[0] == float(np.float32(0.1))


def test_declared_outside_the_loop_is_still_private() -> None:
    n = 50_000
    o = np.zeros(n, np.int64)
    run(
        """
        @tack.kernel
        def kernel(o):
            a = tack.local_array(4, tack.i64)
            for i in range(o.shape[0]):
                for k in range(4):
                    a[k] = i * k
                s = 0
                for k in range(4):
                    s += a[3 - k]
                o[i] = s
        """,
        o,
    )
    assert np.array_equal(o, np.arange(n) * 6)


def test_in_a_device_function_and_passed_down() -> None:
    o = np.zeros(6, np.int64)
    run(
        """
        @tack.func
        def sort(a, n):
            for p in range(n):
                for q in range(n - 1 - p):
                    if a[q] > a[q + 1]:
                        a[q], a[q + 1] = a[q + 1], a[q]

        @tack.func
        def median(x, y, z):
            a = tack.local_array(3, tack.i64)
            a[0], a[1], a[2] = x, y, z
            sort(a, 3)
            return a[1]

        @tack.kernel
        def kernel(o):
            for i in range(o.shape[0]):
                o[i] = median(i, 2, 7 - i) * 10 + median(5, i, 1)
        """,
        o,
    )
    assert o.tolist() == [sorted((i, 2, 7 - i))[1] * 10 + sorted((5, i, 1))[1] for i in range(6)]


def test_properties_of_local_arrays() -> None:
    o = np.zeros(5, np.int64)
    run(
        """
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    a = tack.local_array((2, 3), tack.i8)
                    o[0] = a.shape[0]
                    o[1] = a.shape[1]
                    o[2] = len(a)
                    o[3] = a.size
                    o[4] = a.ndim
            """,
        o,
    )
    assert o.tolist() == [2, 3, 2, 6, 2]


def test_large_local_array() -> None:
    o = np.zeros(3, np.int64)
    run(
        """
            @tack.kernel
            def kernel(o):
                for i in range(3):
                    a = tack.local_array(4096, tack.i64)
                    for k in range(4096):
                        a[k] = k * i
                    s = 0
                    for k in range(4096):
                        s += a[k]
                    o[i] = s
            """,
        o,
    )
    assert o.tolist() == [0, 4095 * 2048, 4095 * 4096]


@pytest.mark.parametrize("size", ["n", "i", "x[0]", "2.5", "n + 1"])
def test_size_that_is_not_known_at_compile_time(rejects: Rejects, size: str) -> None:
    source = f"""
        @tack.kernel
        def kernel(x, n):
            for i in range(1):
                a = «tack.local_array(«{size}, tack.i32)
        """
    rejects((SYNTAX, TypeError, ValueError), source, np.ones(1, np.int32), 3)


@pytest.mark.parametrize("size", ["0", "-3", "(2, -1)", "(2, 0)"])
def test_sizes_that_are_not_positive(rejects: Rejects, size: str) -> None:
    rejects(
        (SYNTAX, TypeError, ValueError),
        f"""
            @tack.kernel
            def kernel(x):
                for i in range(1):
                    a = «tack.local_array(«{size}, tack.i32)
            """,
        np.ones(1),
    )


@pytest.mark.parametrize(
    "call",
    [
        "tack.local_array(3)",
        "tack.local_array()",
        "tack.local_array(3, 4)",
        "tack.local_array(3, tack.i32, 5)",
        "tack.local_array(3, complex)",
        'tack.local_array(3, "i8")',
    ],
)
def test_wrong_declarations(rejects: Rejects, call: str) -> None:
    rejects(
        (SYNTAX, TypeError, NameError),
        f"""
            @tack.kernel
            def kernel(x):
                for i in range(1):
                    a = «{call.replace("(3, ", "(3, «")}
            """,
        np.ones(1),
    )


def test_wrong_index_counts_and_misuse(rejects: Rejects) -> None:
    head = (
        "@tack.kernel\ndef kernel(x):\n    for i in range(1):\n"
        "        a = tack.local_array((2, 3), tack.i32)\n        "
    )
    rejects(TypeError, head + "«a[0, 0, 0]» = 1\n", np.ones(1))
    rejects((TypeError, SYNTAX), head + "x[0] = «a» + 1\n", np.ones(1))
    rejects((TypeError, SYNTAX), head + "«a = 5\n", np.ones(1))
    rejects((TypeError, SYNTAX), head + "«x[0] = «a\n", np.ones(1))
