"""Every example agrees with NumPy, and mri.py answers bad files with one line and exit status 2."""

from __future__ import annotations

import gzip
import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import on_target
import pytest
from jobs import mpiexec
from PIL import Image
from test_programs import CHECKS as PROGRAMS

import tack

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = {
    "saxpy.py": ["-n", "100003"],
    "mandelbrot.py": ["--size", "96", "--limit", "100"],
    "heat2d.py": ["--size", "67", "--steps", "40"],
    "nbody.py": ["--bodies", "203"],
    "histogram.py": ["-n", "100003"],
    "life.py": ["--size", "45", "--generations", "40"],
    "mpi_heat.py": ["--size", "67", "--steps", "40"],  # a job of one process, always on the CPU
    "dask_automata.py": ["--width", "31", "--steps", "16"],
}


def run(script: str, *args: object, cwd: Path, target: str = "cpu") -> subprocess.CompletedProcess[str]:
    command = on_target.command(target, EXAMPLES / script, *args)
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def save(path: Path, data: np.ndarray, affine: np.ndarray | None = None) -> Path:
    nibabel.save(nibabel.Nifti1Image(data, np.diag([2.0, 2, 2, 1]) if affine is None else affine), path)
    return path


def ball(shape: tuple[int, ...] = (20, 22, 18)) -> np.ndarray:
    """A ball with a bump to the right, front and top, so that its pictures show how it is turned."""
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    body = np.sqrt(x**2 + y**2 + z**2) < 0.6
    bump = np.sqrt((x - 0.4) ** 2 + (y - 0.5) ** 2 + (z - 0.3) ** 2) < 0.3
    return (100.0 * (body | bump) + 10.0 * x).astype(np.float32)


def test_every_example_is_checked() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("_")}
    assert scripts == {*SIZES, *PROGRAMS, "mri.py"}


@pytest.mark.parametrize("script", SIZES)
def test_agrees_with_numpy(script: str, target_name: str, tmp_path: Path) -> None:
    result = run(script, *SIZES[script], "--check", cwd=tmp_path, target=target_name)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "bound" in result.stdout
    assert "FAIL" not in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "args", "picture", "size"),
    [
        ("mandelbrot.py", ["--size", "64", "--limit", "50"], "mandelbrot.png", (64, 48)),
        ("heat2d.py", ["--size", "48", "--steps", "10"], "heat2d.png", (48, 48)),
        ("nbody.py", ["--bodies", "64", "--steps", "20", "--size", "64"], "nbody.png", (64, 48)),
        ("histogram.py", ["-n", "1000", "--output", "bars.png"], "bars.png", (960, 360)),
        ("life.py", ["--size", "32", "--generations", "5", "--output", "life.gif"], "life.gif", (132, 128)),
        ("mpi_heat.py", ["--size", "48", "--steps", "10"], "mpi_heat.png", (48, 48)),
        ("dask_automata.py", ["--width", "21", "--steps", "10"], "dask_automata.png", (16 * 23, 16 * 12)),
    ],
)
def test_writes_a_picture(
    script: str, args: list[str], picture: str, size: tuple[int, int], target_name: str, tmp_path: Path
) -> None:
    result = run(script, *args, cwd=tmp_path, target=target_name)
    assert result.returncode == 0, result.stderr
    with Image.open(tmp_path / picture) as image:
        assert image.size == size
        assert len(image.convert("RGB").getcolors(1 << 24)) > 1


@pytest.mark.parametrize(("ranks", "size"), [(2, 50), (3, 6), (4, 6), (4, 67)])
def test_mpi_heat_in_strips(ranks: int, size: int, tmp_path: Path) -> None:
    """Uneven ones, and those of a single row."""
    script = EXAMPLES / "mpi_heat.py"
    options = ["--size", str(size), "--steps", "50"]
    result = mpiexec(ranks, [sys.executable, script, *options, "--check"], tmp_path, os.environ)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("ok ") == 2
    assert result.stderr == ""
    result = mpiexec(ranks, [sys.executable, script, *options], tmp_path, os.environ)
    assert result.returncode == 0, result.stderr
    with Image.open(tmp_path / "mpi_heat.png") as image:
        assert image.size == (size, size)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--size", "2"], "--size"),
        (["--size", "5"], "4 processes cannot share 3 rows"),
        (["--steps", "none"], "--steps"),
        (["--threads", "0"], "--threads"),
        (["--output", "nowhere/heat.png"], "no folder nowhere"),
        (["--bogus"], "--bogus"),
    ],
)
def test_mpi_heat_refuses_bad_options_once(options: list[str], word: str, tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "mpi_heat.py", *options]
    result = mpiexec(4, command, tmp_path, os.environ)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("mpi_heat.py: error: ")
    assert word in line


def test_mpi_heat_ends_when_the_picture_cannot_be_written(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "mpi_heat.py", "--steps", "5", "--output", "heat.unknown"]
    result = mpiexec(4, command, tmp_path, os.environ)
    assert result.returncode == 1
    assert result.stderr == "cannot write heat.unknown: unknown file extension: .unknown\n"


def test_a_failed_check_is_reported() -> None:
    program = "import sys; from _common import check; sys.exit(not check('x', [1, float('nan')], [1, 2], 9))"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stdout.startswith("FAIL x")


def test_mri_check_of_a_given_volume(target_name: str, tmp_path: Path) -> None:
    volume = save(tmp_path / "ball.nii", ball())
    result = run("mri.py", volume, "--check", cwd=tmp_path, target=target_name)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("ok ") == 12


Draw = Callable[..., np.ndarray]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """The main function of mri.py, run in this process, where its kernels are compiled once for all tests."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    mri = importlib.import_module("mri")

    def call(*args: object) -> int:
        monkeypatch.setattr(sys, "argv", ["mri.py", *map(str, args)])
        return mri.main()

    return call


@pytest.fixture
def draw(main: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Draw:
    """A function that gives the picture of a file without its caption."""

    def picture(path: Path, *args: object) -> np.ndarray:
        assert main(path, "--size", 60, "--samples", 1, "--output", "small.png", *args) == 0
        assert capsys.readouterr().err == ""
        with Image.open("small.png") as image:
            return np.asarray(image)[:-18]

    return picture


def test_mri_draws_the_same_however_the_file_is_laid_out(draw: Draw, tmp_path: Path) -> None:
    data = ball()
    plain = draw(save(tmp_path / "plain.nii.gz", data))
    # The same head stored left to right and front to back flipped, with permuted axes, and as 4-D.
    flip = np.diag([-2.0, -2, 2, 1])
    flip[:3, 3] = [2 * (data.shape[0] - 1), 2 * (data.shape[1] - 1), 0]
    turned = np.array([[0, 2.0, 0, 0], [0, 0, 2, 0], [2, 0, 0, 0], [0, 0, 0, 1]])
    same = {
        "flipped": draw(save(tmp_path / "flipped.nii", data[::-1, ::-1], flip)),
        "turned": draw(save(tmp_path / "turned.nii", data.transpose(2, 0, 1), turned)),
        "4-D": draw(save(tmp_path / "single.nii", data[..., None])),
    }
    for name, picture in same.items():
        np.testing.assert_array_equal(picture, plain, err_msg=name)


def test_mri_makes_a_picture_of_a_file_with_nan(tmp_path: Path) -> None:
    data = ball()
    data[0, :2, 0] = np.nan
    path = save(tmp_path / "nan.nii", data)
    result = run("mri.py", path, "--size", 60, "--threads", 1, "--output", "nan.png", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "2 voxels are NaN or infinite" in result.stdout
    assert result.stderr == ""
    with Image.open(tmp_path / "nan.png") as image:
        assert image.size == (124, 96)


def test_mri_keeps_proportions_of_unequal_voxels(draw: Draw, tmp_path: Path) -> None:
    """A ball sampled half as finely along z is as high as it is wide."""
    shape = (40, 40, 20)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    data = (1.0 - np.sqrt(x**2 + y**2 + z**2)).astype(np.float32)
    spacing = [2.0 / (n - 1) for n in shape]
    path = save(tmp_path / "ball.nii", data, np.diag([*spacing, 1.0]))
    picture = draw(path, "--azimuth", 0, "--elevation", 0, "--fairing", 0, "--iterations", 0)
    surface = picture[18:, :60].sum(axis=2) > 90
    high, wide = surface.any(axis=1).sum(), surface.any(axis=0).sum()
    assert wide > 40
    assert abs(high - wide) <= 2


def test_sampling_reaches_every_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against NumPy: inside, on the faces, and outside, where the nearest border point counts."""
    monkeypatch.syspath_prepend(EXAMPLES)
    sample = importlib.import_module("_raymarch").sample

    @tack.kernel
    def sample_all(u, h, points, out):
        for n in range(out.shape[0]):
            out[n] = sample(u, h, points[n, 0], points[n, 1], points[n, 2])

    rng = np.random.default_rng(4)
    h = np.array([0.5, 2.0, 1.0], np.float32)  # powers of two: the division is exact
    u = rng.random((4, 2, 5), np.float32)
    top = np.array(u.shape) - 1
    places = (rng.random((4000, 3)) * (top + 4.0) - 2.0).astype(np.float32)
    places[::2] = np.rint(places[::2])  # on voxels
    out = np.empty(len(places), np.float32)
    sample_all(u, h, places * h, out)

    inside = np.clip(places, 0, top).astype(np.float64)
    corner = np.minimum(inside.astype(int), top - 1)
    share = inside - corner
    want = np.zeros(len(places))
    for offset in itertools.product((0, 1), repeat=3):
        weight = np.where(offset, share, 1 - share).prod(axis=1)
        want += weight * u[tuple((corner + offset).T)]
    # Seven mixes of values within 0..1, three deep, each of three roundings of at most that size.
    np.testing.assert_allclose(out, want, rtol=0, atol=9 * 2.0**-24)


def header_of(shape: tuple[int, ...]) -> bytes:
    """A NIfTI file of bytes up to its voxels."""
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.uint8)
    header.set_data_shape(shape)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    return header.binaryblock + bytes(4)


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """By kind: a file that mri.py must refuse, and a word of the reason."""
    good = save(folder / "good.nii.gz", ball()).read_bytes()
    raw = gzip.decompress(good)
    noise = np.random.default_rng(0).random((12, 12, 12, 3), np.float32)

    def written(name: str, content: bytes) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    zero_extent = bytearray(raw)
    zero_extent[42:44] = b"\0\0"
    huge = bytearray(raw)
    huge[42:48] = b"\xff\x7f" * 3
    no_spacing = bytearray(raw)
    no_spacing[80:92] = bytes(12)  # pixdim[1..3]
    no_spacing[280:328] = bytes(48)  # and the rows of the affine
    with (folder / "large.nii").open("wb") as sparse:
        sparse.write(header_of((16_000,) * 3))
        sparse.truncate(352 + 16_000**3)
    colour = np.zeros((4, 4, 4), np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")]))
    return {
        "missing": (folder / "nowhere.nii", "no such file"),
        "folder": (folder, "not a file"),
        "empty": (written("empty.nii", b""), "empty"),
        "empty gzip": (written("empty.nii.gz", gzip.compress(b"")), ""),
        "truncated": (written("short.nii", raw[: len(raw) // 2]), "truncated"),
        "truncated gzip": (written("short.nii.gz", good[: len(good) // 2]), "truncated"),
        "header only": (written("header.nii", raw[:352]), "truncated"),
        "corrupt gzip": (written("corrupt.nii.gz", good[:600] + bytes(64) + good[664:]), "damaged"),
        "text": (written("text.nii", b"this is not an image\n" * 50), "not a readable NIfTI"),
        "text as gzip": (written("text.nii.gz", b"this is not an image\n" * 50), ""),
        "other name": (written("text.txt", b"hello"), "not a readable NIfTI"),
        "1-D": (save(folder / "1d.nii", noise[:, 0, 0, 0]), "3-D"),
        "2-D": (save(folder / "2d.nii", noise[:, :, 0, 0]), "3-D"),
        "one slice": (save(folder / "slice.nii", noise[:, :, :1, 0]), "at least 2"),
        "4-D": (save(folder / "4d.nii", noise), "4-D"),
        "5-D": (save(folder / "5d.nii", noise[:, :, :, None, :]), "5-D"),
        "zero extent": (written("zero.nii", bytes(zero_extent)), ""),
        "huge": (written("huge.nii.gz", gzip.compress(bytes(huge))), "truncated"),
        "larger than memory": (folder / "large.nii", "too large for memory: 16000 x 16000 x 16000 voxels"),
        "no spacing": (written("flat.nii", bytes(no_spacing)), ""),
        "NaN": (save(folder / "nan.nii", np.full((9, 9, 9), np.nan, np.float32)), "finite"),
        "infinite": (save(folder / "inf.nii", np.full((9, 9, 9), np.inf)), "finite"),
        "constant": (save(folder / "constant.nii", np.full((9, 9, 9), 7, np.int16)), "same value (7)"),
        "complex": (save(folder / "complex.nii", noise[..., 0].astype(np.complex64)), "real numbers"),
        "colour": (save(folder / "colour.nii", colour), "real numbers"),
    }


def assert_refused(kind: str, path: Path, word: str, status: int, errors: str) -> None:
    assert status == 2, (kind, errors)
    lines = errors.splitlines()
    assert len(lines) == 1, (kind, errors)
    assert lines[0].startswith(f"mri.py: {path}: "), (kind, lines[0])
    assert word in lines[0], (kind, lines[0])


@pytest.mark.parametrize("kind", ["missing", "truncated gzip", "text", "2-D", "4-D", "NaN"])
def test_mri_refuses_a_bad_file(kind: str, tmp_path: Path) -> None:
    path, word = bad_files(tmp_path)[kind]
    result = run("mri.py", path, cwd=tmp_path)
    assert_refused(kind, path, word, result.returncode, result.stderr)
    assert not (tmp_path / "brain.png").exists()


def test_mri_refuses_every_bad_file(
    main: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, (path, word) in bad_files(tmp_path).items():
        status = main(path)
        assert_refused(kind, path, word, status, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--output", "nowhere/brain.png"], "nowhere/brain.png"),
        (["--output", "brain.unknown"], "brain.unknown"),
        (["--iterations", "-1"], "--iterations"),
        (["--kappa", "0"], "--kappa"),
        (["--kappa", "nan"], "--kappa"),
        (["--iso", "2"], "--iso"),
        (["--threads", "0"], "--threads"),
        (["--size", "1000000"], "--size"),
    ],
)
def test_mri_refuses_bad_options(args: list[str], word: str, tmp_path: Path) -> None:
    result = run("mri.py", save(tmp_path / "ball.nii", ball()), *args, cwd=tmp_path)
    assert result.returncode == 2, result.stdout + result.stderr
    assert word in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_mri_runs_out_of_memory(
    main: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def smooth(*_: object) -> None:
        raise MemoryError("cannot allocate 5 GiB")

    monkeypatch.setattr(sys.modules["mri"], "smooth", smooth)
    path = save(tmp_path / "ball.nii", ball())
    assert main(path) == 2
    assert capsys.readouterr().err == f"mri.py: {path}: too large for memory: cannot allocate 5 GiB\n"


def test_mri_says_when_there_is_no_surface(tmp_path: Path) -> None:
    data = np.zeros((16, 16, 16), np.float32)
    data[8, 8, 8] = 1.0  # smoothed away
    path = save(tmp_path / "speck.nii", data)
    result = run("mri.py", path, "--size", 48, "--iso", "0.99", cwd=tmp_path)
    assert result.returncode == 2
    assert "--iso" in result.stderr
    assert len(result.stderr.splitlines()) == 1
