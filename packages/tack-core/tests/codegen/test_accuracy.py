"""Floating-point functions against mpmath: errors in units in the last place, and special values.

``python -m codegen.test_accuracy N``, run in the tests' folder, measures N random arguments of each
function instead of a few, and prints the largest error of each.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
import pytest

from codegen.harness import Compiled
from codegen.test_operations import column, table
from tack.dtypes import DType, f32, f64
from tack.ir import nodes as ir
from tack.ir.semantics import round_to

FLOATS = (f32, f64)
# The bound in units in the last place, and the function.
UNARY: dict[str, tuple[float, Callable[[mpmath.mpf], mpmath.mpf]]] = {
    "sqrt": (0.5, mpmath.sqrt),
    "rsqrt": (4, lambda x: 1 / mpmath.sqrt(x)),
    "cbrt": (4, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))),
    "sin": (4, mpmath.sin),
    "cos": (4, mpmath.cos),
    "tan": (4, mpmath.tan),
    "asin": (4, mpmath.asin),
    "acos": (4, mpmath.acos),
    "atan": (4, mpmath.atan),
    "sinh": (4, mpmath.sinh),
    "cosh": (4, mpmath.cosh),
    "tanh": (4, mpmath.tanh),
    "exp": (4, mpmath.exp),
    "exp2": (4, lambda x: mpmath.power(2, x)),
    "expm1": (4, mpmath.expm1),
    "log": (4, mpmath.log),
    "log2": (4, lambda x: mpmath.log(x) / mpmath.log(2)),
    "log10": (4, lambda x: mpmath.log(x) / mpmath.log(10)),
    "log1p": (4, mpmath.log1p),
    "erf": (4, mpmath.erf),
    "erfc": (4, mpmath.erfc),
}
BINARY: dict[str, tuple[float, Callable[[mpmath.mpf, mpmath.mpf], mpmath.mpf]]] = {
    "pow": (4, mpmath.power),
    "atan2": (4, mpmath.atan2),
    "hypot": (4, mpmath.hypot),
}
WIDER = {"pow", "atan2", "hypot", "erf", "erfc"}  # 5 in f64
DOMAINS = {"sqrt": (0, None), "rsqrt": (0, None), "asin": (-1, 1), "acos": (-1, 1), "log1p": (-1, None)}
DOMAINS |= dict.fromkeys(("log", "log2", "log10"), (0, None))

mpmath.mp.prec = 200


def apply(name: str, dtype: DType, *columns: Sequence[float]) -> list[float]:
    """The compiled function's results, row by row."""
    args = tuple(column(0, "ab"[k], dtype) for k in range(len(columns)))
    node = ir.Binary("pow", *args, type=dtype) if name == "pow" else ir.Call(name, args, type=dtype)
    kernel = table([node], [("ab"[k], dtype) for k in range(len(columns))])
    out = np.zeros(len(columns[0]), dtype.numpy)
    arrays = {"ab"[k]: np.array(values, dtype.numpy) for k, values in enumerate(columns)}
    Compiled(kernel)(arrays | {"out0": out}, [(0, 1, len(out))])
    found: list[float] = out.astype(np.float64).tolist()
    return found


def arguments(dtype: DType, count: int, seed: str) -> list[float]:
    """Huge, tiny, denormal and ordinary numbers of both signs."""
    draw = random.Random(seed)
    limits = np.finfo(dtype.numpy)
    low, high = int(limits.minexp) - int(limits.nmant), int(limits.maxexp)
    found = [1.0, 0.5, 2.0, 3.0, 10.0, 0.1, 100.0, math.pi, math.pi / 2, 1e-5, 0.99999, 1.00001, 20.0, 88.0]
    found += [float(v) for v in (limits.max, limits.tiny, limits.smallest_subnormal, limits.eps)]
    found += [draw.uniform(1, 2) * 2.0 ** draw.randrange(low, high) for _ in range(count)]
    found += [draw.uniform(-3, 3) * 2.0 ** draw.randrange(-4, 8) for _ in range(2 * count)]
    return [v for x in found for v in (round_to(x, dtype), round_to(-x, dtype)) if math.isfinite(v) and v]


def error(got: float, exact: mpmath.mpf, dtype: DType) -> float:
    """|got - exact| in units in the last place of ``exact``."""
    limits = np.finfo(dtype.numpy)
    exponent = (
        max(int(mpmath.floor(mpmath.log(abs(exact), 2))), int(limits.minexp)) if exact else int(limits.minexp)
    )
    unit = mpmath.mpf(2) ** (exponent - int(limits.nmant))
    if math.isinf(got):  # the next number after the largest, if there were one
        got_exact = mpmath.sign(got) * mpmath.mpf(2) ** int(limits.maxexp)
        if abs(exact) > abs(got_exact):
            return 0.0
    else:
        got_exact = mpmath.mpf(got)
    return float(abs(got_exact - exact) / unit)


def worst(name: str, dtype: DType, count: int) -> tuple[float, object]:
    """The largest error among ``count`` rounds of arguments, and where it is."""
    if name in BINARY:
        a, b = (arguments(dtype, count, f"{name} {dtype} {k}") for k in (1, 2))
        random.Random(name).shuffle(b)
        rows: list[tuple[float, ...]] = list(zip(a, b, strict=True))
        if name == "pow":  # results that are numbers, neither far too large nor far too small
            near = [math.copysign(min(abs(y), 900 / (1e-9 + abs(math.log2(abs(x))))), y) for x, y in rows]
            rows = [(abs(x), round_to(y, dtype)) for (x, _), y in zip(rows, near, strict=True)]
        exact = [BINARY[name][1](*map(mpmath.mpf, row)) for row in rows]
    else:
        low, high = DOMAINS.get(name, (None, None))
        values = arguments(dtype, count, f"{name} {dtype}")
        values = [v for v in values if (low is None or v > low) and (high is None or v <= high)]
        if high is not None:
            values += [v / 4 for v in values if abs(v) > 1e-30]
        rows = [(round_to(v, dtype),) for v in values]
        if name in ("exp", "exp2", "expm1", "sinh", "cosh", "erfc"):
            # Beyond this the result is infinite or zero whatever the digits.
            rows = [(v,) for (v,) in rows if abs(v) < 1200]
        exact = [UNARY[name][1](mpmath.mpf(v)) for (v,) in rows]
    got = apply(name, dtype, *zip(*rows, strict=True))
    errors = [error(g, e, dtype) if not math.isnan(g) else math.inf for g, e in zip(got, exact, strict=True)]
    if name == "erfc":  # bounded where the result is normal
        tiny = float(np.finfo(dtype.numpy).tiny)
        errors = [0.0 if abs(e) < tiny else err for err, e in zip(errors, exact, strict=True)]
    largest = max(range(len(errors)), key=errors.__getitem__)
    return errors[largest], (rows[largest], got[largest], float(exact[largest]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_errors_stay_in_bounds(name: str, dtype: DType) -> None:
    bound = (UNARY | BINARY)[name][0] + (name in WIDER and dtype is f64)  # type: ignore[operator]
    found, where = worst(name, dtype, 40)
    assert found <= bound, where


INF, NAN, PI = math.inf, math.nan, math.pi
# What C's annex F says of infinities, zeros and arguments outside the domain.
SPECIAL: dict[str, list[tuple[tuple[float, ...], float]]] = {
    "sqrt": [((INF,), INF), ((-INF,), NAN), ((0.0,), 0.0), ((-0.0,), -0.0), ((-1.0,), NAN)],
    "rsqrt": [((INF,), 0.0), ((-INF,), NAN), ((0.0,), INF), ((-0.0,), -INF), ((-1.0,), NAN)],
    "cbrt": [((INF,), INF), ((-INF,), -INF), ((0.0,), 0.0), ((-0.0,), -0.0), ((-27.0,), -3.0)],
    "sin": [((INF,), NAN), ((-INF,), NAN), ((0.0,), 0.0), ((-0.0,), -0.0)],
    "cos": [((INF,), NAN), ((-INF,), NAN), ((0.0,), 1.0), ((-0.0,), 1.0)],
    "tan": [((INF,), NAN), ((-INF,), NAN), ((0.0,), 0.0), ((-0.0,), -0.0)],
    "asin": [((INF,), NAN), ((2.0,), NAN), ((0.0,), 0.0), ((-0.0,), -0.0)],
    "acos": [((INF,), NAN), ((-1.5,), NAN), ((1.0,), 0.0)],
    "atan": [((INF,), PI / 2), ((-INF,), -PI / 2), ((0.0,), 0.0), ((-0.0,), -0.0)],
    "sinh": [((INF,), INF), ((-INF,), -INF), ((0.0,), 0.0), ((-0.0,), -0.0), ((1e6,), INF)],
    "cosh": [((INF,), INF), ((-INF,), INF), ((0.0,), 1.0), ((-1e6,), INF)],
    "tanh": [((INF,), 1.0), ((-INF,), -1.0), ((0.0,), 0.0), ((-0.0,), -0.0), ((1e30,), 1.0)],
    "exp": [((INF,), INF), ((-INF,), 0.0), ((0.0,), 1.0), ((1e6,), INF), ((-1e6,), 0.0)],
    "exp2": [((INF,), INF), ((-INF,), 0.0), ((-0.0,), 1.0), ((1e6,), INF), ((10.0,), 1024.0)],
    "expm1": [((INF,), INF), ((-INF,), -1.0), ((0.0,), 0.0), ((-0.0,), -0.0), ((-1e6,), -1.0)],
    "log": [((INF,), INF), ((-INF,), NAN), ((0.0,), -INF), ((-0.0,), -INF), ((-1.0,), NAN), ((1.0,), 0.0)],
    "log2": [((INF,), INF), ((-INF,), NAN), ((0.0,), -INF), ((-1.0,), NAN), ((1024.0,), 10.0)],
    "log10": [((INF,), INF), ((-INF,), NAN), ((0.0,), -INF), ((-1.0,), NAN), ((1000.0,), 3.0)],
    "log1p": [((INF,), INF), ((-INF,), NAN), ((-1.0,), -INF), ((-0.0,), -0.0), ((-2.0,), NAN)],
    "erf": [((INF,), 1.0), ((-INF,), -1.0), ((0.0,), 0.0), ((-0.0,), -0.0)],
    "erfc": [((INF,), 0.0), ((-INF,), 2.0), ((0.0,), 1.0)],
    "pow": [
        *(((NAN, 0.0), 1.0), ((1.0, NAN), 1.0), ((NAN, 1.0), NAN), ((2.0, NAN), NAN), ((0.0, 0.0), 1.0)),
        *(
            ((0.0, -1.0), INF),
            ((-0.0, -1.0), -INF),
            ((-0.0, -2.0), INF),
            ((-0.0, 3.0), -0.0),
            ((-INF, 3.0), -INF),
        ),
        *(
            ((-2.0, 0.5), NAN),
            ((-8.0, 3.0), -512.0),
            ((0.5, INF), 0.0),
            ((-1.0, INF), 1.0),
            ((2.0, -INF), 0.0),
        ),
        *(((-INF, 0.5), INF), ((-0.0, 0.5), 0.0), ((4.0, 0.5), 2.0), ((3.0, 2.0), 9.0), ((2.0, 3.0), 8.0)),
    ],
    "atan2": [
        *(
            ((0.0, 0.0), 0.0),
            ((-0.0, 0.0), -0.0),
            ((0.0, -0.0), PI),
            ((-0.0, -0.0), -PI),
            ((INF, INF), PI / 4),
        ),
        *(((-INF, -INF), -3 * PI / 4), ((1.0, 0.0), PI / 2), ((0.0, -1.0), PI), ((NAN, 1.0), NAN)),
    ],
    "hypot": [
        ((INF, NAN), INF),
        ((NAN, -INF), INF),
        ((3.0, -4.0), 5.0),
        ((0.0, -0.0), 0.0),
        ((NAN, 1.0), NAN),
    ],
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str, dtype: DType) -> None:
    cases = SPECIAL[name] + ([((NAN,), NAN)] if name in UNARY else [])
    got = apply(name, dtype, *zip(*(row for row, _ in cases), strict=True))
    for (row, exact), found in zip(cases, got, strict=True):
        if math.isnan(exact):
            assert math.isnan(found), row
        else:
            assert found == pytest.approx(exact, rel=1e-6 if dtype is f32 else 1e-15, abs=0), row
            assert math.copysign(1, found) == math.copysign(1, exact), row


@pytest.mark.usefixtures("each_generator")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_constant_exponents_and_arguments(dtype: DType) -> None:
    """Where a compiler knows an argument it computes or replaces calls; the bounds hold all the same."""
    values = [v for v in arguments(dtype, 30, "constants") if 1e-9 < abs(v) < 1e9]
    a = column(0, "a", dtype)
    exponents = (0.5, -0.5, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -4.0, 0.25, 1 / 3, 1.5, 10.0)
    expressions: list[ir.Expr] = []
    exact: list[Callable[[mpmath.mpf], mpmath.mpf]] = []
    for e in (round_to(e, dtype) for e in exponents):
        constant = ir.Const(e, type=dtype)
        expressions.append(ir.Binary("pow", ir.Call("abs", (a,), type=dtype), constant, type=dtype))
        exact.append(lambda x, e=e: mpmath.power(abs(x), mpmath.mpf(e)))
    for base in (2.0, 10.0, round_to(math.e, dtype)):
        small = ir.Call("tanh", (a,), type=dtype)
        expressions.append(ir.Binary("pow", ir.Const(base, type=dtype), small, type=dtype))
        # tanh itself is rounded, so what goes into the power is read from the output before it.
        exact.append(lambda x, base=base: mpmath.power(base, x))
        expressions.append(small)
        exact.append(mpmath.tanh)
    for name, value in (
        ("sin", 1e6),
        ("exp", 1.5),
        ("log10", 2.0),
        ("tanh", 0.3),
        ("erf", 0.7),
        ("cbrt", 5.0),
    ):
        argument = round_to(value, dtype)
        expressions.append(ir.Call(name, (ir.Const(argument, type=dtype),), type=dtype))
        exact.append(lambda x, name=name, argument=argument: UNARY[name][1](mpmath.mpf(argument)))
    outs = [np.zeros(len(values), dtype.numpy) for _ in expressions]
    data = {"a": np.array(values, dtype.numpy)} | {f"out{k}": out for k, out in enumerate(outs)}
    Compiled(table(expressions, [("a", dtype)]))(data, [(0, 1, len(values))])
    for k, (out, function) in enumerate(zip(outs, exact, strict=True)):
        bases = range(len(exponents), len(exponents) + 6, 2)
        inputs = outs[k + 1].tolist() if k in bases else values
        for x, got in zip(inputs, out.tolist(), strict=True):
            assert error(got, function(mpmath.mpf(x)), dtype) <= 4, (k, x, got)


if __name__ == "__main__":
    for function in [*UNARY, *BINARY]:
        for kind in FLOATS:
            largest, place = worst(function, kind, int(sys.argv[1]))
            print(f"{function:6} {kind}  {largest:.3f}  {place}", flush=True)
