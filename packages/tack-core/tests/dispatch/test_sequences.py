"""Generated sequences of calls go through both dispatchers, and nobody can tell which one ran."""

from __future__ import annotations

import contextlib
import math
import struct
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tack
from tack.runtime import debug, native
from tack.runtime.cpu.program import build
from tack.runtime.dispatch import default_backend
from tack.runtime.variants import resolve_variant

from .calls import BYTES, KERNELS, Calls, Part, Whole

STEPS = 250


@pytest.fixture(autouse=True)
def restored(natively: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    assert native.module is not None
    monkeypatch.setattr(debug, "_enabled", None)
    kept = Part.SCALE, Whole.OFFSET
    yield
    Part.SCALE, Whole.OFFSET = kept
    if "SCALE" in vars(Whole):
        del Whole.SCALE
    native.module.set_debug(-1)


def outcome(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], memory: np.ndarray) -> tuple[Any, ...]:
    """The type and bits of the result, or the exception's type and text; and what is in memory then."""
    try:
        result = call(*args, **kwargs)
    except Exception as error:
        return type(error), str(error), memory.tobytes()
    bits = struct.pack("d", result) if isinstance(result, float) else result
    return type(result), "nan" if isinstance(result, float) and math.isnan(result) else bits, memory.tobytes()


def resolved(kernel: tack.Kernel, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The variant that native dispatch would run, and the one that Python's would."""
    assert native.module is not None
    found = native.module.resolve(kernel, args)
    if found is None:
        return None, None
    return found, resolve_variant(default_backend(), kernel, kernel.bind(args, {}), build)[0]


@pytest.mark.parametrize("seed", range(6))
def test_both_dispatchers_do_the_same(seed: int) -> None:
    calls = Calls(seed)
    seen: Counter[str] = Counter()
    for step in range(STEPS):
        undo = calls.change()
        kernel, args, kwargs = calls.call()
        before = calls.memory.tobytes()
        for _ in range(2):  # the first may teach the second
            outcomes = []
            for call in (kernel, kernel._call):
                calls.memory[:] = np.frombuffer(before, np.uint8)
                outcomes.append(outcome(call, args, kwargs, calls.memory))
            assert outcomes[0] == outcomes[1], (step, kernel, args, kwargs)
        if not kwargs:
            ours, theirs = resolved(kernel, args)
            assert ours is theirs, (step, kernel, args)
            seen["resolved"] += ours is not None
        raised = isinstance(outcomes[0][0], type) and issubclass(outcomes[0][0], Exception)
        seen["raised" if raised else "ran"] += 1
        if undo is not None:
            undo()
        if step % 100 == 0:
            calls.refill()
    # What the sequences are for: calls of all sorts, many of them dispatched natively.
    assert seen["raised"] > STEPS // 10
    assert seen["ran"] > STEPS // 4
    assert seen["resolved"] > STEPS // 5
    assert len(calls.memory) == BYTES


def test_the_sequences_reach_native_dispatch_with_every_kernel() -> None:
    ran: Counter[tack.Kernel] = Counter()
    calls = Calls(100)
    for _ in range(600):
        kernel, args, kwargs = calls.call()
        with contextlib.suppress(Exception):
            for _ in range(2):
                kernel(*args, **kwargs)
            ran[kernel] += 1
    for kernel, _ in KERNELS:
        table = default_backend().cache[kernel].table
        assert table is not None, kernel
        # Nearly all calls that succeed: the rest hold something that is left to Python.
        assert table.counts()["hits"] > ran[kernel] * 0.7, kernel
