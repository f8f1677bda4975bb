"""Calls that go wrong if the native dispatcher overlooks one thing. See test_mutations.py.

Each function warms native dispatch up with one call, makes another that differs in one respect, and
checks what it computes or raises. ``python -m dispatch.scenarios EXTENSION NAME...`` runs those named,
with a build of the extension from elsewhere.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":  # before anything imports tack
    spec = importlib.util.spec_from_file_location("tack._native", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["tack._native"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["tack._native"])

import numpy as np

import tack
from tack.runtime import native
from tack.runtime.cpu import program
from tack.runtime.cpu.backend import CpuBackend
from tack.runtime.cpu.program import build
from tack.runtime.dispatch import default_backend
from tack.runtime.variants import resolve_variant


def warm(kernel: tack.Kernel, *args: Any) -> Any:
    """Calls until the call is dispatched natively; returns the last result."""
    for _ in range(4):
        result = kernel(*args)
    table = default_backend().cache[kernel].table
    assert table is not None
    assert native.module is not None
    assert native.module.resolve(kernel, args) is not None, "never dispatched natively"
    return result


def same_variant(kernel: tack.Kernel, *args: Any) -> bool:
    """Whether native dispatch runs what Python's does, or leaves it to that."""
    assert native.module is not None
    found = native.module.resolve(kernel, args)
    return found is None or found is resolve_variant(default_backend(), kernel, args, build)[0]


def refuses(error: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def equal(got: Any, want: Any) -> None:
    np.testing.assert_array_equal(np.asarray(got), want)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@tack.kernel
def copy(x, out):
    for i in range(x.size):
        out[i] = x[i]


# --- types of arguments -------------------------------------------------------------------------


def dtype() -> None:
    out = f32(0, 0)
    warm(copy, f32(1, 2), out)
    copy(np.array([3, 4], np.int32), out)
    equal(out, [3, 4])


def the_last_arrays() -> None:
    a, b, out = tack.ones(2), tack.full(2, 3.0), tack.zeros(2)
    warm(copy, a, out)
    for source in (a, b, out, b, a):
        copy(source, out)
        copy(b, out)
        equal(out, [3, 3])
        copy(a, out)
        equal(out, [1, 1])


def dtype_of_tack_arrays() -> None:
    out = tack.zeros(2)
    warm(copy, tack.ones(2), out)
    copy(tack.full(2, 3, tack.i32), out)
    equal(out, [3, 3])


def components() -> None:
    @tack.kernel
    def copy_vectors(x, out):
        for i in range(x.size):
            out[i] = x[i]

    warm(copy_vectors, tack.ones(2, tack.vec2), tack.zeros(2, tack.vec2))
    out = tack.zeros(2, tack.vec3)
    copy_vectors(tack.ones(2, tack.vec3), out)
    equal(out, np.ones((2, 3)))


def textures_are_no_arrays() -> None:
    @tack.kernel
    def sample(t, out):
        for i in range(out.size):
            out[i] = t.sample(0.5, 0.5, 0.5)

    texture = tack.Texture3D(np.ones((2, 2, 2), np.float32))
    warm(sample, texture, f32(0))
    refuses(TypeError, lambda: sample(texture.storage, f32(0)))


@tack.kernel
def put(out, n):
    for i in range(out.size):
        out[i] = n


def width_of_integers() -> None:
    out = np.zeros(1, np.int64)
    warm(put, out, 1)
    put(out, 2**40 + 1)
    equal(out, 2**40 + 1)


def unsigned_integers() -> None:
    out = np.zeros(1, np.float64)
    warm(put, out, 2**62)
    put(out, 2**63)
    equal(out, 2.0**63)


def floats_and_integers() -> None:
    @tack.kernel
    def next_of(out, n):
        for i in range(out.size):
            out[i] = n + 1

    out = np.zeros(1, np.float64)
    warm(next_of, out, 1.5)
    next_of(out, 2**31 - 1)  # wraps
    equal(out, -(2.0**31))


def contiguity() -> None:
    warm(copy, f32(1, 2), f32(0, 0))
    refuses(ValueError, lambda: copy(f32(1, 2, 3, 4)[::2], f32(0, 0)))


def byte_order() -> None:
    warm(copy, f32(1, 2), f32(0, 0))
    refuses(TypeError, lambda: copy(f32(1, 2).astype(">f4"), f32(0, 0)))


def memory_domain() -> None:
    class Elsewhere(CpuBackend):
        """Has memory and kernels of its own."""

        memory_domain = ("elsewhere", 0)  # type: ignore[assignment]

        def execute(self, kernel: tack.Kernel, args: tuple[Any, ...]) -> Any:
            return "elsewhere"

    # As tack.device("cpu", num_threads=1) makes one.
    from tack.runtime.creation import empty
    from tack.runtime.device import as_device

    device = as_device(Elsewhere())  # type: ignore[abstract]
    warm(copy, tack.ones(2), tack.zeros(2))
    assert copy(empty(2, device=device), empty(2, device=device)) == "elsewhere"


# --- extents ------------------------------------------------------------------------------------


def extent_of_an_axis() -> None:
    @tack.kernel
    def last(x, out):
        for i in range(out.size):
            out[i] = x[x.shape[0] - 1]

    out = f32(0)
    warm(last, f32(1, 2), out)
    last(f32(1, 2, 3), out)
    equal(out, 3)


def size() -> None:
    @tack.kernel
    def sizes(x, out):
        for i in range(1):
            out[i] = x.size

    out = f32(0)
    warm(sizes, f32(1, 2), out)
    sizes(f32(1, 2, 3), out)
    equal(out, 3)


def number_of_axes() -> None:
    @tack.kernel
    def axes(x, out):
        for i in range(1):
            out[i] = x.ndim

    out = f32(0)
    warm(axes, tack.ones((2, 2)), out)
    axes(tack.ones((2, 2, 2)), out)
    equal(out, 3)


def row_strides() -> None:
    @tack.kernel
    def corner(x, out):
        for i in range(1):
            out[i] = x[1, 1]

    out = f32(0)
    warm(corner, np.arange(4, dtype=np.float32).reshape(2, 2), out)
    corner(np.arange(6, dtype=np.float32).reshape(2, 3), out)
    equal(out, 4)


def overlap() -> None:
    x = np.ones(64, np.float32)
    warm(copy, x[:32], x[32:])
    warm(copy, x[:32], x[16:48])
    assert same_variant(copy, x[:32], x[16:48])
    assert same_variant(copy, x[:32], x[32:])


# --- instances of device classes ----------------------------------------------------------------


def device_class(**attributes: Any) -> Any:
    return tack.device_class(type("Case", (), attributes))


def instance(cls: Any, **attributes: Any) -> Any:
    made = cls()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@tack.kernel
def scaled(p, out):
    for i in range(out.size):
        out[i] = p.a * p.SCALE


def classes_and_layouts() -> None:
    out = f32(0)
    two, three = (instance(device_class(SCALE=n), a=1.0) for n in (2, 3))
    warm(scaled, two, out)
    warm(scaled, three, out)
    scaled(two, out)
    equal(out, 2)


def class_constants() -> None:
    cls = device_class(SCALE=2)
    out = f32(0)
    warm(scaled, instance(cls, a=1.0), out)
    cls.SCALE = 3
    scaled(instance(cls, a=1.0), out)
    equal(out, 3)


def class_attributes_that_become_constants() -> None:
    cls = device_class(SCALE=2, a="nothing")
    p, out = instance(cls, a=1.0), f32(0)
    warm(scaled, p, out)
    cls.a = 5  # now the instance's shadows a constant
    assert same_variant(scaled, p, out)


def bases() -> None:
    two, three = device_class(SCALE=2), device_class(SCALE=3)
    cls = type("Derived", (two,), {})
    out = f32(0)
    warm(scaled, instance(cls, a=1.0), out)
    cls.__bases__ = (three,)
    scaled(instance(cls, a=1.0), out)
    equal(out, 3)


def the_mark_of_device_classes() -> None:
    cls = device_class(SCALE=2)
    out = f32(0)
    warm(scaled, instance(cls, a=1.0), out)
    cls.__tack_device_class__ = False
    refuses(TypeError, lambda: scaled(instance(cls, a=1.0), out))


def constants_that_instances_shadow() -> None:
    cls = device_class(SCALE=2)
    out = f32(0)
    warm(scaled, instance(cls, a=1.0, SCALE=4), out)
    scaled(instance(cls, a=1.0, SCALE=5), out)
    equal(out, 5)


def names_of_attributes() -> None:
    @tack.kernel
    def difference(p, out):
        for i in range(out.size):
            out[i] = p.a - p.b

    cls, out = device_class(), f32(0)
    warm(difference, instance(cls, a=1.0, b=2.0), out)
    difference(instance(cls, b=2.0, a=1.0), out)
    equal(out, -1)


def new_attributes() -> None:
    p, out = instance(device_class(SCALE=2), a=1.0), f32(0)
    warm(scaled, p, out)
    p.b = 2.0
    assert same_variant(scaled, p, out)


def functions_among_attributes() -> None:
    @tack.func
    def once(x):
        return x

    @tack.func
    def twice(x):
        return x + x

    @tack.kernel
    def applied(p, out):
        for i in range(out.size):
            out[i] = p.f(3.0)

    p, out = instance(device_class(), f=once), f32(0)
    warm(applied, p, out)
    p.f = twice
    applied(p, out)
    equal(out, 6)


def types_of_attributes() -> None:
    @tack.kernel
    def next_of(p, out):
        for i in range(out.size):
            out[i] = p.a + 1

    p, out = instance(device_class(), a=1.5), np.zeros(1, np.float64)
    warm(next_of, p, out)
    p.a = 2**31 - 1  # wraps
    next_of(p, out)
    equal(out, -(2.0**31))


def shapes_of_attributes() -> None:
    @tack.kernel
    def first(p, out):
        for i in range(out.size):
            out[i] = p.x[0]

    p, out = instance(device_class(), x=tack.ones(2)), f32(0)
    warm(first, p, out)
    p.x = tack.ones(3)  # compiled anew, as the reference says
    assert same_variant(first, p, out)


def axes_of_attributes() -> None:
    @tack.kernel
    def axes(p, out):
        for i in range(out.size):
            out[i] = p.x.ndim * 10 + p.y.ndim

    # Without the number of axes the words of the two calls are the same.
    p, out = instance(device_class(), x=tack.ones(1, tack.i8), y=tack.ones((), tack.i8)), f32(0)
    warm(axes, p, out)
    p.x, p.y = p.y, p.x
    axes(p, out)
    equal(out, 1)


def classes_of_parts() -> None:
    @tack.kernel
    def inner(p, out):
        for i in range(out.size):
            out[i] = p.part.a * p.part.SCALE

    p, out = instance(device_class(), part=instance(device_class(SCALE=2), a=1.0)), f32(0)
    warm(inner, p, out)
    p.part = instance(device_class(SCALE=3), a=1.0)
    inner(p, out)
    equal(out, 3)


# --- what each call is checked for --------------------------------------------------------------


def read_only_arrays() -> None:
    out = f32(0, 0)
    warm(copy, f32(1, 2), out)
    out.flags.writeable = False
    refuses(ValueError, lambda: copy(f32(3, 4), out))


def alignment_for_atomics() -> None:
    @tack.kernel
    def add(out):
        for i in range(1):
            tack.atomic_add(out, i, 1)

    memory = np.zeros(16, np.uint8)
    warm(add, memory[:8].view(np.int32))
    refuses(ValueError, lambda: add(memory[1:9].view(np.int32)))


def whole_workgroups() -> None:
    @tack.kernel
    def grouped(out, n):
        for i in range(n):
            tack.barrier()
            out[i * 0] = 1.0

    warm(grouped, f32(0), 256)
    refuses(ValueError, lambda: grouped(f32(0), 128))


def large_launches() -> None:
    program.large_write = lambda: 4096

    @tack.kernel
    def double(x, out):
        for i in range(x.shape[0]):
            out[i] = 2.0 * x[i]

    warm(double, f32(*range(1023)), f32(*range(1023)))
    assert native.module is not None
    assert native.module.resolve(double, (f32(*range(1024)), f32(*range(1024)))) is None


def range_of_pinned_integers() -> None:
    @tack.kernel
    def put_small(out, n: tack.i8):
        for i in range(out.size):
            out[i] = n

    warm(put_small, f32(0), 127)
    refuses(OverflowError, lambda: put_small(f32(0), 128))
    refuses(OverflowError, lambda: put_small(f32(0), -129))


def launch_bounds_past_64_bits() -> None:
    @tack.kernel
    def square(out, n):
        for i in range(min(out.size, n * n - 1)):
            out[i] = 1.0

    out = f32(0, 0)
    warm(square, out, 2)
    out[:] = 0
    warm(square, out, 2**31)
    out[:] = 0
    square(out, 2**40)  # only Python's integers hold the bound
    equal(out, [1, 1])


# --- the process's state ------------------------------------------------------------------------


def default_device() -> None:
    out = f32(0, 0)
    warm(copy, f32(1, 2), out)
    with tack.device("cpu", num_threads=1):
        assert same_variant(copy, f32(1, 2), out)


def debug_mode() -> None:
    @tack.kernel
    def shifted(x, out):
        for i in range(out.size):
            out[i] = x[i + 1]

    x, out = f32(1, 2, 3, 4), f32(0, 0)
    warm(shifted, x, out)
    tack.set_debug(True)
    refuses(IndexError, lambda: shifted(x[:2], out))
    tack.set_debug(False)


def debug_mode_of_the_environment() -> None:
    @tack.kernel
    def shifted(x, out):
        for i in range(out.size):
            out[i] = x[i + 1]

    x, out = f32(1, 2, 3, 4), f32(0, 0)
    warm(shifted, x, out)
    os.environ["TACK_DEBUG"] = "1"
    refuses(IndexError, lambda: shifted(x[:2], out))
    os.environ["TACK_DEBUG"] = "0"
    shifted(x[:2], out[:1])


if __name__ == "__main__":
    for name in sys.argv[2:]:
        globals()[name]()
    print("passed")
