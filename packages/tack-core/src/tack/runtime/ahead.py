"""Compiling a kernel before it is launched: stand-ins for arrays that need no memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tack.dtypes import DType, VectorType, as_element_type
from tack.runtime.array import Array, check_dtype, check_shape, parse_shape
from tack.runtime.backend import Buffer
from tack.runtime.dispatch import default_backend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel

__all__ = ["compile_ahead", "stand_ins"]

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
    from tack.runtime.launch import backend_of

    given = stand_ins(kernel, kernel.bind(args, kwargs))
    backend_of(kernel, given).compile(kernel, given)


def stand_ins(kernel: Kernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with an array in place of each ``(shape, dtype)``. No two of them overlap."""
    address = _GAP
    found = []
    for name, arg in zip(kernel.params, args, strict=True):
        if name not in kernel.vector_params and _is_signature(arg):
            backend = default_backend()
            dtype, shape = as_element_type(arg[1]), parse_shape(arg[0])
            check_dtype(backend, dtype)
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
