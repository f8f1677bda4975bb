"""Device classes: what each attribute becomes, methods, iteration, and when a call compiles again."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack
from tack.runtime.dispatch import default_backend

from .helpers import Rejection, build, execute

Rejects = Callable[..., Rejection]
SYNTAX = tack.UnsupportedSyntaxError


def variants(kernel: Any) -> int:
    """How many variants the default backend holds of a kernel."""
    slot = default_backend().cache.get(kernel)
    return 0 if slot is None else len(slot.variants)


def counts(kernel: Any) -> tuple[int, int]:
    """Variants and templates."""
    return variants(kernel), len(kernel.templates())


def floats(values: Any) -> tack.Array:
    return tack.asarray(np.array(values, np.float32), copy=True)


# --- the reference's worked examples ----------------------------------------------------------

SCALED = """
@tack.device_class
class Scaled:
    factor = 2.0
    def __init__(self, offset, data):
        self.offset = offset
        self.data = data
    @tack.func
    def value(self, i):
        return self.data[i] * self.factor + self.offset
"""
APPLY = """
@tack.kernel
def apply(s, out):
    for i in range(out.shape[0]):
        out[i] = s.value(i)
"""


def test_the_worked_example_of_device_classes() -> None:
    space = execute(SCALED + APPLY)
    apply, make = space["apply"], space["Scaled"]
    out = floats([0, 0])
    s = make(1.0, floats([1, 2, 3, 4]))
    apply(s, out)
    assert (counts(apply), out.numpy().tolist()) == ((1, 1), [3, 5])
    s.offset = 10.5
    apply(s, out)
    assert (counts(apply), out.numpy().tolist()) == ((1, 1), [12.5, 14.5])
    s.data = floats([1, 2, 3])
    apply(s, out)
    assert (counts(apply), out.numpy().tolist()) == ((2, 2), [12.5, 14.5])
    s.factor = 3.0
    apply(s, out)
    assert (counts(apply), out.numpy().tolist()) == ((3, 3), [13.5, 16.5])

    def with_a_class_of_its_own() -> None:
        local = execute(SCALED)["Scaled"]
        other = local(1.0, floats([1, 2, 3]))
        other.factor = 3.0
        apply(other, out)
        assert (counts(apply), out.numpy().tolist()) == ((4, 4), [4, 7])

    with_a_class_of_its_own()
    gc.collect()
    assert counts(apply) == (3, 3)
    apply(s, out)
    assert (counts(apply), out.numpy().tolist()) == ((3, 3), [13.5, 16.5])


def test_the_worked_example_of_vector_widths() -> None:
    norms = build(
        """
@tack.kernel
def norms(v, out):
    for i in range(out.shape[0]):
        out[i] = v[i].dot(v[i])
""",
        "norms",
    )
    for count, width in enumerate((2, 3), 1):
        x = np.arange(4 * width, dtype=np.float32).reshape(4, width)
        out = tack.zeros(4)
        norms(tack.asarray(x, dtype=tack.vector(width, tack.f32)), out)
        assert counts(norms) == (count, count)
        assert out.numpy().tolist() == (x * x).sum(1).tolist()


@pytest.mark.f64
def test_the_worked_example_of_scalars() -> None:
    scale = build(
        "@tack.kernel\ndef scale(x, out, a):\n    for i in range(x.shape[0]):\n        out[i] = x[i] * a\n",
        "scale",
    )
    for length in (8, 16, 32):
        scale(tack.zeros(length), tack.zeros(length), 2.0)
    x, o = tack.ones(8), tack.zeros(8)
    found = [variants(scale)]
    d = tack.ones(8, tack.f64)
    for args in ((x, o, 3.5), (x, o, 3), (x, o, 2**40), (d, tack.zeros(8, tack.f64), 2.0), (x, x, 2.0)):
        scale(*args)
        found.append(variants(scale))
    assert found == [1, 1, 2, 3, 4, 5 if tack.default_device()._backend.specializes_disjoint else 4]


# --- when a change compiles again -------------------------------------------------------------

SHAPE = """
@tack.func
def double(x):
    return 2 * x

@tack.func
def negate(x):
    return -x

@tack.device_class
class Inner:
    def __init__(self, gain):
        self.gain = gain

@tack.device_class
class Shape:
    power = 2
    def __init__(self):
        self.scale = 1.5
        self.count = 3
        self.data = tack.asarray(np.ones(4, np.float32))
        self.points = tack.asarray(np.ones((4, 3), np.float32), dtype=tack.vec3)
        self.inner = Inner(10.0)
        self.shade = double
        self._hidden = 5
        self.label = "ignored"

@tack.kernel
def kernel(s, out):
    for i in range(1):
        total = s.data[0] * s.scale + s.count * s.power + s.inner.gain
        out[0] = s.shade(total + s.points[1].x)
"""


@pytest.mark.f64
def test_what_compiles_again() -> None:
    space = execute(SHAPE)
    kernel, s = space["kernel"], space["Shape"]()
    out = tack.zeros(1, tack.f64)

    def call() -> tuple[int, int]:
        kernel(s, out)
        return counts(kernel)

    assert call() == (1, 1)
    assert out.numpy()[0] == 2 * (1.5 + 6 + 10 + 1)
    s.scale, s.count, s.inner.gain = -2.5, 7, 1.0  # run-time scalars
    s._hidden, s.label, s._new = "x", None, 3  # ignored
    s.data = tack.full(4, 2.0)  # another array of the same type and shape
    assert call() == (1, 1)
    assert out.numpy()[0] == 2 * (-5 + 14 + 1 + 1)
    s.count = 2**40  # its inferred type changes: a variant, of the same template
    assert call() == (2, 1)
    s.count = 3
    assert call() == (2, 1)
    s.scale = 3
    assert call() == (3, 1)
    s.scale = 1.5
    s.extra = 4  # the set of names changes
    assert call() == (4, 2)
    del s.extra
    s.data = tack.ones(5)  # full shape
    assert call() == (5, 3)
    s.data = tack.ones((2, 2))
    assert call() == (6, 4)
    s.data = tack.ones(4, tack.i16)  # dtype
    assert call() == (7, 5)
    s.data = tack.ones(4)
    s.points = tack.ones(4, tack.vec2)  # vector width
    assert call() == (8, 6)
    s.points = tack.ones(4, tack.vec3)
    s.power = 3  # an instance attribute that shadows a constant
    assert call() == (9, 7)
    assert out.numpy()[0] == 2 * (1.5 + 9 + 1 + 1)
    s.power = 3.0  # the same value of another type
    assert call() == (10, 8)
    s.power = 0.0
    assert call() == (11, 9)
    s.power = -0.0  # another bit pattern
    assert call() == (12, 10)
    s.power = math.nan
    assert call() == (13, 11)
    s.power = float("nan")  # a NaN is equal to itself here
    assert call() == (13, 11)
    del s.power
    s.shade = space["negate"]
    assert call() == (14, 12)
    assert out.numpy()[0] == -(1.5 + 6 + 1 + 1)
    s.shade = space["double"]
    s.inner.other = 1  # the nested structure
    assert call() == (15, 13)
    del s.inner.other
    assert call() == (15, 13)
    assert out.numpy()[0] == 2 * (1.5 + 6 + 1 + 1)


def test_class_constants_are_read_at_each_call() -> None:
    space = execute(
        """
@tack.device_class
class C:
    k = 3
@tack.kernel
def kernel(c, o):
    for i in range(1):
        o[0] = c.k / 2
"""
    )
    kernel, cls = space["kernel"], space["C"]
    o, c = tack.zeros(1), cls()
    found = []
    for value in (3, 5, 3.0, 3, tack.constant(7), tack.constant(7, tack.u8), tack.constant(7, tack.i8)):
        cls.k = value
        kernel(c, o)
        found.append((*o.numpy().tolist(), variants(kernel)))
    assert found == [(1.5, 1), (2.5, 2), (1.5, 3), (1.5, 3), (3.5, 4), (3.5, 5), (3.5, 6)]


def test_two_classes_of_one_name_and_two_objects_of_one_class() -> None:
    source = """
@tack.device_class
class C:
    def __init__(self, a):
        self.a = a
    @tack.func
    def f(self):
        return self.a + {}
"""
    first, second = (execute(source.format(k))["C"] for k in (1, 100))
    kernel = build(
        "@tack.kernel\ndef kernel(p, q, o):\n    for i in range(1):\n        o[0] = p.f() * 1000 + q.f()\n"
    )
    o = tack.zeros(1, tack.i32)
    for p, q, expected in (
        (first(1), first(2), 2003),
        (first(1), second(2), 2102),
        (second(1), first(2), 101003),
    ):
        kernel(p, q, o)
        assert o.numpy().tolist() == [expected]
    assert variants(kernel) == 3
    same = first(5)
    kernel(same, same, o)
    assert (o.numpy().tolist(), variants(kernel)) == ([6006], 3)


RETIRED = {
    "plain": "return self.k",
    "its own class in a closure": "return self.k + HELPER.x",
    "another method": "return self.twice() // 2",
}


@pytest.mark.parametrize("name", RETIRED)
def test_a_collected_class_takes_its_variants_along(name: str) -> None:
    kernel = build("@tack.kernel\ndef kernel(c, o):\n    for i in range(1):\n        o[0] = c.f()\n")
    source = f"""
HELPER = tack.constant((0, 1))
def make():
    @tack.device_class
    class C:
        k = 3
        @tack.func
        def f(self):
            {RETIRED[name]}
        @tack.func
        def twice(self):
            return 2 * self.k
        def use(self):
            return C
        @tack.kernel
        def own(self, o):
            for i in range(1):
                o[0] = self.f()
    return C
"""
    o = tack.zeros(1, tack.i32)
    refs = []
    for _ in range(3):
        cls = execute(source)["make"]()
        c = cls()
        kernel(c, o)
        c.own(o)
        assert o.numpy().tolist() == [3]
        refs.append(weakref.ref(cls))
        del cls, c
        gc.collect()
        assert counts(kernel) == (0, 0)
    assert [ref() for ref in refs] == [None] * 3


def test_a_collected_function_attribute_takes_its_variants_along() -> None:
    space = execute(
        """
@tack.device_class
class C:
    pass
@tack.kernel
def kernel(c, o):
    for i in range(1):
        o[0] = c.f(3)
"""
    )
    kernel, c, o = space["kernel"], space["C"](), tack.zeros(1, tack.i32)
    for k in range(3):
        c.f = build(f"@tack.func\ndef f(x):\n    return x + {k}\n", "f")
        kernel(c, o)
        assert o.numpy().tolist() == [3 + k]
    c.f = None
    gc.collect()
    assert counts(kernel) == (0, 0)


def test_a_nested_class_retires_the_outer_ones_templates() -> None:
    space = execute(
        """
@tack.device_class
class C:
    pass
@tack.kernel
def kernel(c, o):
    for i in range(1):
        o[0] = c.part.k
"""
    )
    kernel, c, o = space["kernel"], space["C"](), tack.zeros(1, tack.i32)
    c.part = execute("@tack.device_class\nclass D:\n    k = 7\n")["D"]()
    kernel(c, o)
    assert (o.numpy().tolist(), counts(kernel)) == ([7], (1, 1))
    del c.part
    gc.collect()
    assert counts(kernel) == (0, 0)


# --- attributes -------------------------------------------------------------------------------

INHERITED = """
class Undecorated:
    depth = 1
    width = 10
    def __init__(self):
        self.inherited = 0.25

@tack.device_class
class Base(Undecorated):
    width = 20
    @tack.func
    def name(self):
        return 1
    @tack.func
    def call(self):
        return self.name() * 1000 + self.width + self.depth

@tack.device_class
class Left(Base):
    @tack.func
    def name(self):
        return 2

@tack.device_class
class Right(Base):
    depth = 3
    @tack.func
    def name(self):
        return 3

class Both(Left, Right):
    pass

class Hides(Base):
    width = None
    @tack.func
    def call(self):
        return self.depth

@tack.kernel
def kernel(c, o):
    for i in range(1):
        o[0] = c.call() + c.inherited
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Base", 1021.25), ("Left", 2021.25), ("Right", 3023.25), ("Both", 2023.25), ("Hides", 1.25)],
)
def test_inheritance_follows_the_method_resolution_order(name: str, expected: float) -> None:
    space = execute(INHERITED)
    o = tack.zeros(1)
    space["kernel"](space[name](), o)
    assert o.numpy().tolist() == [expected]


@pytest.mark.f64
def test_numbers_of_every_kind() -> None:
    source = """
@tack.device_class
class C:
    flag = True
    half = np.float32(0.5)
    many = np.int64(2**40)
    truth = np.True_
    weak = 0.1
    typed = tack.constant(200, tack.u8)
    weak_constant = tack.constant(0.1)
    def __init__(self):
        self.on = False
        self.i8 = np.int8(-5)
        self.f64 = np.float64(1.5)
        self.b = np.bool_(True)
        self.c = tack.constant(4)

@tack.kernel
def kernel(c, o):
    for i in range(1):
        o[0] = c.flag + c.flag
        o[1] = c.half
        o[2] = c.many // 3
        o[3] = c.truth + 1
        o[4] = c.weak
        o[5] = c.typed + c.typed
        o[6] = c.weak_constant
        o[7] = c.on + 1
        o[8] = c.i8 // 2
        o[9] = c.f64
        o[10] = c.b * 3
        o[11] = c.c * c.c
"""
    space = execute(source)
    o = tack.zeros(12, tack.f64)
    space["kernel"](space["C"](), o)
    assert o.numpy().tolist() == [2, 0.5, 2**40 // 3, 2, 0.1, 400 % 256, 0.1, 1, -3, 1.5, 3, 16]


@pytest.mark.f64
def test_an_f64_array_inside_makes_the_floats_f64() -> None:
    """[L4] "any array argument is f64" counts arrays inside device classes, and types their floats."""
    source = """
@tack.device_class
class C:
    def __init__(self, data):
        self.data = data
        self.x = 0.1

@tack.kernel
def kernel(c, y, o):
    for i in range(1):
        o[0] = bitcast(tack.f32(c.x + y), tack.i32)
        o[1] = 10 * (c.x * 3 == y * 3 and c.x + y - 0.2 < 1e-12) + (c.x * 3 - 0.3 > 1e-17)
"""
    space = execute(source)
    o = tack.zeros(2, tack.i64)
    for dtype, is_double in ((tack.f32, False), (tack.f64, True), (tack.dvec2, True), (tack.vec2, False)):
        space["kernel"](space["C"](tack.zeros(3, dtype)), 0.1, o)
        three = 0.1 * 3 - 0.3 if is_double else float(np.float32(0.1) * np.float32(3) - np.float32(0.3))
        assert o.numpy()[1] == 10 * 1 + (three > 1e-17), dtype


def test_slots() -> None:
    source = """
class Base:
    __slots__ = ("a", "_private", "unset")

@tack.device_class
class Slotted(Base):
    __slots__ = ["data", "inner"]
    k = 4
    @tack.func
    def value(self, i):
        return self.data[i] + self.a * self.k

@tack.device_class
class One:
    __slots__ = "only"

@tack.kernel
def kernel(s, o):
    for i in range(o.shape[0]):
        o[i] = s.value(i) + s.inner.only
"""
    space = execute(source)
    s, one, o = space["Slotted"](), space["One"](), tack.zeros(3)
    s.a, s._private, s.data, s.inner, one.only = 2, "x", floats([1, 2, 3]), one, 0.5
    space["kernel"](s, o)
    assert o.numpy().tolist() == [9.5, 10.5, 11.5]


ARRAYS = """
@tack.device_class
class Particles:
    dt = 0.5
    def __init__(self, x, v, hits):
        self.x, self.v, self.hits = x, v, hits

    @tack.func
    def step(self, i):
        self.x[i] += self.v[i] * self.dt
        tack.atomic_add(self.hits, i % len(self.hits), 1)
        self.v[i].y = -self.v[i].y
        return self.x[i]

    @tack.kernel
    def run(self, out):
        for i in range(self.x.shape[0]):
            out[i] = self.step(i).length() + self.x.size + self.x.ndim + len(self.v)
"""


def test_arrays_inside_are_stored_to_and_updated() -> None:
    space = execute(ARRAYS)
    rng = np.random.default_rng(1)
    x, v = rng.integers(-9, 9, (2, 5, 2)).astype(np.float32)
    p = space["Particles"](
        tack.asarray(x, dtype=tack.vec2, copy=True),
        tack.asarray(v, dtype=tack.vec2, copy=True),
        tack.zeros(2, tack.i32),
    )
    out = tack.zeros(5)
    p.run(out)
    moved = x + v / 2
    np.testing.assert_allclose(out.numpy(), np.linalg.norm(moved, axis=1) + 5 + 1 + 5, rtol=1e-6)
    assert (p.x.numpy() == moved).all()
    assert (p.v.numpy() == v * [1, -1]).all()
    assert p.hits.numpy().tolist() == [3, 2]


def test_a_read_only_array_inside_is_refused() -> None:
    space = execute(ARRAYS)
    memory = tack.zeros(3, tack.vec2)
    x = tack.array_from_ptr(memory._backend.pointer(memory), tack.vec2, 3, owner=memory)
    p = space["Particles"](x, tack.zeros(3, tack.vec2), tack.zeros(1, tack.i32))
    with pytest.raises(ValueError, match=r"p?self\.x.*read-only|read-only.*x"):
        p.run(tack.zeros(3))


NESTED = """
@tack.device_class
class Material:
    shininess = 2
    def __init__(self, albedo):
        self.albedo = albedo
    @tack.func
    def shade(self, light):
        return self.albedo * light ** self.shininess

@tack.device_class
class Sphere:
    def __init__(self, radius, material):
        self.radius = radius
        self.material = material
    @tack.func
    def value(self, light):
        return self.material.shade(light) + self.radius

@tack.device_class
class Scene:
    def __init__(self, near, far, weights):
        self.near, self.far, self.weights = near, far, weights
    @tack.func
    def total(self, i):
        return combine(self.near, self.far.material, i) + self.near.value(self.weights[i])

@tack.func
def combine(sphere, material, i):
    return 100 * sphere.radius + material.albedo * i

@tack.kernel
def render(scene, out):
    for i in range(out.shape[0]):
        out[i] = scene.total(i) + scene.far.material.shade(2.0)
"""


def test_nested_instances_and_instances_as_arguments_of_functions() -> None:
    space = execute(NESTED)
    sphere, material = space["Sphere"], space["Material"]
    shared = material(3.0)
    for far in (sphere(5.0, material(4.0)), sphere(5.0, shared)):
        scene = space["Scene"](sphere(2.0, shared), far, floats([1, 2, 3]))
        out = tack.zeros(3)
        space["render"](scene, out)
        a = far.material.albedo
        assert out.numpy().tolist() == [200 + a * i + 3 * w * w + 2 + a * 4 for i, w in enumerate((1, 2, 3))]
    assert counts(space["render"]) == (1, 1)


METHODS = """
@tack.func
def free(x):
    return x + 0.5

@tack.device_class
class M:
    def __init__(self, a):
        self.a = a
        self.shade = free

    @tack.func
    def add(self, x, y=10):
        return self.a + x + y

    @staticmethod
    @tack.func
    def static(x):
        return x * 3

    @tack.func
    def length(self):
        return 7

    @tack.func
    def several(self, v):
        if v.x > 0:
            return self.a, v.yx
        return 0, v

    @tack.func
    def _helper(self):
        return self.static(self.add(1))

    def host(self):
        return 1

@tack.kernel
def kernel(m, o):
    for i in range(1):
        o[0] = m.add(1)
        o[1] = m.add(1, 2)
        o[2] = m.static(4)
        o[3] = m.shade(1)
        o[4] = m.length()
        o[5] = m._helper()
        k, w = m.several([1, 2])
        o[6] = k * 100 + w.x * 10 + w.y
        m.add(m.add(1), m.add(2))
"""


def test_methods() -> None:
    space = execute(METHODS)
    o = tack.zeros(7)
    space["kernel"](space["M"](5), o)
    assert o.numpy().tolist() == [16, 8, 12, 1.5, 7, 48, 521]


def test_kernels_as_methods_both_ways() -> None:
    source = """
@tack.device_class
class Grid:
    def __init__(self, n):
        self.cells = tack.zeros(n)

    @tack.kernel
    def step(self, dt, times=1) -> float:
        for i in range(self.cells.shape[0]):
            self.cells[i] += dt * times
        return self.cells[0]

class Finer(Grid):
    @tack.kernel
    def step(self, dt) -> float:
        for i in range(self.cells.shape[0]):
            self.cells[i] -= dt
        return self.cells[0]
"""
    space = execute(source)
    grid, fine = space["Grid"](4), space["Finer"](4)
    assert grid.step(0.5) == 0.5
    assert space["Grid"].step(grid, 0.5) == 1
    assert grid.step(dt=0.25, times=4) == 2
    assert space["Grid"].step(grid, times=2, dt=1.0) == 4
    assert grid.cells.numpy().tolist() == [4] * 4
    assert fine.step(1.0) == -1
    assert space["Grid"].step(fine, 1.0) == 0
    assert counts(space["Grid"].step) == (2, 2)


# --- iteration --------------------------------------------------------------------------------


def test_iterating_over_one_extent_gives_an_integer() -> None:
    for named in ('"n"', '("n",)', '["n"]'):
        source = f"""
@tack.device_class
class Line:
    __tack_iterate__ = {named}
    def __init__(self, n):
        self.n = n

@tack.kernel
def kernel(line, o):
    for i in line:
        o[i] = i * 2 + 1
"""
        space = execute(source)
        for n in (5, 0, -3, 2):
            o = tack.zeros(5, tack.i32)
            space["kernel"](space["Line"](n), o)
            assert o.numpy().tolist() == [2 * i + 1 if i < n else 0 for i in range(5)]
        assert counts(space["kernel"]) == (1, 1)


BOX = """
@tack.device_class
class Box:
    __tack_iterate__ = ("nx", "ny", "nz")[:DIMENSIONS]
    nz = 2
    def __init__(self, nx, ny):
        self.nx, self.ny = nx, ny

    @tack.kernel
    def visit(self, o):
        for c in self:
            VISIT

    @tack.func
    def total(self):
        s = 0
        for c in self:
            s += c.x + 100 * c.y
        return s

@tack.kernel
def inner(box, o):
    for i in range(1):
        o[0] = box.total()
        for c in box:
            if c.y == 2:
                break
            o[1] += c.x + 100 * c.y
"""


VISITS = {
    2: "o[c.y, c.x] += 1 + c.x + 100 * c[1]",
    3: "o[c[-1], c.y, c.x] += 1 + c.x + 100 * c.y + 10000 * c[2]",
}


def box(dimensions: int) -> str:
    return BOX.replace("DIMENSIONS", str(dimensions)).replace("VISIT", VISITS[dimensions])


@pytest.mark.parametrize("dimensions", [2, 3])
def test_iterating_over_more_extents_gives_the_index_vector(dimensions: int) -> None:
    """The first name is the fastest: component x, the last axis of an array of that shape."""
    space = execute(box(dimensions))
    for nx, ny in ((3, 4), (1, 1), (0, 3), (-3, -4), (3, -1), (5, 2)):
        shape = (2, 4, 5)[3 - dimensions :]
        o = tack.zeros(shape, tack.i32)
        space["Box"](nx, ny).visit(o)
        model = np.zeros(shape, np.int32)
        z, y, x = np.indices((2, 4, 5))
        inside = ((x < nx) & (y < ny))[: 1 if dimensions == 2 else 2]
        full = (1 + x + 100 * y + (10000 * z if dimensions == 3 else 0))[: 1 if dimensions == 2 else 2]
        model += np.where(inside, full, 0).reshape(shape).astype(np.int32)
        assert (o.numpy() == model).all(), (nx, ny)


def test_iterating_inside_the_parallel_loop() -> None:
    space = execute(box(2))
    o = tack.zeros(2, tack.i64)
    space["inner"](space["Box"](3, 4), o)
    cells = [(x, y) for y in range(4) for x in range(3)]
    assert o.numpy().tolist() == [
        sum(x + 100 * y for x, y in cells),
        sum(x + 100 * y for x, y in cells if y < 2),
    ]


def test_bounds_from_attributes() -> None:
    source = """
@tack.device_class
class C:
    pad = 1
    def __init__(self, n):
        self.n = n
        self.data = tack.zeros(7)
        self.h = 2.9

@tack.device_class
class Outer:
    def __init__(self, c):
        self.c = c

@tack.kernel
def scalar(c, o):
    m = c.n - c.pad
    for i in range(c.pad, m * 2):
        o[i] = 1

@tack.kernel
def shape(c, o):
    for i in range(c.data.shape[0] - int(c.h)):
        o[i] = 1

@tack.kernel
def nested(outer, o):
    for i, j in tack.ndindex(outer.c.n, (outer.c.pad, len(outer.c.data))):
        tack.atomic_add(o, i, 1)

@tack.kernel
def real(c, o):
    for i in range(c.h):
        o[i] = 1
"""
    space = execute(source)
    for n in (4, 6, -3):
        c = space["C"](n)
        for name, arg, expected in (
            ("scalar", c, [int(1 <= i < 2 * (n - 1)) for i in range(10)]),
            ("shape", c, [int(i < 5) for i in range(10)]),
            ("nested", space["Outer"](c), [6 * (i < n) for i in range(10)]),
        ):
            o = tack.zeros(10, tack.i32)
            space[name](arg, o)
            assert o.numpy().tolist() == expected, name
            assert variants(space[name]) == 1
    with pytest.raises(TypeError, match="integer"):
        space["real"](space["C"](3), tack.zeros(10))


def test_vectors_of_attributes_and_textures_of_methods() -> None:
    source = """
@tack.device_class
class Ray:
    def __init__(self, ox, oy, dirs):
        self.ox, self.oy, self.dirs = ox, oy, dirs
    @tack.func
    def origin(self):
        return [self.ox, self.oy, 0.0]
    @tack.func
    def at(self, i, t: tack.f32):
        return self.origin() + self.dirs[i].normalized() * t

@tack.kernel
def kernel(ray, o):
    for i in range(o.shape[0]):
        o[i] = ray.at(i, 2)
"""
    space = execute(source)
    o = tack.zeros(2, tack.vec3)
    dirs = np.array([[3, 0, 4], [0, 2, 0]], np.float32)
    space["kernel"](space["Ray"](1.0, -1, tack.asarray(dirs, dtype=tack.vec3)), o)
    np.testing.assert_allclose(o.numpy(), [[1 + 1.2, -1, 1.6], [1, 1, 0]], rtol=1e-6)


# --- refusals ---------------------------------------------------------------------------------

HEAD = """
@tack.func
def helper(o):
    return o.missing_too

@tack.device_class
class Part:
    def __init__(self):
        self.k = 1

@tack.device_class
class Thing:
    constant = 3
    def __init__(self):
        self.x = 1.0
        self.data = tack.zeros(4)
        self.points = tack.zeros(4, tack.vec3)
        self.part = Part()
        self.names = ["a"]
        self.shade = helper
        self._private = 1
    @property
    def prop(self):
        return 1
    def plain(self):
        return 1
    @classmethod
    def made(cls):
        return 1
    @staticmethod
    def static_plain():
        return 1
    @tack.func
    def method(self, a):
        return a
    @tack.func
    def recursive(self, a):
        return {recursive}
    @tack.kernel
    def launch(self):
        for i in range(1):
            pass

@tack.kernel
def kernel(thing, o):
    for i in range(1):
        {statement}
"""
REFUSED: dict[str, tuple[type[Exception], str, str]] = {
    "unknown attribute": (ValueError, "o[0] = «thing.y»", "y"),
    "misspelled attribute": (ValueError, "o[0] = «thing.constnat»", "constant"),
    "unknown nested attribute": (ValueError, "o[0] = «thing.part.z»", "z"),
    "unknown method": (ValueError, "o[0] = «thing.nothing»(1)", "nothing"),
    "private attribute": (ValueError, "o[0] = «thing._private»", "underscore"),
    "other type": (ValueError, "o[0] = «thing.names»", "names"),
    "property": (ValueError, "o[0] = «thing.prop»", "property"),
    "plain method": (ValueError, "o[0] = «thing.plain»()", "@tack.func"),
    "class method": (ValueError, "o[0] = «thing.made»()", "made"),
    "plain static method": (ValueError, "o[0] = «thing.static_plain»()", "@tack.func"),
    "kernel called in a kernel": (ValueError, "«thing.launch»()", "launch"),
    "store to an attribute": (SYNTAX, "«thing.x» = 1", "attribute"),
    "augmented store to an attribute": (SYNTAX, "«thing.x» += 1", "attribute"),
    "store in a tuple": (SYNTAX, "a, «thing.x» = 1, 2", "attribute"),
    "store to a constant": (SYNTAX, "«thing.constant» = 1", "attribute"),
    "store to a nested attribute": (SYNTAX, "«thing.part.k» = 1", "attribute"),
    "store to a new attribute": (SYNTAX, "«thing.fresh» = 1", "attribute"),
    "loop variable": (SYNTAX, "for «thing.x» in range(3):\n            pass", "variable"),
    "object as a number": (TypeError, "o[0] = «thing» + 1", "object"),
    "part as a number": (TypeError, "o[0] = «thing.part»", "number"),
    "array as a number": (TypeError, "o[0] = «thing.data» * 2", "[...]"),
    "function as a number": (TypeError, "o[0] = «thing.shade»", "number"),
    "index counts": (TypeError, "o[0] = «thing.data[0, 1]»", "1"),
    "number indexed": (SYNTAX, "o[0] = «thing.x[0]»", "number"),
    "width": (TypeError, "«o[0]» = thing.points[0]", "vector of 3"),
    "arity of a method": (TypeError, "o[0] = «thing.method()»", "method"),
    "iteration without extents": (ValueError, "for c in «thing»:\n            pass", "__tack_iterate__"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_place(name: str, rejects: Rejects) -> None:
    kind, statement, word = REFUSED[name]
    source = HEAD.replace("{statement}", statement).replace("{recursive}", "a")
    thing = execute(HEAD.replace("{statement}", "pass").replace("{recursive}", "a"))["Thing"]
    assert word in rejects(kind, source, thing(), np.zeros(2)).text


def test_recursive_methods_are_refused_with_the_chain() -> None:
    source = HEAD.replace("{statement}", "o[0] = thing.recursive(1)").replace(
        "{recursive}", "self.recursive(a)"
    )
    space = execute(source)
    with pytest.raises(SYNTAX, match="recursion: recursive -> recursive"):
        space["kernel"](space["Thing"](), tack.zeros(1))


def test_an_error_in_a_method_names_the_chain(tmp_path: Any) -> None:
    source = HEAD.replace("{statement}", "o[0] = thing.recursive(thing.x)").replace(
        "{recursive}", "a + self.nope"
    )
    path = tmp_path / "thing.py"
    path.write_text(source)
    space = execute(source, str(path))
    with pytest.raises(ValueError, match="nope") as caught:
        space["kernel"](space["Thing"](), tack.zeros(1))
    line = 1 + source.lstrip("\n").splitlines().index("        return a + self.nope")
    assert f"{path}:{line}:20" in str(caught.value)
    assert "in func 'Thing.recursive', called from kernel 'kernel'" in str(caught.value)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_an_object_that_contains_itself(length: int) -> None:
    space = execute(
        """
@tack.device_class
class Node:
    pass
@tack.kernel
def walk(node, o):
    for i in range(1):
        o[0] = 1
"""
    )
    ring = [space["Node"]() for _ in range(length)]
    for k, node in enumerate(ring):
        node.next = ring[(k + 1) % length]
    o = tack.zeros(1)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"walk.*itself"):
            space["walk"](ring[0], o)
    assert o.numpy().tolist() == [0]
    del ring[-1].next
    space["walk"](ring[0], o)
    assert o.numpy().tolist() == [1]


def test_flattened_names_that_collide() -> None:
    space = execute(
        """
@tack.device_class
class Node:
    pass
@tack.kernel
def walk(node, o):
    for i in range(1):
        o[0] = 1
"""
    )
    outer, inner = space["Node"](), space["Node"]()
    outer.a, inner.b = inner, 1
    setattr(outer, "a.b", 2)
    with pytest.raises(TypeError, match=r"a\.b"):
        space["walk"](outer, tack.zeros(1))


@pytest.mark.parametrize(
    "value", ['"n"', "()", '("a", "b", "c", "d")', "3", '("missing",)', '("data",)', '("h",)', '("_n",)']
)
def test_bad_iteration_is_refused(value: str) -> None:
    source = f"""
@tack.device_class
class C:
    __tack_iterate__ = {value}
    def __init__(self):
        self.a = self.b = self.c = self.d = 1
        self._n = 3
        self.h = 2.5
        self.data = tack.zeros(3)

@tack.kernel
def kernel(c, o):
    for i in c:
        o[0] = 1
"""
    space = execute(source)
    o = tack.zeros(1)
    with pytest.raises((ValueError, TypeError), match="kernel"):
        space["kernel"](space["C"](), o)
    assert o.numpy().tolist() == [0]


def test_arguments_that_are_no_instances(rejects: Rejects) -> None:
    space = execute(
        """
@tack.device_class
class C:
    k = 1
class Plain:
    k = 1
@tack.kernel
def read(c, o):
    for i in range(1):
        o[0] = c.k
"""
    )
    o = tack.zeros(1)
    for bad in (space["Plain"](), space["C"], None, object()):
        with pytest.raises(TypeError, match="'c'"):
            space["read"](bad, o)
    for other in (3, 1.5, tack.zeros(3)):
        with pytest.raises((TypeError, SYNTAX), match="read"):
            space["read"](other, o)
    assert o.numpy().tolist() == [0]


def test_the_decorator_takes_classes_only() -> None:
    for bad in (3, len, lambda: 1, None):
        with pytest.raises(TypeError, match="class"):
            tack.device_class(bad)


def test_a_constant_shadowed_by_something_else() -> None:
    space = execute(
        """
@tack.device_class
class C:
    k = 1
@tack.kernel
def read(c, o):
    for i in range(1):
        o[0] = c.k
"""
    )
    c = space["C"]()
    c.k = "text"
    with pytest.raises(TypeError, match="read"):
        space["read"](c, tack.zeros(1))


def test_no_code_of_the_object_runs() -> None:
    """Taking an instance apart reads its dictionary: no property, descriptor or ``__getattr__``."""
    source = """
@tack.device_class
class C:
    k = 2
    def __init__(self):
        self.a = 1
        self.log = []
    @property
    def danger(self):
        self.log.append("property")
        return 1
    def __getattr__(self, name):
        raise AssertionError(name)
    def __eq__(self, other):
        raise AssertionError
    def __hash__(self):
        raise AssertionError

@tack.kernel
def kernel(c, o):
    for i in range(1):
        o[0] = c.a + c.k
"""
    space = execute(source)
    c, o = space["C"](), tack.zeros(1)
    space["kernel"](c, o)
    assert (o.numpy().tolist(), c.log) == ([3], [])
