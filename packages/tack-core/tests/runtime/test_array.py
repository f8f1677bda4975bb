"""`tack.Array`: what it is, views, elements, conversions. NumPy is the oracle."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import pickle
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tack import Array, DType, asarray, empty, f32, f64, full, i8, i32, i64, u8, u16, u64, zeros
from tack.dtypes import ALL_DTYPES

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
dtypes = st.sampled_from(ALL_DTYPES)


def counting(shape: tuple[int, ...], dtype: DType = i32) -> tuple[Array, np.ndarray]:
    """An array of 0, 1, 2, … and NumPy's twin of it."""
    values = np.arange(math.prod(shape)).reshape(shape).astype(dtype.numpy)
    return asarray(values, copy=True), values


@given(shapes, dtypes)
def test_properties_are_numpys(shape: tuple[int, ...], dtype: DType) -> None:
    arr, want = counting(shape, dtype)
    assert arr.dtype is dtype
    assert arr.dtype == want.dtype
    assert (arr.shape, arr.ndim, arr.size) == (want.shape, want.ndim, want.size)
    assert (arr.itemsize, arr.nbytes) == (want.itemsize, want.nbytes)
    assert arr.writable
    assert str(arr.device) == "cpu"
    assert arr.span == (arr.address, arr.address + arr.nbytes)
    np.testing.assert_array_equal(arr.numpy(), want, strict=True)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_memory_is_aligned_and_separate(dtype: DType) -> None:
    arrays = [empty(n, dtype) for n in (0, 1, 3, 17, 1000)]
    assert all(arr.address % 64 == 0 for arr in arrays)
    spans = sorted(arr.span for arr in arrays if arr.size)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_numpy_is_always_new() -> None:
    arr, want = counting((3, 4))
    first, second = arr.numpy(), arr.numpy()
    first[:] = 0
    np.testing.assert_array_equal(second, want)
    np.testing.assert_array_equal(arr.numpy(), want)
    assert first.flags.owndata
    assert first.flags.writeable


@given(shapes, st.one_of(st.none(), st.integers(-9, 9)), st.one_of(st.none(), st.integers(-9, 9)))
def test_numpy_of_a_flat_range(shape: tuple[int, ...], start: int | None, stop: int | None) -> None:
    arr, want = counting(shape)
    got = arr.numpy(start, stop)
    whole = start is None and stop is None
    np.testing.assert_array_equal(got, want if whole else want.reshape(-1)[start:stop], strict=True)


class TestViews:
    @given(
        shapes.filter(bool),
        st.one_of(st.none(), st.integers(-8, 8), st.integers(-(2**70), 2**70)),
        st.one_of(st.none(), st.integers(-8, 8)),
    )
    def test_slice(self, shape: tuple[int, ...], start: int | None, stop: int | None) -> None:
        arr, want = counting(shape)
        part = arr[start:stop]
        np.testing.assert_array_equal(part.numpy(), want[start:stop], strict=True)
        part.fill(-1)
        want[start:stop] = -1
        np.testing.assert_array_equal(arr.numpy(), want)

    @given(shapes, st.permutations([0, 1, 2, 3]))
    def test_reshape(self, shape: tuple[int, ...], order: list[int]) -> None:
        arr, want = counting(shape)
        new = tuple(shape[k] for k in order if k < len(shape))
        np.testing.assert_array_equal(arr.reshape(new).numpy(), want.reshape(new), strict=True)
        np.testing.assert_array_equal(arr.ravel().numpy(), want.ravel(), strict=True)
        assert arr.reshape(*new, 1).shape == (*new, 1)

    def test_reshape_infers_one_extent(self) -> None:
        arr, _ = counting((4, 6))
        assert arr.reshape(-1).shape == (24,)
        assert arr.reshape(3, -1).shape == (3, 8)
        assert arr.reshape((2, -1, 3)).shape == (2, 4, 3)
        assert arr.reshape(np.int64(24)).shape == (24,)

    @pytest.mark.parametrize("shape", [(5,), (-1, -1), (5, -1), (-2, -12), (0, -1), (), (24,) + (1,) * 64])
    def test_reshape_refuses_another_size(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="cannot reshape an array of 24 elements"):
            counting((4, 6))[0].reshape(shape)

    def test_reshape_of_nothing_with_an_unknown_extent(self) -> None:
        with pytest.raises(ValueError, match="cannot reshape"):
            empty((0, 3)).reshape(0, -1)  # NumPy refuses it too: any extent would fit
        with pytest.raises(TypeError, match="extents are integers, not float"):
            empty(3).reshape(3.0)

    def test_views_keep_the_memory_alive(self) -> None:
        arr, want = counting((100,))
        part = arr[10:20].reshape(2, 5)[1:]
        buffer = weakref.ref(arr)
        del arr
        assert buffer() is None
        np.testing.assert_array_equal(part.numpy(), want[15:20].reshape(1, 5))

    def test_views_share_writability(self) -> None:
        values = np.arange(6.0)
        values.flags.writeable = False
        arr = asarray(values)
        for view in (arr, arr[1:], arr.reshape(2, 3), arr.ravel(), arr.reshape(2, 3)[1:].ravel()):
            assert not view.writable
            with pytest.raises(ValueError, match="read-only"):
                view.fill(0)
            with pytest.raises(ValueError, match="read-only"):
                view[(0,) * view.ndim] = 1
        assert arr.copy().writable

    def test_empty_slice_at_the_end(self) -> None:
        arr, _ = counting((4, 3))
        assert arr[4:].shape == (0, 3)
        assert arr[3:1].shape == (0, 3)
        assert arr[4:].span[0] <= arr.span[1]

    def test_other_slices_name_the_alternative(self) -> None:
        arr, _ = counting((4, 3))
        for index in (slice(None, None, 2), slice(None, None, -1)):
            with pytest.raises(TypeError, match=r"no step .* arr\.numpy\(\)\[a:b:step\]"):
                arr[index]
        for other in ((slice(None), 0), (..., 0), None, [0, 1], np.array([0, 1]), np.array([True] * 4)):
            with pytest.raises(TypeError, match=r"indices are integers.*arr\.numpy\(\)\[\.\.\.\]"):
                arr[other]
        with pytest.raises(TypeError, match="no axis to slice"):
            empty(())[:]


class TestElements:
    @given(shapes.filter(lambda s: 0 not in s), dtypes, st.data())
    def test_read_and_write(self, shape: tuple[int, ...], dtype: DType, data: st.DataObject) -> None:
        arr, want = counting(shape, dtype)
        index = tuple(data.draw(st.integers(-n, n - 1)) for n in shape)
        assert arr[index] == want[index]
        assert type(arr[index]) is (float if dtype.is_float else int)
        arr[index] = 77
        want[index] = 77
        np.testing.assert_array_equal(arr.numpy(), want)

    def test_any_integer_is_an_index(self) -> None:
        arr, _ = counting((3, 4))
        assert arr[np.int8(1), np.uint64(2)] == 6
        assert arr[-1, -4] == 8
        assert full((), 5, i32)[()] == 5

    @pytest.mark.parametrize("index", [(3, 0), (-4, 0), (0, 4), (0, -5), (2**70, 0)])
    def test_out_of_range(self, index: tuple[int, int]) -> None:
        arr, _ = counting((3, 4))
        with pytest.raises(IndexError, match=r"out of range for axis \d with extent \d"):
            arr[index]
        with pytest.raises(IndexError, match="out of range"):
            arr[index] = 1

    @pytest.mark.parametrize("index", [0, (0,), (0, 0, 0), ()])
    def test_the_number_of_indices_is_the_number_of_dimensions(self, index: object) -> None:
        with pytest.raises(TypeError, match="2 dimensions takes 2 indices"):
            counting((3, 4))[0][index]

    @pytest.mark.parametrize("index", [True, np.True_, 1.0, "0", None, np.float32(1)])
    def test_indices_are_integers(self, index: object) -> None:
        with pytest.raises(TypeError, match="indices are integers"):
            counting((3,))[0][index]

    def test_a_slice_is_not_assigned(self) -> None:
        with pytest.raises(TypeError, match=r"tack\.copyto"):
            counting((3,))[0][0:2] = 1

    @pytest.mark.parametrize(
        ("dtype", "value", "stored"),
        [
            (u8, 300, 44),
            (u8, -1, 255),
            (i8, 128, -128),
            (u64, -1, 2**64 - 1),
            (i64, 2**63, -(2**63)),
            (i32, 2.9, 2),
            (i32, -2.9, -2),
            (i8, 1e9, 127),
            (u16, -5.0, 0),
            (i64, math.inf, 2**63 - 1),
            (i32, math.nan, 0),
            (f32, 2**24 + 1, 2.0**24),
            (f32, 2**54 + 2**30 + 1, 2.0**54 + 2.0**31),  # by way of f64 it would tie to 2**54
            (f32, 1e300, math.inf),
            (f32, 0.1, float(np.float32(0.1))),
            (f64, 0.1, 0.1),
            (i32, True, 1),
            (i32, np.True_, 1),
            (f32, np.int8(-3), -3.0),
            (i32, np.array(7), 7),
        ],
    )
    def test_values_convert_as_stores_do(self, dtype: DType, value: object, stored: float) -> None:
        arr = zeros(3, dtype)
        arr[1] = value
        assert arr.numpy().tolist() == [0, stored, 0]
        arr.fill(value)
        assert arr.numpy().tolist() == [stored] * 3

    def test_a_0d_array_is_a_number(self) -> None:
        arr = zeros(2, i32)
        arr[0] = full((), 9, f32)
        assert arr[0] == 9

    @pytest.mark.parametrize("value", [None, "1", 1j, [1], np.array([1]), object(), 2**64, -(2**63) - 1])
    def test_a_value_is_a_number(self, value: object) -> None:
        arr = zeros(2, i32)
        with pytest.raises(TypeError, match=r"expected a number|does not fit in 64 bits"):
            arr[0] = value
        with pytest.raises(TypeError):
            arr.fill(value)
        assert arr.numpy().tolist() == [0, 0]


class TestProtocols:
    def test_len_and_iteration(self) -> None:
        arr, want = counting((3,))
        assert len(arr) == 3
        assert list(arr) == want.tolist()
        assert all(type(v) is int for v in arr)
        grid, want = counting((3, 2))
        assert [row.numpy().tolist() for row in grid] == want.tolist()
        next(iter(grid)).fill(-1)
        assert grid[0, 1] == -1
        assert 5 in grid
        assert 6 not in grid
        for broken in (len, iter, list):
            with pytest.raises(TypeError, match="0-d array"):
                broken(empty(()))

    def test_numbers(self) -> None:
        assert float(full((), 2.5)) == 2.5
        assert int(full((), -7, i32)) == -7
        assert [10, 20, 30][full((), 1, i32)] == 20
        assert bool(full((1, 1), 3))
        assert not zeros(1)
        with pytest.raises(TypeError, match="0-d"):
            int(zeros(1))
        with pytest.raises(TypeError, match="0-d integer"):
            [][full((), 0.0)]
        for many in (zeros(0), zeros(2)):
            with pytest.raises(ValueError, match="neither true nor false"):
                bool(many)

    def test_repr(self) -> None:
        assert repr(full((2,), 1.5)) == "tack.Array([1.5, 1.5], dtype=f32, shape=(2,), device=cpu)"
        assert repr(zeros((100, 10), u8)) == "tack.Array(dtype=u8, shape=(100, 10), device=cpu)"
        assert "read-only" in repr(asarray(np.broadcast_to(np.float32(1), (1,))))
        assert repr(full((), 3, i32)) == "tack.Array(3, dtype=i32, shape=(), device=cpu)"
        assert "shape=(0, 2)" in repr(empty((0, 2)))

    def test_array_protocol(self) -> None:
        arr, want = counting((2, 3), f32)
        view = np.asarray(arr)
        view[0, 0] = 9
        assert arr[0, 0] == 9  # a view
        np.asarray(arr, copy=False)[0, 1] = 8
        assert arr[0, 1] == 8
        separate = np.array(arr)
        separate[:] = 0
        assert arr[0, 0] == 9
        np.testing.assert_array_equal(np.asarray(arr, np.float64)[1], want[1])
        with pytest.raises(ValueError, match="copy"):
            np.asarray(arr, np.int32, copy=False)
        assert (np.ones((2, 3)) + arr)[0, 0] == 10
        with pytest.raises(ValueError, match="copy"):
            arr.__array__(np.float64, copy=False)
        assert arr.__array__(copy=True) is not arr.__array__()

    def test_array_protocol_respects_read_only(self) -> None:
        values = np.arange(3)
        values.flags.writeable = False
        assert not np.asarray(asarray(values)).flags.writeable
        assert not asarray(values).__array__().flags.writeable

    def test_a_numpy_view_keeps_the_memory(self) -> None:
        view = np.asarray(full(1000, 4.0))
        gc.collect()
        noise = [full(1000, 1.0) for _ in range(8)]
        assert (view == 4).all()
        del noise

    def test_dropping_an_array_frees_it_at_once(self) -> None:
        arr = zeros(4)
        view = np.asarray(arr)
        gone = weakref.ref(arr)
        del arr
        assert view.base is not None
        del view
        assert gone() is None

    def test_buffer_protocol(self) -> None:
        arr, want = counting((2, 3), i32)
        view = memoryview(arr) if sys.version_info >= (3, 12) else arr.__buffer__(0)
        assert (view.format, view.shape, view.tobytes()) == ("i", (2, 3), want.tobytes())
        view[0, 0] = 5
        assert arr[0, 0] == 5
        want.flags.writeable = False
        assert asarray(want).__buffer__(0).readonly
        with pytest.raises(BufferError, match="read-only"):
            asarray(want).__buffer__(1)

    def test_copies(self) -> None:
        arr, want = counting((2, 3), i32)
        for twin in (arr.copy(), copy.copy(arr), copy.deepcopy(arr), pickle.loads(pickle.dumps(arr))):
            assert (twin.dtype, twin.device, twin.writable) == (arr.dtype, arr.device, True)
            np.testing.assert_array_equal(twin.numpy(), want)
            twin.fill(0)
            np.testing.assert_array_equal(arr.numpy(), want)
        part = arr[1:].copy()
        np.testing.assert_array_equal(part.numpy(), want[1:])

    def test_to_a_device(self) -> None:
        from tack import device

        arr, want = counting((2, 3))
        assert arr.to("cpu") is arr
        other = device("cpu", num_threads=1)
        moved = arr.to(other)
        assert moved.device == other
        np.testing.assert_array_equal(moved.numpy(), want)

    def test_no_other_attributes(self) -> None:
        arr = zeros(1)
        for name in ("shape", "dtype", "extra"):
            with pytest.raises(AttributeError):
                setattr(arr, name, (4,))


def kernel_cast(value: float, dtype: DType) -> float:
    """The cast of one number, by Python's integers."""
    if dtype.is_float:
        return float(np.array(value).astype(dtype.numpy))
    return dtype.wrap(value) if isinstance(value, int) else dtype.saturate(value)


SPECIAL = [0.0, -0.0, 0.5, -0.5, -0.99, 1.5, -1.5, 127.9, 128.0, -128.9, -129.0, 255.9, 256.0]
SPECIAL += [2.0**31 - 1, 2.0**31, -(2.0**31), -(2.0**31) - 1, 2.0**32, 2.0**63, 2.0**63 - 1024]
SPECIAL += [-(2.0**63), -(2.0**64), 2.0**64, 2.0**64 - 2048, 1e30, -1e30, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("target", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_astype_is_the_kernels_cast(source: DType, target: DType) -> None:
    if source.is_float:
        values = np.array(SPECIAL, np.float64).astype(source.numpy)
        values = np.tile(values, 3000)  # more than one block, and the vector path of NumPy's casts
    else:
        edges = {source.min, source.max, 0, 1, source.min + 1, source.max - 1, source.max // 3}
        values = np.array(sorted(edges), source.numpy)
    got = asarray(values).astype(target)
    assert got.dtype is target
    want = [kernel_cast(v, target) for v in values.tolist()]
    np.testing.assert_array_equal(got.numpy(), np.array(want, target.numpy), strict=True)
    assert asarray(values).astype(target).address != asarray(values).address
