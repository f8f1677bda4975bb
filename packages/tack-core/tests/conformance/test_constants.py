"""language.md section 7: compile-time constants, scalars and tables."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from .helpers import Rejection, build, execute, launch, run, value, values

Rejects = Callable[..., Rejection]


def test_a_constant_is_a_number_on_the_host() -> None:
    n, x = tack.constant(7), tack.constant(2.5)
    assert isinstance(n, int)
    assert isinstance(x, float)
    assert n == 7
    assert n + 1 == 8
    assert x * 2 == 5.0
    assert list(range(tack.constant(3))) == [0, 1, 2]
    assert np.zeros(n).shape == (7,)
    assert tack.constant(True) == 1


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (300, None, 300),
        (7, "int8", 7),
        (3, tack.f32, 3.0),
        (0.1, np.float32, float(np.float32(0.1))),
        (200, tack.u8, 200),
        (2**63, None, 2**63),
    ],
)
def test_constants_in_kernels(number: Any, dtype: Any, expected: Any) -> None:
    constant = tack.constant(number, dtype) if dtype is not None else tack.constant(number)
    assert value("C", np.float64, _C=constant) == expected


def test_typed_constants_take_part_in_promotion() -> None:
    small, wide = tack.constant(7, tack.i8), tack.constant(7, tack.i64)
    x = np.array([100], np.int8)
    got = values(
        ["clz((x[0] + S) ^ (x[0] + S))", "clz((x[0] + W) ^ (x[0] + W))", "clz((x[0] + U) ^ (x[0] + U))"],
        np.int32,
        x=x,
        _S=small,
        _W=wide,
        _U=tack.constant(7),
    )
    assert got == [8, 64, 32]


@pytest.mark.f64
def test_untyped_float_constants_are_weak_and_typed_ones_are_not() -> None:
    tenth32 = float(np.float32(0.1))
    got = values(
        ["W", "W * d[0]", "T", "T * d[0]", "D * f[0]"],
        np.float64,
        d=np.ones(1),
        f=np.ones(1, np.float32),
        _W=tack.constant(0.1),
        _T=tack.constant(0.1, tack.f32),
        _D=tack.constant(0.1, tack.f64),
    )
    assert got == [0.1, 0.1, tenth32, tenth32, 0.1]


def test_host_arithmetic_on_constants_is_not_a_constant(rejects: Rejects) -> None:
    rejects(
        NameError,
        """
            C = tack.constant(3) + 1
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = «C»
            """,
        np.zeros(1),
    )


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(300, tack.i8), (-1, tack.u8), (2**64, None), (-(2**63) - 1, None), (2**32, "int32")],
)
def test_out_of_range_is_a_value_error(number: int, dtype: Any) -> None:
    with pytest.raises(ValueError, match=str(number)):
        tack.constant(number, dtype)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        ("3", None),
        (None, None),
        (1j, None),
        (3, "nonsense"),
        (3, "complex64"),
        (3, "float16"),
        (object(), None),
        ((1, "a"), None),
    ],
)
def test_not_a_number_or_not_a_dtype_is_a_type_error(number: Any, dtype: Any) -> None:
    with pytest.raises(TypeError):
        tack.constant(number, dtype)


def test_lookup_through_globals_closures_and_module_attributes() -> None:
    module = types.ModuleType("physics")
    module.inner = types.SimpleNamespace()  # type: ignore[attr-defined]
    module.G = tack.constant(5)  # type: ignore[attr-defined]
    assert values(["physics.G", "C + physics.G"], np.int64, _physics=module, _C=tack.constant(1)) == [5, 6]
    source = """
        def factory(local):
            @tack.func
            def f(a):
                return a * local

            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = f(local) + local
            return kernel
        kernels = [factory(tack.constant(n)) for n in (2, 3)]
    """
    o = np.zeros(1)
    for kernel, expected in zip(build(source, "kernels"), (6, 12), strict=True):
        launch(kernel, o)
        assert o[0] == expected


def test_lookups_run_no_code() -> None:
    """A module attribute is read from its dictionary: properties and __getattr__ do not run."""
    calls = []

    class Sneaky(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return tack.constant(1)

    module = Sneaky("sneaky")
    with pytest.raises((NameError, tack.UnsupportedSyntaxError)):
        value("sneaky.missing", np.int32, _sneaky=module)
    assert [c for c in calls if not c.startswith("__")] == []


def test_parameters_and_locals_shadow_constants() -> None:
    o = np.zeros(2)
    run(
        "C = tack.constant(3)\n@tack.kernel\ndef kernel(o, C):\n    for i in range(1):\n        o[0] = C\n",
        o,
        8,
    )
    assert o[0] == 8
    run(
        """
            C = tack.constant(3)
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    C = 9
                    o[0] = C
                    for C in range(5, 6):
                        o[1] = C
            """,
        o,
    )
    assert o.tolist() == [9, 5]


def test_constant_shadowed_by_a_later_local_is_unassigned_before(rejects: Rejects) -> None:
    rejects(
        NameError,
        """
            C = tack.constant(3)
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[0] = «C
                    «C = 9
            """,
        np.zeros(1),
    )


def test_rebinding_after_compilation_is_not_seen() -> None:
    source = "C = tack.constant(3)\n@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = C\n"
    space = execute(source)
    o = np.zeros(1)
    launch(space["kernel"], o)
    space["C"] = tack.constant(4)
    launch(space["kernel"], o)
    assert o[0] == 3


def test_constants_as_sizes_bounds_and_steps() -> None:
    o = np.zeros(12)
    run(
        """
            N = tack.constant(5)
            S = tack.constant(2)
            @tack.kernel
            def kernel(o):
                for i in range(0, N * 2, S):
                    a = tack.local_array(N, tack.i32)
                    a[N - 1] = i + 1
                    o[i] = a[4]
            """,
        o,
    )
    assert o.tolist() == [1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 0, 0]


# --- tables -----------------------------------------------------------------------------------


def test_tables_on_the_host() -> None:
    t = tack.constant(((1, 2, 3), (4, 5, 6)))
    assert t[1][2] == 6
    assert np.asarray(t).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert len(tack.constant((1.0, 2.0))) == 2


def test_tables_in_kernels_with_literal_and_runtime_indices() -> None:
    table = tuple(k * k for k in range(40))
    square = tuple(tuple(10 * r + c for c in range(7)) for r in range(6))
    o = np.zeros((3, 40), np.int64)
    run(
        """
            @tack.kernel
            def kernel(o):
                for i in range(40):
                    o[0, i] = T[i]
                    o[1, i] = S[i % 6][i % 7]
                    o[2, i] = S[i % 6, i % 7] + T[3]
            """,
        o,
        T=tack.constant(table),
        S=tack.constant(square),
    )
    assert o[0].tolist() == list(table)
    assert o[1].tolist() == [square[i % 6][i % 7] for i in range(40)]
    assert o[2].tolist() == [square[i % 6][i % 7] + 9 for i in range(40)]


def test_runtime_index_out_of_range_is_clamped_at_both_ends() -> None:
    table = tack.constant(tuple(range(100, 120)))
    k = np.array([-1, 0, 19, 20, 2**40, -(2**40)])
    got = values([f"T[k[{j}]]" for j in range(6)], np.int64, k=k, _T=table)
    assert got == [100, 100, 119, 119, 119, 100]


@pytest.mark.f64
def test_table_of_floats_with_a_dtype() -> None:
    table = tack.constant(tuple(0.1 * k for k in range(20)), tack.f64)
    assert value("T[k]", np.float64, k=3, _T=table) == 0.1 * 3


@pytest.mark.parametrize("bad", [((1, 2), (3,)), ((1, 2), 3), ()])
def test_irregular_and_empty_tables_are_rejected(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        tack.constant(bad)
