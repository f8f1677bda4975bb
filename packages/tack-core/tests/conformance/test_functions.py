"""language.md section 9: device functions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
import pytest

import tack

from .helpers import Rejection, execute, launch, run

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


def outputs(functions: str, stores: str, count: int = 8, dtype: type = np.int64) -> list[int]:
    """``out`` after one iteration that runs ``stores``."""
    o = np.zeros(count, dtype)
    source = textwrap.dedent(functions) + "\n@tack.kernel\ndef kernel(out):\n    for i in range(1):\n"
    run(source + textwrap.indent(textwrap.dedent(stores), " " * 8), o)
    return list(o.tolist())


def test_one_value_several_or_nothing() -> None:
    functions = """
    @tack.func
    def one(a, b):
        return a * 10 + b

    @tack.func
    def several(a):
        return a, a + 1, a + 2

    @tack.func
    def nothing(out, a):
        out[0] = a

    @tack.func
    def bare(out, a):
        out[1] = a
        return
    """
    stores = """
    nothing(out, 7)
    bare(out, 8)
    out[2] = one(3, 4)
    x, y, z = several(5)
    out[3], out[4], out[5] = several(1)
    out[6] = x * 100 + y * 10 + z
    """
    assert outputs(functions, stores) == [7, 8, 34, 1, 2, 3, 567, 0]


def test_arguments_are_by_value_except_arrays() -> None:
    functions = """
    @tack.func
    def change(a, array):
        a = a + 100
        a += 1
        array[1] = a
        array[2] += 5
    """
    assert outputs(functions, "v = 3\nout[2] = 1\nchange(v, out)\nout[0] = v", 3) == [3, 104, 6]


def test_local_arrays_alias_in_device_functions() -> None:
    functions = """
    @tack.func
    def fill(a, n, v):
        for k in range(n):
            a[k] = v + k
    """
    assert outputs(
        functions,
        "a = tack.local_array(4, tack.i32)\nfill(a, 4, 7)\nfor k in range(4):\n    out[k] = a[k]",
        4,
    ) == [7, 8, 9, 10]


RETURNS = """
@tack.func
def early(a):
    if a < 0:
        return -1
    elif a == 0:
        return 0
    a = a * 2
    if a > 10:
        return a
    return a + 1

@tack.func
def in_loop(a):
    for k in range(10):
        for m in range(10):
            if k * m > a:
                return k * 100 + m
    return -5

@tack.func
def in_while(a):
    n = 0
    while True:
        n += 1
        if n % 2:
            continue
        if n > a:
            return n

@tack.func
def nested(a):
    if in_loop(a) > 200:
        return early(a) * 1000
    for k in range(3):
        if early(k) == in_while(k + a):
            return k
        if k == 2:
            break
    return in_while(a)
"""


def _model() -> dict[str, Callable[[int], int]]:
    space: dict[str, Callable[[int], int]] = {}
    exec(RETURNS.replace("@tack.func", ""), space)  # type: ignore[arg-type]
    return space


def test_return_ends_the_function_on_its_path_also_in_loops() -> None:
    arguments = list(range(-3, 90, 2))
    x = np.array(arguments, np.int64)
    model = _model()
    for name in ("early", "in_loop", "in_while", "nested"):
        o = np.zeros(len(x), np.int64)
        head = "@tack.kernel\ndef kernel(o, x):\n    for i in range(x.shape[0]):\n"
        run(f"{RETURNS}{head}        o[i] = {name}(x[i])\n", o, x)
        assert o.tolist() == [model[name](a) for a in arguments], name


def test_statements_after_a_return_in_the_caller_still_run() -> None:
    """`return` of an inlined function must not end the kernel's iteration or loop."""
    stores = "for k in range(4):\n    out[k] = early(k - 1) + in_while(k)\nout[4] = 77"
    model = _model()
    assert outputs(RETURNS, stores, 5) == [model["early"](k - 1) + model["in_while"](k) for k in range(4)] + [
        77
    ]


def test_return_values_promote_like_a_local() -> None:
    functions = """
    @tack.func
    def pick(a):
        if a > 0:
            return tack.i8(-5)
        return tack.u8(200)
    """
    assert outputs(
        functions,
        """
            out[0] = pick(1)
            out[1] = pick(0)
            out[2] = clz(pick(0) ^ pick(1) ^ pick(0) ^ pick(1))
            out[3] = pick(1) * 100
            """,
        4,
    ) == [-5, 200, 16, -500]


def test_parameters_take_the_type_of_each_call() -> None:
    functions = """
    @tack.func
    def width(a):
        return clz(a ^ a)
    """
    assert outputs(
        functions,
        "out[0] = width(tack.i8(1))\nout[1] = width(tack.u64(1))\nout[2] = width(1)\nout[3] = width(i)",
        4,
    ) == [8, 64, 32, 64]


def test_parameter_reassigned_in_the_function_joins_types() -> None:
    functions = """
    @tack.func
    def grow(a):
        a = a + tack.i64(4294967296)
        return a
    """
    assert outputs(functions, "out[0] = grow(1)\nout[1] = grow(tack.i8(-1))", 2) == [2**32 + 1, 2**32 - 1]


def test_locals_are_the_functions_own() -> None:
    functions = """
    @tack.func
    def f(a):
        v = a * 2
        k = v + 1
        return k

    @tack.func
    def g(v):
        k = f(v) + f(v + 1)
        return k + v
    """
    assert outputs(
        functions, "v = 10\nk = 1000\nout[0] = g(f(v)) + v + k\nfor a in range(2):\n    out[1] += f(a)", 2
    ) == [
        (2 * 21 + 1) + (2 * 22 + 1) + 21 + 10 + 1000,
        1 + 3,
    ]


def test_local_of_the_caller_is_not_visible_in_the_function(rejects: Rejects) -> None:
    source = """
        @tack.func
        def f(a):
            return a + «v»

        @tack.kernel
        def kernel(o):
            for i in range(1):
                v = 3
                o[i] = f(i)
        """
    found = rejects(NameError, source, np.zeros(1))
    assert "'f'" in found.text
    assert f"{found.path}:9:16" in found.text


def test_nested_callee_uses_its_own_namespace() -> None:
    one = execute(
        """
            C = tack.constant(1)
            @tack.func
            def helper(a):
                return a + C
            @tack.func
            def f(a):
                return helper(a) * 10
            """
    )
    two = execute(
        """
            C = tack.constant(2)
            @tack.func
            def helper(a):
                return a + C
            @tack.func
            def f(a):
                return helper(a) * 100
            """
    )
    o = np.zeros(2)
    run(
        """
            C = tack.constant(5)
            @tack.func
            def helper(a):
                return -a
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[0] = one(1) + two(1)
                    o[1] = helper(C)
            """,
        o,
        one=one["f"],
        two=two["f"],
    )
    assert o.tolist() == [20 + 300, -5]


def test_functions_are_found_by_identity_through_globals_closures_and_modules() -> None:
    import types

    space = execute("@tack.func\ndef f(a):\n    return a + 1\n@tack.func\ndef g(a):\n    return a + 2\n")
    module = types.ModuleType("library")
    module.f = space["g"]  # type: ignore[attr-defined]
    source = """
        def factory(h):
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[0] = f(0)
                    o[1] = library.f(0)
                    o[2] = h(0)
            return kernel
        kernel = factory(g)
    """
    o = np.zeros(3)
    run(source, o, f=space["f"], g=space["g"], library=module)
    assert o.tolist() == [1, 2, 2]


def test_function_defined_after_the_kernel() -> None:
    o = np.zeros(1)
    run(
        """
            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = later(3)
            @tack.func
            def later(a):
                return a * 2
            """,
        o,
    )
    assert o[0] == 6


def test_factory_functions_with_the_same_name() -> None:
    source = """
        def make(n):
            c = tack.constant(n)
            @tack.func
            def f(a):
                return a * c
            return f
        f1, f2, f3 = make(1), make(2), make(3)
        @tack.kernel
        def kernel(o):
            for i in range(1):
                o[0] = f1(10)
                o[1] = f2(10)
                o[2] = f3(10)
    """
    o = np.zeros(3)
    run(source, o)
    assert o.tolist() == [10, 20, 30]


@pytest.mark.parametrize("call", ["f(1)", "f(1, 2, 3)", "f()"])
def test_arity_mismatch_is_a_type_error_with_the_position(rejects: Rejects, call: str) -> None:
    found = rejects(
        TypeError,
        f"""
            @tack.func
            def f(a, b):
                return a

            @tack.kernel
            def kernel(o):
                for i in range(1):
                    o[i] = 1 + «{call}»
            """,
        np.zeros(1),
    )
    assert "'f'" in found.text


@pytest.mark.parametrize(
    "statement",
    [
        "x, y = «f(1)",
        "x, y, z, w = «f(1)",
        "x = «f(1)",
        "o[i] = 1 + «f(1)",
        "«o[i] = «f(1)",
        "x, y = «g(1)",
        "x = «n(1)",
        "o[i] = 2 * «n(1)",
        "x, y = «n(1)",
    ],
)
def test_unpacking_counts_are_a_type_error(rejects: Rejects, statement: str) -> None:
    source = f"""
        @tack.func
        def f(a):
            return a, a, a

        @tack.func
        def g(a):
            return a

        @tack.func
        def n(a):
            b = a

        @tack.kernel
        def kernel(o):
            for i in range(1):
                «{statement}
    """
    rejects((TypeError, SYNTAX), source, np.zeros(1))


def test_paths_that_return_different_counts_are_rejected(rejects: Rejects) -> None:
    for body in (
        "    if a > 0:\n        return a\n    «return a, a\n",
        "    if a > 0:\n        «return a\n    «b = a\n",
        "    if a > 0:\n        «return\n    «return a\n",
    ):
        caller = "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        «o[i] = «f(i)\n"
        source = f"@tack.func\n«def «f(a):\n{body}\n{caller}"
        rejects((TypeError, SYNTAX), source, np.zeros(1))


def test_default_and_star_parameters_of_functions() -> None:
    with pytest.raises(SYNTAX):
        run(
            """
                @tack.func
                def f(*a):
                    return 1
                @tack.kernel
                def kernel(o):
                    for i in range(1):
                        o[i] = f(i)
                """,
            np.zeros(1),
        )


def test_constant_expressions_and_loops_in_functions_with_arrays() -> None:
    functions = """
    @tack.func
    def total(x):
        s = 0
        for k in range(x.shape[0]):
            s += x[k]
        return s + len(x) + x.ndim

    @tack.func
    def swap(x, a, b):
        x[a], x[b] = x[b], x[a]
    """
    assert outputs(functions, "out[0] = 5\nout[1] = 6\nswap(out, 0, 1)\nout[2] = total(out)", 3) == [
        6,
        5,
        6 + 5 + 0 + 3 + 1,
    ]


def test_deep_chain_of_functions() -> None:
    functions = "@tack.func\ndef f0(a):\n    return a + 1\n" + "".join(
        f"@tack.func\ndef f{n}(a):\n    return f{n - 1}(a) + 1\n" for n in range(1, 60)
    )
    assert outputs(functions, "out[0] = f59(0)", 1) == [60]


def test_launches_of_one_function_from_two_kernels() -> None:
    space = execute(
        """
            @tack.func
            def f(a):
                return a + 1
            @tack.kernel
            def one(o):
                for i in range(1):
                    o[i] = f(1)
            @tack.kernel
            def two(o):
                for i in range(1):
                    o[i] = f(2.5)
            """
    )
    o = np.zeros(1)
    launch(space["one"], o)
    assert o[0] == 2
    launch(space["two"], o)
    assert o[0] == 3.5
