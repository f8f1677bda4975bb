# The kernel language's annotations are objects, which mypy does not take for types.
# mypy: disable-error-code="valid-type, no-any-return"
"""Random numbers in kernels, from a state that the kernel keeps in a variable of its own.

A state is one u32. `seed` makes one from an index and a stream, and each draw takes a state and
returns its value and the next state, so nothing is hidden and every run draws the same::

    state = tack.random.seed(i, stream)
    u, state = tack.random.uniform(state)

The generator is PCG RXS-M-XS 32: an LCG step, then an output permutation, the output being the
next state. ``np_seed``, ``np_advance`` and so on draw the same values on the host. States and uniform
values are the same bits on every device and on the host; `normal` and the directions differ by
the rounding of the functions that they are made of.

Reference: M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
Algorithms for Random Number Generation", Harvey Mudd College, HMC-CS-2014-0905, 2014.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tack.constants import constant
from tack.dtypes import f32, u32, vec2, vec3
from tack.lang.kernel import func

__all__ = [
    "advance",
    "direction2",
    "direction3",
    "normal",
    "np_advance",
    "np_direction2",
    "np_direction3",
    "np_normal",
    "np_seed",
    "np_uniform",
    "seed",
    "uniform",
]

_STEP_MULTIPLIER = constant(747796405, u32)
_STEP_INCREMENT = constant(2891336453, u32)
_OUTPUT_MULTIPLIER = constant(277803737, u32)
_UNIFORM_SCALE = constant(2.0**-24, f32)

# --- in kernels; the annotations pin the types ---


@func
def seed(index: u32, stream: u32) -> u32:
    """The first state of element ``index`` of ``stream``; integers beyond u32 count modulo 2^32."""
    return advance(index ^ advance(stream))


@func
def advance(state: u32) -> u32:
    """The state after ``state``, itself 32 random bits."""
    x = state * _STEP_MULTIPLIER + _STEP_INCREMENT
    x = ((x >> ((x >> 28) + 4)) ^ x) * _OUTPUT_MULTIPLIER
    return (x >> 22) ^ x


@func
def uniform(state: u32) -> tuple[f32, u32]:
    """A value in [0, 1), a multiple of 2^-24, and the next state."""
    state = advance(state)
    return (state >> 8) * _UNIFORM_SCALE, state


@func
def normal(state: u32) -> tuple[f32, u32]:
    """A value of the standard normal distribution, and the state after two draws."""
    u, state = uniform(state)
    v, state = uniform(state)
    return math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(math.tau * v), state  # 1 - u is never zero


@func
def direction2(state: u32) -> tuple[vec2, u32]:
    """A unit vector of the plane, each direction equally likely, and the next state."""
    u, state = uniform(state)
    angle = math.tau * u
    return [math.cos(angle), math.sin(angle)], state


@func
def direction3(state: u32) -> tuple[vec3, u32]:
    """A unit vector of space, each direction equally likely, and the state after two draws."""
    u, state = uniform(state)
    v, state = uniform(state)
    angle = math.tau * v
    radius = 2.0 * math.sqrt(u * (1.0 - u))  # sqrt(1 - z**2) without its cancellation
    return [radius * math.cos(angle), radius * math.sin(angle), 1.0 - 2.0 * u], state


# --- on the host ---

UInts: TypeAlias = npt.NDArray[np.uint32]
Floats: TypeAlias = npt.NDArray[np.float32]

_ONE = np.float32(1)
_TWO = np.float32(2)
_TAU = np.float32(math.tau)


def _u32(value: npt.ArrayLike) -> UInts:
    """Integers as the kernels' u32: their low bits."""
    array: npt.NDArray[Any] = np.asarray(value)
    if array.dtype.kind not in "iub":
        raise TypeError(f"a state, an index and a stream are integers, not {array.dtype}")
    return array.astype(np.uint32, copy=False)


def np_seed(index: npt.ArrayLike, stream: npt.ArrayLike) -> UInts:
    """`seed` on the host.

    Args:
        index, stream: integers or arrays of them, of shapes that broadcast.

    Returns:
        States, uint32, of the broadcast shape.

    Raises:
        TypeError: an argument is not made of integers.
    """
    return np_advance(_u32(index) ^ np_advance(stream))


def np_advance(state: npt.ArrayLike) -> UInts:
    """`advance` on the host.

    Args:
        state: integers of any shape.

    Returns:
        The next states, uint32, of the same shape.

    Raises:
        TypeError: ``state`` is not made of integers.
    """
    with np.errstate(over="ignore"):  # the warning of NumPy scalars
        x: UInts = _u32(state) * np.uint32(_STEP_MULTIPLIER) + np.uint32(_STEP_INCREMENT)
        x = ((x >> ((x >> np.uint32(28)) + np.uint32(4))) ^ x) * np.uint32(_OUTPUT_MULTIPLIER)
        return (x >> np.uint32(22)) ^ x


def np_uniform(state: npt.ArrayLike) -> tuple[Floats, UInts]:
    """`uniform` on the host.

    Args:
        state: integers of any shape.

    Returns:
        Values in [0, 1), float32, and the next states, uint32, each of the same shape.

    Raises:
        TypeError: ``state`` is not made of integers.
    """
    after = np_advance(state)
    return (after >> np.uint32(8)).astype(np.float32) * np.float32(_UNIFORM_SCALE), after


def np_normal(state: npt.ArrayLike) -> tuple[Floats, UInts]:
    """`normal` on the host; arguments, results and errors as `np_uniform`."""
    u, after = np_uniform(state)
    v, after = np_uniform(after)
    return np.sqrt(-_TWO * np.log(_ONE - u)) * np.cos(_TAU * v), after


def np_direction2(state: npt.ArrayLike) -> tuple[Floats, UInts]:
    """`direction2` on the host.

    Args:
        state: integers of any shape.

    Returns:
        Unit vectors, float32, of shape ``(*shape, 2)``, and the next states, uint32.

    Raises:
        TypeError: ``state`` is not made of integers.
    """
    u, after = np_uniform(state)
    angle = _TAU * u
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1), after


def np_direction3(state: npt.ArrayLike) -> tuple[Floats, UInts]:
    """`direction3` on the host.

    Args:
        state: integers of any shape.

    Returns:
        Unit vectors, float32, of shape ``(*shape, 3)``, and the next states, uint32.

    Raises:
        TypeError: ``state`` is not made of integers.
    """
    u, after = np_uniform(state)
    v, after = np_uniform(after)
    angle = _TAU * v
    radius = _TWO * np.sqrt(u * (_ONE - u))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), _ONE - _TWO * u], axis=-1), after
