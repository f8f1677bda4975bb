"""Grids as arguments: volumes, and where their points are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import tack
from tack import DType

__all__ = ["as_volume", "grid_axes"]


def as_volume(function: str, name: str, value: Any, like: tack.Array | None = None) -> tack.Array:
    """A 3-D array of numbers; of the shape and on the device of ``like``, if given.

    Raises:
        TypeError: it is not an array of numbers.
        ValueError: it has another number of dimensions, or does not fit ``like``.
    """
    if not isinstance(value, tack.Array | np.ndarray) and not hasattr(type(value), "__dlpack__"):
        raise TypeError(f"{function}: {name} is an array of 3 dimensions, not {type(value).__name__}")
    array = tack.asarray(value)
    if array.components:
        raise TypeError(f"{function}: {name} has elements of {array.dtype}; it takes numbers")
    if like is None and array.ndim != 3:
        raise ValueError(f"{function}: {name} has {array.ndim} dimensions, shape {array.shape}; a grid has 3")
    if like is not None and array.shape != like.shape:
        raise ValueError(f"{function}: {name} has shape {array.shape}, volume has {like.shape}")
    if like is not None and array.device != like.device:
        raise ValueError(f"{function}: {name} is on {array.device}, volume on {like.device}")
    return array


def grid_axes(
    function: str,
    grid: tack.Array,
    spacing: Sequence[float],
    origin: Sequence[float],
    coordinates: Any,
    real: DType,
) -> tack.Array:
    """The coordinates along x, then y, then z.

    Raises:
        ValueError: they are not three finite numbers each, or coordinates that increase, one for each plane.
    """
    extents = grid.shape[::-1]
    if coordinates is None:
        triples = []
        for name, triple in (("spacing", spacing), ("origin", origin)):
            numbers = tuple(float(v) for v in triple)
            if (
                len(numbers) != 3
                or not all(map(math.isfinite, numbers))
                or (name == "spacing" and 0 in numbers)
            ):
                raise ValueError(f"{function}: {name} is three finite numbers, not {triple!r}")
            triples.append(numbers)
        return _uniform_axes(extents, *triples, real, grid.device)
    arrays = [np.asarray(c, np.float64) for c in coordinates]
    if len(arrays) != 3 or any(a.shape != (n,) for a, n in zip(arrays, extents, strict=True)):
        shapes = [a.shape for a in arrays]
        raise ValueError(
            f"{function}: coordinates have shapes {shapes}; the grid has {extents} planes: x, y, z"
        )
    for name, a in zip("xyz", arrays, strict=True):
        if not (np.isfinite(a).all() and (np.diff(a) > 0).all()):
            raise ValueError(f"{function}: the {name} coordinates must be finite, and increase")
    return tack.asarray(np.concatenate(arrays), real, device=grid.device)


@lru_cache(maxsize=16)
def _uniform_axes(
    extents: tuple[int, ...],
    spacing: tuple[float, ...],
    origin: tuple[float, ...],
    real: DType,
    device: tack.Device,
) -> tack.Array:
    planes = [o + s * np.arange(n) for n, s, o in zip(extents, spacing, origin, strict=True)]
    return tack.asarray(np.concatenate(planes), real, device=device)
