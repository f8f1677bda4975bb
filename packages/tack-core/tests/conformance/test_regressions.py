"""language.md section 15: faults that must never come back."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import tack
from tack.dtypes import as_dtype

from .helpers import Rejection, atomics_on, build, launch, run
from .upload import observed

Rejects = Callable[..., Rejection]


@pytest.mark.parametrize("n", [1, 5, 100_000])
def test_lc1_loads_see_earlier_stores_across_inner_loops(n: int) -> None:
    x, y = np.zeros((n, 4), np.int64), np.zeros(n, np.int64)
    run(
        """
        @tack.kernel
        def kernel(x, y):
            for i in range(y.shape[0]):
                x[i, 0] = i
                for k in range(1, 4):
                    x[i, k] = x[i, k - 1] + 1
                    for m in range(2):
                        x[i, k] = x[i, k] * 2
                    y[i] += x[i, k]
                y[i] = y[i] * 10 + x[i, 0]
        """,
        x,
        y,
    )
    i = np.arange(n)
    a = (i + 1) * 4
    b = (a + 1) * 4
    c = (b + 1) * 4
    assert np.array_equal(y, (a + b + c) * 10 + i)
    assert np.array_equal(x, np.stack([i, a, b, c], 1))


def test_lc2_overlapping_arguments_keep_program_order() -> None:
    kernel = build(
        """
        @tack.kernel
        def kernel(a, b, n):
            for i in range(1):
                for k in range(n):
                    b[k] = a[k] + 1
        """
    )
    x = np.zeros(1001, np.int64)
    launch(kernel, x[:1000], x[1:], 1000)
    assert np.array_equal(x, np.arange(1001))
    x = np.arange(1001)
    launch(kernel, x[1:], x[:1000], 1000)
    assert np.array_equal(x, [*range(2, 1002), 1000])
    # The disjoint call of the same kernel, and the overlapping one again.
    a, b = np.arange(1000), np.zeros(1000, np.int64)
    launch(kernel, a, b, 1000)
    assert np.array_equal(b, np.arange(1, 1001))
    x = np.zeros(1001, np.int64)
    launch(kernel, x[:1000], x[1:], 1000)
    assert np.array_equal(x, np.arange(1001))


def test_lc2_accumulating_through_an_alias() -> None:
    kernel = build(
        """
            @tack.kernel
            def kernel(s, x):
                for i in range(1):
                    for k in range(x.shape[0]):
                        s[0] += x[k]
            """
    )
    x = np.ones(10, np.int64)
    launch(kernel, x[5:6], x)
    # s is x[5]: it doubles what was summed when its turn comes.
    total = 1
    expected = [1] * 10
    for k in range(10):
        expected[5] += expected[k]
        total = expected[5]
    assert x[5] == total


def test_lc4_unsupported_statements_are_rejected_and_not_dropped(rejects: Rejects) -> None:
    for statement in (
        "«assert i > 5",
        "«del v",
        "«global q",
        "«import os",
        "«raise ValueError",
        "«pass_through: int",
        "«(«w := 3)",
    ):
        rejects(
            tack.UnsupportedSyntaxError,
            f"""
            @tack.kernel
            def kernel(o):
                for i in range(2):
                    v = 1
                    o[i] = v
                    {statement}
            """,
            np.zeros(2),
        )


def test_lc5_a_top_level_range_honours_its_start() -> None:
    for start in (0, 1, 5, 9, 12, -2):
        o = np.zeros(14, np.int32)
        run(
            "@tack.kernel\ndef kernel(o, a):\n    for i in range(a, 10):\n        o[i + 2] = i + 1\n",
            o,
            start,
        )
        assert o.tolist() == [k - 1 if start <= k - 2 < 10 else 0 for k in range(14)]


def test_lc6_assigning_a_scalar_parameter_works_per_iteration() -> None:
    o = np.zeros(100_000)
    run(
        """
            @tack.kernel
            def kernel(o, p):
                for i in range(o.shape[0]):
                    p = p + 0.5 * i
                    p += 1
                    o[i] = p
            """,
        o,
        2.0,
    )
    assert np.array_equal(o, 3.0 + 0.5 * np.arange(100_000))


def test_lc6_assigning_a_parameter_to_another_type() -> None:
    o = np.zeros(4)
    run(
        """
            @tack.kernel
            def kernel(o, p):
                for i in range(4):
                    if i > 1:
                        p = 0.5
                    o[i] = p
            """,
        o,
        7,
    )
    assert o.tolist() == [7, 7, 0.5, 0.5]


def test_lc7_return_ends_an_inlined_function() -> None:
    o = np.zeros(6, np.int64)
    run(
        """
            @tack.func
            def f(o, a):
                if a > 2:
                    return 1
                o[5] += 1
                return 0
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    for k in range(5):
                        o[k] = f(o, k)
            """,
        o,
    )
    assert o.tolist() == [0, 0, 0, 1, 1, 3]


def test_lc8_continue_in_nested_and_parallel_loops() -> None:
    o = np.zeros(9, np.int64)
    run(
        """
        @tack.kernel
        def kernel(o):
            for i in range(9):
                if i == 4:
                    continue
                k = 0
                while k < 5:
                    k += 1
                    if k == 2:
                        continue
                    for m in range(3):
                        if m == 1:
                            continue
                        o[i] += 1
                    if k == 4:
                        continue
                    o[i] += 100
                if i % 2:
                    continue
                o[i] += 1000
        """,
        o,
    )
    assert o.tolist() == [0 if i == 4 else 308 if i % 2 else 1308 for i in range(9)]


# --- and the others that apply here -----------------------------------------------------------


def test_a_new_kernel_at_a_reused_address_does_not_run_the_old_one() -> None:
    o = np.zeros(1)
    for number in range(20):
        kernel = build(f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = {number}\n")
        launch(kernel, o)
        assert o[0] == number
        del kernel
        gc.collect()


def test_a_dropped_kernel_is_freed() -> None:
    kernel = build("@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = 1\n")
    launch(kernel, np.zeros(1))
    reference = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert reference() is None


def test_row_strides_of_two_shapes_do_not_mix() -> None:
    kernel = build(
        """
            @tack.kernel
            def kernel(o, x):
                for i, j in tack.ndindex(o.shape[0], o.shape[1]):
                    o[i, j] = x[i, j] * 2
            """
    )
    for shape in ((3, 4), (4, 3), (2, 6), (12, 1), (1, 12), (3, 4), (5, 5)):
        x = np.arange(shape[0] * shape[1]).reshape(shape)
        o = np.zeros(shape, np.int64)
        launch(kernel, o, x)
        assert np.array_equal(o, x * 2)
    # The two arrays have different row strides.
    o, x = np.zeros((3, 4), np.int64), np.arange(30).reshape(5, 6)
    launch(kernel, o, x)
    assert np.array_equal(o, x[:3, :4] * 2)


def test_doubly_negative_ndindex_runs_nothing() -> None:
    o = np.zeros(1, np.int32)
    run(
        """
            @tack.kernel
            def kernel(o):
                for i, j in tack.ndindex(-3, -4):
                    tack.atomic_add(o, 0, 1)
            """,
        o,
    )
    run(
        """
            @tack.kernel
            def kernel(o, a, b):
                for i, j in tack.ndindex(a, b):
                    tack.atomic_add(o, 0, 1)
            """,
        o,
        -3,
        -4,
    )
    run(
        """
            @tack.kernel
            def kernel(o, a, b):
                for i in range(1):
                    for j, k in tack.ndindex(a, b):
                        tack.atomic_add(o, 0, 1)
            """,
        o,
        -3,
        -4,
    )
    assert o[0] == 0


def test_indices_do_not_wrap_at_32_bits() -> None:
    o = np.zeros(2, np.int64)
    run(
        "@tack.kernel\ndef kernel(o, a):\n    for i in range(a, a + 2):\n        o[i - a] = i\n", o, 2**32 + 5
    )
    assert o.tolist() == [2**32 + 5, 2**32 + 6]
    run(
        """
            @tack.kernel
            def kernel(o, a):
                for i in range(1):
                    for k in range(a, a + 1):
                        o[0] = k * 2
            """,
        o,
        2**40,
    )
    assert o[0] == 2**41


def test_concurrent_launches_do_not_share_scalars() -> None:
    kernel = build(
        "@tack.kernel\ndef kernel(o, a, b):\n    for i in range(o.shape[0]):\n        o[i] = a * 1000 + b\n"
    )
    launch(kernel, np.zeros(4, np.int64), 0, 0)
    failures: list[tuple[int, int]] = []

    def work(thread: int) -> None:
        o = np.zeros(4 if thread % 2 else 30_000, np.int64)
        for k in range(200):
            launch(kernel, o, thread, k)
            if not (o == thread * 1000 + k).all():
                failures.append((thread, k))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_first_call_from_eight_threads_together() -> None:
    kernel = build("@tack.kernel\ndef kernel(o, a):\n    for i in range(o.shape[0]):\n        o[i] = a + i\n")
    barrier = threading.Barrier(8)
    results: list[bool] = []

    def work(thread: int) -> None:
        dtype = (np.int64, np.float64, np.float32, np.int32)[thread % 4]
        o = np.zeros(1000, dtype)
        barrier.wait()
        launch(kernel, o, thread)
        results.append(bool((o == thread + np.arange(1000)).all()))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 8


def test_locals_do_not_leak_from_one_iteration_of_a_chunk_to_the_next() -> None:
    n = 200_000
    o = np.zeros(n, np.int64)
    run(
        """
        @tack.kernel
        def kernel(o):
            v = 5
            w = 0
            for i in range(o.shape[0]):
                if i % 3 == 0:
                    v = v + i
                    w += 1
                for k in range(i % 2):
                    w += 10
                o[i] = v * 100 + w
        """,
        o,
    )
    i = np.arange(n)
    assert np.array_equal(o, np.where(i % 3 == 0, 5 + i, 5) * 100 + (i % 3 == 0) + 10 * (i % 2))


def test_float_min_and_max_are_atomic() -> None:
    v = np.random.default_rng(3).uniform(-1, 1, 300_000)
    for name in ("f32", "f64"):
        given = v.astype(observed(as_dtype(name).numpy))
        x = np.array([np.inf, -np.inf], given.dtype)
        with atomics_on(name):
            launch(
                build(
                    """
                        @tack.kernel
                        def kernel(x, v):
                            for i in range(v.shape[0]):
                                tack.atomic_min(x, 0, v[i])
                                tack.atomic_max(x, 1, v[i])
                        """
                ),
                x,
                given,
            )
            assert x.tolist() == [float(given.min()), float(given.max())]
