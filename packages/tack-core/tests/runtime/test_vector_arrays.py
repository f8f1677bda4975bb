"""Arrays of vectors and matrices on the host. The oracle is NumPy with the components as last axes."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from runtime.test_devices import RemoteBackend

from tack import (
    Device,
    DType,
    arange,
    array_from_ptr,
    asarray,
    concat,
    constant,
    copyto,
    device,
    empty,
    empty_like,
    f32,
    f64,
    from_dlpack,
    full,
    full_like,
    i8,
    i32,
    i64,
    linspace,
    ones,
    ones_like,
    u8,
    u64,
    zeros,
    zeros_like,
)
from tack.dtypes import (
    ALL_DTYPES,
    VectorType,
    as_dtype,
    as_element_type,
    dvec2,
    dvec3,
    dvec4,
    ivec2,
    ivec3,
    ivec4,
    mat2,
    mat3,
    mat4,
    matrix,
    vec2,
    vec3,
    vec4,
    vector,
)
from tack.runtime import dispatch
from tack.runtime.convert import convert_array

scalars = st.sampled_from(ALL_DTYPES)
extents = st.one_of(
    st.tuples(st.integers(1, 16)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def type_of(dtype: DType, extent: tuple[int, ...]) -> VectorType:
    return vector(*extent, dtype) if len(extent) == 1 else matrix(*extent, dtype)


types = st.builds(type_of, scalars, extents)


def values_of(data: st.DataObject, kind: VectorType, shape: tuple[int, ...]) -> np.ndarray:
    """Any bits, as NumPy holds an array of ``shape`` and ``kind``."""
    bits = np.dtype(f"u{kind.scalar.itemsize}")
    return data.draw(hnp.arrays(bits, shape + kind.components)).view(kind.scalar.numpy)


def identical(a: np.ndarray, b: np.ndarray) -> None:
    """Equal in shape, dtype and every bit."""
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert a.tobytes() == b.tobytes()


def counted(kind: VectorType, *shape: int) -> np.ndarray:
    """0, 1, 2, …"""
    full_shape = shape + kind.components
    return np.arange(math.prod(full_shape), dtype=kind.scalar.numpy).reshape(full_shape)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device whose memory the host cannot address, and which has no f64."""
    real = dispatch.backend_type
    monkeypatch.setattr(dispatch, "_devices", {})
    monkeypatch.setattr(dispatch, "backend_type", lambda n: RemoteBackend if n == "cuda" else real(n))
    return device("cuda")


class TestTypes:
    def test_short_names(self) -> None:
        for n, kinds in ((2, (vec2, ivec2, dvec2)), (3, (vec3, ivec3, dvec3)), (4, (vec4, ivec4, dvec4))):
            assert kinds == tuple(vector(n, dtype) for dtype in (f32, i32, f64))
            assert tuple(map(str, kinds)) == (f"vec{n}", f"ivec{n}", f"dvec{n}")
        assert (mat2, mat3, mat4) == tuple(matrix(n, n, f32) for n in (2, 3, 4))
        assert repr(mat3) == "tack.mat3"

    @given(types)
    def test_one_object_per_type(self, kind: VectorType) -> None:
        for twin in (pickle.loads(pickle.dumps(kind)), copy.deepcopy(kind), as_element_type(kind)):
            assert twin is kind
        assert type_of(kind.scalar, kind.components) is kind
        assert kind.with_scalar(i8).with_scalar(kind.scalar) is kind
        assert kind.itemsize == math.prod(kind.components) * kind.scalar.itemsize

    def test_specs(self) -> None:
        assert vector(np.int64(3), "float32") is vec3
        assert matrix(2, np.uint8(2), np.float32) is mat2
        assert as_element_type("dvec4") is dvec4
        assert as_element_type("f8") is f64

    @pytest.mark.parametrize("bad", [True, 2.0, "3", None])
    def test_extents_are_integers(self, bad: Any) -> None:
        with pytest.raises(TypeError, match="is an int, not"):
            vector(bad, f32)
        with pytest.raises(TypeError, match="is an int, not"):
            matrix(2, bad, f32)

    def test_extents_have_limits(self) -> None:
        for n in (0, 17, -1):
            with pytest.raises(ValueError, match=f"between 1 and 16, not {n}"):
                vector(n, f32)
        with pytest.raises(ValueError, match="between 1 and 4, not 5"):
            matrix(4, 5, f32)

    def test_no_scalars(self) -> None:
        with pytest.raises(TypeError, match=r"tack.vec3 is a vector type.*such as tack.f32"):
            as_dtype(vec3)
        with pytest.raises(TypeError, match="vector type"):
            vector(2, vec3)
        for make in (lambda: linspace(0, 1, 3, vec3), lambda: arange(3, dtype=vec3)):
            with pytest.raises(TypeError, match="vector type"):
                make()
        assert vec3 not in ALL_DTYPES
        assert vec3 != f32
        assert vec3 != np.float32
        with pytest.raises(TypeError, match="'vec5' is not a dtype"):
            as_element_type("vec5")


class TestCreation:
    @given(shapes, types)
    def test_what_it_is(self, shape: tuple[int, ...], kind: VectorType) -> None:
        arr = empty(shape, kind)
        assert arr.dtype is kind
        assert (arr.scalar, arr.components) == (kind.scalar, kind.components)
        assert (arr.shape, arr.ndim, arr.size) == (shape, len(shape), math.prod(shape))
        assert arr.host_shape == shape + kind.components == arr.numpy().shape
        assert arr.itemsize == kind.itemsize
        assert arr.nbytes == arr.size * kind.itemsize == arr.numpy().nbytes
        assert arr.span == (arr.address, arr.address + arr.nbytes)

    def test_scalar_arrays_are_their_own_scalars(self) -> None:
        arr = empty((2, 3), i8)
        assert (arr.dtype, arr.scalar, arr.components, arr.host_shape) == (i8, i8, (), (2, 3))

    @given(shapes, types)
    def test_constant(self, shape: tuple[int, ...], kind: VectorType) -> None:
        host, dtype = shape + kind.components, kind.scalar.numpy
        identical(zeros(shape, kind).numpy(), np.zeros(host, dtype))
        identical(ones(shape, kind).numpy(), np.ones(host, dtype))
        identical(full(shape, 7, kind).numpy(), np.full(host, 7, dtype))

    @given(st.data(), shapes, types)
    def test_one_element(self, data: st.DataObject, shape: tuple[int, ...], kind: VectorType) -> None:
        element = values_of(data, kind, ())
        want = np.empty(shape + kind.components, kind.scalar.numpy)
        want[...] = element
        identical(full(shape, element, kind).numpy(), want)
        identical(full(shape, asarray(element, dtype=kind), kind).numpy(), want)

    def test_elements_as_sequences(self) -> None:
        want = np.array([[1, 2.5, 3]] * 2, np.float32)
        for element in ([1, 2.5, 3], (1, np.float64(2.5), np.int8(3)), constant((1, 2.5, 3)), range(1, 4)):
            got = full(2, element, vec3).numpy()
            identical(got, np.array([[1, 2, 3]] * 2, np.float32) if element == range(1, 4) else want)
        identical(full((), [[1, 2], [3, 4]], mat2).numpy(), np.array([[1, 2], [3, 4]], np.float32))

    def test_integers_of_sequences_stay_exact(self) -> None:
        arr = full(1, [2**64 - 1, 2**63, 2**53 + 1, 0.5], vector(4, u64))
        assert arr[0].tolist() == [2**64 - 1, 2**63, 2**53 + 1, 0]
        assert full(1, [-1, 2**63], vector(2, i64))[0].tolist() == [-1, -(2**63)]

    def test_like(self) -> None:
        arr = full((2, 3), 5, vec3)
        assert (empty_like(arr).dtype, empty_like(arr).shape) == (vec3, (2, 3))
        identical(zeros_like(arr).numpy(), np.zeros((2, 3, 3), np.float32))
        identical(ones_like(arr, ivec2).numpy(), np.ones((2, 3, 2), np.int32))
        identical(full_like(arr, [1, 2, 3], shape=1).numpy(), np.array([[1, 2, 3]], np.float32))
        identical(zeros_like(arr, f64).numpy(), np.zeros((2, 3)))

    @pytest.mark.parametrize("element", [3.5, [1, 2, 3], [math.nan, -0.0, math.inf], [0, 0, 1], -0.0])
    def test_large_fills(self, element: Any) -> None:
        arr = zeros(100_002, dvec3)
        arr[1:100_001].fill(element)
        want = np.zeros((100_002, 3))
        want[1:-1] = element
        identical(arr.numpy(), want)

    def test_limits(self) -> None:
        assert empty((1,) * 63, vec3).numpy().ndim == 64
        assert empty((1,) * 62, mat2).numpy().ndim == 64
        for ndim, kind in ((64, vec3), (63, mat2)):
            with pytest.raises(ValueError, match=rf"{kind} has at most {ndim - 1} dimensions, not {ndim}"):
                empty((1,) * ndim, kind)
        with pytest.raises(ValueError, match=r"more than 2\*\*63 bytes"):
            empty(2**60, vec3)

    def test_by_name(self) -> None:
        assert zeros(2, "vec3").dtype is vec3


class TestAsarray:
    @given(st.data(), shapes, types)
    def test_round_trip(self, data: st.DataObject, shape: tuple[int, ...], kind: VectorType) -> None:
        values = values_of(data, kind, shape)
        arr = asarray(values, dtype=kind, copy=True)
        assert (arr.shape, arr.dtype) == (shape, kind)
        identical(arr.numpy(), values)
        assert arr.address != values.ctypes.data or not arr.size
        identical(pickle.loads(pickle.dumps(arr)).numpy(), values)
        assert pickle.loads(pickle.dumps(arr)).dtype is kind
        twin = copy.deepcopy(arr)
        assert (twin.shape, twin.dtype) == (shape, kind)
        identical(twin.numpy(), values)

    @pytest.mark.parametrize("share", [None, False])
    def test_shares_numpys_memory(self, share: bool | None) -> None:
        values = counted(vec3, 4)
        arr = asarray(values, dtype=vec3, copy=share)
        assert (arr.address, arr.shape, arr.writable) == (values.ctypes.data, (4,), True)
        arr[1] = [7, 8, 9]
        assert values[1].tolist() == [7, 8, 9]
        values[2, 1] = -1
        assert arr[2].tolist() == [6, -1, 8]
        values.flags.writeable = False
        assert not asarray(values, dtype=vec3).writable

    def test_copies_where_it_must(self) -> None:
        values = counted(vec4, 5)
        for source in (
            values[:, 1:],
            values.astype(np.float64)[:, :3],
            values[::2, :3],
            np.asfortranarray(values)[:, :3],
        ):
            identical(asarray(source, dtype=vec3).numpy(), np.ascontiguousarray(source, np.float32))
            with pytest.raises(ValueError, match=r"copy=False, but .* needs a copy"):
                asarray(source, dtype=vec3, copy=False)

    def test_sequences(self) -> None:
        assert asarray([[1, 2, 3], [4, 5, 6]], dtype=vec3).shape == (2,)
        assert asarray([1, 2, 3], dtype=vec3).shape == ()
        assert asarray(constant(((1, 2), (3, 4))), dtype=mat2)[()].tolist() == [[1, 2], [3, 4]]
        assert asarray([[1.9, -300]], dtype=vector(2, u8))[0].tolist() == [1, 0]

    @pytest.mark.parametrize("shape", [(), (3, 2), (4,), (2, 3, 1), (0, 2), (3, 0)])
    def test_the_last_axes_are_the_components(self, shape: tuple[int, ...]) -> None:
        for source in (np.zeros(shape, np.float32), zeros(shape)):
            with pytest.raises(ValueError, match=r"last axes must be \(3,\), so reshape it to \(\.\.\., 3\)"):
                asarray(source, dtype=vec3)

    def test_arrays_regroup(self) -> None:
        values = counted(mat2, 3)
        arr = asarray(values, dtype=mat2, copy=True)
        assert asarray(arr) is arr
        assert asarray(arr, dtype=mat2) is arr
        for kind, shape in ((f32, (3, 2, 2)), (vec2, (3, 2))):
            view = asarray(arr, dtype=kind)
            assert (view.dtype, view.shape, view.address) == (kind, shape, arr.address)
            identical(view.numpy(), values)
            assert asarray(view, dtype=mat2, copy=False).address == arr.address
            assert asarray(view, dtype=mat2, copy=True).address != arr.address
        converted = asarray(arr, dtype=ivec2)
        assert (converted.dtype, converted.shape) == (ivec2, (3, 2))
        identical(converted.numpy(), values.astype(np.int32))
        with pytest.raises(ValueError, match="has to be converted"):
            asarray(arr, dtype=ivec2, copy=False)
        with pytest.raises(TypeError, match="would change its bits"):
            arr.view_as(ivec2)

    def test_dlpack_objects(self) -> None:
        class Producer:
            values = counted(vec3, 2)

            def __dlpack__(self, **options: Any) -> Any:
                return self.values.__dlpack__(**options)

            def __dlpack_device__(self) -> Any:
                return self.values.__dlpack_device__()

        arr = asarray(Producer(), dtype=vec3)
        assert (arr.shape, arr.address) == ((2,), Producer.values.ctypes.data)

    def test_pointers(self) -> None:
        values = counted(ivec3, 4)
        arr = array_from_ptr(values.ctypes.data, ivec3, 4, owner=values)
        identical(arr.numpy(), values)
        with pytest.raises(ValueError, match="has 48 bytes"):
            array_from_ptr(values, ivec3, 5)
        with pytest.raises(ValueError, match=r"more than 2\*\*63 bytes"):
            array_from_ptr(values, ivec3, 2**60)


class TestElements:
    @given(st.data(), types)
    def test_read_and_write(self, data: st.DataObject, kind: VectorType) -> None:
        shape = data.draw(st.lists(st.integers(1, 4), max_size=3).map(tuple))
        values = values_of(data, kind, shape)
        arr = asarray(values, dtype=kind, copy=True)
        index = tuple(data.draw(st.integers(-n, n - 1)) for n in shape)
        identical(arr[index], values[index])
        element = values_of(data, kind, ())
        arr[index] = element
        values[index] = element
        identical(arr.numpy(), values)
        arr[index] = 3
        values[index] = 3
        identical(arr.numpy(), values)

    def test_a_read_is_a_copy(self) -> None:
        arr = zeros(2, vec3)
        element = arr[1]
        element[0] = 5
        arr.fill(7)
        assert element.tolist() == [5, 0, 0]
        assert arr[1].tolist() == [7, 7, 7]

    @given(st.data(), scalars, scalars, extents)
    def test_written_elements_convert(
        self, data: st.DataObject, source: DType, target: DType, extent: tuple[int, ...]
    ) -> None:
        kind = type_of(target, extent)
        element = values_of(data, type_of(source, extent), ())
        want = asarray(element).astype(target).numpy()  # component by component, as scalars do
        arr = zeros((), kind)
        for given_as in (element, element.tolist(), asarray(element)):
            arr.fill(0)
            arr[()] = given_as
            np.testing.assert_array_equal(arr.numpy(), want, strict=True)

    @pytest.mark.parametrize(
        ("element", "error", "message"),
        [
            ([1, 2], ValueError, r"an element of vec3 has shape \(3,\), not \(2,\)"),
            ([[1, 2, 3]], ValueError, r"not \(1, 3\)"),
            ([], ValueError, r"not \(0,\)"),
            (np.zeros((3, 1)), ValueError, r"not \(3, 1\)"),
            ([1, 2, [3]], TypeError, "expected a number for dtype f32, not list"),
            ([1, None, 3], TypeError, "not NoneType"),
            ("abc", TypeError, "not str"),
            (None, TypeError, "not NoneType"),
            ([1, 2j, 3], TypeError, "not complex"),
            (np.zeros(3, complex), TypeError, "the element has dtype complex128"),
            (np.array(["a", "b", "c"]), TypeError, "the element has dtype"),
            ({1, 2, 3}, TypeError, "not set"),
            ([1, 2, 2**64], TypeError, "does not fit in 64 bits"),
        ],
    )
    def test_what_is_no_element(self, element: Any, error: type[Exception], message: str) -> None:
        arr = full(2, [1, 2, 3], vec3)
        for write in (arr.fill, lambda v: arr.__setitem__(1, v), lambda v: full(0, v, vec3)):
            with pytest.raises(error, match=message):
                write(element)
        assert arr.numpy().tolist() == [[1, 2, 3]] * 2

    def test_indices_count_elements(self) -> None:
        arr = zeros((2, 3), vec4)
        for index in (0, (0, 1, 2), (0, 1, 2, 3), ()):
            with pytest.raises(TypeError, match="2 dimensions takes 2 indices"):
                arr[index]
        with pytest.raises(TypeError, match=r"arr\[i\]\[c\]"):
            arr[0, 1, 2] = 5
        with pytest.raises(IndexError, match="index 3 is out of range for axis 1"):
            arr[0, 3]

    def test_iteration(self) -> None:
        values = counted(vec2, 3)
        arr = asarray(values, dtype=vec2, copy=True)
        assert [element.tolist() for element in arr] == values.tolist()
        rows = list(asarray(counted(vec2, 2, 3), dtype=vec2))
        assert [(row.dtype, row.shape) for row in rows] == [(vec2, (3,))] * 2
        identical(rows[1].numpy(), counted(vec2, 2, 3)[1])

    def test_contains(self) -> None:
        arr = asarray([[1, 2, 3], [4, 4, 4]], dtype=vec3)
        assert [1, 2, 3] in arr
        assert 4 in arr
        assert [1, 4, 3] not in arr
        assert 1 not in arr
        assert [1, 2] not in arr

    def test_no_numbers(self) -> None:
        arr = ones((), vector(1, i32))
        for convert in (int, float, range):
            with pytest.raises(TypeError, match=r"is not a number|only 0-d integer arrays"):
                convert(arr)
        with pytest.raises(ValueError, match="neither true nor false; test its components"):
            bool(ones(1, vec3))

    def test_read_only(self) -> None:
        values = counted(vec3, 2)
        values.flags.writeable = False
        arr = asarray(values, dtype=vec3)
        for write in (
            lambda: arr.fill(1),
            lambda: arr.__setitem__(0, 1),
            lambda: copyto(arr, zeros(2, vec3)),
        ):
            with pytest.raises(ValueError, match="read-only"):
                write()
        for view in (arr[:1], arr.reshape(2, 1), arr.ravel(), asarray(arr, dtype=f32)):
            assert not view.writable


class TestViews:
    @given(st.data(), types)
    def test_slices(self, data: st.DataObject, kind: VectorType) -> None:
        shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple))
        values = values_of(data, kind, shape)
        arr = asarray(values, dtype=kind, copy=True)
        limits = st.none() | st.integers(-6, 6)
        part = slice(data.draw(limits), data.draw(limits))
        view = arr[part]
        assert view.dtype is kind
        identical(view.numpy(), values[part])
        identical(
            arr.numpy(part.start, part.stop) if part != slice(None) else arr.ravel().numpy(),
            values.reshape(-1, *kind.components)[part],
        )
        view.fill(1)
        values[part] = 1
        identical(arr.numpy(), values)

    def test_reshape_counts_elements(self) -> None:
        values = counted(mat2, 2, 3)
        arr = asarray(values, dtype=mat2, copy=True)
        for view, shape in ((arr.reshape(3, 2), (3, 2)), (arr.reshape(-1), (6,)), (arr.ravel(), (6,))):
            assert (view.dtype, view.shape, view.address) == (mat2, shape, arr.address)
            identical(view.numpy(), values.reshape(*shape, 2, 2))
        with pytest.raises(ValueError, match="array of 6 elements"):
            arr.reshape(2, 3, 2, 2)

    def test_signatures_differ(self) -> None:
        """Dispatch finds variants by them."""
        arrays = [
            empty(*args)
            for args in (
                (4, f32), (4, vec2), (4, vec3), (4, vec4), (4, ivec3), (4, dvec3), (4, mat2),
                (4, vector(9, f32)), (4, mat3), (4, matrix(2, 3, f32)), (4, matrix(3, 2, f32)),
                (4, vector(1, f32)), (4, matrix(1, 1, f32)), ((4, 3), f32), ((4, 1), f32), (5, vec3),
            )
        ]  # fmt: skip
        assert len({arr._sig for arr in arrays}) == len(arrays)
        assert empty(4, vec3)._sig == asarray(np.ones((4, 3), np.float32), dtype=vec3)[:]._sig


class TestCopies:
    @given(st.data(), shapes, scalars, scalars, extents)
    def test_copyto(
        self,
        data: st.DataObject,
        shape: tuple[int, ...],
        source: DType,
        target: DType,
        extent: tuple[int, ...],
    ) -> None:
        values = values_of(data, type_of(source, extent), shape)
        want = convert_array(values, target)
        kind = type_of(target, extent)
        arr = zeros(shape, kind)
        copyto(arr, values)
        np.testing.assert_array_equal(arr.numpy(), want, strict=True)
        arr.fill(0)
        copyto(arr, asarray(values, dtype=type_of(source, extent)))
        np.testing.assert_array_equal(arr.numpy(), want, strict=True)
        host = np.zeros_like(want)
        copyto(host, asarray(values, dtype=type_of(source, extent)))
        np.testing.assert_array_equal(host, want, strict=True)

    def test_shapes_with_components(self) -> None:
        arr = zeros(4, vec3)
        copyto(arr, zeros((4, 3)))  # an Array of scalars counts as NumPy's
        for dst, src in (
            (arr, np.zeros(4, np.float32)),
            (arr, np.zeros((4, 2), np.float32)),
            (arr, zeros(4, vec2)),
            (zeros(4), arr),
            (np.zeros(4), arr),
        ):
            with pytest.raises(ValueError, match=r"shapes differ.*last axes of an array of vec[23] are its"):
                copyto(dst, src)

    def test_overlaps(self) -> None:
        values = counted(vec3, 6)
        arr = asarray(values, dtype=vec3, copy=True)
        copyto(arr[1:], arr[:-1])
        values[1:] = values[:-1].copy()
        identical(arr.numpy(), values)
        copyto(asarray(arr, dtype=f32).ravel()[1:], asarray(arr, dtype=f32).ravel()[:-1])
        values.reshape(-1)[1:] = values.reshape(-1)[:-1].copy()
        identical(arr.numpy(), values)

    @given(st.data(), shapes, types, scalars)
    def test_astype(
        self, data: st.DataObject, shape: tuple[int, ...], kind: VectorType, target: DType
    ) -> None:
        values = values_of(data, kind, shape)
        arr = asarray(values, dtype=kind)
        want = convert_array(values, target)
        for spec in (target, target.numpy, kind.with_scalar(target)):
            made = arr.astype(spec)
            assert (made.dtype, made.shape) == (kind.with_scalar(target), shape)
            np.testing.assert_array_equal(made.numpy(), want, strict=True)
            assert made.address != arr.address or not arr.size

    @pytest.mark.parametrize(
        ("source", "target"), [(vec3, vec4), (vec4, mat2), (mat2, vec4), (f32, vec3), (vector(1, f32), vec2)]
    )
    def test_astype_keeps_the_elements_shape(self, source: Any, target: Any) -> None:
        with pytest.raises(TypeError, match=rf"elements of the same shape, not to {target}"):
            zeros((3, 3), source).astype(target)

    def test_concat(self) -> None:
        a, b = counted(vec3, 2, 2), counted(vec3, 3, 2) + 50
        joined = concat([asarray(a, dtype=vec3), asarray(b, dtype=vec3)])
        assert (joined.dtype, joined.shape) == (vec3, (5, 2))
        identical(joined.numpy(), np.concatenate([a, b]))
        with pytest.raises(TypeError, match=r"first is vec3, number 2 is f32; convert with tack.asarray"):
            concat([asarray(a, dtype=vec3), a])
        with pytest.raises(TypeError, match="first is vec3, number 2 is vec2"):
            concat([zeros(2, vec3), zeros(2, vec2)])
        with pytest.raises(ValueError, match="do not fit"):
            concat([zeros((2, 2), vec3), zeros((2, 3), vec3)])


class TestReductions:
    @given(st.data(), scalars, extents, st.integers(1, 5))
    def test_each_component_as_scalars(
        self, data: st.DataObject, dtype: DType, extent: tuple[int, ...], size: int
    ) -> None:
        values = values_of(data, type_of(dtype, extent), (size, 2))
        arr = asarray(values, dtype=type_of(dtype, extent))
        wide = np.dtype(np.float64) if dtype.is_float else np.dtype(f"{dtype.kind}8")
        for op, kind in (("sum", wide), ("mean", np.float64), ("min", dtype.numpy), ("max", dtype.numpy)):
            got = getattr(arr, op)()
            assert (got.shape, got.dtype) == (extent, kind)
            for where in np.ndindex(extent):
                column = asarray(np.ascontiguousarray(values[:, :, *where]))
                np.testing.assert_equal(got[where].item(), getattr(column, op)())  # minds the sign of zero

    @pytest.mark.parametrize("dtype", [u64, i64, u8], ids=str)
    @pytest.mark.parametrize("size", [1, 1000, 100_000])
    def test_integers_are_exact(self, dtype: DType, size: int) -> None:
        values = np.random.default_rng(size).integers(
            dtype.min, dtype.max, (size, 3), dtype.numpy, endpoint=True
        )
        arr = asarray(values, dtype=vector(3, dtype))
        exact = [sum(column) for column in values.T.tolist()]
        wide = i64 if dtype.is_signed else u64
        assert arr.sum().tolist() == [wide.wrap(total) for total in exact]
        assert arr.mean().tolist() == [float(Fraction(total, size)) for total in exact]
        assert arr.min().tolist() == [min(column) for column in values.T.tolist()]
        assert arr.max().tolist() == [max(column) for column in values.T.tolist()]

    @pytest.mark.parametrize("kind", [vec3, dvec3], ids=str)
    def test_float_sums(self, kind: VectorType) -> None:
        size = 100_000
        values = np.random.default_rng(1).normal(size=(size, 3)).astype(kind.scalar.numpy)
        got = asarray(values, dtype=kind).sum()
        for column, total in zip(values.T.tolist(), got.tolist(), strict=True):
            bound = math.fsum(map(abs, column)) * 2**-53 * (math.log2(size) + 8)  # as for scalars
            assert abs(total - math.fsum(column)) <= bound

    def test_nothing(self) -> None:
        arr = zeros((0, 4), mat2)
        np.testing.assert_array_equal(arr.sum(), np.zeros((2, 2)), strict=True)
        np.testing.assert_array_equal(zeros(0, ivec2).sum(), np.zeros(2, np.int64), strict=True)
        np.testing.assert_array_equal(arr.mean(), np.full((2, 2), np.nan), strict=True)
        for op in (arr.min, arr.max):
            with pytest.raises(ValueError, match="no elements"):
                op()


class TestOtherLibraries:
    @given(st.data(), shapes, types)
    def test_components_are_the_last_axes(
        self, data: st.DataObject, shape: tuple[int, ...], kind: VectorType
    ) -> None:
        values = values_of(data, kind, shape)
        arr = asarray(values, dtype=kind, copy=True)
        for export in (np.asarray, np.from_dlpack, lambda a: np.asarray(a, copy=False), np.array):
            identical(export(arr), values)
        if arr.size:
            assert arr.__array_interface__["data"][0] == arr.address
        imported = from_dlpack(arr)
        assert (imported.dtype, imported.shape) == (kind, shape)
        tensor = from_dlpack(arr.__dlpack__(max_version=(1, 0)))
        assert (tensor.dtype, tensor.shape) == (kind.scalar, shape + kind.components)

    def test_views_write_through(self) -> None:
        arr = zeros(3, vec3)
        np.asarray(arr)[1, 2] = 5
        np.from_dlpack(arr)[2] = [1, 2, 3]
        assert arr.numpy().tolist() == [[0, 0, 0], [0, 0, 5], [1, 2, 3]]
        view = memoryview(arr.__buffer__(0))
        assert (view.shape, view.format) == ((3, 3), "f")

    def test_conversion_needs_a_copy(self) -> None:
        arr = ones(2, vec3)
        identical(np.asarray(arr, np.float64), np.ones((2, 3)))
        with pytest.raises(ValueError, match="converting f32 to float64 needs a copy"):
            arr.__array__(np.float64, copy=False)

    def test_repr(self) -> None:
        assert repr(asarray([[1, 2], [3, 4]], dtype=ivec2)) == (
            "tack.Array([[1, 2],\n            [3, 4]], dtype=ivec2, shape=(2,), device=cpu)"
        )
        assert repr(zeros(22, vec3)) == "tack.Array(dtype=vec3, shape=(22,), device=cpu)"
        assert "[0., 0., 0.]" in repr(zeros(21, vec3))
        assert "dtype=vector(5, u8)" in repr(zeros(1, vector(5, u8)))


class TestOtherDevices:
    """Memory that the host cannot address."""

    def test_there_and_back(self, remote: Device) -> None:
        values = counted(mat2, 3)
        arr = asarray(values, dtype=mat2, device=remote)
        assert (arr.dtype, arr.shape, arr.device) == (mat2, (3,), remote)
        identical(arr.numpy(), values)
        identical(arr[1], values[1])
        identical(arr.numpy(1, 2), values[1:2])
        arr[1] = [[9, 8], [7, 6]]
        values[1] = [[9, 8], [7, 6]]
        home = arr.to("cpu")
        assert (home.dtype, home.device) == (mat2, device("cpu"))
        identical(home.numpy(), values)
        identical(home.to(remote)[1:].numpy(), values[1:])
        identical(pickle.loads(pickle.dumps(arr)).numpy(), values)

    @pytest.mark.parametrize("element", [2.5, [1, 2, 3]])
    def test_fill(self, remote: Device, element: Any) -> None:
        arr = zeros(200_000, vec3, device=remote)
        arr[1:-1].fill(element)
        want = np.zeros((200_000, 3), np.float32)
        want[1:-1] = element
        identical(arr.numpy(), want)

    def test_copyto_and_reductions(self, remote: Device) -> None:
        values = counted(ivec3, 5)
        arr = empty(5, ivec3, device=remote)
        copyto(arr, values)
        twin = empty(5, vec3, device=remote)
        copyto(twin, arr)
        identical(twin.numpy(), values.astype(np.float32))
        host = np.zeros((5, 3), np.int16)
        copyto(host, twin)
        identical(host, values.astype(np.int16))
        assert arr.sum().tolist() == values.sum(0).tolist()
        assert twin.max().tolist() == values.max(0).tolist()
        assert arr.mean().tolist() == values.mean(0).tolist()

    def test_the_scalars_must_be_supported(self, remote: Device) -> None:
        for make in (
            lambda: empty(3, dvec3, device=remote),
            lambda: zeros(3, vec3, device=remote).astype(f64),
            lambda: zeros(3, dvec3).to(remote),
            lambda: array_from_ptr(1 << 40, dvec3, 2, device=remote),
        ):
            with pytest.raises(TypeError, match=r"Remote has no f64, the scalar of dvec3; it supports: i8"):
                make()

    def test_views(self, remote: Device) -> None:
        arr = asarray(counted(vec3, 4), device=remote)
        view = asarray(arr, dtype=vec3)
        view[3] = 1
        assert arr.numpy()[3].tolist() == [1, 1, 1]
