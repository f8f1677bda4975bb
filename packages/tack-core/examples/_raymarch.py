"""Drawing the surface where a volume passes a value: rays marched through it, then lit.

`look_at` places a camera, `trace_all` finds the surface and its normals, `render` lights it with a
lamp and an ambient sky. Points are in millimetres from the centre of voxel (0, 0, 0). In the
kernels `h` holds the three voxel spacings, and `camera` four vectors: the eye, forward, and right
and up scaled to half the picture's width at distance 1.
"""

from __future__ import annotations

import numpy as np
from _common import progress
from numpy.typing import NDArray

import tack

Volume = NDArray[np.float32]
Spacing = tuple[float, float, float]

FIELD_OF_VIEW = 24.0  # degrees
BLOCK = tack.constant(4)  # voxels along a side of the blocks that let rays skip empty space


# --- Finding the surface -----------------------------------------------------------------------


@tack.func
def mix(a, b, t):
    """From a at t = 0 to b at t = 1."""
    return a + t * (b - a)


@tack.func
def in_plane(u, i, j, k, a, b):
    return mix(mix(u[i, j, k], u[i + 1, j, k], a), mix(u[i, j + 1, k], u[i + 1, j + 1, k], a), b)


@tack.func
def sample(u, h, x, y, z):
    """The value at a point, trilinear between voxels; outside, that of the nearest border point."""
    a = min(max(x / h[0], 0.0), u.shape[0] - 1.0)
    b = min(max(y / h[1], 0.0), u.shape[1] - 1.0)
    c = min(max(z / h[2], 0.0), u.shape[2] - 1.0)
    i = min(int(a), u.shape[0] - 2)
    j = min(int(b), u.shape[1] - 2)
    k = min(int(c), u.shape[2] - 2)
    return mix(in_plane(u, i, j, k, a - i, b - j), in_plane(u, i, j, k + 1, a - i, b - j), c - k)


@tack.kernel
def find_tops(u, tops):
    """tops[a, b, c]: the largest value of block (a, b, c) and of the blocks around it.

    From a point of a block whose top is below the isovalue, BLOCK voxels are empty in any direction.
    """
    for a, b, c in tack.ndindex(tops.shape[0], tops.shape[1], tops.shape[2]):
        top = u[a * BLOCK, b * BLOCK, c * BLOCK]
        for i in range(max((a - 1) * BLOCK, 0), min((a + 2) * BLOCK + 1, u.shape[0])):
            for j in range(max((b - 1) * BLOCK, 0), min((b + 2) * BLOCK + 1, u.shape[1])):
                for k in range(max((c - 1) * BLOCK, 0), min((c + 2) * BLOCK + 1, u.shape[2])):
                    top = max(top, u[i, j, k])
        tops[a, b, c] = top


@tack.func
def block_of(x, h, blocks):
    return min(max(int(x / h) // BLOCK, 0), blocks - 1)


@tack.func
def slab(origin, slope, size):
    """Where a ray enters and leaves 0 <= coordinate <= size."""
    to_low = -origin / slope
    to_high = (size - origin) / slope
    return min(to_low, to_high), max(to_low, to_high)


@tack.func
def march(u, h, tops, ox, oy, oz, dx, dy, dz, iso, stride):
    """The distance along a ray to the first value of at least ``iso``, or -1."""
    enter_x, leave_x = slab(ox, dx, h[0] * (u.shape[0] - 1))
    enter_y, leave_y = slab(oy, dy, h[1] * (u.shape[1] - 1))
    enter_z, leave_z = slab(oz, dz, h[2] * (u.shape[2] - 1))
    enter = max(enter_x, enter_y, enter_z, 0.0)
    leave = min(leave_x, leave_y, leave_z)
    leap = max(BLOCK * min(h[0], h[1], h[2]), stride)
    t = enter
    while t <= leave:
        x, y, z = ox + t * dx, oy + t * dy, oz + t * dz
        a = block_of(x, h[0], tops.shape[0])
        b = block_of(y, h[1], tops.shape[1])
        c = block_of(z, h[2], tops.shape[2])
        if tops[a, b, c] < iso:
            t += leap
        elif sample(u, h, x, y, z) < iso:
            t += stride
        else:  # the surface is within the last stride: halve it until it is found
            below = max(t - stride, enter)
            for _ in range(8):
                middle = 0.5 * (below + t)
                if sample(u, h, ox + middle * dx, oy + middle * dy, oz + middle * dz) < iso:
                    below = middle
                else:
                    t = middle
            return t
    return -1.0


@tack.func
def ray(camera, across, up):
    """The unit direction from the eye through a point of the picture, -1..1 across and up."""
    dx = camera[1, 0] + across * camera[2, 0] + up * camera[3, 0]
    dy = camera[1, 1] + across * camera[2, 1] + up * camera[3, 1]
    dz = camera[1, 2] + across * camera[2, 2] + up * camera[3, 2]
    scale = tack.rsqrt(dx * dx + dy * dy + dz * dz)
    return dx * scale, dy * scale, dz * scale


@tack.func
def normal(u, h, x, y, z):
    """The unit vector out of the surface: against the gradient, by differences over a voxel each way."""
    gx = (sample(u, h, x - h[0], y, z) - sample(u, h, x + h[0], y, z)) / h[0]
    gy = (sample(u, h, x, y - h[1], z) - sample(u, h, x, y + h[1], z)) / h[1]
    gz = (sample(u, h, x, y, z - h[2]) - sample(u, h, x, y, z + h[2])) / h[2]
    length = tack.sqrt(gx * gx + gy * gy + gz * gz)
    scale = 1.0 / length if length > 0.0 else 0.0
    return gx * scale, gy * scale, gz * scale


@tack.kernel
def trace(u, h, tops, camera, surface, first, last, iso, stride):
    """For each ray of rows first..last: surface[row, column] = distance or -1, then the normal."""
    for row, column in tack.ndindex((first, last), surface.shape[1]):
        across = (2.0 * column + 1.0) / surface.shape[1] - 1.0
        up = 1.0 - (2.0 * row + 1.0) / surface.shape[0]
        dx, dy, dz = ray(camera, across, up)
        ox, oy, oz = camera[0, 0], camera[0, 1], camera[0, 2]
        t = march(u, h, tops, ox, oy, oz, dx, dy, dz, iso, stride)
        nx, ny, nz = 0.0, 0.0, 0.0
        if t >= 0.0:
            nx, ny, nz = normal(u, h, ox + t * dx, oy + t * dy, oz + t * dz)
        surface[row, column, 0] = t
        surface[row, column, 1], surface[row, column, 2], surface[row, column, 3] = nx, ny, nz


# --- Lighting it -------------------------------------------------------------------------------


@tack.func
def clearance(u, h, x, y, z, dx, dy, dz, iso, reach):
    """How far a point sees along a direction before the surface is in the way, as a share of reach."""
    passed = 0.0
    before = min(sample(u, h, x, y, z), iso)
    for step in range(1, 9):
        share = step * step / 64.0  # closer together near the point
        t = share * reach
        value = sample(u, h, x + t * dx, y + t * dy, z + t * dz)
        if value > iso:  # where the line between the two values crosses
            return mix(passed, share, (iso - before) / (value - before))
        passed, before = share, value
    return 1.0


@tack.func
def openness(u, h, x, y, z, nx, ny, nz, iso, reach, phase):
    """The share of the sky that a point sees: the mean clearance of 12 cosine-distributed directions.

    ``phase``, from 0 to 1, chooses the directions: rays side by side should have different ones.
    """
    sign = tack.copysign(1.0, nz)  # a tangent frame (p, q) without a special case for any normal
    s = -1.0 / (sign + nz)
    px, py, pz = 1.0 + sign * nx * nx * s, sign * nx * ny * s, -sign * nx
    qx, qy, qz = nx * ny * s, sign + ny * ny * s, -ny
    total = 0.0
    for n in range(12):
        share = (n + phase) / 12.0
        angle = 2.3999632 * (n + phase)  # turned by the golden angle each time
        outward = tack.sqrt(1.0 - share)
        p = tack.sqrt(share) * tack.cos(angle)
        q = tack.sqrt(share) * tack.sin(angle)
        dx = outward * nx + p * px + q * qx
        dy = outward * ny + p * py + q * qy
        dz = outward * nz + p * pz + q * qz
        total += clearance(u, h, x, y, z, dx, dy, dz, iso, reach)
    return total / 12.0


@tack.kernel
def shade(u, h, camera, lamp, surface, colours, first, last, iso, reach):
    """Linear RGB of the rays of rows first..last, lit by a lamp in direction ``lamp`` and by the sky."""
    for row, column in tack.ndindex((first, last), surface.shape[1]):
        across = (2.0 * column + 1.0) / surface.shape[1] - 1.0
        up = 1.0 - (2.0 * row + 1.0) / surface.shape[0]
        t = surface[row, column, 0]
        if t < 0.0:  # a dark ground, lighter in the middle
            glow = max(0.0, 1.0 - across * across - up * up)
            colours[row, column, 0] = 0.0018 + 0.009 * glow
            colours[row, column, 1] = 0.0021 + 0.011 * glow
            colours[row, column, 2] = 0.0030 + 0.017 * glow
            continue
        dx, dy, dz = ray(camera, across, up)
        nx, ny, nz = surface[row, column, 1], surface[row, column, 2], surface[row, column, 3]
        # Half a voxel off the surface, so that it does not shade itself.
        x = camera[0, 0] + t * dx + 0.5 * h[0] * nx
        y = camera[0, 1] + t * dy + 0.5 * h[1] * ny
        z = camera[0, 2] + t * dz + 0.5 * h[2] * nz

        phase = (row % 2 * 2 + column % 2) * 0.25 + 0.125
        sky = openness(u, h, x, y, z, nx, ny, nz, iso, reach, phase)
        facing = max(0.0, nx * lamp[0] + ny * lamp[1] + nz * lamp[2])
        lit = facing * clearance(u, h, x, y, z, lamp[0], lamp[1], lamp[2], iso, reach)
        toward = max(0.0, -(nx * dx + ny * dy + nz * dz))  # 1 where the surface faces the eye
        hx, hy, hz = lamp[0] - dx, lamp[1] - dy, lamp[2] - dz
        glint = max(0.0, (nx * hx + ny * hy + nz * hz) * tack.rsqrt(hx * hx + hy * hy + hz * hz))
        shine = 0.22 * lit * glint**32 + 0.07 * sky * (1.0 - toward) ** 3

        # The sky is brighter above; light that reaches into a furrow has turned red on the way.
        ambient = sky * sky * (0.17 + 0.09 * nz)
        colours[row, column, 0] = 0.80 * (1.05 * lit + 1.15 * ambient) + shine
        colours[row, column, 1] = 0.49 * (0.98 * lit + 1.25 * ambient * sky) + shine
        colours[row, column, 2] = 0.40 * (0.90 * lit + 1.55 * ambient * sky) + shine


@tack.kernel
def develop(colours, pixels, side):
    """Average side * side rays into each pixel and encode it as sRGB bytes."""
    for row, column, channel in tack.ndindex(pixels.shape[0], pixels.shape[1], pixels.shape[2]):
        total = 0.0
        for i in range(side):
            for j in range(side):
                # Bound each ray, so that a highlight's edge is as smooth as any other.
                total += min(colours[row * side + i, column * side + j, channel], 1.0)
        light = total / (side * side)
        encoded = 12.92 * light if light <= 0.0031308 else 1.055 * tack.pow(light, 1.0 / 2.4) - 0.055
        pixels[row, column, channel] = round(255.0 * encoded)


# --- On the host -------------------------------------------------------------------------------


def look_at(points: NDArray[np.floating], azimuth: float, elevation: float) -> NDArray[np.float32]:
    """A camera that frames ``points`` (n, 3); azimuth 0 looks from the front, 90 from the left."""
    a, e = np.radians([azimuth, elevation])
    forward = -np.array([-np.sin(a) * np.cos(e), np.cos(a) * np.cos(e), np.sin(e)])
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    axes = np.stack([forward, right, np.cross(right, forward)])
    along = points @ axes.T
    low, high = along.min(0), along.max(0)
    depth, across, up = (high - low) / 2.0
    half = np.tan(np.radians(FIELD_OF_VIEW / 2.0))
    distance = depth + 1.04 * max(across, up, 1e-3 * depth) / half
    eye = (low + high) / 2.0 @ axes - distance * forward
    return np.array([eye, forward, half * axes[1], half * axes[2]], np.float32)


def lamp_of(camera: NDArray[np.float32]) -> NDArray[np.float32]:
    """The unit direction of a lamp above the viewer's left shoulder."""
    forward, right, up = (row / np.linalg.norm(row) for row in camera[1:])
    lamp = 0.95 * up - 0.60 * right - 0.55 * forward
    return (lamp / np.linalg.norm(lamp)).astype(np.float32)


def strides(shape: tuple[int, ...], spacing: Spacing) -> float:
    """The ray's stride: half a voxel, but not so little that f32 could lose it."""
    return max(0.5 * min(spacing), float(np.linalg.norm(np.multiply(shape, spacing))) / 8192.0)


def trace_all(volume: Volume, spacing: Spacing, camera: NDArray[np.float32], iso: float, rays: int) -> Volume:
    """Distances and normals, (rays, rays, 4), of a square of rays."""
    tops = np.empty([-(-extent // BLOCK) for extent in volume.shape], np.float32)
    find_tops(volume, tops)
    surface = np.empty((rays, rays, 4), np.float32)
    h, stride = np.array(spacing, np.float32), strides(volume.shape, spacing)
    for first in progress(range(0, rays, 64), "rays"):
        trace(volume, h, tops, camera, surface, first, min(first + 64, rays), iso, stride)
    return surface


def render(
    volume: Volume, spacing: Spacing, surface: Volume, camera: NDArray[np.float32], iso: float, side: int
) -> NDArray[np.uint8]:
    """The picture, (size, size, 3) sRGB bytes, of a traced surface with side * side rays a pixel."""
    rays = len(surface)
    colours = np.empty((rays, rays, 3), np.float32)
    h, lamp = np.array(spacing, np.float32), lamp_of(camera)
    reach = 0.1 * float(np.linalg.norm(np.multiply(volume.shape, spacing)))
    for first in progress(range(0, rays, 64), "light"):
        shade(volume, h, camera, lamp, surface, colours, first, min(first + 64, rays), iso, reach)
    pixels = np.empty((rays // side, rays // side, 3), np.uint8)
    develop(colours, pixels, side)
    return pixels
