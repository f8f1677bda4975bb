"""Checks of what kernels compute."""

from __future__ import annotations

import contextlib
import io
import math
from typing import Any, Final

import numpy as np

import tack
from tack.validate.checks import Context, Lacking, check, expect, lacks, refused

_ULPS: Final = 16  # the loosest bound of any backend; the largest error found is told


@tack.kernel
def _integers(x: Any, y: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        a = x[i]
        b = y[i]
        out[0, i] = a + b
        out[1, i] = a - b
        out[2, i] = a * b
        out[3, i] = a // b
        out[4, i] = a % b
        out[5, i] = a & b
        out[6, i] = a | b
        out[7, i] = a ^ b
        out[8, i] = ~a
        out[9, i] = -a
        out[10, i] = a << b
        out[11, i] = a >> b
        out[12, i] = min(a, b)
        out[13, i] = max(a, b)
        out[14, i] = abs(a)
        out[15, i] = a < b
        out[16, i] = a if a >= b else b


def _pairs(dtype: tack.DType, count: int) -> tuple[list[int], list[int]]:
    """Pairs of integers: the dtype's limits, their neighbours and small ones each with each, and random."""
    low, high = dtype.min, dtype.max
    edges = [v for v in (0, 1, 2, 3, 7, 31, high, high - 1, low, low + 1, -1, -2, -7) if low <= v <= high]
    random = np.random.default_rng(1)
    drawn = [random.integers(low, high, count, dtype.numpy, endpoint=True).tolist() for _ in range(2)]
    near = random.integers(1, 100, count).tolist()  # by which quotients are large
    xs = [*(a for a in edges for _ in edges), *drawn[0], *drawn[1]]
    return xs, [*(edges * len(edges)), *drawn[1], *near]


@check("integers")
def integers(context: Context) -> str:
    """Every operator on every integer type, against Python's integers."""
    for dtype in context.integers:
        xs, ys = _pairs(dtype, context.size(5000, 200))
        x, y = (tack.asarray(np.array(values, dtype.numpy)) for values in (xs, ys))
        out = tack.zeros((17, len(xs)), dtype)
        _integers(x, y, out)
        expected = [
            [dtype.wrap(v) for v in _integer_results(a, b, dtype.bits)] for a, b in zip(xs, ys, strict=True)
        ]
        expect(out.numpy(), np.array(expected, dtype.numpy).T, str(dtype))
    return f"{len(context.integers)} types"


def _integer_results(a: int, b: int, bits: int) -> tuple[int, ...]:
    quotient, remainder = (a // b, a % b) if b else (0, 0)
    shift = b % bits
    return (
        *(a + b, a - b, a * b, quotient, remainder, a & b, a | b, a ^ b, ~a, -a),
        *(a << shift, a >> shift, min(a, b), max(a, b), abs(a), int(a < b), max(a, b)),
    )


@tack.kernel
def _floats(x: Any, y: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        a = x[i]
        b = y[i]
        out[0, i] = a + b
        out[1, i] = a - b
        out[2, i] = a * b
        out[3, i] = a / b
        out[4, i] = tack.sqrt(abs(a))
        out[5, i] = tack.floor(a)
        out[6, i] = tack.ceil(a)
        out[7, i] = -a
        out[8, i] = a < b
        out[9, i] = a != a


def _check_floats(context: Context, dtype: tack.DType) -> None:
    """IEEE's operations, whose results are exact, on normal numbers, infinities, NaN and zeros."""
    random = np.random.default_rng(2)
    size = context.size(100_000, 1000)
    special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5]

    def numbers() -> Any:
        drawn = np.ldexp(random.uniform(0.5, 1, size), random.integers(-40, 40, size))
        return (drawn * random.choice([-1, 1], size)).astype(dtype.numpy)

    a = np.concatenate([numbers(), np.repeat(special, len(special))]).astype(dtype.numpy)
    b = np.concatenate([numbers(), np.tile(special, len(special))]).astype(dtype.numpy)
    out = tack.zeros((10, a.size), dtype)
    _floats(tack.asarray(a), tack.asarray(b), out)
    with np.errstate(all="ignore"):
        rows = [a + b, a - b, a * b, a / b, np.sqrt(abs(a)), np.floor(a), np.ceil(a), -a, a < b, a != a]
    names = ("a + b", "a - b", "a * b", "a / b", "sqrt", "floor", "ceil", "-a", "a < b", "a != a")
    for name, got, row in zip(names, out.numpy(), rows, strict=True):
        expect(got, row.astype(dtype.numpy), f"{dtype} {name}")


@check("f32")
def single(context: Context) -> str:
    _check_floats(context, tack.f32)
    return "correctly rounded"


@check("f64")
def double(context: Context) -> str:
    if not context.device.supports_f64:
        raise lacks(TypeError, "no f64", lambda: tack.zeros(1, tack.f64))
    _check_floats(context, tack.f64)
    return "correctly rounded; " + _check_functions(context, tack.f64)


@tack.kernel
def _functions(x: Any, u: Any, p: Any, y: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[0, i] = tack.sin(x[i])
        out[1, i] = tack.cos(x[i])
        out[2, i] = tack.tan(x[i])
        out[3, i] = tack.exp(x[i])
        out[4, i] = tack.exp2(x[i])
        out[5, i] = tack.tanh(x[i])
        out[6, i] = tack.sinh(x[i])
        out[7, i] = tack.cosh(x[i])
        out[8, i] = tack.atan(x[i])
        out[9, i] = tack.erf(x[i])
        out[10, i] = tack.cbrt(x[i])
        out[11, i] = tack.expm1(x[i])
        out[12, i] = tack.asin(u[i])
        out[13, i] = tack.acos(u[i])
        out[14, i] = tack.log(p[i])
        out[15, i] = tack.log2(p[i])
        out[16, i] = tack.log10(p[i])
        out[17, i] = tack.log1p(p[i])
        out[18, i] = tack.rsqrt(p[i])
        out[19, i] = pow(p[i], y[i])
        out[20, i] = tack.atan2(x[i], y[i])
        out[21, i] = tack.hypot(x[i], y[i])


_NAMES: Final = (
    *("sin", "cos", "tan", "exp", "exp2", "tanh", "sinh", "cosh", "atan", "erf", "cbrt", "expm1", "asin"),
    *("acos", "log", "log2", "log10", "log1p", "rsqrt", "pow", "atan2", "hypot"),
)


def _check_functions(context: Context, dtype: tack.DType) -> str:
    """The largest error of the math functions, in units in the last place, against NumPy's doubles."""
    random = np.random.default_rng(3)
    size = context.size(20_000, 500)
    x = random.uniform(-20, 20, size).astype(dtype.numpy)
    u = random.uniform(-1, 1, size).astype(dtype.numpy)
    p = np.exp(random.uniform(-20, 20, size)).astype(dtype.numpy)
    y = random.uniform(-3, 3, size).astype(dtype.numpy)
    out = tack.zeros((22, size), dtype)
    _functions(tack.asarray(x), tack.asarray(u), tack.asarray(p), tack.asarray(y), out)
    a, b, c, d = (v.astype(np.float64) for v in (x, u, p, y))
    erf = np.array([math.erf(v) for v in a])
    exact = (
        *(np.sin(a), np.cos(a), np.tan(a), np.exp(a), np.exp2(a), np.tanh(a), np.sinh(a), np.cosh(a)),
        *(np.arctan(a), erf, np.cbrt(a), np.expm1(a), np.arcsin(b), np.arccos(b), np.log(c), np.log2(c)),
        *(np.log10(c), np.log1p(c), 1 / np.sqrt(c), c**d, np.arctan2(a, d), np.hypot(a, d)),
    )
    errors = {}
    for name, got, right in zip(_NAMES, out.numpy(), exact, strict=True):
        unit = np.spacing(abs(right).astype(dtype.numpy)).astype(np.float64)
        errors[name] = float(np.max(abs(got.astype(np.float64) - right) / unit))
    worst = sorted(errors, key=lambda name: -errors[name])
    text = ", ".join(f"{name} {errors[name]:.2g}" for name in worst[:4])
    if not errors[worst[0]] <= _ULPS:  # NaN is none
        raise AssertionError(f"{dtype} functions are wrong by more than {_ULPS} ULP: {text}")
    return f"math within {errors[worst[0]]:.2g} ULP ({text})"


@check("math functions")
def functions(context: Context) -> str:
    return _check_functions(context, tack.f32)


@tack.kernel
def _casts(x: Any, small: Any, byte: Any, word: Any, long: Any, wide: Any) -> None:
    for i in range(x.shape[0]):
        small[i] = x[i]
        byte[i] = x[i]
        word[i] = x[i]
        long[i] = x[i]
        wide[i] = x[i]


@check("conversions")
def conversions(context: Context) -> str:
    """Stores of floats in integers truncate and saturate, NaN is 0; integers keep their low bits."""
    values = [0.0, -0.9, 1.9, 127.5, 128.0, -129.0, 255.9, 256.0, 3e9, -3e9, 1e20, -1e20, math.inf, -math.inf]
    x = np.array([*values, math.nan], np.float32)
    kinds = (tack.i8, tack.u8, tack.i32, tack.i64, tack.u64)
    outs = [tack.zeros(x.size, kind) for kind in kinds]
    _casts(tack.asarray(x), *outs)
    for kind, out in zip(kinds, outs, strict=True):
        right = [0 if v != v else int(min(max(float(v), kind.min), kind.max)) for v in x]
        right = [min(max(v, kind.min), kind.max) for v in right]
        expect(out.numpy(), np.array(right, kind.numpy), f"f32 to {kind}")
    y = np.array([0, -1, 2**40 + 300, -(2**33) - 129, 2**63 - 1], np.int64)
    outs = [tack.zeros(y.size, kind) for kind in kinds]
    _casts(tack.asarray(y), *outs)
    for kind, out in zip(kinds, outs, strict=True):
        expect(out.numpy(), np.array([kind.wrap(int(v)) for v in y], kind.numpy), f"i64 to {kind}")
    return ""


@tack.func
def _divisor(a: Any, b: Any) -> Any:
    while b != 0:
        if a == b:
            return a
        a, b = b, a % b
    return a


@tack.kernel
def _control(x: Any, steps: Any, divisors: Any, middle: Any) -> None:
    for i in range(x.shape[0]):
        n = x[i]
        count = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
                count += 1
                continue
            n = 3 * n + 1
            count += 1
            if count > 500:
                break
        steps[i] = count
        divisors[i] = _divisor(x[i], tack.i64(360))
        few = tack.local_array(5, tack.i64)
        for k in range(5):
            value = (x[i] * (k + 3)) % 17
            at = k
            while at > 0 and few[max(at - 1, 0)] > value:
                few[at] = few[at - 1]
                at -= 1
            few[at] = value
        middle[i] = few[2]


@check("control flow")
def control_flow(context: Context) -> str:
    """Loops, breaks, device functions and local arrays."""
    size = context.size(20_000, 300)
    x = np.arange(1, size + 1)
    outs = [tack.zeros(size, tack.i64) for _ in range(3)]
    _control(tack.asarray(x), *outs)
    steps = []
    for n in range(1, size + 1):
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        steps.append(count)
    right = (
        steps,
        [math.gcd(int(v), 360) for v in x],
        [sorted(int(v) * (k + 3) % 17 for k in range(5))[2] for v in x],
    )
    for name, out, row in zip(("while", "a device function", "a local array"), outs, right, strict=True):
        expect(out.numpy(), np.array(row), name)
    return ""


@tack.kernel
def _line(out: Any, start: Any, stop: Any, step: Any) -> None:
    for i in range(start, stop, step):
        out[i] += 1 + i


@tack.kernel
def _plane(out: Any) -> None:
    for i, j in tack.ndindex(out.shape[0], out.shape[1]):
        out[i, j] += 1 + i * 1000 + j


@tack.kernel
def _space(out: Any) -> None:
    for i, j, k in tack.ndindex(out.shape[0], out.shape[1], out.shape[2]):
        out[i, j, k] += 1 + i * 1_000_000 + j * 1000 + k


@check("ranges")
def ranges(context: Context) -> str:
    """Every iteration runs once, for one, two and three dimensions of odd extents."""
    size = context.size(5_000_011, 10_007)
    out = tack.zeros(size, tack.i64)
    _line(out, 3, size - 1, 7)
    right = np.zeros(size, np.int64)
    right[3 : size - 1 : 7] = 1 + np.arange(3, size - 1, 7)
    expect(out.numpy(), right, "one dimension")
    for shape in ((1, 1), (1, 300), (300, 1), (65, context.size(1029, 33))):
        plane = tack.zeros(shape, tack.i64)
        _plane(plane)
        i, j = np.indices(shape)
        expect(plane.numpy(), 1 + i * 1000 + j, f"shape {shape}")
    for box in ((1, 1, 1), (3, 5, 7), (33, 9, 65)):
        space = tack.zeros(box, tack.i64)
        _space(space)
        i, j, k = np.indices(box)
        expect(space.numpy(), 1 + i * 1_000_000 + j * 1000 + k, f"shape {box}")
    return ""


@tack.kernel
def _vectors(a: Any, b: Any, crossed: Any, dots: Any, turned: Any) -> None:
    for i in range(a.shape[0]):
        crossed[i] = a[i].cross(b[i]) + 2.0 * a[i]
        dots[i] = a[i].dot(b[i])
        m = tack.mat3(0, -1, 0, 1, 0, 0, 0, 0, 2)
        turned[i] = m @ a[i]


@check("vectors")
def vectors(context: Context) -> str:
    size = context.size(100_000, 1000)
    random = np.random.default_rng(4)
    a, b = (random.integers(-50, 50, (size, 3)).astype(np.float32) for _ in range(2))  # exact in f32
    crossed, dots, turned = tack.zeros(size, tack.vec3), tack.zeros(size), tack.zeros(size, tack.vec3)
    _vectors(tack.asarray(a, tack.vec3), tack.asarray(b, tack.vec3), crossed, dots, turned)
    expect(crossed.numpy(), np.cross(a, b) + 2 * a, "cross")
    expect(dots.numpy(), (a * b).sum(axis=1), "dot")
    matrix = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 2]], np.float32)
    expect(turned.numpy(), a @ matrix.T, "matrix times vector")
    return ""


@tack.kernel
def _random(out: Any, stream: Any) -> None:
    for i in range(out.shape[0]):
        x, state = tack.random.uniform(tack.random.seed(i, stream))
        y, state = tack.random.uniform(state)
        out[i] = x - y


@check("random numbers")
def random_numbers(context: Context) -> str:
    size = context.size(1_000_000, 1000)
    out = tack.zeros(size)
    _random(out, 7)
    x, state = tack.random.np_uniform(tack.random.np_seed(np.arange(size), 7))
    y, _ = tack.random.np_uniform(state)
    expect(out.numpy(), x - y, "uniform")
    return "the same bits as on the host"


@tack.kernel
def _says(x: Any) -> None:
    for i in range(x.shape[0]):
        if i % 2 == 1:
            print("element", i, "is", x[i])


@check("print")
def prints(context: Context) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        _says(tack.arange(10, dtype=tack.i32))
        tack.sync()
    lines = sorted(printed.getvalue().splitlines())
    if not context.device.supports_print:
        expect(len(lines), 0, "lines where print does nothing")
        raise Lacking("silent, as declared")
    if lines != [f"element {k} is {k}" for k in range(1, 10, 2)]:
        raise AssertionError(f"printed {lines}")
    return ""


@tack.kernel
def _outside(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i + 3 * (i == 5)] = i


@check("debug mode")
def debug_mode(context: Context) -> str:
    x = tack.zeros(8, tack.i32)
    tack.set_debug(True)
    try:
        with refused(IndexError, "index 8 is out of range for 'x', whose extent is 8, in iteration 5"):
            _outside(x)
    finally:
        tack.set_debug(False)
    expect(x.numpy(), [0, 1, 2, 3, 4, 0, 6, 7], "the other stores")
    return "an index out of range is told"
