"""Kernels from generated text, and checks that a kernel is rejected at the marked place."""

from __future__ import annotations

import itertools
import linecache
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest

import tack

from .upload import narrowed

Printed = TypeVar("Printed", str, list[str])
OPEN, CLOSE = "«", "»"  # mark the construct that a diagnostic must point to
_numbers = itertools.count()


def execute(source: str, filename: str | None = None, **names: Any) -> dict[str, Any]:
    """The namespace after running ``source``, whose text is registered under ``filename``."""
    source = textwrap.dedent(source).lstrip("\n")
    filename = filename or f"<conformance-{next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"tack": tack, "math": math, "np": np, "__name__": "generated", **names}
    exec(compile(source, filename, "exec"), space)
    return space


def build(source: str, name: str = "kernel", **names: Any) -> Any:
    """The kernel (or other object) called ``name`` that ``source`` defines."""
    return execute(source, **names)[name]


def run(source: str, *args: Any, **names: Any) -> Any:
    """Builds ``kernel`` from ``source``, calls it, and returns what it returns."""
    return launch(build(source, **names), *args)


def launch(kernel: Any, *args: Any) -> Any:
    """Calls ``kernel``; what that means for NumPy arrays on other devices is said in `upload`.

    Those without dimensions may stand for numbers, and so are left alone there; here they are arrays.
    """
    if tack.default_device().name == "cpu":
        return kernel(*args)
    moved = [tack.asarray(narrowed(a)) if isinstance(a, np.ndarray) and a.ndim == 0 else a for a in args]
    result = kernel(*moved)
    for host, device in zip(args, moved, strict=True):
        if device is not host and host.flags.writeable:
            tack.copyto(host, device)
    return result


@contextmanager
def atomics_on(name: str) -> Iterator[None]:
    """A block that launches a kernel with atomics on elements of a dtype, which some devices refuse."""
    device = tack.default_device()
    refused_before = name == "f64" and not device.supports_f64
    if refused_before or name in (dtype.name for dtype in device.supported_atomic_dtypes):
        yield
        return
    with pytest.raises(TypeError, match=f"{device.label} has no atomics on {name}; it has them on i32"):
        yield


def is_refusal(error: BaseException) -> bool:
    """Whether it is the error by which the default device refuses f64, in an array or in a kernel.

    The first line is compared whole.
    """
    device = tack.default_device()
    supported = ", ".join(dtype.name for dtype in device.supported_dtypes)
    line = str(error).partition("\n")[0]
    wanted = rf"(kernel '\w+': )?{re.escape(device.label)} has no f64"
    wanted += rf"(, the scalar of [^;]+| for '[\w.]+')?; it supports: {supported}"
    return type(error) is TypeError and re.fullmatch(wanted, line) is not None


def said(printed: Printed) -> Printed:
    """What a test finds of ``printed``, a text or lines: nothing where ``print`` does nothing."""
    return printed if tack.default_device().supports_print else type(printed)()


def values(expressions: Sequence[str], dtype: Any, /, *, setup: str = "", **args: Any) -> list[Any]:
    """What each expression gives when stored to an element of ``dtype``.

    ``args`` become the kernel's parameters (scalars and arrays); names that start with an
    underscore are globals of the kernel instead. ``setup`` is statements before the stores.
    """
    params = ", ".join(["out", *(k for k in args if not k.startswith("_"))])
    lines = [*textwrap.dedent(setup).splitlines()]
    lines += [f"out[{k}] = {text}" for k, text in enumerate(expressions)]
    body = "\n".join("        " + line for line in lines)
    source = f"@tack.kernel\ndef kernel({params}):\n    for _i in range(1):\n{body}\n"
    names = {k[1:]: v for k, v in args.items() if k.startswith("_")}
    out = np.zeros(len(expressions), dtype)
    launch(build(source, **names), out, *(v for k, v in args.items() if not k.startswith("_")))
    return list(out.tolist())


def value(expression: str, dtype: Any, /, *, setup: str = "", **args: Any) -> Any:
    """What one expression gives; see `values`."""
    return values([expression], dtype, setup=setup, **args)[0]


class Rejection(NamedTuple):
    """What `reject` found: the error, its text, and the place it named."""

    error: Exception
    text: str
    path: str
    line: int
    column: int


def mark(source: str) -> tuple[str, list[tuple[int, int]]]:
    """``source`` dedented and without its markers, and the 1-based line and column of each."""
    source = textwrap.dedent(source).lstrip("\n")
    places = []
    for number, line in enumerate(source.splitlines(), 1):
        places += [
            (number, line[: m.start()].replace(OPEN, "").replace(CLOSE, "")) for m in re.finditer(OPEN, line)
        ]
    return source.replace(OPEN, "").replace(CLOSE, ""), [(line, len(before) + 1) for line, before in places]


def reject(
    directory: Path,
    kind: type[Exception] | tuple[type[Exception], ...],
    source: str,
    *args: Any,
    **names: Any,
) -> Rejection:
    """Checks that calling ``kernel`` of ``source`` raises ``kind`` at the construct in «marks».

    With several marks, any of their starts will do: the specification leaves it open. The call is
    made twice: a kernel that failed to compile must fail again. Arrays must keep their values.
    """
    source, places = mark(source)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    path = directory / f"source_{next(_numbers)}.py"
    path.write_text(source, encoding="utf-8")
    kernel = execute(source, str(path), **names)["kernel"]
    before = [a.copy() if isinstance(a, np.ndarray) else None for a in args]
    texts = []
    for _ in range(2):
        with pytest.raises(Exception) as raised:  # noqa: PT011
            launch(kernel, *args)
        caught = raised.value
        expected = " or ".join(k.__name__ for k in kinds)
        assert type(caught) in kinds, f"expected {expected} at {places}, got {caught!r}\n{source}"
        texts.append(str(caught))
    text = texts[0]
    assert texts[1] == text, f"the second call raised something else:\n{text}\n{texts[1]}"
    named = [(n, c) for n, c in places if re.search(re.escape(f"{path}:{n}:{c}") + r"\b", text)]
    assert named, f"expected a diagnostic at {path} {places}, got:\n{text}"
    line, column = named[0]
    if isinstance(caught, tack.UnsupportedSyntaxError):
        found = (caught.lineno, caught.offset)
        assert found in named, f"position fields {found}, expected one of {named}"
        line, column = caught.lineno or 0, caught.offset or 0
        assert caught.filename == str(path)
        assert caught.text is not None
        assert caught.text.rstrip("\n") == source.splitlines()[line - 1]
    for old, new in zip(before, args, strict=True):
        if old is not None:
            np.testing.assert_array_equal(old, new, err_msg="a rejected kernel changed an argument")
    return Rejection(caught, text, str(path), line, column)


def same(got: Iterable[Any], expected: Iterable[Any], labels: Iterable[Any] | Mapping[Any, Any]) -> None:
    """Asserts equality item by item, NaN equal to NaN and zeros by sign, naming what differs."""
    wrong = [
        f"{label}: got {g!r}, expected {e!r}"
        for g, e, label in zip(got, expected, labels, strict=True)
        if not identical(g, e)
    ]
    assert not wrong, "\n".join(wrong[:20]) + (f"\n... {len(wrong)} in all" if len(wrong) > 20 else "")


def identical(a: Any, b: Any) -> bool:
    """Equality in which NaN equals NaN and 0.0 differs from -0.0."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
    return bool(a == b)
