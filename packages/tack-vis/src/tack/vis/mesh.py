"""`Mesh`: what surface filters give."""

from __future__ import annotations

import tack
from tack.record import Record

__all__ = ["Mesh"]


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
