"""Random float expressions against exact rational arithmetic, within a bound propagated for each.

An expression is evaluated as a rational number together with a bound on what rounding each
operation to nearest can add up to. Fusing a multiply with an add only removes a rounding.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import tack

from .runner import build, on_device

COUNT = 64  # elements each expression is evaluated on
EXPRESSIONS = 12  # in a kernel

DIGITS = {"f32": 24, "f64": 53}
LOWEST = {"f32": Fraction(1, 2**149), "f64": Fraction(1, 2**1074)}
FLUSHED = Fraction(1, 2**125)  # on Metal a result of f32 below half of this may become 0
TOP = {"f32": Fraction(2) ** 128, "f64": Fraction(2) ** 1024}


@dataclass(frozen=True)
class Value:
    """An exact value and how far the computed one may be from it."""

    exact: Fraction
    error: Fraction


class Unbounded(Exception):
    """The result may overflow, or a divisor or root may be of either sign."""


def rounded(exact: Fraction, error: Fraction, name: str) -> Value:
    """After one more rounding to nearest in ``name``."""
    magnitude = abs(exact) + error
    if magnitude >= TOP[name] / 2:
        raise Unbounded
    lowest = FLUSHED if tack.default_device().name == "metal" else LOWEST[name]
    unit = max(magnitude / 2 ** DIGITS[name], lowest / 2)
    return Value(exact, simplified(error + unit))


def simplified(error: Fraction) -> Fraction:
    """A slightly larger bound with a short numerator, so that deep trees stay fast."""
    if error == 0:
        return error
    shift = error.denominator.bit_length() - error.numerator.bit_length() + 30
    scaled = error * 2**shift if shift >= 0 else error / 2**-shift
    up = Fraction(math.ceil(scaled))
    return up / 2**shift if shift >= 0 else up * 2**-shift


class Node:
    """A float expression: its text, its type and how to bound it for given inputs."""

    def __init__(self, text: str, name: str, evaluate: Any) -> None:
        self.text = text
        self.name = name
        self.evaluate = evaluate


def expression(rng: random.Random, depth: int) -> Node:
    if depth <= 0 or rng.random() < 0.15:
        return leaf(rng)
    kind = rng.randrange(8)
    a = expression(rng, depth - 1)
    if kind == 6:
        return square_root(a)
    if kind == 7:
        name = on_device(rng.choice(("f32", "f64")))
        return Node(f"tack.{name}({a.text})", name, lambda x: conversion(a.evaluate(x), a.name, name))
    b = expression(rng, depth - 1)
    op = "+-*/+*"[kind]
    name = "f64" if "f64" in (a.name, b.name) else "f32"
    return Node(
        f"({a.text} {op} {b.text})", name, lambda x: arithmetic(op, a.evaluate(x), b.evaluate(x), name)
    )


def leaf(rng: random.Random) -> Node:
    name = on_device(rng.choice(("f32", "f64")))
    if rng.random() < 0.2:
        number = rng.choice((0.1, 0.5, 3.0, 1e-3, 7.25, 1e3))
        exact = Fraction(float(np.float32(number))) if name == "f32" else Fraction(number)
        return Node(f"tack.{name}({number})", name, lambda _: Value(exact, Fraction(0)))
    array = f"{rng.choice('xyz')}{name[1:]}"
    return Node(f"{array}[i]", name, lambda inputs: Value(inputs[array], Fraction(0)))


def conversion(a: Value, source: str, target: str) -> Value:
    return rounded(a.exact, a.error, target) if (source, target) == ("f64", "f32") else a


def square_root(a: Node) -> Node:
    def evaluate(inputs: dict[str, Fraction]) -> Value:
        v = a.evaluate(inputs)
        low = v.exact - v.error
        if low <= 0:
            raise Unbounded
        # 200 bits of the root, and the derivative's bound of what the argument's error does.
        scale = 2**400
        root = Fraction(math.isqrt(v.exact.numerator * scale * scale // v.exact.denominator), scale)
        smallest = Fraction(math.isqrt(low.numerator * scale * scale // low.denominator), scale)
        if smallest == 0:
            raise Unbounded
        return rounded(root, v.error / (2 * smallest) + Fraction(1, scale), a.name)

    return Node(f"sqrt({a.text})", a.name, evaluate)


def arithmetic(op: str, a: Value, b: Value, name: str) -> Value:
    if op in "+-":
        exact = a.exact + b.exact if op == "+" else a.exact - b.exact
        return rounded(exact, a.error + b.error, name)
    if op == "*":
        error = abs(a.exact) * b.error + abs(b.exact) * a.error + a.error * b.error
        return rounded(a.exact * b.exact, error, name)
    smallest = abs(b.exact) - b.error
    if smallest <= 0:
        raise Unbounded
    exact = a.exact / b.exact
    return rounded(exact, (a.error + abs(exact) * b.error) / smallest, name)


def float_difference(rng: random.Random) -> str | None:
    """Runs a batch of expressions; a description of the first result outside its bound, or None."""
    nodes = [expression(rng, rng.randrange(2, 5)) for _ in range(EXPRESSIONS)]
    names = [f"{v}{w}" for v in "xyz" for w in ("32", "64")]
    seed = rng.randrange(2**32)
    arrays: dict[str, np.ndarray] = {}
    for k, name in enumerate(names):
        draw = np.random.default_rng([seed, k])
        dtype = np.float32 if name.endswith("32") else np.float64
        arrays[name] = (draw.standard_normal(COUNT) * 2.0 ** draw.integers(-20, 20, COUNT)).astype(dtype)
    lines = "".join(f"        out[{k} * {COUNT} + i] = {node.text}\n" for k, node in enumerate(nodes))
    source = f"@tack.kernel\ndef kernel(out, {', '.join(names)}):\n    for i in range({COUNT}):\n{lines}"
    out = np.zeros(EXPRESSIONS * COUNT)
    build(source)(out, *arrays.values())
    exact = [{name: Fraction(float(array[i])) for name, array in arrays.items()} for i in range(COUNT)]
    for k, node in enumerate(nodes):
        for i in range(COUNT):
            try:
                want = node.evaluate(exact[i])
            except Unbounded:
                continue
            got = float(out[k * COUNT + i])
            if not math.isfinite(got) or abs(Fraction(got) - want.exact) > want.error:
                at = {name: float(v) for name, v in exact[i].items()}
                wanted = f"{float(want.exact)!r} within {float(want.error):.3g}"
                return f"{node.text} at {at}: got {got!r}, expected {wanted}"
    return None
