"""Casts, stores and bitcasts between all pairs of types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack

from . import oracle
from .helpers import Rejection, build, launch, same, value, values

Rejects = Callable[..., Rejection]
PAIRS = list(itertools.product(oracle.DTYPES, repeat=2))


def edge_floats(name: str) -> list[float]:
    """Floats around the limits of every integer type, exact in ``name``."""
    found = oracle.interesting_floats(name)
    dtype = oracle.numpy_dtype(name).type
    for target in oracle.INTEGERS:
        for limit in oracle.limits(target):
            for number in (
                dtype(limit),
                np.nextafter(dtype(limit), dtype(0)),
                np.nextafter(dtype(limit), dtype(np.inf)),
            ):
                found += [float(number), float(number) + 0.5, float(number) - 0.5]
    found += [0.5, 0.999, -0.5, -0.999, 1.999, -1.999, 254.9, 255.5, 127.999, -128.999]
    return [float(dtype(v)) for v in found]


def sources(name: str) -> list[Any]:
    if name in oracle.FLOATS:
        return edge_floats(name)
    if oracle.bits(name) == 8:
        return list(range(oracle.limits(name)[0], oracle.limits(name)[1] + 1))
    return oracle.interesting_integers(name)


def cast(number: Any, source: str, target: str) -> Any:
    if target in oracle.FLOATS:
        if source in oracle.FLOATS:
            with np.errstate(all="ignore"):
                return float(oracle.numpy_dtype(target).type(number))
        return oracle.round_to(target, number)
    return oracle.float_to_int(target, number) if source in oracle.FLOATS else oracle.wrap(target, number)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_cast_and_store(pair: tuple[str, str]) -> None:
    source, target = pair
    numbers = sources(source)
    x = np.array(numbers, oracle.numpy_dtype(source))
    kernel = build(
        f"""
        @tack.kernel
        def kernel(x, a, b, c):
            for i in range(x.shape[0]):
                a[i] = x[i]
                b[i] = tack.{target}(x[i])
                v = tack.{target}(0)
                v = tack.{target}(x[i])
                c[i] = v
        """
    )
    dtype = oracle.numpy_dtype(target)
    a, b, c = (np.zeros(len(x), dtype) for _ in range(3))
    launch(kernel, x, a, b, c)
    expected = [cast(v, source, target) for v in x.tolist()]
    for got in (a, b, c):
        same(got.tolist(), expected, numbers)


@pytest.mark.parametrize("name", oracle.DTYPES)
def test_int_float_and_bool(name: str) -> None:
    numbers = sources(name)
    x = np.array(numbers, oracle.numpy_dtype(name))
    kernel = build(
        """
        @tack.kernel
        def kernel(x, a, b, c, w):
            for i in range(x.shape[0]):
                a[i] = int(x[i])
                b[i] = float(x[i])
                c[i] = bool(x[i])
                w[0] = clz(int(x[i]) ^ int(x[i]))
                w[1] = bool(x[i]) + bool(x[i])
        """
    )
    a, b, c, w = (
        np.zeros(len(x), np.int64),
        np.zeros(len(x)),
        np.zeros(len(x), np.int64),
        np.zeros(2, np.int64),
    )
    launch(kernel, x, a, b, c, w)
    exact = x.tolist()
    same(a.tolist(), [cast(v, name, "i32") for v in exact], numbers)
    same(b.tolist(), [cast(v, name, "f32") for v in exact], numbers)
    same(c.tolist(), [int(v != 0) for v in exact], numbers)  # NaN is true
    assert w[0] == 32
    assert w[1] in (0, 2)


def test_widening_follows_the_sign_of_the_source() -> None:
    x, y = np.array([-1], np.int8), np.array([255], np.uint8)
    got = values(
        ["tack.u64(x[0])", "tack.u32(x[0])", "tack.u64(y[0])", "tack.i16(y[0])", "tack.u16(tack.i8(y[0]))"],
        np.uint64,
        x=x,
        y=y,
    )
    assert got == [2**64 - 1, 2**32 - 1, 255, 255, 65535]


def test_casts_compose() -> None:
    cases = {
        "tack.u8(300)": 44,
        "tack.i8(200)": -56,
        "tack.u8(-1)": 255,
        "tack.i32(4294967295)": -1,
        "tack.i32(tack.f32(16777217))": 16777216,
        "tack.u8(tack.f32(-3.7))": 0,
        "tack.i8(1e10)": 127,
        "tack.i64(tack.f64(9007199254740993))": 9007199254740992,
        "int(2.999999999)": 2,
        "int(-2.5)": -2,
        "tack.i64(math.nan)": 0,
        "tack.u32(math.inf)": 2**32 - 1,
        "bool(0.1) + bool(-0.0)": 1,
        "int(True)": 1,
    }
    assert dict(zip(cases, values(list(cases), np.int64), strict=True)) == cases


def test_casts_by_numpy_types() -> None:
    assert values(["np.int8(300)", "np.float32(0.1)", "np.uint16(-1)"], np.float64) == [
        44.0,
        float(np.float32(0.1)),
        65535.0,
    ]


@pytest.mark.parametrize("call", ["tack.i32()", "tack.i32(1, 2)", "int()", "float(1, 2)", "bool()"])
def test_cast_arity(rejects: Rejects, call: str) -> None:
    rejects(
        (tack.UnsupportedSyntaxError, TypeError),
        f"@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «{call}»\n",
        np.zeros(1),
    )


SAME_SIZE = [(a, b) for a, b in PAIRS if oracle.bits(a) == oracle.bits(b)]


@pytest.mark.parametrize("pair", SAME_SIZE, ids="-".join)
def test_bitcast(pair: tuple[str, str]) -> None:
    source, target = pair
    x = np.random.default_rng(1).integers(0, 256, 800, np.uint8).view(oracle.numpy_dtype(source))
    out = np.zeros(len(x), oracle.numpy_dtype(target))
    launch(
        build(
            f"""
                @tack.kernel
                def kernel(x, o):
                    for i in range(x.shape[0]):
                        o[i] = bitcast(x[i], tack.{target})
                """
        ),
        x,
        out,
    )
    nan = np.isnan(x) if source[0] == "f" else np.zeros(len(x), bool)
    assert np.array_equal(
        out.view(np.uint8).reshape(len(x), -1)[~nan], x.view(np.uint8).reshape(len(x), -1)[~nan]
    )


def test_bitcast_between_sizes_is_a_type_error(rejects: Rejects) -> None:
    for source, target in (("f32", "i64"), ("i64", "i32"), ("i8", "u16")):
        x = np.zeros(1, oracle.numpy_dtype(source))
        rejects(
            TypeError,
            f"""
                @tack.kernel
                def kernel(x, o):
                    for i in range(1):
                        o[i] = «bitcast(x[i], tack.{target})
                """,
            x,
            np.zeros(1),
        )
    assert value("bitcast(bitcast(1.0, tack.i32) + 1, tack.f32) > 1", np.int32) == 1
    rejects(
        (TypeError, NameError),
        "@tack.kernel\ndef kernel(o):\n    for i in range(1):\n        o[i] = «bitcast(o[i], «3)\n",
        np.zeros(1),
    )
