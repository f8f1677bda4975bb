"""Fixtures of the suites that watch a device at work. They keep it busy, and steer its emulation."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import on_target
import pytest
from on_target import Steering

import tack
from tack.runtime import native

__all__ = [
    "Busy",
    "InAProcess",
    "backend",
    "busy",
    "default_target",
    "dispatch",
    "emulated",
    "import_path",
    "in_a_process",
    "later",
    "settled_heap",
    "steering",
]

Busy = Callable[[], contextlib.AbstractContextManager[None]]
InAProcess = Callable[..., str]
TESTS = Path(__file__).parent


def import_path() -> str:
    """``PYTHONPATH`` for processes, from which they import Tack if it is not installed."""
    source = str(Path(tack.__file__).parents[1])
    return os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH")) if p)


@pytest.fixture(scope="session")
def settled_heap() -> None:
    """Collections look at what tests make, and not at all that was imported for them."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def steering(target_name: str) -> Steering | None:
    """What steers the target's emulation; None for a real device."""
    return on_target.emulate(target_name)


@pytest.fixture(autouse=True)
def default_target(target: str, steering: Steering | None, settled_heap: None) -> Iterator[None]:
    """The target is the default device, and no rule of its API is broken."""
    tack.set_default_device(target)
    yield
    tack.set_default_device(None)
    gc.collect()
    if steering is not None:
        assert steering.violations() == []


@pytest.fixture
def emulated(steering: Steering | None) -> Iterator[Any]:
    """The same for tests that need one."""
    if steering is None:
        pytest.skip("nothing steers a real device")
    yield steering
    steering.reset()


@pytest.fixture
def backend() -> Any:
    return tack.default_device()._backend


@pytest.fixture(params=["native", "python"])
def dispatch(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways to a launch."""
    if request.param == "python":
        native.pause()
    yield request.param
    if request.param == "python":
        native.resume()


@tack.kernel
def spin(x: Any, rounds: Any) -> None:
    for _ in range(1):
        value = x[0]
        for _round in range(rounds):
            value = value * 3 + 1
        x[0] = value


@pytest.fixture
def busy(steering: Steering | None, backend: Any) -> Busy:
    """``with busy():`` keeps the device from what is queued inside for a while, or until the end.

    Where launches are done when they return there is nothing to be kept from.
    """

    @contextlib.contextmanager
    def on_device() -> Iterator[None]:
        word = tack.ones(1, tack.u32)
        spin(word, 1)
        tack.sync()
        spin(word, 30_000_000)
        yield

    if not backend.queues_launches:
        return contextlib.nullcontext
    return on_device if steering is None else steering.held


@pytest.fixture
def later(steering: Steering | None) -> Iterator[Callable[[], None]]:
    """Ends `busy` after a while, so that the host can wait inside."""
    threads = []

    def release() -> None:
        assert steering is not None
        time.sleep(0.03)
        steering.release()

    def start() -> None:
        if steering is not None:
            threads.append(threading.Thread(target=release))
            threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


@pytest.fixture
def in_a_process(tmp_path: Path, target_name: str, target: str) -> InAProcess:
    """Runs a program that has the device's name as ``target`` and its emulation, and gives what it prints."""

    def run(code: str, **environment: str) -> str:
        start = f"import logging, sys\nsys.path.insert(0, {str(TESTS)!r})\nfrom on_target import emulate\n"
        start += "logging.getLogger('tack').addHandler(logging.NullHandler())  # a slow compile is no error\n"
        start += f"target = {target!r}\nemulated = emulate({target_name!r})\n"
        program = tmp_path / "program.py"  # kernels need a file that their source is in
        program.write_text(start + textwrap.dedent(code))
        done = subprocess.run(
            # Python 3.12 warns of forks where there are threads, of which drivers have some.
            [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(program)],
            env={**os.environ, "PYTHONPATH": import_path(), **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run
