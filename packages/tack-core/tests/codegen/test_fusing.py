"""Which products are fused with a sum: by what the kernel says, whatever LLVM's passes make of it."""

from __future__ import annotations

import ctypes
import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tack
from codegen.harness import LAUNCH, Compiled, loaded
from tack.codegen.fusing import fused_locals
from tack.codegen.llvm import jit
from tack.codegen.single import single_valued
from tack.ir.parser import parse

pytestmark = pytest.mark.skipif(not jit.vector_bits(), reason="needs fused multiply and add")

# Factors whose product needs more bits than an f64 has, and a term that cancels most of it.
A, B = 1.0 + 2.0**-30, 1.0 - 2.0**-31
C = -1.0


def kernel(body: str, locals: str = "") -> str:
    return f"""kernel k(x: f64[], y: f64[]) {{
      local i: i64
      local a: f64
      local b: f64
      local j: i64
      {locals}
      parallel i in (0:i64, 1:i64, 1:i64) {{
        {body}
      }}
    }}"""


def results(text: str, optimize: bool) -> list[float]:
    """What a kernel stores in four elements of y, given A, B, C and 3.0 in x."""
    compiled = Compiled(text)
    args = {"x": np.array([A, B, C, 3.0]), "y": np.zeros(4)}
    slots = compiled.slots(args, [(0, 1, 1)])
    if optimize:
        compiled.launch(ctypes.addressof(slots), 0, 1)
    else:
        code = loaded(jit.compile_quickly(str(compiled.module)))
        LAUNCH(code.address("launch"))(ctypes.addressof(slots), 0, 1)
    found: list[float] = args["y"].tolist()
    return found


EXACT = Fraction(A) * Fraction(B)
FUSED = float(EXACT + Fraction(C))
ROUNDED = A * B + C
X = [f"x[{k}:i64]" for k in range(4)]
PRODUCT = f"mul({X[0]}, {X[1]})"


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "quick"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"y[0:i64] = add({PRODUCT}, {X[2]})", FUSED),
        (f"y[0:i64] = add({X[2]}, {PRODUCT})", FUSED),
        (f"y[0:i64] = sub({PRODUCT}, neg({X[2]}))", FUSED),
        (f"y[0:i64] = sub({X[2]}, {PRODUCT})", float(Fraction(C) - EXACT)),
        (f"y[0:i64] = add(neg({PRODUCT}), {X[3]})", float(3 - EXACT)),
        (f"y[0:i64] = sub({X[3]}, neg({PRODUCT}))", float(3 + EXACT)),
        # Of two products the right one is fused, with the left one rounded.
        (f"y[0:i64] = sub(mul({X[0]}, {X[1]}), mul({X[0]}, {X[1]}))", float(Fraction(A * B) - EXACT)),
        (f"%a = {PRODUCT}\n y[0:i64] = add(%a, {X[2]})", FUSED),
        (f"%a = {PRODUCT}\n %b = add(%a, {X[2]})\n y[0:i64] = %b", FUSED),
        # Used twice, or by something else: it is rounded, and so equals itself.
        (f"%a = {PRODUCT}\n y[0:i64] = add(%a, {X[2]})\n y[1:i64] = %a", ROUNDED),
        (f"%a = {PRODUCT}\n y[0:i64] = sub(%a, %a)", 0.0),
        (f"%a = {PRODUCT}\n %a = add(%a, {X[2]})\n y[0:i64] = %a", ROUNDED),
        (f"y[0:i64] = call.max({PRODUCT}, 0.0:f64)\n y[0:i64] = add(y[0:i64], {X[2]})", ROUNDED),
        (
            f"%a = {PRODUCT}\n for %j in (0:i64, 2:i64, 1:i64) {{\n y[%j] = add(%a, {X[2]})\n }}",
            FUSED,
        ),
    ],
)
def test_what_is_fused(body: str, expected: float, optimize: bool) -> None:
    assert ROUNDED != FUSED
    assert results(kernel(body), optimize)[0] == expected


def test_which_locals_are_fused() -> None:
    body = f"%a = {PRODUCT}\n %b = mul(%a, 2.0:f64)\n y[0:i64] = add(%b, %b)\n y[1:i64] = add(%a, 1.0:f64)"
    found = parse(kernel(body))
    assert fused_locals(found, single_valued(found)) == set()
    found = parse(kernel(f"%a = {PRODUCT}\n %b = mul({X[0]}, 2.0:f64)\n y[0:i64] = add(%a, %b)"))
    assert fused_locals(found, single_valued(found)) == {"a", "b"}
    assert fused_locals(found, ["b"]) == {"b"}


def test_a_product_in_another_type_is_rounded_to_its_own() -> None:
    @tack.kernel
    def mixed(x: Any, y: Any, out: Any) -> None:
        for i in range(1):
            out[i] = x[i] * x[i] + y[i]  # f32 * f32, then f64

    x = np.array([1 + 2**-20], np.float32)
    y, out = np.array([-1.0]), np.zeros(1)
    mixed(x, y, out)
    assert out[0] == float(x[0] * x[0]) - 1.0


def test_under_fastmath_llvm_decides() -> None:
    @tack.kernel(fastmath=True)
    def fast(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            out[i] = x[i] * x[i] + out[i]

    @tack.kernel
    def strict(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            out[i] = x[i] * x[i] + out[i]

    arrays = np.zeros(8, np.float32), np.zeros(8, np.float32)
    assert "llvm.fma" not in tack.inspect(fast, *arrays, mode="source")
    source = tack.inspect(strict, *arrays, mode="source")
    assert re.search(r"call +float @\"?llvm\.fma\.f32", source)
    assert "contract" not in source


def c_power(base: float, exponent: float) -> float:
    """`math.pow`, with the C library's answer where that raises: at poles and roots of negative numbers."""
    try:
        return math.pow(base, exponent)
    except ValueError:
        return math.copysign(math.inf, base) if base == 0 else math.nan
    except OverflowError:
        return math.inf


@pytest.mark.parametrize("exponent", [0.0, 1.0, -1.0, 2.0, 3.0, 4.0, 0.5])
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "quick"])
def test_constant_exponents_at_special_values(exponent: float, optimize: bool) -> None:
    inf, nan = float("inf"), float("nan")
    bases = [0.0, -0.0, inf, -inf, nan, 4.0, -4.0, 1e-300]
    text = f"""kernel k(x: f64[], y: f64[]) {{
      local i: i64
      parallel i in (0:i64, 8:i64, 1:i64) {{
        y[%i] = pow(x[%i], {exponent!r}:f64)
      }}
    }}"""
    compiled = Compiled(text)
    args = {"x": np.array(bases), "y": np.zeros(8)}
    slots = compiled.slots(args, [(0, 1, 8)])
    code = compiled.code if optimize else loaded(jit.compile_quickly(str(compiled.module)))
    LAUNCH(code.address("launch"))(ctypes.addressof(slots), 0, 8)
    expected = np.array([c_power(base, exponent) for base in bases])
    assert np.array_equal(args["y"], expected, equal_nan=True)
    signs = ~np.isnan(expected)
    assert np.array_equal(np.signbit(args["y"])[signs], np.signbit(expected)[signs])
