"""Each element of the in-memory keys is needed: without it, a call runs code made for another.

A case is a kernel, calls, and the element that tells the calls apart. With the keys as they are,
each call does what it does on a kernel of its own. With the element dropped, one of them does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tack
from tack.lang import device_class
from tack.record import replace
from tack.runtime import expand, native, variants
from tack.runtime.dispatch import default_backend
from tack.runtime.variants import Key


@pytest.fixture(autouse=True)
def _python_dispatch() -> Iterator[None]:
    """The keys are Python's; those of native dispatch have tests of their own."""
    native.pause()
    yield
    native.resume()


Make = Callable[[], tack.Kernel]
Call = Callable[[tack.Kernel], Any]  # what the call gives, or the type of its error


def outcome(kernel: tack.Kernel, call: Call) -> Any:
    """A call's result as plain data, so that NaNs compare, or the type of the error it raises."""
    try:
        result = call(kernel)
    except Exception as error:
        return type(error)
    values = np.asarray(result.numpy() if isinstance(result, tack.Array) else result)
    return values.dtype.str, values.shape, values.tobytes()


def check(make: Make, calls: list[Call]) -> bool:
    """Whether the calls, one after the other on one kernel, do what each does on its own."""
    alone = [outcome(make(), call) for call in calls]
    shared = make()
    same = [outcome(shared, call) for call in calls] == alone
    if same:  # and each variant says why it is there
        assert all(variant.differences for variant in shared.variants()[1:])
    return same


# --- the variant's key ------------------------------------------------------------------------


def scale() -> tack.Kernel:
    @tack.kernel
    def scale(x, out, a):
        for i in range(out.shape[0]):
            out[i] = x[i] * a

    return scale


def ones(n: int, dtype: Any = tack.f32) -> tack.Array:
    return tack.full(n, 3, dtype) if isinstance(dtype, tack.DType) else tack.ones(n, dtype)


def into(x: Any, a: Any, dtype: tack.DType = tack.f64) -> Call:
    def call(kernel: tack.Kernel) -> tack.Array:
        out = tack.zeros(4, dtype)
        kernel(x, out, a)
        return out

    return call


def column() -> tack.Kernel:
    @tack.kernel
    def column(a, out):
        for i in range(out.shape[0]):
            out[i] = a[i, 1]

    return column


def of_width(width: int) -> Call:
    def call(kernel: tack.Kernel) -> tack.Array:
        out = tack.zeros(4)
        kernel(tack.arange(8 * width, dtype=tack.f32).reshape((8, width)), out)
        return out

    return call


def length() -> tack.Kernel:
    @tack.kernel
    def length(x, out):
        for i in range(1):
            out[i] = x.shape[0] * 100 + len(x) + x.size + x.ndim

    return length


def of_shape(*shape: int) -> Call:
    def call(kernel: tack.Kernel) -> tack.Array:
        out = tack.zeros(1, tack.i64)
        kernel(tack.zeros(shape), out)
        return out

    return call


def norms() -> tack.Kernel:
    @tack.kernel
    def norms(x, out):
        for i in range(out.shape[0]):
            out[i] = tack.dot(x[i], x[i])

    return norms


def of_vectors(kind: Any) -> Call:
    def call(kernel: tack.Kernel) -> tack.Array:
        out = tack.zeros(2)
        kernel(tack.ones(2, kind), out)
        return out

    return call


def twice() -> tack.Kernel:
    @tack.kernel
    def twice(x, out, again):
        for i in range(out.shape[0]):
            out[i] = x[i] + 1.0
            again[i] = x[i]  # which is the new value where x is out

    return twice


def aliased(same: bool) -> Call:
    def call(kernel: tack.Kernel) -> tack.Array:
        x = tack.arange(64, dtype=tack.f32)
        again = tack.zeros(64)
        kernel(x, x if same else tack.zeros(64), again)
        return again

    return call


def sampled() -> tack.Kernel:
    @tack.kernel
    def sampled(t, out):
        for i in range(out.shape[0]):
            out[i] = t.sample(i / 3.0, 1.0, 0.5)

    return sampled


def of_extents(*shape: int) -> Call:
    def call(kernel: tack.Kernel) -> tack.Array:
        out = tack.zeros(4)
        kernel(tack.Texture3D(np.arange(24, dtype=np.float32).reshape(shape)), out)
        return out

    return call


def divide() -> tack.Kernel:
    @tack.kernel
    def divide(out, n):
        for i in range(out.shape[0]):
            out[i] = 7 // n

    return divide


def by_zero(debug: bool) -> Call:
    def call(kernel: tack.Kernel) -> tack.Array:
        out = tack.zeros(4, tack.i32)
        tack.set_debug(debug)
        try:
            kernel(out, 0)
        finally:
            tack.set_debug(False)
        return out

    return call


def blind_to(mutation: Callable[[Key], Key]) -> type[Key]:
    """Keys that a cache takes for equal if they are so after the mutation; compiling sees all of them."""

    class Blind(Key):
        def __hash__(self) -> int:
            return hash(mutation(Key(*self)))

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and mutation(Key(*self)) == mutation(Key(*other))

    return Blind


def drop_param(field: str, value: Any) -> Callable[[Key], Key]:
    return lambda key: key._replace(params=tuple(p._replace(**{field: value}) for p in key.params))


Mutation = Callable[[Key], Key]
ELEMENTS: dict[str, tuple[Make, list[Call], Mutation]] = {
    "dtype of an array": (
        scale,
        [into(ones(4), 2.0), into(ones(4, tack.i32), 2.0)],
        drop_param("dtype", None),
    ),
    "dtype of an integer": (
        scale,
        [into(ones(4, tack.i64), 3, tack.i64), into(ones(4, tack.i64), 2**40, tack.i64)],
        drop_param("dtype", None),
    ),
    "int or float": (scale, [into(ones(4), 2), into(ones(4), 2.5)], drop_param("dtype", None)),
    "precision of a float": (
        scale,
        [into(ones(4), 0.1, tack.f32), into(ones(4), 0.1)],
        drop_param("dtype", None),
    ),
    "array or number": (
        scale,
        [into(ones(4), 2.0, tack.f32), into(ones(4), ones(4), tack.f32)],
        drop_param("is_array", None),
    ),
    "extents of a texture": (
        sampled,
        [of_extents(2, 3, 4), of_extents(4, 3, 2)],
        # The extents are in the shapes too, as in the reference.
        lambda key: drop_param("texture_shape", None)(key._replace(shapes=())),
    ),
    "vectors": (
        norms,
        [of_vectors(tack.vec2), of_vectors(tack.vec3)],
        lambda key: key._replace(vectors=()),
    ),
    "shapes: a stride": (column, [of_width(2), of_width(3)], lambda key: key._replace(shapes=())),
    "shapes: extents": (
        length,
        [of_shape(4), of_shape(5), of_shape(5, 1)],
        lambda key: key._replace(shapes=()),
    ),
    "shapes: dimensions": (
        length,
        [of_shape(5), of_shape(5, 1)],
        lambda key: key._replace(shapes=key.shapes[:3]),
    ),
    "disjoint": (twice, [aliased(False), aliased(True)], lambda key: key._replace(disjoint=False)),
    "debug mode's parameters and shapes": (
        divide,
        [by_zero(False), by_zero(True)],
        # Without them only the number of arguments tells, and that the code was made for another.
        lambda key: key._replace(params=key.params[:2], shapes=()),
    ),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_an_element_of_the_variants_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, calls, mutation = ELEMENTS[name]
    assert check(make, calls)
    key_of = variants.key_of
    blind = blind_to(mutation)
    monkeypatch.setattr(variants, "key_of", lambda *args: blind(*key_of(*args)))
    assert not check(make, calls)


# --- the template's part of it ----------------------------------------------------------------


def classes(factor: int) -> tuple[type, Any, Any]:
    """A device class, and two device functions, of a source of their own."""
    constant = tack.constant(factor)

    @tack.func
    def add(v):
        return v + constant

    @tack.func
    def more(v):
        return v + 10 * constant

    @tack.device_class
    class C:
        value = 2

        @tack.func
        def get(self, v):
            return v * constant

        def __init__(self, **attributes: Any) -> None:
            self.__dict__.update(attributes)

    return C, add, more


ONE, ADD, MORE = classes(1)
TWO, _, _ = classes(2)


def build(read: str) -> Make:
    def make() -> tack.Kernel:
        made: dict[str, tack.Kernel] = {}
        for kernel in READERS:
            made[kernel.__name__] = tack.kernel(kernel)
        return made[read]

    return make


def reads_method(out, c):
    for i in range(1):
        out[i] = c.get(5)


def reads_value(out, c):
    for i in range(1):
        out[i] = 1.0 / c.value


def squares_value(out, c):
    for i in range(1):
        out[i] = c.value * c.value


def scales_value(out, c):
    for i in range(1):
        out[i] = c.x * c.value


def reads_array(out, c):
    for i in range(1):
        out[i] = c.a[0] + c.a.size


def reads_function(out, c):
    for i in range(1):
        out[i] = c.f(5)


def reads_nested(out, c):
    for i in range(1):
        out[i] = c.part.value


def reads_scalar(out, c):
    for i in range(1):
        out[i] = c.x


READERS = (
    reads_method,
    reads_value,
    squares_value,
    scales_value,
    reads_array,
    reads_function,
    reads_nested,
    reads_scalar,
)


def given(*instance: Any, **attributes: Any) -> Call:
    (cls,) = instance

    def call(kernel: tack.Kernel) -> Any:
        out = np.zeros(1, np.float64)
        kernel(out, cls(**attributes))
        return out

    return call


TOKEN, CONSTANTS, ARRAYS, SCALARS, FUNCS, NESTED = range(6)


def without(element: int) -> Callable[[Any], Any]:
    """Drops one element of the key of each instance."""

    def drop(key: Any) -> Any:
        return key and tuple((k, tuple(None if n == element else v for n, v in enumerate(i))) for k, i in key)

    return drop


def constants(*fields: int) -> Callable[[Any], Any]:
    """Drops these fields of each constant: its name, type, dtype, bits."""

    def strip(constant: Any) -> Any:
        return tuple(None if k in fields else v for k, v in enumerate(constant))

    def drop(key: Any) -> Any:
        return key and tuple((k, (i[0], tuple(map(strip, i[1])), *i[2:])) for k, i in key)

    return drop


SMALL = tack.full(3, 4.0)
TEMPLATES: dict[str, tuple[str, list[Call], Callable[[Any], Any]]] = {
    "class": ("reads_method", [given(ONE), given(TWO)], without(TOKEN)),
    "constants": ("reads_value", [given(ONE), given(ONE, value=4)], without(CONSTANTS)),
    "a constant's bits": ("reads_value", [given(ONE, value=0.0), given(ONE, value=-0.0)], constants(3)),
    "a constant's dtype": (
        "squares_value",
        [given(ONE, value=tack.constant(10**5)), given(ONE, value=tack.constant(10**5, tack.i64))],
        constants(2),
    ),
    # Of arrays the names and elements. The shapes are in the key as in the reference, although those
    # that code depends on are among the variant's `shapes` too.
    "arrays": (
        "reads_array",
        [given(ONE, a=SMALL, b=tack.ones(3)), given(ONE, B=tack.ones(3), a=SMALL)],
        without(ARRAYS),
    ),
    "an array's elements": (
        "reads_array",
        [given(ONE, a=SMALL), given(ONE, a=tack.ones(3, tack.vec2))],
        without(ARRAYS),
    ),
    "functions": ("reads_function", [given(ONE, f=ADD), given(ONE, f=MORE)], without(FUNCS)),
    "nested instances": (
        "reads_nested",
        [given(ONE, part=ONE()), given(ONE, part=ONE(value=3))],
        without(NESTED),
    ),
    "scalars": ("reads_scalar", [given(ONE, x=3, y=4), given(ONE, a=3, x=4)], without(SCALARS)),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_element_of_the_templates_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, calls, mutation = TEMPLATES[name]
    assert check(build(read), calls)
    taken_apart = expand._taken_apart

    def mutated(*args: Any) -> Any:
        call = taken_apart(*args)
        return replace(call, key=mutation(call.key))

    monkeypatch.setattr(expand, "_taken_apart", mutated)
    assert not check(build(read), calls)


def test_constants_by_value_would_take_one_zero_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = [given(ONE, value=0.0), given(ONE, value=-0.0)]
    numbers = [given(ONE, value=10**5, x=10**5), given(ONE, value=1e5, x=10**5)]
    assert check(build("reads_value"), zeros)
    assert check(build("scales_value"), numbers)
    monkeypatch.setattr(device_class, "_bits", lambda value: value)
    assert not check(build("reads_value"), zeros)
    # Then the type alone would tell an integer from a float of the same value.
    taken_apart = expand._taken_apart
    drop = constants(1)

    def mutated(*args: Any) -> Any:
        call = taken_apart(*args)
        return replace(call, key=drop(call.key))

    monkeypatch.setattr(expand, "_taken_apart", mutated)
    assert not check(build("scales_value"), numbers)


def test_constants_by_value_would_never_find_a_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    def count() -> int:
        kernel = build("reads_value")()
        for _ in range(3):
            given(ONE, value=float("nan"))(kernel)
        return len(default_backend().cache[kernel].variants)

    assert count() == 1
    monkeypatch.setattr(device_class, "_bits", lambda value: value)
    assert count() == 3


# --- the template cache -----------------------------------------------------------------------


def test_without_vectors_in_the_templates_key_another_width_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [of_vectors(tack.vec2), of_vectors(tack.vec3)]
    lowered = tack.Kernel.lowered
    templates: dict[tack.Kernel, Any] = {}

    def mutated(self: tack.Kernel, elements: Any = (), key: Any = None, layouts: Any = None) -> Any:
        return templates.setdefault(self, lowered(self, elements, key, layouts))

    monkeypatch.setattr(tack.Kernel, "lowered", mutated)
    assert not check(norms, calls)


# --- slots and lifetimes ----------------------------------------------------------------------


def test_a_slot_by_name_would_run_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(factor: int) -> tack.Kernel:
        factor = tack.constant(factor)

        @tack.kernel
        def same(out):
            for i in range(1):
                out[i] = factor

        return same

    def results() -> list[float]:
        out = tack.zeros(1)
        found = []
        for factor in (1, 2):
            make(factor)(out)
            found.append(float(out[0]))
        return found

    assert results() == [1, 2]
    slots: dict[str, variants.Slot] = {}
    monkeypatch.setattr(
        variants, "slot_of", lambda _, kernel: slots.setdefault(kernel.__name__, variants.Slot())
    )
    assert results() == [1, 1]
