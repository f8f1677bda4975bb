"""CUDA memory of other libraries as arrays, and arrays as CUDA memory for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tack.runtime.array import Array
from tack.runtime.convert import dtype_of
from tack.runtime.cuda.driver import ordinal_of
from tack.runtime.dispatch import default_backend, device

if TYPE_CHECKING:
    from tack.runtime.backend import Backend

__all__ = ["backend_of", "export_interface", "import_interface"]


def export_interface(array: Array) -> dict[str, Any]:
    """The value of ``array.__cuda_array_interface__``, version 3."""
    backend: Any = array._backend
    backend.lend(array, None)
    return {
        "version": 3,
        "shape": array.host_shape,
        "typestr": array.scalar.numpy.str,
        "data": (array.address if array.nbytes else 0, not array.writable),
        "strides": None,
        "stream": backend.dlpack_stream,
    }


def backend_of(obj: Any) -> Backend:
    """The backend of an object with ``__cuda_array_interface__``."""
    return _backend_at(int(obj.__cuda_array_interface__["data"][0]))


def _backend_at(address: int) -> Backend:
    """The backend whose memory an address is in; the default one if it is CUDA and can be."""
    default = default_backend()
    ordinal = default.ordinal if default.name == "cuda" else 0
    if address:
        found: Any = device("cuda")._backend
        with found.queue.entered():
            at = ordinal_of(address)
        ordinal = ordinal if at is None else at
    if default.name == "cuda" and default.ordinal == ordinal:
        return default
    return device(f"cuda:{ordinal}" if ordinal else "cuda")._backend


def import_interface(obj: Any, what: str) -> Array:
    """An array over the memory of an object with ``__cuda_array_interface__``, whose stream is waited for.

    Raises:
        TypeError: the element type is not one of Tack's, or it is masked.
        ValueError: it is not C-contiguous.
    """
    about = obj.__cuda_array_interface__
    address, read_only = about["data"]
    shape = tuple(int(n) for n in about["shape"])
    if about.get("mask") is not None:
        raise TypeError(f"{what} has a mask, which Tack does not see")
    # NumPy's reading of the type; an array of the shape would do as well.
    dtype = dtype_of(np.empty(0, about["typestr"]), what)
    strides = about.get("strides")
    expected = _strides(shape, dtype.itemsize)
    if strides is not None and 0 not in shape:
        pairs = zip(shape, strides, expected, strict=True)
        if any(extent != 1 and given != want for extent, given, want in pairs):
            raise ValueError(
                f"{what} has shape {shape} and strides {tuple(strides)}, but must be C-contiguous"
            )
    backend: Any = _backend_at(int(address))
    buffer = backend.wrap_ptr(int(address), dtype, shape, obj)
    stream = about.get("stream")
    if stream is not None:
        backend.queue.follow_stream(int(stream))
    return Array(backend, buffer, dtype, shape, writable=not read_only)


def _strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    steps = [itemsize]
    for extent in reversed(shape[1:]):
        steps.insert(0, steps[0] * extent)
    return tuple(steps[: len(shape)])
