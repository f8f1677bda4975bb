"""A brain scan as a translucent body with a corner cut away (direct volume rendering).

    python volume.py                       the T1 template that the package nilearn contains
    python volume.py scan.nii.gz --size 900
    python volume.py --check

Each ray gathers colour through the volume from front to back, until little light is left. Shows
`tack.Texture3D`, which interpolates between voxels, and a device class that says how the tissue
looks: another class with a method `medium` compiles another renderer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from _common import F32_ROUNDOFF, check, positive_int, save_png
from _nifti import BadInput, load, scaled, template
from _pictures import shrink
from _raymarch import lamp_of, look_at
from numpy.typing import NDArray

import tack

OPAQUE = tack.constant(0.005)  # the share of light at which a ray ends
SAMPLES = 2  # rays across a pixel


@tack.device_class
class Tissue:
    """Grey matter in warm tones, white matter pale; fluid and what surrounds it is clear."""

    cut = 1  # whether the corner is cut away

    def __init__(self, opacity: float) -> None:
        self.opacity = float(opacity)

    @tack.func
    def medium(self, value):
        """The colour of a value, and its opacity per mm."""
        white = tack.math.smoothstep(0.52, 0.85, value)
        colour = tack.math.mix([0.62, 0.20, 0.15], [0.95, 0.84, 0.68], white)
        return colour, self.opacity * tack.math.smoothstep(0.22, 0.5, value)


@tack.func
def texel(volume, p, size):
    """The value at a point of a box of ``size`` mm around the origin."""
    q = p / size + 0.5
    return volume.sample(q.x, q.y, q.z)


@tack.func
def gradient(volume, p, size, h):
    dx, dy, dz = tack.vec3(h, 0.0, 0.0), tack.vec3(0.0, h, 0.0), tack.vec3(0.0, 0.0, h)
    return tack.vec3(
        texel(volume, p + dx, size) - texel(volume, p - dx, size),
        texel(volume, p + dy, size) - texel(volume, p - dy, size),
        texel(volume, p + dz, size) - texel(volume, p - dz, size),
    ) / (2.0 * h)


@tack.func
def box_hit(origin, direction, half):
    """Where a ray enters and leaves the box from -half to half."""
    a = (-half - origin) / direction
    b = (half - origin) / direction
    return max(min(a, b).max(), 0.0), max(a, b).min()


@tack.func
def shade(volume, p, size, h, lamp):
    """How much light a point sends on: by the slope of the value there, in full where it is flat."""
    slope = gradient(volume, p, size, h)
    steep = slope.length()
    facing = tack.dot(slope, lamp) / max(steep, 1e-6)  # the value rises into the tissue
    lit = 0.22 + 0.95 * max(-facing, 0.0)
    return tack.math.mix(0.9, lit, tack.math.saturate(12.0 * steep))


@tack.func
def trace(volume, look, origin, direction, size, corner, lamp, stride):
    """The colour that a ray gathers, and the share of light that passes all the way through."""
    gathered = tack.vec3(0.0)
    clear = 1.0
    enter, leave = box_hit(origin, direction, 0.5 * size)
    if enter < leave:
        count = int((leave - enter) / stride) + 1
        step = (leave - enter) / count
        for k in range(count):
            p = origin + (enter + (k + 0.5) * step) * direction
            if look.cut and p.x < corner.x and p.y > corner.y and p.z > corner.z:
                continue
            colour, density = look.medium(texel(volume, p, size))
            if density > 0.0:
                share = 1.0 - tack.exp(-density * step)
                gathered += clear * share * shade(volume, p, size, 3.0 * stride, lamp) * colour
                clear *= 1.0 - share
                if clear < OPAQUE:
                    return gathered, 0.0
    return gathered, clear


@tack.kernel
def render(
    volume,
    look,
    image,
    eye: tack.vec3,
    forward: tack.vec3,
    right: tack.vec3,
    up: tack.vec3,
    size: tack.vec3,
    corner: tack.vec3,
    lamp: tack.vec3,
    stride,
):
    for row, column in tack.ndindex(image.shape[0], image.shape[1]):
        across = (2.0 * column + 1.0) / image.shape[1] - 1.0
        down = 1.0 - (2.0 * row + 1.0) / image.shape[0]
        direction = tack.normalized(forward + across * right + down * up)
        colour, clear = trace(volume, look, eye, direction, size, corner, lamp, stride)
        image[row, column] = colour + clear * tack.math.mix(
            [0.008, 0.010, 0.018], [0.040, 0.052, 0.085], row / image.shape[0]
        )


# --- Checks ------------------------------------------------------------------------------------


@tack.device_class
class Fog:
    """Opacity equal to the value, and no colour."""

    cut = 0

    @tack.func
    def medium(self, value):
        return tack.vec3(0.0), value


@tack.kernel
def sample_all(volume, points, out):
    for i in range(len(points)):
        p = points[i]
        out[i] = volume.sample(p.x, p.y, p.z)


@tack.kernel
def transmittances(volume, look, origins, directions, size: tack.vec3, out, stride):
    for i in range(len(out)):
        nothing = tack.vec3(0.0)
        _, clear = trace(volume, look, origins[i], directions[i], size, nothing, nothing, stride)
        out[i] = clear


def trilinear(values: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interpolation by NumPy; values[z, y, x], points (n, 3) as (x, y, z)."""
    top = np.array(values.shape[::-1]) - 1
    at = np.clip(points, 0.0, 1.0) * top
    low = np.minimum(at.astype(int), top - 1)
    share = at - low
    total = np.zeros(len(points))
    for corner in np.ndindex(2, 2, 2):
        x, y, z = (low + corner).T
        total += np.where(corner, share, 1.0 - share).prod(axis=1) * values[z, y, x]
    return total


def run_checks(count: int) -> bool:
    """Compare the texture with NumPy, and rays through fog with the integral of its density."""
    rng = np.random.default_rng(4)
    noise = rng.random((7, 9, 11), np.float32)
    points = rng.uniform(-0.2, 1.2, (count, 3)).astype(np.float32)
    out = tack.empty(count)
    sample_all(tack.Texture3D(noise), tack.asarray(points, tack.vec3), out)
    want = trilinear(noise.astype(np.float64), points.astype(np.float64))
    # A position below 16 voxels is rounded twice, and moves the value by as much; 3 mixes of 3 roundings.
    # A GPU's texture unit has eight bits for the fraction of a position, along each axis.
    unit = 0.0 if tack.default_device().name == "cpu" else 3 * 2.0**-9
    passed = check("the texture", out.numpy(), want, (3 * 2 * 16 + 9) * F32_ROUNDOFF + unit)

    # Density linear in x, y, z: a midpoint rule with any number of steps gives its exact integral.
    size = np.array([4.0, 5.0, 6.0])
    x, y, z = (np.linspace(-0.5, 0.5, n) for n in (11, 9, 7))
    ramp = 0.2 + 0.1 * x + 0.08 * y[:, None] - 0.12 * z[:, None, None]
    origins = rng.normal(size=(count, 3))
    origins *= 9.0 / np.linalg.norm(origins, axis=1, keepdims=True)
    targets = rng.uniform(-0.4, 0.4, (count, 3)) * size
    directions = (targets - origins) / np.linalg.norm(targets - origins, axis=1, keepdims=True)
    a, b = (-size / 2 - origins) / directions, (size / 2 - origins) / directions
    enter, leave = np.minimum(a, b).max(axis=1), np.maximum(a, b).min(axis=1)
    middle = (origins + 0.5 * (enter + leave)[:, None] * directions) / size
    want = np.exp(-(leave - enter) * (0.2 + middle @ [0.1, 0.08, -0.12]))
    rays = [tack.asarray(values.astype(np.float32), tack.vec3) for values in (origins, directions)]
    transmittances(tack.Texture3D(ramp.astype(np.float32)), Fog(), *rays, size, out, 0.25)
    # Some 40 steps (of a way below 9) each round their opacity, transmittance and product; positions
    # below 16 are rounded before and after scaling.
    bound = 40 * 4 * F32_ROUNDOFF + 9 * 4 * 16 * F32_ROUNDOFF + 9 * unit * np.ptp(ramp)
    return check("light through fog", out.numpy(), want, bound) and passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="a NIfTI volume")
    parser.add_argument("--size", type=positive_int, default=560, help="pixels a side (default: 560)")
    parser.add_argument("--opacity", type=float, default=0.55, help="of tissue, per mm (default: 0.55)")
    parser.add_argument("--azimuth", type=float, default=40.0, help="90 from the left (default: 40)")
    parser.add_argument("--elevation", type=float, default=38.0, help="90 from above (default: 38)")
    parser.add_argument("--output", type=Path, default=Path("volume.png"))
    parser.add_argument("--check", action="store_true", help="compare with NumPy and exit")
    args = parser.parse_args()

    if args.check:
        return 0 if run_checks(args.size * 4) else 1
    try:
        volume, spacing = load(args.file or template())
        scan = scaled(volume)
    except BadInput as problem:
        print(f"volume.py: {args.file or ''}: {problem}", file=sys.stderr)
        return 2
    size = (np.array(scan.shape) - 1) * spacing
    body = np.argwhere(scan[::2, ::2, ::2] > 0.3) * 2 * np.asarray(spacing) - size / 2
    view = look_at(body, args.azimuth, args.elevation)
    image = tack.empty((args.size * SAMPLES, args.size * SAMPLES), tack.vec3)
    texture = tack.Texture3D(scan.T.copy())  # x fastest
    corner = np.array([-0.02, 0.02, 0.02]) * size  # just off the middle
    began = perf_counter()
    render(texture, Tissue(args.opacity), image, *view, size, corner, lamp_of(view), 0.5 * min(spacing))
    print(f"{image.size / (perf_counter() - began) / 1e6:.2f} M rays/s")
    bright = np.clip(image.numpy(), 0.0, 1.0) ** (1 / 2.2)
    save_png(args.output, shrink(np.rint(bright * 255).astype(np.uint8), SAMPLES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
