"""language.md section 10: shared memory, barriers, lane numbers and block reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, build, run

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError
BLOCK_DTYPES = ("f32", "f64", "i32", "u32", "i64", "u64")
RNG = np.random.default_rng(7)


def uniform(n: int, dtype: Any = np.float32) -> Any:
    return RNG.random(n).astype(dtype)


# --- programs -----------------------------------------------------------------------------------


def test_tiled_matrix_product() -> None:
    n = 64
    a, b, c = uniform(n * n).reshape(n, n), uniform(n * n).reshape(n, n), np.zeros((n, n), np.float32)
    run(
        """
        T = tack.constant(16)
        @tack.kernel
        def kernel(a, b, c, n):
            for i in range(n * n):
                left = tack.shared((T, T), tack.f32)
                right = tack.shared((T, T), tack.f32)
                lane = tack.thread_id()
                x, y = lane % T, lane // T
                tiles = n // T
                row = i // 256 // tiles * T + y
                col = i // 256 % tiles * T + x
                acc = 0.0
                for k in range(tiles):
                    left[y, x] = a[row, k * T + x]
                    right[y, x] = b[k * T + y, col]
                    tack.barrier()
                    for j in range(T):
                        acc += left[y, j] * right[j, x]
                    tack.barrier()
                c[row, col] = acc
        """,
        *(a, b, c, n),
    )
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-5)


def test_prefix_sum() -> None:
    x = RNG.integers(-1000, 1000, 2048).astype(np.int64)
    o = np.zeros_like(x)
    run(
        """
        @tack.kernel
        def kernel(x, o):
            for i in range(len(x)):
                s = tack.shared(256, tack.i64)
                t = tack.thread_id()
                s[t] = x[i]
                tack.barrier()
                d = 1
                while d < 256:
                    v = s[t]
                    if t >= d:
                        v += s[t - d]
                    tack.barrier()
                    s[t] = v
                    tack.barrier()
                    d *= 2
                o[i] = s[t]
        """,
        *(x, o),
    )
    assert o.tolist() == x.reshape(-1, 256).cumsum(1).ravel().tolist()


@pytest.mark.parametrize("name", ["f32", "u8", "i64"])
def test_bitonic_sort(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    x = RNG.integers(0, 100, 1024).astype(dtype)
    expected = np.sort(x.reshape(-1, 256)).ravel()
    run(
        f"""
        @tack.func
        def exchange(s, t, size, stride):
            other = t ^ stride
            if other > t:
                up = (t & size) == 0
                if (s[t] > s[other]) == up:
                    s[t], s[other] = s[other], s[t]

        @tack.kernel
        def kernel(x):
            for i in range(x.size):
                s = tack.shared(256, tack.{name})
                t = tack.thread_id()
                s[t] = x[i]
                tack.barrier()
                size = 2
                while size <= 256:
                    stride = size >> 1
                    while stride > 0:
                        exchange(s, t, size, stride)
                        tack.barrier()
                        stride >>= 1
                    size <<= 1
                x[i] = s[t]
        """,
        x,
    )
    assert x.tolist() == expected.tolist()


def test_transposition_over_two_dimensions() -> None:
    x = np.arange(32 * 48, dtype=np.int32).reshape(32, 48)
    o = np.zeros((48, 32), np.int32)
    run(
        """
        @tack.kernel
        def kernel(x, o):
            for tile, lane in tack.ndindex(x.size // 256, 256):
                s = tack.shared((16, 16), tack.i32)
                wide = x.shape[1] // 16
                s[lane // 16, lane % 16] = x[tile // wide * 16 + lane // 16, tile % wide * 16 + lane % 16]
                tack.barrier()
                o[tile % wide * 16 + lane // 16, tile // wide * 16 + lane % 16] = s[lane % 16, lane // 16]
        """,
        *(x, o),
    )
    assert np.array_equal(o, x.T)


@pytest.mark.parametrize(("dtype", "near"), [(np.float32, 1e-4), (np.float64, 1e-9)])
def test_iteration_until_the_workgroup_has_converged(dtype: type, near: float) -> None:
    """The condition of the loop is a block reduction, which each round evaluates anew."""
    x = (uniform(512, np.float64) * 10).astype(dtype)
    o, rounds = np.zeros_like(x), np.zeros(2, np.int32)
    run(
        """
        @tack.kernel
        def kernel(x, o, rounds):
            for i in range(len(x)):
                y = x[i]
                n = 0
                while tack.block_max(abs(y * y - x[i])) > NEAR:
                    y = 0.5 * (y + x[i] / y)
                    n += 1
                o[i] = y
                if tack.thread_id() == 0:
                    rounds[i // 256] = n
        """,
        *(x, o, rounds),
        NEAR=tack.constant(near),
    )
    assert np.all(np.abs(o - np.sqrt(x)) <= 1.01 * near / np.sqrt(x))  # |y * y - x| <= near
    for group, count in zip(x.reshape(2, 256), rounds, strict=True):
        y, n = group.copy(), 0
        while np.max(np.abs(y * y - group)) > near:
            y, n = 0.5 * (y + group / y), n + 1
        assert n == count


# --- block reductions -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCK_DTYPES)
def test_block_reductions_reach_every_lane(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    if name[0] == "f":
        x = (RNG.standard_normal(768) * 100).astype(dtype)
    else:
        info = np.iinfo(dtype)
        x = RNG.integers(info.min, info.max, 768, dtype, endpoint=True)
    o = np.zeros((3, 768), dtype)
    kernel = build(
        """
        @tack.kernel
        def kernel(x, o):
            for i in range(len(x)):
                o[0, i] = tack.block_sum(x[i])
                o[1, i] = tack.block_min(x[i])
                o[2, i] = tack.block_max(x[i])
        """
    )
    kernel(x, o)
    groups = x.reshape(3, 256)
    assert np.array_equal(o[1], groups.min(1).repeat(256))
    assert np.array_equal(o[2], groups.max(1).repeat(256))
    if name[0] == "f":
        tree = groups.copy()  # lane l with lane l + 128, then with l + 64, and so on
        while tree.shape[1] > 1:
            tree = tree[:, : tree.shape[1] // 2] + tree[:, tree.shape[1] // 2 :]
        assert np.array_equal(o[0], tree.ravel().repeat(256))
        exact = [math.fsum(g) for g in groups.tolist()]
        np.testing.assert_allclose(o[0, ::256], exact, rtol=1e-4 if name == "f32" else 1e-12)
    else:
        sums = [oracle.wrap(name, sum(g)) for g in groups.tolist()]
        assert o[0].tolist() == [s for s in sums for _ in range(256)]
    assert "f32" not in tack.inspect(kernel, x, o, mode="ir") or name == "f32"


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_nan_wins_and_zeros_are_ordered(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    groups = np.ones((6, 256), dtype)
    groups[0, 200] = np.nan
    groups[1, 0], groups[1, 3] = np.nan, -np.inf
    groups[2] = 0.0
    groups[2, 17] = -0.0
    groups[3] = -0.0
    groups[3, 255] = 0.0
    groups[4, 9], groups[4, 10] = np.inf, -np.inf
    groups[5] = -0.0
    low, high = np.zeros(6, dtype), np.zeros(6, dtype)
    run(
        """
        @tack.kernel
        def kernel(x, low, high):
            for i in range(x.size):
                a, b = tack.block_min(x[i]), tack.block_max(x[i])
                if tack.thread_id() == 255:
                    low[i // 256] = a
                    high[i // 256] = b
        """,
        *(groups.ravel(), low, high),
    )
    assert [repr(float(v)) for v in low] == ["nan", "nan", "-0.0", "-0.0", "-inf", "-0.0"]
    assert [repr(float(v)) for v in high] == ["nan", "nan", "0.0", "0.0", "inf", "-0.0"]


def test_types_of_block_reductions() -> None:
    """A literal is f32, an i64 stays one, and a lane's number is i32."""
    o = np.zeros(256, np.int64)
    d = np.zeros(256, np.float64)
    run(
        """
        @tack.kernel
        def kernel(o, d):
            for i in range(256):
                o[i] = tack.block_sum(i * 10000000000) + tack.block_max(tack.thread_id())
                d[i] = tack.block_sum(0.1)
        """,
        *(o, d),
    )
    assert o.tolist() == [sum(range(256)) * 10**10 + 255] * 256
    assert d.tolist() == [float(np.float32(0.1)) * 256] * 256


def test_operands_keep_their_order_around_a_reduction() -> None:
    """A load before the reduction in an expression is of before; the reduced value is evaluated once."""
    x = np.arange(256, dtype=np.int32)
    o = np.zeros(256, np.int32)
    run(
        """
        @tack.func
        def total(x, i):
            old = x[i]
            x[i] = -1
            return tack.block_sum(old)

        @tack.kernel
        def kernel(x, o):
            for i in range(256):
                o[i] = x[i] * 2 + total(x, i)
        """,
        *(x, o),
    )
    assert o.tolist() == [2 * i + sum(range(256)) for i in range(256)]
    assert x.tolist() == [-1] * 256


# --- what lanes keep --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [tack.f32, tack.f64], ids=str)
def test_values_live_across_barriers(dtype: Any) -> None:
    """Scalars of several types, vectors, local arrays, and what a device function returns early."""
    n = 512
    x, o = uniform(n, dtype.numpy), np.zeros((n, 4), dtype.numpy)
    run(
        """
        @tack.func
        def steps(i):
            if i % 3 == 0:
                return 0
            if i % 3 == 1:
                return i
            return -i

        @tack.kernel
        def kernel(x, o):
            for i in range(x.size):
                a = tack.local_array(4, tack.i32)
                for k in range(4):
                    a[k] = i * k
                small = tack.u8(i)
                v = tack.vec3(i, 2 * i, 0.5)
                r = steps(i)
                y = x[i] * 3.0
                s = tack.shared(256, T)
                s[tack.thread_id()] = y
                tack.barrier()
                a[1] += 1
                v.z += 1.0
                tack.barrier()
                o[i, 0] = a[0] + a[1] + a[3] + small
                o[i, 1] = v.x + v.y + v.z
                o[i, 2] = r
                o[i, 3] = y + s[255 - tack.thread_id()]
        """,
        *(x, o),
        T=dtype,
    )
    i = np.arange(n)
    assert np.array_equal(o[:, 0], 4 * i + 1 + i % 256)
    assert np.array_equal(o[:, 1], 3 * i + 1.5)
    assert np.array_equal(o[:, 2], np.choose(i % 3, [0 * i, i, -i]))
    y = x * 3.0
    assert np.array_equal(o[:, 3], y + y.reshape(2, 256)[:, ::-1].ravel())


def test_assigned_loop_variable_parameter_and_outer_local() -> None:
    o = np.zeros(512, np.int64)
    run(
        """
        @tack.kernel
        def kernel(o, p):
            base = p * 10
            for i in range(512):
                start = i
                i += 1000
                p += i
                base += p
                tack.barrier()
                base += 1
                tack.barrier()
                o[start] = base * 100000 + i
        """,
        *(o, 3),
    )
    assert o.tolist() == [(30 + 3 + i + 1000 + 1) * 100000 + i + 1000 for i in range(512)]


def test_an_array_that_rounds_of_a_loop_hand_on() -> None:
    """All its uses are between the same two barriers, yet its contents outlive a round."""
    o = np.zeros((256, 3), np.int32)
    run(
        """
        @tack.kernel
        def kernel(o):
            for i in range(256):
                a = tack.local_array(3, tack.i32)
                for k in range(5):
                    tack.barrier()
                    if k == 0:
                        for j in range(3):
                            a[j] = i
                    a[k % 3] += k + 1
                    if k == 4:
                        for j in range(3):
                            o[i, j] = a[j]
        """,
        o,
    )
    assert o.tolist() == [[i + 1 + 4, i + 2 + 5, i + 3] for i in range(256)]


def test_shared_arrays_of_vectors_and_small_types() -> None:
    o = np.zeros((256, 2), np.float32)
    run(
        """
        @tack.kernel
        def kernel(o):
            for i in range(256):
                v = tack.shared((2, 128), tack.vec2)
                b = tack.shared(256, tack.u8)
                t = tack.thread_id()
                v[t // 128, t % 128] = tack.vec2(t, -t)
                b[t] = t + 256
                tack.barrier()
                w = v[255 - t]
                o[i, 0] = w.x + b[t ^ 1]
                v[t].y = 7.0
                tack.barrier()
                o[i, 1] = v[t ^ 1].y + v[t ^ 1].x
        """,
        o,
    )
    t = np.arange(256)
    assert np.array_equal(o[:, 0], 255 - t + (t ^ 1))
    assert np.array_equal(o[:, 1], 7 + (t ^ 1))


def test_shared_array_declared_before_the_loop_or_in_a_function() -> None:
    x, o = np.arange(512, dtype=np.int32), np.zeros((2, 512), np.int32)
    run(
        """
        N = tack.constant(256)
        @tack.func
        def flipped(value):
            s = tack.shared(N, tack.i32)
            s[tack.thread_id()] = value
            tack.barrier()
            return s[N - 1 - tack.thread_id()]

        @tack.kernel
        def kernel(x, o):
            s = tack.shared(N, tack.i32)
            for i in range(x.shape[0]):
                t = tack.thread_id()
                s[t] = x[i]
                tack.barrier()
                o[0, i] = s[t ^ 1]
                o[1, i] = flipped(x[i]) + flipped(2 * x[i])
        """,
        *(x, o),
    )
    assert np.array_equal(o[0], x ^ 1)
    assert np.array_equal(o[1], 3 * x.reshape(2, 256)[:, ::-1].ravel())


# --- control flow around barriers -------------------------------------------------------------------


@pytest.mark.parametrize("flag", [0, 1, 5])
def test_uniform_conditions_and_early_ends(flag: int) -> None:
    """Conditions on scalars: a barrier in a branch, and a break, continue and return past barriers."""
    o = np.zeros(512, np.int32)
    run(
        """
        @tack.func
        def work(s, t, flag):
            s[t] = t
            tack.barrier()
            if flag == 0:
                return s[255 - t]
            s[255 - t] = t * 2
            tack.barrier()
            if t % 2 == 0:
                return -1
            return s[t]

        @tack.kernel
        def kernel(o, flag):
            for i in range(512):
                s = tack.shared(256, tack.i32)
                t = tack.thread_id()
                r = work(s, t, flag)
                for k in range(10):
                    if k == flag:
                        break
                    tack.barrier()
                    s[t] = r + k
                    tack.barrier()
                    if k % 2 == 1:
                        continue
                    r += s[(t + 1) % 256]
                if flag > 1:
                    tack.barrier()
                    if t < 100:
                        o[i] = -5
                        continue
                    r += 1
                o[i] = r
        """,
        *(o, flag),
    )
    t = np.arange(256)
    r = 255 - t if flag == 0 else np.where(t % 2 == 0, -1, 2 * (255 - t))
    for k in range(flag):
        if k % 2 == 0:
            r = r + np.roll(r + k, -1)
    if flag > 1:
        r = np.where(t < 100, -5, r + 1)
    assert o.tolist() == [*r, *r]


def test_lane_number_without_barriers_takes_any_count() -> None:
    kernel = build(
        """
        @tack.kernel
        def kernel(o, n, m):
            for i, j in tack.ndindex((2, n + 2), m):
                o[i - 2, j] = tack.thread_id()
        """
    )
    for n, m in ((1, 1), (3, 100), (7, 91), (2, 256)):
        o = np.full((n, m), -1, np.int32)
        kernel(o, n, m)
        assert o.ravel().tolist() == [k % 256 for k in range(n * m)]


def test_threads_get_whole_workgroups() -> None:
    """Enough work for the pool: sums within each workgroup, checked exactly."""
    x = RNG.integers(-9, 9, 256 * 4099).astype(np.int64)
    o = np.zeros_like(x)
    source = """
        @tack.kernel
        def kernel(x, o):
            for i in range(len(x)):
                v = x[i]
                for k in range(20):
                    v += tack.block_sum(v) % 7
                o[i] = v
        """
    with tack.device("cpu", num_threads=2):
        run(source, x, o)
    v = x.reshape(-1, 256)
    for _ in range(20):
        v = v + v.sum(1, keepdims=True) % 7
    assert np.array_equal(o, v.ravel())


# --- debug mode ---------------------------------------------------------------------------------------


def test_debug_mode_checks_shared_arrays_and_names_the_iteration() -> None:
    kernel = build(
        """
        @tack.kernel
        def kernel(x, n):
            for i in range(x.size):
                s = tack.shared(256, tack.f32)
                t = tack.thread_id()
                s[t] = x[i]
                tack.barrier()
                if 10 // n > 1:
                    tack.barrier()
                x[i] = s[t + (i == 300) * n] + tack.block_max(t)
        """
    )
    x = np.arange(512, dtype=np.float32)
    tack.set_debug(True)
    try:
        kernel(x, 3)
        assert np.array_equal(x, np.where(np.arange(512) == 300, 303, np.arange(512)) + 255)
        with pytest.raises(IndexError, match=r"index 256 .*'s'.* 256, in iteration 300"):
            kernel(x, 212)
        with pytest.raises(ZeroDivisionError, match="in iteration 0"):
            kernel(x, 0)
    finally:
        tack.set_debug(False)


# --- launches ---------------------------------------------------------------------------------------

NEEDS_WHOLE = ["tack.barrier()", "o[i] = tack.block_sum(1)", "if n < 0:\n            tack.barrier()"]


@pytest.mark.parametrize("statement", NEEDS_WHOLE)
def test_launches_of_incomplete_workgroups_are_refused(statement: str) -> None:
    kernel = build(
        f"""@tack.kernel
def kernel(o, n):
    for i in range(n):
        o[i] = 1
        {statement}
"""
    )
    o = np.zeros(1024, np.int32)
    for count in (1, 255, 257, 511, 1000) * 2:
        with pytest.raises(ValueError, match=rf"kernel 'kernel': {count} iterations.*multiple of 256"):
            kernel(o, count)
    assert not o.any()
    kernel(o, 0)
    kernel(o, -5)
    assert not o.any()
    kernel(o, 768)
    assert o.all() == (len(o) == 768)
    assert o[:768].all()
    with pytest.raises(ValueError, match="100 iterations"):
        kernel(o, 100)


def test_a_grid_counts_as_a_whole() -> None:
    kernel = build(
        """
        @tack.kernel
        def kernel(o, n, m):
            for i, j in tack.ndindex(n, m):
                o[i, j] = tack.block_max(i * 1000 + j)
        """
    )
    o = np.zeros((16, 48), np.int64)
    kernel(o, 16, 48)
    flat = np.add.outer(np.arange(16) * 1000, np.arange(48)).reshape(3, 256).max(1)
    assert o.ravel().tolist() == flat.repeat(256).tolist()
    with pytest.raises(ValueError, match="kernel 'kernel': 765 iterations"):
        kernel(o, 15, 51)


# --- rejections -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(256):\n    if «x[i]» > 0:\n        «tack.barrier()»",
        "for i in range(256):\n    if i < n:\n        o[i] = «tack.block_sum(1)»",
        "for i in range(256):\n    o[i] = «tack.block_sum(1)» if tack.thread_id() == 0 else 2",
        "for i in range(256):\n    if i > 3 and «tack.block_max(i)» > 3:\n        o[i] = 1",
        "for i in range(256):\n    if i == 7:\n        continue\n    «tack.barrier()»",
        "for i in range(256):\n    for k in range(x[0]):\n        «tack.barrier()»",
        "for i in range(256):\n    k = 0\n    while k < i:\n        «tack.barrier()»\n        k += 1",
        "for i in range(256):\n    for k in range(4):\n        «tack.barrier()»\n"
        "        if x[i] == k:\n            break",
        "for i in range(256):\n    for k in range(4):\n        if i == k:\n            continue\n"
        "        «tack.barrier()»",
        "for i in range(256):\n    m = n\n    if x[i] > 0:\n        m = 1\n"
        "    if m > 0:\n        «tack.barrier()»",
        "for i in range(256):\n    m = 0\n    for k in range(4):\n        if m > 2:\n"
        "            «tack.barrier()»\n        m += x[i]",
        "for i in range(256):\n    s = tack.shared(1, tack.i32)\n    s[0] = 1\n"
        "    if s[0] > 0:\n        «tack.barrier()»",
        "for i in range(256):\n    if tack.atomic_add(o, 0, 1) == 0:\n        «tack.barrier()»",
        "m = x[0]\nfor i in range(256):\n    if m > 0:\n        «tack.barrier()»",
    ],
)
def test_participation_that_is_not_proven(rejects: Rejects, body: str) -> None:
    lines = "\n".join("    " + line for line in body.replace("«x[i]»", "x[i]").splitlines())
    source = f"@tack.kernel\ndef kernel(x, o, n):\n{lines}\n"
    found = rejects(ValueError, source, np.ones(256, np.int32), np.zeros(256, np.int32), 5)
    assert "not all iterations of a workgroup are certain to reach" in found.text
    assert "this may differ between them" in found.text


def test_participation_in_a_function_names_the_chain(rejects: Rejects) -> None:
    found = rejects(
        ValueError,
        """
        @tack.func
        def early(x, i):
            if x[i] > 0:
                return 1
            «tack.barrier()»
            return 2

        @tack.kernel
        def kernel(x):
            for i in range(256):
                x[i] = early(x, i)
        """,
        np.zeros(256, np.int32),
    )
    assert "in func 'early', called from kernel 'kernel'" in found.text


def test_uniform_participation_is_accepted() -> None:
    """Scalars, extents, constants, results of reductions, and pure functions and locals of these."""
    o = np.zeros(256, np.int32)
    run(
        """
        K = tack.constant((3, 1, 2))
        @tack.func
        def limit(a, b):
            return max(a, b) if a > 0 else b

        @tack.kernel
        def kernel(o, n, f):
            m = n * 2
            for i in range(256):
                count = 0
                if n > 2 and f < math.sqrt(10.0):
                    tack.barrier()
                    count += 1
                for k in range(limit(n, 2)):
                    if K[k % 3] == 1:
                        continue
                    tack.barrier()
                    count += 1
                level = tack.block_max(i % 5)
                while level > 0:
                    tack.barrier()
                    count += 1
                    level -= 1
                if m == o.shape[0]:
                    count += tack.block_sum(1)
                j = 0
                while True:
                    j += 1
                    if j > n:
                        break
                    count += tack.block_sum(1) // 256
                if i < 128:  # after the last barrier everything goes
                    o[i] = count
                    continue
                o[i] = -count
        """,
        *(o, 4, 2.5),
    )
    assert o.tolist() == [12] * 128 + [-12] * 128  # 1 + 3 + 4 + 0 + 4


@pytest.mark.parametrize(
    "body",
    [
        "«tack.barrier()»\nfor i in range(256):\n    pass",
        "for i in range(256):\n    pass\n«tack.barrier()»",
        "m = «tack.block_sum(1)»\nfor i in range(256):\n    pass",
        "m = «tack.thread_id()»\nfor i in range(256):\n    pass",
        "s = tack.shared(4, tack.i32)\n«s[0]» = 1\nfor i in range(256):\n    pass",
        "for i in range(256):\n    x = «tack.barrier()»",
        "for i in range(256):\n    «tack.barrier(1)»",
        "for i in range(256):\n    o[i] = «tack.thread_id(0)»",
        "for i in range(256):\n    o[i] = «tack.block_sum()»",
        "for i in range(256):\n    o[i] = «tack.block_min(1, 2)»",
        "for i in range(256):\n    o[i] = tack.block_sum(«value=1»)",
        "for i in range(256):\n    o[i] = «tack.shared(4, tack.i32)»[0]",
        "for i in range(256):\n    s = «tack.shared(4)»",
        "for i in range(256):\n    «s = t = tack.shared(4, tack.i32)»",
        "for i in range(256):\n    s = tack.shared(«i», tack.i32)",
    ],
)
def test_structure_that_is_rejected(rejects: Rejects, body: str) -> None:
    lines = "\n".join("    " + line for line in body.splitlines())
    rejects(SYNTAX, f"@tack.kernel\ndef kernel(o):\n{lines}\n", np.zeros(256, np.int32))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("s = tack.shared(4, tack.i32)\n        tack.atomic_add(«s», 0, 1)", TypeError),
        ("s = tack.shared(4, «'i9'»)", TypeError),
        ("s = «tack.shared(0, tack.i32)»", ValueError),
        ("s = «tack.shared((1000, 1000), tack.i32)»", ValueError),
        ("s = tack.shared(4, tack.i32)\n        «s» = 1", TypeError),
        ("o[i] = «tack.block_sum(tack.i8(i))»", TypeError),
        ("o[i] = «tack.block_max(tack.u16(i))»", TypeError),
        ("v = tack.block_sum(«tack.vec2(1, 2)»)", TypeError),
    ],
)
def test_types_that_are_rejected(rejects: Rejects, body: str, error: type[Exception]) -> None:
    source = f"@tack.kernel\ndef kernel(o):\n    for i in range(256):\n        {body}\n"
    rejects(error, source, np.zeros(256, np.int32))


def test_atomics_on_shared_arrays_say_what_they_are(rejects: Rejects) -> None:
    found = rejects(
        TypeError,
        """
        @tack.kernel
        def kernel(o):
            for i in range(256):
                s = tack.shared(4, tack.i32)
                o[i] = tack.atomic_max(«s», 0, 1)
        """,
        np.zeros(256, np.int32),
    )
    assert "a shared array" in found.text
