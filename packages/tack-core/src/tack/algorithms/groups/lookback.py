"""What stands before a tile, found while the tiles before it are still at work: decoupled look-back.

A tile first publishes the total of its own elements, its *aggregate*, and once it knows what stands before
it, the total of all elements up to its end, its *prefix*. To find what stands before it, a tile looks at
those in front of it until it meets a prefix, and adds the aggregates from there on:

- D. Merrill, M. Garland: *Single-pass Parallel Prefix Scan with Decoupled Look-back*, NVR-2016-002.

A prefix is always the one before it combined with one aggregate, so it does not matter where a tile met one:
the operations are the same in the same order, and sums of floats have the same bits on every run.

Tiles get their numbers in the order in which workgroups start, so those before a tile have started, and the
first of them waits for nobody. Each 32 bits of a value share a word with their state, which makes a word
valid by itself: no order between accesses is needed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tack
from tack.algorithms.common import combiner, identity
from tack.dtypes import DType, i32, i64, u32, u64
from tack.lang.builtins import CONSTRUCTS
from tack.lang.kernel import Func

__all__ = ["atomic_load", "look_back", "ticket", "words_for"]

atomic_load = CONSTRUCTS["atomic_load"]

WINDOW = tack.constant(128)  # how many tiles a look takes in
AGGREGATE, PREFIX = tack.constant(1), tack.constant(2)


def words_for(tiles: int, device: tack.Device) -> tack.Array:
    """Where tiles publish: a word that counts workgroups, then two for each tile."""
    return tack.zeros(2 * tiles + 1, u64, device=device)


@tack.func
def ticket(words: Any, group: Any, lane: Any) -> Any:
    """The number of the tile that this workgroup handles."""
    number = tack.shared(1, i64)
    if lane == 0:
        number[0] = i64(tack.atomic_add(words, 0, 1))
    tack.barrier()
    return number[0]


@tack.func
def _publish(words: Any, tile: Any, bits: Any, state: Any) -> None:
    tack.atomic_exchange(words, 2 * tile + 1, (u64(state) << 32) | (bits & 0xFFFFFFFF))
    tack.atomic_exchange(words, 2 * tile + 2, (u64(state) << 32) | (bits >> 32))


@cache
def look_back(op: str, dtype: DType) -> Func:
    """A device function that gives what stands before a tile; all lanes have to take part.

    It takes the words, the number of the tile, its aggregate, whether that is its prefix as well, because
    nothing before the tile counts, and the lane.
    """
    combine = combiner(op, dtype.is_float)
    nothing = tack.constant(identity(op, dtype), dtype)
    to_bits, from_bits = _bits(dtype)

    @tack.func
    def before(words: Any, tile: Any, aggregate: Any, complete: Any, lane: Any) -> Any:
        seen = tack.shared(WINDOW, dtype)
        result = tack.shared(1, dtype)
        first = tile == 0 or complete
        if lane == 0:
            _publish(words, tile, to_bits(aggregate), PREFIX if first else AGGREGATE)
        # Twice the distance to a prefix, or to a tile that has published nothing, and 1.
        nearest = i32(1)
        while nearest % 2 == 1:
            found = 2 * i32(WINDOW) + 1
            if lane < WINDOW:
                at = tile - 1 - lane
                if at < 0:
                    seen[lane] = dtype(nothing)
                    found = 2 * lane
                else:
                    low = atomic_load(words, 2 * at + 1)
                    high = atomic_load(words, 2 * at + 2)
                    seen[lane] = from_bits((low & 0xFFFFFFFF) | (high << 32))
                    if low >> 32 != high >> 32 or low >> 32 == 0:
                        found = 2 * lane + 1
                    elif low >> 32 == u64(PREFIX):
                        found = 2 * lane
            nearest = tack.block_min(found)
        if lane == 0:
            total = seen[nearest // 2]
            for k in range(nearest // 2):
                total = combine(total, seen[nearest // 2 - 1 - k])
            result[0] = total
            if not first:
                _publish(words, tile, to_bits(combine(total, aggregate)), PREFIX)
        tack.barrier()
        return result[0]

    return before


def _bits(dtype: DType) -> tuple[Func, Func]:
    """Device functions from ``dtype`` to a u64 and back."""
    bits = u32 if dtype.bits == 32 else u64

    @tack.func
    def float_bits(value: Any) -> Any:
        return u64(tack.bitcast(value, bits))

    @tack.func
    def float_of(word: Any) -> Any:
        return tack.bitcast(bits(word), dtype)

    @tack.func
    def integer_bits(value: Any) -> Any:
        return u64(value)

    @tack.func
    def integer_of(word: Any) -> Any:
        return dtype(word)

    return (float_bits, float_of) if dtype.is_float else (integer_bits, integer_of)
