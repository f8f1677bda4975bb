"""Devices: specs, the registry, defaults, where a launch runs."""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tack import (
    Array,
    Device,
    DType,
    asarray,
    copyto,
    default_device,
    device,
    devices,
    empty,
    f32,
    f64,
    full,
    i32,
    linspace,
    set_default_device,
    sync,
    zeros,
)
from tack.dtypes import ALL_DTYPES
from tack.runtime import dispatch
from tack.runtime.backend import Backend, Buffer
from tack.runtime.dispatch import launch_backend


class RemoteBuffer(Buffer):
    """Memory that the host cannot address, at made-up addresses."""

    __slots__ = ("data",)

    def __init__(self, nbytes: int) -> None:
        super().__init__(1 << 40, nbytes, owned=True)
        self.data = bytearray(nbytes)

    def read(self, offset: int, out: np.ndarray) -> None:
        out[...] = np.frombuffer(self.data, out.dtype, out.size, offset).reshape(out.shape)

    def write(self, offset: int, source: np.ndarray) -> None:
        self.data[offset : offset + source.nbytes] = source.tobytes()


class RemoteBackend(Backend):
    """A device with memory of its own and only what the contract requires."""

    name = "cuda"
    display_name = "Remote"
    supported_dtypes = tuple(dtype for dtype in ALL_DTYPES if dtype is not f64)
    device_memory_spaces = ("remote",)
    device_options = ("stream", "fail")

    def __init__(self, ordinal: int = 0, *, stream: object = None, fail: object = None) -> None:
        if fail is not None:
            raise OSError("the driver is not loaded")
        super().__init__(ordinal, **({} if stream is None else {"stream": stream}))
        self.waits = 0

    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        return RemoteBuffer(dtype.itemsize * int(np.prod(shape)))

    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        return RemoteBuffer(dtype.itemsize * int(np.prod(shape)))

    def execute(self, kernel: Any, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def memory_space(self, ptr: int) -> str:
        return "remote" if ptr >= 1 << 40 else "cpu"

    def synchronize(self) -> None:
        self.waits += 1
        if self.options.get("stream") == "broken":
            raise RuntimeError("a launch failed")


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts with no device made, and leaves none of its own."""
    monkeypatch.setattr(dispatch, "_devices", {})
    monkeypatch.setattr(dispatch, "_default", None)
    monkeypatch.setattr(dispatch, "_initial", None)
    monkeypatch.delenv("TACK_DEVICE", raising=False)
    return


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A second device type, under a name that Tack knows."""
    real = dispatch.backend_type
    monkeypatch.setattr(dispatch, "backend_type", lambda n: RemoteBackend if n == "cuda" else real(n))
    return device("cuda")


class TestSpecs:
    def test_the_same_device_each_time(self) -> None:
        assert device("cpu") is device("cpu")
        assert device("cpu:0") is device("cpu")
        assert device(device("cpu")) is device("cpu")

    def test_options_make_a_new_one(self) -> None:
        first, second = device("cpu", num_threads=2), device("cpu", num_threads=2)
        assert first != second
        assert first != device("cpu")
        assert first == device(first)
        assert len({first, second, device(first)}) == 2
        assert repr(first) == "tack.device('cpu', num_threads=2)"
        assert (str(first), repr(device("cpu"))) == ("cpu", "tack.device('cpu')")
        assert device(device("cpu"), num_threads=1) != device("cpu")

    @pytest.mark.parametrize("spec", ["gpu", "", "cpu:", "cpu:x", "CPU", "cuda:-1", "cuda:1:2", "cuda:99999"])
    def test_unknown(self, spec: str) -> None:
        with pytest.raises(ValueError, match="device types are cpu, cuda, hip, level_zero, metal"):
            device(spec)

    @pytest.mark.parametrize("spec", [None, 0, b"cpu", ["cpu"]])
    def test_not_a_spec(self, spec: Any) -> None:
        with pytest.raises(TypeError, match="a device is a string"):
            device(spec)

    def test_there_is_one_cpu(self) -> None:
        with pytest.raises(ValueError, match="'cpu:1' does not exist"):
            device("cpu:1")

    @pytest.mark.parametrize("count", [0, -1, 10**6])
    def test_bad_thread_count(self, count: int) -> None:
        with pytest.raises(ValueError, match=f"num_threads must be between 1 and 1024, not {count}"):
            device("cpu", num_threads=count)

    @pytest.mark.parametrize("count", [1.0, "2", True, [1]])
    def test_thread_count_is_an_integer(self, count: object) -> None:
        with pytest.raises(TypeError, match="num_threads must be an integer"):
            device("cpu", num_threads=count)
        assert device("cpu", num_threads=np.int32(1)).name == "cpu"

    def test_unknown_option(self, remote: Device) -> None:
        with pytest.raises(ValueError, match="device 'cpu' has no option 'threads'; it accepts: num_threads"):
            device("cpu", threads=2)
        with pytest.raises(ValueError, match="it accepts: stream, fail"):
            device("cuda", num_threads=2)

    @pytest.mark.parametrize("name", ["hip", "level_zero", "metal"])
    def test_cannot_start(self, name: str) -> None:
        with pytest.raises(RuntimeError) as caught:
            device(name)
        text = str(caught.value)
        assert text.startswith(f"device '{name}' cannot start on ")
        assert sys.platform.split("linux")[0] in text
        assert "help: " in text
        cause = caught.value.__cause__
        assert isinstance(cause, RuntimeError)
        assert str(cause) in text

    def test_start_up_failure_is_chained(self, remote: Device) -> None:
        with pytest.raises(RuntimeError, match=r"the driver is not loaded\n  help: pip install") as caught:
            device("cuda", fail=True)
        assert isinstance(caught.value.__cause__, OSError)
        assert default_device() == device("cpu")

    def test_capabilities(self, remote: Device) -> None:
        cpu = device("cpu")
        assert (cpu.name, cpu.index, cpu.label) == ("cpu", 0, "CPU")
        assert cpu.supported_dtypes == cpu.supported_atomic_dtypes == ALL_DTYPES
        assert cpu.supports_f64
        assert cpu.supports_workgroups
        assert cpu.memory_spaces == ()
        assert not remote.supports_f64
        assert remote.memory_spaces == ("remote",)
        second = device("cuda:1")
        assert (second.index, second.label, str(second)) == (1, "Remote 1", "cuda:1")

    def test_pickle(self) -> None:
        assert pickle.loads(pickle.dumps(device("cpu"))) is device("cpu")
        twin = pickle.loads(pickle.dumps(device("cpu", num_threads=3)))
        assert repr(twin) == "tack.device('cpu', num_threads=3)"


class TestLifetime:
    def test_an_optioned_backend_lives_with_its_arrays(self) -> None:
        made = device("cpu", num_threads=1)
        backend = weakref.ref(made._backend)
        arr = zeros(4, device=made)
        del made
        assert backend() is not None
        view = arr[1:]
        del arr
        assert view.device.name == "cpu"
        assert backend() is not None
        del view
        gc.collect()
        assert backend() is None

    def test_switching_builds_nothing_twice(self, remote: Device) -> None:
        cpu = default_device()
        set_default_device("cuda")
        set_default_device("cpu")
        assert default_device() is cpu
        set_default_device("cuda")
        assert default_device() is remote

    def test_threads_get_one_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        starts = []
        real = dispatch._start

        def slow_start(*args: Any) -> Backend:
            starts.append(args)
            threading.Event().wait(0.02)
            return real(*args)

        monkeypatch.setattr(dispatch, "_start", slow_start)
        ready, found = threading.Barrier(8), []

        def ask() -> None:
            ready.wait()
            found.append(device("cpu"))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(starts) == 1
        assert len({id(d) for d in found}) == 1

    def test_fork_while_the_registry_is_locked(self, run_python: Callable[..., Any]) -> None:
        code = """
import os, threading
from tack.runtime import dispatch
from tack import full
held, done = threading.Event(), threading.Event()
def hold():
    with dispatch._lock:
        held.set()
        done.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(0 if full(3, 2.0).sum() == 6 else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
done.set()
raise SystemExit(status)
"""
        done = run_python("-W", "ignore", "-c", code)
        assert (done.returncode, done.stderr) == (0, "")


class TestDefault:
    def test_order(self, remote: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TACK_DEVICE", "cuda:1")
        assert str(default_device()) == "cuda:1"
        set_default_device("cuda")
        assert default_device() is remote
        with device("cpu") as cpu:
            assert default_device() is cpu
            assert empty(1).device is cpu
        assert default_device() is remote
        set_default_device(None)
        assert str(default_device()) == "cuda:1"
        monkeypatch.delenv("TACK_DEVICE")
        set_default_device(None)
        assert str(default_device()) == "cpu"

    def test_bad_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TACK_DEVICE", "gpu")
        for _ in range(2):  # each time
            with pytest.raises(ValueError, match="TACK_DEVICE='gpu' is not accepted; use one of: cpu, cuda"):
                default_device()
        monkeypatch.setenv("TACK_DEVICE", "cuda")
        with pytest.raises(RuntimeError, match="TACK_DEVICE='cuda': device 'cuda' cannot start"):
            empty(3)
        monkeypatch.setenv("TACK_DEVICE", "  ")
        assert str(default_device()) == "cpu"

    def test_failure_leaves_the_default(self) -> None:
        other = device("cpu", num_threads=1)
        set_default_device(other)
        for bad, error in (("hip", RuntimeError), ("x", ValueError), (3, TypeError)):
            with pytest.raises(error):
                set_default_device(bad)  # type: ignore[arg-type]
        assert default_device() == other

    def test_with_nests_and_unwinds(self, remote: Device) -> None:
        cpu = device("cpu")
        with cpu, remote, cpu:
            assert default_device() is cpu
            with pytest.raises(KeyError), remote:
                raise KeyError
            assert default_device() is cpu
        assert default_device() == cpu
        with remote:
            with remote:
                pass
            assert default_device() is remote

    def test_with_is_per_thread(self, remote: Device) -> None:
        found: list[str] = []
        with remote:
            thread = threading.Thread(target=lambda: found.append(str(default_device())))
            thread.start()
            thread.join()
        assert found == ["cpu"]

    def test_with_is_per_task(self, remote: Device) -> None:
        async def inside(where: Device, other: asyncio.Event, mine: asyncio.Event) -> str:
            with where:
                mine.set()
                await other.wait()
                return str(default_device())

        async def both() -> list[str]:
            a, b = asyncio.Event(), asyncio.Event()
            return await asyncio.gather(inside(remote, a, b), inside(device("cpu"), b, a))

        assert asyncio.run(both()) == ["cuda", "cpu"]

    def test_generators_may_end_out_of_order(self, remote: Device) -> None:
        def entered(where: Device) -> Iterator[None]:
            with where:
                yield

        first, second = entered(device("cpu")), entered(remote)
        next(first), next(second)
        first.close()
        assert default_device() is remote
        second.close()
        assert str(default_device()) == "cpu"


class TestOverview:
    def test_devices(self) -> None:
        found = {status.spec: status for status in devices()}
        assert list(found) == ["cpu", "cuda", "hip", "level_zero", "metal"]
        assert found["cpu"].device is device("cpu")
        assert found["cpu"].reason is None
        assert found["metal"].device is None
        reason = found["metal"].reason
        assert reason is not None
        assert "pyobjc-framework-Metal" in reason

    def test_every_index(self, remote: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RemoteBackend, "device_count", classmethod(lambda cls: 2))
        assert [s.spec for s in devices() if s.device is not None] == ["cpu", "cuda", "cuda:1"]

    def test_sync_waits_for_every_device(self, remote: Device) -> None:
        broken, other = device("cuda", stream="broken"), device("cuda", stream="good")
        with pytest.raises(RuntimeError, match="a launch failed"):
            sync()
        assert [d._backend.waits for d in (remote, broken, other)] == [1, 1, 1]  # type: ignore[attr-defined]
        other.synchronize()
        assert other._backend.waits == 2  # type: ignore[attr-defined]


class TestLaunchBackend:
    def test_the_default_device_if_it_can(self, remote: Device) -> None:
        single = device("cpu", num_threads=1)
        arr = zeros(3, device=single)
        assert launch_backend((arr, 1, 2.0, np.zeros(3))) is device("cpu")._backend
        with single:
            assert launch_backend((zeros(3), 1)) is single._backend
        assert launch_backend(()) is device("cpu")._backend

    def test_else_the_arrays_own(self, remote: Device) -> None:
        far = zeros(3, device=remote)
        assert launch_backend((1.0, far, far)) is remote._backend
        with remote:
            assert launch_backend((np.zeros(3), 1)) is device("cpu")._backend
            assert launch_backend((far, 1)) is remote._backend

    def test_two_domains(self, remote: Device) -> None:
        near, far = zeros(3), zeros(3, device="cuda:1")
        with pytest.raises(ValueError, match=r"'x' on CPU, 'out' on Remote 1; move them with arr\.to"):
            launch_backend((near, 1.0, far), ("x", "a", "out"))
        with pytest.raises(ValueError, match="argument 1 on Remote 1, argument 2 on CPU"):
            launch_backend((far, np.zeros(3)))
        with pytest.raises(ValueError, match="'a' on Remote, 'b' on Remote 1"):
            launch_backend((zeros(3, device=remote), far), ("a", "b"))


class TestAnotherMemory:
    """The host API on a device whose memory the host cannot address."""

    def test_arrays(self, remote: Device) -> None:
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        arr = asarray(values, device=remote)
        np.testing.assert_array_equal(arr.numpy(), values, strict=True)
        np.testing.assert_array_equal(np.asarray(arr), values)
        np.testing.assert_array_equal(arr[1:].copy().astype(i32).numpy(), values[1:])
        assert arr[1, 2] == 5
        arr[0, 0] = 9
        assert arr.numpy(0, 2).tolist() == [9, 1]
        assert (arr.sum(), arr.min(), arr.max(), arr.mean()) == (24, 1, 9, 4)
        assert full(300_000, 2.5, device=remote).numpy().tolist() == [2.5] * 300_000
        assert linspace(0, 1, 3, device=remote).numpy().tolist() == [0, 0.5, 1]
        assert 9 in arr
        assert "device=cuda" in repr(arr)

    def test_copies_between_devices(self, remote: Device) -> None:
        near, far = full(4, 3.0), zeros(4, device=remote)
        copyto(far, near)
        copyto(far[:1], np.array([7]))
        assert far.to("cpu").numpy().tolist() == [7, 3, 3, 3]
        copyto(far[1:], far[:3])
        assert far.numpy().tolist() == [7, 7, 3, 3]
        copyto(near, far)
        assert near.sum() == 20

    def test_what_needs_host_memory_is_refused(self, remote: Device) -> None:
        far = zeros(4, device=remote)
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(far, copy=False)
        with pytest.raises(BufferError, match="not in host memory but on Remote"):
            far.__buffer__(0)
        with pytest.raises(BufferError):
            far.__dlpack__()
        assert not hasattr(far, "__array_interface__")

    def test_a_dtype_that_the_device_lacks(self, remote: Device) -> None:
        for make in (
            lambda: empty(3, f64, device=remote),
            lambda: zeros(3, f64).to(remote),
            lambda: zeros(3, device=remote).astype(f64),
            lambda: asarray([0.5], device=remote),
        ):
            with pytest.raises(TypeError, match="Remote has no f64; it supports: i8, u8"):
                make()
        assert asarray([0.5], f32, device=remote).dtype is f32

    def test_array_is_final(self) -> None:
        with pytest.raises(TypeError):
            Array(3)  # type: ignore[call-arg, arg-type]
