"""Atomics that only our own kernels use: loads, and additions to a workgroup's array."""

from __future__ import annotations

import numpy as np

import tack
from tack.lang.builtins import CONSTRUCTS

from .helpers import launch

atomic_load, shared_add = CONSTRUCTS["atomic_load"], CONSTRUCTS["shared_add"]


@tack.kernel
def count_in_groups(x, counts, olds, n):
    for i in range(n):
        found = tack.shared(16, tack.u32)
        lane = tack.thread_id()
        if lane < 16:
            found[lane] = 0
        tack.barrier()
        olds[i] = shared_add(found, x[i], 1)
        tack.barrier()
        if lane < 16:
            counts[i // 256 * 16 + lane] = found[lane]
        tack.barrier()
        shared_add(found, 0, 1)


@tack.kernel
def load_and_add(x, out, n):
    for i in range(n):
        out[i] = atomic_load(x, i)
        tack.atomic_add(x, i, 1)
        out[i] += 100 * atomic_load(x, i)


def test_additions_to_a_shared_array() -> None:
    x = np.random.default_rng(0).integers(0, 16, 1024).astype(np.int32)
    counts, olds = np.zeros(4 * 16, np.uint32), np.zeros(1024, np.uint32)
    launch(count_in_groups, x, counts, olds, 1024)
    for group in range(4):
        part = slice(256 * group, 256 * (group + 1))
        expected = np.bincount(x[part], minlength=16)
        assert counts[16 * group : 16 * (group + 1)].tolist() == expected.tolist()
        for value in range(16):  # the old values are a permutation
            seen = sorted(olds[part][x[part] == value].tolist())
            assert seen == list(range(expected[value]))


def test_loads_see_what_was_added() -> None:
    x, out = np.arange(300, dtype=np.uint32), np.zeros(300, np.uint32)
    launch(load_and_add, x, out, 300)
    before = np.arange(300)
    assert out.tolist() == (before + 100 * (before + 1)).tolist()
