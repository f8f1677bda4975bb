"""`Array`: typed memory on a device."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tack.dtypes import ALL_DTYPES, DType, ElementType, VectorType, as_element_type
from tack.runtime.convert import convert_array, convert_element, element_shape, is_integer
from tack.runtime.device import Device, as_device
from tack.runtime.graph import recording
from tack.runtime.native import ArrayBase
from tack.runtime.shape import MAX_NDIM, check_shape, parse_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.backend import Backend, Buffer, Number, TextureImage
    from tack.runtime.sharing import SharedMemory

__all__ = ["Array", "new_array"]

_REPR_SIZE = 64  # larger arrays are shown without their values
_NUMBERS = {dtype: number for number, dtype in enumerate(ALL_DTYPES)}


@final
class Array(ArrayBase):
    """A C-contiguous n-dimensional array on a device, made by ``tack.empty`` and its relatives.

    It is storage for kernels, not for arithmetic on the host: ``arr.numpy()`` gives a NumPy copy,
    ``np.asarray(arr)`` on the CPU a view. ``arr[i, j]`` reads and writes single elements, ``arr[a:b]``,
    `reshape` and `ravel` are views that share memory and writability.

    A value written from the host converts as a store in a kernel does: integers keep their low bits;
    a float stored in an integer array truncates and saturates, and NaN gives 0.

    The elements may be vectors or matrices. ``dtype`` is their type, and ``shape``, indices and views count
    elements. To NumPy and other libraries the components are the last axes: n elements of ``tack.vec3`` are
    an array of shape (n, 3). An element that is read is a NumPy array of its own; where one is written, a
    number stands for every component.

    Attributes:
        scalar: the dtype of the components, which is ``dtype`` itself if the elements are numbers.
        components: the shape of an element: ``()`` for numbers, ``(3,)``, ``(2, 2)``.
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_backend",
        "_buffer",
        "_dtype",
        "_image",
        "_offset",
        "_shape",
        "_sig",
        "_size",
        "_span",
        "_writable",
        "components",
        "scalar",
    )

    def __init__(
        self,
        backend: Backend,
        buffer: Buffer,
        dtype: ElementType,
        shape: tuple[int, ...],
        *,
        writable: bool = True,
        offset: int = 0,
    ) -> None:
        """For backends and the interop code: ``shape`` elements from byte ``offset`` of ``buffer`` on."""
        self._backend = backend
        self._buffer = buffer
        self._offset = offset
        self._image: TextureImage | None = None  # of a texture's storage, where the device has texture units
        self._dtype = dtype
        self.scalar = dtype.scalar
        self.components = dtype.components
        self._shape = shape
        self._size = math.prod(shape)
        self._writable = writable
        # Dispatch reads these on every call.
        self._sig = (dtype, shape)
        self._address = buffer.address + offset
        nbytes = self._size * dtype.itemsize
        self._span = (self._address, self._address + nbytes)
        about = (
            _NUMBERS[self.scalar],
            shape,
            self.components,
            writable,
            backend.domain_number,
            buffer.foreign,
        )
        self._describe(self._address, nbytes, *about)

    # What it is.

    @property
    def dtype(self) -> ElementType:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def host_shape(self) -> tuple[int, ...]:
        """The shape in NumPy: the components of vectors and matrices are the last axes."""
        return self._shape + self.components

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._size * self._dtype.itemsize

    @property
    def device(self) -> Device:
        return as_device(self._backend)

    @property
    def writable(self) -> bool:
        """Whether the host and kernels may write to it."""
        return self._writable

    @property
    def address(self) -> int:
        """Device address of the first element."""
        return self._address

    @property
    def span(self) -> tuple[int, int]:
        """Device addresses of the first byte and of the one past the last."""
        return self._span

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a 0-d array")
        return self._shape[0]

    def __repr__(self) -> str:
        about = f"dtype={self._dtype}, shape={self._shape}, device={self._backend.spec}"
        if not self._writable:
            about += ", read-only"
        if math.prod(self.host_shape) > _REPR_SIZE:
            return f"tack.Array({about})"
        prefix = "tack.Array("
        values = np.array2string(self.numpy(), separator=", ", prefix=prefix)
        return f"{prefix}{values}, {about})"

    # Copies and conversions.

    def numpy(self, start: int | None = None, stop: int | None = None) -> NDArray[Any]:
        """The elements as a new NumPy array, after the launches that write them.

        Its shape is `host_shape`. With ``start`` or ``stop``, only that range of the elements in row-major
        order; the limits are those of a Python slice.
        """
        if start is None and stop is None:
            out = np.empty(self._shape, self._dtype.numpy)
            self._buffer.read(self._offset, out)
            return out
        first, last, _ = slice(start, stop).indices(self._size)
        out = np.empty(max(0, last - first), self._dtype.numpy)
        self._buffer.read(self._offset + first * self.itemsize, out)
        return out

    def fill(self, value: object) -> None:
        """Set every element to ``value``: a number, or one element as a sequence or array of its shape.

        Raises:
            TypeError: it is not a number, nor made of numbers.
            ValueError: it has another shape than an element, or the array is read-only.
        """
        self.check_writable("fill")
        element = convert_element(value, self._dtype)
        if not self._size:
            return
        graph = recording()
        if graph is not None:
            graph.record_fill(self, element)
            return
        first = element.flat[0]
        # Also if the components differ: a device that fills in parallel is the first to touch the pages.
        filled = self._backend.fill_array(self.view_as(self.scalar), first)
        if element.tobytes() != first.tobytes() * element.size:
            self._buffer.fill(self._offset, self._size, np.void(element.tobytes()))
        elif not filled:
            self._buffer.fill(self._offset, self._size * element.size, first)

    def copy(self) -> Array:
        """A new, writable array with the same elements, on the same device."""
        out = new_array(self._backend, self._dtype, self._shape)
        graph = recording()
        if graph is not None:
            graph.record_copy(out, self)
        else:
            out._buffer.copy(0, self._buffer, self._offset, self.nbytes)
        return out

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.copy()

    def astype(self, dtype: object) -> Array:
        """A new array with the elements converted to ``dtype``, as a cast in a kernel does.

        A scalar ``dtype`` converts the components of vectors and matrices, which stay what they are:
        ``tack.f64`` makes ``tack.dvec3`` of ``tack.vec3``.

        Raises:
            TypeError: ``dtype`` is not a dtype, not one of the device's, or of another shape.
        """
        target = as_element_type(dtype)
        if isinstance(self._dtype, VectorType) and isinstance(target, DType):
            target = self._dtype.with_scalar(target)
        if target.components != self.components:
            raise TypeError(
                f"astype converts {self._dtype} to elements of the same shape, not to {target}; "
                f"tack.asarray(arr, dtype=...) makes elements of the last axes"
            )
        if target is self._dtype:
            return self.copy()
        out = new_array(self._backend, target, self._shape)
        out._buffer.write(0, convert_array(self.host_values(), target.scalar))
        return out

    def to(self, device: object) -> Array:
        """The array on ``device``: itself if it lives there, else a copy.

        Raises:
            TypeError: the device lacks the dtype.
            ValueError, RuntimeError: there is no such device, or it cannot start.
        """
        from tack.runtime.dispatch import resolve_backend  # which imports this module

        backend = resolve_backend(device)
        if backend is self._backend:
            return self
        out = new_array(backend, self._dtype, self._shape)
        if out._buffer.copies_from(self._buffer):
            out._buffer.copy(0, self._buffer, self._offset, self.nbytes)
        else:
            out._buffer.write(0, self.host_values())
        return out

    # Views.

    def reshape(self, *shape: Any) -> Array:
        """A view with another shape of as many elements; one extent may be -1.

        Raises:
            ValueError: the sizes differ.
        """
        given = shape[0] if len(shape) == 1 else shape
        extents = list(parse_shape(given))
        if extents.count(-1) == 1:
            known = math.prod(n for n in extents if n != -1)
            if known and self._size % known == 0:
                extents[extents.index(-1)] = self._size // known
        if min(extents, default=0) < 0 or math.prod(extents) != self._size or len(extents) > MAX_NDIM:
            raise ValueError(f"cannot reshape an array of {self._size} elements to {tuple(extents)}")
        return self._view(tuple(extents), 0)

    def ravel(self) -> Array:
        """A 1-D view of all elements in row-major order."""
        return self._view((self._size,), 0)

    def view_as(self, dtype: ElementType) -> Array:
        """A view with the same scalars grouped to other elements: (n, 3) of f32 as n of vec3, and back.

        Raises:
            TypeError: ``dtype`` has other scalars.
            ValueError: the last axes are not those of an element.
        """
        if dtype.scalar is not self.scalar:
            raise TypeError(f"a view of {self._dtype} as {dtype} would change its bits; use tack.asarray")
        shape = element_shape(self.host_shape, dtype)
        return Array(self._backend, self._buffer, dtype, shape, writable=self._writable, offset=self._offset)

    def _view(self, shape: tuple[int, ...], skip: int) -> Array:
        """A view of ``shape`` from the ``skip``-th element on."""
        offset = self._offset + skip * self._dtype.itemsize
        return Array(self._backend, self._buffer, self._dtype, shape, writable=self._writable, offset=offset)

    # Elements.

    def __getitem__(self, index: object) -> Any:
        """``arr[i, j]`` reads one element, as a Python number; ``arr[a:b]`` is a view.

        An element of several components is a new NumPy array: changing it leaves the element as it is.

        Raises:
            IndexError: an index is out of range. Negative ones count from the end.
            TypeError: there are more or fewer indices than dimensions, or one is not an integer.
        """
        if isinstance(index, slice):
            return self._slice(index)
        position = self._position(index)
        out = np.empty((), self._dtype.numpy)
        self._buffer.read(self._offset + position * self._dtype.itemsize, out)
        return out if self.components else out.item()

    def __setitem__(self, index: object, value: object) -> None:
        """``arr[i, j] = v`` writes one element. Raises as reading does, and as `fill` does."""
        self.check_writable("write to")
        if isinstance(index, slice):
            raise TypeError(
                "only single elements can be assigned; for a slice use tack.copyto(arr[a:b], values) "
                "or arr[a:b].fill(value)"
            )
        position = self._position(index)
        element = convert_element(value, self._dtype)
        self._buffer.write(self._offset + position * self._dtype.itemsize, element)

    def _slice(self, index: slice) -> Array:
        if not self._shape:
            raise TypeError("a 0-d array has no axis to slice; read its element with arr[()]")
        if index.step is not None and index.step != 1:
            raise TypeError(
                f"a view has no step ({index.step!r} was given); arr.numpy()[a:b:step] copies to the host"
            )
        first, last, _ = index.indices(self._shape[0])
        rest = self._shape[1:]
        return self._view((max(0, last - first), *rest), first * math.prod(rest))

    def _position(self, index: object) -> int:
        """The flat position of the element that ``index`` names."""
        indices = index if isinstance(index, tuple) else (index,)
        for i in indices:
            if not is_integer(i):
                raise TypeError(
                    f"array indices are integers, not {type(i).__name__}; arr[a:b] slices the first axis, "
                    f"and arr.numpy()[...] makes a copy on the host that takes any index"
                )
        if len(indices) != len(self._shape):
            hint = "arr[i : i + 1] is a view of one entry of the first axis"
            if self.components and len(indices) > len(self._shape):
                hint = "components are read from the element: arr[i][c]; it is written as a whole"
            raise TypeError(
                f"an array with {len(self._shape)} dimensions takes {len(self._shape)} indices, "
                f"not {len(indices)}; {hint}"
            )
        position = 0
        for axis, (i, extent) in enumerate(zip(indices, self._shape, strict=True)):
            at = operator.index(i)
            if not -extent <= at < extent:
                raise IndexError(f"index {at} is out of range for axis {axis} with extent {extent}")
            position = position * extent + (at + extent if at < 0 else at)
        return position

    def __iter__(self) -> Iterator[Any]:
        """The elements of a 1-D array, as of now; the views ``arr[i, ...]`` of one with more axes."""
        if not self._shape:
            raise TypeError("iteration over a 0-d array")
        if len(self._shape) == 1:
            return iter(self.numpy() if self.components else self.numpy().tolist())
        rest = self._shape[1:]
        step = math.prod(rest)
        return (self._view(rest, i * step) for i in range(self._shape[0]))

    def __contains__(self, value: Any) -> bool:
        values = self.host_values()
        if not self.components:
            return value in values
        if np.shape(value) not in ((), self.components):
            return False
        axes = tuple(range(len(self._shape), values.ndim))
        return bool(np.any(np.all(values == value, axis=axes)))

    def __bool__(self) -> bool:
        if self._size != 1:
            raise ValueError(
                f"an array of {self._size} elements is neither true nor false; test arr.size or one element"
            )
        if self.components:
            raise ValueError(
                f"an element of {self._dtype} is neither true nor false; test its components, "
                f"with .any() or .all()"
            )
        return bool(self._scalar())

    def __int__(self) -> int:
        return int(self._only_element())

    def __float__(self) -> float:
        return float(self._only_element())

    def __index__(self) -> int:
        if self._shape or self.components or self.scalar.is_float:
            raise TypeError("only 0-d integer arrays are integers")
        return int(self._scalar())

    def _only_element(self) -> Number:
        if self._shape:
            raise TypeError("only 0-d arrays become Python numbers; arr[i] reads an element")
        if self.components:
            raise TypeError(f"an element of {self._dtype} is not a number; arr[()] reads it as a NumPy array")
        return self._scalar()

    def _scalar(self) -> Number:
        return self.numpy(0, 1).tolist()[0]  # type: ignore[no-any-return]

    # Reductions.

    def sum(self, *, deterministic: bool | None = None) -> Any:
        """The sum of all elements; 0 for none.

        Integers add up in 64 bits, wrapping, and give an int. Floats accumulate at least pairwise, f32
        in double precision where the device has it, and give a float. Vectors and matrices give a NumPy
        array with the sum of each component, of dtype int64, uint64 or float64.

        ``deterministic=True`` gives the same bits for the same array on the same type of device, however
        many threads run; None leaves that to the device. The CPU always is.
        """
        from tack.runtime.reductions import reduce

        return reduce(self, "sum", deterministic)

    def mean(self, *, deterministic: bool | None = None) -> Any:
        """The sum of all elements divided by their number, in double precision; NaN for none.

        It is a float, or for vectors and matrices a NumPy array with the mean of each component.
        """
        from tack.runtime.reductions import reduce

        return reduce(self, "mean", deterministic)

    def min(self) -> Any:
        """The least element; NaN if one is NaN. -0.0 is less than 0.0.

        It is a number, or for vectors and matrices a NumPy array with the least of each component.

        Raises:
            ValueError: the array is empty.
        """
        from tack.runtime.reductions import reduce

        return reduce(self, "min", None)

    def max(self) -> Any:
        """The greatest element; NaN if one is NaN. 0.0 is greater than -0.0.

        It is a number, or for vectors and matrices a NumPy array with the greatest of each component.

        Raises:
            ValueError: the array is empty.
        """
        from tack.runtime.reductions import reduce

        return reduce(self, "max", None)

    # Other libraries.

    def host_view(self) -> NDArray[Any] | None:
        """A NumPy view of the memory, or None if the host cannot address it."""
        return self._buffer.host_view(self._offset, self.scalar.numpy, self.host_shape, self._writable)

    def host_values(self) -> NDArray[Any]:
        """The elements for reading: a view if the host can address them, else a copy."""
        view = self.host_view()
        return self.numpy() if view is None else view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """NumPy's protocol: a view where the memory is the host's, unless ``copy`` or ``dtype`` needs more.

        Raises:
            ValueError: ``copy=False``, and there has to be one.
        """
        view = None if copy else self.host_view()
        if view is None and copy is False:
            raise ValueError(f"NumPy cannot use the memory of {self._backend.label} without a copy")
        values = self.numpy() if view is None else view
        if dtype is None or np.dtype(dtype) == values.dtype:
            return values
        if copy is False:
            raise ValueError(f"converting {self.scalar} to {np.dtype(dtype)} needs a copy")
        return values.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        view = self.host_view()
        if view is None:
            raise AttributeError(f"the memory of {self._backend.label} is not the host's")
        return view.__array_interface__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The protocol of CUDA libraries, version 3; launches on the array are then done when they return."""
        interface = self._backend.cuda_array_interface(self)
        if interface is None:
            raise AttributeError(f"the memory of {self._backend.label} is not CUDA's")
        return interface

    def __buffer__(self, flags: int) -> memoryview:
        """Python's buffer protocol, which calls this from Python 3.12 on."""
        view = self.host_view()
        if view is None or (flags & 1 and not self._writable):
            what = "read-only" if view is not None else f"not in host memory but on {self._backend.label}"
            raise BufferError(f"the array is {what}")
        return memoryview(view)  # type: ignore[arg-type]  # typed so only from 3.12 on

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """DLPack's protocol: a capsule, versioned if ``max_version`` is 1.0 or newer.

        Raises:
            BufferError: the export is impossible: a read-only array for a consumer that asks for no
                version, or another device than the array's.
        """
        from tack.runtime.interop import export_dlpack

        return export_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from tack.runtime.interop import dlpack_device

        return dlpack_device(self._backend)

    def share(self) -> SharedMemory:
        """The array's memory for other processes and for graphics, without a copy.

        On CUDA it is a POSIX file descriptor, of an array made by ``tack.empty(..., shareable=True)``; on
        Metal the ``MTLBuffer`` of any array. From now on launches on the array are done when they return.

        Raises:
            RuntimeError: the device, or the array, has no memory that can be shared.
            ValueError: it is a view that does not begin where the memory does.
        """
        from tack.runtime.sharing import share

        return share(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.numpy(), self._backend.spec, self._dtype)

    def check_writable(self, action: str) -> None:
        """Raise ``ValueError`` if the array is read-only; ``action`` says what was tried."""
        if not self._writable:
            raise ValueError(f"cannot {action} a read-only array; arr.copy() is a writable one")


def new_array(
    backend: Backend, dtype: ElementType, shape: tuple[int, ...], *, shareable: bool = False
) -> Array:
    """A new array with unspecified contents.

    Raises:
        TypeError: the device lacks the dtype.
        ValueError: a negative extent, too many dimensions, or more than 2**63 bytes.
        MemoryError: there is not enough memory.
        RuntimeError: it is to be shareable, and the device has no such memory.
    """
    backend.check_dtype(dtype)
    check_shape(dtype, shape)
    allocate = backend.allocate_shareable if shareable else backend.allocate_array
    buffer = allocate(dtype.scalar, shape + dtype.components)
    return Array(backend, buffer, dtype, shape)


def _unpickle(values: NDArray[Any], spec: str, dtype: ElementType) -> Array:
    from tack.runtime.dispatch import resolve_backend

    out = new_array(resolve_backend(spec), dtype, element_shape(values.shape, dtype))
    out._buffer.write(0, np.ascontiguousarray(values))
    return out
