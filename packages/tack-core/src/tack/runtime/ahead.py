"""Compiling a kernel before it is launched: stand-ins for arrays that need no memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tack.dtypes import DType, VectorType, as_element_type
from tack.lang.kernel import Kernel
from tack.runtime.array import Array
from tack.runtime.backend import Buffer
from tack.runtime.cpu.cores import default_threads
from tack.runtime.dispatch import default_backend
from tack.runtime.launch import backend_of
from tack.runtime.shape import check_shape, parse_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["compile_ahead", "compile_all", "stand_ins"]

_GAP = 1 << 12


class _NoMemory(Buffer):
    """Addresses without memory behind them."""

    __slots__ = ()

    def read(self, offset: int, out: NDArray[Any]) -> NoReturn:
        raise RuntimeError("a stand-in for an array has no elements")

    def write(self, offset: int, source: NDArray[Any]) -> NoReturn:
        raise RuntimeError("a stand-in for an array has no elements")


def compile_ahead(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """See `Kernel.compile`."""
    _prepared(kernel, args, kwargs)()


def _prepared(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None]:
    """What compiles, once the arguments and the device are known."""
    given = stand_ins(kernel, kernel.bind(args, kwargs))
    return partial(backend_of(kernel, given).compile, kernel, given)


def compile_all(calls: Iterable[tuple[Any, ...]]) -> None:
    """See `tack.compile_all`. LLVM runs without the GIL, so the threads compile at the same time."""
    jobs = []
    for call in calls:
        if not isinstance(call, tuple) or not call or not isinstance(call[0], Kernel):
            raise TypeError(f"compile_all takes tuples of a kernel and its arguments, not {call!r}")
        jobs.append(_prepared(call[0], call[1:], {}))
    left = list(reversed(list(enumerate(jobs))))
    errors: dict[int, Exception] = {}

    def work() -> None:
        while True:
            try:
                number, job = left.pop()
            except IndexError:
                return
            try:
                job()
            except Exception as error:
                errors[number] = error

    helpers = []
    try:
        for _ in range(min(len(jobs), default_threads()) - 1):
            helper = threading.Thread(target=work, name="tack-compile")
            with contextlib.suppress(RuntimeError):  # no more threads: the others do it
                helper.start()
                helpers.append(helper)
        work()
    finally:
        left.clear()  # after a KeyboardInterrupt, what has begun is finished
        for helper in helpers:
            helper.join()
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # which the frames in their tracebacks hold, and these the arguments


def stand_ins(kernel: Kernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with an array in place of each ``(shape, dtype)``. No two of them overlap."""
    address = _GAP
    found = []
    for name, arg in zip(kernel.params, args, strict=True):
        if name not in kernel.vector_params and _is_signature(arg):
            backend = default_backend()
            dtype, shape = as_element_type(arg[1]), parse_shape(arg[0])
            backend.check_dtype(dtype)
            check_shape(dtype, shape)
            arg = Array(backend, _NoMemory(address, 0, owned=False), dtype, shape)
            address += -(-(arg.nbytes + _GAP) // _GAP) * _GAP
        found.append(arg)
    return tuple(found)


def _is_signature(arg: Any) -> bool:
    """Whether an argument is ``(shape, dtype)``."""
    if type(arg) is not tuple or len(arg) != 2 or not isinstance(arg[0], (int, np.integer, tuple, list)):
        return False
    kind = arg[1]
    named = isinstance(kind, (str, DType, VectorType, np.dtype))
    return named or (isinstance(kind, type) and issubclass(kind, np.generic))
