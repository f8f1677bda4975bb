"""What the algorithms refuse, before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

import tack
from tack import algorithms

X = np.arange(4, dtype=np.int32)
VECTORS = tack.zeros(4, tack.vec3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: algorithms.inclusive_scan([1, 2]), TypeError, "x is an array, not list"),
        (lambda: algorithms.inclusive_scan(VECTORS), TypeError, "has elements of vec3"),
        (lambda: algorithms.inclusive_scan(X, "product"), ValueError, "'sum', 'min', 'max', not 'product'"),
        (lambda: algorithms.inclusive_scan(X, n=5), ValueError, "between 0 and the 4 elements given, not 5"),
        (lambda: algorithms.sort(X, n=-1), ValueError, "not -1"),
        (lambda: algorithms.sort(X, n=1.5), TypeError, "n is an integer, not float"),
        (
            lambda: algorithms.sort(X, out=tack.zeros(4, tack.f32)),
            TypeError,
            "out is of f32; the result is of i32",
        ),
        (lambda: algorithms.sort(X, out=tack.zeros(3, "i4")), ValueError, "out has 3 elements"),
        (lambda: algorithms.sort(X, out=4), TypeError, "out is an array, not int"),
        (lambda: algorithms.sort_by_key(X, X[:3]), ValueError, "4 keys and 3 values"),
        (lambda: algorithms.reduce_by_key(X, X[:3]), ValueError, "4 keys and 3 values"),
        (lambda: algorithms.segmented_scan(X, np.zeros(2, np.float32)), TypeError, "offsets are integers"),
        (lambda: algorithms.segmented_reduce(X, X[:0]), ValueError, "offsets has no element"),
        (lambda: algorithms.compact(X, X[:3]), ValueError, "mask has 3 elements, x has 4"),
        (lambda: algorithms.gather(X, np.zeros(3, np.float32)), TypeError, "integers, not f32"),
        (lambda: algorithms.scatter(tack.zeros(3), X, VECTORS), TypeError, "do not fit out"),
        (
            lambda: algorithms.searchsorted(X, np.zeros(3, np.float32)),
            TypeError,
            "x is of i32, values are of f32",
        ),
        (lambda: algorithms.searchsorted(X, X, side="both"), ValueError, "'left' or 'right'"),
        (lambda: algorithms.reduce(X, axis=1), ValueError, "axis 1 of an array with 1 dimensions"),
        (lambda: algorithms.reduce(X, "median"), ValueError, "not 'median'"),
        (lambda: algorithms.reduce(X, n=5), ValueError, "between 0 and the 4 elements given, not 5"),
        (lambda: algorithms.reduce(X, axis=0, n=2), TypeError, "n counts elements of the whole array"),
        (lambda: algorithms.reduce(X, axis=0.5), TypeError, "reduce: axis is an integer, not float"),
        (lambda: algorithms.reduce(X, axis=(0, 1)), TypeError, "axis is an integer, not tuple"),
        (lambda: algorithms.reduce(X, out=tack.zeros(1)), TypeError, "out takes results along an axis"),
        (lambda: algorithms.reduce([1, 2]), TypeError, "reduce: x is an array, not list"),
        (lambda: algorithms.unique(X, n=5), ValueError, "unique: n is between 0 and the 4 elements"),
        (lambda: algorithms.segmented_reduce(X, X, n=5), ValueError, "between 0 and the 4 elements given"),
        (lambda: algorithms.norm(X, 3), ValueError, "order is 1, 2 or math.inf"),
        (lambda: algorithms.norm(X, X), ValueError, "order is 1, 2 or math.inf"),
        (lambda: algorithms.std(X, ddof="1"), TypeError, "std: ddof is a number, not str"),
        (lambda: algorithms.sort(X.astype(np.float16)), TypeError, "sort: x: .* float16.*astype"),
        (lambda: algorithms.dot(X, X > 0), TypeError, "dot: y: .* bool.*astype"),
        (lambda: algorithms.count_nonzero(X.astype(object)), TypeError, "count_nonzero: x: .* object"),
        (lambda: algorithms.sort(X.astype(">i4")), TypeError, "sort: x: .* byte order.*astype"),
        (lambda: algorithms.inclusive_scan(X, dtype=bool), TypeError, "inclusive_scan: dtype bool"),
        (lambda: algorithms.segmented_scan(X, X, dtype="x"), TypeError, "segmented_scan: 'x' is not a dtype"),
        (lambda: algorithms.inclusive_scan(X, X), ValueError, "op is one of"),
        (lambda: algorithms.searchsorted(X, X, side=X), ValueError, "side is 'left' or 'right'"),
        (lambda: algorithms.sort_by_key(X, X, out=tack.zeros(4, "i4")), TypeError, "out is a pair of arrays"),
        (
            lambda: algorithms.sort(X, out=np.zeros(8, "i4")[::2]),
            ValueError,
            "sort: out cannot be written in",
        ),
        (lambda: algorithms.fill(np.zeros(8)[::2], 1), ValueError, "fill: x cannot be written in place"),
        (lambda: algorithms.scatter(np.zeros((4, 4))[:, 0], X, X), ValueError, "scatter: out cannot be writ"),
        (lambda: algorithms.dot(X, X[:3]), ValueError, "x has 4 elements, y has 3"),
        (lambda: algorithms.histogram(X, bins=0), ValueError, "positive"),
        (lambda: algorithms.histogram(X, bins=[1, 0]), ValueError, "monotonically"),
        (lambda: algorithms.histogram(X, bins=[1]), ValueError, "at least two"),
        (lambda: algorithms.histogram(X, bins=2.5), TypeError, "histogram: `bins` must be an integer"),
        (lambda: algorithms.histogram(X, bins=["a", "b"]), TypeError, "edges of <U1, which are not numbers"),
        (lambda: algorithms.histogram(X, bins=[0, np.nan, 1]), ValueError, "an edge is NaN"),
        (lambda: algorithms.histogram(np.float32([-3e38, 3e38]), 1), ValueError, "limits are further apart"),
        (lambda: algorithms.histogram(X, range=(1, 0)), ValueError, "histogram: max must be larger"),
        (lambda: algorithms.histogram(X, range=5), TypeError, "range is a pair of numbers, not 5"),
        (lambda: algorithms.histogram(X, bins="auto"), TypeError, "histogram_bin_edges"),
        (lambda: algorithms.histogram(X, weights=X[:3]), ValueError, "4 elements and 3 weights"),
    ],
)
def test_what_is_refused(call, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_read_only_result() -> None:
    zeros = np.zeros(4, np.int32)
    zeros.flags.writeable = False
    frozen = tack.asarray(zeros, device="cpu")
    with pytest.raises(ValueError, match="read-only"):
        algorithms.sort(tack.asarray(X, device="cpu"), out=frozen)
    for write in (lambda: algorithms.fill(frozen, 1), lambda: algorithms.scatter(frozen, X, X)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    assert algorithms.sort(frozen).numpy().tolist() == [0] * 4


def test_a_numpy_array_that_the_device_cannot_write_to() -> None:
    """It is never a copy that takes the result."""
    zeros = np.zeros(4, np.int32)
    calls = [
        lambda: algorithms.fill(zeros, 7),
        lambda: algorithms.scatter(zeros, X, np.full(4, 7, np.int32)),
        lambda: algorithms.copy(np.full(4, 7, np.int32), out=zeros),
    ]
    for call in calls:
        zeros[:] = 0
        if tack.default_device()._backend.wraps_host_memory:
            call()
            assert zeros.tolist() == [7] * 4
        else:
            with pytest.raises(ValueError, match="cannot be written in place"):
                call()


class Tensor:
    """What other libraries' arrays are, in host memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options: object) -> object:
        return self.values.__dlpack__(**{name: value for name, value in options.items() if name != "stream"})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


def test_tensors_of_other_libraries() -> None:
    with tack.device("cpu"):
        assert algorithms.inclusive_scan(Tensor(X)).numpy().tolist() == [0, 1, 3, 6]
        out = np.zeros(4, np.int32)
        algorithms.inclusive_scan(X, out=Tensor(out))
        assert out.tolist() == [0, 1, 3, 6]
        algorithms.fill(Tensor(out), 7, n=3)
        algorithms.scatter(Tensor(out), Tensor(X[3:]), Tensor(X[:1]))
        assert out.tolist() == [7, 7, 7, 0]
        with pytest.raises(ValueError, match=r"sort: x: .* strides"):
            algorithms.sort(Tensor(X[::2]))
        with pytest.raises(ValueError, match="fill: x cannot be written in place"):
            algorithms.fill(Tensor(out[::2]), 1)
        with pytest.raises(TypeError, match=r"compact: mask: .* bool8 .*; x.view\(uint8\) is accepted"):
            algorithms.compact(X, Tensor(X > 1))


def test_it_loads_when_first_named() -> None:
    assert tack.algorithms is algorithms
