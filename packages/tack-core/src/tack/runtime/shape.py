"""The shapes that arrays can have."""

from __future__ import annotations

import math
import operator

from tack.dtypes import ElementType
from tack.runtime.convert import is_integer

__all__ = ["MAX_NDIM", "check_shape", "parse_shape"]

MAX_NDIM = 64  # NumPy's limit
_MAX_NBYTES = 1 << 63


def check_shape(dtype: ElementType, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless an array of this shape can exist."""
    most = MAX_NDIM - len(dtype.components)
    if len(shape) > most:
        raise ValueError(f"an array of {dtype} has at most {most} dimensions, not {len(shape)}")
    if shape and min(shape) < 0:
        raise ValueError(f"array extents must not be negative: {shape}")
    if shape and (max(shape) >= _MAX_NBYTES or math.prod(shape) * dtype.itemsize > _MAX_NBYTES):
        raise ValueError(f"an array of shape {shape} and dtype {dtype} has more than 2**63 bytes")


def parse_shape(shape: object) -> tuple[int, ...]:
    """``shape`` as a tuple: an int is one extent, a tuple or list any number of them.

    Raises:
        TypeError: it holds something else than integers.
    """
    if isinstance(shape, tuple | list):
        return tuple(_extent(n) for n in shape)
    return (_extent(shape),)


def _extent(value: object) -> int:
    if not is_integer(value):
        raise TypeError(f"array extents are integers, not {type(value).__name__}: {value!r}")
    return operator.index(value)  # type: ignore[arg-type]
