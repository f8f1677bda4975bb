"""A launch that is over holds nothing: the memory of its arguments goes as soon as the caller lets go of it.

Memory that stays until the threads of a pool come round to it, or until the garbage collector does, is memory
that the next launch's arrays are allocated beside.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tack
from tack.codegen.llvm import jit
from tack.errors import UnsupportedSyntaxError
from tack.runtime import native
from tack.runtime.backend import Backend
from tack.runtime.dispatch import default_backend

THREADS = 4
LARGE = 1 << 18  # enough for any pool to share


@pytest.fixture(autouse=True)
def references_alone() -> Iterator[None]:
    """Nothing is collected, and a thread that has the GIL keeps it for as long as it can."""
    interval = sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(1.0)
    yield
    sys.setswitchinterval(interval)
    gc.enable()


@pytest.fixture(params=["python", *(["native"] if native.module else [])], autouse=True)
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Either kind of threads."""
    monkeypatch.setenv("TACK_CPU_POOL", request.param)
    with tack.device("cpu", num_threads=THREADS):
        yield


def workers() -> int:
    pool = default_backend()._pool  # type: ignore[attr-defined]
    if pool is None:
        return 0
    count: int = pool._workers if pool.native is None else pool.native.workers
    return count


def held_by(kernel: tack.Kernel, size: int, *more: Any, wrapped: bool = False) -> int:
    """How many of the arrays of some launches are left after them; ``wrapped``: given as `tack.Array`."""
    refs = []
    for _ in range(20):
        memory = np.ones(size)
        refs.append(weakref.ref(memory))
        given: Any = tack.asarray(memory) if wrapped else memory
        try:
            kernel(given, *more)
        except (RuntimeError, IndexError):
            pass
        else:
            assert memory[size - 1] == 3.0
        del memory, given
        # At once, not after another launch.
        if refs[-1]() is not None:
            break
    return sum(ref() is not None for ref in refs)


@tack.kernel
def triple(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = tack.sqrt(x[i] * x[i] * 9.0)


@tack.kernel
def triple_slowly(x: Any, rounds: Any) -> None:
    for i in range(x.shape[0]):
        total = 0.0
        for _ in range(rounds):
            total += x[i] * 0.03125
        x[i] = total


@tack.kernel
def triple_and_tell(x: Any) -> tack.f64:
    for i in range(x.shape[0]):
        if i % 50_000 == 0:
            print("row", i)
        x[i] = tack.sqrt(x[i] * x[i] * 9.0)
    return x[0]


@tack.kernel
def overrun(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i + 1] = 0.0


@pytest.mark.parametrize("wrapped", [False, True])
def test_launches(wrapped: bool) -> None:
    assert held_by(triple, LARGE, wrapped=wrapped) == 0
    assert workers() == THREADS - 1
    assert held_by(triple, 8, wrapped=wrapped) == 0


def test_memory_of_tack_s_own() -> None:
    for _ in range(20):
        array = tack.ones(LARGE, tack.f64)
        memory = weakref.ref(array._buffer.owner)
        triple(array)
        assert memory() is not None
        del array
        assert memory() is None
    assert workers() == THREADS - 1


def test_prints_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert held_by(triple_and_tell, LARGE) == 0
    assert workers() == THREADS - 1
    assert capsys.readouterr().out.count("row 50000\n") == 20


@pytest.mark.parametrize("compiled", ["tiered", "optimized"])
def test_loops_of_unknown_length(compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in parts, between which launches wait for the thread that optimizes."""
    monkeypatch.setenv("TACK_CPU_COMPILE", compiled)
    kernel = tack.kernel(triple_slowly.__wrapped__)
    assert held_by(kernel, LARGE, 96) == 0
    assert workers() == THREADS - 1


@pytest.mark.parametrize("kernel", [triple, overrun])
def test_debug_mode(kernel: tack.Kernel) -> None:
    tack.set_debug(True)
    try:
        assert held_by(kernel, 500) == 0
    finally:
        tack.set_debug(False)


@pytest.mark.parametrize("op", ["sum", "min"])
def test_reductions_and_fills(op: str) -> None:
    for _ in range(5):
        memory = np.ones(1 << 19)
        ref = weakref.ref(memory)
        array = tack.asarray(memory)
        array.fill(2.0)
        assert getattr(array, op)() == (2.0 * memory.size if op == "sum" else 2.0)
        del memory, array
        assert ref() is None


# --- errors ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not jit.vector_bits(), reason="there is one form without fused multiply-add")
@pytest.mark.parametrize("size", [8, 1 << 23])
def test_code_that_cannot_be_optimized(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch raises the error, which may have come up in one of them."""

    def failing(module: object) -> bytes:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(jit, "compile_object", failing)
    monkeypatch.setenv("TACK_CPU_COMPILE", "tiered")
    kernel = tack.kernel(triple.__wrapped__)
    assert held_by(kernel, size) == 0
    with pytest.raises(RuntimeError, match="Kernel 'triple' failed on CPU: out of registers") as found:
        kernel(np.ones(1 << 23))
    depth = len(found.traceback)
    with pytest.raises(RuntimeError, match="out of registers") as found:
        kernel(np.ones(1 << 23))
    assert len(found.traceback) == depth  # no frames of the launches before


@pytest.mark.parametrize("calls", [1, 3])
def test_compile_all_that_fails(calls: int) -> None:
    @tack.kernel
    def bad(x: Any) -> None:
        for i in range(x.shape[0]):
            x[i] = {}

    array = np.ones(8)
    memory = weakref.ref(array)
    with pytest.raises(UnsupportedSyntaxError) as found:
        tack.compile_all([(bad, array)] * calls)
    del found, array
    assert memory() is None


def test_graphs() -> None:
    """A graph holds its arrays, and goes with the last that has it or one of its calls."""
    array = tack.ones(8, tack.f64)
    memory = weakref.ref(array._buffer.owner)
    with tack.capture(array.device) as graph:
        triple(array)
        array.fill(2.0)
    call = graph.calls[0]
    del array
    graph.launch()
    del graph
    assert memory() is not None
    call.update(x=tack.ones(8, tack.f64))
    del call
    assert memory() is None


@pytest.mark.parametrize("wait", [tack.sync, lambda: tack.wait().send(None)], ids=["sync", "wait"])
def test_waits_that_fail(wait: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(backend: Backend) -> None:
        raise RuntimeError("the device is gone")

    def waited(array: tack.Array) -> None:
        with pytest.raises(RuntimeError, match="gone"):
            wait()

    monkeypatch.setattr(type(default_backend()), "synchronize", failing)
    monkeypatch.setattr(type(default_backend()), "completion", failing)
    array = tack.ones(8, tack.f64)
    memory = weakref.ref(array._buffer.owner)
    waited(array)
    del array
    assert memory() is None
