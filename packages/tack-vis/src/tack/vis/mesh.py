"""`Mesh`: what surface filters give."""

from __future__ import annotations

from typing import Any

import tack
from tack.dtypes import i32, i64
from tack.record import Record

__all__ = ["Mesh", "as_mesh"]


class Mesh(Record):
    """Triangles with merged points, in arrays on one device.

    Attributes:
        points: (n, 3), f32 or f64: x, y, z.
        triangles: (m, 3), i32, or i64 for more points than that counts: the corners' numbers.
        normals: (n, 3) of unit length, or None if they were not asked for.
        point_data: further values at the points by name, each (n,).
    """

    points: tack.Array
    triangles: tack.Array
    normals: tack.Array | None
    point_data: dict[str, tack.Array]

    def __repr__(self) -> str:
        names = "".join(f", {name}" for name in self.point_data)
        normals = "" if self.normals is None else ", normals"
        points, triangles = self.points.shape[0], self.triangles.shape[0]
        return f"Mesh({points} points, {triangles} triangles{normals}{names})"


def as_mesh(function: str, mesh: Any) -> Mesh:
    """A mesh with `tack.Array`s; NumPy arrays are taken as they are where the device can address them.

    Raises:
        TypeError: it is not a mesh, or points are not floats or triangles not integers.
        ValueError: points or triangles are not of shape (n, 3), or other arrays do not fit the points.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{function}: mesh is a Mesh, as contour gives it, not {type(mesh).__name__}")
    points, triangles = tack.asarray(mesh.points), tack.asarray(mesh.triangles)
    for name, array in (("points", points), ("triangles", triangles)):
        if array.components or array.ndim != 2 or array.shape[1] != 3:
            raise ValueError(f"{function}: {name} are {array.dtype} of shape {array.shape}; it takes (n, 3)")
    if not points.scalar.is_float or triangles.scalar.is_float:
        found = f"{points.dtype} and {triangles.dtype}"
        raise TypeError(f"{function}: points are floats and triangles integers, not {found}")
    if points.device != triangles.device:
        raise ValueError(f"{function}: points are on {points.device}, triangles on {triangles.device}")
    if triangles.scalar not in (i32, i64):
        triangles = triangles.astype(i64)
    normals = None if mesh.normals is None else tack.asarray(mesh.normals)
    if normals is not None and normals.shape != points.shape:
        raise ValueError(f"{function}: normals have shape {normals.shape}, points {points.shape}")
    data = {name: tack.asarray(values) for name, values in mesh.point_data.items()}
    for name, values in data.items():
        if values.shape[:1] != points.shape[:1]:
            found = f"shape {values.shape}; there are {points.shape[0]} points"
            raise ValueError(f"{function}: point_data[{name!r}] has {found}")
    return Mesh(points, triangles, normals, data)
