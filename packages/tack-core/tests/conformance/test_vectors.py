"""Vectors against NumPy: every width, dtype, operator, builtin and method, in rotation.

A vector operation is the scalar one on each component, so what these tests look for is a component that
is lost, swapped, evaluated twice or typed apart. Each operator and builtin meets each dtype, and each
width meets each dtype; the product of all three would take minutes to compile.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import tack
from tack.dtypes import as_dtype

from . import oracle
from .helpers import atomics_on, build, said
from .upload import observed

WIDTHS = range(1, 17)
ROWS = 6


def numbers(name: str, width: int, shift: int = 0) -> np.ndarray:
    """``ROWS`` vectors of boundary values of a dtype."""
    found = oracle.interesting_floats(name) if name[0] == "f" else oracle.interesting_integers(name)
    picked = [found[(5 * k + shift) % len(found)] for k in range(ROWS * width)]
    return np.array(picked, oracle.numpy_dtype(name)).reshape(ROWS, width)


def vectors(values: np.ndarray) -> tack.Array:
    """An array of vectors of the values in the last axis; a copy."""
    return tack.asarray(values, dtype=tack.vector(values.shape[-1], values.dtype), copy=True)


def evaluate(
    expressions: Iterable[str],
    result: str | Sequence[str],
    width: int | Sequence[int],
    /,
    *,
    setup: str = "",
    rows: int = ROWS,
    **args: Any,
) -> list[np.ndarray]:
    """What each expression gives for each row, stored to vectors of ``width`` components of ``result``.

    Both may be given for each expression; a width of 0 stores numbers. Two-dimensional arguments are
    arrays of vectors, and each row is bound to the argument's name.
    """
    texts = list(expressions)
    results = [result] * len(texts) if isinstance(result, str) else result
    widths = [width] * len(texts) if isinstance(width, int) else width
    lines = [f"{k} = {k}_[i]" for k in args]
    lines += [*setup.splitlines(), *(f"out{k}[i] = {text}" for k, text in enumerate(texts))]
    body = "".join(f"        {line}\n" for line in lines)
    params = ", ".join([*(f"out{k}" for k in range(len(texts))), *(f"{k}_" for k in args)])
    kernel = build(f"@tack.kernel\ndef kernel({params}):\n    for i in range({rows}):\n{body}")
    results = [observed(r) for r in results]
    kinds = [tack.vector(n, r) if n else as_dtype(r) for n, r in zip(widths, results, strict=True)]
    outs = [tack.zeros(rows, kind) for kind in kinds]
    kernel(*outs, *(vectors(v) if v.ndim == 2 else tack.asarray(v) for v in args.values()))
    return [out.numpy() for out in outs]


def check(got: np.ndarray, expected: Any, label: str, rtol: float = 0.0) -> None:
    """Equality, NaN equal to NaN and zeros by sign; within ``rtol`` if that is given."""
    expected = np.broadcast_to(np.asarray(expected), got.shape)
    if rtol:
        np.testing.assert_allclose(got, expected.astype(got.dtype), rtol=rtol, atol=1e-30, err_msg=label)
        return
    if got.dtype.kind == "f":
        values = expected.astype(np.float64)
        same = (got == values) & (np.signbit(got) == np.signbit(values)) | (np.isnan(got) & np.isnan(values))
    else:
        same = np.array(got.tolist(), object) == np.array(expected.tolist(), object)
    assert same.all(), f"{label}: got\n{got}\nexpected\n{expected}"


# --- operators --------------------------------------------------------------------------------

OPERATORS = (*oracle.ARITHMETIC, *oracle.COMPARISONS, "<<", ">>", "**", "/")
INTEGER_ONLY = ("&", "|", "^", "<<", ">>")


def result_type(op: str, ta: str, tb: str) -> str | None:
    """The type of ``a op b``; None where the language rejects it."""
    both = oracle.promote(ta, tb)
    if op in oracle.COMPARISONS:
        return both and "i32"
    if "f" in (ta[0], tb[0]):
        return None if op in INTEGER_ONLY else both
    if op in ("<<", ">>", "**"):
        return ta
    return both and ("f32" if op == "/" else both)


def binary(op: str, ta: str, a: np.ndarray, tb: str, b: np.ndarray) -> np.ndarray:
    """``a op b``, element by element, exactly (``**`` of floats: nearly)."""
    if "f" not in (ta[0], tb[0]) and op != "/":
        model = oracle.int_operator(op, ta, tb)
        a, b = np.broadcast_arrays(a, b)
        flat = [model(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)]
        return np.array(flat, object).reshape(a.shape)
    common = oracle.numpy_dtype(oracle.promote(ta, tb) if "f" in (ta[0], tb[0]) else "f32")
    a, b = a.astype(common), b.astype(common)
    if op in oracle.COMPARISONS:
        return np.asarray(getattr(np, _COMPARE[op])(a, b)).astype(np.int64)
    if op in ("//", "%"):
        return oracle.floor_divmod(*np.broadcast_arrays(a, b))[op == "%"]
    if op == "**":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(common)
    return np.asarray(getattr(np, _ARITHMETIC[op])(a, b))


_COMPARE = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater"}
_COMPARE[">="] = "greater_equal"
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


def widths_of(name: str) -> range:
    """Every other width; the next dtype takes the others."""
    return range(1 + oracle.DTYPES.index(name) % 2, 17, 2)


def rotation(name: str, width: int) -> list[tuple[str, str, str]]:
    """Operators for vectors of a dtype and width, with the other operand's dtype and the form."""
    start = 3 * (width // 2) + 11 * oracle.DTYPES.index(name)
    found = []
    usable = [op for op in OPERATORS if result_type(op, name, name)]
    for k, form in enumerate(("x {} y", "x {} s", "s {} x")):
        op = usable[(start + k) % len(usable)]
        other = oracle.DTYPES[(start + k) % len(oracle.DTYPES)]
        pair = (name, other) if form[0] == "x" else (other, name)
        found.append((op, other if result_type(op, *pair) else name, form.format(op)))
    return found


def test_the_rotation_meets_every_operator_with_every_dtype_and_most_widths() -> None:
    cases = [(name, width) for name in oracle.DTYPES for width in widths_of(name)]
    met = {(op, key) for name, width in cases for op, _, _ in rotation(name, width) for key in (name, width)}
    wanted = {(op, t) for op in OPERATORS for t in oracle.DTYPES if t[0] != "f" or op not in INTEGER_ONLY}
    assert wanted <= met
    assert all(sum((op, width) in met for width in WIDTHS) >= 10 for op in OPERATORS)
    assert {width for _, width in cases} == set(WIDTHS)


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_operators(name: str) -> None:
    for width in widths_of(name):
        x = numbers(name, width)
        cases = rotation(name, width)
        if (
            name != "f64"
            and "f64" in [other for _, other, _ in cases]
            and not tack.default_device().supports_f64
        ):
            continue
        y = numbers(cases[0][1], width, 3)
        s, t = (numbers(other, 1, 3).ravel() for _, other, _ in cases[1:])
        models = []
        for (op, other, form), operand in zip(cases, (y, s[:, None], t[:, None]), strict=True):
            left, right = ((name, x), (other, operand))[:: 1 if form[0] == "x" else -1]
            models.append((result_type(op, left[0], right[0]), op, left, right))
        results = [wide(result) for result, *_ in models]
        texts = [cases[0][2], cases[1][2], cases[2][2].replace("s", "t")]
        got = evaluate(texts, results, width, x=x, y=y, s=s, t=t)
        for row, (result, op, left, right) in zip(got, models, strict=True):
            powers = op == "**" and result[0] == "f"
            rtol = 2e-6 if powers and result == "f32" else 1e-13 * powers
            check(row, binary(op, *left, *right), f"{left[0]} {op} {right[0]}, width {width}", rtol)


def wide(result: str | None) -> str:
    """The widest dtype of the kind of ``result``."""
    assert result is not None
    return {"i": "i64", "u": "u64", "f": "f64"}[result[0]]


UNARY: dict[str, Callable[[np.ndarray], Any]] = {
    "-x": lambda x: -x,
    "+x": lambda x: x,
    "~x": lambda x: ~x,
    "not x": lambda x: (x == 0).astype(int),
    "abs(x)": abs,
    "min(x)": lambda x: np.fmin.reduce(x, axis=1),
    "x.max()": lambda x: np.fmax.reduce(x, axis=1),
    "any(x)": lambda x: (x != 0).any(1).astype(int),
    "all(x)": lambda x: (x != 0).all(1).astype(int),
    "bool(x)": lambda x: (x != 0).astype(int),
    "x if x[0] == x[0] else -x": lambda x: np.where(x[:, :1] == x[:, :1], x, -x),
}


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_unary_operators_and_reductions(name: str) -> None:
    result = "u64" if name == "u64" else "f64" if name[0] == "f" else "i64"
    for width in (1, 3, 5, 8):
        texts = [t for k, t in enumerate(UNARY) if k % 3 == width % 3 and (t != "~x" or name[0] != "f")]
        x = numbers(name, width)
        expected = [UNARY[text](x) for text in texts]
        widths = [0 if e.ndim == 1 else width for e in expected]
        for row, text, wanted in zip(evaluate(texts, result, widths, x=x), texts, expected, strict=True):
            if "min" in text or "max" in text:  # either zero will do
                row, wanted = row + 0, wanted + 0
            check(row, wanted, f"{name} {text}, width {width}")


@pytest.mark.parametrize("source", oracle.DTYPES)
def test_casts_and_constructors(source: str) -> None:
    width = 1 + oracle.DTYPES.index(source)
    dtypes = oracle.DTYPES if source == "f64" or tack.default_device().supports_f64 else oracle.DTYPES[:-1]
    x = numbers(source, width)
    texts, expected = [], []
    for k, target in enumerate(dtypes):
        texts.append(f"tack.{target}(x)" if k % 2 else f"tack.vector({width}, tack.{target})(x)")
        if source[0] == "f" and target[0] != "f":
            expected.append(np.vectorize(functools.partial(oracle.float_to_int, target), otypes=[object])(x))
        elif target[0] != "f":
            expected.append(np.array([[oracle.wrap(target, v) for v in row] for row in x.tolist()], object))
        else:
            expected.append(x.astype(oracle.numpy_dtype(target)))
    got = evaluate(texts, [wide(target) for target in dtypes], width, x=x)
    for row, text, wanted in zip(got, texts, expected, strict=True):
        check(row, wanted, f"{text} of {source}")


def test_python_casts() -> None:
    x = np.array([[1.9, -2.9, 0.0], [3.5, 1e20, -1e20]], np.float32)
    int_x, float_x = evaluate(["int(x)", "float(int(x))"], ["i64", "f64"], 3, rows=2, x=x)
    expected = [[oracle.float_to_int("i32", v) for v in row] for row in x.tolist()]
    check(int_x, expected, "int(x)")
    check(float_x, np.float32(expected), "float(int(x))")


# --- builtins ---------------------------------------------------------------------------------

ERF = np.vectorize(math.erf, otypes=[float])
MIRRORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")},
    **{name: getattr(np, name) for name in ("hypot", "fmod", "copysign", "floor", "ceil", "trunc", "sign")},
    **{name: getattr(np, name) for name in ("isnan", "isinf", "isfinite", "where")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": ERF,
    "erfc": np.vectorize(math.erfc, otypes=[float]),
    "round": np.rint,
    "abs": np.abs,
    "min": np.fmin,
    "max": np.fmax,
    "fma": lambda x, y, z: x * y + z,
    "pow": np.power,
}
ARITY = dict.fromkeys(("atan2", "hypot", "fmod", "copysign", "min", "max", "pow"), 2) | {"fma": 3, "where": 3}
EXACT = (
    "floor",
    "ceil",
    "trunc",
    "round",
    "sign",
    "isnan",
    "isinf",
    "isfinite",
    "abs",
    "min",
    "max",
    "where",
)
OF_INTEGERS = (*EXACT, "sqrt", "sin", "exp", "atan2", "hypot", "fma")


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize("name", MIRRORS)
def test_builtin(name: str, dtype: str) -> None:
    """A builtin of vectors, and with a number in the last place."""
    arity = ARITY.get(name, 1)
    seed = list(MIRRORS).index(name)
    width = 1 + (5 * seed + 3 * int(dtype[1:]) // 16) % 16 if dtype == "f32" or arity > 1 else 1 + seed % 5
    rng = np.random.default_rng(seed)
    raw = [rng.uniform(0.05, 0.95, (ROWS, width)) for _ in range(arity)]
    if dtype == "i32":
        raw = (
            [np.ceil(9 * values) for values in raw]
            if name in OF_INTEGERS
            else [np.ones((ROWS, width))] * arity
        )
    args = dict(zip("xyz", [values.astype(oracle.numpy_dtype(dtype)) for values in raw], strict=False))
    texts = [f"{name}({', '.join(args)})"]
    if arity > 1:
        texts.append(f"{name}({', '.join([*list(args)[:-1], list(args)[-1] + '[0]'])})")
    got = evaluate(texts, "f64", width, **args)
    doubles = [np.asarray(v, np.float64) for v in args.values()]
    for row, text, last in zip(got, texts, (doubles[-1], doubles[-1][:, :1]), strict=False):
        expected = MIRRORS[name](*doubles[:-1], last)
        check(
            row,
            expected,
            f"{text} of {width} x {dtype}",
            0.0 if name in EXACT else {"f64": 1e-12}.get(dtype, 1e-5),
        )


@pytest.mark.parametrize("name", oracle.INTEGERS)
def test_bit_builtins(name: str) -> None:
    width, bits = 1 + oracle.INTEGERS.index(name) * 2, oracle.bits(name)
    x = numbers(name, width)
    raw = [[v % 2**bits for v in row] for row in x.tolist()]
    models = {
        "popcount(x)": int.bit_count,
        "clz(x)": lambda v: bits - v.bit_length(),
        "ctz(x)": lambda v: (v & -v).bit_length() - 1 if v else bits,
    }
    for row, (text, model) in zip(evaluate(list(models), "i64", width, x=x), models.items(), strict=True):
        check(row, [[model(v) for v in values] for values in raw], f"{text} of {name}")


def test_bitcast() -> None:
    x = numbers("f32", 5)
    (got,) = evaluate(["bitcast(x, tack.u32)"], "i64", 5, x=x)
    check(got, x.view(np.uint32).astype(np.int64), "bitcast")


def test_any_all_and_where_of_masks() -> None:
    x, y = numbers("f32", 7), numbers("f32", 7, 2)
    texts = [
        "any(x < y)",
        "all(x < y)",
        "where(x < y, x, y)",
        "where(x < y, x, 1.5)",
        "where(x < y and x > 0, 1, 0)",
    ]
    texts += ["where(x[0] < y[0], x, y)", "not x < y or x == y", "all(x == x) and any(y != y)"]
    less = x < y
    expected = [
        less.any(1),
        less.all(1),
        np.where(less, x, y),
        np.where(less, x, np.float32(1.5)),
        np.where(less & (x > 0), 1, 0),
        np.where(less[:, :1], x, y),
        ~less | (x == y),
        (x == x).all(1) & (y != y).any(1),
    ]
    got = evaluate(texts, "f64", [7 * (wanted.ndim - 1) for wanted in expected], x=x, y=y)
    for row, text, wanted in zip(got, texts, expected, strict=True):
        check(row, wanted.astype(np.float64), text)


# --- methods ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u8"])
def test_methods(dtype: str) -> None:
    rng = np.random.default_rng(5)
    for width in (1, 2, 3, 4, 7, 16) if dtype == "f32" else (3, 6):
        x = rng.integers(1, 9, (ROWS, width)).astype(oracle.numpy_dtype(dtype))
        y = rng.integers(1, 9, (ROWS, width)).astype(oracle.numpy_dtype(dtype))
        a, b = x.astype(float), y.astype(float)
        dots, squares = (a * b).sum(1), (a * a).sum(1)
        size = np.sqrt(squares)  # of floats, so it does not wrap
        if dtype == "u8":
            dots, squares = dots % 256, squares % 256
        cases: dict[str, np.ndarray] = {
            "x.dot(y)": dots,
            "dot(x, y)": dots,
            "x @ y": dots,
            "x.sum()": a.sum(1),
            "sum(y)": b.sum(1),
            "x.length()": size,
            "length(x)": size,
            "x.length_sq()": squares,
            "x.min() + max(y)": a.min(1) + b.max(1),
        }
        if dtype != "u8":
            cases |= {
                "x.distance(y)": np.linalg.norm(a - b, axis=1),
                "distance(y, x)": np.linalg.norm(a - b, axis=1),
                "x.normalized()": a / size[:, None],
                "normalized(x, 0.5)": a / (size[:, None] + 0.5),
            }
        if width == 3 and dtype != "u8":
            cases |= {"x.cross(y)": np.cross(a, b), "cross(y, x)": np.cross(b, a)}
        widths = [0 if expected.ndim == 1 else width for expected in cases.values()]
        got = evaluate(cases, "f64", widths, x=x, y=y)
        for row, (text, expected) in zip(got, cases.items(), strict=True):
            check(row, expected, f"{text} of {width} x {dtype}", 1e-14 if dtype == "f64" else 1e-6)


def test_integer_dot_wraps_in_its_type() -> None:
    x = np.array([[100, 100, 100]], np.uint8)
    got = evaluate(["x.dot(x)", "x.sum()", "x.length_sq()"], "i64", 0, rows=1, x=x)
    assert np.ravel(got).tolist() == [30000 % 256, 300 % 256, 30000 % 256]


def test_normalized_of_zero() -> None:
    x = np.zeros((1, 3), np.float32)
    plain, safe = evaluate(["x.normalized()", "x.normalized(0.25)"], "f64", 3, rows=1, x=x)
    assert np.isnan(plain).all()
    assert (safe == 0).all()


# --- components and swizzles ------------------------------------------------------------------


@pytest.mark.parametrize("letters", ["xyzw", "rgba"])
def test_read_swizzles(letters: str) -> None:
    names = ["".join(p) for n in (1, 2, 3) for p in itertools.product(letters, repeat=n)]
    names += ["".join(p) for p in itertools.permutations(letters)] + [letters[0] * 4, letters[3] * 4]
    code = tack.constant((1, 10, 100, 1000))
    forms = ["v", "a[0]", "(v + 0)", "twice(v)", "a[0].{0}", "C"]
    lines = []
    for k, name in enumerate(names):
        form = forms[k % len(forms)].format(letters)
        weights = f"CODE.{'xyzw'[: len(name)]}"
        lines.append(
            f"        o[{k}] = {form}.{name} * CODE.x"
            if len(name) == 1
            else f"        o[{k}] = {form}.{name}.dot({weights})"
        )
    source = (
        "@tack.func\ndef twice(v):\n    return v\n@tack.kernel\ndef kernel(o, a):\n    for i in range(1):\n"
    )
    source += "        v = a[0]\n" + "\n".join(lines)
    o = tack.zeros(len(names), tack.i64)
    kernel = build(source, CODE=code, C=tack.constant((3, 5, 7, 9)))
    kernel(o, vectors(np.array([[3, 5, 7, 9]], np.int32)))
    digits = dict(zip(letters, (3, 5, 7, 9), strict=True))
    expected = [sum(digits[c] * 10**k for k, c in enumerate(name)) for name in names]
    assert dict(zip(names, o.numpy().tolist(), strict=True)) == dict(zip(names, expected, strict=True))


COMPONENT_STORES = """
v.x = 10
v.y += 5
v[2] *= 3
v[-1] = v.x + v.y
w.g -= 1
w[0], w[1] = w[1], w[0]
a[i].z = 7
a[i][0] += a[i].w
a[i].a, a[i].r = a[i].r, a[i].a
l[1].y = 4
l[1][k] = 9
"""


def test_component_stores_on_variables_elements_and_local_arrays() -> None:
    body = "".join(f"        {line}\n" for line in COMPONENT_STORES.split("\n") if line)
    source = f"""
@tack.kernel
def kernel(o, a, k):
    for i in range(2):
        v = a[i]
        w = v.yx
        l = tack.local_array(2, tack.ivec3)
        l[1] = [1, 2, 3]
{body}
        o[i, 0], o[i, 1], o[i, 2] = v, [w.x, w.y, 0, 0], [l[1].x, l[1].y, l[1].z, 0]
"""
    start = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.int32)
    a, o = vectors(start), tack.zeros((2, 3), tack.ivec4)
    build(source)(o, a, 0)
    for i, (x, y, z, w) in enumerate(start.tolist()):
        z_of_v = 3 * z
        expected = [[10, y + 5, z_of_v, 10 + y + 5], [x - 1, y, 0, 0], [9, 4, 3, 0]]
        assert o.numpy()[i].tolist() == expected
        assert a.numpy()[i].tolist() == [w, y, 7, x + w]


@pytest.mark.parametrize("index", ["i8", "u8", "i32", "u32", "i64", "u64"])
def test_a_component_index_at_run_time(index: str) -> None:
    """Reads give the nearest component, stores out of range do nothing, on variables and elements."""
    low, high = oracle.limits(index)
    wanted = {low, -1, 0, 1, 2, 3, 7, 15, 16, 17, high}
    at = np.array(sorted(v for v in wanted if low <= v <= high), oracle.numpy_dtype(index))
    for width in (1, 3, 16) if index in ("i32", "u64") else (4,):
        source = """
@tack.kernel
def kernel(read, written, added, stored, at, a):
    for i in range(at.shape[0]):
        k = at[i]
        v = a[0]
        read[i] = v[k] + 100 * a[0][k] + 10000 * (v + 0)[k]
        v[k] = 50
        written[i] = v
        v = a[0]
        v[k] += v[k]
        added[i] = v
        stored[i][k] = 50
        stored[i][k] -= 7
"""
        base = np.arange(1, width + 1, dtype=np.int32)
        count = len(at)
        read = tack.zeros(count, tack.i64)
        written, added, stored = (tack.zeros(count, tack.vector(width, "i4")) for _ in range(3))
        tack.copyto(stored, np.tile(base, (count, 1)))
        build(source)(read, written, added, stored, tack.asarray(at), vectors(base[None]))
        for i, k in enumerate(at.tolist()):
            value = base[max(0, min(k, width - 1))]
            changed, doubled, combined = base.copy(), base.copy(), base.copy()
            if 0 <= k < width:
                changed[k], doubled[k], combined[k] = 50, 2 * base[k], 43
            label = f"index {k} of {width}"
            assert read.numpy()[i] == 10101 * value, label
            assert written.numpy()[i].tolist() == changed.tolist(), label
            assert added.numpy()[i].tolist() == doubled.tolist(), label
            assert stored.numpy()[i].tolist() == combined.tolist(), label


def test_literal_indices_count_from_both_ends() -> None:
    for width in (1, 2, 7, 16):
        x = np.arange(10, 10 + width, dtype=np.int32)[None]
        texts = [f"x[{k}]" for k in range(-width, width)]
        got = evaluate(texts, "i64", 0, rows=1, x=x)
        assert np.ravel(got).tolist() == [x[0][k] for k in range(-width, width)]


def test_an_index_that_its_own_store_changes() -> None:
    """The index of a component is evaluated once, before the store."""
    (got,) = evaluate(
        ["v"], "i64", 2, rows=1, setup="v = [0, x[1]]\nv[v.x] = 1", x=np.array([[0, 5]], np.int32)
    )
    assert got.tolist() == [[1, 5]]


# --- assignment -------------------------------------------------------------------------------

X = np.array([[1, 2, 3]], np.int32)


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        ("v = x\nv = [v.y, v.x, v.z]", [2, 1, 3]),
        ("v = x\nv = v.zyx", [3, 2, 1]),
        ("v = x\nv = v + v.x", [2, 3, 4]),
        ("v = x\nv += v.yzx", [3, 5, 4]),
        ("v = x\nv -= v.x\nv *= 2", [0, 2, 4]),
        ("v = x\nw = v\nv.x = 9\nv = [v.x, w.x, w.y]", [9, 1, 2]),
        ("v = x\nw = -x\nv, w = w, v\nv = v * 10 + w", [-9, -18, -27]),
        ("v = x\nv.x, v.y = v.y, v.x", [2, 1, 3]),
        ("v = x\nv.x, v = 9, v", [1, 2, 3]),
        ("v = x\nv, v.x = v * 2, 9", [9, 4, 6]),
        ("k = 0\nv = x\nk, v[k] = 2, 9", [1, 2, 9]),
        ("v = w = x\nw.x = 7\nv = v + w", [8, 4, 6]),
        ("v = x\nif x.x > 0:\n    v = v.zxy\nelse:\n    v = [0, 0, 0]", [3, 1, 2]),
        ("v = [0, 0, 0]\nfor k in range(3):\n    v = [v.y, v.z, k]", [0, 1, 2]),
        ("v = x\nwhile all(v < 10):\n    v += x", [4, 8, 12]),
        ("v = x if x.y == 2 else -x", [1, 2, 3]),
        ("v = 7 if x.y == 0 else x", [1, 2, 3]),
        ("v = x.xyz if x.y == 0 else 7", [7, 7, 7]),
        ("v = swap(x)", [2, 1, 3]),
        ("a, v = both(x)", [1, 4, 9]),
        ("v = early(x)", [3, 3, 3]),
        ("v = early(-x)", [-1, -2, -3]),
        ("v = swap(swap(x) + swap(x))", [2, 4, 6]),
        ("v = inplace(x) + x", [10, 4, 6]),
        ("v = deep(x).zyx", [6, 4, 2]),
        ("v = pinned(x)", [1, 2, 3]),
        ("v = x\nv.x = len(v) + len([1, 2])", [5, 2, 3]),
    ],
)
def test_assignment(setup: str, expected: list[int]) -> None:
    functions = """
@tack.func
def swap(v):
    return [v.y, v.x, v.z]
@tack.func
def both(v):
    return v.x, v * v
@tack.func
def early(v):
    for k in range(3):
        if v[k] == 3:
            return [3, 3, 3]
    return v
@tack.func
def inplace(v):
    v.x = 9
    return v
@tack.func
def deep(v):
    w = swap(swap(v))
    return w + swap(swap(w))
@tack.func
def pinned(v: V3):
    return v
"""
    lines = "".join(f"        {line}\n" for line in setup.splitlines())
    kernel = build(
        f"{functions}@tack.kernel\ndef kernel(o, p):\n    for i in range(1):\n"
        f"        x = p[0]\n{lines}        o[0] = v\n",
        V3=tack.vector(3, tack.u8),
    )
    o = tack.zeros(1, tack.ivec3)
    kernel(o, vectors(X))
    assert o.numpy().tolist() == [expected]


def test_a_pinned_parameter_of_a_device_function_converts() -> None:
    source = "@tack.func\ndef f(v: V2):\n    return v + v\n"
    source += "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[0] = f([200, -1])\n"
    o = tack.zeros(1, tack.ivec2)
    build(source, V2=tack.vector(2, tack.u8))(o)
    assert o.numpy().tolist() == [[400 % 256, 510 % 256]]


def test_elements_read_before_they_are_written() -> None:
    """LC1 and LC2: ``a[i] = [a[i].y, a[i].x]``, also through an overlapping array."""
    source = """
@tack.kernel
def kernel(a, b, n):
    for i in range(n):
        a[i] = [a[i].y, a[i].x, a[i].x + a[i].y]
        a[i], b[i + 4] = b[i + 4], a[i]
        b[i] += a[i].zyx
"""
    start = np.arange(24, dtype=np.int32).reshape(8, 3)
    a = vectors(start)
    build(source)(a, a, 4)
    model = start.copy()
    for i in range(4):
        x, y, _ = model[i]
        model[i] = [y, x, x + y]
        model[[i, i + 4]] = model[[i + 4, i]]
        model[i] += model[i][::-1].copy()
    assert (a.numpy() == model).all()


def test_parameters_of_vectors_can_be_assigned_in_each_iteration() -> None:
    source = """
@tack.kernel
def kernel(o, v: tack.ivec2, w: tack.ivec2):
    v += 1
    for i in range(4):
        v.x += i
        w = w.yx
        o[i] = v * 10 + w
"""
    o = tack.zeros(4, tack.ivec2)
    build(source)(o, (1, 2), [3, 4])
    assert o.numpy().tolist() == [[10 * (2 + i) + 4, 33] for i in range(4)]


@pytest.mark.f64
def test_a_variable_has_one_type_for_all_its_components() -> None:
    setup = "v = [1, 2]\nv.x = 0.5\nw = [0.1, 0.2]\nw.y = d[1]\nu = [1, 2]\nu[k] = d[0]"
    texts = ["v.y / 4", "w.x", "u.x / 4"]
    got = evaluate(texts, "f64", 0, rows=1, setup=setup, d=np.zeros((1, 2)), k=np.array([1]))
    assert np.ravel(got).tolist() == [0.5, 0.1, 0.25]


# --- literals and types -----------------------------------------------------------------------


@pytest.mark.f64
def test_literals_are_weak_by_component() -> None:
    d = np.full((1, 2), 1.0)
    f = np.full((1, 2), 1.0, np.float32)
    texts = [
        "[0.1, 0.2]",
        "[0.1, 0.2] * d",
        "[0.1, 0.2] * f",
        "[0.1, d.x]",
        "[0.1, f.x]",
        "[1, 0.1] + d",
        "-[0.1, 0.3] * d",
    ]
    texts += [
        "[0.1, 0.2] if d.x > 0 else d",
        "where(d > 0, 0.1, d)",
        "tack.dvec2(0.1, 0.1)",
        "tack.vec2(0.1, 0.1)",
    ]
    texts += ["tack.dvec2(0.1)", "W * d", "[f.x, 0.1] * d", "twice([0.1, 0.2]) + d"]
    source = "".join(f"        o[{k}] = {text}\n" for k, text in enumerate(texts))
    kernel = build(
        "@tack.func\ndef twice(v):\n    return v * 2\n@tack.kernel\ndef kernel(o, d_, f_):\n"
        f"    for i in range(1):\n        d = d_[0]\n        f = f_[0]\n{source}",
        W=tack.constant((0.1, 0.7)),
    )
    o = tack.zeros(len(texts), tack.dvec2)
    kernel(o, vectors(d), vectors(f))
    narrow = [float(np.float32(v)) for v in (0.1, 0.2)]
    expected = [[0.1, 0.2], [0.1, 0.2], narrow, [0.1, 1.0], [narrow[0], 1.0], [2.0, 1.1], [-0.1, -0.3]]
    expected += [
        [0.1, 0.2],
        [0.1, 0.1],
        [0.1, 0.1],
        [narrow[0]] * 2,
        [0.1, 0.1],
        [0.1, 0.7],
        [1.0, narrow[0]],
    ]
    expected += [[1.2, 1.4]]
    assert dict(zip(texts, o.numpy().tolist(), strict=True)) == dict(zip(texts, expected, strict=True))


@pytest.mark.parametrize("first", oracle.DTYPES)
def test_components_meet_in_one_type(first: str) -> None:
    """``[x, y]`` has the promotion of both, which shows where a sum wraps, rounds or divides."""
    seconds = {name: both for name in oracle.DTYPES if (both := oracle.promote(first, name))}
    if first != "f64" and not tack.default_device().supports_f64:
        del seconds["f64"]
    x = numbers(first, 1, 2).ravel()
    args = {f"y{name}": numbers(name, 1, 1).ravel() for name in seconds}
    texts = [f"[x, y{n}] + [x, x]" if both[0] != "f" else f"[x, y{n}] / 3" for n, both in seconds.items()]
    results = [wide(both) for both in seconds.values()]
    for rows, y, both in zip(
        evaluate(texts, results, 2, x=x, **args), args.values(), seconds.values(), strict=True
    ):
        for row, a, b in zip(rows.tolist(), x.tolist(), y.tolist(), strict=True):
            if both[0] != "f":
                assert row == [oracle.wrap(both, 2 * oracle.wrap(both, a)), oracle.wrap(both, a + b)]
            else:
                kind = oracle.numpy_dtype(both).type
                check(np.array(row), [float(kind(a) / kind(3)), float(kind(b) / kind(3))], f"{first} {both}")


@pytest.mark.f64
def test_constructors() -> None:
    texts = {
        "tack.vec3(1, 2.5, v.x)": [1, 2.5, 7],
        "tack.vec3(0.5)": [0.5, 0.5, 0.5],
        "tack.vec3(v, 1)": [7, 8, 1],
        "tack.vec3(1, v)": [1, 7, 8],
        "tack.ivec3(2.9, -2.9, 300)": [2, -2, 300],
        "tack.vector(3, tack.u8)(300)": [44, 44, 44],
        "tack.vector(N, tack.f64)(1, 2, 3)": [1, 2, 3],
        "V3(v.y, 0.0, 0.0)": [8, 0, 0],
        "tack.vec3(tack.vec3(1, 2, 3))": [1, 2, 3],
        "tack.vec3([1, 2, 3])": [1, 2, 3],
        "tack.vec3(True, 2, 3)": [1, 2, 3],
    }
    lines = "".join(f"        o[{k}] = {text}\n" for k, text in enumerate(texts))
    o = tack.zeros(len(texts), tack.dvec3)
    source = f"@tack.kernel\ndef kernel(o, p):\n    for i in range(1):\n        v = p[0]\n{lines}"
    build(source, N=tack.constant(3), V3=tack.vec3)(o, vectors(np.array([[7, 8]])))
    assert dict(zip(texts, o.numpy().tolist(), strict=True)) == texts


def test_constants_are_vectors() -> None:
    texts = [
        "C",
        "C + v",
        "C.yx",
        "C.dot(v)",
        "dot(v, C)",
        "C.yx.dot(C)",
        "C[v.x]",
        "C[0]",
        "[C.x, 1]",
        "-C",
        "BIG",
        "BIG * 1",
    ]
    lines = "".join(f"        o[{k}] = {text}\n" for k, text in enumerate(texts))
    source = f"@tack.kernel\ndef kernel(o, p):\n    for i in range(1):\n        v = p[0]\n{lines}"
    o = tack.zeros(len(texts), tack.vector(2, tack.i64))
    build(source, C=tack.constant((3, 4)), BIG=tack.constant((10**9, 2**40)))(
        o, vectors(np.array([[1, 2]], np.int32))
    )
    expected = [[3, 4], [4, 6], [4, 3], [11, 11], [11, 11], [24, 24], [4, 4], [3, 3], [3, 1], [-3, -4]]
    expected += [[10**9, 2**40]] * 2
    assert o.numpy().tolist() == expected


# --- arrays, arguments, atomics, print --------------------------------------------------------


def test_vector_indices_address_arrays() -> None:
    source = """
@tack.kernel
def kernel(o, a, w):
    for c in tack.ndindex(3, 4):
        o[c] = a[c.yx] + a[c.y, c.x] * w[c].x
        o[c] += w[[c.x, c.y]].y
"""
    a = np.arange(12).reshape(4, 3)
    w = np.arange(24).reshape(3, 4, 2)
    o = tack.zeros((3, 4), tack.i64)
    build(source)(o, tack.asarray(a), vectors(w))
    assert (o.numpy() == a.T + a.T * w[..., 0] + w[..., 1]).all()


def test_a_vector_loop_index_is_its_iterations_own() -> None:
    source = """
@tack.kernel
def kernel(o, total):
    for c in tack.ndindex(2, 3):
        here = c
        c.x = 7
        c += 1
        o[here] = c.x * 10 + c.y
        for d in tack.ndindex((1, 3), 2):
            total[here] += d.x * 10 + d.y
            d = d * 0 + 9
"""
    o, total = tack.zeros((2, 3), tack.i32), tack.zeros((2, 3), tack.i32)
    build(source)(o, total)
    assert o.numpy().tolist() == [[81, 82, 83]] * 2
    assert (total.numpy() == sum(x * 10 + y for x in (1, 2) for y in (0, 1))).all()


def test_assigned_loop_variables_of_an_inner_ndindex() -> None:
    source = """
@tack.kernel
def kernel(o):
    for i in range(1):
        for a, b in tack.ndindex(3, 3):
            if b == 2:
                a = 100
                continue
            o[0] = o[0] * 10 + a + b
            a, b = 50, 60
"""
    o = tack.zeros(1, tack.i64)
    build(source)(o)
    assert o.numpy()[0] == 11223


@pytest.mark.f64
def test_vector_arguments() -> None:
    source = """
@tack.kernel
def kernel(o, v: tack.vec3, m: tack.mat2, k: B2 = (5, 6)):
    for i in range(k.x):
        o[i] = v.x + v.y + v.z + m[0, 1] + k.y
"""
    kernel = build(source, B2=tack.vector(2, tack.i8))
    expected = 1 + 2 + 0.5 + 20 + 6
    for v in (
        (1, 2, 0.5),
        [1, 2, 0.5],
        np.array([1, 2, 0.5]),
        np.float32([1, 2, 0.5]),
        tack.constant((1, 2, 0.5)),
        tack.asarray([1, 2, 0.5]),
    ):
        o = tack.zeros(5, tack.f64)
        kernel(o, v, ((10, 20), (30, 40)))
        assert o.numpy().tolist() == [expected] * 5
    o = tack.zeros(9, tack.f64)
    kernel(o, (1, 2, 0.5), np.array([[10, 20], [30, 40]]), (9, 6))
    assert o.numpy().tolist() == [expected] * 9


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (((1, 2), (1, 2)), TypeError),
        ((1.0, (1, 2)), TypeError),
        (("abc", (1, 2)), TypeError),
        (((1, 2, "x"), (1, 2)), TypeError),
        ((((1,), 2, 3), (1, 2)), TypeError),
        (((1, 2, 3), (1, 2.5)), TypeError),
        (((1, 2, 3), (1, 128)), OverflowError),
        (((1, 2, 3), np.zeros((2, 1))), TypeError),
        (((1, 2, 3), None), TypeError),
        (((1, 2, 1j), (1, 2)), TypeError),
    ],
)
def test_vector_arguments_are_checked(args: tuple[Any, Any], kind: type[Exception]) -> None:
    kernel = build(
        "@tack.kernel\ndef fill(o, v: tack.vec3, k: B2):\n    for i in range(2):\n        o[i] = v.x + k.x\n",
        "fill",
        B2=tack.vector(2, tack.i8),
    )
    o = tack.zeros(2)
    for _ in range(2):
        with pytest.raises(kind, match="fill") as caught:
            kernel(o, *args)
        assert str(caught.value).count("'fill'") == 1
    assert (o.numpy() == 0).all()


def test_widths_specialize_apart() -> None:
    """LC3: the norm of a width-3 vector is not computed by the code for width 2."""
    kernel = build(
        """
@tack.kernel
def kernel(v, out):
    for i in range(out.shape[0]):
        out[i] = v[i].dot(v[i])
"""
    )
    for width in (2, 3, 1, 16, 2, 3):
        x = np.arange(4 * width, dtype=np.float32).reshape(4, width)
        out = tack.zeros(4)
        kernel(vectors(x), out)
        assert out.numpy().tolist() == (x * x).sum(1).tolist()
    assert len(kernel.templates()) == 4


@pytest.mark.f64
def test_scalars_and_vectors_of_one_specialize_apart() -> None:
    kernel = build("@tack.kernel\ndef kernel(v, out):\n    for i in range(3):\n        out[i] = v[i]\n")
    out = tack.zeros(3)
    kernel(tack.asarray([1.0, 2.0, 3.0]), out)
    assert out.numpy().tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="vector of 1"):
        kernel(vectors(np.ones((3, 1), np.float32)), out)


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_atomics_update_component_by_component(name: str) -> None:
    width, count = 3, 64
    dtype = oracle.numpy_dtype(name)
    ops = ("add", "min", "max") if name[0] == "f" else ("add", "sub", "min", "max", "and", "or", "xor")
    lines = "".join(f"        tack.atomic_{op}(a, {k}, v)\n" for k, op in enumerate(ops))
    source = f"@tack.kernel\ndef kernel(a, x):\n    for i in range({count}):\n        v = x[i]\n{lines}"
    rng = np.random.default_rng(3)
    x = rng.integers(0, 100, (count, width)).astype(dtype)
    start = np.array([[50, 60, 70]] * len(ops), dtype)
    a = vectors(start)
    with atomics_on(name):
        build(source)(a, vectors(x))
        models = {
            "add": lambda s: s + x.sum(0, dtype=dtype),
            "sub": lambda s: s - x.sum(0, dtype=dtype),
            "min": lambda s: np.minimum(s, x.min(0)),
            "max": lambda s: np.maximum(s, x.max(0)),
            "and": lambda s: s & np.bitwise_and.reduce(x),
            "or": lambda s: s | np.bitwise_or.reduce(x),
            "xor": lambda s: s ^ np.bitwise_xor.reduce(x),
        }
        for row, old, op in zip(a.numpy(), start, ops, strict=True):
            assert row.tolist() == models[op](old).astype(dtype).tolist(), op


def test_atomics_give_the_vector_of_old_values() -> None:
    source = """
@tack.kernel
def kernel(o, a, g):
    for i in range(1):
        o[0] = tack.atomic_add(a, 0, [1, 2])
        o[1] = tack.atomic_exchange(a, 0, 9)
        o[2] = tack.atomic_cas(a, 0, [9, 8], [5, 6])
        o[3] = a[0]
        o[4] = tack.atomic_add(g, [1, 0], [1, 1]) + tack.atomic_add(g, (1, 0), 1)
        tack.atomic_add(g, (1, 0), g[1, 0].yx)
        o[5] = g[1, 0]
"""
    o, a, g = (
        tack.zeros(6, tack.ivec2),
        tack.asarray([[10, 20]], dtype=tack.ivec2),
        tack.zeros((2, 2), tack.ivec2),
    )
    build(source)(o, a, g)
    assert o.numpy().tolist() == [[10, 20], [11, 22], [9, 9], [5, 9], [1, 1], [4, 4]]


def test_an_atomic_vector_histogram_loses_nothing() -> None:
    source = """
@tack.kernel
def kernel(a):
    for i in range(20000):
        tack.atomic_add(a, i % 3, [1, i % 2, 2])
"""
    a = tack.zeros(3, tack.ivec3)
    build(source)(a)
    rows = [[i for i in range(20000) if i % 3 == k] for k in range(3)]
    assert a.numpy().tolist() == [[len(r), sum(i % 2 for i in r), 2 * len(r)] for r in rows]


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    source = """
@tack.kernel
def kernel(a):
    for i in range(1):
        print("v", a[0], a[0].yx, a[0].x, [1, 2] == [1, 3])
        print([0.5], tack.mat2([1, 2], [3.5, 4]))
"""
    build(source)(vectors(np.array([[1, 2, 3]], np.int64)))
    tack.sync()
    lines = capsys.readouterr().out.splitlines()
    assert lines == said(["v [1, 2, 3] [2, 1] 1 [1, 0]", "[0.5] [[1.0, 2.0], [3.5, 4.0]]"])


def test_results_of_kernels() -> None:
    source = """
@tack.kernel
def kernel(a, v: tack.vec2) -> tack.f64:
    w = v.yx
    for i in range(2):
        a[i] += v
    return a[1].x + w.dot([1.0, 10.0])
"""
    a = tack.zeros(2, tack.vec2)
    assert build(source)(a, (3, 4)) == 3 + 4 + 30


def test_arrays_of_vectors_of_every_dtype() -> None:
    source = """
@tack.kernel
def kernel(o, x):
    for i in range(x.shape[0]):
        l = tack.local_array((2, 2), KIND)
        l[i % 2, 1] = x[i]
        o[i, 1] = l[i % 2, 1]
"""
    dtypes = oracle.DTYPES if tack.default_device().supports_f64 else oracle.DTYPES[:-1]
    for k, name in enumerate(dtypes):
        x = numbers(name, 16 - k)
        kind = tack.vector(16 - k, oracle.numpy_dtype(name))
        o = tack.zeros((ROWS, 2), kind)
        build(source, KIND=kind)(o, vectors(x))
        assert (o.numpy()[:, 0] == 0).all()
        np.testing.assert_array_equal(o.numpy()[:, 1], x)
