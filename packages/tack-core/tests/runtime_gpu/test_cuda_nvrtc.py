"""NVRTC itself, which needs no GPU, and what of its makes the driver refuses."""

from __future__ import annotations

from typing import Any

import pytest
from emulated.driver import Driver

import tack
from tack.runtime.cuda import nvrtc


@tack.kernel
def scale(x: Any, a: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] * a


SOURCE = """
extern "C" __global__ void scale(float *x, long long n)
{
    long long i = blockIdx.x * 128ll + threadIdx.x;
    if (i < n)
        x[i] *= 3;
}
"""


@pytest.fixture(scope="module")
def real_nvrtc(request: pytest.FixtureRequest) -> Any:
    """NVRTC as it is without the emulation."""
    import importlib.util

    spec = importlib.util.find_spec("tack.runtime.cuda.nvrtc")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    try:
        found.find()
    except RuntimeError as error:
        pytest.skip(str(error))
    return found


@pytest.mark.parametrize("arch", [75, 80, 89, 90, 100, 120])
def test_nvrtc_makes_machine_code(real_nvrtc: Any, arch: int) -> None:
    image = real_nvrtc.compile_cubin(SOURCE, "scale.cu", arch)
    assert image.startswith(b"\x7fELF")
    assert b"scale" in image
    assert ".version" in real_nvrtc.compile_ptx(SOURCE, "scale.cu", arch).decode()


def test_the_version_is_the_librarys(real_nvrtc: Any) -> None:
    import ctypes

    major, minor = ctypes.c_int(), ctypes.c_int()
    real_nvrtc._load().check("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    assert f"{major.value}.{minor.value}." in real_nvrtc.find().version


def test_architectures(real_nvrtc: Any) -> None:
    assert real_nvrtc.architecture(90) == "sm_90"
    assert real_nvrtc.architecture(81) == "sm_80"  # runs as it is there
    assert real_nvrtc.architecture(990).startswith("compute_")  # the driver has to make the rest
    with pytest.raises(RuntimeError, match=r"compiles for compute capability 7\.5 and newer, .* has 5\.0"):
        real_nvrtc.architecture(50)


def test_errors_of_the_compiler(real_nvrtc: Any) -> None:
    with pytest.raises(RuntimeError, match="NVRTC refuses the generated code") as caught:
        real_nvrtc.compile_cubin('extern "C" __global__ void k() { int unused; nothing(); }', "k.cu", 90)
    text = str(caught.value)
    assert 'k.cu(1): error: identifier "nothing" is undefined' in text
    assert "unused" not in text


def test_ptx_that_the_driver_refuses(emulated: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda *_: b".version 99.0")
    with pytest.raises(
        RuntimeError, match="does not know the device's architecture, and the driver refuses its PTX"
    ):
        tack.kernel(scale.__wrapped__)(tack.ones(3), 1.0)
