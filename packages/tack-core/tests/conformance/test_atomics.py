"""language.md section 12: atomics of every type and operation, with their old values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, atomics_on, build, launch, run

Rejects = Callable[..., Rejection]
ANY_TYPE = ("add", "min", "max")
INTEGER_ONLY = ("sub", "and", "or", "xor", "exchange")

MODEL: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "exchange": lambda _, b: b,
}


def sequential(op: str) -> Any:
    """Applies the operation to one element with each value in turn, noting the old ones."""
    return build(
        f"""
            @tack.kernel
            def kernel(x, v, old):
                for i in range(1):
                    for k in range(v.shape[0]):
                        old[k] = tack.atomic_{op}(x, 0, v[k])
            """
    )


@pytest.mark.parametrize("name", oracle.INTEGERS)
@pytest.mark.parametrize("op", [*ANY_TYPE, *INTEGER_ONLY])
def test_integer_atomics_one_after_another(op: str, name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    numbers = oracle.interesting_integers(name)
    x, old = np.array([numbers[len(numbers) // 2], 99], dtype), np.zeros(len(numbers), dtype)
    state, expected = int(x[0]), []
    for number in numbers:
        expected.append(state)
        state = oracle.wrap(name, MODEL[op](state, number))
    with atomics_on(name):
        launch(sequential(op), x, np.array(numbers, dtype), old)
        assert old.tolist() == expected
        assert x.tolist() == [state, 99]


@pytest.mark.parametrize("name", oracle.FLOATS)
@pytest.mark.parametrize("op", ANY_TYPE)
def test_float_atomics_one_after_another(op: str, name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    numbers = [0.5, -1.25, 3.0, -7.5, 1e-3, 100.0, -0.1, -100.25, 5e-324 if name == "f64" else 1e-45]
    x, v, old = np.array([1.5], dtype), np.array(numbers, dtype), np.zeros(len(numbers), dtype)
    state, expected = x[0], []
    for number in v:
        expected.append(state)
        state = dtype.type({"add": state + number, "min": min(state, number), "max": max(state, number)}[op])
    with atomics_on(name):
        launch(sequential(op), x, v, old)
        assert old.tolist() == [float(v) for v in expected]
        assert x[0] == state


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_old_values_of_a_shared_counter_are_a_permutation(name: str) -> None:
    n = {8: 100, 16: 30000}.get(oracle.bits(name), 200_000)
    counter, old = np.zeros(1, oracle.numpy_dtype(name)), np.zeros(n, np.int64)
    with atomics_on(name):
        launch(
            build(
                """
                    @tack.kernel
                    def kernel(c, old):
                        for i in range(old.shape[0]):
                            old[i] = tack.atomic_add(c, 0, 1)
                    """
            ),
            counter,
            old,
        )
        assert counter[0] == n
        assert np.array_equal(np.sort(old), np.arange(n))


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_threads_lose_no_update(name: str) -> None:
    """Neighbours in one word are updated by different iterations at once."""
    n, bins = 200_000, 64
    dtype = oracle.numpy_dtype(name)
    total, low, high = np.zeros(bins, dtype), np.full(bins, 100, dtype), np.zeros(bins, dtype)
    kernel = build(
        """
        @tack.kernel
        def kernel(total, low, high, n):
            for i in range(n):
                b = (i * 7) % 64
                tack.atomic_add(total, b, 1)
                tack.atomic_min(low, b, 1 + (i * 31) % 97)
                tack.atomic_max(high, b, (i * 31) % 97)
        """
    )
    with atomics_on(name):
        launch(kernel, total, low, high, n)
        i = np.arange(n)
        counts = np.bincount((i * 7) % 64, minlength=bins)
        wrapped = counts.tolist() if name[0] == "f" else [oracle.wrap(name, int(c)) for c in counts]
        assert total.tolist() == wrapped
        for b in range(bins):
            mine = (i[(i * 7) % 64 == b] * 31) % 97
            assert low[b] == 1 + mine.min()
            assert high[b] == mine.max()


@pytest.mark.parametrize("name", oracle.INTEGERS)
def test_bitwise_and_exchange_in_threads(name: str) -> None:
    n = 50_000
    dtype = oracle.numpy_dtype(name)
    top = oracle.limits(name)[1]
    x = np.array([0, top, 0, 0], dtype)
    old = np.zeros(n, dtype)
    kernel = build(
        """
        @tack.kernel
        def kernel(x, old, n, bits):
            for i in range(n):
                tack.atomic_or(x, 0, 1 << (i % bits))
                tack.atomic_and(x, 1, ~(1 << (i % bits)))
                tack.atomic_xor(x, 2, 5)
                tack.atomic_sub(x, 3, 1)
        """
    )
    with atomics_on(name):
        launch(kernel, x, old, n, oracle.bits(name) if oracle.bits(name) < 32 else 31)
        mask = 2 ** min(oracle.bits(name), 31) - 1
        assert x.tolist() == [
            oracle.wrap(name, mask),
            oracle.wrap(name, top & ~mask),
            0,
            oracle.wrap(name, -n),
        ]
        # Each exchanged value comes out exactly once: they form a chain from 0 to the last.
        y, out = np.zeros(1, np.int32), np.zeros(n, np.int32)
        launch(
            build(
                """
                    @tack.kernel
                    def kernel(y, out):
                        for i in range(out.shape[0]):
                            out[i] = tack.atomic_exchange(y, 0, i + 1)
                    """
            ),
            y,
            out,
        )
        assert sorted([*out.tolist(), int(y[0])]) == list(range(n + 1))


@pytest.mark.parametrize("name", oracle.INTEGERS)
def test_compare_and_swap(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    x, old = np.array([5], dtype), np.zeros(3, dtype)
    with atomics_on(name):
        run(
            """
                @tack.kernel
                def kernel(x, old):
                    for i in range(1):
                        old[0] = tack.atomic_cas(x, 0, 4, 7)
                        old[1] = tack.atomic_cas(x, 0, 5, 8)
                        old[2] = tack.atomic_cas(x, 0, 8, 9)
                """,
            x,
            old,
        )
        assert old.tolist() == [5, 5, 8]
        assert x[0] == 9
        # A spin on compare-and-swap is an atomic add.
        n = 100 if oracle.bits(name) == 8 else 20_000
        x[0] = 0
        run(
            """
            @tack.kernel
            def kernel(x, n):
                for i in range(n):
                    seen = x[0]
                    while True:
                        before = tack.atomic_cas(x, 0, seen, seen + 1)
                        if before == seen:
                            break
                        seen = before
            """,
            x,
            n,
        )
        assert x[0] == n


def test_index_forms_and_expression_use() -> None:
    x = np.zeros((3, 4), np.int32)
    o = np.zeros(3, np.int32)
    run(
        """
        @tack.func
        def bump(a, r, c):
            return tack.atomic_add(a, (r, c), 10)

        @tack.kernel
        def kernel(x, o):
            for i in range(1):
                tack.atomic_add(x, 5, 1)
                o[0] = tack.atomic_add(x, (1, 1), 1) * 100 + tack.atomic_max(x, (2, 3), 9)
                o[1] = bump(x, 1, 1) + bump(x, 1, 1)
                if tack.atomic_add(x, 0, 1) == 0 and tack.atomic_add(x, 0, 1) == 1:
                    o[2] = tack.atomic_sub(x, 0, 5)
        """,
        x,
        o,
    )
    assert o.tolist() == [100, 2 + 12, 2]
    assert x.tolist() == [[-3, 0, 0, 0], [0, 22, 0, 0], [0, 0, 0, 9]]


def test_value_converts_once_to_the_arrays_type() -> None:
    x, u, f = np.zeros(1, np.int32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    run(
        """
            @tack.kernel
            def kernel(x, u, f):
                for i in range(1):
                    tack.atomic_add(x, 0, 2.9)
                    tack.atomic_add(u, 0, 2**32 + 300)
                    tack.atomic_add(u, 0, -1)
                    tack.atomic_add(f, 0, 16777217)
            """,
        x,
        u,
        f,
    )
    assert x[0] == 2
    assert u[0] == 299
    assert f[0] == 16777216.0


def test_zero_dimensional_target() -> None:
    x = np.zeros((), np.int32)
    run(
        "@tack.kernel\ndef kernel(x, n):\n    for i in range(n):\n        tack.atomic_add(x, 0, i)\n", x, 1000
    )
    assert x == 499500


@pytest.mark.parametrize("name", oracle.FLOATS)
def test_float_extremes_in_threads_with_negative_values(name: str) -> None:
    dtype = oracle.numpy_dtype(name)
    values = np.random.default_rng(1).uniform(-5, -1, 100_000).astype(dtype)
    x = np.array([np.inf, -np.inf, 0], dtype)
    with atomics_on(name):
        launch(
            build(
                """
                    @tack.kernel
                    def kernel(x, v):
                        for i in range(v.shape[0]):
                            tack.atomic_min(x, 0, v[i])
                            tack.atomic_max(x, 1, v[i])
                            tack.atomic_add(x, 2, 1.0)
                    """
            ),
            x,
            values,
        )
        assert x.tolist() == [float(values.min()), float(values.max()), 100_000.0]


@pytest.mark.parametrize("op", [*INTEGER_ONLY, "cas"])
def test_integer_operations_on_floats_are_a_type_error(rejects: Rejects, op: str) -> None:
    arguments = "x, 0, 1, 2" if op == "cas" else "x, 0, 1"
    for head in ("", "if 0:\n            "):
        rejects(
            TypeError,
            f"@tack.kernel\ndef kernel(x):\n    for i in range(1):\n"
            f"        {head}«tack.atomic_{op}(«{arguments})\n",
            np.zeros(1),
        )


def test_targets_that_are_no_array_parameter(rejects: Rejects) -> None:
    local = """
        @tack.kernel
        def kernel(o):
            for i in range(1):
                a = tack.local_array(3, tack.i32)
                «tack.atomic_add(«a, 0, 1)
        """
    rejects(TypeError, local, np.zeros(1))
    for target in ("n", "i", "3", "o[0]"):
        rejects(
            TypeError,
            f"""
                @tack.kernel
                def kernel(o, n):
                    for i in range(1):
                        «tack.atomic_add(«{target}, 0, 1)
                """,
            np.zeros(1, np.int32),
            5,
        )


def test_wrong_counts_are_rejected(rejects: Rejects) -> None:
    for call in (
        "tack.atomic_add(o, 0)",
        "tack.atomic_add(o)",
        "tack.atomic_add(o, 0, 1, 2)",
        "tack.atomic_cas(o, 0, 1)",
    ):
        rejects(
            (TypeError, tack.UnsupportedSyntaxError),
            f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        «{call}»\n",
            np.zeros(1, np.int32),
        )
    rejects(
        TypeError,
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        «tack.atomic_add(«o, «(0, 0), 1)\n",
        np.zeros(1, np.int32),
    )


def test_misaligned_target_is_refused_before_any_update() -> None:
    raw = np.zeros(8 * 10 + 1, np.uint8)
    kernel = build(
        "@tack.kernel\ndef kernel(x):\n    for i in range(x.shape[0]):\n        tack.atomic_add(x, i, 1)\n"
    )
    for name in ("i16", "i32", "i64", "f32", *(["f64"] if tack.default_device().supports_f64 else [])):
        with pytest.raises(ValueError, match=r"'x' is not aligned|is not a multiple of"):
            launch(kernel, raw[1:].view(oracle.numpy_dtype(name)))
        assert not raw.any()
    with atomics_on("i8"):
        launch(kernel, raw[1:].view(np.int8))
        assert raw[1:].tolist() == [1] * 80


def test_read_only_target_is_refused() -> None:
    x = np.zeros(3, np.int32)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="x"):
        launch(
            build("@tack.kernel\ndef kernel(x):\n    for i in range(3):\n        tack.atomic_add(x, i, 1)\n"),
            x,
        )
    assert not x.any()
