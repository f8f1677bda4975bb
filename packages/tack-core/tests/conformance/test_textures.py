"""`Texture3D` and ``tex.sample``, against a trilinear interpolation in f64."""

from __future__ import annotations

import numpy as np
import pytest

import tack
from tack.runtime.dispatch import default_backend


@tack.kernel
def sample(tex, at, out):
    for i in range(out.shape[0]):
        out[i] = tex.sample(at[i, 0], at[i, 1], at[i, 2])


def trilinear(volume: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The definition: texel centres at 0 and 1, clamped, linear along each axis."""
    last = np.array(volume.shape[::-1]) - 1
    position = np.clip(at.astype(np.float64), 0, 1) * last
    low = np.floor(position).astype(int)
    high = np.minimum(low + 1, last)
    f = position - low
    total = np.zeros(len(at))
    for corner in range(8):
        chosen = [(corner >> axis) & 1 for axis in range(3)]
        x, y, z = (np.where(chosen[k], high[:, k], low[:, k]) for k in range(3))
        weight = np.prod([f[:, k] if chosen[k] else 1 - f[:, k] for k in range(3)], axis=0)
        total += weight * volume[z, y, x]
    return total


@pytest.mark.parametrize("shape", [(5, 7, 11), (2, 2, 2), (1, 4, 3), (1, 1, 1), (9, 1, 2)])
def test_against_the_definition(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    volume = rng.random(shape, np.float32)
    at = (rng.random((500, 3)) * 1.6 - 0.3).astype(np.float32)
    at[:3] = [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5]]
    out = np.zeros(500, np.float32)
    tex = tack.Texture3D(volume)
    assert tex.shape_3d == shape[::-1]
    sample(tex, at, out)
    # Coordinates and weights are rounded to f32 a few times each; values are below 1.
    rounding = 16 * max(shape) * 2.0**-24
    # A texture unit has eight bits for the fraction of a coordinate, along each axis.
    unit = 3 * 2.0**-9 if default_backend().texture_in_hardware(shape[::-1]) else 0.0
    np.testing.assert_allclose(out, trilinear(volume, at), atol=rounding + unit)


def test_texel_centres_are_exact() -> None:
    volume = np.random.default_rng(2).random((5, 3, 9), np.float32)
    k, j, i = (n.ravel() for n in np.meshgrid(*(np.arange(n) for n in volume.shape), indexing="ij"))
    at = np.stack([i / 8, j / 2, k / 4], axis=1).astype(np.float32)
    out = np.zeros(len(at), np.float32)
    sample(tack.Texture3D(volume), at, out)
    np.testing.assert_array_equal(out, volume.ravel())


def test_a_texture_is_a_snapshot() -> None:
    array = tack.zeros((2, 2, 2))
    tex = tack.Texture3D(array)
    array.fill(3)
    at, out = np.full((1, 3), 0.5, np.float32), np.ones(1, np.float32)
    sample(tex, at, out)
    assert out[0] == 0
    tex.update()
    sample(tex, at, out)
    assert out[0] == 3


def test_a_flat_array_with_a_shape() -> None:
    values = np.arange(24, dtype=np.float32)
    tex = tack.Texture3D(values, shape=(4, 3, 2))
    out = np.zeros(2, np.float32)
    sample(tex, np.array([[1, 0, 0], [0, 1, 1]], np.float32), out)
    np.testing.assert_array_equal(out, [3, 20])


def test_nan_and_infinite_coordinates_stay_inside() -> None:
    volume = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    at = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [-np.inf, 0, 0]], np.float32)
    out = np.full(3, -1, np.float32)
    sample(tack.Texture3D(volume), at, out)
    np.testing.assert_array_equal(out, [0, 1, 0])


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros((2, 2, 2), np.int32), {}, "needs an f32 array, not i32"),
        (np.zeros((2, 2), np.float32), {}, "three positive extents"),
        (np.zeros(8, np.float32), {"shape": (2, 2, 3)}, "12 texels, the array 8"),
        (np.zeros(8, np.float32), {"shape": (2, 4)}, "three positive extents"),
        (np.zeros((0, 2, 2), np.float32), {}, "three positive extents"),
        (np.zeros((2, 2, 2), np.float32), {"interp": "cubic"}, "'cubic' is not known"),
    ],
)
def test_rejections(array: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tack.Texture3D(array, **options)


def test_a_texture_is_no_array_and_an_array_no_texture() -> None:
    @tack.kernel
    def index(t, out):
        for i in range(1):
            out[i] = t[0, 0, 0]

    tex = tack.Texture3D(np.zeros((2, 2, 2), np.float32))
    out = np.zeros(1, np.float32)
    for _ in range(2):
        with pytest.raises(TypeError, match="'t' is a texture, which is read with"):
            index(tex, out)
        with pytest.raises(TypeError, match=r"'tex' is sampled and must be a tack\.Texture3D, not"):
            sample(np.zeros((2, 2, 2), np.float32), np.zeros((1, 3), np.float32), out)
