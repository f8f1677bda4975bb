"""The passes of a contour by workgroups: how rows are divided among them, and what they allocate."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from volumes import sphere

import tack
from tack.vis import Mesh, contour, tiles


def assert_alike(found: Mesh, expected: Mesh) -> None:
    """Positions are those of the CPU, which computes in f64, where the device does."""
    np.testing.assert_array_equal(found.triangles, expected.triangles)
    near = 0 if tack.default_device()._backend.supports_f64 else 1e-4
    np.testing.assert_allclose(found.points, expected.points, rtol=near, atol=near)


@pytest.mark.parametrize("shape", [(5, 300, 20), (3, 40, 2100), (2, 3, 17000)])
def test_rows_of_every_length(shape: tuple[int, ...]) -> None:
    """Many rows are one workgroup's, or few are."""
    values = np.random.default_rng(7).random(shape, np.float32)
    found = contour(values, 0.4)
    with tack.device("cpu"):
        expected = contour(values, 0.4)
    assert_alike(found, expected)


def test_rows_of_several_tiles() -> None:
    """Points are numbered by part of a row, so triangles are compared by the grid edges of their corners."""
    values = np.random.default_rng(7).integers(0, 2, (2, 2, 140_000), np.uint8)
    surfaces = []
    for device in (tack.default_device(), tack.device("cpu")):
        with device:
            mesh = contour(values, 0.5, spacing=(2, 2, 2))  # halfway along edges: integers
        edges = np.int64(mesh.points.numpy()) @ [1, 1 << 20, 1 << 22]
        triangles = edges[mesh.triangles.numpy()]
        surfaces.append(triangles[np.lexsort(triangles.T)])
    np.testing.assert_array_equal(*surfaces)


def test_grids_of_many_tiles() -> None:
    """More tiles than are added up at once."""
    values = np.random.default_rng(8).integers(0, 9, (3, 100_000, 3), np.uint8)
    found = contour(values, 7.5)
    with tack.device("cpu"):
        expected = contour(values, 7.5)
    assert tiles.Tiles(tack.asarray(values))._shape.tiles(300_000) > 1000
    assert_alike(found, expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int16])
def test_peak_memory(dtype: type, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arrays that are there at a time: the mesh, and a tenth of what is given and the mesh."""
    values = (140 * sphere(60, 64, 128)).astype(dtype)
    holes = np.random.default_rng(4).random(values.shape) > 0.001
    mask = {"mask": holes.view(np.uint8)} if masked else {}
    monkeypatch.setattr(tiles, "_LEAST", 1 << 14)
    tiles._kept.__dict__.clear()
    held = peak = 0
    make = tack.empty

    def release(nbytes: int) -> None:
        nonlocal held
        held -= nbytes

    def empty(*args: object, **kwargs: object) -> tack.Array:
        nonlocal held, peak
        array = make(*args, **kwargs)
        held += array.nbytes
        peak = max(peak, held)
        weakref.finalize(array, release, array.nbytes)
        return array

    monkeypatch.setattr(tack, "empty", empty)
    mesh = contour(values, 112.0, **mask)
    output = mesh.points.nbytes + mesh.triangles.nbytes
    given = values.nbytes + sum(m.nbytes for m in mask.values())
    assert 0 < output < peak <= 1.1 * output + 0.1 * given
