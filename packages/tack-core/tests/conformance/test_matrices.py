"""Matrices against NumPy and exact fractions: products of every shape, elements, determinant, inverse."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tack
from tack.dtypes import as_dtype

from . import oracle
from .helpers import build
from .upload import narrowed, observed

EXTENTS = (1, 2, 3, 4)
ROWS = 5


def element_type(shape: Sequence[int], dtype: Any) -> Any:
    """The type of an array's elements: a scalar, vector or matrix."""
    if len(shape) == 2:
        return tack.matrix(*shape, dtype)
    return tack.vector(*shape, dtype) if shape else as_dtype(dtype)


def elements(values: np.ndarray) -> tack.Array:
    """An array whose elements have the shape of all axes of ``values`` but the first; a copy."""
    values = narrowed(values)
    return tack.asarray(values, dtype=element_type(values.shape[1:], values.dtype), copy=True)


def evaluate(
    cases: dict[str, Sequence[int]], dtype: Any, /, setup: str = "", **args: np.ndarray
) -> list[np.ndarray]:
    """What each expression, with the shape of its value, gives for each row of the arguments."""
    rows = len(next(iter(args.values())))
    lines = [*(f"{k} = {k}_[i]" for k in args), *setup.splitlines()]
    lines += [f"out{k}[i] = {text}" for k, text in enumerate(cases)]
    params = ", ".join([*(f"out{k}" for k in range(len(cases))), *(f"{k}_" for k in args)])
    body = "".join(f"        {line}\n" for line in lines)
    kernel = build(f"@tack.kernel\ndef kernel({params}):\n    for i in range({rows}):\n{body}")
    outs = [tack.zeros(rows, element_type(shape, observed(dtype))) for shape in cases.values()]
    kernel(*outs, *map(elements, args.values()))
    return [out.numpy() for out in outs]


def integers(*shape: int, seed: int = 0, dtype: Any = np.int32) -> np.ndarray:
    """Small whole numbers, whose products and sums are exact in every dtype."""
    return np.random.default_rng(seed).integers(-4, 5, (ROWS, *shape)).astype(dtype)


# --- products ---------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", EXTENTS)
def test_products_of_every_shape(inner: int) -> None:
    """(n, k) @ (k, m) for all n, k, m, a row or a column for either side."""
    for n in EXTENTS:
        a, v = integers(n, inner, seed=n), integers(inner, seed=7)
        rights = {f"b{m}": integers(inner, m, seed=10 + m) for m in EXTENTS}
        cases: dict[str, Sequence[int]] = {f"a @ b{m}": (n, m) for m in EXTENTS}
        cases |= {"a @ v": (n,), "v @ b2": (2,), "v @ v": (), "a.transpose()": (inner, n)}
        got = evaluate(cases, np.int64, a=a, v=v, **rights)
        expected = [np.einsum("rij,rjk->rik", a, b) for b in rights.values()]
        expected += [np.einsum("rij,rj->ri", a, v), np.einsum("ri,rij->rj", v, rights["b2"])]
        expected += [(v * v).sum(1), a.transpose(0, 2, 1)]
        for text, value, wanted in zip(cases, got, expected, strict=True):
            assert (value == wanted).all(), f"n = {n}, k = {inner}: {text}"


@pytest.mark.parametrize("dtype", oracle.DTYPES)
def test_products_in_every_dtype(dtype: str) -> None:
    kind = oracle.numpy_dtype(dtype)
    a, b = (np.abs(integers(2, 3, seed=1)).astype(kind), np.abs(integers(3, 2, seed=2)).astype(kind))
    (got,) = evaluate({"a @ b": (2, 2)}, kind, a=a, b=b)
    assert (got == a @ b).all()


@pytest.mark.f64
def test_products_promote() -> None:
    a, b = integers(2, 2, dtype=np.int8) * np.int8(30), integers(2, 2, seed=3, dtype=np.uint16)
    b = np.abs(b.astype(np.int32)).astype(np.uint16)
    d = integers(2, 2, seed=4, dtype=np.float64) / 3
    got = evaluate({"a @ a": (2, 2), "a @ b": (2, 2), "a @ d": (2, 2)}, np.float64, a=a, b=b, d=d)
    assert (got[0] == a @ a).all(), "i8 wraps"
    assert (got[1] == a.astype(np.int32) @ b.astype(np.int32)).all()
    np.testing.assert_allclose(got[2], a.astype(float) @ d, rtol=1e-14, atol=1e-12)


def test_outer_products() -> None:
    for n in EXTENTS:
        a, rights = integers(n, seed=1), {f"b{m}": integers(m, seed=2) for m in EXTENTS}
        cases: dict[str, Sequence[int]] = {f"a.outer(b{m})": (n, m) for m in EXTENTS}
        got = evaluate({**cases, "outer(b2, a)": (2, n)}, np.int64, a=a, **rights)
        for value, b in zip(got, rights.values(), strict=False):
            assert (value == a[:, :, None] * b[:, None, :]).all()
        assert (got[-1] == rights["b2"][:, :, None] * a[:, None, :]).all()


# --- square matrices --------------------------------------------------------------------------


def exact_determinant(m: list[list[Fraction]]) -> Fraction:
    if len(m) == 1:
        return m[0][0]
    minors = [[row[:j] + row[j + 1 :] for row in m[1:]] for j in range(len(m))]
    return sum(
        ((-1) ** j * m[0][j] * exact_determinant(minor) for j, minor in enumerate(minors)), Fraction(0)
    )


def exact_inverse(m: list[list[Fraction]]) -> list[list[Fraction]]:
    """By Gauss–Jordan elimination."""
    n = len(m)
    work = [row + [Fraction(i == j) for j in range(n)] for i, row in enumerate(m)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if work[r][i])
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [v / work[i][i] for v in work[i]]
        for r in range(n):
            if r != i:
                work[r] = [a - work[r][i] * b for a, b in zip(work[r], work[i], strict=True)]
    return [row[n:] for row in work]


def fractions(m: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(v) for v in row] for row in m.tolist()]


@pytest.mark.parametrize("n", EXTENTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_determinant_inverse_and_trace(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    m = (rng.uniform(-1, 1, (40, n, n)) + 2 * np.eye(n)).astype(dtype)
    cases = {
        "m.determinant()": (),
        "determinant(m)": (),
        "m.trace()": (),
        "m.inverse()": (n, n),
        "inverse(m)": (n, n),
    }
    got = evaluate({**cases, "m.inverse() @ m": (n, n)}, np.float64, m=m)
    wide = m.astype(float)
    eps = float(np.finfo(dtype).eps)
    scale = np.linalg.cond(wide)
    for value in got[:2]:
        np.testing.assert_allclose(value, np.linalg.det(wide), rtol=0, atol=100 * eps)
        exact = [float(exact_determinant(fractions(one))) for one in m]
        np.testing.assert_allclose(value, exact, rtol=0, atol=100 * eps)
    np.testing.assert_allclose(got[2], np.trace(wide, axis1=1, axis2=2), rtol=0, atol=10 * eps)
    for value in got[3:5]:
        exact = np.array([[[float(v) for v in row] for row in exact_inverse(fractions(one))] for one in m])
        error = np.abs(value - exact).max((1, 2)) / np.abs(exact).max((1, 2))
        assert (error < 50 * eps * scale).all()
    assert (np.abs(got[5] - np.eye(n)).max((1, 2)) < 100 * eps * scale).all()


@pytest.mark.parametrize("n", EXTENTS)
def test_integer_determinants_are_exact_and_inverses_are_floats(n: int) -> None:
    m = integers(n, n, seed=n) + 5 * np.eye(n, dtype=np.int32)
    det, inverse = evaluate({"m.determinant()": (), "m.inverse()": (n, n)}, np.float64, m=m)
    assert det.tolist() == [int(exact_determinant(fractions(one))) for one in m]
    np.testing.assert_allclose(inverse, np.linalg.inv(m.astype(float)), rtol=1e-5, atol=1e-6)


def test_inverse_of_a_permutation_is_exact() -> None:
    m = np.eye(4)[[2, 0, 3, 1]][None] * [[[2.0], [4.0], [0.5], [1.0]]]
    (got,) = evaluate({"m.inverse()": (4, 4)}, np.float64, m=m)
    assert (got[0] == np.linalg.inv(m[0])).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_inverse_of_a_singular_matrix_is_what_the_division_gives(n: int) -> None:
    det, inverse = evaluate({"m.determinant()": (), "m.inverse()": (n, n)}, np.float64, m=np.zeros((1, n, n)))
    assert det.tolist() == [0]
    assert not np.isfinite(inverse).any()


# --- elements, rows, arithmetic ---------------------------------------------------------------

OPERATORS = {
    "m + k": (lambda m, k: m + k),
    "m - k": (lambda m, k: m - k),
    "m * k": (lambda m, k: m * k),
    "m // (k + 9)": (lambda m, k: m // (k + 9)),
    "m % 3": (lambda m, k: m % 3),
    "3 - m": (lambda m, k: 3 - m),
    "-m": (lambda m, k: -m),
    "abs(m)": (lambda m, k: abs(m)),
    "min(m, k)": np.minimum,
    "m if m[0, 0] > 0 else k": (lambda m, k: np.where(m[:, :1, :1] > 0, m, k)),
    "m < k": (lambda m, k: m < k),
    "where(m < k, m, 7)": (lambda m, k: np.where(m < k, m, 7)),
    "m == k or m > 0": (lambda m, k: (m == k) | (m > 0)),
    "tack.i8(m * 100)": (lambda m, k: (m * 100).astype(np.int8)),
    "kept(m)": (lambda m, k: m),
}


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 3), (4, 4), (4, 1)])
def test_operators_are_componentwise(shape: tuple[int, int]) -> None:
    m, k = integers(*shape, seed=1), integers(*shape, seed=2)
    source = "".join(f"        o[{n}, i] = {text}\n" for n, text in enumerate(OPERATORS))
    kernel = build(
        "@tack.func\ndef kept(m):\n    return m\n@tack.kernel\ndef kernel(o, a, b):\n"
        f"    for i in range({ROWS}):\n        m = a[i]\n        k = b[i]\n{source}"
    )
    o = tack.zeros((len(OPERATORS), ROWS), tack.matrix(*shape, "int64"))
    kernel(o, elements(m), elements(k))
    for got, (text, model) in zip(o.numpy(), OPERATORS.items(), strict=True):
        assert (got == model(m, k)).all(), text


def test_reductions_of_matrices() -> None:
    m = integers(3, 2, seed=3)
    cases = {
        "m.sum()": (),
        "m.min()": (),
        "max(m)": (),
        "any(m > 3)": (),
        "all(m == m)": (),
        "m[1].sum()": (),
    }
    expected = [
        m.sum((1, 2)),
        m.min((1, 2)),
        m.max((1, 2)),
        (m > 3).any((1, 2)),
        np.ones(ROWS),
        m[:, 1].sum(1),
    ]
    for text, got, wanted in zip(cases, evaluate(cases, np.int64, m=m), expected, strict=True):
        assert (got == wanted).all(), text


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (4, 2), (1, 3)])
def test_elements_and_rows_at_literal_indices(shape: tuple[int, int]) -> None:
    n, k = shape
    m = integers(n, k, seed=4)
    cases: dict[str, Sequence[int]] = {f"m[{i}, {j}]": () for i in range(-n, n) for j in range(-k, k)}
    cases |= {f"m[{i}][{j}]": () for i in (0, -1) for j in (0, -1)} | {f"m[{i}]": (k,) for i in range(-n, n)}
    cases |= {"m[-1].x": (), "m_[i][0]": (k,), "m_[i][0, 0]": (), "m_[i][0][0]": ()}
    for text, got in zip(cases, evaluate(cases, np.int64, m=m), strict=True):
        wanted = [eval(text.replace("m_[i]", "m").replace(".x", "[0]"), {"m": one}) for one in m]
        assert (got == wanted).all(), text


def clamp(k: int, extent: int) -> int:
    return max(0, min(k, extent - 1))


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (4, 3)])
def test_elements_and_rows_at_indices_known_at_run_time(shape: tuple[int, int]) -> None:
    """Reads give the nearest element, stores out of range do nothing: also where one index is a literal."""
    n, k = shape
    source = """
@tack.kernel
def kernel(read, rows, changed, at, a, x, y):
    for i, j in tack.ndindex(at.shape[0], at.shape[0]):
        p, q = at[i], at[j]
        m = a[0]
        read[i, j] = m[p, q] + 100 * m[p][q] + 10000 * a[0][p, q]
        rows[i, j] = m[p] + a[0][p][q]
        m[p, q] = 50
        m[p][q] += 1
        m[1, q] -= 200
        m[p, 0] += 400
        changed[i, j] = m
        x[i, j] = a[0]
        x[i, j][p, q] *= 2
        x[i, j][p][0] = -1
        x[i, j][p].y -= 8
        y[i, j] = a[0]
        y[i, j][p] = [*]
        y[i, j][p] += y[i, j][q]
""".replace("[*]", str(list(range(k))))
    at = np.array([-(2**40), -1, 0, 1, 2, 3, 4, 2**62])
    base = np.arange(1, n * k + 1).reshape(n, k)
    grid = (len(at), len(at))
    kind = tack.matrix(n, k, tack.i64)
    read, rows = tack.zeros(grid, tack.i64), tack.zeros(grid, tack.vector(k, tack.i64))
    changed, x, y = (tack.zeros(grid, kind) for _ in range(3))
    build(source)(read, rows, changed, tack.asarray(at), elements(base[None]), x, y)
    for (i, p), (j, q) in itertools.product(enumerate(at.tolist()), repeat=2):
        row, value = base[clamp(p, n)], base[clamp(p, n), clamp(q, k)]
        inside, in_row, in_column = 0 <= p < n and 0 <= q < k, 0 <= p < n, 0 <= q < k
        label = f"[{p}, {q}] of {shape}"
        assert read.numpy()[i, j] == 10101 * value, label
        assert (rows.numpy()[i, j] == row + value).all(), label
        want = base.copy()
        if inside:
            want[p, q] = 51
        if in_column:
            want[1, q] -= 200
        if in_row:
            want[p, 0] += 400
        assert (changed.numpy()[i, j] == want).all(), label
        want = base.copy()
        if inside:
            want[p, q] *= 2
        if in_row:
            want[p, 0] = -1
            want[p, 1] -= 8
        assert (x.numpy()[i, j] == want).all(), label
        want = base.copy()
        if in_row:
            want[p] = range(k)
            want[p] += want[clamp(q, n)].copy()
        assert (y.numpy()[i, j] == want).all(), label


ASSIGNMENTS: dict[str, Any] = {
    "m = m.transpose()": lambda m: m.T,
    "m = m @ m": lambda m: m @ m,
    "m @= m.transpose()": lambda m: m @ m.T,
    "m += m.transpose()": lambda m: m + m.T,
    "m[0], m[1] = m[1], m[0]": lambda m: m[::-1],
    "m[0, 0], m[1, 1] = m[1, 1], m[0, 0]": lambda m: np.array([[m[1, 1], m[0, 1]], [m[1, 0], m[0, 0]]]),
    "m[0] = m[1]\nm[1] = m[0] * 2": lambda m: np.array([m[1], 2 * m[1]]),
    "m[0] += m[1]\nm[1] *= 3": lambda m: np.array([m[0] + m[1], 3 * m[1]]),
    "m[1].x = m[0].y\nm[0].r += 5": lambda m: np.array([[m[0, 0] + 5, m[0, 1]], [m[0, 1], m[1, 1]]]),
    "m[0] = 7": lambda m: np.array([[7, 7], m[1]]),
    "m = tack.matrix(2, 2, tack.i32)(m[1], m[0].yx)": lambda m: np.array([m[1], m[0, ::-1]]),
    "m = tack.matrix(2, 2, tack.i32).identity() * 3 + m": lambda m: 3 * np.eye(2) + m,
    "m = tack.matrix(2, 2, tack.i32)(1, 2, 3, 4) + m": lambda m: np.array([[1, 2], [3, 4]]) + m,
    "m = tack.matrix(2, 2, tack.i32)(2)": lambda m: np.full((2, 2), 2),
    "m = tack.mat2([1, 2.9], [-3.9, m[0, 0]])": lambda m: np.array([[1, 2], [-3, m[0, 0]]]),
    "m_[i][0] = m[1]\nm_[i][1].y += m[0, 0]\nm = m_[i]": lambda m: np.array(
        [m[1], [m[1, 0], m[1, 1] + m[0, 0]]]
    ),
    "for r in range(2):\n    for c in range(2):\n        m[r, c] = m[r, c] * 10 + r + c": lambda m: (
        m * 10 + np.array([[0, 1], [1, 2]])
    ),
    "if m[0, 0] > 0:\n    m = -m\nelse:\n    m[0, 0] = 1": lambda m: (
        -m if m[0, 0] > 0 else np.array([[1, m[0, 1]], m[1]])
    ),
    "m = C @ m + C[1, 0] + C[0].y": lambda m: np.array([[1, 2], [3, 4]]) @ m + 5,
    "m = C.transpose() * C.determinant()": lambda m: -2 * np.array([[1, 3], [2, 4]]),
    "l = tack.local_array(2, tack.mat2)\nl[1] = m\nl[1][0, 1] = 9\nl[0] = l[1]\nm = l[0]": lambda m: np.array(
        [[m[0, 0], 9], m[1]]
    ),
}


def test_assignments() -> None:
    m = integers(2, 2, seed=9)
    for text, model in ASSIGNMENTS.items():
        lines = "".join(f"        {line}\n" for line in text.splitlines())
        source = f"""
@tack.kernel
def kernel(o, m_):
    for i in range({ROWS}):
        m = m_[i]
{lines}        o[i] = m
"""
        o = tack.zeros(ROWS, tack.matrix(2, 2, tack.i64))
        build(source, C=tack.constant(((1, 2), (3, 4))))(o, elements(m))
        assert (o.numpy() == [model(one).astype(np.int64) for one in m]).all(), text


def test_identities_of_every_size_and_dtype() -> None:
    dtypes = oracle.DTYPES if tack.default_device().supports_f64 else oracle.DTYPES[:-1]
    for n, name in zip((1, 2, 3, 4) * 3, dtypes, strict=False):
        kind = tack.matrix(n, n, oracle.numpy_dtype(name))
        o = tack.zeros(2, kind)
        build("@tack.kernel\ndef kernel(o):\n    for i in range(2):\n        o[i] = K.identity()\n", K=kind)(
            o
        )
        assert (o.numpy() == np.eye(n)).all()


def test_matrix_arguments_and_results_of_functions() -> None:
    source = """
@tack.func
def rotated(m: tack.mat2, v):
    w = m @ v
    return w, v @ m, w.dot(v)

@tack.kernel
def kernel(o, m: tack.mat2, v: tack.vec2) -> tack.f64:
    for i in range(1):
        m[0, 1] += 1
        a, b, c = rotated(m, v)
        o[0], o[1], o[2] = a, b, c
    return m.determinant() + m.trace()
"""
    o = tack.zeros(3, tack.vec2)
    m, v = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0])
    with pytest.raises(tack.UnsupportedSyntaxError, match="m"):  # the loop assigns m
        build(source)(o, m, v)
    source = source.replace("    return m.determinant", "    return 1 + 0 * v.x  # m.determinant")
    assert build(source)(o, m, v) == 1
    m[0, 1] += 1
    assert o.numpy().tolist() == [(m @ v).tolist(), (v @ m).tolist(), [(m @ v) @ v] * 2]


def test_atomics_on_matrices() -> None:
    source = """
@tack.kernel
def kernel(a, x):
    for i in range(x.shape[0]):
        tack.atomic_add(a, 0, x[i])
        tack.atomic_max(a, 1, x[i])
"""
    x = integers(2, 3, seed=6)
    a = elements(np.zeros((2, 2, 3), np.int32))
    build(source)(a, elements(x))
    assert (a.numpy() == [x.sum(0), np.maximum(0, x.max(0))]).all()
