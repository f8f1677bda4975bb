"""Large launches get code with streaming stores once they have been seen a few times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tack
from tack.codegen.llvm import jit
from tack.runtime.cpu import kernels, launch
from tack.runtime.cpu import program as programs_of_cpu
from tack.runtime.dispatch import default_backend

pytestmark = pytest.mark.skipif(
    not jit.has_streaming_stores(), reason="streaming stores are for x86 with fused multiply-add"
)

LARGE = 1 << 16  # bytes, in these tests


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs_of_cpu, "large_write", lambda: LARGE)
    monkeypatch.setattr(kernels, "MIN_FILL", LARGE)


def make_scale() -> tack.Kernel:
    @tack.kernel
    def scale(x, out, a):
        for i in range(out.shape[0]):
            out[i] = x[i] * a

    return scale


def programs(kernel: tack.Kernel) -> list[Any]:
    return [variant.payload for variant in default_backend().cache[kernel].variants.values()]


def run(kernel: tack.Kernel, count: int, times: int) -> None:
    x = np.arange(count, dtype=np.float32)
    for k in range(times):
        out = np.zeros(count, np.float32)
        kernel(x, out, 2.0 + k)
        assert np.array_equal(out, x * np.float32(2 + k))


@pytest.mark.parametrize("times", [launch._PLAIN_LAUNCHES, launch._PLAIN_LAUNCHES + 3])
def test_it_is_made_once_it_pays(times: int) -> None:
    scale = make_scale()
    run(scale, LARGE // 4, times)
    (program,) = programs(scale)
    assert (program.streaming is not None) == (times > launch._PLAIN_LAUNCHES)
    assert len(scale.variants()) == 1


def test_small_launches_do_not_count() -> None:
    scale = make_scale()
    run(scale, LARGE // 4 - 1, 30)
    (program,) = programs(scale)
    assert program.streaming is None
    assert program.large_launches == 0


def test_it_is_for_large_launches_only() -> None:
    scale = make_scale()
    run(scale, LARGE // 4, 12)
    (program,) = programs(scale)
    program.streaming.functions = None  # whoever uses it fails
    run(scale, 1000, 3)


def test_overlapping_arrays_never_have_it() -> None:
    scale = make_scale()
    for _ in range(12):
        x = np.ones(LARGE, np.float32)
        scale(x[: LARGE // 2], x[: LARGE // 2], 2.0)
        assert (x[: LARGE // 2] == 2).all()
    (program,) = programs(scale)
    assert program.streaming is None


def test_kernels_that_read_what_they_write_never_have_it() -> None:
    @tack.kernel
    def add(out, a):
        for i in range(out.shape[0]):
            out[i] += a

    out = np.zeros(LARGE, np.float32)
    for k in range(12):
        add(out, 1.0)
        assert (out == k + 1).all()
    (program,) = programs(add)
    assert program.large_launches == 0


def test_a_result_comes_from_either_code() -> None:
    @tack.kernel
    def scaled_count(x, out, a) -> float:
        for i in range(out.shape[0]):
            out[i] = x[i] * a
        return out.shape[0] + 0.5

    x, out = np.ones(LARGE, np.float32), np.zeros(LARGE, np.float32)
    assert [scaled_count(x, out, 2.0) for _ in range(12)] == [LARGE + 0.5] * 12
    (program,) = programs(scaled_count)
    assert program.streaming is not None


def test_fills_of_large_arrays() -> None:
    for k in range(12):
        out = tack.empty(LARGE // 2, tack.f32)
        out.fill(k)
        assert (out.numpy() == k).all()
