"""The example agrees with its volume, writes its files, and answers bad input with one line."""

from __future__ import annotations

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
