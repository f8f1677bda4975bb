"""Which calls of a kernel share a compiled variant, and what a call is checked for."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tack
from tack.runtime.dispatch import default_backend


def count(kernel: tack.Kernel) -> int:
    return len(default_backend().cache[kernel].variants)


def arrays(*lengths: int, dtype: tack.DType = tack.f32) -> list[tack.Array]:
    return [tack.ones(n, dtype) for n in lengths]


def test_worked_example_scale() -> None:
    @tack.kernel
    def scale(x, out, a):
        for i in range(x.shape[0]):
            out[i] = x[i] * a

    for n in (8, 16, 32):
        scale(*arrays(n, n), 2.0)
    assert count(scale) == 1
    x, out = arrays(8, 8)
    scale(x, out, 3.5)
    assert count(scale) == 1
    scale(x, out, 3)
    assert count(scale) == 2
    scale(x, out, 2**40)
    assert count(scale) == 3
    scale(*arrays(8, 8, dtype=tack.f64), 2.0)
    assert count(scale) == 4
    scale(x, x, 2.0)
    assert count(scale) == 5
    np.testing.assert_array_equal(x.numpy(), np.full(8, 2, np.float32))


def test_worked_example_baked_extents() -> None:
    @tack.kernel
    def reverse(x, out):
        for i in range(x.shape[0]):
            out[i] = x[x.shape[0] - 1 - i]

    @tack.kernel
    def reverse_n(x, out, n):
        for i in range(n):
            out[i] = x[n - 1 - i]

    @tack.kernel
    def stencil(x, out):
        for i in range(1, x.shape[0] - 1):
            out[i] = x[i - 1] + x[i + 1]

    for n in (8, 16, 32):
        x = tack.arange(n, dtype=tack.f32)
        out = tack.zeros(n)
        reverse(x, out)
        np.testing.assert_array_equal(out.numpy(), np.arange(n)[::-1])
        reverse_n(x, out, n)
        np.testing.assert_array_equal(out.numpy(), np.arange(n)[::-1])
        stencil(x, out)
        np.testing.assert_array_equal(out.numpy()[1:-1], 2 * np.arange(1, n - 1))
    assert (count(reverse), count(reverse_n), count(stencil)) == (3, 1, 1)


def test_worked_example_two_dimensions() -> None:
    @tack.kernel
    def copy(a, out):
        for i, j in tack.ndindex(a.shape[0], a.shape[1]):
            out[i, j] = a[i, j]

    for shape in ((4, 8), (16, 8), (4, 9)):
        a = np.random.default_rng(0).random(shape, np.float32)
        out = np.zeros(shape, np.float32)
        copy(a, out)
        np.testing.assert_array_equal(out, a)
    assert count(copy) == 2


def test_a_row_stride_is_part_of_the_key() -> None:
    @tack.kernel
    def column(a, out, n):
        for i in range(n):
            out[i] = a[i, 1]

    for width in (2, 3, 5):
        a = np.arange(4 * width, dtype=np.float32).reshape(4, width)
        out = np.zeros(4, np.float32)
        column(a, out, 4)
        np.testing.assert_array_equal(out, a[:, 1])


def test_the_number_of_dimensions_is_checked_at_each_call() -> None:
    @tack.kernel
    def first(a, out):
        for i in range(1):
            out[i] = a[i, 0]

    out = np.zeros(1, np.float32)
    first(np.full((2, 3), 7, np.float32), out)
    assert out[0] == 7
    with pytest.raises(TypeError, match="2 indices for 'a', which has 3 dimensions"):
        first(np.ones((2, 3, 1), np.float32), out)
    with pytest.raises(TypeError, match="2 indices for 'a', which has 3 dimensions"):
        first(np.ones((2, 3, 1), np.float32), out)


def test_code_goes_with_its_kernel() -> None:
    def make() -> weakref.ref[tack.Kernel]:
        @tack.kernel
        def k(x):
            for i in range(x.shape[0]):
                x[i] = 1

        k(tack.zeros(4))
        return weakref.ref(k)

    dropped = make()
    gc.collect()
    assert dropped() is None
    assert all(key is not None for key in default_backend().cache)


def test_a_read_only_array_is_refused_only_where_the_kernel_writes() -> None:
    @tack.kernel
    def copy(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i]

    x = np.ones(4, np.float32)
    x.flags.writeable = False
    out = np.zeros(4, np.float32)
    copy(x, out)
    np.testing.assert_array_equal(out, 1)
    for _ in range(2):
        with pytest.raises(ValueError, match="kernel 'copy': argument 'out' is read-only"):
            copy(out, x)


def test_an_atomic_needs_an_aligned_array() -> None:
    @tack.kernel
    def bump(x):
        for _ in range(3):
            tack.atomic_add(x, 0, 1)

    memory = np.zeros(20, np.uint8)
    start = -memory.ctypes.data % 8 + 1
    x = memory[start : start + 8].view(np.int64)
    for _ in range(2):
        with pytest.raises(ValueError, match="argument 'x' is not aligned to 8 bytes"):
            bump(x)
    assert not memory.any()


def test_a_pinned_integer_is_checked_at_each_call() -> None:
    @tack.kernel
    def store(x, v: tack.i8):
        for i in range(1):
            x[i] = v

    x = np.zeros(1, np.int64)
    store(x, -128)
    assert x[0] == -128
    for bad in (128, -129):
        with pytest.raises(OverflowError, match=r"'v' is annotated i8 \(-128 to 127\)"):
            store(x, bad)
    with pytest.raises(TypeError, match=r"the float 1\.0"):
        store(x, 1.0)
    with pytest.raises(TypeError, match="passes an array"):
        store(x, x)
