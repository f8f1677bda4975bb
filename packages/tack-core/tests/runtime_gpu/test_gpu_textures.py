"""Textures in hardware: which are, their images, and that nothing of them is left."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from emulated.driver import Driver

import tack

from .conftest import Api


@tack.kernel
def middle(tex: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = tex.sample(0.5, 0.5, 0.5)


def test_kernels_fetch_from_the_texture_unit() -> None:
    tex = tack.Texture3D(np.ones((2, 3, 4), np.float32))
    source = tack.inspect(middle, tex, tack.zeros(1), mode="source")
    assert "tex3D<float>(tex, " in source


def test_volumes_past_the_units_limits_are_sampled_by_code() -> None:
    most = tack.default_device()._backend.features.texture[0]
    out = tack.zeros(1)
    large = tack.Texture3D(np.ones((1, 1, most + 1), np.float32))
    small = tack.Texture3D(np.ones((1, 1, most), np.float32))
    assert "tex3D" not in tack.inspect(middle, large, out, mode="source")
    assert "tex3D" in tack.inspect(middle, small, out, mode="source")
    for tex in (large, small):
        out.fill(0)
        middle(tex, out)
        assert out[0] == 1


def test_a_texture_dropped_with_launches_in_flight(emulated: Driver) -> None:
    gc.collect()
    tack.sync()
    before = emulated.live("arrays"), emulated.live("textures")
    out = tack.zeros(8)
    for k in range(8):
        tex = tack.Texture3D(np.full((4, 4, 4), k, np.float32))
        middle(tex, out[k : k + 1])
        del tex
    assert out.numpy().tolist() == list(range(8))
    tack.sync()
    gc.collect()
    tack.sync()
    assert (emulated.live("arrays"), emulated.live("textures")) == before


def test_no_memory_for_an_image(emulated: Driver, api: Api) -> None:
    emulated.fail(api.function("Array3DCreate"), 2)
    with pytest.raises(MemoryError, match=f"cannot allocate a texture of 256 bytes on {api.label}"):
        tack.Texture3D(np.zeros((4, 4, 4), np.float32))
    out = tack.zeros(1)
    middle(tack.Texture3D(np.ones((4, 4, 4), np.float32)), out)
    assert out[0] == 1
