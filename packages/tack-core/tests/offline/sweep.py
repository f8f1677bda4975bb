"""Compiles the sources of a folder, and counts what the compilers say of them."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from emulated import amd

from offline.batches import Unit, batches, read
from offline.compilers import Compiler
from offline.one import REFUSED

__all__ = ["Outcome", "sweep"]

# clang: "<unit>:3:5: warning: ... [-Wkind]"; NVRTC: "<unit>(3): warning #177-D: ..."; tools without a place.
_WARNING = re.compile(
    r"^(?:(\w+)[:(].*)?\bwarning\b(?: (#\d+-D))?:.*?(?:\[(-W[\w-]+)[^\]]*\])?$", re.M | re.I
)

# Signed arithmetic on unsigned numbers; what kernels say themselves; what is not used; parentheses that C
# does not need; and what is only slow, as options for speed that a compiler does not know.
_HARMLESS = {
    "#68-D",
    *("#186-D", "-Wself-assign", "-Wtautological-compare", "-Wconstant-logical-operand"),
    "-Wliteral-range",
    *("#177-D", "#550-D"),
    *("-Wbitwise-op-parentheses", "-Wlogical-op-parentheses", "-Wshift-op-parentheses"),
    *("spilled registers", "-Wunused-command-line-argument"),
}

# What ocloc does not say the kind of.
_UNTAGGED = {
    " spilled around ": "spilled registers",
    "self-comparison": "-Wtautological-compare",
    "with constant operand": "-Wconstant-logical-operand",
    "' has lower precedence than '": "-Wshift-op-parentheses",
    "'&&' within '||'": "-Wlogical-op-parentheses",
    "'&' within '": "-Wbitwise-op-parentheses",
    "'^' within '": "-Wbitwise-op-parentheses",
}


class Outcome:
    """What one compiler said of all sources for one architecture.

    Attributes:
        failures: the messages for each unit that did not compile.
        warnings: for each kind, the units that have it; those without a unit's name count by their text.
        messages: one line of each kind.
    """

    def __init__(self, compiler: Compiler, arch: str, count: int) -> None:
        self.compiler, self.arch, self.count = compiler, arch, count
        self.failures: dict[str, str] = {}
        self.warnings: dict[str, set[str]] = defaultdict(set)
        self.messages: dict[str, str] = {}
        self.seconds = 0.0

    def add(self, messages: str) -> None:
        for found in _WARNING.finditer(messages):
            untagged = (kind for text, kind in _UNTAGGED.items() if text in found[0])
            kind = found[2] or found[3] or next(untagged, "other")
            self.warnings[kind].add(found[1] or found[0])
            self.messages.setdefault(kind, found[0])

    @property
    def alarming(self) -> set[str]:
        """The kinds of warnings that may be mistakes of the generator."""
        return set(self.warnings) - _HARMLESS

    def __str__(self) -> str:
        kinds = ", ".join(f"{len(units)} {kind}" for kind, units in sorted(self.warnings.items())) or "0"
        return (
            f"{self.compiler.version()}, {self.arch}: {self.count} sources, {len(self.failures)} failures, "
            f"sources with warnings: {kinds}; {self.seconds:.0f} s"
        )


def sweep(folder: Path, compilers: Sequence[Compiler], sample: int, workers: int) -> Iterator[Outcome]:
    """Each of the compilers, which are there, over every ``sample``-th source, for each architecture."""
    for compiler in compilers:
        place = folder / compiler.language
        units = read(place)[::sample]
        for arch in compiler.architectures:
            outcome = Outcome(compiler, arch, len(units))
            started = time.monotonic()
            with ThreadPoolExecutor(workers) as pool:
                every = batches(units, compiler.nbytes)
                for found in pool.map(functools.partial(_compile, compiler, arch, place), every):
                    for unit, messages in found:
                        outcome.add(messages)
                        if unit is not None:
                            outcome.failures[unit.name] = messages
            outcome.seconds = time.monotonic() - started
            yield outcome


def _compile(compiler: Compiler, arch: str, place: Path, batch: list[Unit]) -> list[tuple[Unit | None, str]]:
    """What is said of a batch, with the unit if it was refused, for which each is compiled alone."""
    command = [sys.executable, "-m", "offline.one", compiler.name, arch]
    done = subprocess.run(
        [*command, *(str(place / f"{unit.name}.txt") for unit in batch)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **amd.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return [(None, done.stdout)]
    if len(batch) > 1:
        return [found for unit in batch for found in _compile(compiler, arch, place, [unit])]
    ended = (
        ""
        if done.returncode == REFUSED
        else f"the compiler's process ended: {done.returncode}\n{done.stderr}"
    )
    return [(batch[0], done.stdout + ended)]
