"""``print``: a record of the site's number and the values, which the host turns into a line."""

from __future__ import annotations

from tack.codegen.c.emitter import Emitter, Unit
from tack.codegen.c.expressions import dtype_of, value
from tack.codegen.c.terms import cast, exact
from tack.dtypes import u32, u64
from tack.ir.nodes import Bounds, Expr, NonZero, Print
from tack.ir.traversal import walk

__all__ = ["BUFFER", "emit_print"]

# The parameter that has the print buffer's address.
BUFFER = "tack_print"


def emit_print(fn: Emitter, node: Print) -> None:
    parts = [part for part in node.parts if isinstance(part, Expr)]
    if not fn.dialect.has_print:
        for part in parts:  # of which debug mode checks some
            if any(isinstance(n, Bounds | NonZero) for n in walk(part)):
                fn.line(f"(void)({value(fn, part).text});")
        return
    values = [_word(fn, part) for part in parts]
    with fn.braces():
        fn.line(f"{fn.dialect.global_space}u64 *tack_record = {_claim(fn.unit)}({BUFFER}, {1 + len(parts)});")
        with fn.braces("if (tack_record)"):
            for position, word in enumerate((fn.unit.sites[id(node)], *values)):
                fn.line(f"tack_record[{position}] = {word};")


def _word(fn: Emitter, part: Expr) -> str:
    """A value in the low bytes of a word."""
    dtype = dtype_of(part)
    term = exact(value(fn, part), dtype)
    if not dtype.is_float:
        return cast("u64", term).text
    bits = u32 if dtype.bits == 32 else u64
    return f"({bits}){fn.dialect.bitcast(term.text, dtype, bits)}"


def _claim(unit: Unit) -> str:
    """A function that gives the address of so many words of the buffer, or null if they are not left."""

    def write(fn: Emitter) -> None:
        d = fn.dialect
        with fn.function(
            f"{d.function} {d.global_space}u64 *tack_claim({d.global_space}u64 *buffer, u64 words)"
        ):
            fn.line(f"const u64 at = {d.atomic('add', u64, 'buffer', 'words')};")
            fn.line("if (at + words <= buffer[1])")
            fn.line("    return buffer + 2 + at;")
            fn.line("if (at < buffer[1])  // the end of the records")
            fn.line("    buffer[2 + at] = ~(u64)0;")
            fn.line("return 0;")

    return unit.helper("tack_claim", write)
