"""The checks of debug mode: recording the first violation, as `tack.codegen.llvm.checks` does."""

from __future__ import annotations

from tack.codegen.c.emitter import Emitter
from tack.ir.nodes import Bounds

__all__ = ["check_race", "violation"]

# Hidden parameters; see `tack.runtime.debug`.
ERRORS = "debug.errors"
WRITERS = "debug.writers."
RACE = "-1"


def violation(fn: Emitter, site: int, axis: str, index: str, extent: str) -> str:
    """An expression of value -1 that records a violation, unless an earlier one was recorded."""

    def write(fn: Emitter) -> None:
        head = "i64 tack_violation(i64 *record, i64 site, i64 axis, i64 index, i64 extent, i64 iteration)"
        with fn.function(f"{fn.dialect.function} {head}"):
            with fn.braces(f"if ({fn.dialect.atomic('cas', '(u64 *)record', '0ull', '1ull')} == 0)"):
                for position, fact in enumerate(("site", "axis", "index", "extent", "iteration"), start=1):
                    fn.line(f"record[{position}] = {fact};")
            fn.line("return -1;")

    function = fn.unit.helper("tack_violation", write)
    return f"{function}({fn.name(ERRORS)}, {site}, {axis}, {index}, {extent}, {fn.iteration or -1})"


def check_race(fn: Emitter, array: str, site: Bounds, at: str) -> None:
    """Records a race if another iteration has stored to element ``at``, and notes that this one has."""
    writers = WRITERS + array
    if writers not in fn.unit.arrays or fn.iteration is None:
        return
    last = fn.temporary(fn.unit.arrays[writers])
    own = f"{fn.iteration} + 1"
    slot = f"(u64 *)&{fn.name(writers)}[{at}]"
    fn.line(f"{last} = {fn.dialect.atomic('exchange', slot, own)};")
    with fn.braces(f"if ({last} != 0 && {last} != {own})"):
        fn.line(f"{violation(fn, fn.unit.sites[id(site)], RACE, at, f'{last} - 1')};")
