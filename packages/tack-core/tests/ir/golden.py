"""Golden tests of passes: text in, text out.

A file holds one case: a line ``// pass: NAME``, a kernel, a line ``// ---``, and the kernel that the
pass makes of it. Other comments before the second kernel say what the case shows. With
``TACK_UPDATE_GOLDEN=1`` in the environment the second kernel is written anew; read the diff.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

from tack.ir.nodes import Kernel
from tack.ir.parser import parse
from tack.ir.printer import to_text
from tack.ir.verify import verify

__all__ = ["check_pass", "pass_name"]

_SEPARATOR = "// ---\n"


def pass_name(path: Path) -> str:
    """The pass that the case in ``path`` is about."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith("// pass: "), f"{path}: the first line is not '// pass: NAME'"
    return first.removeprefix("// pass: ").strip()


def check_pass(name: str, pass_fn: Callable[[Kernel], Kernel], path: Path) -> None:
    """Checks what ``pass_fn`` makes of the case in ``path``; it leaves its input as it was.

    Raises:
        AssertionError: the result differs, or the file is not a case of the pass ``name``.
        ValueError, VerificationError: a kernel is malformed or invalid, the result included.
    """
    assert pass_name(path) == name, f"{path} is a case of another pass than {name!r}"
    given, separator, expected = path.read_text(encoding="utf-8").partition(_SEPARATOR)
    kernel = parse(given)
    verify(kernel)
    before = to_text(kernel)
    result = pass_fn(kernel)
    verify(result)
    found = to_text(result) + "\n"
    assert to_text(kernel) == before, f"pass {name!r} changed its input"
    assert to_text(parse(found)) + "\n" == found
    if os.environ.get("TACK_UPDATE_GOLDEN") == "1":
        path.write_text(given + _SEPARATOR + found, encoding="utf-8")
        return
    assert separator, f"{path} has no line '// ---'; TACK_UPDATE_GOLDEN=1 adds the expected text"
    if found != expected:
        diff = difflib.unified_diff(
            expected.splitlines(), found.splitlines(), "expected", "found", lineterm=""
        )
        raise AssertionError("\n".join([f"{path}: pass {name!r} gives another kernel", *diff]))
