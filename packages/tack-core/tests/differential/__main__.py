"""A long run by hand, in the tests folder: ``python -m differential --count 100000 [--target T,...]``."""

from __future__ import annotations

import random
import sys

from .floats import float_difference
from .runner import Case, generate, report
from .sweep import Trial, sweep

BATCH = 5
FLOATS = 40  # one kernel of float expressions, whose exact values take long, among so many


def draw(seed: int) -> Trial:
    case = Case(generate(random.Random(seed), BATCH))

    def trial() -> str | None:
        try:
            problem = case.difference()
        except Exception as error:  # a valid program that is refused is a finding too
            problem = f"{type(error).__name__}: {error}"
        if problem is None and seed % FLOATS == 0:
            problem = float_difference(random.Random(seed))
        return None if problem is None else report(case.programs, problem)

    return trial


if __name__ == "__main__":
    sys.exit(sweep("differential", BATCH, 100_000, draw))
