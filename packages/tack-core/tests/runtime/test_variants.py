"""What a call that finds its variant is still checked for, and how long variants live."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tack
from tack.runtime.dispatch import default_backend


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
