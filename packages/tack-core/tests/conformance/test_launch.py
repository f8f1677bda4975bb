"""language.md section 3: the parallel loop, what may stand outside it, bounds, sizes, overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from .helpers import Rejection, build, launch, run

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


# --- exactly one parallel loop ----------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["o[0] = 1", "v = 1", "pass", "while o[0] < 0:\n        v = 1", '"""Only a docstring."""']
)
def test_no_parallel_loop(rejects: Rejects, body: str) -> None:
    rejects(SYNTAX, f"«@tack.kernel\n«def «kernel(o):\n    «{body}\n", np.zeros(1))


def test_second_parallel_loop(rejects: Rejects) -> None:
    rejects(
        SYNTAX,
        """
            @tack.kernel
            def kernel(o):
                for i in range(2):
                    o[i] = 1
                «for j in range(2):
                    o[j] = 2
            """,
        np.zeros(2),
    )


@pytest.mark.parametrize("head", ["if n > 0", "while n > 0"])
def test_loop_inside_an_if_or_while(rejects: Rejects, head: str) -> None:
    rejects(
        SYNTAX,
        f"@tack.kernel\ndef kernel(o, n):\n    {head}:\n        «for i in range(2):\n            o[i] = 1\n",
        np.zeros(2),
        1,
    )


def test_return_inside_the_parallel_loop(rejects: Rejects) -> None:
    for text in ("«return", "«return 3"):
        rejects(
            SYNTAX,
            f"""
            @tack.kernel
            def kernel(o):
                for i in range(2):
                    if o[i] > 0:
                        {text}
            """,
            np.zeros(2),
        )


def test_parallel_loop_over_something_else(rejects: Rejects) -> None:
    for text in ("o", "(1, 2)", "enumerate(o)", "zip(o, o)", "n", "reversed(range(3))"):
        rejects(
            (SYNTAX, TypeError),
            f"@tack.kernel\ndef kernel(o, n):\n    «for i in «{text}:\n        o[0] = 1\n",
            np.zeros(2),
            3,
        )


# --- outside it -------------------------------------------------------------------------------


def test_statements_outside_assign_locals_and_load() -> None:
    o, x = np.zeros(4, np.int64), np.array([7, 8, 9], np.int64)
    run(
        """
        @tack.func
        def twice(a):
            return 2 * a

        @tack.kernel
        def kernel(o, x, n):
            first = x[0]
            last = x[len(x) - 1]
            if n > 3:
                k = twice(n)
            else:
                k = 0
            while k > 5:
                k -= 2
            a, b = first, last
            for i in range(n):
                o[i] = a * 100 + b * 10 + k + i
            done = a
        """,
        o,
        x,
        4,
    )
    assert o.tolist() == [700 + 90 + 4 + i for i in range(4)]


FORBIDDEN = {
    "store": "«o[0] = 1",
    "augmented store": "«o[0] += 1",
    "atomic": "«tack.atomic_add(o, 0, 1)",
    "atomic value": "v = «tack.atomic_add(o, 0, 1)",
    "print": "«print('x', 1)",
    "store in an if": "if n > 0:\n        «o[0] = 1",
    "atomic in a while": "while n > 5:\n        «tack.atomic_add(o, 0, 1)",
    "tuple store": "v, «o[0] = 1, 2",
}


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("name", FORBIDDEN)
def test_effects_outside_are_rejected_at_their_own_place(rejects: Rejects, name: str, where: str) -> None:
    statement = FORBIDDEN[name]
    loop = "for i in range(2):\n        o[i] = 1\n"
    # A tuple assignment may be named as a whole.
    statement = statement.replace("v, «o", "«v, «o")
    body = f"{statement}\n    {loop}" if where == "before" else f"{loop}    {statement}\n"
    rejects(SYNTAX, f"@tack.kernel\ndef kernel(o, n):\n    {body}", np.zeros(2), 0)


@pytest.mark.parametrize("effect", ["«o[0] = 1", "«tack.atomic_add(o, 0, 1)", "«print('x')"])
def test_effects_through_a_device_function_are_rejected(rejects: Rejects, effect: str) -> None:
    source = f"""
@tack.func
def inner(o):
    {effect}

@tack.func
def outer(o):
    inner(o)

@tack.kernel
def kernel(o):
    outer(o)
    for i in range(2):
        o[i] = 1
"""
    found = rejects(SYNTAX, source, np.zeros(2))
    assert "inner" in found.text
    assert "outer" in found.text


# --- per-iteration copies ---------------------------------------------------------------------


def test_outer_locals_and_parameters_are_copied_per_iteration() -> None:
    for n in (5, 100_000):
        o = np.zeros(n, np.int64)
        run(
            """
            @tack.kernel
            def kernel(o, p):
                v = 10
                for i in range(o.shape[0]):
                    v += i
                    p = p * 2 + i
                    o[i] = v * 1000000 + p
            """,
            o,
            7,
        )
        i = np.arange(n, dtype=np.int64)
        assert np.array_equal(o, (10 + i) * 1000000 + 14 + i)


def test_locals_are_not_carried_between_iterations(rejects: Rejects) -> None:
    source = """
        @tack.kernel
        def kernel(o):
            for i in range(2):
                if i > 0:
                    o[i] = «v
                v = i
        """
    rejects(NameError, source, np.zeros(2))


# --- the bound --------------------------------------------------------------------------------

BOUNDS = {
    "5": 5,
    "-(-5)": 5,
    "n": 4,
    "n + 3": 7,
    "n - 6": 0,
    "2 * n - 1": 7,
    "n // 3": 1,
    "-n // 3 + 5": 3,
    "min(n, 2)": 2,
    "max(n, 2, 9)": 9,
    "x.shape[0]": 3,
    "x.shape[1] + 1": 6,
    "x.shape[-1]": 5,
    "len(x)": 3,
    "x.size": 15,
    "x.size - n": 11,
    "k": 8,
    "k + len(x)": 11,
    "C": 6,
    "C * 2": 12,
    "int(f)": 2,
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_that_the_host_computes(bound: str) -> None:
    o = np.zeros(20, np.int32)
    source = f"""
        C = tack.constant(6)
        @tack.kernel
        def kernel(o, x, n, f):
            k = n * 2
            for i in range({bound}):
                o[i] += 1
        """
    run(source, o, np.zeros((3, 5)), 4, 2.75)
    assert o.tolist() == [1] * BOUNDS[bound] + [0] * (20 - BOUNDS[bound])


def test_bound_with_start_and_step() -> None:
    for start, stop, step in ((1, 9, 1), (0, 10, 3), (2, 11, 4), (5, 5, 1), (9, 3, 2), (-3, 4, 2)):
        o = np.zeros(20, np.int32)
        run(
            """
                @tack.kernel
                def kernel(o, a, b, s):
                    for i in range(a, b - 1 + 1, s):
                        o[i + 5] += 1
                """,
            o,
            start,
            stop,
            step,
        )
        assert o.tolist() == [1 if k - 5 in range(start, stop, step) else 0 for k in range(20)]


@pytest.mark.parametrize(
    "bound", ["«x[0]", "n + «x[1]", "«sqrt(4)", "«n if n else 3", "«f", "«n / 2", "«n < 3"]
)
def test_bound_that_the_host_cannot_compute(rejects: Rejects, bound: str) -> None:
    source = f"@tack.kernel\ndef kernel(o, x, n, f):\n    for i in «range(«{bound}):\n        o[i] = 1\n"
    rejects((SYNTAX, TypeError), source, np.zeros(9), np.ones(4, np.int32), 4, 2.0)


def test_bound_from_an_assigned_loop_local_of_an_array(rejects: Rejects) -> None:
    source = "@tack.kernel\ndef kernel(o, x):\n    n = «x[0]\n    for i in «range(«n):\n        o[i] = 1\n"
    rejects(SYNTAX, source, np.zeros(9), np.ones(4, np.int32))


def test_bound_is_exact_and_zero_division_is_pythons() -> None:
    kernel = build("@tack.kernel\ndef kernel(o, a, b):\n    for i in range(a // b):\n        o[i] = 1\n")
    o = np.zeros(9, np.int32)
    with pytest.raises(ZeroDivisionError):
        launch(kernel, o, 4, 0)
    assert not o.any()
    launch(kernel, o, -7, -2)
    assert o.sum() == 3
    # An i32 product would wrap to 0 and leave 2.
    wide = build(
        "@tack.kernel\ndef kernel(o, a, b):\n    for i in range(a * b // 4294967296 + 2):\n        o[i] = 1\n"
    )
    o[:] = 0
    launch(wide, o, 65536, 65536)
    assert o.sum() == 3


def test_bound_is_evaluated_per_dispatch() -> None:
    kernel = build("@tack.kernel\ndef kernel(o, n):\n    for i in range(n):\n        o[i] += 1\n")
    o = np.zeros(6, np.int32)
    for n in (3, 0, -5, 6, 1, 2**40 - 2**40):
        launch(kernel, o, n)
    assert o.tolist() == [3, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("n", [0, -1, -(2**31), -(2**62)])
def test_empty_and_reversed_run_nothing(n: int) -> None:
    kernel = build("@tack.kernel\ndef kernel(o, n):\n    for i in range(n):\n        o[i] = 1\n")
    o = np.zeros(2, np.int32)
    launch(kernel, o, n)
    assert not o.any()


def test_zero_length_arrays_first_and_warm() -> None:
    kernel = build("@tack.kernel\ndef kernel(o):\n    for i in range(o.shape[0]):\n        o[i] = i\n")
    launch(kernel, np.zeros(0))
    o = np.zeros(3)
    launch(kernel, o)
    launch(kernel, np.zeros(0))
    assert o.tolist() == [0, 1, 2]
    with pytest.raises(TypeError):
        launch(kernel, "no array")


def test_too_many_iterations_are_refused_before_anything_runs() -> None:
    kernel = build("@tack.kernel\ndef kernel(o, n):\n    for i, j in tack.ndindex(n, n):\n        o[0] = 1\n")
    o = np.zeros(1)
    with pytest.raises(ValueError, match="kernel") as caught:
        launch(kernel, o, 2**40)
    assert str(2**80) in str(caught.value)
    assert o[0] == 0


# --- grids ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 7), (1, 1000), (1000, 1), (301, 257)])
def test_two_dimensional_grid(shape: tuple[int, int]) -> None:
    o = np.full(shape, -1, np.int64)
    run(
        """
            @tack.kernel
            def kernel(o):
                for i, j in tack.ndindex(o.shape[0], o.shape[1]):
                    o[i, j] += i * 1000 + j + 1
            """,
        o,
    )
    i, j = np.indices(shape)
    assert np.array_equal(o, i * 1000 + j)


def test_three_dimensional_grid_in_threads() -> None:
    shape = (50, 40, 61)
    o = np.zeros(shape, np.int64)
    run(
        """
        @tack.kernel
        def kernel(o):
            for i, j, k in tack.ndindex(o.shape[0], (1, o.shape[1]), (2, o.shape[2] - 1)):
                if j == 5:
                    continue
                o[i, j, k] += i * 10000 + j * 100 + k
        """,
        o,
    )
    i, j, k = np.indices(shape)
    inside = (j >= 1) & (j != 5) & (k >= 2) & (k < 60)
    assert np.array_equal(o, np.where(inside, i * 10000 + j * 100 + k, 0))


def test_every_index_runs_once_at_any_size() -> None:
    kernel = build(
        "@tack.kernel\ndef kernel(o):\n    for i in range(o.shape[0]):\n        o[i] += i * 3 + 1\n"
    )
    for n in (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 255, 257, 1023, 4097, 65537, 1_000_003):
        o = np.zeros(n, np.int64)
        launch(kernel, o)
        assert np.array_equal(o, np.arange(n) * 3 + 1), n


def test_indices_past_two_to_the_31() -> None:
    """A range that starts past 2**31 and an array longer than that: 64-bit offsets throughout."""
    n = 2**31 + 7
    x = np.zeros(n, np.uint8)  # the pages that nobody touches cost nothing
    run("@tack.kernel\ndef kernel(x, a):\n    for i in range(a, x.shape[0]):\n        x[i] = 9\n", x, n - 10)
    assert x[-10:].tolist() == [9] * 10
    assert not x[-20:-10].any()
    two = x[: n - n % 4].reshape(4, -1)
    run(
        """
            @tack.kernel
            def kernel(x, a):
                for i, j in tack.ndindex((3, 4), (a, x.shape[1])):
                    x[i, j] = 5
            """,
        two,
        two.shape[1] - 3,
    )
    assert two[3, -3:].tolist() == [5, 5, 5]


def test_more_iterations_than_two_to_the_31() -> None:
    n = 2**31 + 5
    o, count = np.zeros(1, np.int64), np.zeros(1, np.int32)
    run(
        """
        @tack.kernel
        def kernel(o, count, n):
            for i in range(n):
                if i == n - 1:
                    o[0] = i
                if i >= 2147483648:
                    tack.atomic_add(count, 0, 1)
        """,
        *(o, count, n),
    )
    assert (o[0], count[0]) == (n - 1, 5)


def test_loop_index_is_64_bits() -> None:
    o = np.zeros(3, np.int64)
    run("@tack.kernel\ndef kernel(o, a):\n    for i in range(a, a + 3):\n        o[i - a] = i\n", o, 2**33)
    assert o.tolist() == [2**33, 2**33 + 1, 2**33 + 2]


# --- overlap ----------------------------------------------------------------------------------


def test_overlapping_arguments_keep_program_order_within_an_iteration() -> None:
    x = np.array([1, 2, 3, 4], np.int64)
    kernel = build(
        """
        @tack.kernel
        def kernel(a, b, o):
            for i in range(1):
                b[i] = 10
                o[0] = a[i]
                a[i] = 20
                o[1] = b[i]
                for k in range(3):
                    b[k] = a[k] + 1
                    o[2] = o[2] + a[k]
        """
    )
    o = np.zeros(3, np.int64)
    launch(kernel, x, np.zeros(4, np.int64), o)
    assert o.tolist() == [1, 10, 20 + 2 + 3]
    x[:] = [1, 2, 3, 4]
    o[:] = 0
    launch(kernel, x, x, o)
    assert o.tolist() == [10, 20, 21 + 3 + 4]
    assert x.tolist() == [21, 3, 4, 4]
    x[:] = [1, 2, 3, 4]
    o[:] = 0
    launch(kernel, x[1:], x[:3], o)  # shifted by one element: b[k + 1] is a[k]
    # b[0] = 10 is x[0]; a[0] = 20 is x[1]; then x[k] = x[k + 1] + 1, reading x[k + 1] after.
    assert x.tolist() == [21, 4, 5, 4]
    assert o.tolist() == [2, 10, 20 + 3 + 4]


def test_kernel_sees_values_stored_through_another_dtype_view() -> None:
    x = np.zeros(4, np.float32)
    o = np.zeros(2, np.uint32)
    run(
        """
            @tack.kernel
            def kernel(f, u, o):
                for i in range(1):
                    f[0] = 1.0
                    o[0] = u[0]
                    u[0] = 0
                    f[1] = f[0]
            """,
        x,
        x.view(np.uint32),
        o,
    )
    assert o[0] == 0x3F800000
    assert x[1] == 0


def test_unaligned_arrays() -> None:
    raw = np.zeros(8 * 100 + 1, np.uint8)
    x = raw[1:].view(np.int64)
    assert not x.flags.aligned
    source = "@tack.kernel\ndef kernel(x):\n    for i in range(x.shape[0]):\n        x[i] = x[i] + i\n"
    if tack.default_device()._backend.requires_alignment:
        label = tack.default_device().label
        with pytest.raises(ValueError, match=f"is not a multiple of 8, the size of i64, as {label} needs"):
            run(source, x)
        assert not x.any()
        return
    run(source, x)
    assert np.array_equal(x, np.arange(100))


def test_same_kernel_with_every_dtype() -> None:
    kernel = build(
        "@tack.kernel\ndef kernel(x, y):\n    for i in range(x.shape[0]):\n        y[i] = x[i] + x[i]\n"
    )
    for dtype in (
        np.int8,
        np.uint8,
        np.int16,
        np.uint16,
        np.int32,
        np.uint32,
        np.int64,
        np.uint64,
        np.float32,
        np.float64,
    ):
        x: Any = np.arange(50).astype(dtype)
        y = np.zeros(50, dtype)
        launch(kernel, x, y)
        assert np.array_equal(y, x + x), dtype


def test_an_endless_loop_before_the_parallel_loop_compiles_or_is_refused() -> None:
    """Nothing after it is reached; it is compiled here and not run."""
    kernel = build(
        """
        @tack.kernel
        def kernel(o):
            while True:
                pass
            for i in range(3):
                o[i] = 1
        """
    )
    text = ""
    try:
        text = tack.inspect(kernel, np.zeros(3))
    except tack.UnsupportedSyntaxError as error:
        text = f"refused at line {error.lineno}"

    assert text
