"""The bound of the parallel loop, evaluated by the host."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tack

TWO = tack.constant(2)


@tack.func
def half(n):
    if n < 0:
        return 0
    while n > 100:
        n -= 1
    return n // TWO


def ran(kernel: tack.Kernel, *args: object) -> int:
    """How many iterations a kernel ran that adds 1 to the first element of its first array."""
    counter = np.zeros(1, np.int64)
    kernel(counter, *args)
    return int(counter[0])


def test_arithmetic_is_exact() -> None:
    @tack.kernel
    def k(c, n, m):
        for _ in range(n * n // m - -n + min(n, 3, m)):
            tack.atomic_add(c, 0, 1)

    assert ran(k, 100_000, 10**9) == 10**10 // 10**9 + 100_000 + 3


def test_locals_set_before_the_loop_count() -> None:
    @tack.kernel
    def k(c, n, wide):
        m = half(n)
        if wide:
            m = m * 3
        while m > 50:
            m -= 7
        rest = 0.5 * m  # not part of the bound
        for _ in range(m):
            if rest > 0:
                tack.atomic_add(c, 0, 1)

    def expected(n: int, wide: int) -> int:
        m = 0 if n < 0 else min(n, 100) // 2
        m *= 3 if wide else 1
        while m > 50:
            m -= 7
        return m

    for n in (-3, 1, 20, 99, 500):
        for wide in (0, 1):
            assert ran(k, n, wide) == expected(n, wide)


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(0, 10, 3), (2, 9, 4), (-5, 5, 1), (9, 9, 1), (9, 3, 2), (0, 1, 100), (7, 8, 1)],
)
def test_start_and_step(start: int, stop: int, step: int) -> None:
    @tack.kernel
    def k(out, start, stop, step):
        for i in range(start, stop, step):
            out[i + 5] += 1

    out = np.zeros(20, np.int32)
    k(out, start, stop, step)
    expected = np.zeros(20, np.int32)
    expected[[i + 5 for i in range(start, stop, step)]] = 1
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("step", [0, -1, -(2**40)])
def test_a_step_that_is_not_positive_is_refused(step: int) -> None:
    @tack.kernel
    def k(c, step):
        for _ in range(0, 10, step):
            tack.atomic_add(c, 0, 1)

    with pytest.raises(ValueError, match=re.escape(f"the step of the parallel loop is {step}")):
        ran(k, step)


def test_division_by_zero_is_reported() -> None:
    @tack.kernel
    def k(c, n, m):
        for _ in range(n // m):
            tack.atomic_add(c, 0, 1)

    with pytest.raises(ZeroDivisionError):
        ran(k, 4, 0)
    assert ran(k, 4, 2) == 2


def test_a_float_must_be_converted() -> None:
    @tack.kernel
    def bare(c, n):
        for _ in range(n):
            tack.atomic_add(c, 0, 1)

    @tack.kernel
    def cast(c, n):
        for _ in range(int(n)):
            tack.atomic_add(c, 0, 1)

    with pytest.raises(TypeError, match="'n' is f32"):
        ran(bare, 2.5)
    assert ran(bare, 2) == 2
    assert ran(cast, 2.9) == 2
    assert ran(cast, float("nan")) == 0
    assert ran(cast, 5) == 5


def test_what_the_host_cannot_compute_is_named() -> None:
    @tack.kernel
    def load(c, x):
        for _ in range(x[0] + 1):
            tack.atomic_add(c, 0, 1)

    @tack.kernel
    def through_a_local(c, x):
        n = x[0]
        for _ in range(n):
            tack.atomic_add(c, 0, 1)

    @tack.kernel
    def root(c, x):
        for _ in range(int(sqrt(16.0))):
            tack.atomic_add(c, 0, 1)

    x = np.ones(1, np.int32)
    for kernel, part in ((load, "x[0]"), (through_a_local, "x[0]"), (root, "sqrt(16.0)")):
        for _ in range(2):
            with pytest.raises(tack.UnsupportedSyntaxError) as caught:
                ran(kernel, x)
            assert caught.value.text is not None
            assert caught.value.offset is not None
            assert part in caught.value.text[caught.value.offset - 1 :]


def test_extents_of_every_kind() -> None:
    @tack.kernel
    def k(c, a):
        for _ in range(a.shape[-1] * 1000 + len(a) * 100 + a.size * 10 + a.ndim):
            tack.atomic_add(c, 0, 1)

    for shape in ((2, 3), (1, 4, 2), (5,)):
        a = np.zeros(shape, np.float32)
        assert ran(k, a) == shape[-1] * 1000 + shape[0] * 100 + a.size * 10 + a.ndim


def test_an_extent_that_the_array_lacks() -> None:
    @tack.kernel
    def k(c, a):
        for _ in range(a.shape[1]):
            tack.atomic_add(c, 0, 1)

    with pytest.raises(TypeError, match=r"'a' has 1 dimensions, so no shape\[1\]"):
        ran(k, np.zeros(3, np.float32))
    assert ran(k, np.zeros((3, 4), np.float32)) == 4
    with pytest.raises(TypeError, match=r"'a' has 1 dimensions, so no shape\[1\]"):
        ran(k, np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="'a' is a number"):
        ran(k, 3)


def test_more_iterations_than_a_launch_has() -> None:
    @tack.kernel
    def k(c, n):
        for _, _ in tack.ndindex(n, n):
            tack.atomic_add(c, 0, 1)

    with pytest.raises(ValueError, match="kernel 'k': 18446744073709551616 iterations"):
        ran(k, 2**32)
    assert ran(k, 3) == 9


@pytest.mark.parametrize(
    "pairs", [((0, 0), (0, 5)), ((3, 1), (0, 5)), ((-3, -4), (-3, -4)), ((0, 5), (0, -1))]
)
def test_empty_and_reversed_ranges_run_nothing(pairs: tuple[tuple[int, int], tuple[int, int]]) -> None:
    @tack.kernel
    def k(c, a, b, d, e):
        for _, _ in tack.ndindex((a, b), (d, e)):
            tack.atomic_add(c, 0, 1)

    assert ran(k, *pairs[0], *pairs[1]) == 0


def test_a_truth_value_is_0_or_1_in_a_bound() -> None:
    @tack.kernel
    def k(c, n, m):
        both = n and m
        less = n < m
        for _ in range(both * 10 + less):
            tack.atomic_add(c, 0, 1)

    for n, m in ((5, 7), (7, 5), (0, 5), (5, 0)):
        assert ran(k, n, m) == bool(n and m) * 10 + (n < m)
