"""The example agrees with its volume, writes its files, and answers bad input with one line."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel")
Image = pytest.importorskip("PIL.Image")

SCRIPT = Path(__file__).parents[1] / "examples" / "mri_surface.py"


def run(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in (24, 26, 22)), indexing="ij")
    body = np.clip(2 - 2 * np.sqrt(x**2 + y**2 + z**2), 0, 1).astype(np.float32)
    path = tmp_path / "ball.nii"
    nibabel.save(nibabel.Nifti1Image(body, np.diag([2.0, 1.5, 2, 1])), path)
    return path


def test_the_surface_agrees_with_the_volume(scan: Path, tmp_path: Path) -> None:
    result = run(scan, "--check", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("ok ") == 3


@pytest.mark.parametrize("suffix", [".vtp", ".ply"])
def test_it_writes_the_other_formats(suffix: str, scan: Path, tmp_path: Path) -> None:
    xml = pytest.importorskip("vtkmodules.vtkIOXML", exc_type=ImportError)
    ply = pytest.importorskip("vtkmodules.vtkIOPLY", exc_type=ImportError)
    result = run(scan, "--size", 60, "--output", f"ball{suffix}", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    reader = xml.vtkXMLPolyDataReader() if suffix == ".vtp" else ply.vtkPLYReader()
    reader.SetFileName(str(tmp_path / f"ball{suffix}"))
    reader.Update()
    surface = reader.GetOutput()
    assert f"{surface.GetNumberOfPoints()} points, {surface.GetNumberOfPolys()} triangles" in result.stdout


def test_it_writes_a_mesh_and_a_picture(scan: Path, tmp_path: Path) -> None:
    pytest.importorskip("vtkmodules.vtkIOGeometry", exc_type=ImportError)
    result = run(scan, "--size", 60, "--output", "ball.stl", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    with Image.open(tmp_path / "brain_surface.png") as image:
        assert image.size == (60, 60)
        assert len(image.convert("RGB").getcolors(1 << 16)) > 20
    # Binary STL: 80 bytes, the number of triangles, and 50 bytes for each.
    data = (tmp_path / "ball.stl").read_bytes()
    count = int.from_bytes(data[80:84], "little")
    assert f"{count} triangles" in result.stdout
    assert len(data) == 84 + 50 * count


def test_bad_input_is_answered_in_a_line(scan: Path, tmp_path: Path) -> None:
    result = run("none.nii", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (2, "mri_surface.py: none.nii: no such file\n")
    assert run(scan, "--output", "ball.obj", cwd=tmp_path).returncode == 2
    flat = tmp_path / "flat.nii"
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4), np.float32), np.eye(4)), flat)
    result = run(flat, cwd=tmp_path)
    assert result.returncode == 2
    assert "every voxel has the same value" in result.stderr


def test_nan_has_no_surface(scan: Path, tmp_path: Path) -> None:
    body = nibabel.load(scan).get_fdata()
    body[:, :, 14:] = np.nan
    nibabel.save(nibabel.Nifti1Image(body.astype(np.float32), np.eye(4)), tmp_path / "half.nii")
    result = run("half.nii", "--check", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4,992 voxels are NaN or infinite and count as background" in result.stdout


SPECK = np.zeros((9, 9, 9), np.float32)
SPECK[4, 4, 4] = 1  # smoothed away
VOLUMES = {
    "2-D": (SPECK[0], "expected one 3-D volume, found 2-D data (9 x 9)"),
    "4-D": (np.stack([SPECK, SPECK], -1), "expected one 3-D volume, found 4-D data"),
    "NaN": (np.full((5, 5, 5), np.nan, np.float32), "no voxel has a finite value"),
    "no surface": (SPECK, "no surface has the value 0.55; the volume's values are from 0.0 to"),
}


def is_refused(text: str, *args: object, cwd: Path) -> None:
    """With one line, and the status of bad input."""
    result = run(*args, "--iterations", 1, cwd=cwd)
    assert result.returncode == 2, result.stdout + result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("mri_surface.py: ")
    assert text in result.stderr


@pytest.mark.parametrize("kind", VOLUMES)
def test_volumes_that_are_refused(kind: str, tmp_path: Path) -> None:
    values, text = VOLUMES[kind]
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "bad.nii")
    is_refused(f"bad.nii: {'contour: ' if kind == 'no surface' else ''}{text}", "bad.nii", cwd=tmp_path)


@pytest.mark.parametrize("kind", ["truncated", "corrupt", "text"])
def test_files_that_are_refused(kind: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random((9, 8, 7)).astype(np.float32)
    path = tmp_path / "bad.nii.gz"
    nibabel.save(nibabel.Nifti1Image(noise, np.eye(4)), path)
    whole = path.read_bytes()
    half = len(whole) // 2
    content, text = {
        "truncated": (whole[:half], "damaged or truncated"),
        "corrupt": (whole[:half] + bytes(50) + whole[half + 50 :], "damaged or truncated"),
        "text": (b"not a volume" * 100, "not a readable NIfTI file"),
    }[kind]
    path.write_bytes(content)
    is_refused(f"bad.nii.gz: {text}", path.name, cwd=tmp_path)


@pytest.mark.parametrize("option", ["--output", "--picture"])
def test_a_folder_in_the_place_of_a_file(option: str, scan: Path, tmp_path: Path) -> None:
    pytest.importorskip("vtkmodules.vtkIOGeometry", exc_type=ImportError)
    name = "taken.stl" if option == "--output" else "taken.png"
    (tmp_path / name).mkdir()
    is_refused(f"cannot write: [Errno {errno.EISDIR}]", scan, option, name, "--size", 9, cwd=tmp_path)
