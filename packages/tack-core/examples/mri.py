"""From a brain scan to a picture: edge-preserving smoothing, gradients and a ray-marched surface.

    python mri.py                              the T1 template that the package nilearn contains
    python mri.py scan.nii.gz --iso 0.4        any NIfTI volume
    python mri.py --check                      the kernels against NumPy and an analytic sphere

The volume is turned to the nearest right-anterior-superior orientation and scaled to 0..1 between
its 0.1 and 99.9 percentiles; voxels that are NaN or infinite count as background (0). Lengths are
millimetres, from the voxel spacing in the header. Exit status: 0, 1 for a failed check, 2 for bad
input or output.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _common import F32_ROUNDOFF, check, colourise, positive_int, progress
from _nifti import TOO_LARGE, BadInput, Spacing, Volume, load, scaled, template
from _raymarch import look_at, render, strides, trace_all
from numpy.typing import NDArray

import tack

STABILITY = 0.9  # the time step, as a share of the longest stable one
NO_EDGES = 1e4  # a kappa above every slope: plain diffusion


# --- Smoothing and gradient ------------------------------------------------------------------


@tack.func
def flow(difference, edge):
    """What flows from a neighbour whose value is ``difference`` higher: little across an edge."""
    return difference / (1.0 + edge * difference * difference)


@tack.kernel
def diffuse(u, out, rate_x, rate_y, rate_z, edge_x, edge_y, edge_z):
    """One explicit Perona-Malik step of the inner voxels; those at the border keep their values."""
    for i, j, k in tack.ndindex((1, u.shape[0] - 1), (1, u.shape[1] - 1), (1, u.shape[2] - 1)):
        here = u[i, j, k]
        along_x = flow(u[i - 1, j, k] - here, edge_x) + flow(u[i + 1, j, k] - here, edge_x)
        along_y = flow(u[i, j - 1, k] - here, edge_y) + flow(u[i, j + 1, k] - here, edge_y)
        along_z = flow(u[i, j, k - 1] - here, edge_z) + flow(u[i, j, k + 1] - here, edge_z)
        out[i, j, k] = here + (rate_x * along_x + rate_y * along_y + rate_z * along_z)


@tack.kernel
def gradient_magnitude(u, out, hx, hy, hz):
    """|grad u| by central differences, one-sided at the border; every extent is at least 2."""
    for i, j, k in tack.ndindex(u.shape[0], u.shape[1], u.shape[2]):
        i0, i1 = max(i - 1, 0), min(i + 1, u.shape[0] - 1)
        j0, j1 = max(j - 1, 0), min(j + 1, u.shape[1] - 1)
        k0, k1 = max(k - 1, 0), min(k + 1, u.shape[2] - 1)
        gx = (u[i1, j, k] - u[i0, j, k]) / (hx * (i1 - i0))
        gy = (u[i, j1, k] - u[i, j0, k]) / (hy * (j1 - j0))
        gz = (u[i, j, k1] - u[i, j, k0]) / (hz * (k1 - k0))
        out[i, j, k] = tack.sqrt(gx * gx + gy * gy + gz * gz)


# --- Running the kernels -----------------------------------------------------------------------


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print how long a stage took."""
    start = time.perf_counter()
    yield
    print(f"  {name:<44} {time.perf_counter() - start:7.2f} s", flush=True)


def diffusion_factors(spacing: Spacing, kappa: float) -> list[float]:
    """The rates and edge factors of `diffuse`, rounded to f32 as it receives them."""
    h = np.asarray(spacing, np.float64)
    dt = STABILITY / (2.0 / h**2).sum()
    edges = np.minimum(1.0 / (kappa * h) ** 2, 1e30)
    return [float(value) for value in np.concatenate([dt / h**2, edges]).astype(np.float32)]


def smooth(volume: Volume, spacing: Spacing, iterations: int, kappa: float) -> Volume:
    """The volume after so many Perona-Malik steps; ``kappa`` is the slope per mm that counts as an edge."""
    factors = diffusion_factors(spacing, kappa)
    now, following = volume.copy(), volume.copy()
    for _ in progress(range(iterations), "diffusion"):
        diffuse(now, following, *factors)
        now, following = following, now
    return now


# --- The picture -------------------------------------------------------------------------------


def panel(cut: NDArray[np.float32], size_mm: tuple[float, float], scale: float, box: int, heat: bool) -> Any:
    """A slice (across, up) as a square image of ``box`` pixels, ``scale`` pixels a mm."""
    from PIL import Image

    grey = np.clip(cut.T[::-1], 0.0, 1.0)
    pixels = colourise(grey) if heat else np.rint(grey[..., None] * [255.0, 255.0, 255.0]).astype(np.uint8)
    wide, high = (max(1, min(box, round(extent * scale))) for extent in size_mm)
    square = Image.new("RGB", (box, box), (0, 0, 4))
    picture = Image.fromarray(pixels).resize((wide, high), Image.Resampling.BICUBIC)
    square.paste(picture, ((box - wide) // 2, (box - high) // 2))
    return square


def compose(rendering: NDArray[np.uint8], volumes: list[Volume], spacing: Spacing, caption: str) -> Any:
    """The rendering beside slices of the ``volumes`` (before, after, gradient magnitude) along each axis."""
    from PIL import Image, ImageDraw, ImageFont

    size = len(rendering)
    box = size // 3
    margin = max(18, size // 28)
    sheet = Image.new("RGB", (size + 3 * box + 4, size + 2 * margin), (6, 7, 10))
    sheet.paste(Image.fromarray(rendering), (0, margin))
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=margin * 0.55)

    content = np.argwhere(volumes[1] > 0.05)  # crop the slices to it
    crop = tuple(slice(low, high + 1) for low, high in zip(content.min(0), content.max(0), strict=True))
    volumes = [volume[crop] for volume in volumes]
    shape = volumes[0].shape
    extents = [n * h for n, h in zip(shape, spacing, strict=True)]
    scale = 0.94 * box / max(extents)
    brightest = max(float(np.percentile(volumes[2], 99.7)), 1e-30)
    for column, (volume, title) in enumerate(
        zip(volumes, ("scan", "smoothed", "gradient magnitude"), strict=True)
    ):
        left = size + 2 + column * (box + 1)
        pen.text((left + box / 2, margin / 2), title, (190, 195, 205), font, anchor="mm")
        for axis in range(3):
            cut = volume.take(shape[axis] // 2, axis) / (brightest if column == 2 else 1.0)
            across, up = (extent for other, extent in enumerate(extents) if other != axis)
            image = panel(cut, (across, up), scale, box, heat=column == 2)
            sheet.paste(image, (left, margin + axis * box))
            if column == 0 and axis > 0:  # left to right is the patient's, as seen from behind and above
                middle = margin + (axis + 0.5) * box
                pen.text((left + 0.04 * box, middle), "L", (120, 125, 135), font, anchor="mm")
    pen.text((margin / 2, size + margin * 1.5), caption, (120, 125, 135), font, anchor="lm")
    return sheet


# --- Checking ----------------------------------------------------------------------------------


def smooth_in_f64(volume: Volume, factors: list[float], iterations: int) -> NDArray[np.float64]:
    """`smooth` by NumPy in f64, with the same f32 factors."""
    u = volume.astype(np.float64)
    for _ in range(iterations):
        change = np.zeros_like(u)
        for axis in range(3):
            face = np.diff(u, axis=axis)
            face = face / (1.0 + factors[3 + axis] * face * face)
            inner = [slice(1, -1)] * 3
            change[1:-1, 1:-1, 1:-1] += (
                factors[axis]
                * np.diff(face, axis=axis)[
                    tuple(slice(None) if other == axis else part for other, part in enumerate(inner))
                ]
            )
        u += change
    return u


def diffusion_bound(factors: list[float], iterations: int) -> float:
    """How far the f32 result can be from exact arithmetic, for values within 0..1.

    Write S for the sum of the six rates, below 1. Each new value is an average of old ones, so all
    stay within 0..1. One step rounds: a flow 5 times (the difference, and at most 3 + 1 in the
    quotient), each sum of two flows, its product with the rate and the sum of three once or twice
    more, in all 9 roundings of flows that are at most F = 1 / (2 sqrt(edge)) or 1; and the final
    sum once. That is r = u (1 + 9 S F) with u = 2^-24. A step also passes on the error of the one
    before: a flow's slope is between -1/8 and 1, so the step's Jacobian has a maximum norm of at
    most G = 1 + S / 4. After n steps: r (G^n - 1) / (G - 1).
    """
    rates, edges = np.array(factors[:3]), np.array(factors[3:])
    total = 2.0 * rates.sum()
    flows = 2.0 * (rates * np.minimum(1.0, 0.5 / np.sqrt(edges))).sum()
    step = F32_ROUNDOFF * (1.0 + 9.0 * flows) * 1.01  # 1.01: products of roundings
    growth = 1.0 + total / 4.0
    return float(step * (growth**iterations - 1.0) / (growth - 1.0))


def check_filters(volume: Volume, spacing: Spacing, kappa: float, name: str) -> bool:
    """Compare diffusion and gradient with NumPy."""
    iterations = 8
    factors = diffusion_factors(spacing, kappa)
    got = smooth(volume, spacing, iterations, kappa)
    want = smooth_in_f64(volume, factors, iterations)
    passed = check(f"{name}: {iterations} diffusion steps", got, want, diffusion_bound(factors, iterations))

    slope = np.empty_like(volume)
    gradient_magnitude(volume, slope, *spacing)
    h = [float(np.float32(value)) for value in spacing]
    want = np.sqrt(sum(part**2 for part in np.gradient(volume.astype(np.float64), *h)))
    # Relative: 3 roundings in each component; squared, summed and rooted they count once, with 3 / 2
    # of the sum of squares and 1 of the root. Below f32's normal range: its smallest number's root.
    bound = 1.01 * (3 + 1.5 + 1) * F32_ROUNDOFF * want + 2.0**-74
    return check(f"{name}: gradient magnitude", slope, want, bound) and passed


def check_sphere(spacing: Spacing) -> bool:
    """Trace a ball whose surface is known, and compare hits, misses, distances and normals.

    The volume holds R - |p - centre|, scaled. Its second derivatives along the axes are within
    -1 / |p - centre| .. 0, so between voxels the interpolated value is too low, by at most
    e = sum(h^2) / (8 (R - w)) mm, where w is a cell's diagonal. The surface found is therefore
    within e of the sphere, plus 2^-8 of a stride (the halving) and f32's rounding of positions. A
    normal's components are central differences, off by at most e / (2 h) for the interpolation and
    by h^2 / 6 times the third derivatives, which are below 1.2 / (R - 2 w)^2; a unit vector whose
    components are off by s turns by at most asin |s|, below 1.1 |s| here.
    """
    radius, rays = 30.0, 160
    h = np.asarray(spacing, np.float64)
    shape = [int(np.ceil(2.6 * radius / step)) for step in h]
    centre = (np.array(shape) - 1) / 2.0 * h
    grid = np.stack(
        np.meshgrid(*(np.arange(n) * s for n, s in zip(shape, h, strict=True)), indexing="ij"), -1
    )
    away = radius - np.linalg.norm(grid - centre, axis=-1)
    volume = (0.5 + away / (4.0 * radius)).astype(np.float32)
    towards = np.random.default_rng(2).standard_normal((2000, 3))
    camera = look_at(centre + radius * towards / np.linalg.norm(towards, axis=1, keepdims=True), 35.0, 20.0)
    surface = trace_all(volume, spacing, camera, 0.5, rays)

    eye, forward, right, up = camera.astype(np.float64)
    place = (2.0 * np.arange(rays) + 1.0) / rays - 1.0
    direction = forward + place[None, :, None] * right - place[:, None, None] * up
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    nearest = np.linalg.norm(np.cross(direction, centre - eye), axis=-1)  # of the ray to the centre
    cell = np.linalg.norm(h)
    off = (h**2).sum() / (8.0 * (radius - cell))
    stride = strides(volume.shape, spacing)
    distance_bound = off + stride / 256.0 + 64.0 * F32_ROUNDOFF * float(np.linalg.norm(eye))
    graze = distance_bound + stride**2 / (8.0 * radius)  # a ray this far inside stays in for a stride
    hit = surface[..., 0] >= 0.0
    passed = check("sphere: rays that must hit", hit[nearest < radius - graze], True, 0)
    passed &= check("sphere: rays that must miss", hit[nearest > radius + graze], False, 0)

    out = eye + surface[hit][:, :1] * direction[hit] - centre
    length = np.linalg.norm(out, axis=1)
    passed &= check("sphere: |hit - centre|", length, radius, distance_bound)
    slopes = off / (2.0 * h) + 0.2 * h**2 / (radius - 2.0 * cell) ** 2 + 16.0 * F32_ROUNDOFF * radius / h
    normals_bound = 1.1 * float(np.linalg.norm(slopes))
    error = np.linalg.norm(surface[hit][:, 1:] - out / length[:, None], axis=1)
    return check("sphere: normals", error, 0.0, normals_bound) and bool(passed)


def run_checks(volume: Volume, spacing: Spacing, kappa: float) -> bool:
    """All checks; the filters on the middle of the volume, and on noise with unequal spacing."""
    middle = tuple(slice(max(0, n // 2 - 32), n // 2 + 32) for n in volume.shape)
    passed = check_filters(np.ascontiguousarray(volume[middle]), spacing, kappa, "scan")
    noise = np.random.default_rng(1).random((33, 40, 21), np.float32)
    passed &= check_filters(noise, (0.8, 1.0, 2.5), kappa, "noise")
    passed &= check_sphere((1.0, 1.0, 1.0))
    return check_sphere((0.8, 1.0, 1.7)) and passed


# --- The program -------------------------------------------------------------------------------


def number(low: float, high: float) -> Any:
    """An argparse type: a number from ``low`` to ``high``."""

    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not between {low:g} and {high:g}")
        return value

    parse.__name__ = "number"  # as argparse says what a text is not
    return parse


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", help="a NIfTI volume; none: nilearn's T1 template")
    parser.add_argument("--output", type=Path, default=Path("brain.png"), help="the picture to write")
    parser.add_argument("--iterations", type=int, default=12, help="diffusion steps")
    parser.add_argument(
        "--kappa", type=number(1e-4, 1e4), default=0.04, help="the slope per mm that counts as an edge"
    )
    parser.add_argument(
        "--iso", type=number(1e-3, 0.999), default=0.55, help="the value of the surface, 0..1"
    )
    parser.add_argument(
        "--fairing", type=int, default=4, help="plain diffusion steps that even out the surface"
    )
    parser.add_argument("--size", type=positive_int, default=900, help="pixels along a side of the rendering")
    parser.add_argument("--samples", type=positive_int, default=2, help="rays along a side of a pixel")
    parser.add_argument(
        "--azimuth", type=number(-360, 360), default=65.0, help="0 looks from the front, 90 from the left"
    )
    parser.add_argument("--elevation", type=number(-89, 89), default=20.0, help="90 looks from above")
    parser.add_argument("--threads", type=positive_int, help="CPU threads; none: all cores")
    parser.add_argument("--check", action="store_true", help="check the kernels instead of making a picture")
    args = parser.parse_args()
    if min(args.iterations, args.fairing) < 0:
        parser.error("argument --iterations, --fairing: must not be negative")
    if not 48 <= args.size <= 8192 or args.samples > 8:
        parser.error("argument --size: from 48 to 8192; --samples: up to 8")
    if args.output.suffix.lower() != ".png" or not args.output.parent.is_dir():
        parser.error(f"argument --output: {args.output} is not a .png in an existing folder")
    return args


def make_picture(scan: Volume, spacing: Spacing, name: str, args: argparse.Namespace) -> None:
    with stage(f"diffusion, {args.iterations} steps"):
        smoothed = smooth(scan, spacing, args.iterations, args.kappa)
    with stage("gradient magnitude"):
        slope = np.empty_like(smoothed)
        gradient_magnitude(smoothed, slope, *spacing)
    with stage(f"fairing, {args.fairing} steps"):
        body = smooth(smoothed, spacing, args.fairing, NO_EDGES)
    inside = np.argwhere(body[::2, ::2, ::2] >= args.iso) * 2
    if inside.size == 0:
        raise BadInput(f"nothing to show: no value reaches --iso {args.iso:g} after smoothing")
    camera = look_at(inside * np.asarray(spacing), args.azimuth, args.elevation)
    rays = args.size * args.samples
    with stage(f"ray marching, {rays:,} x {rays:,} rays"):
        surface = trace_all(body, spacing, camera, args.iso, rays)
    with stage("shading"):
        rendering = render(body, spacing, surface, camera, args.iso, args.samples)
    shape = " x ".join(map(str, scan.shape))
    caption = (
        f"{name}   {shape} voxels of {' x '.join(f'{h:g}' for h in spacing)} mm   "
        f"{args.iterations} Perona-Malik steps, kappa {args.kappa:g}/mm   isosurface {args.iso:g}"
    )
    with stage("writing"):
        picture = compose(rendering, [scan, smoothed, slope], spacing, caption)
        try:
            picture.save(args.output)
        except OSError as error:
            raise BadInput(f"cannot write {args.output}: {error.strerror}") from None
    print(f"wrote {args.output}")


def main() -> int:
    args = arguments()
    path = args.file
    try:
        if args.threads:
            tack.set_default_device(tack.device("cpu", num_threads=args.threads))
        path = path or template()
        print(f"{path.name}")
        with stage("reading"):
            volume, spacing = load(path)
            scan = scaled(volume)
        if args.check:
            return 0 if run_checks(scan, spacing, args.kappa) else 1
        make_picture(scan, spacing, path.name, args)
    except BadInput as problem:
        print(f"mri.py: {path}: {problem}" if path else f"mri.py: {problem}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"mri.py: {path}: {TOO_LARGE}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        print(f"mri.py: needs {missing.name}: pip install 'tack-core[examples]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mri.py: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
