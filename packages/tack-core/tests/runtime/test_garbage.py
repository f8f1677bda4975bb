"""Garbage collection waits while a kernel compiles, and is then as it was."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import tack
from tack.errors import UnsupportedSyntaxError
from tack.runtime.garbage import uncollected


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_while_a_kernel_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    @tack.kernel
    def many(x):  # type: ignore[no-untyped-def]
        for i in range(x.shape[0]):
            x[i] = x[i] * 2.0 + x[i] * 3.0 + x[i] * 4.0 + x[i] * 5.0 + x[i] * 6.0

    from tack.runtime import prepare

    states: list[bool] = []
    original = prepare.prepare
    monkeypatch.setattr(prepare, "prepare", lambda *args: (states.append(gc.isenabled()), original(*args))[1])
    x = np.ones(4, np.float32)
    many(x)
    assert states == [False]
    assert gc.isenabled()
    assert (x == 20).all()


def test_a_failed_compile_turns_it_on_again() -> None:
    @tack.kernel
    def bad(x):  # type: ignore[no-untyped-def]
        for i in range(x.shape[0]):
            x[i] = {}

    with pytest.raises(UnsupportedSyntaxError):
        bad(np.ones(4, np.float32))
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()


@contextmanager
def another_thread_inside() -> Iterator[None]:
    """Meanwhile another thread is in such a block."""
    inside, go = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected():
            inside.set()
            go.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    try:
        yield
    finally:
        go.set()
        thread.join()


def test_the_last_of_several_blocks_turns_it_on() -> None:
    with ExitStack() as others:
        with uncollected():
            with uncollected():
                others.enter_context(another_thread_inside())
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_collects_though_a_thread_of_its_parent_compiles() -> None:
    with another_thread_inside():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()


def test_an_interrupt_leaves_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("tack.runtime.garbage.gc.disable", interrupted)
    with pytest.raises(KeyboardInterrupt), uncollected():
        pass
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
