"""Compiles the sources of a folder, and counts what the compilers say of them."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from emulated import amd

from offline.batches import Unit, batches, joined, read
from offline.compilers import COMPILERS, Compiler

__all__ = ["Outcome", "sweep"]

# clang: "<unit>:3:5: warning: ... [-Wkind]"; NVRTC: "<unit>(3): warning #177-D: ..."; tools without a place.
_WARNING = re.compile(
    r"^(?:(\w+)[:(].*)?\bwarning\b(?: (#\d+-D))?:.*?(?:\[(-W[\w-]+)[^\]]*\])?$", re.M | re.I
)

# What kernels say themselves, what is not used, parentheses that C does not need, and what is only slow.
_HARMLESS = {
    "spilled registers",
    *("#177-D", "#550-D", "-Wself-assign", "-Wtautological-compare", "-Wconstant-logical-operand"),
    *("-Wbitwise-op-parentheses", "-Wlogical-op-parentheses", "-Wshift-op-parentheses"),
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
            spills = "spilled registers" if " spilled around " in found[0] else None
            kind = found[2] or found[3] or spills or "other"
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


def sweep(folder: Path, names: Sequence[str], sample: int, workers: int) -> Iterator[Outcome]:
    """Each compiler of ``names`` that is there over every ``sample``-th source, for each architecture."""
    context = multiprocessing.get_context("spawn")
    for compiler in COMPILERS:
        if compiler.name not in names:
            continue
        missing = compiler.missing()
        if missing is not None:
            print(f"{compiler.name}: {missing}", flush=True)
            continue
        units = read(folder / compiler.language)[::sample]
        for arch in compiler.architectures:
            with ProcessPoolExecutor(workers, context, amd.start, (amd.root(),)) as pool:
                yield _compile(pool, compiler, arch, units)


def _compile(pool: ProcessPoolExecutor, compiler: Compiler, arch: str, units: list[Unit]) -> Outcome:
    outcome = Outcome(compiler, arch, len(units))
    started = time.monotonic()
    waiting = [
        (batch, pool.submit(_one, compiler.name, arch, batch)) for batch in batches(units, compiler.nbytes)
    ]
    for batch, future in waiting:
        done, messages = future.result()
        if not done:  # each alone, to see which
            for unit in batch:
                done, messages = pool.submit(_one, compiler.name, arch, [unit]).result()
                if not done:
                    outcome.failures[unit.name] = messages
                outcome.add(messages)
        else:
            outcome.add(messages)
    outcome.seconds = time.monotonic() - started
    return outcome


def _one(name: str, arch: str, batch: list[Unit]) -> tuple[bool, str]:
    compiler = next(c for c in COMPILERS if c.name == name)
    text = joined(batch) if len(batch) > 1 else f'#line 1 "{batch[0].name}"\n{batch[0].text}'
    return compiler.compile(text, arch, batch[0].options)
