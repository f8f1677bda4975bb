"""How much memory contours take, and what is past 32 bits or past what there is."""

from __future__ import annotations

import mmap
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from volumes import sphere

import tack
from tack.vis import contour, rows, tiles
from tack.vis.points import normal_kernel, position_kernel
from tack.vis.rows import Rows
from tack.vis.tiles import Tiles

CUBE = (160, 160, 160)


def holes(shape: tuple[int, ...]) -> np.ndarray:
    """A mask that leaves a thousandth out."""
    return np.random.default_rng(4).random(shape) > 0.001


def peak_share(volume: tack.Array, values: list[float], **given: object) -> float:
    """The peak of what is allocated besides the mesh, as a share of volume and mesh."""
    contour(volume, values, **given)  # compiles
    tracemalloc.start()
    mesh = contour(volume, values, **given)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    output = mesh.points.nbytes + mesh.triangles.nbytes
    assert 0 < output < peak
    return (peak - output) / (volume.nbytes + output)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "levels", "shape"),
    [
        (np.float32, 0.8, CUBE),
        (np.float64, 0.8, CUBE),
        (np.uint8, 0.8, CUBE),
        (np.int16, 0.8, CUBE),
        (np.uint8, 0.05, CUBE),  # hardly any surface, so that the tenth is the volume's alone
        (np.int16, 0.05, CUBE),
        (np.float32, [0.4, 0.8], CUBE),
        (np.uint8, [0.4, 0.5, 0.6, 0.8], CUBE),
        (np.uint8, 0.1, (400, 200, 90)),  # where the rows' starts would take more
        (np.uint8, 0.1, (900, 250, 20)),
        (np.int16, 0.1, (900, 250, 20)),
    ],
)
def test_peak_memory(dtype: type, levels: float | list[float], shape: tuple[int, ...], masked: bool) -> None:
    """What is allocated beside the volume: the mesh, and a tenth of both; with several values too."""
    volume = tack.asarray((140 * sphere(*shape)).astype(dtype), device="cpu")
    given = {"mask": holes(shape)} if masked else {}
    assert peak_share(volume, np.multiply(levels, 140).tolist(), **given) <= 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_peak_memory_with_nans(dtype: type) -> None:
    values = np.where(holes(CUBE), sphere(*CUBE), np.nan).astype(dtype)
    assert peak_share(tack.asarray(values, device="cpu"), [0.8]) <= 0.1


def test_peak_memory_without_a_surface() -> None:
    """The warning says what values there are, and takes no copy of the volume to find them."""
    volume = tack.asarray(np.where(holes(CUBE), sphere(*CUBE), np.nan).astype(np.float32), device="cpu")
    with pytest.warns(UserWarning, match="from 0"):
        contour(volume, 9.0)
    tracemalloc.start()
    with pytest.warns(UserWarning, match="from 0"):
        contour(volume, 9.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 0.1 * volume.nbytes


def divided(grid: tack.Array, monkeypatch: pytest.MonkeyPatch, spare: int) -> int:
    """Lets contours have but so many bytes; returns how many slabs that makes."""
    passes, module = (Rows, rows) if grid._backend.wraps_host_memory else (Tiles, tiles)
    monkeypatch.setattr(module, "_SPARE", 0)
    monkeypatch.setattr(module, "_LEAST", spare)
    tiles._kept.__dict__.clear()
    return len(passes(grid)._slabs)


@pytest.mark.parametrize("spare", [800, 2000, 5000, 8000, 12000])
@pytest.mark.parametrize("masked", [False, True])
def test_every_division_into_slabs_gives_the_same(
    spare: int, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slabs of some planes, with the starts of all rows or of their own."""
    rng = np.random.default_rng(spare)
    values = rng.random((60, 9, 70), np.float32)
    if masked:
        values[rng.random(values.shape) < 0.02] = np.nan
    given = {"mask": rng.random(values.shape) > 0.02} if masked else {}
    expected = contour(values, [0.5, 0.7], normals=True, **given)
    assert divided(tack.asarray(values), monkeypatch, spare) > 1
    for level in (0.5, [0.5, 0.7]):
        found = contour(values, level, normals=True, **given)
        triangles, points = found.triangles.shape[0], found.points.shape[0]
        assert points > 1000
        np.testing.assert_array_equal(found.triangles, expected.triangles.numpy()[:triangles])
        np.testing.assert_array_equal(found.points, expected.points.numpy()[:points])
        np.testing.assert_array_equal(found.normals, expected.normals.numpy()[:points])
    assert points == expected.points.shape[0]


@pytest.mark.parametrize("shape", [(40, 50, 300), (2, 80, 3300), (1000, 60, 3)])
def test_slabs_give_what_the_whole_volume_gives(shape: tuple[int, ...]) -> None:
    """Bits of u8 volumes are found for some planes at a time; those of f64 are kept."""
    values = np.random.default_rng(5).integers(0, 2, shape, np.uint8)
    values[shape[0] // 3 :, 0] = 0
    parts, whole = contour(values, 0.5, normals=True), contour(values.astype(np.float64), 0.5, normals=True)
    np.testing.assert_array_equal(parts.triangles, whole.triangles)
    np.testing.assert_array_equal(parts.points, whole.points.numpy().astype(np.float32))
    np.testing.assert_array_equal(parts.normals, whole.normals.numpy().astype(np.float32))


def test_nan_where_bits_are_found_in_slabs() -> None:
    """The second count, without the cells that have a NaN, is of the whole volume."""
    values = np.random.default_rng(6).random((1000, 60, 3), np.float32)
    mask = values > 0.01
    holes, masked = contour(np.where(mask, values, np.nan), 0.5), contour(values, 0.5, mask=mask)
    np.testing.assert_array_equal(holes.triangles, masked.triangles)
    np.testing.assert_array_equal(holes.points, masked.points)


def test_more_edges_than_32_bits_count() -> None:
    """Counts and edges are i64 then; the surface is that of the corner it is in, moved."""
    volume = np.zeros((820, 820, 820), np.uint8)
    corner = 4 * sphere(9, 9, 9) < 3
    volume[-9:, -9:, -9:] = corner
    mesh = contour(volume, 0.5)
    expected = contour(corner.view(np.uint8), 0.5)
    np.testing.assert_array_equal(mesh.triangles, expected.triangles)
    np.testing.assert_array_equal(mesh.points, expected.points.numpy() + 811)


def reserved(rows: int, dtype: type) -> np.ndarray:
    """An array (rows, 3) that takes memory only where it is written."""
    size = 3 * rows * np.dtype(dtype).itemsize
    no_reserve = 0x4000  # of Linux; the module has a name for it since Python 3.13
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    return np.frombuffer(memory, dtype).reshape(rows, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is reserved in Linux's way")
def test_a_mesh_whose_coordinates_32_bits_do_not_count() -> None:
    """Three times the number of a point, or of a triangle, is past 2^31 while the number is not."""
    values = sphere(9, 10, 11).astype(np.float32)
    expected = contour(tack.asarray(values, device="cpu"), 0.7, normals=True)
    count, first = expected.points.shape[0], 720_000_000
    points, normals = reserved(first + count, np.float32), reserved(first + count, np.float32)
    triangles = reserved(first + expected.triangles.shape[0], np.int32)
    with tack.device("cpu"):
        volume = tack.asarray(values, device="cpu")
        passes = Rows(volume)
        passes.classify(0.7)
        passes.count(volume, None)
        passes.write(volume, None, tack.asarray(points), tack.asarray(triangles), first, first)
        axes = np.concatenate([np.arange(n, dtype=np.float64) for n in (11, 10, 9)])
        about = (np.float64(0.7), first, first + count)
        normal_kernel(tack.f64, tack.i32)(values, axes, points, normals, *about, 9, 10, 11)
        position_kernel(tack.f64, tack.i32)(values, axes, points, *about, 10, 11)
    np.testing.assert_array_equal(points[first:], expected.points)
    np.testing.assert_array_equal(normals[first:], expected.normals)
    np.testing.assert_array_equal(triangles[first:] - first, expected.triangles)


TOO_LARGE = """
import resource
import numpy as np
from tack.vis import contour
small = np.random.default_rng(0).integers(0, 2, (20, 20, 20), np.uint8)
expected = contour(small, 0.5)
volume = np.tile(small, (12, 12, 12))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)  # the mesh takes 1.2 GiB
try:
    contour(volume, 0.5)
except MemoryError as error:
    print(error)
assert (contour(small, 0.5).triangles.numpy() == expected.triangles.numpy()).all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_a_mesh_that_memory_does_not_hold() -> None:
    """A MemoryError says how much was asked for; the next contour works."""
    done = subprocess.run([sys.executable, "-c", TOO_LARGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "allocate" in done.stdout
    assert "MiB" in done.stdout or "GiB" in done.stdout
