"""Starting: what is missing is said, options are checked, and contexts are adopted."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from emulated.driver import Driver

import tack
from tack.runtime.cuda.driver import DRIVER

TESTS = Path(__file__).parent.parent


def in_a_process(code: str) -> str:
    """What a program prints that has the emulated driver installed as ``emulated``."""
    start = f"import sys; sys.path.insert(0, {str(TESTS)!r})\nfrom emulated.driver import install\n"
    program = start + "emulated = install()\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


FAILS = """
import tack
try:
    tack.device("cuda")
except RuntimeError as error:
    print(error)
    print(type(error.__cause__).__name__, "|", error.__cause__.__cause__)
print(tack.default_device(), [s.reason for s in tack.devices() if s.spec == "cuda"])
"""


def test_no_bindings(emulated: Driver) -> None:
    text = in_a_process("sys.modules['cuda.bindings'] = None" + FAILS)
    assert text.startswith("device 'cuda' cannot start on Linux")
    assert "the package cuda-bindings is not installed or does not load" in text
    assert 'help: pip install "tack-core[cuda]"' in text
    assert "RuntimeError | import of cuda.bindings halted" in text
    assert "cpu ['the package cuda-bindings is not installed or does not load']" in text


def test_no_device(emulated: Driver) -> None:
    text = in_a_process("emulated.devices(0)" + FAILS)
    assert "the NVIDIA driver finds no CUDA device\n  help: " in text
    assert "CUDA_ERROR_NO_DEVICE" in text


def test_a_driver_that_does_not_start(emulated: Driver) -> None:
    text = in_a_process("emulated.fail('cuInit', 3)" + FAILS)
    assert "the NVIDIA driver does not start: CUDA_ERROR" in text


def test_no_nvrtc(emulated: Driver) -> None:
    code = """
        from tack.runtime.cuda import nvrtc
        def find():
            raise RuntimeError("NVRTC, which compiles the kernels, is not installed (nvidia-cuda-nvrtc)")
        nvrtc.find = find
    """
    assert "NVRTC, which compiles the kernels, is not installed" in in_a_process(
        code.replace("        ", "") + FAILS
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


def test_ordinals(emulated: Driver) -> None:
    with pytest.raises(ValueError, match="there is no device 'cuda:7'; there are: 'cuda', 'cuda:1'"):
        tack.device("cuda:7")
    assert [s.spec for s in tack.devices() if s.spec.startswith("cuda")] == ["cuda", "cuda:1"]


def test_what_the_device_says_of_itself() -> None:
    device = tack.device("cuda")
    assert (device.name, device.index, device.label, str(device)) == ("cuda", 0, "CUDA", "cuda")
    assert device.supported_dtypes == tack.device("cpu").supported_dtypes
    assert device.supported_atomic_dtypes == (tack.i32, tack.u32, tack.i64, tack.u64, tack.f32, tack.f64)
    assert device.supports_f64
    assert device.supports_workgroups
    assert device.supports_device_reductions
    assert device.memory_spaces == ("cuda", "managed", "pinned")
    with pytest.raises(ValueError, match="device 'cuda' has no option 'threads'; it accepts: stream"):
        tack.device("cuda", threads=1)


def test_info(emulated: Driver) -> None:
    code = """
        from tack.info import collect, render
        text = render(collect())
        print(text)
        assert max(map(len, text.splitlines())) <= 120
    """
    text = in_a_process(code)
    assert "Device cuda\n" in text
    assert "Device cuda:1\n" in text
    assert "Emulated GPU 0" in text
    assert "9.0" in text
    assert "13.0" in text


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
    assert in_a_process(code).split("\n") == ["True False", "True", "10.0", "True", ""]


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
    assert in_a_process(code).split("\n") == ["True", "10.0 0", ""]


def test_programs_may_end_with_work_queued(emulated: Driver) -> None:
    code = """
        import tack
        tack.set_default_device("cuda")
        emulated.pace(delay=3000)
        x = tack.zeros(1000)
        for k in range(20):
            x.fill(k)
        y = x.copy()
        class Late:
            def __del__(self):
                del self.array
        late = Late()
        late.array = y
        print("end")
    """
    assert in_a_process(code) == "end\n"


def test_a_forked_child_is_told(emulated: Driver) -> None:
    code = """
        import os
        import tack
        x = tack.zeros(10, device="cuda")
        child = os.fork()
        if not child:
            for use in (x.numpy, lambda: x.fill(1), lambda: tack.zeros(1, device="cuda")):
                try:
                    use()
                except RuntimeError as error:
                    assert "when this process was forked" in str(error) and "spawn" in str(error)
                else:
                    os._exit(3)
            assert tack.ones(3, device="cpu").sum() == 3
            del x
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.numpy().sum())
    """
    assert in_a_process(code) == "0 0.0\n"


def test_the_driver_says_what_it_is_called_with(emulated: Driver) -> None:
    """The emulated driver keeps the rules that tests rely on."""
    cu = DRIVER.module
    backend: Any = tack.device("cuda")._backend
    other: Any = tack.device("cuda:1")._backend

    def code(result: Any) -> int:
        return int(result[0])

    with backend.queue.entered():
        address = DRIVER.check(cu.cuMemAlloc(1000))
        assert code(cu.cuMemcpyDtoDAsync(address, int(address) + 4000, 8, backend.queue.stream)) == 1
        assert code(cu.cuMemsetD8Async(address, 0, 100, other.queue.stream)) == 400
        DRIVER.check(cu.cuMemFree(address))
        assert code(cu.cuMemFree(address)) == 1
        assert code(cu.cuMemsetD8Async(address, 0, 100, backend.queue.stream)) == 1
        stream = DRIVER.check(cu.cuStreamCreate(0))
        DRIVER.check(cu.cuStreamDestroy(stream))
        assert code(cu.cuStreamSynchronize(stream)) == 400
