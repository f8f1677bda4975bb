"""Warm calls, with the native dispatcher and without."""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tack
from tack.dtypes import ALL_DTYPES
from tack.runtime import native
from tack.runtime.dispatch import backends, default_backend

TESTS = Path(__file__).parents[1]


def counts(kernel: tack.Kernel) -> dict[str, int]:
    table = default_backend().cache[kernel].table
    assert table is not None
    return table.counts()


@tack.kernel
def fill(x, value):
    for i in range(x.shape[0]):
        x[i] = value


def child(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A new process that runs ``code``, with kernels in it as a file of its own has them."""
    source = str(Path(tack.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", f"import sys, linecache\nsys.path.insert(0, {str(TESTS)!r})\n{code}"],
        env={**os.environ, "PYTHONPATH": source, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def child_file(path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """A new process that runs ``text`` as a file, so that its kernels have a source."""
    path.write_text(text)
    return child(f"import runpy\nrunpy.run_path({str(path)!r}, run_name='__main__')")


class TestBothDispatchers:
    @pytest.fixture(autouse=True)
    def _with(self, dispatcher: str) -> None: ...

    def test_keywords_and_defaults(self) -> None:
        @tack.kernel
        def combine(out, a, /, b, c=4, *, d=5, e=6):
            for i in range(1):
                out[i] = a + 10 * b + 100 * c + 1000 * d + 10000 * e

        out = np.zeros(1, np.int64)
        for _ in range(3):
            for call, want in (
                (lambda: combine(out, 1, 2), 65421),
                (lambda: combine(out, 1, b=2, c=3), 65321),
                (lambda: combine(out, 1, e=1, d=2, c=3, b=4), 12341),
                (lambda: combine(out, 1, 2, 3, e=0), 5321),
                (lambda: combine(out, 1, d=0, b=2), 60421),
            ):
                out[0] = 0
                call()
                assert out[0] == want

    @pytest.mark.parametrize(
        ("args", "kwargs", "message"),
        [
            ((), {}, "missing a required argument: 'x'"),
            ((np.zeros(1),), {}, "missing a required argument: 'value'"),
            ((np.zeros(1), 1, 2), {}, "too many positional arguments"),
            ((np.zeros(1), 1), {"value": 2}, "multiple values for argument 'value'"),
            ((np.zeros(1),), {"value": 1, "other": 2}, "got an unexpected keyword argument 'other'"),
        ],
    )
    def test_wrong_arguments(self, args: Any, kwargs: Any, message: str) -> None:
        for _ in range(3):
            fill(np.zeros(1), value=1)
            with pytest.raises(TypeError, match=f"kernel 'fill': {message}"):
                fill(*args, **kwargs)

    @pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
    def test_results(self, dtype: tack.DType) -> None:
        def last(x):
            for i in range(1):
                x[i] = x[i]
            return x[x.shape[0] - 1]

        last.__annotations__["return"] = dtype
        kernel = tack.kernel(last)
        values = [1.5, -2.25, 0.1] if dtype.is_float else [dtype.min, dtype.max, 1]
        for value in values:
            x = np.array([0, value], dtype.numpy)
            for _ in range(3):
                result = kernel(x)
                assert type(result) is (float if dtype.is_float else int)
                assert result == x[1]

    def test_large_launches(self) -> None:
        @tack.kernel
        def count_up(x, first) -> int:
            for i in range(x.shape[0]):
                x[i] = first + i
            return first

        x = np.zeros(1_000_000, np.int64)
        for first in (1, 2, 3):
            assert count_up(x, first) == first
            np.testing.assert_array_equal(x, np.arange(first, first + len(x)))

    def test_empty_launches(self) -> None:
        for _ in range(3):
            fill(np.zeros(0), 1.0)

    def test_other_threads_run_during_a_long_launch(self) -> None:
        @tack.kernel
        def spin(x, n):
            for i in range(1):
                for j in range(n):
                    x[i] = x[i] * 3 + j

        x = np.zeros(1, np.uint64)
        for _ in range(3):
            spin(x, 2**40 // 2**40)
            spin(x, 2**31)  # of type i64, as the long one
        start = time.perf_counter()
        spin(x, 2**31)
        alone = time.perf_counter() - start
        ticks = 0
        worker = threading.Thread(target=spin, args=(x, 2**31))
        worker.start()
        while worker.is_alive():
            time.sleep(alone / 100)
            ticks += 1
        assert ticks > 10

    def test_threads_with_different_types(self) -> None:
        wrong = []
        stop = threading.Event()

        def work(dtype: tack.DType) -> None:
            x = np.zeros(100, dtype.numpy)
            for k in range(400):
                fill(x, k % 100)
                if not np.array_equal(x, np.full(100, k % 100, x.dtype)):
                    wrong.append((dtype, k))

        def clear() -> None:
            while not stop.wait(0.002):
                slot = default_backend().cache.get(fill)
                if slot is not None and slot.table is not None:
                    slot.table.clear()
                gc.collect(0)

        threads = [threading.Thread(target=work, args=(dtype,)) for dtype in ALL_DTYPES]
        clearing = threading.Thread(target=clear)
        for thread in (*threads, clearing):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        clearing.join()
        assert not wrong

    def test_code_goes_with_its_kernel(self) -> None:
        def make() -> tuple[weakref.ref[Any], weakref.ref[Any]]:
            class Default:
                pass

            @tack.kernel
            def k(x, unused=Default):
                for i in range(x.shape[0]):
                    x[i] = 1

            for _ in range(3):
                with pytest.raises(TypeError):
                    k(x=tack.zeros(4))
                k(tack.zeros(4), 1)
            Default.kernel = k  # type: ignore[attr-defined]
            return weakref.ref(k), weakref.ref(Default)

        kernel, default = make()
        gc.collect()
        assert kernel() is None
        assert default() is None

    def test_a_class_and_a_function_go_although_the_kernel_stays(self) -> None:
        @tack.kernel
        def applied(p, out):
            for i in range(1):
                out[i] = p.f(p.a) * p.SCALE

        def call(scale: float) -> list[weakref.ref[Any]]:
            @tack.func
            def double(x):
                return x + x

            @tack.device_class
            class P:
                SCALE = scale
                method = double

                def __init__(self):
                    self.f = double
                    self.a = 1.5

            p = P()
            out = np.zeros(1, np.float32)
            for _ in range(3):
                applied(p, out)
                assert out[0] == 3 * scale
            return [weakref.ref(P), weakref.ref(double)]

        for scale in (2.0, 3.0, 4.0):
            dropped = call(scale)
            gc.collect()
            assert [ref() for ref in dropped] == [None, None]

    def test_calls_after_the_cache_was_cleared(self) -> None:
        x = np.zeros(2)
        for _ in range(3):
            fill(x, 1.0)
        default_backend().cache.pop(fill)
        gc.collect()
        for value in (2.0, 3.0, 4.0):
            fill(x, value)
            assert list(x) == [value, value]

    def test_devices_with_options_come_and_go(self) -> None:
        x = tack.zeros(2)
        for threads in (1, 2, 1, 2):
            device = tack.device("cpu", num_threads=threads)
            with device:
                for _ in range(3):
                    fill(x, threads)
            gone = weakref.ref(device._backend)
            del device
            gc.collect()
            assert gone() is None
            assert list(x) == [threads, threads]
            fill(x, 9)
            assert list(x) == [9, 9]

    def test_a_device_of_another_task(self) -> None:
        seen = []
        one = tack.device("cpu", num_threads=1)
        x = tack.zeros(2)
        for _ in range(3):
            fill(x, 1.0)

        def work() -> None:
            with one:
                for _ in range(3):
                    fill(x, 1.0)
                seen.append(fill in one._backend.cache)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [True]

    def test_more_signatures_than_are_kept(self, dispatcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
        @tack.kernel
        def lengths(x, out):
            for i in range(1):
                out[i] = x.shape[0]

        monkeypatch.setenv("TACK_VERIFY", "0")  # of a hundred thousand passes
        out = np.zeros(1)
        for n in (*range(1, 270), *range(1, 270)):
            lengths(np.zeros(n, np.float32), out)
            assert out[0] == n
        if dispatcher == "native":
            assert 0 < counts(lengths)["signatures"] <= 256

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_fork_after_use(self) -> None:
        x = np.zeros(2)
        for _ in range(3):
            fill(x, 1.0)
        pid = os.fork()
        if pid == 0:
            fill(x, 2.0)
            os._exit(0 if list(x) == [2, 2] else 1)
        assert os.waitpid(pid, 0)[1] == 0

    def test_calls_leak_nothing(self, dispatcher: str) -> None:
        @tack.device_class
        class P:
            SCALE = 2

            def __init__(self, x: Any) -> None:
                self.x = x
                self.a = 2.5
                self.note = "text"

        @tack.kernel
        def mixed(p, x, y, a, b, c=1.5) -> float:
            for i in range(x.shape[0]):
                y[i] = x[i] * a + b * c + p.x[i] * p.a
            return a

        p = P(tack.ones(4))
        x, y = np.ones(4, np.float32), tack.zeros(4)
        a, b = 2**40 + 1, np.float32(0.5)
        readonly = np.ones(4, np.float32)
        readonly.flags.writeable = False

        def call(times: int) -> None:
            for _ in range(times):
                mixed(p, x, y, a, b)
                mixed(p, x, y, a, b, c=a)
            for _ in range(times // 500):
                p.a = 2 if p.a == 2.5 else 2.5
                mixed(p, x, y, a, True)
                with pytest.raises(ValueError, match="read-only"):
                    mixed(p, x, readonly, a, b)

        watched = (p, p.x, P, x, y, a, b, mixed, None, 1.5, P.SCALE)
        call(1000)
        gc.collect()
        tracemalloc.start()
        call(1000)
        before = [sys.getrefcount(value) for value in watched]
        memory, resident = (
            tracemalloc.get_traced_memory()[0],
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        )
        call(500_000 if dispatcher == "native" else 500)
        gc.collect()
        after = [sys.getrefcount(value) for value in watched]
        grown = tracemalloc.get_traced_memory()[0] - memory
        tracemalloc.stop()
        assert max(abs(m - n) for m, n in zip(before, after, strict=True)) <= 3
        assert grown < 100_000  # of a million calls
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 4096  # KiB


class TestNativeDispatcher:
    @pytest.fixture(autouse=True)
    def _only(self, natively: None) -> None: ...

    def test_what_is_dispatched_natively(self) -> None:
        x = np.zeros(4, np.float32)
        unpickled = pickle.loads(pickle.dumps(x))  # its dtype is an object of its own
        assert unpickled.dtype is not x.dtype
        long = np.zeros(4, np.longlong)
        for call in (
            lambda: fill(x, 1.0),
            lambda: fill(tack.asarray(x), 1.0),
            lambda: fill(x, 2),
            lambda: fill(x, 2**40),
            lambda: fill(unpickled, 2),
            lambda: fill(long, 2),
            lambda: fill(x, True),
            lambda: fill(x, np.float32(1)),
            lambda: fill(x, np.int8(1)),
            lambda: fill(x, np.bool_(1)),
            lambda: fill(x, value=1),
            lambda: fill(value=1, x=x),
        ):
            for _ in range(3):
                call()
            before = counts(fill)["hits"]
            call()
            assert counts(fill)["hits"] == before + 1

    def test_a_new_length_is_no_new_signature(self) -> None:
        for n in range(1, 50):
            fill(np.zeros(n, np.float16 if n > 100 else np.int16), 1)
        before = counts(fill)
        fill(np.zeros(1000, np.int16), 1)
        after = counts(fill)
        assert after["hits"] == before["hits"] + 1
        assert after["signatures"] == before["signatures"]

    def test_classes_that_keep_changing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Layouts are limited too."""
        monkeypatch.setenv("TACK_VERIFY", "0")

        @tack.device_class
        class P:
            SCALE = 0

        @tack.kernel
        def scaled(p, out):
            for i in range(1):
                out[i] = p.SCALE

        out = np.zeros(1)
        p = P()
        for scale in range(270):
            P.SCALE = scale
            scaled(p, out)
            assert out[0] == scale
        assert counts(scaled)["layouts"] <= 256

    def test_what_python_takes_apart_is_not_learned_again_and_again(self) -> None:
        @tack.device_class
        class Slotted:
            __slots__ = ("a",)

        @tack.kernel
        def put(p, out):
            for i in range(1):
                out[i] = p.a

        p, out = Slotted(), np.zeros(1)
        for p.a in (1.0, 2.0, 3.0):
            put(p, out)
            assert out[0] == p.a
        assert counts(put) == {"hits": 0, "learned": 0, "signatures": 0, "layouts": 1}

    def test_a_table_may_be_cleared_during_a_launch(self) -> None:
        @tack.kernel
        def spin(x, n):
            for i in range(1):
                for j in range(n):
                    x[i] = x[i] + j * 0 + 1

        n = 2**27
        x = np.zeros(1, np.float32)
        for _ in range(3):
            spin(x, 10)
        worker = threading.Thread(target=spin, args=(x, n))
        worker.start()
        slot = default_backend().cache.pop(spin)
        assert slot.table is not None
        slot.table.clear()
        slot.variants.clear()
        slot.signatures.clear()
        del slot
        gc.collect()
        worker.join()
        assert x[0] == 2**24  # where adding 1 has no effect

    def test_threads_that_learn_the_same_call_at_once(self, tmp_path: Path) -> None:
        text = """
import threading
import numpy as np, tack

def round_of_threads(count=8):
    @tack.kernel
    def add(x):
        for i in range(x.shape[0]):
            x[i] += i

    arrays = [np.zeros(50_000, np.int64) for _ in range(count)]
    barrier = threading.Barrier(count)
    def work(x):
        barrier.wait()
        for _ in range(8):
            add(x)
    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x in arrays:
        assert np.array_equal(x, np.arange(50_000) * 8)

for _ in range(25):
    round_of_threads()
print("done")
"""
        done = child_file(tmp_path / "program.py", text)
        assert done.stdout == "done\n", done.stderr

    def test_an_error_in_a_fan_out_is_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TACK_CPU_POOL", "python")  # the native one runs no Python
        x = np.zeros(4_000_000, np.float32)
        with tack.device("cpu", num_threads=2):
            for _ in range(3):
                fill(x, 1.0)
            monkeypatch.setattr(type(default_backend()), "run_packed", None)
            with pytest.raises(TypeError, match="not callable"):
                fill(x, 1.0)

    @pytest.mark.parametrize("pool", ["native", "python"])
    @pytest.mark.parametrize("size", [1, 255, 256, 100_003, 4_000_000])
    def test_large_launches_on_both_pools(
        self, pool: str, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @tack.kernel
        def shifted(x, out, by) -> int:
            for i in range(x.shape[0]):
                out[i] = x[i] + by
            return x.shape[0] + by

        monkeypatch.setenv("TACK_CPU_POOL", pool)
        x = np.arange(size, dtype=np.int64)
        with tack.device("cpu", num_threads=3):
            for by in range(6):
                out = np.zeros_like(x)
                assert shifted(x, out, by) == size + by
                assert (out == x + by).all()
            table = default_backend().cache[shifted].table
            assert table is not None
            assert table.counts()["hits"] >= 2
            assert (default_backend().native_pool is None) == (pool == "python")
            if pool == "native":
                assert default_backend().native_pool.workers == (2 if size > 100_000 else 0)

    def test_a_failure_to_learn_is_no_failure_of_the_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @tack.kernel
        def ones(x):
            for i in range(x.shape[0]):
                x[i] = 1

        def native_plan(*_: Any) -> None:
            raise LookupError

        monkeypatch.setattr(type(default_backend()), "native_plan", native_plan)
        x = np.zeros(2)
        seen: list[Any] = []
        monkeypatch.setattr(sys, "unraisablehook", seen.append)
        ones(x)
        ones(x)  # the first call is not learned from
        assert list(x) == [1, 1]
        assert [(type(u.exc_value), u.object) for u in seen] == [(LookupError, ones)]
        seen.clear()

    def test_calls_in_debug_mode_teach_nothing(self) -> None:
        code = (
            "import tack, numpy as np\nfrom dispatch.calls import add\n"
            "from tack.runtime.dispatch import default_backend\n"
            "x, out = np.ones(2), np.ones(2)\n"
            "tack.set_debug(True)\n"
            "for _ in range(3): add(x, out)\n"
            "tack.set_debug(False)\n"
            "for _ in range(3): add(x, out)\n"
            "print(default_backend().cache[add].table.counts())\n"
        )
        assert child(code).stdout == "{'hits': 2, 'learned': 1, 'signatures': 1, 'layouts': 0}\n"

    def test_arrays_are_described_once(self) -> None:
        with pytest.raises(RuntimeError, match="described once"):
            tack.zeros(2)._describe(1 << 40, 8, 8, (2,), (), True, 0, None)

    def test_arrays_that_were_never_described(self) -> None:
        for _ in range(3):
            fill(tack.zeros(2), 1.0)
        with pytest.raises(AttributeError):
            fill(tack.Array.__new__(tack.Array), 1.0)


class TestSettings:
    def test_which_dispatcher(self) -> None:
        for value, in_use in (
            ("native", native.module is not None),
            ("python", False),
            ("", native.module is not None),
        ):
            done = child("from tack.__main__ import main\nmain(['info', '--json'])", TACK_DISPATCH=value)
            facts = json.loads(done.stdout)
            assert facts["native_dispatcher"]["in_use"] is in_use
            assert (facts["native_dispatcher"]["reason"] is None) is in_use

    def test_a_bad_value_raises_at_every_call(self) -> None:
        code = (
            "from dispatch.calls import add\nimport numpy as np\n"
            "for _ in range(2):\n"
            "    try: add(np.zeros(2), np.zeros(2))\n"
            "    except ValueError as error: print(error)\n"
        )
        message = "environment variable TACK_DISPATCH='fast' is not accepted; use one of: native, python\n"
        assert child(code, TACK_DISPATCH="fast").stdout == 2 * message

    def test_a_failed_self_check(self, natively: None) -> None:
        code = (
            "from tack.runtime import native, learn\nfrom dispatch.calls import add\nimport numpy as np\n"
            "real = native.module\n"
            "class Other:\n"
            "    def __getattr__(self, name): return getattr(real, name)\n"
            "    def read_back(self, array): return None\n"
            "native.module = Other()\n"
            "out = np.ones(2)\n"
            "for _ in range(3): add(np.ones(2), out)\n"
            "print(out, learn.unused_because())\n"
        )
        want = "[4. 4.] its self-check failed: a NumPy array of i8 is laid out in another way than expected\n"
        assert child(code).stdout == want


WITHOUT = "sys.modules['tack._native'] = None\n"


class TestWithoutTheExtension:
    def test_info_says_so(self) -> None:
        done = child(WITHOUT + "from tack.__main__ import main\nmain(['info'])")
        assert "native dispatcher  no: it is not installed;" in done.stdout

    @pytest.mark.parametrize(
        "files",
        [
            "runtime/test_variants.py runtime/test_devices.py",
            "conformance/test_launch.py conformance/test_debug.py",
        ],
    )
    def test_everything_works(self, files: str) -> None:
        paths = [str(TESTS / name) for name in files.split()]
        code = f"import pytest\nsys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', *{paths!r}]))"
        done = child(WITHOUT + code)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout


def test_backends_have_serial_numbers_of_their_own() -> None:
    made: list[Callable[[], Any]] = [lambda: tack.device("cpu", num_threads=1)._backend for _ in range(3)]
    found = [make() for make in made] + [b for b in backends() if b.options == {}]
    assert len({backend.serial for backend in found}) == len(found)
    assert len({backend.domain_number for backend in found}) == 1
