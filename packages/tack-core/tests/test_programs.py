"""The larger programs pass their own checks, and draw their pictures without a bad index."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import nibabel
import numpy as np
import on_target
import pytest
from PIL import Image

import tack

EXAMPLES = Path(__file__).parents[1] / "examples"

# Options that make a program's checks small.
CHECKS = {
    "mpm.py": ["--size", "32"],
    "sph.py": ["--particles", "400"],
    "cloth.py": ["--size", "24"],
    "lbm.py": ["--height", "36"],
    "wave.py": ["--size", "80", "--steps", "100"],
    "jacobi.py": ["--size", "24"],
    "physarum.py": ["--size", "90", "--agents", "4000"],
    "reaction_diffusion.py": ["--size", "48"],
    "julia.py": ["--size", "120", "--limit", "150"],
    "pathtracer.py": ["--width", "48"],
    "raymarch_sdf.py": ["--width", "120"],
    "volume.py": ["--size", "200"],
    "marching_squares.py": ["--size", "90"],
    "nqueens.py": ["-n", "9"],
    "montecarlo.py": ["--paths", "40000"],
    "ode_ensemble.py": ["--members", "400"],
    "kmeans.py": ["--size", "100", "--colours", "5"],
    "nbody_tiled.py": ["--size", "700", "--steps", "3"],
    "matmul_tiled.py": ["--size", "75"],
    "prefix_sum.py": ["--size", "70001"],
    "bitonic_sort.py": ["--size", "3000"],
}

# Options that make a program's picture small, and the picture's size.
PICTURES = {
    "mpm.py": (["--size", "24", "--frames", "2", "--interval", "0.02", "--pixels", "60"], (124, 60)),
    "sph.py": (["--particles", "200", "--frames", "1", "--seconds", "0.05", "--pixels", "90"], (90, 50)),
    "cloth.py": (["--size", "12", "--seconds", "0.1", "--pixels", "64"], (64, 64)),
    "lbm.py": (["--height", "27", "--steps", "40"], (900, 270)),
    "wave.py": (["--size", "60", "--steps", "60"], (80, 60)),
    "jacobi.py": (["--size", "16", "--sweeps", "40", "--pixels", "64"], (64, 64)),
    "physarum.py": (["--size", "60", "--agents", "1500", "--steps", "10"], (80, 60)),
    "reaction_diffusion.py": (["--size", "32", "--steps", "200"], (96, 64)),
    "julia.py": (["--size", "60", "--limit", "60"], (60, 40)),
    "pathtracer.py": (["--width", "48", "--samples", "2"], (48, 27)),
    "raymarch_sdf.py": (["--width", "64", "--samples", "1"], (64, 36)),
    "volume.py": (["ball.nii", "--size", "40"], (40, 40)),
    "marching_squares.py": (["--size", "40", "--levels", "4", "--pixels", "64"], (64, 64)),
    "ode_ensemble.py": (["--members", "500", "--time", "2", "--frames", "2", "--pixels", "48"], (100, 48)),
    "kmeans.py": (["--size", "64", "--colours", "4"], (132, 48)),
}


def run(
    script: str, *args: str, cwd: Path, debug: bool = False, target: str = "cpu"
) -> subprocess.CompletedProcess[str]:
    command = on_target.command(target, EXAMPLES / script, *args)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(tack.__file__).parents[1]),
        "TACK_DEBUG": str(int(debug)),
    }
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("script", CHECKS)
def test_passes_its_checks(script: str, target_name: str, tmp_path: Path) -> None:
    result = run(script, *CHECKS[script], "--check", cwd=tmp_path, target=target_name)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "bound" in result.stdout
    assert "FAIL" not in result.stdout
    assert list(tmp_path.iterdir()) == []


def save_ball(folder: Path) -> None:
    """A small scan, for the program that takes one."""
    x, y, z = np.meshgrid(*[np.linspace(-1.0, 1.0, 24)] * 3, indexing="ij")
    values = np.clip(3.0 * (0.8 - np.sqrt(x * x + y * y + z * z)), 0.0, 1.0).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(values, np.diag([2.0, 2.0, 2.0, 1.0])), folder / "ball.nii")


@pytest.mark.parametrize("script", PICTURES)
def test_draws_without_a_bad_index(script: str, target_name: str, tmp_path: Path) -> None:
    """In debug mode, which checks every index and divisor."""
    options, size = PICTURES[script]
    if "ball.nii" in options:
        save_ball(tmp_path)
    result = run(script, *options, cwd=tmp_path, debug=True, target=target_name)
    assert result.returncode == 0, result.stderr
    with Image.open(tmp_path / script.replace(".py", ".png")) as image:
        assert image.size == size
        assert len(image.convert("RGB").getcolors(1 << 24)) > 8


@pytest.mark.parametrize("script", sorted(CHECKS.keys() - PICTURES.keys()))
def test_prints_without_a_bad_index(script: str, target_name: str, tmp_path: Path) -> None:
    result = run(script, *CHECKS[script], cwd=tmp_path, debug=True, target=target_name)
    assert result.returncode == 0, result.stderr
    assert result.stdout
