"""Errors: of launches that are in flight, of such as are refused, and what is left after them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tack

from .kernels import affine, count, last


def test_a_failure_surfaces_at_the_next_wait(backend: Any, emulated: Any, dispatch: str) -> None:
    x, y = tack.zeros(10, tack.i32), tack.zeros(10, tack.i32)
    for _ in range(3):
        affine(x, y, 1, 1)
    last(x)
    waits = (tack.sync, x.numpy, lambda: x[0], lambda: asyncio.run(tack.wait()), lambda: last(x))
    for number, wait in enumerate(waits):
        with emulated.held():
            emulated.fail_run()
            affine(x, x, 1, 1)  # which says nothing yet
            timer = threading.Timer(0.02, emulated.release)
            timer.start()
            with pytest.raises(RuntimeError, match=f"failed on {backend.label}: ") as caught:
                wait()
            timer.join()
        text = str(caught.value)
        assert "'affine'" in text
        if number < 2:
            assert text.startswith(f"Kernel 'affine' failed on {backend.label}: ")
        if backend.has_failed:
            for again in (tack.sync, x.numpy, lambda: affine(x, y, 1, 1), lambda: tack.zeros(3)):
                with pytest.raises(RuntimeError, match=r"'affine'.* cannot be used in this process any more"):
                    again()
        emulated.heal()
        tack.sync()
    x.fill(1)
    affine(x, y, 1, 1)
    assert y.numpy().tolist() == [2] * 10


def test_a_failure_names_the_kernels_that_it_may_be_of(backend: Any, emulated: Any) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)
    count(x, 10)
    last(x)  # which waits
    with emulated.held():
        affine(x, x, 1, 1)
        count(x, 10)
        emulated.fail_run()
        affine(x, x, 1, 1)
    with pytest.raises(RuntimeError, match=rf"failed on {backend.label}: ") as caught:
        tack.sync()
    text = str(caught.value)
    assert "'affine'" in text
    assert "'last'" not in text
    assert "debug mode" in text or "'count'" not in text


def test_sync_waits_for_the_others_when_one_has_failed(backend: Any, emulated: Any) -> None:
    x = tack.zeros(10, tack.i32)
    affine(x, x, 1, 1)
    tack.sync()
    emulated.fail_run()
    affine(x, x, 1, 1)
    with pytest.raises(RuntimeError, match="'affine'"):
        tack.sync()
    y = tack.full(10, 4, tack.i32, device="cpu")
    affine(y, y, 1, 1)
    assert y.numpy().tolist() == [5] * 10
    with pytest.raises(RuntimeError, match="'affine'") if backend.has_failed else _nothing():
        tack.sync()


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_a_launch_that_the_driver_refuses(backend: Any, emulated: Any, dispatch: str) -> None:
    x = tack.zeros(10, tack.i32)
    for _ in range(3):
        affine(x, x, 1, 1)
    emulated.fail_launch()
    with pytest.raises(RuntimeError, match=f"Kernel 'affine' failed on {backend.label}: "):
        affine(x, x, 1, 1)
    affine(x, x, 1, 1)
    assert x.numpy().tolist() == [4] * 10


def test_a_kernel_that_does_not_compile(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is refused, changes nothing, and the next one works."""

    @tack.kernel
    def wrong(x: Any) -> None:
        for i in range(x.shape[0]):
            x[i] = x[i] + nonexistent

    x = tack.ones(10, tack.i32)
    for _ in range(2):
        with pytest.raises(NameError, match=r"nonexistent"):
            wrong(x)
    assert x.numpy().tolist() == [1] * 10


def test_bad_calls_run_nothing(backend: Any) -> None:
    x = tack.ones(10, tack.i32)
    for bad, kind in (
        (lambda: affine(x, x, 1), TypeError),
        (lambda: affine(x, x, "a", 1), TypeError),
        (lambda: affine(x, x, 2**65, 1), TypeError),
        (lambda: affine(x, 3, 1, 1), TypeError),
    ):
        with pytest.raises(kind, match="affine"):
            bad()
    assert x.numpy().tolist() == [1] * 10
