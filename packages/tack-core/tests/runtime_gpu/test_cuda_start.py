"""Starting CUDA: NVRTC, the driver, and contexts that are adopted."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from emulated.driver import Driver

from .test_gpu_start import FAILS, in_a_process


def test_no_nvrtc(emulated: Driver) -> None:
    code = """
        from tack.runtime.cuda import nvrtc
        def find():
            raise RuntimeError("NVRTC, which compiles the kernels, is not installed (nvidia-cuda-nvrtc)")
        nvrtc.find = find
    """
    assert "NVRTC, which compiles the kernels, is not installed" in in_a_process(
        "cuda", code.replace("        ", "") + FAILS
    )


def test_no_driver() -> None:
    code = """
        import ctypes
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            import tack
            try:
                tack.device("cuda")
            except RuntimeError as error:
                assert "there is no NVIDIA driver, or one that is too old" in str(error), error
                assert "tack-core[cuda]" in str(error)
                assert error.__cause__.__cause__ is not None
            else:
                raise AssertionError
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_a_current_context_is_adopted(emulated: Driver) -> None:
    code = """
        import tack
        from cuda.bindings import driver as cu
        cu.cuInit(0)
        error, device = cu.cuDeviceGet(0)
        error, context = cu.cuCtxCreate(None, 0, device)
        assert not error, error
        found = tack.device("cuda")._backend.queue.context
        print(found.address == int(context), found.retained)
        print(tack.device("cuda:1")._backend.queue.context.retained)
        print(tack.ones(10, device="cuda").sum())
        error, current = cu.cuCtxGetCurrent()
        print(int(current) == int(context))
    """
    assert in_a_process("cuda", code).split("\n") == ["True False", "True", "10.0", "True", ""]


def test_a_foreign_streams_context_is_adopted(emulated: Driver) -> None:
    code = """
        import tack
        from cuda.bindings import driver as cu
        cu.cuInit(0)
        error, device = cu.cuDeviceGet(0)
        error, context = cu.cuCtxCreate(None, 0, device)
        error, stream = cu.cuStreamCreate(0)
        cu.cuCtxPopCurrent()
        found = tack.device("cuda", stream=stream)
        print(found._backend.queue.context.address == int(context))
        print(tack.ones(10, device=found).sum(), int(cu.cuCtxGetCurrent()[1]))
    """
    assert in_a_process("cuda", code).split("\n") == ["True", "10.0 0", ""]
