"""A launch's arguments as the 8-byte slots of `docs/design/ir.md`, its range, and what it prints."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tack.dtypes import ALL_DTYPES, DType
from tack.runtime.array import Array

if TYPE_CHECKING:
    from tack.ir import nodes as ir
    from tack.lang.kernel import Kernel
    from tack.runtime.variants import Variant

__all__ = [
    "DTYPES",
    "PrintSite",
    "check_capturable",
    "join_artifact",
    "launch_range",
    "pack",
    "print_line",
    "print_site",
    "print_template",
    "slot_format",
    "split_artifact",
]

MAX_ITERATIONS: Final = (1 << 63) - 1
DTYPES: Final = {d.name: d for d in ALL_DTYPES}

_FORMATS: Final = {"i8": "b7x", "u8": "B7x", "i16": "h6x", "u16": "H6x", "i32": "i4x", "u32": "I4x"} | {
    "i64": "q",
    "u64": "Q",
    "f32": "f4x",
    "f64": "d",
}


def slot_format(kernel: ir.Kernel, prints: bool) -> str:
    """The slots of a typed kernel as a format of `struct`; ``prints`` adds the one for its output."""
    from tack.ir import nodes as ir

    fields = ["Q" if isinstance(p.type, ir.Array) else _FORMATS[str(p.type)] for p in kernel.params]
    return "=" + "".join(fields) + "qqq" * len(kernel.loop.vars) + ("Q" if prints else "")


def pack(slots: struct.Struct, args: Sequence[Any], launch: Sequence[int], tail: Sequence[int]) -> bytes:
    """The slots of a call."""
    values = [a._address if type(a) is Array else a for a in args]
    try:
        return slots.pack(*values, *launch, *tail)
    except OverflowError:  # a float past f32 is an infinity there
        with np.errstate(over="ignore"):
            values = [float(np.float32(v)) if type(v) is float else v for v in values]
        return slots.pack(*values, *launch, *tail)


def launch_range(
    kernel: Kernel, variant: Variant, args: Sequence[Any], label: str, most: int = MAX_ITERATIONS
) -> tuple[int, list[int]]:
    """The number of iterations, and start, step and count of each dimension, flat.

    Raises:
        ValueError: more than ``most`` iterations, or more than an i64 counts; ``label`` is the device.
        ZeroDivisionError: the bound divides by zero.
    """
    total = 1
    launch: list[int] = []
    for start, step, count in variant.launch_range(args):
        total *= count
        launch += (start, step, count)
    if total > most or any(abs(value) > MAX_ITERATIONS for value in launch):
        if total:
            most = min(most, MAX_ITERATIONS)
            message = f"{total} iterations; a launch on {label} has at most {most}"
            raise ValueError(f"kernel '{kernel.__name__}': {message}")
        return 0, [0] * len(launch)
    return total, launch


def check_capturable(kernel: Kernel, program: Any) -> None:
    """Raises ``RuntimeError`` unless a graph can launch ``program``: at its end nobody looks at anything."""
    if program.result_dtype is not None or program.prints:
        what = "has a result" if program.result_dtype is not None else "prints"
        raise RuntimeError(f"kernel '{kernel.__name__}' {what}, which a captured launch has no place for")


# --- artifacts --------------------------------------------------------------------------------


def join_artifact(about: dict[str, Any], code: bytes) -> bytes:
    """Compiled code with what launches need to know of it: the length of that, itself as JSON, the code."""
    from tack.runtime.disk.fastjson import dumps

    data = dumps(about).encode()
    return struct.pack("<I", len(data)) + data + code


def split_artifact(data: bytes) -> tuple[dict[str, Any], bytes]:
    """What `join_artifact` joined.

    Raises:
        ValueError: it is something else.
    """
    from tack.runtime.disk.fastjson import loads

    length = int.from_bytes(data[:4], "little")
    return loads(data[4 : 4 + length].decode()), data[4 + length :]


# --- print ------------------------------------------------------------------------------------

PrintSite = list[str | DType]


def print_template(site: ir.Print) -> list[str | list[str]]:
    """A print statement's strings, and the dtypes of its values, each in a list of its own: JSON."""
    return [part if isinstance(part, str) else [str(part.type)] for part in site.parts]


def print_site(template: Sequence[str | list[str]]) -> PrintSite:
    """The same with dtypes that can be used."""
    return [part if isinstance(part, str) else DTYPES[part[0]] for part in template]


def print_line(site: PrintSite, values: bytes) -> str:
    """The line of one print; ``values`` are its values in 8-byte slots."""
    texts = []
    at = 0
    for part in site:
        if isinstance(part, str):
            texts.append(part)
            continue
        texts.append(str(np.frombuffer(values, part.numpy, 1, at)[0]))
        at += 8
    return "".join(texts) + "\n"
