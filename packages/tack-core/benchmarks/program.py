"""A program of 18 kernels: the MRI example's and those of seven others, each called once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import tack

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import wave

import _raymarch
import heat2d
import histogram
import jacobi
import kmeans
import lbm
import mri
import prefix_sum

Call = tuple[Any, tuple[Any, ...]]


def calls() -> list[Call]:
    """The kernels with small arguments, such as the examples pass."""

    def f32(*shape: int) -> np.ndarray[Any, Any]:
        return np.zeros(shape, np.float32)

    def i64(*shape: int) -> np.ndarray[Any, Any]:
        return np.zeros(shape, np.int64)

    volume, other, plane, result = f32(16, 16, 16), f32(16, 16, 16), f32(32, 32), f32(32, 32)
    spacing, lamp = np.ones(3, np.float32), np.array([0.6, 0.0, 0.8], np.float32)
    camera = _raymarch.look_at(np.argwhere(volume == 0.0), 35.0, 20.0)
    tops, surface, colours = f32(4, 4, 4), f32(8, 8, 4), f32(8, 8, 3)
    points, centres = tack.zeros(64, tack.vec3), tack.zeros(4, tack.vec3)
    sums, counts = tack.zeros(4, tack.vec3), tack.zeros(4, tack.i32)
    flow, solid = f32(9, 16, 16), np.zeros((16, 16), np.uint8)
    velocity = tack.zeros((16, 16), tack.vec2)
    return [
        (mri.diffuse, (volume, other, 0.1, 0.1, 0.1, 1.0, 1.0, 1.0)),
        (mri.gradient_magnitude, (volume, other, 1.0, 1.0, 1.0)),
        (_raymarch.find_tops, (volume, tops)),
        (_raymarch.trace, (volume, spacing, tops, camera, surface, 0, 8, 0.5, 0.5)),
        (_raymarch.shade, (volume, spacing, camera, lamp, surface, colours, 0, 8, 0.5, 3.0)),
        (_raymarch.develop, (colours, np.zeros((4, 4, 3), np.uint8), 2)),
        (prefix_sum.add_up, (i64(512), i64(2), 512)),
        (prefix_sum.scan, (i64(512), i64(2), 512, 2)),
        (kmeans.assign, (points, centres, tack.zeros(64, tack.i32), sums, counts)),
        (kmeans.recentre, (centres, sums, counts)),
        (heat2d.step, (plane, result)),
        (wave.step, (plane, f32(32, 32), result, f32(32, 32))),
        (wave.drive, (plane, 8, 8, 4.0, 1.0)),
        (jacobi.sweep, (volume, f32(16, 16, 16), other)),
        (jacobi.largest_change, (volume, other, f32(1))),
        (histogram.histogram, (f32(64), np.zeros(16, np.int32), 0.0, 1.0)),
        (lbm.rest, (flow, velocity)),
        (lbm.step, (flow, flow.copy(), solid, velocity, 1.0, 0.0)),
    ]


def run(program: list[Call]) -> None:
    for kernel, args in program:
        kernel(*args)
