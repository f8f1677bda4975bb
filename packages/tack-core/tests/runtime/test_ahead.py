"""`tack.compile_all`: several calls compiled at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tack
from tack.codegen.llvm import jit


def new_kernel(k: int) -> tack.Kernel:
    offset = tack.constant(k)

    @tack.kernel
    def add(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i] * x[i] + offset

    return add


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two threads to compile with, and the names of those that emitted code, in order."""
    monkeypatch.setenv("TACK_CPU_THREADS", "2")
    names: list[str] = []
    compile_object = jit.compile_object

    def noted(module: Any) -> bytes:
        data = compile_object(module)
        names.append(threading.current_thread().name)
        return data

    monkeypatch.setattr(jit, "compile_object", noted)
    return names


def test_all_calls_are_compiled_and_nothing_runs(threads: list[str]) -> None:
    kernels = [new_kernel(k) for k in range(6)]
    out = np.zeros(4)
    tack.compile_all((kernel, np.ones(4), out) for kernel in kernels)
    assert out.tolist() == [0] * 4
    assert len(threads) == 6
    assert [len(kernel.variants()) for kernel in kernels] == [1] * 6
    for k, kernel in enumerate(kernels):
        kernel(np.full(4, 3.0), out)
        assert out.tolist() == [9 + k] * 4
    assert len(threads) == 6


def test_threads_compile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of two goes on before both are there."""
    monkeypatch.setenv("TACK_CPU_THREADS", "2")
    both = threading.Barrier(2)
    compile_object = jit.compile_object

    def meeting(module: Any) -> bytes:
        both.wait(60)
        return compile_object(module)

    monkeypatch.setattr(jit, "compile_object", meeting)
    tack.compile_all([(new_kernel(k), (8, tack.f32), (8, tack.f32)) for k in (1, 2)])


def test_variants_of_one_kernel_and_one_variant_twice(threads: list[str]) -> None:
    kernel = new_kernel(1)
    dtypes = (tack.f32, tack.f64, tack.f32, tack.i32)
    tack.compile_all([(kernel, ((8,), dtype), ((8,), dtype)) for dtype in dtypes])
    assert len(threads) == len(kernel.variants()) == 3


def test_the_first_error_is_raised_after_the_rest_has_been_compiled(threads: list[str]) -> None:
    @tack.kernel
    def wrong(x, out):
        for i in range(x.shape[0]):
            out[i] = unknown_name

    good = [new_kernel(k) for k in (1, 2, 3)]
    spec = ((8,), tack.f32)
    calls = [(good[0], spec, spec), (wrong, spec, spec), (good[1], spec, "text"), (good[2], spec, spec)]
    with pytest.raises(NameError, match="unknown_name"):
        tack.compile_all(calls)
    assert [len(kernel.variants()) for kernel in good] == [1, 0, 1]


@pytest.mark.parametrize("call", [(), (3, 4), "text", new_kernel(1)])
def test_what_is_no_call_is_refused_before_anything_compiles(call: Any, threads: list[str]) -> None:
    spec = ((8,), tack.f32)
    with pytest.raises(TypeError, match="tuples of a kernel and its arguments"):
        tack.compile_all([(new_kernel(1), spec, spec), call])
    with pytest.raises(TypeError, match="missing a required argument: 'out'"):
        tack.compile_all([(new_kernel(1), spec, spec), (new_kernel(2), spec)])
    assert threads == []
    tack.compile_all([])


def test_threads_that_compile_at_once_emit_what_one_does() -> None:
    """LLVM runs without llvmlite's lock, so nothing may be shared."""
    from codegen.test_jit import SCALE, generate, parse

    bodies = ["mul(x[%i], 3.0:f64)", "call.sin(x[%i])", "call.exp(div(x[%i], 7.0:f64))", "pow(x[%i], x[%i])"]
    modules = [generate(parse(SCALE.replace("mul(x[%i], FACTOR:f64)", body))) for body in bodies]
    alone = [jit.compile_object(module) for module in modules]
    found: list[list[bytes]] = [[] for _ in range(4)]

    def work(k: int) -> None:
        for turn in range(10):
            found[k].append(jit.compile_object(modules[(k + turn) % 4]))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [[alone[(k + turn) % 4] for turn in range(10)] for k in range(4)]
