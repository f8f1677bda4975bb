"""`tack.random`: the kernels' draws are the host's, and they are random enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tack
from tack import random

MASK = 2**32 - 1


# --- the generator in Python's integers, and backwards -----------------------------------------


def advance_int(state: int) -> int:
    x = (state * 747796405 + 2891336453) & MASK
    x = ((x >> ((x >> 28) + 4)) ^ x) * 277803737 & MASK
    return (x >> 22) ^ x


def unshifted(x: int, shift: int) -> int:
    """The y with ``y ^ (y >> shift) == x``, from the top bits down."""
    y = x
    for _ in range(32 // shift):
        y = x ^ (y >> shift)
    return y


def retreat_int(state: int) -> int:
    """The state before ``state``."""
    x = unshifted(state, 22) * pow(277803737, -1, 2**32) & MASK
    x = unshifted(x, (x >> 28) + 4)  # the top four bits, which choose the shift, pass unchanged
    return (x - 2891336453) * pow(747796405, -1, 2**32) & MASK


SOME_STATES = np.random.default_rng(1).integers(0, 2**32, 2000, dtype=np.uint32)


def test_mirrors_follow_the_definition() -> None:
    states = [0, 1, MASK, 2**31, *SOME_STATES.tolist()]
    want = [advance_int(s) for s in states]
    assert random.np_advance(np.array(states, np.uint32)).tolist() == want
    values, after = random.np_uniform(np.array(states, np.uint32))
    assert after.tolist() == want
    assert values.tolist() == [(w >> 8) / 2**24 for w in want]
    seeds = random.np_seed(np.array(states, np.uint32)[:, None], np.array([0, 1, 99], np.uint32))
    assert seeds.tolist() == [[advance_int(i ^ advance_int(s)) for s in (0, 1, 99)] for i in states]


def test_no_two_states_have_the_same_successor() -> None:
    assert all(retreat_int(advance_int(s)) == s for s in SOME_STATES.tolist())


# --- the same draws in kernels -----------------------------------------------------------------


@tack.kernel
def first_states(states):
    for stream in range(len(states)):
        states[stream] = tack.random.seed(0, stream)


@tack.kernel
def draw(state, states, values):
    for stream in range(len(state)):
        s = state[stream]
        for k in range(states.shape[1]):
            u, s = tack.random.uniform(s)
            states[stream, k] = s
            values[stream, k] = u
        state[stream] = s


def test_a_million_draws_of_a_hundred_streams() -> None:
    """Each state and value is the mirror's successor of the state before, so all are the mirror's."""
    streams, block = 100, 20_000
    state = np.empty(streams, np.uint32)
    first_states(state)
    assert (state == random.np_seed(0, np.arange(streams))).all()
    before = np.empty((streams, block), np.uint32)
    states, values = np.empty_like(before), np.empty((streams, block), np.float32)
    for _ in range(1_000_000 // block):
        before[:, 0] = state
        draw(state, states, values)
        before[:, 1:] = states[:, :-1]
        expected, after = random.np_uniform(before)
        assert (states == after).all()
        assert (values == expected).all()


@tack.kernel
def seed_all(index, stream, out):
    for i in range(len(index)):
        out[i] = tack.random.seed(index[i], stream[i])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32, np.int64, np.uint64])
def test_seed_takes_integers_modulo_2_to_the_32(dtype: Any) -> None:
    info = np.iinfo(dtype)
    index = np.array([0, 1, 77, info.min, info.max, info.max - 1], dtype)
    stream = index[::-1].copy()
    out = np.empty(len(index), np.uint32)
    seed_all(index, stream, out)
    want = [
        advance_int((i & MASK) ^ advance_int(s & MASK))
        for i, s in zip(index.tolist(), stream.tolist(), strict=True)
    ]
    assert out.tolist() == want
    assert random.np_seed(index, stream).tolist() == want


@tack.kernel
def advance_signed(states):
    for i in range(len(states)):
        states[i] = tack.random.advance(states[i])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_state_kept_in_a_signed_array_is_the_same_bits(dtype: Any) -> None:
    states = SOME_STATES.astype(dtype)
    advance_signed(states)
    assert (states.astype(np.uint32) == random.np_advance(SOME_STATES)).all()


@tack.kernel
def draw_all(state, normals, directions2, directions3, after):
    for i in range(len(state)):
        s = state[i]
        n, s = tack.random.normal(s)
        normals[i] = n
        d, s = tack.random.direction2(s)
        directions2[i] = d
        e, s = tack.random.direction3(s)
        directions3[i] = e
        after[i] = s


def drawn(state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = len(state)
    normals, after = np.empty(n, np.float32), np.empty(n, np.uint32)
    directions2, directions3 = tack.empty(n, dtype=tack.vec2), tack.empty(n, dtype=tack.vec3)
    draw_all(state, normals, directions2, directions3, after)
    return normals, directions2.numpy(), directions3.numpy(), after


def test_normal_and_directions_are_the_mirrors_but_for_rounding() -> None:
    state = random.np_seed(np.arange(100_000), 5)
    normals, directions2, directions3, after = drawn(state)
    want, state = random.np_normal(state)
    np.testing.assert_allclose(normals, want, rtol=2e-6, atol=2e-6)
    want, state = random.np_direction2(state)
    np.testing.assert_allclose(directions2, want, atol=5e-7)
    want, state = random.np_direction3(state)
    np.testing.assert_allclose(directions3, want, atol=5e-7)
    assert (after == state).all()  # they took as many draws


def exact(state: int) -> tuple[float, float, int]:
    """Two uniform values, exact, and the state after them."""
    first = advance_int(state)
    second = advance_int(first)
    return (first >> 8) / 2**24, (second >> 8) / 2**24, second


def test_normal_and_directions_follow_their_formulas() -> None:
    mp = pytest.importorskip("mpmath")
    # The states whose next draw is 0 and the largest value, and any others.
    extreme = [retreat_int(top << 8 | low) for top in (0, 2**24 - 1) for low in (0, 17, 255)]
    states = np.array([*extreme, *SOME_STATES[:300].tolist()], np.uint32)
    normals, directions2, directions3, _ = drawn(states)
    for i, state in enumerate(states.tolist()):
        u, v, state = exact(state)
        want = mp.sqrt(-2 * mp.log(1 - mp.mpf(u))) * mp.cos(2 * mp.pi * v)
        assert abs(normals[i] - want) <= 3e-6
        u, v, _ = exact(state)
        want = mp.cos(2 * mp.pi * u), mp.sin(2 * mp.pi * u)
        assert max(abs(a - b) for a, b in zip(directions2[i].tolist(), want, strict=True)) <= 1e-6
        u, v, _ = exact(advance_int(state))
        z = 1 - 2 * mp.mpf(u)
        radius = mp.sqrt(1 - z * z)
        want = radius * mp.cos(2 * mp.pi * v), radius * mp.sin(2 * mp.pi * v), z
        assert max(abs(a - b) for a, b in zip(directions3[i].tolist(), want, strict=True)) <= 1e-6
    assert np.isfinite(normals).all()
    assert abs(normals).max() < 5.8  # sqrt(-2 log 2^-24) = 5.77


# --- on the host -------------------------------------------------------------------------------


def test_shapes_and_dtypes_of_the_mirrors() -> None:
    state = random.np_seed(np.arange(6).reshape(2, 3), 0)
    assert (state.shape, state.dtype) == ((2, 3), np.uint32)
    shapes: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
        (random.np_uniform, (2, 3)),
        (random.np_normal, (2, 3)),
        (random.np_direction2, (2, 3, 2)),
        (random.np_direction3, (2, 3, 3)),
    ]
    for mirror, shape in shapes:
        values, after = mirror(state)
        assert (values.shape, values.dtype) == (shape, np.float32)
        assert (after.shape, after.dtype) == ((2, 3), np.uint32)
        one, next_state = mirror(int(state[1, 2]))  # plain integers: no warning of an overflow
        assert one.tolist() == values[1, 2].tolist()
        assert next_state == after[1, 2]
        empty, _ = mirror(np.empty(0, np.uint32))
        assert empty.shape == (0, *shape[2:])


def test_mirrors_leave_their_argument_alone() -> None:
    state = SOME_STATES.copy()
    for mirror in (random.np_advance, random.np_uniform, random.np_normal, random.np_direction3):
        mirror(state)
    assert (state == SOME_STATES).all()


@pytest.mark.parametrize("bad", [1.5, np.ones(3), "1", None, 2**64])
def test_mirrors_take_integers_only(bad: Any) -> None:
    for mirror in (random.np_advance, random.np_uniform, random.np_normal, random.np_direction2):
        with pytest.raises(TypeError, match="integers"):
            mirror(bad)
    with pytest.raises(TypeError, match="integers"):
        random.np_seed(bad, 0)
    with pytest.raises(TypeError, match="integers"):
        random.np_seed(0, bad)


def test_device_functions_are_for_kernels() -> None:
    with pytest.raises(RuntimeError, match="uniform"):
        random.uniform(1)


# --- quality -----------------------------------------------------------------------------------
#
# All draws are fixed, so these tests are too. A statistic is compared with its distribution under
# the hypothesis that the values are independent and uniform, at five standard deviations or so.


def z_of_chi2(counts: np.ndarray) -> float:
    """How many standard deviations the counts of equally likely classes are from chance."""
    expected = counts.sum() / counts.size
    chi2 = float((((counts - expected) ** 2) / expected).sum())
    k = counts.size - 1
    # Wilson and Hilferty: the cube root of chi2 / k is nearly normal.
    return ((chi2 / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))


@pytest.fixture(scope="module")
def along() -> tuple[np.ndarray, np.ndarray]:
    """States and values of 2^16 draws of each of 64 streams."""
    state = random.np_seed(0, np.arange(64))
    states, values = np.empty((64, 2**16), np.uint32), np.empty((64, 2**16), np.float32)
    draw(state, states, values)
    return states, values


@pytest.fixture(scope="module")
def across() -> np.ndarray:
    """First states of 2^16 neighbouring indices of each of 64 streams."""
    return random.np_seed(np.arange(2**16), np.arange(64)[:, None])


def classes(states: np.ndarray, shift: int, bits: int) -> np.ndarray:
    return (states >> np.uint32(shift)) & np.uint32(2**bits - 1)


@pytest.mark.parametrize("which", ["along", "across"])
@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_bytes_are_equally_frequent(which: str, shift: int, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(which)
    states = data[0] if which == "along" else data
    assert abs(z_of_chi2(np.bincount(classes(states, shift, 8).ravel(), minlength=256))) < 5


def test_values_fill_the_interval_evenly(along: Any) -> None:
    _, values = along
    assert values.min() >= 0
    assert values.max() < 1
    counts = np.bincount((values.ravel() * 1000).astype(int), minlength=1000)
    assert counts.size == 1000
    assert abs(z_of_chi2(counts)) < 5
    n = values.size
    assert abs(values.mean(dtype=float) - 0.5) < 5 * math.sqrt(1 / 12 / n)
    assert abs(values.var(dtype=float) - 1 / 12) < 5 * math.sqrt(1 / 180 / n)


@pytest.mark.parametrize("which", ["along", "across"])
@pytest.mark.parametrize("lag", [1, 2, 3, 16, 1000])
def test_no_serial_correlation(which: str, lag: int, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(which)
    values = random.np_uniform(data)[0] if which == "across" else data[1]
    centred = values.astype(float) - 0.5
    products = centred[:, lag:] * centred[:, :-lag]
    assert abs(products.mean() * 12) < 5 / math.sqrt(products.size)


@pytest.mark.parametrize("which", ["along", "across"])
@pytest.mark.parametrize("shift", [0, 13, 26])
def test_pairs_and_triples_are_equally_frequent(
    which: str, shift: int, request: pytest.FixtureRequest
) -> None:
    data = request.getfixturevalue(which)
    six = classes(data[0] if which == "along" else data, shift, 6).astype(int)
    pairs = six[:, 0::2] * 64 + six[:, 1::2]
    assert abs(z_of_chi2(np.bincount(pairs.ravel(), minlength=64**2))) < 5
    four = six & 15
    whole = four[:, : four.shape[1] // 3 * 3]
    triples = (whole[:, 0::3] * 16 + whole[:, 1::3]) * 16 + whole[:, 2::3]
    assert abs(z_of_chi2(np.bincount(triples.ravel(), minlength=16**3))) < 5


@pytest.mark.parametrize("which", ["along", "across"])
def test_neighbouring_states_share_half_their_bits(which: str, request: pytest.FixtureRequest) -> None:
    """Each bit of one state against each of the next, and of the same place in the next stream."""
    data = request.getfixturevalue(which)
    states = (data[0] if which == "along" else data)[:, : 2**12]
    bits = [((states >> np.uint32(k)) & np.uint32(1)).astype(np.float32) - np.float32(0.5) for k in range(32)]
    stack = np.stack(bits).reshape(32, 64, -1)
    for first, second in ((stack[..., :-1], stack[..., 1:]), (stack[:, :-1], stack[:, 1:])):
        a, b = first.reshape(32, -1), second.reshape(32, -1)
        correlation = 4 * (a @ b.T) / a.shape[1]
        assert abs(correlation).max() < 5.5 / math.sqrt(a.shape[1])


def test_one_bit_of_the_index_changes_half_of_the_seed() -> None:
    index = np.random.default_rng(2).integers(0, 2**32, 20_000, dtype=np.uint32)
    seeds = random.np_seed(index, 3)
    for k in range(32):
        changed = seeds ^ random.np_seed(index ^ np.uint32(1 << k), 3)
        rates = [((changed >> np.uint32(b)) & np.uint32(1)).mean() for b in range(32)]
        assert abs(np.array(rates) - 0.5).max() < 0.1


def test_runs_up_have_the_lengths_of_chance(along: Any) -> None:
    """A run of length r, the value after it skipped, has probability r / (r + 1)!."""
    states, _ = along
    lengths = []
    for row in states:
        start = 0
        for fall in ((row[1:] < row[:-1]).nonzero()[0] + 1).tolist():
            if fall > start:
                lengths.append(min(fall - start, 6))
                start = fall + 1
    probability = np.array([r / math.factorial(r + 1) for r in range(1, 6)] + [1 / math.factorial(6)])
    counts = np.bincount(lengths, minlength=7)[1:]
    expected = probability * counts.sum()
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < 35  # five degrees of freedom: exceeded once in a million


def test_repeated_gaps_of_sorted_draws_are_as_rare_as_chance(along: Any) -> None:
    """Marsaglia's birthday spacings: 2^11 birthdays in a year of 2^30 days repeat 2 gaps on average."""
    states, _ = along
    days = np.sort((states >> np.uint32(2)).reshape(-1, 2**11), axis=1)
    gaps = np.sort(np.diff(days, axis=1), axis=1)
    repeats = (gaps[:, 1:] == gaps[:, :-1]).sum()
    expected = len(days) * 2**33 / 2**32
    assert abs(repeats - expected) < 5 * math.sqrt(expected)


# --- the distributions -------------------------------------------------------------------------

COUNT = 400_000


@pytest.fixture(scope="module")
def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return drawn(random.np_seed(np.arange(COUNT), 11))


def test_normal_is_normal(sample: Any) -> None:
    x = sample[0].astype(float)
    for power, moment in enumerate([0, 1, 0, 3, 0, 15], start=1):
        spread = math.sqrt(math.prod(range(1, 2 * power, 2)) - moment**2)  # E x^2p is 1·3·5···
        assert abs((x**power).mean() - moment) < 5 * spread / math.sqrt(COUNT)
    # Kolmogorov and Smirnov
    cdf = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in np.sort(x)[::40].tolist()])
    assert abs(cdf - np.arange(COUNT)[::40] / COUNT).max() < 2.5 / math.sqrt(COUNT)


def test_direction2_is_even_on_the_circle(sample: Any) -> None:
    x, y = sample[1].astype(float).T
    assert abs(np.hypot(x, y) - 1).max() < 5e-7
    turns = np.arctan2(y, x) / (2 * math.pi) % 1
    assert abs(z_of_chi2(np.bincount((turns * 360).astype(int) % 360, minlength=360))) < 5


def test_direction3_is_even_on_the_sphere(sample: Any) -> None:
    x, y, z = sample[2].astype(float).T
    assert abs(np.sqrt(x * x + y * y + z * z) - 1).max() < 5e-7
    turns = np.arctan2(y, x) / (2 * math.pi) % 1
    # Archimedes: bands of equal height have equal area, about any axis.
    for height in (x, y, z):
        bands = np.minimum(((height + 1) * 50).astype(int), 99)
        assert abs(z_of_chi2(np.bincount(bands, minlength=100))) < 5
    cells = np.minimum(((z + 1) * 16).astype(int), 31) * 32 + np.minimum((turns * 32).astype(int), 31)
    assert abs(z_of_chi2(np.bincount(cells, minlength=1024))) < 5
