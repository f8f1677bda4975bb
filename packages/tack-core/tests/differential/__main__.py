"""A long run by hand: ``python -m differential --count 100000 [--seed S]`` in the tests folder."""

from __future__ import annotations

import random
import sys

from .floats import float_difference
from .runner import difference, generate, report
from .sweep import sweep

BATCH = 5


def trial(seed: int) -> str | None:
    programs = generate(random.Random(seed), BATCH)
    try:
        problem = difference(programs)
    except Exception as error:  # a valid program that is refused is a finding too
        problem = f"{type(error).__name__}: {error}"
    if problem is None and seed % 10 == 0:
        problem = float_difference(random.Random(seed))
    return None if problem is None else report(programs, problem)


if __name__ == "__main__":
    sys.exit(sweep("differential", BATCH, 100_000, trial))
