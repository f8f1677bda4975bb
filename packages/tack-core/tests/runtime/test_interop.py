"""Memory of other libraries: raw pointers, NumPy and DLPack, torch where it is installed."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from tack import (
    Array,
    DType,
    array_from_ptr,
    asarray,
    device,
    empty,
    f32,
    f64,
    from_dlpack,
    full,
    i32,
    i64,
    memory_space,
    zeros,
)
from tack.dtypes import ALL_DTYPES
from tack.runtime import dlpack
from tack.runtime.dispatch import default_backend
from tack.runtime.interop import as_argument


class Tracked:
    """Something whose end can be seen."""


class TestArrayFromPtr:
    def test_address(self) -> None:
        values = np.arange(6, dtype=np.float32)
        arr = array_from_ptr(values.ctypes.data, f32, (2, 3), writable=True)
        arr[1, 2] = 9
        assert values[5] == 9
        assert arr.address == values.ctypes.data
        assert array_from_ptr(np.uint64(values.ctypes.data), f32, 6)[5] == 9

    def test_numpy_array_is_kept_alive(self) -> None:
        values = np.arange(6, dtype=np.int32)
        gone = weakref.ref(values)
        arr = array_from_ptr(values, i32, 4)
        assert arr.numpy().tolist() == [0, 1, 2, 3]
        view = arr[1:]
        del values, arr
        assert gone() is not None
        del view
        assert gone() is None

    def test_owner_is_kept_alive(self) -> None:
        values, owner = np.arange(3), Tracked()
        gone = weakref.ref(owner)
        arr = array_from_ptr(values.ctypes.data, i64, 3, owner=owner)
        view = np.asarray(arr[1:])
        del arr, owner
        gc.collect()
        assert gone() is not None
        del view
        gc.collect()
        assert gone() is None

    def test_read_only_unless_told(self) -> None:
        values = np.zeros(3, np.float32)
        with pytest.raises(ValueError, match="read-only"):
            array_from_ptr(values, f32, 3).fill(1)
        array_from_ptr(values, f32, 3, writable=True).fill(1)
        assert values.tolist() == [1, 1, 1]
        values.flags.writeable = False
        with pytest.raises(ValueError, match=r"read-only; leave out writable=True"):
            array_from_ptr(values, f32, 3, writable=True)

    @pytest.mark.parametrize("ptr", [None, 1.5, "8", b"x", True, object(), [8]])
    def test_not_an_address(self, ptr: object) -> None:
        with pytest.raises(TypeError, match="a CPU pointer is an integer address or a NumPy array"):
            array_from_ptr(ptr, f32, 1)

    @pytest.mark.parametrize(("ptr", "error"), [(0, "null"), (-8, "not an address"), (2**64 - 3, "address")])
    def test_bad_address(self, ptr: int, error: str) -> None:
        with pytest.raises(ValueError, match=error):
            array_from_ptr(ptr, f32, 1)
        assert array_from_ptr(0, f32, 0).size == 0

    def test_bad_numpy_array(self) -> None:
        with pytest.raises(ValueError, match=r"strides \(8, 24\).*ascontiguousarray"):
            array_from_ptr(np.zeros((2, 3)).T[:], f64, 6)
        with pytest.raises(ValueError, match="has 24 bytes"):
            array_from_ptr(np.zeros(3), f64, 4)

    def test_bad_shape_and_dtype(self) -> None:
        with pytest.raises(ValueError, match="negative"):
            array_from_ptr(8, f32, -1)
        with pytest.raises(TypeError, match="integers"):
            array_from_ptr(8, f32, 1.0)
        with pytest.raises(TypeError):
            array_from_ptr(8, "i8", 1)

    def test_memory_space(self) -> None:
        arr = zeros(3)
        for ptr in (arr, arr.numpy(), arr.address, np.uint64(arr.address), 0):
            assert memory_space(ptr) == "cpu"
        with pytest.raises(TypeError, match="integer address, not NoneType"):
            memory_space(None)
        with pytest.raises(ValueError, match="not an address"):
            memory_space(-1)


class TestAsArgument:
    def test_shares(self) -> None:
        for dtype in ALL_DTYPES:
            values = np.ones((2, 3), dtype.numpy)
            arr = as_argument(values, default_backend())
            assert arr is not None
            assert (arr.address, arr.shape, arr.dtype) == (values.ctypes.data, (2, 3), dtype)
            assert arr.writable

    def test_no_array(self) -> None:
        for obj in (1, 2.0, None, "x", [1, 2], np.float32(1), object(), True):
            assert as_argument(obj, default_backend()) is None

    def test_arrays_pass(self) -> None:
        arr = zeros(3)
        assert as_argument(arr, default_backend()) is arr

    def test_read_only_is_respected(self) -> None:
        values = np.zeros(3)
        values.flags.writeable = False
        for shared in (values, np.broadcast_to(np.float64(1), (1,))):
            arr = as_argument(shared, default_backend())
            assert arr is not None
            assert not arr.writable

    @pytest.mark.parametrize(
        "change",
        [
            lambda v: v.T,
            lambda v: v[:, ::2],
            lambda v: v[::-1],
            lambda v: v[:, 0],
            lambda v: np.broadcast_to(v[0], (3, 4)),
            np.asfortranarray,
        ],
    )
    def test_strided(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        values = change(np.zeros((3, 4)))
        with pytest.raises(ValueError, match="must be C-contiguous") as caught:
            as_argument(values, default_backend(), "argument 'x'")
        assert str(caught.value) == (
            f"argument 'x' has shape {values.shape} and strides {values.strides}, but must be C-contiguous; "
            f"pass np.ascontiguousarray(x)"
        )

    def test_contiguous_in_effect(self) -> None:
        for shape in ((5, 1), (1, 5), (1, 1), (0, 5), ()):
            assert as_argument(np.zeros(shape, order="F"), default_backend()) is not None
        assert as_argument(np.zeros((4, 3))[1:3], default_backend()) is not None

    @pytest.mark.parametrize("dtype", [bool, complex, "f2", "S3", object, "M8[s]", np.longdouble, "f4,i4"])
    def test_other_dtypes(self, dtype: Any) -> None:
        with pytest.raises(TypeError, match=r"argument 'x' has dtype .*int8, uint8.*float64"):
            as_argument(np.zeros(3, dtype), default_backend(), "argument 'x'")

    def test_byte_order(self) -> None:
        swapped = np.zeros(3, np.dtype("f4").newbyteorder())
        with pytest.raises(TypeError, match=r"byte order; convert it with \.astype\('float32'\)"):
            as_argument(swapped, default_backend())

    def test_subclasses(self) -> None:
        with pytest.raises(TypeError, match="masked array"):
            as_argument(np.ma.zeros(3), default_backend())

    def test_unaligned_memory_is_fine(self) -> None:
        values = np.zeros(13, np.uint8)[1:].view(np.float32)
        arr = as_argument(values, default_backend())
        assert arr is not None
        arr.fill(2)
        assert values.tolist() == [2, 2, 2]

    def test_cuda_memory_is_not_the_cpus(self) -> None:
        class Elsewhere:
            __cuda_array_interface__: ClassVar = {"version": 3}

        with pytest.raises(ValueError, match="'x' is in CUDA memory, which CPU cannot address"):
            as_argument(Elsewhere(), default_backend(), "'x'")


class Producer:
    """A DLPack exporter made of ctypes, of every kind that is wrong, which counts its deletions."""

    def __init__(
        self,
        values: np.ndarray,
        *,
        versioned: bool = True,
        old: bool = False,
        delete: bool = True,
        **changes: Any,
    ) -> None:
        self.values, self.versioned, self.old, self.changes = values, versioned, old, changes
        self.deletions = 0
        self._keep: list[Any] = []
        self._deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._delete) if delete else None

    def _delete(self, managed: int) -> None:
        self.deletions += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("unexpected keyword argument 'max_version'")
        kind = dlpack._ManagedVersioned if self.versioned else dlpack._Managed
        managed = kind()
        tensor, values = managed.tensor, self.values
        dtype = values.dtype
        shape = (ctypes.c_int64 * max(1, values.ndim))(*values.shape)
        strides = (ctypes.c_int64 * max(1, values.ndim))(*(s // dtype.itemsize for s in values.strides))
        self._keep += [managed, shape, strides]
        tensor.data = values.ctypes.data
        tensor.device.type = 1
        tensor.ndim = values.ndim
        tensor.dtype.code = {"i": 0, "u": 1, "f": 2}[dtype.kind]
        tensor.dtype.bits = 8 * dtype.itemsize
        tensor.dtype.lanes = 1
        tensor.shape = shape
        tensor.strides = strides
        if self.versioned:
            managed.major = 1
        if self._deleter is not None:
            managed.deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value
        for path, value in self.changes.items():
            target = managed if path in ("major", "flags") else tensor
            *parents, last = path.split("__")
            for name in parents:
                target = getattr(target, name)
            setattr(target, last, value)
        return _new_capsule(
            ctypes.addressof(managed), b"dltensor_versioned" if self.versioned else b"dltensor"
        )


_names = (b"dltensor", b"dltensor_versioned")
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_new.restype = ctypes.py_object


def _new_capsule(pointer: int, name: bytes) -> Any:
    return _capsule_new(pointer, _names[_names.index(name)], None)


class TestDlpackImport:
    @pytest.mark.parametrize("versioned", [False, True])
    @pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
    def test_shares_and_deletes_once(self, dtype: DType, versioned: bool) -> None:
        values = np.arange(6).reshape(2, 3).astype(dtype.numpy)
        producer = Producer(values, versioned=versioned)
        arr = from_dlpack(producer)
        assert (arr.address, arr.shape, arr.dtype) == (values.ctypes.data, (2, 3), dtype)
        arr[0, 0] = 9
        assert values[0, 0] == 9
        view = np.asarray(arr[1:])
        del arr
        gc.collect()
        assert producer.deletions == 0
        assert view.tolist() == [[3, 4, 5]]
        del view
        gc.collect()
        assert producer.deletions == 1

    def test_producers_from_before_versions(self) -> None:
        producer = Producer(np.zeros(3), versioned=False, old=True)
        assert from_dlpack(producer).shape == (3,)

    def test_no_deleter(self) -> None:
        assert from_dlpack(Producer(np.ones(3), delete=False)).sum() == 3

    def test_read_only_flag(self) -> None:
        arr = from_dlpack(Producer(np.zeros(3), flags=1))
        assert not arr.writable
        assert from_dlpack(Producer(np.zeros(3), flags=1), copy=True).writable
        assert from_dlpack(Producer(np.zeros(3), flags=2)).writable

    def test_byte_offset(self) -> None:
        assert from_dlpack(Producer(np.arange(4.0), byte_offset=8, ndim=0))[()] == 1

    def test_copy(self) -> None:
        values = np.arange(3)
        producer = Producer(values)
        arr = from_dlpack(producer, copy=True)
        assert arr.address != values.ctypes.data
        assert producer.deletions == 1
        other = device("cpu", num_threads=1)
        assert from_dlpack(Producer(values), device=other).device == other
        with pytest.raises(ValueError, match="needs a copy"):
            from_dlpack(Producer(values), device=other, copy=False)
        assert from_dlpack(Producer(values), copy=False).address == values.ctypes.data

    def test_a_capsule_once(self) -> None:
        producer = Producer(np.arange(3))
        capsule = producer.__dlpack__()
        first = from_dlpack(capsule)
        with pytest.raises(ValueError, match="consumed before"):
            from_dlpack(capsule)
        del first, capsule
        gc.collect()
        assert producer.deletions == 1

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"data": None}, "null"),
            ({"device__type": 99}, "device type 99"),
            ({"major": 2}, "version 2.0 is not supported"),
            ({"ndim": -1}, "dimensions"),
            ({"ndim": 65}, "dimensions"),
            ({"shape": None}, "dimensions"),
            ({"shape": (ctypes.c_int64 * 2)(2, -3)}, "shape"),
            ({"strides": (ctypes.c_int64 * 2)(1, 2)}, r"strides \(1, 2\).*contiguous"),
            ({"strides": (ctypes.c_int64 * 2)(0, 1)}, "strides"),
            ({"strides": (ctypes.c_int64 * 2)(3, -1)}, "strides"),
        ],
    )
    def test_refused(self, changes: dict[str, Any], error: str) -> None:
        producer = Producer(np.ones((2, 3)), **changes)
        with pytest.raises(ValueError, match=error):
            from_dlpack(producer)
        assert producer.deletions == 0  # the capsule still owns it

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"dtype__code": 6, "dtype__bits": 8}, "bool8"),
            ({"dtype__code": 4, "dtype__bits": 16}, "bfloat16"),
            ({"dtype__code": 5}, "complex64"),
            ({"dtype__bits": 16}, "float16"),
            ({"dtype__bits": 128}, "float128"),
            ({"dtype__code": 77}, "code 77"),
            ({"dtype__lanes": 4}, "4 lanes"),
            ({"dtype__lanes": 0}, "0 lanes"),
        ],
    )
    def test_dtype_refused(self, changes: dict[str, Any], error: str) -> None:
        with pytest.raises(TypeError, match=rf"{error}.*accepted: int8"):
            from_dlpack(Producer(np.ones(6), **changes))

    def test_strides_that_do_not_matter(self) -> None:
        ones = (ctypes.c_int64 * 2)(777, 1)
        assert from_dlpack(Producer(np.ones((1, 3)), strides=ones)).sum() == 3
        assert from_dlpack(Producer(np.ones((0, 3)), strides=ones)).size == 0
        assert from_dlpack(Producer(np.ones((0, 3)), data=None)).size == 0
        assert from_dlpack(Producer(np.ones((2, 3)), strides=None)).sum() == 6

    @pytest.mark.parametrize("obj", [None, 3, "x", [1.0], object()])
    def test_not_dlpack(self, obj: object) -> None:
        with pytest.raises(TypeError, match="expected a DLPack capsule"):
            from_dlpack(obj)

    def test_a_device_that_cannot_start(self) -> None:
        with pytest.raises(RuntimeError, match="'cuda' cannot start"):
            from_dlpack(Producer(np.ones(3), device__type=2))

    def test_arguments(self) -> None:
        values = np.arange(3.0)
        arr = as_argument(Producer(values, flags=1), default_backend())
        assert arr is not None
        assert (arr.address, arr.writable) == (values.ctypes.data, False)
        with pytest.raises(ValueError, match="argument 'x': the DLPack tensor of shape"):
            as_argument(Producer(np.zeros((2, 3)).T), default_backend(), "argument 'x'")


class TestDlpackExport:
    @pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
    def test_numpy_shares(self, dtype: DType) -> None:
        arr = full((2, 3), 3, dtype)
        values = np.from_dlpack(arr)
        assert (values.ctypes.data, values.dtype, values.shape) == (arr.address, dtype.numpy, (2, 3))
        del arr
        gc.collect()
        assert (values == 3).all()

    def test_round_trip(self) -> None:
        arr = full((2, 3), 3, i32)
        twin = from_dlpack(arr)
        assert twin.address == arr.address
        capsule = arr.__dlpack__(max_version=(1, 0))
        assert "dltensor_versioned" in repr(capsule)
        assert from_dlpack(capsule).address == arr.address
        assert "dltensor_versioned" not in repr(arr.__dlpack__())
        assert arr.__dlpack_device__() == (1, 0)

    def test_read_only(self) -> None:
        values = np.zeros(3)
        values.flags.writeable = False
        arr = asarray(values)
        with pytest.raises(BufferError, match=r"read-only array .* DLPack 1\.0"):
            arr.__dlpack__()
        assert not from_dlpack(arr.__dlpack__(max_version=(1, 0))).writable
        assert not np.from_dlpack(arr).flags.writeable

    def test_copy_and_device(self) -> None:
        arr = full(3, 2.0)
        assert from_dlpack(arr.__dlpack__(copy=True)).address != arr.address
        assert from_dlpack(arr.__dlpack__(copy=False, dl_device=(1, 0))).address == arr.address
        with pytest.raises(BufferError, match=r"arr\.to"):
            arr.__dlpack__(dl_device=(2, 0))
        with pytest.raises(BufferError, match="stream"):
            arr.__dlpack__(stream=1)

    def test_empty_and_0d(self) -> None:
        for shape in ((), (0,), (0, 3)):
            assert np.from_dlpack(empty(shape)).shape == shape


if importlib.util.find_spec("torch") is not None:

    class TestTorch:
        def test_both_ways(self) -> None:
            import torch

            tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
            arr = from_dlpack(tensor)
            arr[0, 0] = 9
            assert tensor[0, 0] == 9
            assert arr.address == tensor.data_ptr()
            back = torch.from_dlpack(arr)
            assert back.data_ptr() == tensor.data_ptr()
            fresh = torch.from_dlpack(full(3, 4, i64))
            gc.collect()
            assert fresh.tolist() == [4, 4, 4]
            arr2 = asarray(tensor)
            assert arr2.address == tensor.data_ptr()

        def test_refusals(self) -> None:
            import torch

            tensor = torch.zeros(2, 3)
            with pytest.raises(ValueError, match=r"strides \(1, 3\).*contiguous"):
                from_dlpack(tensor.T)
            for dtype in (torch.bool, torch.bfloat16, torch.complex64, torch.float16):
                with pytest.raises(TypeError, match="has no Tack type"):
                    from_dlpack(torch.zeros(3, dtype=dtype))
            arr = as_argument(tensor, default_backend())
            assert isinstance(arr, Array)

        def test_export_outlives_the_interpreter(self, run_python: Callable[..., Any]) -> None:
            code = (
                "import torch, sys\n"
                "from tack import full\n"
                "torch.kept = torch.from_dlpack(full(1000, 1.0))\n"
                "sys.kept = torch.kept\n"
            )
            assert run_python("-c", code).returncode == 0


def test_an_import_alive_at_exit_is_harmless(run_python: Callable[..., Any]) -> None:
    code = (
        "import sys, numpy as np\n"
        "from tack import full\n"
        "from tack import from_dlpack\n"
        "sys.kept = [from_dlpack(np.arange(100)), np.from_dlpack(full(100, 1.0))]\n"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
