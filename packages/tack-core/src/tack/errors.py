"""Exceptions, and the diagnostics that compile-time errors carry.

The tree: `UnsupportedSyntaxError` for syntax and structure, `CacheWarning` for the disk cache.
Everything else uses Python's own types: `NameError`, `TypeError`, `ValueError`, `RuntimeError`,
`IndexError`, `ZeroDivisionError`, `MemoryError` and `BufferError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tack.lang.source import Loc

__all__ = ["CacheWarning", "UnsupportedSyntaxError", "diagnostic", "did_you_mean"]

E = TypeVar("E", bound=Exception)


class UnsupportedSyntaxError(NotImplementedError):
    """A construct that the kernel language does not have.

    ``filename``, ``lineno``, ``offset`` (both 1-based) and ``text`` give its place, as on
    `SyntaxError`.
    """

    filename: str | None = None
    lineno: int | None = None
    offset: int | None = None
    text: str | None = None


class CacheWarning(RuntimeWarning):
    """The disk cache cannot be used as it should, and kernels compile without it."""


def diagnostic(
    kind: type[E],
    message: str,
    loc: Loc | None,
    *,
    kernel: str | None = None,
    hint: str | None = None,
    notes: tuple[tuple[str, Loc], ...] = (),
) -> E:
    """An exception of type ``kind`` whose text shows ``message`` at ``loc``.

    It names the kernel, the file, line and column, shows the source line with a caret under the
    construct, then the chain of device functions that were inlined on the way, further ``notes``
    with places of their own, and the ``hint`` that says what to change.
    """
    if kernel is None and loc is not None:
        kernel = loc.root.source.name
    lines = [f"kernel '{kernel}': {message}" if kernel else message]
    if loc is not None:
        lines.append(_excerpt(loc))
        call = loc
        while call.caller is not None:
            outer = call.caller.source
            lines.append(
                f"  in func '{call.source.name}', called from {outer.kind} '{outer.name}', "
                f"at {call.caller.place}"
            )
            call = call.caller
    for text, place in notes:
        lines += [f"  note: {text}", _excerpt(place)]
    if hint:
        lines.append(f"  help: {hint}")
    error = kind("\n".join(lines))
    error.__dict__["is_diagnostic"] = True  # so that a launch shows it without the compiler's frames
    if isinstance(error, UnsupportedSyntaxError) and loc is not None:
        error.filename, error.lineno, error.offset = loc.source.filename, loc.line, loc.col
        error.text = loc.text
    return error


def _excerpt(loc: Loc) -> str:
    """The place, the source line, and a caret line under it."""
    text = loc.text.rstrip()
    end = loc.end_col if loc.end_line == loc.line else len(text) + 1
    # Tabs stay tabs, so that the carets line up however wide the terminal shows them.
    pad = "".join("\t" if c == "\t" else " " for c in text[: loc.col - 1])
    marks = "^" * max(1, min(end, len(text) + 1) - loc.col)
    number = str(loc.line)
    gutter = " " * len(number)
    return f"  --> {loc.place}\n   {gutter} |\n   {number} | {text}\n   {gutter} | {pad}{marks}"


def did_you_mean(name: str, known: object) -> str | None:
    """A hint naming the closest of ``known`` (an iterable of names), if one is close."""
    import difflib

    close = difflib.get_close_matches(name, [str(k) for k in known], n=1)  # type: ignore[attr-defined]
    return f"did you mean '{close[0]}'?" if close else None
