"""The device under test. Without a target of CUDA or HIP nothing here is collected: the emulated driver takes
the place of the vendor's in the whole process, which other tests would see.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from emulated.driver import Driver, install

import tack
from tack.runtime import native


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    api = config.getoption("--target").removesuffix("-emu")
    if api not in _ERRORS:
        return True
    others = [f"test_{name}" for name in _ERRORS if name != api]
    return True if any(collection_path.name.startswith(name) for name in others) else None


# How each API writes its errors.
_ERRORS = {
    "cuda": {1: "CUDA_ERROR_INVALID_VALUE", 100: "CUDA_ERROR_NO_DEVICE", 700: "CUDA_ERROR_ILLEGAL_ADDRESS"},
    "hip": {1: "hipErrorInvalidValue", 100: "hipErrorNoDevice", 700: "hipErrorIllegalAddress"},
}


class Api(NamedTuple):
    """What the tests have to know of the API under test.

    ``driver`` is Tack's, and ``compiler`` the module and the name of the function that compiles.
    """

    name: str
    label: str
    driver: Any
    compiler: tuple[Any, str]
    errors: dict[int, str]

    def function(self, name: str) -> str:
        """The whole name of a function."""
        whole: str = self.driver.renamed.get(name, self.driver.prefix + name)
        return whole

    def current(self) -> int:
        """The context, or the number of the device, that is current in this thread."""
        ask = self.driver.CtxGetCurrent if self.name == "cuda" else self.driver.GetDevice
        return int(self.driver.check(ask()))


@pytest.fixture
def api(target: str) -> Api:
    if target == "cuda":
        from tack.runtime.cuda import nvrtc
        from tack.runtime.cuda.driver import DRIVER as CUDA

        return Api(target, "CUDA", CUDA, (nvrtc, "compile_cubin"), _ERRORS[target])
    from tack.runtime.hip import hiprtc
    from tack.runtime.hip.driver import DRIVER as HIP

    return Api(target, "HIP", HIP, (hiprtc, "compile_code"), _ERRORS[target])


@pytest.fixture(autouse=True)
def on_target(target: str) -> Iterator[None]:
    tack.set_default_device(target)
    yield
    tack.set_default_device(None)
    gc.collect()


@pytest.fixture
def is_emulated(request: pytest.FixtureRequest) -> bool:
    return str(request.config.getoption("--target")).endswith("-emu")


@pytest.fixture
def emulated(is_emulated: bool, target: str) -> Iterator[Driver]:
    """The emulated driver, for tests that steer it."""
    if not is_emulated:
        pytest.skip("it steers the emulated driver")
    driver = install(target)
    yield driver
    driver.release()
    driver.pace()
    driver.heal()
    driver.limit(16 << 30)
    driver.pools(True)


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


Busy = Callable[[], contextlib.AbstractContextManager[None]]


@pytest.fixture
def busy(is_emulated: bool, target: str) -> Busy:
    """``with busy():`` keeps the device from what is queued inside for a while, or until the end."""

    @contextlib.contextmanager
    def on_device() -> Iterator[None]:
        word = tack.ones(1, tack.u32)
        spin(word, 1)
        tack.sync()
        spin(word, 30_000_000)
        yield

    if is_emulated:
        return install(target).held
    return on_device


@pytest.fixture
def later(is_emulated: bool, target: str) -> Iterator[Callable[[], None]]:
    """Ends `busy` after a while, so that the host can wait inside."""
    threads = []

    def release() -> None:
        time.sleep(0.03)
        install(target).release()

    def start() -> None:
        if is_emulated:
            threads.append(threading.Thread(target=release))
            threads[-1].start()

    yield start
    for thread in threads:
        thread.join()
