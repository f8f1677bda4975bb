"""The checks of debug mode: recording the first violation, in the form of `tack.codegen.llvm.checks`."""

from __future__ import annotations

from tack.codegen.c.emitter import Emitter
from tack.ir.nodes import Bounds

__all__ = ["check_race", "violation"]

# Hidden parameters; see `tack.runtime.debug`.
ERRORS = "debug.errors"
WRITERS = "debug.writers."
RACE = "-1"

# The record starts with its state: 0, nothing is recorded; 1, something is; 2, a thread writes it. Of the
# violations of several iterations the first one's stays, as where iterations run in order.
_RECORD = """\
{head} {{
    volatile i64 *seen = record;
    for (;;) {{
        const u64 state = seen[0];
        if (state == 1 && seen[5] <= iteration)
            return -1;
        if (state == 2 || {swap} != state)
            continue;
        if (state == 0 || iteration < seen[5]) {{
            seen[1] = site;
            seen[2] = axis;
            seen[3] = index;
            seen[4] = extent;
            seen[5] = iteration;
        }}
        {fence}
        {release};
        return -1;
    }}
}}"""


def violation(fn: Emitter, site: int, axis: str, index: str, extent: str) -> str:
    """An expression of value -1 that records a violation, unless that of an earlier iteration is recorded."""

    def write(fn: Emitter) -> None:
        head = "i64 tack_violation(i64 *record, i64 site, i64 axis, i64 index, i64 extent, i64 iteration)"
        for line in _RECORD.format(
            head=f"{fn.dialect.function} {head}",
            swap=fn.dialect.atomic("cas", "(u64 *)record", "state", "2ull"),
            release=fn.dialect.atomic("exchange", "(u64 *)record", "1ull"),
            fence=fn.dialect.fence,
        ).splitlines():
            fn.line(line)

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
