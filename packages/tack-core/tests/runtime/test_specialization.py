"""The reference's tables on specialization, row by row, on the public `Kernel.variants`."""

from __future__ import annotations

import gc
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import tack
from tack.ir import pipeline
from tack.runtime import prepare
from tack.runtime.disk import variants as stored


@pytest.fixture
def scale() -> tack.Kernel:
    @tack.kernel
    def scale(x, out, a):
        for i in range(x.shape[0]):
            out[i] = x[i] * a

    return scale


def arrays(n: int, dtype: tack.DType = tack.f32) -> tuple[tack.Array, tack.Array]:
    return tack.arange(n, dtype=dtype), tack.zeros(n, dtype)


def reasons(kernel: tack.Kernel) -> list[str]:
    return [variant.reason for variant in kernel.variants()]


# --- worked examples --------------------------------------------------------------------------


def test_worked_example_scale(scale: tack.Kernel) -> None:
    x8, o8 = arrays(8)
    rows: list[tuple[list[tuple[Any, ...]], int, str]] = [
        ([(x8, o8, 2.0), (*arrays(16), 2.0), (*arrays(32), 2.0)], 1, "first call"),
        ([(x8, o8, 3.5)], 1, "first call"),
        ([(x8, o8, 3)], 2, "dtype of a: f32 -> i32"),
        ([(x8, o8, 2**40)], 3, "dtype of a: i32 -> i64"),
        (
            [(*arrays(8, tack.f64), 2.0)],
            4,
            "dtype of x: f32 -> f64, dtype of out: f32 -> f64, dtype of a: i64 -> f64",
        ),
        ([(x8, x8, 2.0)], 5, "arrays disjoint: yes -> no"),
    ]
    for calls, count, reason in rows:
        for x, out, a in calls:
            expected = (x.numpy().astype(np.float64) * a).astype(x.dtype.numpy)
            scale(x, out, a)
            np.testing.assert_array_equal(out.numpy(), expected)
            found = scale.variants()
            assert len(found) == count
        assert found[-1].reason == reason
    assert [v.disjoint for v in scale.variants()] == [True, True, True, True, False]
    assert [v.params[2].dtype for v in scale.variants()] == [tack.f32, tack.i32, tack.i64, tack.f64, tack.f32]


def test_worked_example_a_length_in_the_body() -> None:
    @tack.kernel
    def reverse(x, out):
        for i in range(x.shape[0]):
            out[i] = x[x.shape[0] - 1 - i]

    for count, n in enumerate((8, 16, 32), 1):
        x, out = arrays(n)
        reverse(x, out)
        np.testing.assert_array_equal(out.numpy(), np.arange(n)[::-1])
        assert len(reverse.variants()) == count
    assert reasons(reverse)[1:] == [
        "shape baked in: x.shape[0] 8 -> 16",
        "shape baked in: x.shape[0] 16 -> 32",
    ]
    assert [v.shapes for v in reverse.variants()] == [(8,), (16,), (32,)]


def test_worked_example_the_length_as_a_scalar() -> None:
    @tack.kernel
    def reverse(x, out, n):
        for i in range(n):
            out[i] = x[n - 1 - i]

    for n in (8, 16, 32):
        x, out = arrays(n)
        reverse(x, out, n)
        np.testing.assert_array_equal(out.numpy(), np.arange(n)[::-1])
    assert len(reverse.variants()) == 1


def test_worked_example_two_dimensions() -> None:
    @tack.kernel
    def copy(a, out):
        for i, j in tack.ndindex(a.shape[0], a.shape[1]):
            out[i, j] = a[i, j]

    for shape, count in (((4, 8), 1), ((16, 8), 1), ((4, 9), 2)):
        a = np.random.default_rng(0).random(shape, np.float32)
        out = np.zeros(shape, np.float32)
        copy(a, out)
        np.testing.assert_array_equal(out, a)
        assert len(copy.variants()) == count
    assert reasons(copy)[1] == "shape baked in: a.shape[1] 8 -> 9, shape baked in: out.shape[1] 8 -> 9"


# --- baked-in dimensions ----------------------------------------------------------------------


def baked(kernel: tack.Kernel) -> set[str]:
    """The extents that the kernel's one variant holds, as it names them."""
    (variant,) = kernel.variants()
    return {word.split("=")[0] for word in variant.arguments.split(", ") if ".shape" in word}


def test_the_table_of_baked_in_dimensions() -> None:
    @tack.kernel
    def double(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i] * 2

    @tack.kernel
    def stencil(x, out):
        for i in range(1, x.shape[0] - 1):
            out[i] = x[i - 1] + x[i + 1]

    @tack.kernel
    def reverse(x, out):
        for i in range(x.shape[0]):
            out[i] = x[x.shape[0] - 1 - i]

    @tack.kernel
    def copy(a, out):
        for i, j in tack.ndindex(a.shape[0], a.shape[1]):
            out[i, j] = a[i, j]

    @tack.kernel
    def sample(tex, out):
        for i in range(out.shape[0]):
            out[i] = tex.sample(0.0, 0.5, 1.0)

    flat, square = (tack.ones(4), tack.zeros(4)), (tack.ones((2, 3)), tack.zeros((2, 3)))
    texture = tack.Texture3D(tack.ones((2, 3, 4)))
    rows: list[tuple[tack.Kernel, tuple[Any, ...], set[str]]] = [
        (double, flat, set()),
        (stencil, flat, set()),
        (reverse, flat, {"x.shape[0]"}),
        (copy, square, {"a.shape[1]", "out.shape[1]"}),
        (sample, (texture, flat[1]), {"tex.shape[0]", "tex.shape[1]", "tex.shape[2]"}),
    ]
    for kernel, args, expected in rows:
        kernel(*args)
        assert baked(kernel) == expected
    assert double.variants()[0].shapes == stencil.variants()[0].shapes == ()


# --- the key, component by component ----------------------------------------------------------


def test_the_table_of_a_parameters_components() -> None:
    @tack.kernel
    def sample(t, out, n, s, w):
        for i in range(n):
            out[i] = t.sample(0.0, 0.0, 0.0) * s + w

    texture = tack.Texture3D(np.ones((2, 3, 4), np.float32))
    out = tack.zeros(1, tack.f64)
    sample(texture, out, 1, 2.0, 2**63)
    (variant,) = sample.variants()
    dtypes = [p.dtype for p in variant.params]
    assert dtypes == [tack.f32, tack.f64, tack.i32, tack.f64, tack.u64]
    assert [p.is_array for p in variant.params] == [True, True, False, False, False]
    assert [p.is_texture for p in variant.params] == [True, False, False, False, False]
    assert variant.params[0].texture_shape == texture.shape_3d == (4, 3, 2)
    sample(tack.Texture3D(np.ones((3, 2, 4), np.float32)), out, 1, 2.0, 2**63)
    assert sample.variants()[1].differs == ("params", "shapes")
    assert sample.variants()[1].reason.startswith("extents of t: (4, 3, 2) -> (4, 2, 3), shape baked in: ")


def test_integers_are_keyed_by_the_type_of_their_value_and_floats_by_the_arrays(scale: tack.Kernel) -> None:
    x, out = arrays(4)
    kinds = {
        0: tack.i32,
        -(2**31): tack.i32,
        2**31 - 1: tack.i32,
        2**31: tack.i64,
        -(2**31) - 1: tack.i64,
        2**63 - 1: tack.i64,
        2**63: tack.u64,
        2**64 - 1: tack.u64,
        np.int8(3): tack.i32,
        True: tack.i32,
    }
    for value, dtype in kinds.items():
        before = len(scale.variants())
        scale(x, out, value)
        found = [v.params[2].dtype for v in scale.variants()]
        assert dtype in found
        assert len(found) == len(set(found)) <= before + 1
    scale(tack.zeros(4, tack.i8), out, np.float64(1.5))
    assert scale.variants()[-1].params[2].dtype is tack.f32
    scale(x, tack.zeros(4, tack.f64), 1.5)
    assert scale.variants()[-1].params[2].dtype is tack.f64


def test_vector_widths() -> None:
    @tack.kernel
    def norms(x, out):
        for i in range(out.shape[0]):
            out[i] = tack.dot(x[i], x[i])

    for width, kind in ((2, tack.vec2), (3, tack.vec3)):
        values = np.arange(2 * width, dtype=np.float32).reshape(2, width)
        out = tack.zeros(2)
        norms(tack.asarray(values, dtype=kind), out)
        np.testing.assert_array_equal(out.numpy(), (values**2).sum(1))
    assert [v.vectors for v in norms.variants()] == [(("x", (2,)),), (("x", (3,)),)]
    assert norms.variants()[1].differs == ("vectors",)
    assert norms.variants()[1].reason == "elements of x: (2,) -> (3,)"


def test_template_structure_and_constants() -> None:
    @tack.device_class
    class Lens:
        power = 2

        def __init__(self, **attributes: Any) -> None:
            self.__dict__.update(attributes)

    @tack.device_class
    class Other:
        power = 2

        def __init__(self, a: Any) -> None:
            self.a = a

    @tack.kernel
    def bend(out, lens):
        for i in range(1):
            out[i] = lens.power * lens.a[0]

    first, out = tack.full(3, 5.0), tack.zeros(1)
    steps: list[tuple[Any, float, str]] = [
        (Lens(a=first), 10, "first call"),
        (Lens(a=tack.full(4, 5.0)), 10, "array lens.a: f32[3] -> f32[4]"),
        (Lens(a=first, power=3), 15, "constant lens.power: 2 -> 3"),
        (Lens(a=first, power=3.0), 15, "constant lens.power: 3 -> 3.0"),
        (Lens(a=first, more=1.0), 10, "attribute lens.more: none -> number"),
        (Other(first), 10, f"class of lens: {Lens.__qualname__} -> {Other.__qualname__}"),
    ]
    for count, (lens, value, reason) in enumerate(steps, 1):
        for _ in range(2):
            bend(out, lens)
            assert out[0] == value
            assert len(bend.variants()) == count
        assert reason in bend.variants()[-1].reason
        assert count == 1 or "template" in bend.variants()[-1].differs
    bend(out, Lens(a=first, more=2.0))  # a scalar attribute's value is not in the key
    assert len(bend.variants()) == len(steps)


@pytest.mark.parametrize(
    "values",
    [
        (0.0, -0.0),
        (float("nan"), np.uint64(0x7FF8000000000123).view(np.float64), np.uint64(2**64 - 1).view(np.float64)),
        (1, 1.0, np.float32(1), True),
        (tack.constant(1), tack.constant(1, tack.i64)),
    ],
    ids=["signed zeros", "nan payloads", "types", "dtypes"],
)
def test_constants_are_keyed_by_type_and_bits(values: tuple[Any, ...]) -> None:
    @tack.device_class
    class C:
        value = 0.0

    @tack.kernel
    def read(out, c):
        for i in range(1):
            out[i] = c.value

    for _ in range(2):
        for value in values:
            C.value = value
            out = np.zeros(1, np.float64)
            read(out, C())
            assert out.tobytes() == np.float64(value).tobytes()
    assert len(read.variants()) == len(values)


# --- what is deliberately not in the key ------------------------------------------------------


def test_the_table_of_what_is_not_keyed(scale: tack.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    @tack.device_class
    class C:
        def __init__(self, a: float) -> None:
            self.a = a

    @tack.kernel
    def instance(x, out, c):
        for i in range(x.shape[0]):
            out[i] = x[i] * c.a

    for n, a in ((4, 2.0), (4, 3.0), (9, 3.0), (0, -0.0)):  # values, lengths, contents and addresses
        for kernel, given in ((scale, a), (instance, C(a))):
            x, out = arrays(n)
            kernel(x, out, given)
            np.testing.assert_array_equal(out.numpy(), np.arange(n, dtype=np.float32) * np.float32(a))
    assert len(scale.variants()) == len(instance.variants()) == 1


def test_kernels_of_one_name_have_a_slot_each() -> None:
    def make(factor: int) -> tack.Kernel:
        factor = tack.constant(factor)

        @tack.kernel
        def kernel(out):
            for i in range(1):
                out[i] = factor

        return kernel

    out = tack.zeros(1, tack.i32)
    for factor in (1, 2, 3):
        kernel = make(factor)
        assert kernel.variants() == ()
        kernel(out)
        assert out[0] == factor
        assert len(kernel.variants()) == 1


def test_each_backend_has_its_own_variants(scale: tack.Kernel) -> None:
    single = tack.device("cpu", num_threads=1)
    scale(*arrays(4), 2.0)
    with single:
        scale(*arrays(4), 2.0)
        scale(*arrays(4), 2)
    assert [len(scale.variants(d)) for d in ("cpu", single)] == [1, 2]
    assert len(scale.variants()) == 3
    assert [v.reason for v in scale.variants(single)] == ["first call", "dtype of a: f32 -> i32"]
    assert "num_threads=1" in scale.variants(single)[0].device
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        scale.variants("gpu")


def test_a_collected_class_takes_its_variants_along_on_every_backend() -> None:
    @tack.kernel
    def read(out, c):
        for i in range(1):
            out[i] = c.value

    def use(value: int) -> None:
        @tack.device_class
        class C:
            pass

        C.value = value
        for device in (tack.default_device(), single):
            with device:
                out = tack.zeros(1)
                read(out, C())
                assert out[0] == value
        assert len(read.variants()) == 2
        assert len(read.templates()) == 1

    single = tack.device("cpu", num_threads=1)
    for value in (1, 2, 3):
        use(value)
        gc.collect()
        assert read.variants() == ()
        assert read.templates() == []


def test_debug_mode_has_variants_of_its_own(scale: tack.Kernel) -> None:
    try:
        for on, races, count in ((False, False, 1), (True, False, 2), (True, True, 3), (False, False, 3)):
            tack.set_debug(on, races=races)
            scale(*arrays(4), 2.0)
            assert len(scale.variants()) == count
    finally:
        tack.set_debug(False)
    assert reasons(scale)[1].startswith("debug mode: off -> on")
    assert reasons(scale)[2] == "debug mode: on -> on with races"


# --- hit or miss ------------------------------------------------------------------------------


def test_a_hit_lowers_nothing_and_runs_no_pass(scale: tack.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def count(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, count)

    counted(prepare, "prepare")
    counted(prepare, "run_pipeline")
    counted(pipeline, "_check")
    counted(tack.Kernel, "lowered")
    counted(stored, "load")
    scale(*arrays(4), 2.0)
    assert {"prepare", "run_pipeline", "lowered", "load"} <= set(done)
    done.clear()
    for n in (4, 7):
        scale(*arrays(n), 5.0)
    assert done == []


# --- the list itself --------------------------------------------------------------------------


def test_the_list_is_data_and_a_table(scale: tack.Kernel) -> None:
    assert repr(scale.variants()) == "kernel 'scale': no variants yet"
    start = perf_counter()
    scale(*arrays(4), 2.0)
    scale(*arrays(4), 2)
    took = perf_counter() - start
    found = scale.variants()
    one, two = found
    assert isinstance(found, tuple)
    assert one.template is None
    assert one.vectors == one.shapes == ()
    assert (one.differences, one.differs) == (None, ())
    assert [tuple(d) for d in two.differences or ()] == [("params", "dtype of a", "f32", "i32")]
    assert not one.from_disk
    assert 0 < one.compile_time + two.compile_time < took
    assert one.device == "cpu"
    lines = repr(found).splitlines()
    assert lines[0] == "kernel 'scale': 2 variants"
    assert lines[1].split() == ["device", "made", "ms", "for", "because", "of"]
    assert lines[2].endswith("x: f32[], out: f32[], a: f32  first call")
    assert lines[3].endswith("x: f32[], out: f32[], a: i32  dtype of a: f32 -> i32")
    assert lines[2].index("first") == lines[3].index("dtype")
    assert "for x: f32[], out: f32[], a: i32; compiled in" in repr(two)


def test_the_nearest_variant_is_the_one_that_is_compared(scale: tack.Kernel) -> None:
    scale(*arrays(4), 2.0)
    scale(*arrays(4, tack.i32), 2)
    scale(*arrays(4), 2**40)  # near the first, not the second
    assert reasons(scale)[2] == "dtype of a: f32 -> i64"


def test_arguments_in_other_orders_are_one_variant(scale: tack.Kernel) -> None:
    x, out = arrays(4)
    scale(x, out, 2.0)
    scale(a=2.0, out=out, x=x)
    assert len(scale.variants()) == 1


def test_a_compile_ahead_counts_and_an_inspection_does_not(scale: tack.Kernel) -> None:
    tack.inspect(scale, *arrays(4), 2.0, mode="ir")
    assert len(scale.variants()) == 0
    scale.compile((4, tack.f32), (4, tack.f32), 2.0)
    assert reasons(scale) == ["first call"]
