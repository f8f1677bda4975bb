"""A thousand mutated kernels: compiled, or rejected with a position."""

from __future__ import annotations

import pytest

import tack

from . import runner
from .corpus import arguments, sources
from .mutate import mutated
from .runner import run

CASES = 1000
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_kernels_compile_or_are_rejected_with_a_position(part: int) -> None:
    count = CASES // PARTS
    findings = run(part * count, count)
    texts = [f"case {f.seed}: {f.problem}\n{mutated(f.seed)}" for f in findings[:5]]
    assert not findings, f"{len(findings)} findings\n" + "\n".join(texts)


@pytest.mark.parametrize("number", range(len(sources())))
def test_the_kernels_that_mutations_start_from_are_valid(number: int) -> None:
    import linecache
    import math

    text, name = sources()[number], f"<corpus-{number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"tack": tack, "math": math, "__name__": "corpus"}
    exec(compile(text, name, "exec"), space)
    assert "define" in tack.inspect(space["kernel"], *arguments(), mode="optimized")


def test_cases_are_reproducible_and_differ() -> None:
    texts = [mutated(seed) for seed in range(100)]
    assert texts == [mutated(seed) for seed in range(100)]
    assert len(set(texts)) > 90


def test_a_case_that_kills_or_outlasts_its_process_is_found_and_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [
        ("case 5\ncase 6\n", -11),
        ("case 7\nfinding 7 'no position'\ncase 8\n", None),
        ("case 9\ndone\n", 0),
    ]
    asked = []

    def answer(first: int, count: int) -> tuple[str, int | None]:
        asked.append((first, count))
        return answers.pop(0)

    monkeypatch.setattr(runner, "_subprocess", answer)
    found = runner.run(5, 5)
    assert asked == [(5, 5), (7, 3), (9, 1)]
    assert [f.seed for f in found] == [6, 7, 8]
    assert ["status -11" in found[0].problem, "position" in found[1].problem, found[2].problem] == [
        True,
        True,
        "hangs",
    ]
