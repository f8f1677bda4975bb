"""What shows what a launch runs, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from emulated.driver import Driver

import tack

from .conftest import Api


@tack.kernel
def scale(x: Any, a: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = x[i] * a


def test_profiles_take_the_devices_time(emulated: Driver, api: Api) -> None:
    x = tack.ones(100)
    with tack.profile() as profile:
        for _ in range(3000):
            scale(x, 1.0)
        (entry,) = profile.kernels
    assert (entry.launches, entry.device) == (3000, api.label)
    assert entry.seconds == pytest.approx(1.5)  # the emulated events are half a millisecond apart
    assert entry.shortest == entry.longest == 0.0005
    assert "scale" in str(profile)
    assert profile.to_dict()["kernels"][0]["launches"] == 3000


def test_inspect() -> None:
    source = tack.inspect(scale, tack.ones(3), 2.0)
    assert "__global__" in source
    assert "scale" in source
