"""Launches of which nobody knows how long they take begin with code that is not optimized, in parts."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack
from tack.codegen.llvm import jit
from tack.runtime import native
from tack.runtime.cpu import launch, tiers
from tack.runtime.cpu.program import Program

pytestmark = [
    pytest.mark.skipif(not jit.vector_bits(), reason="there is one form without fused multiply-add"),
    pytest.mark.usefixtures("paused"),
]

SIZE = 1000


@pytest.fixture(autouse=True)
def tiered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_CPU_COMPILE", "tiered")


class Part:
    """What a launch ran: how many iterations at most, on a pool or not, and by optimized code or not."""

    def __init__(self, program: Program, pool: object, count: int) -> None:
        self.count = count
        self.shared = pool is not None
        self.optimized = program.upgrade is None


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The parts of the launches so far."""
    found: list[Part] = []
    runner = launch._runner

    def spy(program: Program, pool: Any, slots: bytes, count: int, used: Any) -> Callable[[int, int], object]:
        found.append(Part(program, pool, count))
        return runner(program, pool, slots, count, used)

    monkeypatch.setattr(launch, "_runner", spy)
    return found


def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(tiers, "_PATIENCE", seconds)


def new_kernel() -> tack.Kernel:
    """Adds the sum of the numbers below ``x[i]`` to ``out[i]``."""

    @tack.kernel
    def sums(x, out):
        for i in range(x.shape[0]):
            total = 0
            for k in range(x[i]):
                total += k
            out[i] += total

    return sums


def arrays(rounds: int, size: int = SIZE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two arguments, and what a launch adds to the second."""
    x = np.full(size, rounds, np.int64)
    return x, np.zeros(size, np.int64), x * (x - 1) // 2


def test_short_ones_run_the_first_form_to_the_end(parts: list[Part]) -> None:
    kernel, (x, out, expected) = new_kernel(), arrays(3)
    kernel(x, out)
    assert np.array_equal(out, expected)
    assert not any(part.optimized or part.shared for part in parts)
    counts = [part.count for part in parts]
    assert counts[0] == -(-SIZE // 256)
    assert all(after in (before, 2 * before) for before, after in itertools.pairwise(counts))
    assert sum(counts) >= SIZE > sum(counts[:-1])


def test_long_ones_go_on_with_the_optimized_form(parts: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    patience(monkeypatch, 1e-9)
    kernel, (x, out, expected) = new_kernel(), arrays(100)
    kernel(x, out)
    assert np.array_equal(out, expected)
    assert [part.optimized for part in parts] == [False, True]
    kernel(x, out)
    assert np.array_equal(out, 2 * expected)
    assert [part.count for part in parts] == [-(-SIZE // 256), SIZE, SIZE]


def test_a_kernel_has_patience_once(parts: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches that do not take long themselves add up."""
    patience(monkeypatch, 1e-3)
    kernel, (x, out, expected) = new_kernel(), arrays(100)
    launches = 0
    while not (parts and parts[-1].optimized) and launches < 1000:
        kernel(x, out)
        launches += 1
    assert 1 <= launches < 1000
    assert np.array_equal(out, launches * expected)


def test_few_iterations_wait_before_they_run(parts: list[Part]) -> None:
    """The first could take nearly as long as all."""

    @tack.kernel
    def sums(n, out):
        for i in range(out.shape[0]):
            total = 0
            for k in range(n):
                total += k
            out[i] = total

    for size, waits in ((tiers._MANY - 1, True), (tiers._MANY, False)):
        del parts[:]
        kernel = tack.kernel(sums.__wrapped__)
        out = np.zeros(size, np.int64)
        kernel(10**7, out)
        assert out.tolist() == [10**7 * (10**7 - 1) // 2] * size
        assert parts[0].optimized is waits


@pytest.mark.skipif(native.module is None, reason="the C extension is not installed")
def test_parts_on_several_threads(parts: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, (x, out, expected) = new_kernel(), arrays(3, 1 << 16)
    with tack.device("cpu", num_threads=3):
        kernel(x, out)
        assert np.array_equal(out, expected)
        assert all(part.shared and not part.optimized for part in parts)
        patience(monkeypatch, 1e-9)
        late = new_kernel()
        late(x, out)
    assert np.array_equal(out, 2 * expected)
    assert parts[-1].shared
    assert parts[-1].optimized


def test_python_s_threads_have_no_parts(parts: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACK_CPU_POOL", "python")
    kernel, (x, out, expected) = new_kernel(), arrays(3, 1 << 20)
    with tack.device("cpu", num_threads=3):
        kernel(x, out)
    assert np.array_equal(out, expected)
    assert [(part.shared, part.optimized) for part in parts] == [(True, True)]


@pytest.mark.parametrize("seconds", [10.0, 1e-9])
def test_workgroups_stay_whole(parts: list[Part], monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    @tack.kernel
    def group_sums(x, out, n):
        for i in range(out.shape[0]):
            own = 0
            for k in range(n):
                own += x[i] * k
            out[i] = tack.block_sum(own)

    patience(monkeypatch, seconds)
    x = np.arange(256 * 40, dtype=np.int64)
    out = np.zeros_like(x)
    group_sums(x, out, 5)
    assert np.array_equal(out, np.repeat(10 * x.reshape(-1, 256).sum(axis=1), 256))
    assert len(parts) > 1
    assert all(part.count % 256 == 0 for part in parts)


@pytest.mark.parametrize("seconds", [10.0, 1e-9])
def test_prints_and_results(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    @tack.kernel
    def first(x, n) -> int:
        for i in range(x.shape[0]):
            for k in range(n):
                x[i] += k
            print("row", i, x[i])
        return x[0] + x[99]

    patience(monkeypatch, seconds)
    x = np.arange(100, dtype=np.int64)
    with tack.device("cpu", num_threads=1):  # several would print in any order
        assert first(x, 4) == 6 + 105
    assert capsys.readouterr().out == "".join(f"row {i} {i + 6}\n" for i in range(100))


def test_code_that_cannot_be_optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has begun is finished, and the next launch raises."""

    def failing(module: object) -> bytes:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(jit, "compile_object", failing)
    patience(monkeypatch, 1e-9)
    kernel, (x, out, expected) = new_kernel(), arrays(100)
    kernel(x, out)
    with pytest.raises(RuntimeError, match="Kernel 'sums' failed on CPU: out of registers"):
        kernel(x, out)
    assert np.array_equal(out, expected)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it comes in a __del__ too
@pytest.mark.parametrize("seconds", [10.0, 2e-3])
def test_an_interrupt_waits_for_the_launch(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    patience(monkeypatch, seconds)
    monkeypatch.setattr(tiers, "_PART", 1e-5)  # many of them
    x, out, expected = arrays(10_000)
    interrupted = 0

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for turn in range(500):
            if turn >= 20 and interrupted:
                break
            kernel = new_kernel()
            kernel(x[:0], out[:0])  # so that it is compiled, though not optimized
            out[:] = 0
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 * (1 + turn % 10))
                try:
                    kernel(x, out)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                assert np.array_equal(out, expected) or not out.any()
                interrupted += bool(out.any())
            else:
                assert np.array_equal(out, expected)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted
