"""Sampling of textures: where a sample lies, and its value without a texture unit."""

from __future__ import annotations

from typing import Any

from tack.lang.kernel import func

__all__ = ["position", "trilinear"]


@func
def position(t: Any, u: Any, v: Any, w: Any) -> Any:
    """Normalised coordinates in texels of ``t`` (D, H, W), x first."""
    x = min(max(float(u), 0.0), 1.0) * (t.shape[2] - 1)
    y = min(max(float(v), 0.0), 1.0) * (t.shape[1] - 1)
    z = min(max(float(w), 0.0), 1.0) * (t.shape[0] - 1)
    return x, y, z


@func
def trilinear(t: Any, x: Any, y: Any, z: Any) -> Any:
    """The value at a position, between the eight nearest texels of ``t``."""
    i, j, k = int(x), int(y), int(z)
    fx, fy, fz = x - i, y - j, z - k
    right = min(i + 1, t.shape[2] - 1)
    down = min(j + 1, t.shape[1] - 1)
    back = min(k + 1, t.shape[0] - 1)
    near_top = t[k, j, i] * (1 - fx) + t[k, j, right] * fx
    near_bottom = t[k, down, i] * (1 - fx) + t[k, down, right] * fx
    far_top = t[back, j, i] * (1 - fx) + t[back, j, right] * fx
    far_bottom = t[back, down, i] * (1 - fx) + t[back, down, right] * fx
    near = near_top * (1 - fy) + near_bottom * fy
    far = far_top * (1 - fy) + far_bottom * fy
    return near * (1 - fz) + far * fz
