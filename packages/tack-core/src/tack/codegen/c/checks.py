"""The checks of debug mode: recording the first violation, in the form of `tack.codegen.llvm.checks`."""

from __future__ import annotations

from tack.codegen.c.emitter import Emitter
from tack.dtypes import u32, u64
from tack.ir.nodes import Bounds

__all__ = ["check_race", "violation"]

# Hidden parameters; see `tack.runtime.debug`.
ERRORS = "debug.errors"
WRITERS = "debug.writers."
RACE = "-1"

# The record starts with its state: 0, nothing is recorded; 1, something is; 2, a thread writes it. Of the
# violations of several iterations the first one's stays, as where iterations run in order. Whether a thread
# is done depends on what its release finds, which is always 2: otherwise compilers may move the writing
# behind the loop, where it would wait for threads that run in step with its own and are still in there.
_RECORD = """\
{head} {{
    volatile {space}i64 *seen = errors;
    {space}u32 *record = ({space}u32 *)errors;
    for (;;) {{
        const u32 state = seen[0];
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
        if ({release} == 2)
            return -1;
    }}
}}"""


def violation(fn: Emitter, site: int, axis: str, index: str, extent: str) -> str:
    """An expression of value -1 that records a violation, unless that of an earlier iteration is recorded."""

    def write(fn: Emitter) -> None:
        head = f"i64 tack_violation({fn.dialect.global_space}i64 *errors, i64 site, i64 axis, i64 index, "
        head += "i64 extent, i64 iteration)"
        for line in _RECORD.format(
            head=f"{fn.dialect.function} {head}",
            space=fn.dialect.global_space,
            swap=fn.dialect.atomic("cas", u32, "record", "state", "2"),
            release=fn.dialect.atomic("exchange", u32, "record", "1"),
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
    word = u64 if fn.dialect.has_long_atomics else u32  # in the low half, which counts iterations as far
    slot = f"({fn.dialect.global_space}{word} *)&{fn.name(writers)}[{at}]"
    fn.line(f"{last} = {fn.dialect.atomic('exchange', word, slot, own)};")
    with fn.braces(f"if ({last} != 0 && {last} != {own})"):
        fn.line(f"{violation(fn, fn.unit.sites[id(site)], RACE, at, f'{last} - 1')};")
