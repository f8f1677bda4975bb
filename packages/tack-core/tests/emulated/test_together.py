"""Tasks whose requests are met together, and kernels that are compiled so."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from emulated import compiler, msl, opencl, together

KERNEL = """static __device__ int twice(int x) { return x + x; }
extern "C" __global__ void %s(int *out, int x) { out[threadIdx.x] = twice(x) + %d; }
"""
OPENCL = """static int twice(int x) { return x + x; }
__kernel void __attribute__((reqd_work_group_size(1, 1, 1))) %s(__global int *out, int namespace) {
    out[0] = twice(namespace) + %d;
}
"""
METAL = """#include <metal_stdlib>
using namespace metal;

struct tack_%s_arguments {
    alignas(8) device int *out;
};

[[kernel, max_total_threads_per_threadgroup(1)]] void %s(
    constant tack_%s_arguments &tack_arguments [[buffer(0)]],
    uint3 tack_block [[threadgroup_position_in_grid]], uint3 tack_thread [[thread_position_in_threadgroup]],
    uint3 tack_size [[threads_per_threadgroup]], uint3 tack_grid [[threadgroups_per_grid]]) {
    tack_arguments.out[0] = %s;
}
"""


def ask(meet: together.Meet, item: object) -> object:
    shared = together.current()
    assert shared is not None
    return shared.ask(meet, item)


def test_requests_are_met_at_once_and_in_order() -> None:
    met: list[list[int]] = []

    def meet(items: list[int]) -> list[int]:
        met.append(sorted(items))
        return [item * item for item in items]

    def task(number: int) -> object:
        time.sleep(0.01 * (number % 3))
        return ask(meet, number) if number != 2 else "no request"

    assert together.run([lambda k=k: task(k) for k in range(5)]) == [0, 1, "no request", 9, 16]
    assert met == [[0, 1, 3, 4]]
    assert together.current() is None


def test_requests_of_several_kinds_and_rounds() -> None:
    def doubled(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    def negated(items: list[int]) -> list[int]:
        return [-item for item in items]

    def task(number: int) -> object:
        first = ask(doubled if number % 2 else negated, number)
        return ask(negated, first) if number > 1 else first

    assert together.run([lambda k=k: task(k) for k in range(4)]) == [0, 2, 2, -6]


def test_errors_go_to_those_that_asked() -> None:
    def meet(items: list[int]) -> list[int | ValueError]:
        return [ValueError(f"not {item}") if item % 2 else item for item in items]

    def broken(items: list[int]) -> list[int]:
        raise KeyError("broken")

    def task(number: int) -> object:
        try:
            return ask(broken if number > 3 else meet, number)
        except (ValueError, KeyError) as error:
            return str(error)

    got = together.run([lambda k=k: task(k) for k in range(6)])
    assert got == [0, "not 1", 2, "not 3", "'broken'", "'broken'"]


def test_an_error_of_a_task_is_raised_when_all_have_ended() -> None:
    ended = []

    def task(number: int) -> None:
        if number == 0:
            raise ZeroDivisionError("the first")
        ended.append(ask(lambda items: items, number))

    with pytest.raises(ZeroDivisionError, match="the first"):
        together.run([lambda k=k: task(k) for k in range(3)])
    assert sorted(ended) == [1, 2]


needs_compilers = pytest.mark.skipif(
    not (shutil.which(compiler.COMPILER) and shutil.which("clang-19")), reason="it needs g++ and clang-19"
)


def outcome(compile: Callable[[], bytes]) -> bytes | str:
    try:
        return compile()
    except (RuntimeError, msl.MslError) as error:
        return str(error)


def call(image: bytes, name: str, arguments: Sequence[ctypes.c_int]) -> int:
    """What the kernel writes, given its parameters but for the first."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        Path(file.name).write_bytes(image)
        library = ctypes.CDLL(file.name)
    found = ctypes.c_int(0)
    pointer = ctypes.c_void_p(ctypes.addressof(found))
    parameters = [ctypes.addressof(pointer), *map(ctypes.addressof, arguments)]
    one = (ctypes.c_uint * 3)(1, 1, 1)
    getattr(library, f"emulate_{name}")((ctypes.c_void_p * len(parameters))(*parameters), one, one)
    return found.value


COMPILES: dict[str, tuple[Callable[[str, int], bytes], Sequence[int]]] = {
    "cuda": (lambda name, k: compiler.compile(KERNEL % (name, k), [name]), (20,)),
    "hip": (lambda name, k: compiler.compile(KERNEL % (name, k), [name], wavefront=64), (20,)),
    "opencl": (lambda name, k: opencl.compile(OPENCL % (name, k)), (20,)),
    "metal": (lambda name, k: msl.compile(METAL % (name, name, name, 40 + k)), ()),
}


@needs_compilers
@pytest.mark.parametrize("target", COMPILES)
def test_kernels_are_compiled_as_one(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers of the same name do not meet, and each caller's entry is in what it gets."""
    compile, values = COMPILES[target]
    own, builds = compiler._build, []
    monkeypatch.setattr(compiler, "_build", lambda *args: builds.append(args) or own(*args))
    images = together.run([lambda k=k: compile(f"kernel{k}", k) for k in range(3)])
    assert len(builds) == 1
    for k, image in enumerate(images):
        assert call(image, f"kernel{k}", [ctypes.c_int(v) for v in values]) == 40 + k


@needs_compilers
def test_one_that_does_not_compile_leaves_the_others() -> None:
    texts = [KERNEL % ("a", 1), 'extern "C" __global__ void b(int *out) { wrong(out); }', KERNEL % ("c", 3)]
    named = zip(texts, "abc", strict=True)
    tasks = [lambda t=text, n=name: outcome(lambda: compiler.compile(t, [n])) for text, name in named]
    first, refused, last = together.run(tasks)
    assert isinstance(refused, str)
    assert "wrong" in refused
    assert isinstance(first, bytes)
    assert isinstance(last, bytes)
    assert call(first, "a", [ctypes.c_int(1)]) == 3
    assert call(last, "c", [ctypes.c_int(1)]) == 5


@needs_compilers
def test_metal_units_are_checked_one_by_one_if_one_is_wrong() -> None:
    texts = [METAL % ("a", "a", "a", "7"), METAL % ("b", "b", "b", "1.0 * *(device double *)nullptr")]
    right, wrong = together.run([lambda t=text: outcome(lambda: msl.compile(t)) for text in texts])
    assert isinstance(right, bytes)
    assert call(right, "a", ()) == 7
    assert isinstance(wrong, str)
    assert "double" in wrong


OVERFLOW = """
import ctypes
from emulated import compiler, test_together, together
texts = [test_together.KERNEL % (name, 0) for name in "ab"]
images = together.run([lambda k=k: compiler.compile(texts[k], ["ab"[k]]) for k in range(2)])
print(test_together.call(images[0], "a", [ctypes.c_int(5)]), flush=True)
test_together.call(images[0], "a", [ctypes.c_int(2**31 - 1)])
"""


@needs_compilers
def test_undefined_behaviour_ends_the_process() -> None:
    """So that a sweep sees it, whatever the compiler makes of it."""
    done = subprocess.run(
        [sys.executable, "-c", OVERFLOW],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("10\n", -signal.SIGILL), done.stderr
