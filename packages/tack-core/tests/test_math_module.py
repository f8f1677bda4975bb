"""`tack.math`: GLSL's formulas, on scalars and vectors of both precisions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tack
from tack import math as tm

WIDTHS = [0, 2, 3, 4]  # 0: scalars
FLOATS = [np.float32, np.float64]
ULPS = {np.float32: 2.0**-23, np.float64: 2.0**-52}


# --- running them: one kernel for each count of arguments, made for each function ---------------


def kernel_of(function: Any, count: int) -> tack.Kernel:
    @tack.kernel
    def one(x, out):
        for i in range(len(x)):
            out[i] = function(x[i])

    @tack.kernel
    def two(x, y, out):
        for i in range(len(x)):
            out[i] = function(x[i], y[i])

    @tack.kernel
    def three(x, y, z, out):
        for i in range(len(x)):
            out[i] = function(x[i], y[i], z[i])

    return (one, two, three)[count - 1]


def on_device(values: np.ndarray, width: int) -> Any:
    """An array of scalars, or of vectors of ``width`` where the last axis has that many."""
    if values.ndim == 1:
        return np.ascontiguousarray(values)
    array = tack.empty(len(values), dtype=tack.vector(width, values.dtype))
    tack.copyto(array, np.ascontiguousarray(values))
    return array


def result(function: Any, *args: np.ndarray, dtype: Any = None, scalar: bool = False) -> np.ndarray:
    """``function`` of arrays of scalars (1-d) and of vectors (2-d)."""
    dtype = dtype or args[0].dtype
    width = max((a.shape[1] for a in args if a.ndim == 2), default=0)
    n = len(args[0])
    plain = scalar or not width
    out: Any = np.empty(n, dtype) if plain else tack.empty(n, dtype=tack.vector(width, dtype))
    kernel_of(function, len(args))(*[on_device(a, width) for a in args], out)
    return out if plain else np.asarray(out.numpy())


def sample(rng: np.random.Generator, width: int, dtype: Any, n: int = 500) -> np.ndarray:
    return rng.normal(0, 2, (n, width) if width else n).astype(dtype)


def check(got: np.ndarray, want: np.ndarray, dtype: Any, scale: Any = 1.0, ulps: float = 4) -> None:
    """Within ``ulps`` units in the last place of ``scale``, the size of what was added up."""
    assert got.dtype == dtype
    error = abs(got.astype(np.float64) - want)
    assert (error <= ulps * ULPS[dtype] * np.maximum(scale, 1e-30)).all(), (error / scale).max()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


def columns(*arrays: np.ndarray) -> list[np.ndarray]:
    """The same arrays with an axis of one component where they are scalars."""
    return [a[:, None] if a.ndim == 1 else a for a in arrays]


def dots(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = columns(x, y)
    return (x * y).sum(axis=1)


# --- each component ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
def test_exact_functions_of_each_component(width: int, dtype: Any, rng: np.random.Generator) -> None:
    x, y, z = (sample(rng, width, dtype) for _ in range(3))
    assert (result(tm.fract, x) == x - np.floor(x)).all()
    assert (result(tm.sign, x) == np.sign(x)).all()
    assert (result(tm.saturate, x) == np.clip(x, 0, 1)).all()
    assert (result(tm.step, y, x) == np.where(x < y, 0, 1)).all()
    assert (result(tm.step, x, x) == 1).all()
    assert (result(tm.clamp, x, y, z) == np.minimum(np.maximum(x, y), z)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
def test_mix_and_smoothstep(width: int, dtype: Any, rng: np.random.Generator) -> None:
    x, y, a = (sample(rng, width, dtype) for _ in range(3))
    xw, yw, aw = wide(x, y, a)
    check(result(tm.mix, x, y, a), xw * (1 - aw) + yw * aw, dtype, abs(xw * (1 - aw)) + abs(yw * aw))
    low, high = y, y + abs(a) + 1
    lw, hw = wide(low, high)
    t = np.clip((xw - lw) / (hw - lw), 0, 1)
    got = result(tm.smoothstep, low, high, x)
    check(got, t * t * (3 - 2 * t), dtype, ulps=8)
    assert (got[x <= low] == 0).all()
    assert (got[x >= high] == 1).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS[1:])
def test_scalars_beside_vectors_go_to_every_component(width: int, dtype: Any, rng: Any) -> None:
    v, w = sample(rng, width, dtype), sample(rng, width, dtype)
    s, t = sample(rng, 0, dtype), sample(rng, 0, dtype)
    sc, tc = s[:, None], t[:, None]
    assert (result(tm.clamp, v, s, t) == np.minimum(np.maximum(v, sc), tc)).all()
    assert (result(tm.clamp, s, v, w) == np.minimum(np.maximum(sc, v), w)).all()
    assert (result(tm.step, s, v) == np.where(v < sc, 0, 1)).all()
    vw, ww, sw = wide(v, w, sc)
    check(result(tm.mix, v, w, s), vw * (1 - sw) + ww * sw, dtype, abs(vw * (1 - sw)) + abs(ww * sw))
    high = t + abs(s) + 5
    u = np.clip((vw - tc) / (wide(high[:, None])[0] - tc), 0, 1)
    check(result(tm.smoothstep, t, high, v), u * u * (3 - 2 * u), dtype, ulps=8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_edge_cases_of_each_component(dtype: Any) -> None:
    nan, inf = np.nan, np.inf
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([0.0, -0.0, tiny, -tiny, 1.0, -1.0, inf, -inf, nan], dtype)
    zero, one = np.zeros_like(x), np.ones_like(x)
    # 1 - tiny rounds to 1, as GLSL's formula does; infinity minus infinity is NaN.
    np.testing.assert_array_equal(result(tm.fract, x), [0, 0, tiny, 1, 0, 0, nan, nan, nan])
    signs = result(tm.sign, x)
    np.testing.assert_array_equal(signs, [0, 0, 1, -1, 1, -1, 1, -1, nan])
    assert np.signbit(signs).tolist()[:2] == [False, True]
    np.testing.assert_array_equal(result(tm.saturate, x), [0, 0, tiny, 0, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(result(tm.clamp, x, -one, one), [0, 0, tiny, -tiny, 1, -1, 1, -1, -1])
    np.testing.assert_array_equal(result(tm.clamp, x, zero + nan, one), np.fmin(x, one))
    np.testing.assert_array_equal(result(tm.step, zero, x), [1, 1, 1, 0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(result(tm.step, zero + nan, x), one)
    np.testing.assert_array_equal(result(tm.smoothstep, zero, one, x), [0, 0, 0, 0, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(result(tm.mix, x, one, zero), [*x[:6], inf, -inf, nan])
    np.testing.assert_array_equal(result(tm.mix, one, x, one), [*x[:6], inf, -inf, nan])
    np.testing.assert_array_equal(result(tm.mix, x, one, one), [1, 1, 1, 1, 1, 1, nan, nan, nan])


def test_integers_stay_integers_where_the_formula_has_no_float() -> None:
    big = np.array([-(2**62) - 1, -3, 0, 5, 2**62 + 1], np.int64)  # not numbers of f64
    low, high = np.full(5, -(2**62) + 1), np.full(5, 2**62 - 1)
    assert result(tm.clamp, big, low, high).tolist() == np.clip(big, low, high).tolist()
    assert result(tm.fract, big).tolist() == [0] * 5
    assert result(tm.sign, big).tolist() == [-1, -1, 0, 1, 1]
    assert result(tm.dot, big, big).tolist() == [(b * b + 2**63) % 2**64 - 2**63 for b in big.tolist()]
    assert result(tm.length, big).tolist() == [abs(b) for b in big.tolist()]
    three, four = np.array([[3, 4]], np.int32), np.array([[2, 6]], np.int32)
    assert result(tm.dot, three, four, scalar=True).tolist() == [30]


def test_integers_become_f32_where_the_formula_has_a_float() -> None:
    x, y, a = (np.array(v, np.int32) for v in ([1, 2, 7], [4, -2, 9], [0, 1, 3]))
    assert result(tm.mix, x, y, a, dtype=np.float32).tolist() == [1, -2, 13]
    assert result(tm.saturate, y, dtype=np.float32).tolist() == [1, 0, 1]
    half = result(tm.smoothstep, x - 1, x + 1, x, dtype=np.float64)
    assert half.tolist() == [0.5, 0.5, 0.5]
    third = result(tm.smoothstep, x - 1, x + 2, x, dtype=np.float64)
    assert (abs(third - 7 / 27) < 1e-7).all()
    assert (third != 7 / 27).all()  # the arithmetic was f32's
    v = np.array([[3, 4], [0, -5]], np.int32)
    assert result(tm.length, v, dtype=np.float32, scalar=True).tolist() == [5, 5]
    unit = result(tm.normalize, v, dtype=np.float32)
    assert (abs(unit - [[0.6, 0.8], [0, -1]]) < 1e-7).all()


def test_f64_beside_f32_is_f64() -> None:
    x = np.array([0.1, 0.7], np.float32)
    y = np.array([1 / 3, 2 / 3])
    check(result(tm.mix, x, y, y, dtype=np.float64), x * (1 - y) + y * y, np.float64)
    assert (result(tm.clamp, x, y, y, dtype=np.float64) == y).all()


@tack.kernel
def after_step(x, out):
    for i in range(len(x)):
        above = tack.math.step(0.5, x[i])
        out[i] = (above + 1.0) / 3.0


def test_the_value_of_step_takes_the_precision_of_what_it_meets() -> None:
    out = np.empty(2)
    after_step(np.array([0.0, 1.0]), out)
    assert out.tolist() == [1 / 3, 2 / 3]


# --- vectors as a whole ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
def test_dot_length_distance_normalize(width: int, dtype: Any, rng: np.random.Generator) -> None:
    x, y = sample(rng, width, dtype), sample(rng, width, dtype)
    xw, yw = wide(x, y)
    check(result(tm.dot, x, y, scalar=True), dots(xw, yw), dtype, dots(abs(xw), abs(yw)))
    size = np.sqrt(dots(xw, xw))
    check(result(tm.length, x, scalar=True), size, dtype, size)
    apart = np.sqrt(dots(xw - yw, xw - yw))
    check(result(tm.distance, x, y, scalar=True), apart, dtype, apart)
    unit = result(tm.normalize, x)
    check(unit, xw / (size[:, None] if width else size), dtype)
    check(np.sqrt(dots(*wide(unit, unit))).astype(dtype), np.ones(len(x)), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_length_of_a_scalar_is_abs(dtype: Any) -> None:
    info = np.finfo(dtype)
    x = np.array([0.0, -0.0, info.tiny, -info.max, info.smallest_subnormal, np.inf, -np.inf, np.nan], dtype)
    got = result(tm.length, x)
    np.testing.assert_array_equal(got, abs(x))  # the square of the largest would overflow
    assert not np.signbit(got[:2]).any()
    np.testing.assert_array_equal(result(tm.normalize, x), [np.nan, np.nan, 1, -1, 1, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("dtype", FLOATS)
def test_vectors_of_zero_and_infinity(dtype: Any) -> None:
    v = np.array([[0, 0, 0], [np.inf, 1, 2], [np.nan, 1, 2]], dtype)
    np.testing.assert_array_equal(result(tm.length, v, scalar=True), [0, np.inf, np.nan])
    nan = np.nan
    np.testing.assert_array_equal(result(tm.normalize, v), [[nan] * 3, [nan, 0, 0], [nan] * 3])
    np.testing.assert_array_equal(result(tm.distance, v[:1], v[:1], scalar=True), [0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross(dtype: Any, rng: np.random.Generator) -> None:
    x, y = sample(rng, 3, dtype), sample(rng, 3, dtype)
    xw, yw = wide(x, y)
    size = np.sqrt(dots(xw, xw) * dots(yw, yw))[:, None]
    check(result(tm.cross, x, y), np.cross(xw, yw), dtype, size)


def units(rng: np.random.Generator, width: int, dtype: Any) -> np.ndarray:
    v = sample(rng, width, np.float64)
    return (np.sign(v) if not width else v / np.sqrt(dots(v, v))[:, None]).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
def test_reflect(width: int, dtype: Any, rng: np.random.Generator) -> None:
    incident, normal = sample(rng, width, dtype), units(rng, width, dtype)
    i, n = columns(*wide(incident, normal))
    want = i - 2 * dots(n, i)[:, None] * n
    (got,) = columns(result(tm.reflect, incident, normal))
    check(got, want, dtype, 1 + abs(i).max(axis=1)[:, None], ulps=12)
    # A mirror: the part along the normal turns round, the rest and the length stay.
    check(dots(got, n).astype(dtype), -dots(i, n), dtype, 10, ulps=8)
    check(dots(got, got).astype(dtype), dots(i, i), dtype, 20 + dots(i, i), ulps=8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("eta", [0.5, 1.0, 1.5])
def test_refract(width: int, eta: float, dtype: Any, rng: np.random.Generator) -> None:
    incident, normal = units(rng, width, dtype), units(rng, width, dtype)
    against = dots(incident, normal) > 0
    normal[against] *= -1
    ratio = np.full(len(incident), eta, dtype)
    i, n = columns(*wide(incident, normal))
    cosine = dots(n, i)
    k = 1 - eta * eta * (1 - cosine**2)
    clear = abs(k) > 1e-3  # not at the edge of total reflection, where rounding decides
    (got,) = columns(result(tm.refract, incident, normal, ratio))
    assert (got[clear & (k < 0)] == 0).all()
    passed = clear & (k > 0)
    assert passed.any()
    assert not width or eta <= 1 or (clear & (k < 0)).any()
    i, n, cosine, k, got = i[passed], n[passed], cosine[passed], k[passed], got[passed]
    want = eta * i - (eta * cosine + np.sqrt(k))[:, None] * n
    check(got, want, dtype, 1 / np.sqrt(k)[:, None], ulps=16)
    # Snell's law: the length stays 1, and the part across the normal is eta times the incident's.
    across = i - cosine[:, None] * n
    bent = got - dots(got, n)[:, None] * n
    check(bent.astype(dtype), eta * across, dtype, 1 / np.sqrt(k)[:, None], ulps=16)
    check(dots(got, got).astype(dtype), np.ones(len(got)), dtype, 1 / np.sqrt(k), ulps=24)


@tack.kernel
def refract_through_glass(incident, normal, out):
    for i in range(len(incident)):
        out[i] = tack.math.refract(incident[i], normal[i], 1.0 / 1.5)


def test_a_literal_ratio_takes_the_precision_of_the_vectors() -> None:
    incident = np.array([[0.6, -0.8]])
    normal = np.array([[0.0, 1.0]])
    out = tack.empty(1, dtype=tack.dvec2)
    refract_through_glass(on_device(incident, 2), on_device(normal, 2), out)
    sine = 0.6 / 1.5
    assert abs(out.numpy() - [[sine, -np.sqrt(1 - sine**2)]]).max() < 1e-15


# --- use and misuse ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "widths", "message"),
    [
        (tm.mix, (2, 3, 2), "vector of 3 and a vector of 2"),
        (tm.step, (4, 2), "vector of 2 and a vector of 4"),
        (tm.dot, (2, 3), "one size, not 2 and 3"),
        (tm.reflect, (2, 3), "one size, not 3 and 2"),
        (tm.cross, (2, 2), "vectors of 3, not of 2"),
        (tm.dot, (0, 3), "number"),
        (tm.cross, (0, 0), "number"),
    ],
)
def test_shapes_that_do_not_go_together(function: Any, widths: tuple[int, ...], message: str) -> None:
    args = [on_device(np.zeros((4, w) if w else 4, np.float32), w) for w in widths]
    with pytest.raises(TypeError, match=message):
        kernel_of(function, len(widths))(*args, np.zeros(4, np.float32))


def test_errors_lead_from_the_formula_to_the_kernel() -> None:
    v, w = (on_device(np.zeros((4, n), np.float32), n) for n in (2, 3))
    with pytest.raises(TypeError) as caught:
        kernel_of(tm.mix, 3)(v, w, v, v)
    text = str(caught.value)
    assert "in func 'mix', called from kernel 'three'" in text
    assert "return x * (1.0 - a) + y * a" in text
    assert str(tm.__file__) in text


def test_a_wrong_number_of_arguments_names_the_parameters() -> None:
    with pytest.raises(TypeError, match=r"'clamp' takes 3 arguments, not 2[\s\S]*\(x, low, high\)"):
        kernel_of(tm.clamp, 2)(np.zeros(1), np.zeros(1), np.zeros(1))


@pytest.mark.parametrize("name", tm.__all__)
def test_they_are_for_kernels_only(name: str) -> None:
    with pytest.raises(RuntimeError, match=name):
        getattr(tm, name)(1.0)


PROGRAM = """
import tack
assert not {"tack.math", "tack.random"} & set(sys.modules)
import math
assert tack.math is sys.modules["tack.math"] is not math
assert tack.random is sys.modules["tack.random"]
assert not hasattr(tack, "no_such_part")
modules = [m for name, m in sys.modules.items() if name.startswith("tack.")]
assert all(getattr(m, "math", math) is math for m in modules)
print("fine")
"""


def test_modules_load_when_first_named_and_hide_no_other() -> None:
    source = str(Path(tack.__file__).parents[1])  # for a tree that is not installed
    program = f"import sys\nsys.path.insert(0, {source!r})\n{PROGRAM}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("fine\n", "")
