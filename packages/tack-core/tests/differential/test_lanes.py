"""Random kernels of workgroups against the lane-by-lane model."""

from __future__ import annotations

import random

import pytest

import tack

from .lanes import BATCH, difference, generate, kernel_source, report

PROGRAMS = 60
PARTS = 4
DEVICE = tack.device("cpu", num_threads=2)


@pytest.mark.parametrize("part", range(PARTS))
def test_generated_programs(part: int) -> None:
    with DEVICE:
        for seed in range(part, PROGRAMS // BATCH, PARTS):
            form, programs = generate(random.Random(seed))
            problem = difference(form, programs, seed)
            assert problem is None, report(form, programs, seed, f"seed {seed}: {problem}")


def test_a_missing_barrier_is_seen() -> None:
    """The comparison can fail: each lane's neighbour is read before it has stored."""
    form, programs = generate(random.Random(1), 1)
    indent = " " * 8
    before = ["z = tack.shared(256, tack.i64)", "z[t] = 7", "tack.barrier()", "z[t] = i", "tack.barrier()"]
    programs[0].tack += [f"{indent}{line}" for line in before] + [f"{indent}out[i * 30] = z[(t + 1) % 256]"]
    model = ["z = shared(group, 'z')", "z[t] = 7", "yield ('barrier', '', 0)", "z[t] = i"]
    wanted = ["    out[i * 30] = z[(t + 1) % 256]"]
    kept = list(programs[0].python)
    with DEVICE:
        programs[0].python = [
            *kept,
            *(f"    {line}" for line in model),
            "    yield ('barrier', '', 0)",
            *wanted,
        ]
        assert difference(form, programs, 1) is None
        programs[0].python = [*kept, *(f"    {line}" for line in model), *wanted]
        problem = difference(form, programs, 1)
    assert problem is not None
    assert "Python gives 7" in problem


def test_generator_covers_the_language() -> None:
    """Every construct that it can make turns up within 60 programs."""
    text = "".join(kernel_source(*generate(random.Random(seed))) for seed in range(20))
    wanted = "tack.barrier() tack.shared( tack.local_array( tack.thread_id() tack.block_sum( tack.block_min("
    wanted += " tack.block_max( while break continue return else: range(t tack.ndindex( tack.f64("
    assert [w for w in wanted.split() if w not in text] == []
