"""Functions that make arrays and copy between them. NumPy is the oracle."""

from __future__ import annotations

import array as pyarray
import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tack import (
    Array,
    DType,
    arange,
    asarray,
    concat,
    copyto,
    device,
    empty,
    empty_like,
    f32,
    f64,
    full,
    full_like,
    i8,
    i16,
    i32,
    i64,
    linspace,
    ones,
    ones_like,
    u8,
    u32,
    u64,
    zeros,
    zeros_like,
)
from tack.dtypes import ALL_DTYPES

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
dtypes = st.sampled_from(ALL_DTYPES)


class TestShapes:
    @pytest.mark.parametrize("shape", [0, 5, (), (3,), [2, 3], (0, 4), np.int16(3), (np.uint64(2), 3)])
    def test_accepted(self, shape: object) -> None:
        want = np.empty(shape).shape  # type: ignore[call-overload]
        assert empty(shape).shape == want
        assert all(type(n) is int for n in empty(shape).shape)
        assert empty(shape).dtype is f32

    @pytest.mark.parametrize("shape", [True, 3.0, "3", None, (2, 3.0), (2, None), ((2,), 3), (True, 2), {3}])
    def test_extents_are_integers(self, shape: object) -> None:
        with pytest.raises(TypeError, match="extents are integers"):
            empty(shape)

    @pytest.mark.parametrize("shape", [-1, (3, -2), (0, -1)])
    def test_extents_are_not_negative(self, shape: object) -> None:
        with pytest.raises(ValueError, match="must not be negative"):
            empty(shape)

    @pytest.mark.parametrize("shape", [2**62, (2**31, 2**31, 2), 2**63, (2**70, 0), 2**200])
    def test_more_than_63_bits(self, shape: object) -> None:
        with pytest.raises(ValueError, match=r"more than 2\*\*63 bytes"):
            empty(shape, f32)

    def test_dimensions(self) -> None:
        assert empty((1,) * 64).ndim == 64
        with pytest.raises(ValueError, match="at most 64 dimensions, not 65"):
            empty((1,) * 65)

    @pytest.mark.parametrize("shape", [2**40, (2**20, 2**20), 2**60])
    def test_out_of_memory(self, shape: object) -> None:
        with pytest.raises(MemoryError, match=r"cannot allocate .*iB on the CPU: .* is free"):
            empty(shape)
        assert zeros(4).numpy().tolist() == [0] * 4  # the device stays usable

    @pytest.mark.parametrize(
        "dtype", ["i8", "u8", "float16", bool, complex, "nonsense", None, "f4,f4", object]
    )
    def test_dtypes(self, dtype: object) -> None:
        with pytest.raises(TypeError):
            empty(3, dtype)

    @pytest.mark.parametrize("dtype", ["f4", "float64", np.uint8, np.dtype("i2"), int, float, i8, "int8"])
    def test_numpy_dtypes(self, dtype: object) -> None:
        want = dtype.numpy if isinstance(dtype, DType) else np.dtype(dtype)  # type: ignore[call-overload]
        assert empty(3, dtype).dtype == want


class TestFilled:
    @given(shapes, dtypes)
    def test_constant(self, shape: tuple[int, ...], dtype: DType) -> None:
        for ours, numpys in ((zeros, np.zeros), (ones, np.ones)):
            np.testing.assert_array_equal(ours(shape, dtype).numpy(), numpys(shape, dtype.numpy), strict=True)
        np.testing.assert_array_equal(full(shape, 7, dtype).numpy(), np.full(shape, 7, dtype.numpy))

    def test_full_is_f32_unless_told(self) -> None:
        assert full(2, 3).dtype is f32
        assert full(2, 3, "int16").dtype is i16

    @pytest.mark.parametrize("size", [2**18 - 1, 2**18, 2**18 + 1, 2**21 + 3])
    @pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
    def test_large_fills(self, size: int, dtype: DType) -> None:
        value = -3.5 if dtype.is_float else dtype.max - 1
        arr = zeros(size + 2, dtype)
        arr[1 : size + 1].fill(value)
        want = np.zeros(size + 2, dtype.numpy)
        want[1:-1] = value
        np.testing.assert_array_equal(arr.numpy(), want)

    @pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00001, 0x80000000])
    def test_large_fills_keep_the_sign_of_zero_and_nan(self, bits: int) -> None:
        value = np.uint32(bits).view(np.float32)
        assert (full(2**19, value).numpy().view(np.uint32) >> 31 == bits >> 31).all()

    def test_like(self) -> None:
        arr = full((2, 3), 5, i16)
        other = device("cpu", num_threads=1)
        for source in (arr, arr.numpy()):
            assert (empty_like(source).shape, empty_like(source).dtype) == ((2, 3), i16)
            assert zeros_like(source).numpy().tolist() == np.zeros((2, 3)).tolist()
            assert ones_like(source, f64).dtype is f64
            assert full_like(source, 9, shape=4).numpy().tolist() == [9] * 4
            assert empty_like(source, device=other).device == other
        assert empty_like(zeros(3, device=other)).device == other
        with pytest.raises(TypeError, match="expected an Array or a NumPy array, not list"):
            empty_like([1, 2])
        with pytest.raises(TypeError, match="complex128"):
            empty_like(np.zeros(2, complex))
        assert empty_like(np.zeros(2, complex), f32).dtype is f32


class TestArange:
    @given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7).filter(bool))
    def test_ints(self, start: int, stop: int, step: int) -> None:
        got = arange(start, stop, step)
        assert got.dtype is i32
        assert got.numpy().tolist() == list(range(start, stop, step))
        assert arange(stop).numpy().tolist() == list(range(stop))

    @pytest.mark.parametrize(
        ("limits", "dtype"),
        [
            ((2**64 - 5, 2**64), u64),
            ((-(2**63), -(2**63) + 3), i64),
            ((2**64 - 1, -1, -(2**62)), u64),
            ((2**63 - 4, 2**63), i64),
            ((0, 2**64, 2**61), u64),
            ((-(2**63), 2**63, 2**61), i64),
            ((250, 256), u8),
            ((2**53, 2**53 + 5), f64),
            ((-3, 70000), f32),
            ((2**40, 2**40 + 2**24, 2**15 + 1), f32),
        ],
    )
    def test_ints_are_exact(self, limits: tuple[int, ...], dtype: DType) -> None:
        want = np.array([np.array(v).astype(dtype.numpy) for v in range(*limits)], dtype.numpy)
        np.testing.assert_array_equal(arange(*limits, dtype=dtype).numpy(), want, strict=True)

    @given(st.floats(-20, 20), st.floats(-20, 20), st.sampled_from([0.1, 0.3, 1.0, -0.7, 2.5]))
    def test_floats(self, start: float, stop: float, step: float) -> None:
        count = len(np.arange(start, stop, step))
        want = start + np.arange(count) * step
        got = arange(start, stop, step, f64)
        np.testing.assert_array_equal(got.numpy(), want, strict=True)
        np.testing.assert_array_equal(arange(start, stop, step).numpy(), want.astype("f4"), strict=True)

    def test_mixed_limits_are_floats(self) -> None:
        assert arange(3.0).dtype is f32
        assert arange(0, 1, 0.25).numpy().tolist() == [0, 0.25, 0.5, 0.75]
        assert arange(np.int8(3)).dtype is i32
        assert arange(0, 2.5, dtype=i32).numpy().tolist() == [0, 1, 2]

    def test_longer_than_a_block(self) -> None:
        np.testing.assert_array_equal(arange(200_001).numpy(), np.arange(200_001))

    @pytest.mark.parametrize(("limits", "dtype"), [((2**31 + 1,), None), ((300,), u8), ((-1, 3), u32)])
    def test_dtype_too_narrow(self, limits: tuple[int, ...], dtype: DType | None) -> None:
        with pytest.raises(OverflowError, match="pass a wider dtype"):
            arange(*limits, dtype=dtype)

    def test_bad_limits(self) -> None:
        with pytest.raises(ValueError, match="step of arange must not be zero"):
            arange(0, 3, 0)
        for limit in (math.inf, math.nan):
            with pytest.raises(ValueError, match="must be finite"):
                arange(limit)
        with pytest.raises(TypeError, match="real number, not str"):
            arange("3")
        with pytest.raises(ValueError, match=r"2\*\*63 bytes|too many"):
            arange(0.0, 1e300, 1.0)
        with pytest.raises(MemoryError):
            arange(2**40, dtype=i64)
        with pytest.raises(ValueError, match="too many"):
            arange(0.0, 1e300, 1e-300)


class TestLinspace:
    @given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(0, 40), st.booleans())
    def test_is_numpys(self, start: float, stop: float, num: int, endpoint: bool) -> None:
        got = linspace(start, stop, num, f64, endpoint=endpoint).numpy()
        want = np.linspace(start, stop, num, endpoint=endpoint)
        np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-9)
        assert linspace(start, stop, num).dtype is f32
        if num > 1 and endpoint:
            assert got[-1] == stop

    def test_longer_than_a_block(self) -> None:
        np.testing.assert_array_equal(linspace(0, 1, 200_001, f64).numpy(), np.linspace(0, 1, 200_001))

    def test_bad_limits(self) -> None:
        with pytest.raises(ValueError, match="cannot make -1 numbers"):
            linspace(0, 1, -1)
        with pytest.raises(TypeError, match="real number"):
            linspace(None, 1)
        with pytest.raises(TypeError, match="integers"):
            linspace(0, 1, 2.5)


class TestAsarray:
    def test_shares_numpys_memory(self) -> None:
        values = np.arange(6, dtype=np.float32).reshape(2, 3)
        arr = asarray(values)
        arr[0, 0] = 9
        assert values[0, 0] == 9
        assert arr.address == values.ctypes.data
        assert asarray(values, copy=True).address != values.ctypes.data
        assert asarray(values, np.float32, copy=False).address == values.ctypes.data

    def test_an_array_is_itself(self) -> None:
        arr = zeros(3)
        assert asarray(arr) is arr
        assert asarray(arr, f32, copy=False) is arr
        assert asarray(arr, copy=True) is not arr
        assert asarray(arr, i32).dtype is i32
        with pytest.raises(ValueError, match="copy=False"):
            asarray(arr, i32, copy=False)
        other = device("cpu", num_threads=1)
        assert asarray(arr, device=other).device == other
        with pytest.raises(ValueError, match="copy=False"):
            asarray(arr, device=other, copy=False)

    @pytest.mark.parametrize(
        "obj", [3, 2.5, True, [1, 2], [1, 2.5], [[1], [2]], (1, 2), range(4), [], np.float32(2), [True, 2]]
    )
    def test_dtype_is_numpys(self, obj: object) -> None:
        want = np.asarray(obj)
        if want.dtype == bool:
            want = want.astype("u1")
            got = asarray(obj, u8)
        else:
            got = asarray(obj)
        np.testing.assert_array_equal(got.numpy(), want, strict=True)
        assert got.address % 64 == 0

    def test_dtype_converts_as_kernels_do(self) -> None:
        assert asarray([1.9, -1.9, math.nan, 1e9], i8).numpy().tolist() == [1, -1, 0, 127]
        assert asarray([300, -1], u8).numpy().tolist() == [44, 255]
        # NumPy makes floats of these, which have lost their low bits.
        assert asarray([1, 2**64 - 2], u64).numpy().tolist() == [1, 2**64 - 2]
        assert asarray([[-3, 2**63 + 1]], u64).numpy().tolist() == [[2**64 - 3, 2**63 + 1]]
        assert asarray([-1, 2**64 - 2], u8).numpy().tolist() == [255, 254]
        assert asarray([-1, 2**64 - 2], f64).numpy().tolist() == [-1.0, 2.0**64]
        assert asarray(np.array([0.1, 2], np.float16), f64).numpy().tolist() == [float(np.float16(0.1)), 2.0]

    def test_strided_arrays_are_copied(self) -> None:
        values = np.arange(12, dtype=np.int32).reshape(3, 4)
        for strided in (values.T, values[:, ::2], values[::-1], np.broadcast_to(values[0], (3, 4))):
            got = asarray(strided)
            assert got.writable
            np.testing.assert_array_equal(got.numpy(), strided, strict=True)
            with pytest.raises(ValueError, match="C-contiguous"):
                asarray(strided, copy=False)
        swapped = values.astype(">i4")
        np.testing.assert_array_equal(asarray(swapped, i32).numpy(), values)

    def test_extents_of_one_do_not_make_an_array_strided(self) -> None:
        for values in (np.zeros((5, 1), order="F"), np.zeros((1, 5), order="F"), np.zeros((0, 5), order="F")):
            assert asarray(values, copy=False).shape == values.shape

    def test_buffers_are_shared(self) -> None:
        values = pyarray.array("f", [1, 2, 3])
        arr = asarray(values)
        arr[0] = 7
        assert values[0] == 7
        assert not asarray(memoryview(b"abc")).writable

    @pytest.mark.parametrize(
        "obj",
        [None, "text", [1j], [None], {1: 2}, [2**70], np.array(["a"]), [[1], [2, 3]], np.zeros(2, "M8[s]")],
    )
    def test_refused(self, obj: object) -> None:
        with pytest.raises((TypeError, ValueError)):
            asarray(obj)

    def test_a_masked_array_is_refused(self) -> None:
        with pytest.raises(TypeError, match="filled"):
            asarray(np.ma.masked_array([1.0, 2.0], [True, False]))

    def test_plain_arrays_do_not_load_masked_ones(self) -> None:
        """That takes 5 ms of a process that may run for 30."""
        code = "import sys, numpy, tack; tack.asarray([1, 2]), tack.asarray(numpy.ones(3)); "
        code += "raise SystemExit('numpy.ma' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class TestConcat:
    @given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.sampled_from([(), (3,), (0,), (2, 2)]))
    def test_is_numpys(self, lengths: list[int], rest: tuple[int, ...]) -> None:
        parts = [np.full((n, *rest), k, np.int16) for k, n in enumerate(lengths)]
        want = np.concatenate(parts)
        np.testing.assert_array_equal(concat([asarray(p) for p in parts]).numpy(), want, strict=True)
        np.testing.assert_array_equal(concat(parts).numpy(), want, strict=True)

    def test_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one array"):
            concat([])
        with pytest.raises(TypeError, match="one dtype: the first is f32, number 2 is f64"):
            concat([zeros(2), zeros(2, f64)])
        with pytest.raises(ValueError, match="do not fit"):
            concat([zeros((2, 3)), zeros((2, 4))])
        with pytest.raises(ValueError, match="do not fit"):
            concat([zeros(())])


class TestCopyto:
    @given(shapes, dtypes, dtypes)
    def test_converts(self, shape: tuple[int, ...], source: DType, target: DType) -> None:
        values = (np.arange(math.prod(shape)) % 100).reshape(shape).astype(source.numpy)
        want = values.astype(target.numpy)
        dst, back = zeros(shape, target), np.zeros(shape, target.numpy)
        copyto(dst, values)
        np.testing.assert_array_equal(dst.numpy(), want, strict=True)
        dst.fill(0)
        copyto(dst, asarray(values))
        np.testing.assert_array_equal(dst.numpy(), want, strict=True)
        copyto(back, asarray(values))
        np.testing.assert_array_equal(back, want, strict=True)

    def test_strided_sources_and_targets(self) -> None:
        values = np.arange(12, dtype=np.float64).reshape(3, 4)
        dst = zeros((4, 3), f64)
        copyto(dst, values.T)
        np.testing.assert_array_equal(dst.numpy(), values.T)
        back = np.zeros((6, 8), np.int32)
        copyto(back[::2, ::2].T, asarray(values.T, copy=True))
        np.testing.assert_array_equal(back[::2, ::2], values)
        swapped = np.zeros((4, 3), ">f8")
        copyto(swapped, dst)
        np.testing.assert_array_equal(swapped, values.T)

    @given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10), st.sampled_from([i32, f32, u64]))
    def test_overlap(self, to: int, source: int, count: int, dtype: DType) -> None:
        want = np.arange(20).astype(dtype.numpy)
        arr = asarray(want, copy=True)
        copyto(arr[to : to + count], arr[source : source + count])
        want[to : to + count] = want[source : source + count].copy()
        np.testing.assert_array_equal(arr.numpy(), want)

    def test_overlap_with_numpy_and_conversion(self) -> None:
        values = np.arange(8, dtype=np.int32)
        arr = asarray(values)
        copyto(arr, values[::-1])
        assert values.tolist() == list(range(8))[::-1]
        bits = asarray(values.view(np.float32))
        want = values.copy().astype(np.float32)
        copyto(bits, arr)
        np.testing.assert_array_equal(bits.numpy(), want)

    def test_between_devices(self) -> None:
        dst = zeros(3, device=device("cpu", num_threads=1))
        copyto(dst, arange(3, dtype=f32))
        assert dst.numpy().tolist() == [0, 1, 2]

    @pytest.mark.parametrize(
        ("dst", "src"), [((3,), (4,)), ((2, 3), (3, 2)), ((3,), (1,)), ((), (1,)), ((0,), (0, 2))]
    )
    def test_shapes_must_be_equal(self, dst: tuple[int, ...], src: tuple[int, ...]) -> None:
        makers: list[Callable[..., Array | np.ndarray]] = [zeros, np.zeros]
        for make_dst in makers:
            for make_src in makers:
                with pytest.raises(ValueError, match="the shapes differ"):
                    copyto(make_dst(dst), make_src(src))

    def test_read_only_targets(self) -> None:
        values = np.zeros(3, np.float32)
        values.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            copyto(asarray(values), zeros(3))
        with pytest.raises(ValueError, match="read-only"):
            copyto(values, zeros(3))

    @pytest.mark.parametrize(("dst", "src"), [([0], np.zeros(1)), (np.zeros(1), [0]), (np.zeros(1), 0.0)])
    def test_other_types(self, dst: object, src: object) -> None:
        with pytest.raises(TypeError, match="is an Array or a NumPy array, not"):
            copyto(dst, src)

    def test_other_dtypes(self) -> None:
        arr = zeros(2, u8)
        copyto(arr, np.array([True, False]))
        assert arr.numpy().tolist() == [1, 0]
        with pytest.raises(TypeError, match="complex128"):
            copyto(arr, np.zeros(2, complex))
        with pytest.raises(TypeError, match="complex128"):
            copyto(np.zeros(2, complex), arr)
