"""NumPy arguments on devices that cannot address the host's memory.

A call with NumPy arrays runs on the CPU, whatever the default device is. So that a test means the device
it was asked for, its NumPy arguments are copied there, with the same overlaps and alignment, and back.

A device without f64 gets arrays of f64 as f32, unless the test is one of f64 (`keep_f64`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tack
from tack.dtypes import as_dtype
from tack.lang.kernel import Kernel
from tack.runtime.array import Array
from tack.runtime.dispatch import default_backend

_ALIGNMENT = 64
_keeps_f64 = False


@contextmanager
def keep_f64() -> Iterator[None]:
    """Inside, arrays of f64 stay that on every device, so that one without it refuses them."""
    global _keeps_f64
    _keeps_f64 = True
    try:
        yield
    finally:
        _keeps_f64 = False


def observed(dtype: Any) -> Any:
    """The dtype in which a test stores what it looks at."""
    lacking = as_dtype(dtype) is tack.f64 and not (_keeps_f64 or tack.default_device().supports_f64)
    return np.float32 if lacking else dtype


def narrowed(value: np.ndarray) -> np.ndarray:
    """An array as it is copied to the default device."""
    if value.dtype != np.float64 or _keeps_f64 or tack.default_device().supports_f64:
        return value
    with np.errstate(over="ignore"):
        return value.astype(np.float32)


@contextmanager
def uploaded_arguments() -> Iterator[None]:
    """Inside, kernels copy their NumPy arguments to the default device, and back after the launch."""
    own = Kernel.__call__

    def call(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        back = _upload(values)
        try:
            return own(kernel, *values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
        finally:
            for copy in back:
                copy()

    Kernel.__call__ = call
    try:
        yield
    finally:
        Kernel.__call__ = own


def _upload(values: list[Any]) -> list[Callable[[], None]]:
    """Replaces NumPy arrays in ``values``; what copies their contents back."""
    found = [(k, v) for k, v in enumerate(values) if isinstance(v, np.ndarray) and _fits(v)]
    found.sort(key=lambda item: item[1].ctypes.data)
    groups: list[list[tuple[int, Any]]] = []
    end = -1
    for k, value in found:  # arrays that share memory stay together
        start = value.ctypes.data
        if start >= end:
            groups.append([])
        groups[-1].append((k, value))
        end = max(end, start + value.nbytes)
    return [copy for group in groups for copy in _upload_group(values, group)]


def _fits(value: np.ndarray) -> bool:
    """Whether the array could be an argument as it is; a launch refuses others on every device."""
    try:
        as_dtype(value.dtype)
    except TypeError:
        return False
    return value.ndim > 0 and value.size > 0 and value.flags.c_contiguous and value.dtype.isnative


def _upload_group(values: list[Any], group: list[tuple[int, Any]]) -> list[Callable[[], None]]:
    low = min(v.ctypes.data for _, v in group)
    size = max(v.ctypes.data + v.nbytes for _, v in group) - low
    host = np.frombuffer((ctypes.c_char * size).from_address(low), np.uint8)
    shift = low % _ALIGNMENT
    memory = tack.empty(size + shift, tack.u8)
    inside = memory[shift:]
    tack.copyto(inside, host)
    backend = default_backend()
    if all(narrowed(v).dtype != v.dtype and v.flags.aligned for _, v in group):
        return _upload_narrowed(values, group, host)
    for k, value in group:
        offset = shift + value.ctypes.data - low
        writable, dtype = value.flags.writeable, as_dtype(value.dtype)
        if backend.requires_alignment and value.ctypes.data % dtype.itemsize:  # which this refuses
            tack.array_from_ptr(backend.pointer(memory[offset:]), dtype, value.shape, owner=memory)
        values[k] = Array(backend, memory._buffer, dtype, value.shape, writable=writable, offset=offset)
    if not any(v.flags.writeable for _, v in group):
        return []
    return [lambda: np.copyto(host, inside.numpy())]


def _upload_narrowed(
    values: list[Any], group: list[tuple[int, Any]], host: np.ndarray
) -> list[Callable[[], None]]:
    """The same for arrays of f64 that become f32. Only elements that have changed are copied back."""
    wide = host.view(np.float64)
    given = narrowed(wide)
    memory = tack.asarray(given)
    for k, value in group:
        offset = (value.ctypes.data - host.ctypes.data) // 2
        writable = value.flags.writeable
        values[k] = Array(
            memory._backend, memory._buffer, tack.f32, value.shape, writable=writable, offset=offset
        )

    def copy() -> None:
        found = memory.numpy()
        changed = found.view(np.uint32) != given.view(np.uint32)
        wide[changed] = found[changed]

    return [copy] if any(v.flags.writeable for _, v in group) else []
