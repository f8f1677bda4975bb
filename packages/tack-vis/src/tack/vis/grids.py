"""Grids as arguments: volumes and images, and where their points are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import tack
from tack import DType

__all__ = ["UNIT", "ZERO", "as_grid", "as_numbers", "as_spacing", "as_volume", "grid_axes", "grid_ends"]

UNIT = (1.0, 1.0, 1.0)
ZERO = (0.0, 0.0, 0.0)
_WORDS = {2: "two", 3: "three"}


def as_volume(function: str, name: str, value: Any, like: tack.Array | None = None) -> tack.Array:
    """A 3-D array of numbers; of the shape and on the device of ``like``, if given, where NumPy's go.

    Raises:
        TypeError: it is not an array of numbers.
        ValueError: it has another number of dimensions, or does not fit ``like``.
    """
    if like is None:
        fits = type(value) is tack.Array and value.ndim == 3 and not value.components
        return value if fits else as_grid(function, name, value, 3)
    array = as_grid(function, name, value, None, like.device)
    if array.shape != like.shape:
        raise ValueError(f"{function}: {name} has shape {array.shape}, volume has {like.shape}")
    if array.device != like.device:
        raise ValueError(f"{function}: {name} is on {array.device}, volume on {like.device}")
    return array


def as_grid(
    function: str, name: str, value: Any, ndim: int | None, device: tack.Device | None = None
) -> tack.Array:
    """An array of numbers with ``ndim`` axes; NumPy's booleans are bytes.

    NumPy's arrays go to ``device``, or the default one.

    Raises:
        TypeError: it is not an array of numbers.
        ValueError: it has another number of dimensions.
    """
    if not isinstance(value, tack.Array | np.ndarray) and not hasattr(type(value), "__dlpack__"):
        raise TypeError(
            f"{function}: {name} is an array of {ndim or 3} dimensions, not {type(value).__name__}"
        )
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        value = np.ascontiguousarray(value).view(np.uint8).reshape(value.shape)
    try:
        array = tack.asarray(value, device=device if isinstance(value, np.ndarray) else None)
    except TypeError as error:
        raise TypeError(f"{function}: {name}: {error}") from None
    except ValueError as error:  # a strided DLPack tensor
        raise ValueError(f"{function}: {name}: {error}") from None
    if array.components:
        raise TypeError(f"{function}: {name} has elements of {array.dtype}; it takes numbers")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(
            f"{function}: {name} has {array.ndim} dimensions, shape {array.shape}; a grid has {ndim}"
        )
    return array


def as_numbers(function: str, name: str, values: Any, count: int = 3) -> tuple[float, ...]:
    """So many finite numbers.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = tuple(float(v) for v in values)
    except (TypeError, ValueError, OverflowError):
        found = ()
    if len(found) != count or not all(map(math.isfinite, found)):
        raise ValueError(f"{function}: {name} is {_WORDS[count]} finite numbers, not {values!r}")
    return found


def as_spacing(function: str, values: Any, count: int = 3) -> tuple[float, ...]:
    """So many distances.

    Raises:
        ValueError: it is something else.
    """
    found = as_numbers(function, "spacing", values, count)
    if min(found) <= 0:
        raise ValueError(
            f"{function}: spacing is positive, not {values!r}; a flipped axis is grid[..., ::-1]"
        )
    return found


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
    if spacing is UNIT and origin is ZERO and coordinates is None:  # the defaults
        return _uniform_axes(function, extents, UNIT, ZERO, real, grid.device)
    place = as_spacing(function, spacing), as_numbers(function, "origin", origin)
    if coordinates is None:
        return _uniform_axes(function, extents, *place, real, grid.device)
    if place != (UNIT, ZERO):
        raise ValueError(
            f"{function}: coordinates say where the grid is; spacing and origin do not go with them"
        )
    arrays = _planes(function, coordinates)
    if len(arrays) != 3 or any(a.shape != (n,) for a, n in zip(arrays, extents, strict=True)):
        shapes = [a.shape for a in arrays]
        raise ValueError(
            f"{function}: coordinates have shapes {shapes}; the grid has {extents} planes: x, y, z"
        )
    for name, a in zip("xyz", arrays, strict=True):
        if not (np.isfinite(a).all() and (np.diff(a) > 0).all()):
            raise ValueError(f"{function}: the {name} coordinates must be finite, and increase")
    return tack.asarray(np.concatenate(arrays), real, device=grid.device)


def grid_ends(
    grid: tack.Array, spacing: Sequence[float], origin: Sequence[float], coordinates: Any
) -> list[tuple[float, float]]:
    """The first and the last coordinate along x, y and z, of arguments that `grid_axes` takes."""
    if coordinates is not None:
        return [(float(c[0]), float(c[-1])) for c in _planes("", coordinates)]
    extents = grid.shape[::-1]
    return [
        (o, o + s * (n - 1)) for n, s, o in zip(extents, map(float, spacing), map(float, origin), strict=True)
    ]


def _planes(function: str, coordinates: Any) -> list[Any]:
    try:
        return [np.asarray(c, np.float64) for c in coordinates]
    except (TypeError, ValueError):
        raise TypeError(f"{function}: coordinates are three arrays of numbers: x, y, z") from None


@lru_cache(maxsize=16)
def _uniform_axes(
    function: str,
    extents: tuple[int, ...],
    spacing: tuple[float, ...],
    origin: tuple[float, ...],
    real: DType,
    device: tack.Device,
) -> tack.Array:
    with np.errstate(over="ignore"):
        planes = [o + s * np.arange(n) for n, s, o in zip(extents, spacing, origin, strict=True)]
    if not all(np.isfinite(plane).all() for plane in planes):
        raise ValueError(
            f"{function}: the grid reaches past what floats hold: spacing {spacing}, origin {origin}"
        )
    return tack.asarray(np.concatenate(planes), real, device=device)
