"""The device under test. Without ``--target level_zero`` or ``opencl-pocl`` nothing here is collected: the
emulated loader takes the place of the real one in the whole process, which other tests would see.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated.level_zero import Loader, install

import tack


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--target") not in ("level_zero", "opencl-pocl") else None


@pytest.fixture
def is_emulated(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--target") == "opencl-pocl")


@pytest.fixture(autouse=True)
def on_target(target: str, is_emulated: bool) -> Iterator[None]:
    tack.set_default_device(target)
    yield
    tack.set_default_device(None)
    gc.collect()
    if is_emulated:
        assert install().violations() == [], "rules of the API"


@pytest.fixture
def emulated(is_emulated: bool) -> Iterator[Loader]:
    """The emulated loader, for tests that steer it."""
    if not is_emulated:
        pytest.skip("it steers the emulated loader")
    loader = install()
    yield loader
    loader.release()
    loader.pace()
    loader.heal()
    loader.limit()
    loader.features()
    loader.revision(1)


@pytest.fixture
def backend() -> Any:
    return tack.default_device()._backend


@tack.kernel
def spin(x: Any, rounds: Any) -> None:
    for _ in range(1):
        value = x[0]
        for _round in range(rounds):
            value = value * 3 + 1
        x[0] = value


Busy = Callable[[], contextlib.AbstractContextManager[None]]


@pytest.fixture
def busy(is_emulated: bool) -> Busy:
    """``with busy():`` keeps the device from what is queued inside for a while, or until the end."""

    @contextlib.contextmanager
    def on_device() -> Iterator[None]:
        word = tack.ones(1, tack.u32)
        spin(word, 1)
        tack.sync()
        spin(word, 30_000_000)
        yield

    return install().held if is_emulated else on_device


@pytest.fixture
def later(is_emulated: bool) -> Iterator[Callable[[], None]]:
    """Ends `busy` after a while, so that the host can wait inside."""
    threads = []

    def release() -> None:
        time.sleep(0.03)
        install().release()

    def start() -> None:
        if is_emulated:
            threads.append(threading.Thread(target=release))
            threads[-1].start()

    yield start
    for thread in threads:
        thread.join()
