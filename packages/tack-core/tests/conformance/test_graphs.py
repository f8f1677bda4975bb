"""`tack.capture`: what is recorded, replayed and updated, on every target."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tack


@tack.kernel
def affine(x: Any, y: Any, a: Any, b: Any) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i] * a + b


@tack.kernel
def last(x: Any) -> float:
    for _i in range(1):
        pass
    return x[x.shape[0] - 1]


@tack.kernel
def say(x: Any) -> None:
    for i in range(1):
        print("value", x[i])


@pytest.mark.f64
def test_launches_fills_and_copies_are_replayed_in_order() -> None:
    x, y, z = tack.arange(1000, dtype=tack.f64), tack.zeros(1000, tack.f64), tack.zeros(1000, tack.f64)
    with tack.capture() as graph:
        affine(x, y, 2.0, 1.0)
        tack.copyto(z, y)
        y.fill(0.1)
        affine(z, x, 1.0, -1.0)
        tack.copyto(z[1:], z[:-1])
    assert len(graph) == 5
    assert len(graph.calls) == 2
    assert x[5] == 5
    assert z[5] == 0
    expected = np.arange(1000.0)
    for _ in range(3):
        graph.launch()
        before = 2 * expected + 1
        expected = before - 1
        assert x.numpy().tolist() == expected.tolist()
        assert z.numpy().tolist() == [before[0], *before[:-1]]
        assert (y.numpy() == 0.1).all()


def test_many_launches_of_a_graph_and_calls_between_them() -> None:
    x = tack.zeros(100, tack.i64)
    with tack.capture() as graph:
        for _ in range(10):
            affine(x, x, 1, 1)
    for _ in range(50):
        graph.launch()
        affine(x, x, 1, 1)
    assert x.numpy().tolist() == [550] * 100


def test_large_launches() -> None:
    x = tack.zeros(3_000_000, tack.i32)
    with tack.capture() as graph:
        affine(x, x, 1, 1)
        affine(x, x, 2, 0)
    graph.launch()
    graph.launch()
    assert (x.numpy() == 6).all()


def test_arguments_can_be_changed() -> None:
    x, y = tack.ones(10), tack.zeros(10)
    with tack.capture() as graph:
        affine(x, y, 2.0, 0.0)
        affine(y, y, 1.0, 1.0)
    graph.launch()
    assert y[0] == 3
    graph.calls[0].update(a=5.0)
    graph.launch()
    assert y[0] == 6
    other = tack.full(10, 7.0)
    graph.calls[0].update(x=other, b=1.0)
    graph.launch()
    assert y[0] == 37
    wide = tack.zeros(20, tack.i32)
    graph.calls[1].update(x=wide, y=wide, b=3.0)  # another variant, and another range
    graph.launch()
    assert y[0] == 36
    assert wide.numpy().tolist() == [3] * 20


def test_changes_that_a_call_would_refuse_leave_the_graph_as_it_was() -> None:
    x, y = tack.ones(10), tack.zeros(10)
    with tack.capture() as graph:
        affine(x, y, 2.0, 0.0)
    (call,) = graph.calls
    assert "affine" in repr(call)
    with pytest.raises(TypeError, match="kernel 'affine' has no parameter 'c'; it has: x, y, a, b"):
        call.update(c=1)
    with pytest.raises(TypeError, match="'y'"):
        call.update(y="text")
    with pytest.raises(ValueError, match="read-only"):
        call.update(y=tack.array_from_ptr(y._backend.pointer(y), tack.f32, 10, owner=y))
    graph.launch()
    assert y[3] == 2


def test_fills_of_every_size() -> None:
    arrays = [
        (tack.zeros(1000, tack.u8), 7, 7),
        (tack.zeros(1000, tack.f32), -1.5, -1.5),
        (tack.zeros(1000, tack.i64), 2**40 + 1, 2**40 + 1),
        (tack.zeros(1000, tack.vec3), (1, 2, 3), [1.0, 2.0, 3.0]),
        (tack.zeros(0), 1, None),
    ]
    with tack.capture() as graph:
        for array, value, _ in arrays:
            array.fill(value)
    graph.launch()
    for array, _, expected in arrays:
        assert all(value == expected for value in array.numpy().tolist())


def test_copies_made_inside_are_filled_by_each_launch() -> None:
    x = tack.ones(10)
    with tack.capture() as graph:
        y = x.copy()
        affine(y, y, 3.0, 0.0)
    graph.launch()
    assert y[0] == 3
    x.fill(2)
    graph.launch()
    assert y[0] == 6


def test_a_graph_keeps_its_arrays_and_lets_go_of_them() -> None:
    x, y = tack.ones(10), tack.zeros(10)
    with tack.capture() as graph:
        affine(x, y, 2.0, 0.0)
    kept = weakref.ref(x)
    del x
    graph.launch()
    assert y[0] == 2
    assert kept() is not None
    del graph
    gc.collect()
    assert kept() is None


def test_empty_graphs_and_ranges() -> None:
    with tack.capture() as graph:
        pass
    graph.launch()
    x = tack.zeros(0)
    with tack.capture() as graph:
        affine(x, x, 1.0, 1.0)
    graph.launch()
    assert len(graph) == 1


def test_what_cannot_be_captured() -> None:
    x = tack.ones(10)
    with tack.capture() as graph:
        with pytest.raises(RuntimeError, match="'last' has a result"):
            last(x)
        if tack.default_device().supports_print:
            with pytest.raises(RuntimeError, match="'say' prints"):
                say(x)
        with pytest.raises(RuntimeError, match="still being captured"):
            graph.launch()
        with pytest.raises(RuntimeError, match="captured here already"), tack.capture():
            pass
        assert x.sum() == 10 if tack.default_device().name == "cpu" else True
    assert len(graph) == 0
    assert last(x) == 1


def test_textures() -> None:
    texture = tack.Texture3D(tack.arange(8, dtype=tack.f32).reshape(2, 2, 2))
    o = tack.zeros(2)
    with tack.capture() as graph:
        sample(texture, o)
        with pytest.raises(RuntimeError, match="not in a capture"):
            texture.update()
        with pytest.raises(RuntimeError, match="not in a capture"):
            tack.Texture3D(tack.zeros((2, 2, 2)))
    graph.launch()
    assert o.numpy().tolist() == [0.0, 3.5]


@tack.kernel
def sample(texture: Any, o: Any) -> None:
    for i in range(2):
        o[i] = texture.sample(0.5 * i, 0.5 * i, 0.5 * i)


def test_an_error_inside_ends_the_capture() -> None:
    x = tack.ones(10)
    with pytest.raises(TypeError, match="'b'"), tack.capture():
        affine(x, x, 2.0, "text")
    affine(x, x, 2.0, 0.0)
    assert x[0] == 2


def test_debug_mode_has_no_graphs() -> None:
    tack.set_debug(True)
    try:
        with pytest.raises(RuntimeError, match="debug mode"), tack.capture():
            pass
    finally:
        tack.set_debug(False)


def test_arrays_of_another_device_are_refused() -> None:
    if tack.default_device().name == "cpu":
        return  # there is none
    x = tack.ones(10, device="cpu")
    with tack.capture() as graph:
        with pytest.raises(ValueError, match="another device"):
            affine(x, x, 1.0, 1.0)
        with pytest.raises(ValueError, match="is being captured"):
            x.fill(1)
    assert len(graph) == 0
