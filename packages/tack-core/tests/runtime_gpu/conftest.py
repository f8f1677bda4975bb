"""The device under test. Without a target of CUDA or HIP nothing here is collected: the emulated driver takes
the place of the vendor's in the whole process, which other tests would see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from steered import (  # noqa: F401
    backend,
    busy,
    default_target,
    dispatch,
    emulated,
    later,
    settled_heap,
    steering,
)


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


@pytest.fixture
def is_emulated(request: pytest.FixtureRequest) -> bool:
    return str(request.config.getoption("--target")).endswith("-emu")
