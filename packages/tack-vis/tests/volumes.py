"""Volumes whose surfaces are known, and what surfaces have in common."""

from __future__ import annotations

import numpy as np


def grid(*shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z, y and x from -1 to 1 on a grid of that shape."""
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    return z, y, x


def sphere(*shape: int) -> np.ndarray:
    """The distance from the centre."""
    z, y, x = grid(*shape)
    return np.sqrt(x * x + y * y + z * z)


def torus(*shape: int) -> np.ndarray:
    """The distance from a circle of radius 0.6."""
    z, y, x = grid(*shape)
    return np.hypot(np.hypot(x, y) - 0.6, z)


def tangle(*shape: int) -> np.ndarray:
    """The tangle cube: a surface with holes through all its faces."""
    z, y, x = (2.5 * c for c in grid(*shape))
    return sum(c**4 - 5 * c**2 for c in (x, y, z)) + 11.8


def edges(triangles: np.ndarray) -> np.ndarray:
    """The directed edges, (3 m, 2)."""
    return np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])


def is_closed(triangles: np.ndarray) -> bool:
    """Whether each edge is in two triangles, once in each direction."""
    directed = edges(triangles).astype(np.int64)
    size = int(triangles.max(initial=0)) + 1
    there = np.unique(directed[:, 0] * size + directed[:, 1])
    back = np.unique(directed[:, 1] * size + directed[:, 0])
    return there.size == len(directed) and bool((there == back).all())


def euler_characteristic(points: np.ndarray, triangles: np.ndarray) -> int:
    """Points - edges + triangles: 2 for a sphere, 0 for a torus."""
    undirected = np.unique(np.sort(edges(triangles), axis=1), axis=0)
    return len(points) - len(undirected) + len(triangles)


def volume_inside(points: np.ndarray, triangles: np.ndarray) -> float:
    """The volume that a closed surface encloses, negative if it is seen counterclockwise from inside."""
    a, b, c = (points[triangles[:, i]].astype(np.float64) for i in range(3))
    return float(np.sum(a * np.cross(b, c))) / 6
