"""Streaming stores: which stores they are, and that the code with them does what the plain code does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tack.codegen.llvm import generate, jit
from tack.codegen.streaming import streamed_stores
from tack.dtypes import ALL_DTYPES, DType
from tack.ir.parser import parse

from .harness import Compiled

needs_streaming_stores = pytest.mark.skipif(
    not jit.has_streaming_stores(), reason="streaming stores are for x86 with fused multiply-add"
)


def loop(body: str, ranges: str = "i in (0:i64, dim(x, 0), 1:i64)", params: str = "") -> str:
    return f"""kernel k(x: f32[], y: f32[], z: f32[]{params}) {{
  local i: i64
  local j: i64
  local k: i64
  local t: f32
  parallel {ranges} {{
    {body}
  }}
}}"""


STREAMED = {
    "one": ("y[%i] = x[%i]", "y"),
    "two": ("y[%i] = x[%i]\nz[%i] = mul(x[%i], 2.0:f32)", "yz"),
    "shifted": ("y[add(sub(%i, 3:i64), 1:i64)] = x[%i]", "y"),
    "shifted from the left": ("y[add(1:i64, %i)] = x[%i]", "y"),
    "by way of a local": ("%t = x[%i]\ny[%i] = %t", "y"),
    "the other is read": ("y[%i] = z[%i]\nz[%i] = 1.0:f32", "y"),
    "read": ("y[%i] = y[%i]", ""),
    "read elsewhere": ("y[%i] = x[%i]\nz[%i] = y[0:i64]", "z"),
    "written twice": ("y[%i] = x[%i]\ny[add(%i, 1:i64)] = x[%i]", ""),
    "written with a step": ("y[mul(%i, 2:i64)] = x[%i]", ""),
    "written backwards": ("y[sub(9:i64, %i)] = x[%i]", ""),
    "written at one place": ("y[0:i64] = x[%i]", ""),
    "written where a local says": ("%j = add(%i, 1:i64)\ny[%j] = x[%i]", ""),
    "written where another array says": ("y[add(%i, cast.i64(x[%i]))] = 1.0:f32", ""),
    "the loop variable changes": ("%i = add(%i, %i)\ny[%i] = x[%i]", ""),
    "a condition": ("if gt(x[%i], 0.0:f32) {\ny[%i] = x[%i]\n}", ""),
    "a condition beside it": ("y[%i] = x[%i]\nif gt(x[%i], 0.0:f32) {\n%t = 1.0:f32\n}", ""),
    "updated": ("atomic_add y[%i], 1.0:f32", ""),
}


@pytest.mark.parametrize("case", STREAMED)
def test_which_stores_they_are(case: str) -> None:
    body, arrays = STREAMED[case]
    assert "".join(s.array for s in streamed_stores(parse(loop(body)))) == arrays


@pytest.mark.parametrize(
    ("ranges", "body", "found"),
    [
        ("i in (0:i64, dim(x, 0), 2:i64)", "y[%i] = x[%i]", False),
        (
            "j in (0:i64, 9:i64, 1:i64), i in (0:i64, 7:i64, 1:i64)",
            "y[add(mul(%j, 7:i64), %i)] = x[%i]",
            True,
        ),
        (
            "j in (0:i64, 9:i64, 3:i64), i in (0:i64, 7:i64, 1:i64)",
            "y[add(mul(%j, 7:i64), %i)] = x[%i]",
            True,
        ),
        (
            "i in (0:i64, 7:i64, 1:i64), j in (0:i64, 9:i64, 1:i64)",
            "y[add(mul(%j, 7:i64), %i)] = x[%i]",
            False,
        ),
    ],
)
def test_which_axis_they_follow(ranges: str, body: str, found: bool) -> None:
    assert bool(streamed_stores(parse(loop(body, ranges)))) == found


@needs_streaming_stores
def test_the_code_has_them() -> None:
    module = generate(parse(loop("y[%i] = mul(x[%i], 3.0:f32)")), disjoint=True, streaming=True)
    code = jit.assembly(module)
    assert "movntps" in code or "movntdq" in code
    assert "sfence" in code
    plain = jit.assembly(generate(parse(loop("y[%i] = mul(x[%i], 3.0:f32)")), disjoint=True))
    assert "movnt" not in plain
    assert "sfence" not in plain


# --- what they compute --------------------------------------------------------------------------

MARGIN = 40  # elements before and after an array that must stay as they are


class Place:
    """An array at ``skip`` bytes past a cache line, with a margin on both sides."""

    def __init__(self, dtype: DType, count: int, skip: int) -> None:
        size = dtype.itemsize
        self.memory = np.full((count + 2 * MARGIN) * size + 256, 0xA5, np.uint8)
        self.start = -self.memory.ctypes.data % 64 + 64 * (-(-MARGIN * size // 64)) + skip
        self.nbytes = count * size
        self.values = self.memory[self.start : self.start + self.nbytes].view(dtype.numpy)

    def margins_are_whole(self) -> bool:
        outside = np.concatenate([self.memory[: self.start], self.memory[self.start + self.nbytes :]])
        return bool((outside == 0xA5).all())


def same(plain: Compiled, streaming: Compiled, places: Any, args: Any, launch: Any, splits: Any) -> None:
    """Both give the same bits, and write nothing else."""
    results = []
    for compiled in (plain, streaming):
        outs = places()
        compiled({**args, **{name: place.values for name, place in outs.items()}}, launch, splits)
        assert all(place.margins_are_whole() for place in outs.values())
        results.append([place.values.tobytes() for place in outs.values()])
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_any_type_length_and_alignment(dtype: DType) -> None:
    text = f"""kernel k(x: {dtype}[], y: {dtype}[]) {{
  local i: i64
  parallel i in (2:i64, dim(x, 0), 1:i64) {{
    y[sub(%i, 1:i64)] = add(x[%i], x[sub(%i, 2:i64)])
  }}
}}"""
    plain, streaming = Compiled(text, disjoint=True), Compiled(text, disjoint=True, streaming=True)
    line = 64 // dtype.itemsize
    rng = np.random.default_rng(dtype.itemsize)
    x = rng.integers(0, 100, 5 * line).astype(dtype.numpy)
    skips = range(0, 64, dtype.itemsize)
    for count in (3, line - 1, line, line + 1, 2 * line + 3, 5 * line):
        for skip in {0, skips[-1], skips[len(skips) // 2], 1}:  # 1: aligned nowhere, unless for bytes
            middle = int(rng.integers(0, count - 2, endpoint=True))
            same(
                plain,
                streaming,
                lambda count=count, skip=skip: {"y": Place(dtype, count, skip)},
                {"x": x},
                [(2, 1, count - 2)],
                (0, middle, count - 2),
            )


def test_several_arrays_of_several_types() -> None:
    text = """kernel k(x: f32[], a: f32[], b: f64[], c: u8[]) {
  local i: i64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    a[%i] = mul(x[%i], 0.5:f32)
    b[%i] = cast.f64(x[%i])
    c[%i] = cast.u8(x[%i])
  }
}"""
    plain, streaming = Compiled(text, disjoint=True), Compiled(text, disjoint=True, streaming=True)
    x = np.arange(500, dtype=np.float32) % 256
    types = {"a": ALL_DTYPES[8], "b": ALL_DTYPES[9], "c": ALL_DTYPES[1]}
    for shifts in ((0, 0, 0), (4, 8, 1), (4, 8, 2), (60, 56, 63), (4, 4, 1)):

        def places(shifts: tuple[int, ...] = shifts) -> dict[str, Place]:
            return {
                name: Place(dtype, 500, skip)
                for (name, dtype), skip in zip(types.items(), shifts, strict=True)
            }

        same(plain, streaming, places, {"x": x}, [(0, 1, 500)], (0, 130, 131, 500))


@pytest.mark.parametrize("width", [1, 7, 16, 33, 64, 130])
def test_rows(width: int) -> None:
    text = f"""kernel k(x: f32[,], y: f32[,]) {{
  local r: i64
  local c: i64
  parallel r in (1:i64, 8:i64, 1:i64), c in (0:i64, {width}:i64, 1:i64) {{
    y[add(mul(%r, {width}:i64), %c)] = sub(x[add(mul(sub(%r, 1:i64), {width}:i64), %c)], 1.0:f32)
  }}
}}"""
    plain, streaming = Compiled(text, disjoint=True), Compiled(text, disjoint=True, streaming=True)
    x = np.random.default_rng(width).normal(size=8 * width).astype(np.float32)
    total = 7 * width
    for skip, cut in itertools.product((0, 4, 36), (1, total // 3, total - 1)):
        same(
            plain,
            streaming,
            lambda skip=skip: {"y": Place(ALL_DTYPES[8], 8 * width, skip)},
            {"x": x},
            [(1, 1, 7), (0, 1, width)],
            (0, cut, total),
        )


def test_locals_of_a_lane_start_as_in_the_plain_code() -> None:
    text = """kernel k(x: f32[], y: f32[]) {
  local i: i64
  local t: f32
  %t = 1.0:f32
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    %t = add(%t, x[%i])
    y[%i] = %t
  }
}"""
    x = np.arange(200, dtype=np.float32)
    y = np.zeros(200, np.float32)
    Compiled(text, disjoint=True, streaming=True)({"x": x, "y": y}, [(0, 1, 200)])
    assert np.array_equal(y, x + 1)
