"""Starting and ending: what is refused and how it is said, forks, and processes that end with work queued."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from steered import InAProcess, import_path

import tack
from tack.runtime import dispatch as devices


def test_the_same_device_each_time(target: str) -> None:
    device = tack.device(target)
    assert tack.device(target) is device is tack.device(f"{target}:0")
    assert pickle.loads(pickle.dumps(device)) is device
    assert [status.device for status in tack.devices() if status.spec == target] == [device]


def test_a_device_that_is_not_there(target: str) -> None:
    before = tack.default_device()
    for choose in (tack.device, tack.set_default_device):
        with pytest.raises(ValueError, match=f"'{target}:77'"):
            choose(f"{target}:77")
    assert tack.default_device() == before


def test_options_are_checked(backend: Any, target: str) -> None:
    known = ", ".join(backend.device_options) or "none"
    with pytest.raises(ValueError, match=f"device '{target}' has no option 'nonsense'; it accepts: {known}"):
        tack.device(target, nonsense=1)
    for option in backend.device_options:
        with pytest.raises((TypeError, ValueError), match=option.split("_")[-1]):
            tack.device(target, **{option: object()})


def test_a_backend_that_cannot_start(backend: Any, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raises is told with the device type, the platform, the cause and what to install."""

    class Broken(type(backend)):  # type: ignore[misc]
        def __init__(self, ordinal: int = 0, **options: Any) -> None:
            raise OSError("the driver is not loaded")

    real = devices.backend_type
    monkeypatch.setattr(devices, "backend_type", lambda name: Broken if name == target else real(name))
    monkeypatch.setattr(devices, "_devices", {})
    before = tack.default_device()
    for choose in (tack.device, tack.set_default_device):
        with pytest.raises(RuntimeError) as caught:
            choose(target)
        text = str(caught.value)
        assert text.startswith(f"device '{target}' cannot start on ")
        assert f"Python {sys.version_info.major}." in text
        assert ": the driver is not loaded\n  help: " in text
        assert isinstance(caught.value.__cause__, OSError)
    assert tack.default_device() == before
    (status,) = (status for status in tack.devices() if status.spec == target)
    assert (status.device, status.reason) == (None, "the driver is not loaded")


NO_EMULATION = """
import sys
import tack
try:
    print(tack.device(sys.argv[1]).label)
except RuntimeError as error:
    assert error.__cause__ is not None
    print(error)
"""


def test_what_is_missing_is_said(backend: Any, target: str) -> None:
    """Without an emulation the device starts, or the message has what a user needs."""
    if type(backend).__module__.startswith("tack."):
        done = subprocess.run(
            [sys.executable, "-c", NO_EMULATION, target],
            env={**os.environ, "PYTHONPATH": import_path()},
            capture_output=True,
            text=True,
            check=True,
        )
        first, *rest = done.stdout.splitlines()
        if rest:
            assert first.startswith(f"device '{target}' cannot start on ")
            assert rest[-1].startswith("  help: ")
        else:
            assert first == backend.display_name


def test_an_optioned_device_goes_with_its_arrays(backend: Any, target: str) -> None:
    alive = len(devices.backends())
    x = tack.ones(10, tack.i32)
    del x
    gc.collect()
    assert len(devices.backends()) <= alive
    assert tack.device(target)._backend is backend


def test_programs_may_end_with_work_queued(in_a_process: InAProcess) -> None:
    code = """
        import tack
        tack.set_default_device(target)
        @tack.kernel
        def add(x, k):
            for i in range(x.shape[0]):
                x[i] = x[i] + k
        x = tack.zeros(1000, tack.i32)
        for k in range(20):
            add(x, k)
        y = x.copy()
        class Late:
            def __del__(self):
                del self.array
        late = Late()
        late.array = y
        print("end")
    """
    assert in_a_process(code) == "end\n"


def test_what_goes_last_says_nothing(in_a_process: InAProcess) -> None:
    """Tack's modules, which something holds, are emptied in turn: the globals of most are None by then."""
    code = """
        import sys
        import tack
        tack.set_default_device(target)
        @tack.kernel
        def add(x, k):
            for i in range(x.shape[0]):
                x[i] = x[i] + k
        @tack.kernel
        def middle(tex, out):
            for i in range(out.shape[0]):
                out[i] = tex.sample(0.5, 0.5, 0.5)
        small, large = tack.zeros(10), tack.zeros(1 << 19)
        texture = tack.Texture3D(tack.zeros((2, 3, 4)))
        kept = [small, large, large[5:], texture, add, middle, tack.default_device()._backend]
        if kept[-1].provides("graph"):
            with tack.capture() as graph:
                add(large, 1)
            graph.launch()
            kept.append(graph)
        kept.append(kept)  # for the collector
        add(large, 1)
        middle(texture, small)
        sys.kept, tack.kept = tack, [kept, tack.ones(1 << 19), tack.Texture3D(tack.ones((2, 3, 4)))]
        print("end")
    """
    assert in_a_process(code) == "end\n"


def test_a_forked_child_works_or_is_told(in_a_process: InAProcess) -> None:
    code = """
        import os, signal
        import tack
        x = tack.ones(10, tack.i32, device=target)
        x.numpy()
        child = os.fork()
        if not child:
            signal.alarm(20)
            for use in (x.sum, lambda: tack.full(5, 2, tack.i32, device=target).sum()):
                try:
                    assert use() == 10
                except RuntimeError as error:
                    assert "forked" in str(error), error
            assert tack.ones(3, tack.i32, device="cpu").sum() == 3
            del x
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.sum())
    """
    assert in_a_process(code) == "0 10\n"
