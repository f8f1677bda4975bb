"""From a brain scan to a surface: smoothing, a contour with normals, a mesh file and a picture.

    python mri_surface.py                                the T1 template that the package nilearn contains
    python mri_surface.py scan.nii.gz --iso 0.4          any NIfTI volume
    python mri_surface.py --output brain.stl             .vtp, .ply or .stl, by what is installed: VTK
    python mri_surface.py --check                        the surface against its volume

The volume is scaled to 0..1 as in mri.py of tack-core, whose smoothing and ray marcher are used here; voxels
that are NaN count as background. The picture is rendered by PyVista where that is installed, off screen, and
else by the ray marcher. Exit status: 0, 1 for a failed check, 2 for bad input or output.

Reference: W. Schroeder, R. Maynard, B. Geveci, "Flying edges: a high-performance scalable isocontouring
algorithm", IEEE Symposium on Large Data Analysis and Visualization, 2015.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tack-core" / "examples"))

import mri
from _common import check, positive_int, save_png
from _nifti import TOO_LARGE, BadInput, Spacing, Volume, load, scaled, template
from _raymarch import look_at, render, trace_all

from tack.vis import Mesh, contour, to_vtk

WRITERS = {
    ".vtp": ("vtkIOXML", "vtkXMLPolyDataWriter"),
    ".ply": ("vtkIOPLY", "vtkPLYWriter"),
    ".stl": ("vtkIOGeometry", "vtkSTLWriter"),
}


def surface_of(volume: Volume, spacing: Spacing, iso: float) -> Mesh:
    """The surface of a volume with x first, in mm."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return contour(np.ascontiguousarray(volume.T), iso, spacing=spacing, normals=True)
        except UserWarning as warning:
            raise BadInput(str(warning)) from None


def write(mesh: Mesh, path: Path) -> None:
    """Write the mesh with VTK's writer for the file's suffix."""
    import importlib

    check_writable(path)  # as VTK would say it in several lines
    module, name = WRITERS[path.suffix.lower()]
    writer = getattr(importlib.import_module(f"vtkmodules.{module}"), name)()
    writer.SetInputData(to_vtk(mesh))
    writer.SetFileName(str(path))
    if hasattr(writer, "SetFileTypeToBinary"):
        writer.SetFileTypeToBinary()
    if writer.Write() != 1:
        raise BadInput(f"cannot write {path}")


def check_writable(path: Path) -> None:
    """Raise `OSError` if a file cannot be written there."""
    with path.open("ab"):
        pass


def picture(mesh: Mesh, camera: Any, size: int) -> Any:
    """The mesh by PyVista off screen, or None where that is not installed, or lacks a library."""
    try:
        import pyvista
    except ImportError:
        return None
    eye, forward, _, up = camera.astype(np.float64)
    plotter = pyvista.Plotter(off_screen=True, window_size=(size, size))
    plotter.set_background((0.02, 0.025, 0.04))
    plotter.add_mesh(pyvista.wrap(to_vtk(mesh)), color=(0.87, 0.68, 0.6), smooth_shading=True, specular=0.2)
    plotter.camera.position = eye
    plotter.camera.focal_point = eye + forward
    plotter.camera.up = up
    plotter.camera.view_angle = 2 * np.degrees(np.arctan(np.linalg.norm(up)))
    plotter.renderer.ResetCameraClippingRange()
    return np.asarray(plotter.screenshot(return_img=True))


def run_checks(volume: Volume, spacing: Spacing, iso: float) -> bool:
    """Each grid edge that is crossed, as NumPy finds, has a point at the value; the surface is closed."""
    mesh = surface_of(volume, spacing, iso)
    points, triangles = mesh.points.numpy(), mesh.triangles.numpy()
    inside = volume >= np.float32(iso)
    crossed = sum(int(np.diff(inside, axis=axis).sum()) for axis in range(3))
    passed = check("points", len(points), crossed, 0)

    places = points.astype(np.float64) / spacing
    low = np.clip(np.floor(places + 1e-4).astype(int), 0, np.array(volume.shape) - 2)
    t = places - low
    axis = np.abs(t - np.round(t)).argmax(axis=1)
    rows = np.arange(len(points))
    near = np.round(places).astype(int)
    near[rows, axis] = low[rows, axis]
    far = near.copy()
    far[rows, axis] += 1
    first, second = (volume[tuple(ends.T)].astype(np.float64) for ends in (near, far))
    value = first + t[rows, axis] * (second - first)
    # Positions in mm are rounded to f32, and so is the quotient by the spacing in effect.
    slack = np.abs(second - first) * 4 * 2.0**-23 * places.max()
    passed &= check("values at the points", value, iso, slack + 1e-7)

    directed = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]).astype(
        np.int64
    )
    there, back = directed @ [len(points), 1], directed @ [1, len(points)]
    open_edges = directed[~np.isin(there, back)]
    limits = np.array(volume.shape) - 1
    rim = ((near[open_edges] == 0) | (near[open_edges] == limits)).any(axis=2)
    return check("open edges inside the volume", int((~rim.all(axis=1)).sum()), 0, 0) and bool(passed)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", help="a NIfTI volume; none: nilearn's T1 template")
    parser.add_argument("--output", type=Path, default=Path("brain.vtp"), help="the mesh: .vtp, .ply or .stl")
    parser.add_argument("--picture", type=Path, default=Path("brain_surface.png"), help="the picture: .png")
    parser.add_argument("--iso", type=mri.number(1e-3, 0.999), default=0.55, help="the surface's value, 0..1")
    parser.add_argument("--iterations", type=positive_int, default=12, help="diffusion steps")
    parser.add_argument("--size", type=positive_int, default=900, help="pixels along a side of the picture")
    parser.add_argument("--check", action="store_true", help="check the surface instead of writing it")
    args = parser.parse_args()
    if args.output.suffix.lower() not in WRITERS or args.picture.suffix.lower() != ".png":
        parser.error(f"--output is one of {', '.join(WRITERS)}, --picture .png")
    if args.size > 8192:
        parser.error("argument --size: at most 8192")
    for path in (args.output, args.picture):
        if not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent}")
    return args


def make_surface(scan: Volume, spacing: Spacing, args: argparse.Namespace) -> None:
    with mri.stage(f"diffusion, {args.iterations} steps"):
        body = mri.smooth(scan, spacing, args.iterations, 0.04)
        body = mri.smooth(body, spacing, 4, mri.NO_EDGES)
    with mri.stage("contour"):
        mesh = surface_of(body, spacing, args.iso)
    print(f"  {mesh}")
    try:
        with mri.stage(f"writing {args.output}"):
            write(mesh, args.output)
    except ImportError as error:
        print(f"  no mesh file: {error} (pip install vtk)")
    camera = look_at(mesh.points.numpy(), 65.0, 20.0)
    with mri.stage(f"writing {args.picture}"):
        check_writable(args.picture)
        pixels = picture(mesh, camera, args.size)
        if pixels is None:
            side = 2
            rays = trace_all(body, spacing, camera, args.iso, args.size * side)
            pixels = render(body, spacing, rays, camera, args.iso, side)
        save_png(args.picture, pixels)


def main() -> int:
    args = arguments()
    path = args.file
    try:
        path = path or template()
        print(path.name)
        with mri.stage("reading"):
            volume, spacing = load(path)
            scan = scaled(volume)
        if args.check:
            return 0 if run_checks(scan, spacing, args.iso) else 1
        make_surface(scan, spacing, args)
    except BadInput as problem:
        print(f"mri_surface.py: {path}: {problem}" if path else f"mri_surface.py: {problem}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"mri_surface.py: cannot write: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"mri_surface.py: {path}: {TOO_LARGE}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mri_surface.py: interrupted", file=sys.stderr)
        return 130
    except ModuleNotFoundError as missing:
        print(f"mri_surface.py: needs {missing.name}: pip install 'tack-core[examples]'", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
