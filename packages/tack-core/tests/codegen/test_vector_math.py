"""The vectorized functions: over the whole range, lane by lane, and where the processor lacks them.

``python -m codegen.test_vector_math NAME ...``, run in the tests' folder, goes through all 2^32 numbers of
f32 and prints the largest error of each function.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from llvmlite import binding

from codegen.harness import Compiled
from codegen.test_operations import column, table
from tack.codegen.llvm import jit, module, vector_math
from tack.dtypes import DType, f32, f64
from tack.ir import nodes as ir

# NumPy's f64 functions are good to an f64 digit or so: exact enough to judge f32.
UNARY: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("cbrt", "cos", "cosh", "exp", "exp2", "expm1", "log", "log10")},
    **{name: getattr(np, name) for name in ("log1p", "log2", "sin", "sinh", "tan", "tanh")},
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "erf": np.vectorize(math.erf, [np.float64]),
    "erfc": np.vectorize(math.erfc, [np.float64]),
}
BINARY: dict[str, Any] = {"atan2": np.arctan2, "fmod": np.fmod, "hypot": np.hypot, "pow": np.power}
FLOATS = (f32, f64)
CASES = [(n, d) for n in (*UNARY, *BINARY) for d in FLOATS]


class Function:
    """The function as a kernel over arrays; ``guarded`` calls it only where its argument is above -1."""

    def __init__(self, name: str, dtype: DType, guarded: bool = False) -> None:
        self.dtype, self.columns = dtype, "ab" if name in BINARY else "a"
        args = tuple(column(0, c, dtype) for c in self.columns)
        node: ir.Expr = (
            ir.Binary("pow", *args, type=dtype) if name == "pow" else ir.Call(name, args, type=dtype)
        )
        if guarded:
            minus_one = ir.Const(-1.0, type=dtype)
            node = ir.Select(ir.Compare("gt", args[0], minus_one), node, minus_one, type=dtype)
        self.compiled = Compiled(table([node], [(c, dtype) for c in self.columns]), disjoint=True)

    def __call__(self, *args: np.ndarray) -> np.ndarray:
        out = np.empty(args[0].shape, self.dtype.numpy)
        self.compiled({**dict(zip(self.columns, args, strict=True)), "out0": out}, [(0, 1, len(out))])
        return out


def every(stride: int, start: int = 0) -> Iterator[np.ndarray]:
    """The f32 numbers of every ``stride``-th bit pattern."""
    for base in range(start, 1 << 32, stride << 22):
        patterns = np.arange(base, min(base + (stride << 22), 1 << 32), stride, dtype=np.uint64)
        yield patterns.astype(np.uint32).view(np.float32)


def errors(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|got - exact| in units in the last place of f32; infinite where class or sign differ."""
    with np.errstate(all="ignore"):
        wide = got.astype(np.float64)
        _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 1.0))
        unit = np.ldexp(1.0, np.maximum(exponent - 24, -149))
        largest = 2.0**128
        clipped = np.where(
            np.isinf(wide), np.copysign(largest, wide), wide
        )  # as if there were one number more
        reference = np.clip(exact, -largest, largest)
        found = np.abs(clipped - reference) / unit
        same = np.isnan(wide) == np.isnan(exact)
        same &= np.isnan(exact) | (np.signbit(wide) == np.signbit(exact))
        found = np.where(np.isnan(exact) | (clipped == reference), 0.0, found)
    return np.where(same, found, np.inf)


def worst(name: str, chunks: Iterator[np.ndarray], seed: int = 0) -> tuple[float, Any]:
    """The largest error of a function of f32, and where it is."""
    function, rng = Function(name, f32), np.random.default_rng(seed)
    largest, where = 0.0, None
    for x in chunks:
        args = [x]
        if name in BINARY:
            other = rng.integers(0, 1 << 32, len(x), dtype=np.uint64).astype(np.uint32).view(np.float32)
            kinds = [other, x * np.float32(1.3), rng.uniform(-8, 8, len(x)).astype(np.float32)]
            args.append(np.choose(rng.integers(0, 3, len(x)), kinds))
        with np.errstate(all="ignore"):
            exact = (UNARY | BINARY)[name](*(a.astype(np.float64) for a in args))
        found = errors(function(*args), exact)
        at = int(np.argmax(found))
        if found[at] > largest:
            largest, where = float(found[at]), tuple(a[at] for a in args)
    return largest, where


@pytest.mark.parametrize("name", [n for n, d in CASES if d is f32])
def test_f32_over_the_whole_range(name: str) -> None:
    largest, where = worst(name, every(2003))
    assert largest <= 4, where


def arguments(dtype: DType, count: int) -> np.ndarray:
    """Ordinary numbers, any bit patterns, huge and special values, in no order."""
    rng = np.random.default_rng(7)
    bits = np.uint32 if dtype is f32 else np.uint64
    patterns = rng.integers(0, np.iinfo(bits).max, count, bits, endpoint=True).view(dtype.numpy)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e30, -1e30, 1e-40, 0.5, 80.0]
    with np.errstate(over="ignore"):
        parts = [rng.uniform(-8, 8, count), rng.uniform(-1e5, 1e5, count), patterns, special]
        return rng.permutation(np.concatenate(parts).astype(dtype.numpy))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True) and (np.signbit(a) == np.signbit(b))[~np.isnan(a)].all())


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("guarded", [False, True])
def test_a_lane_does_not_depend_on_its_neighbours(name: str, dtype: DType, guarded: bool) -> None:
    function = Function(name, dtype, guarded)
    a = arguments(dtype, 150)
    args = [a, np.roll(a, 1)][: len(function.columns)]
    whole = function(*args)
    alone = np.concatenate([function(*(v[k : k + 1] for v in args)) for k in range(len(a))])
    assert same_bits(whole, alone)
    if guarded:
        assert (whole[~(a > -1)] == -1).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_remainders_are_exact(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    bits = np.uint32 if dtype is f32 else np.uint64
    x, y = (rng.integers(0, np.iinfo(bits).max, 20_000, bits).view(dtype.numpy) for _ in range(2))
    near = np.ldexp(rng.uniform(1, 2, 20_000), rng.integers(-20, 40, 20_000)).astype(dtype.numpy)
    unit = rng.uniform(0.1, 3, 20_000).astype(dtype.numpy)
    multiple = (np.rint(near) * unit).astype(dtype.numpy)
    a = np.concatenate([x, near, -multiple, np.nextafter(multiple, 0), unit, arguments(dtype, 100)])
    b = np.concatenate([y, unit, unit, unit, near, np.roll(arguments(dtype, 100), 5)])
    with np.errstate(invalid="ignore"):
        assert same_bits(Function("fmod", dtype)(a, b), np.fmod(a, b))


def test_powers_of_f64_over_the_whole_range() -> None:
    """Of numbers of all sizes, to exponents up to where the result overflows or vanishes."""
    rng = np.random.default_rng(5)
    x = np.ldexp(rng.uniform(1, 2, 3000), rng.integers(-1074, 1024, 3000))
    x[:1000] = 1 + rng.uniform(-1, 1, 1000) * 2.0 ** -rng.uniform(1, 52, 1000)
    y = rng.uniform(-1080, 1030, 3000) / np.log2(x)
    odd = rng.integers(-300, 300, 3000) * 2.0 + 1
    results = Function("pow", f64)(np.concatenate([x, -x]), np.concatenate([y, odd]))
    with mpmath.workprec(200):
        for base, exponent, got in zip(
            np.concatenate([x, x]), np.concatenate([y, odd]), results, strict=True
        ):
            exact = mpmath.power(mpmath.mpf(base), mpmath.mpf(exponent))
            if 2.0**-1074 < exact < mpmath.mpf(2) ** 1024:
                unit = math.ulp(float(exact))
                assert abs(mpmath.mpf(abs(float(got))) - exact) <= 1.5 * unit, (base, exponent)
    assert (results[:3000] >= 0).all()
    assert (np.signbit(results[3000:])).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sine_and_cosine_stay_within_one(dtype: DType) -> None:
    near = np.arange(1, 200_000) * (np.pi / 2)
    x = np.concatenate([near, np.nextafter(near, 0), near + 1e-6]).astype(dtype.numpy)
    for name in ("sin", "cos", "tanh"):
        assert np.abs(Function(name, dtype)(x)).max() <= 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_arguments_near_multiples_of_pi(dtype: DType) -> None:
    """Where the result is small, its digits must still be right: the reduction decides."""
    with mpmath.workprec(300):
        limit = 20_000 if dtype is f32 else 10_000_000
        multiples = [k * mpmath.pi / 2 for k in range(1, limit, limit // 499)]
        x = np.array([float(m) for m in multiples], np.float64).astype(dtype.numpy)
        digits = 23 if dtype is f32 else 52
        for name in ("sin", "cos", "tan"):
            got = Function(name, dtype)(x)
            for value, result in zip(x.tolist(), got.tolist(), strict=True):
                exact = getattr(mpmath, name)(mpmath.mpf(value))
                unit = mpmath.ldexp(1, int(mpmath.floor(mpmath.log(abs(exact), 2))) - digits)
                assert abs(mpmath.mpf(result) - exact) <= 4 * unit, (name, value)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [("sin", f32), ("exp", f64), ("pow", f32)], ids=str)
def test_the_loop_is_vectorized(name: str, dtype: DType, guarded: bool) -> None:
    text = jit.optimized_ir(Function(name, dtype, guarded).compiled.module)
    width = jit.vector_bits() // dtype.bits
    if width:
        assert f"fma.v{width}f" in text
        assert f"store <{width} x {'float' if dtype is f32 else 'double'}>" in text
    else:  # no fused multiply and add here
        assert f"@{name}" in text


def test_without_fused_multiply_add_the_c_library_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    x = arguments(f32, 100)
    with np.errstate(all="ignore"):
        exact = np.sin(x.astype(np.float64))
    ours = Function("sin", f32)(x)
    monkeypatch.setattr(module, "vector_bits", lambda: 0)
    function = Function("sin", f32)
    assert "tack.math" not in str(function.compiled.module)
    assert "sinf" in str(function.compiled.module)
    for got in (ours, function(x)):
        assert errors(got, exact).max() <= 4


def test_every_form_is_valid_code() -> None:
    forms = [f for n, d in CASES for f in (vector_math.Form(n, d), *vector_math.vector_forms(n, d, 512))]
    binding.parse_assembly(str(vector_math.library(forms))).verify()
    calls = "\n".join(f"  %1 = tail call fast {f.type.return_type} @{f.symbol}(" for f in forms)
    assert vector_math.called(calls) == sorted(
        forms, key=lambda f: (f.name, str(f.dtype), str(f.width), f.masked)
    )


if __name__ == "__main__":
    for chosen in sys.argv[1:] or list(UNARY):
        print(chosen, *worst(chosen, every(1)), flush=True)
