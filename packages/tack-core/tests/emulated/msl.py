"""Compiles generated MSL to a shared object that runs it on the CPU, and says what its functions take.

The object exports ``emulate_<entry>(void **parameters, const unsigned grid[3], const unsigned block[3])`` for
each kernel function: the first parameter is the address of its structure of arguments, and the others are
those of its textures (`tack_texture` in msl.h).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from emulated import compiler

__all__ = ["Function", "MslError", "compile", "functions"]

_ENTRY = re.compile(
    r"struct (?P<struct>\w+) \{\n(?P<members>[^}]*)\};\n\n"
    r"\[\[kernel, max_total_threads_per_threadgroup\((?P<threads>\d+)\)\]\] void (?P<name>\w+)\(\n"
    r"    constant (?P=struct) &tack_arguments \[\[buffer\(0\)\]\],\n"
    r"(?P<textures>(?:    texture3d<float> .*\n)*)"
)
_MEMBER = re.compile(r"    alignas\(8\) (?P<type>[^;]*?)(?P<name>\w+);\n")
_ATTRIBUTE = re.compile(r" ?\[\[[^\]]*\]\]\s?")
# Arrays of a threadgroup are declared in kernel functions alone.
_SHARED = re.compile(r"^( +)threadgroup (\w+ \w+\[)", re.MULTILINE)


class MslError(Exception):
    """What the compiler says of a text that it refuses."""


class Function(NamedTuple):
    """A kernel function: which of its arguments, 8 bytes each, are pointers; how many textures it has."""

    name: str
    pointers: tuple[bool, ...]
    textures: int
    max_threads: int


def functions(text: str) -> list[Function]:
    """The kernel functions of a unit, in their order."""
    found = []
    for entry in _ENTRY.finditer(text):
        members = _MEMBER.findall(entry["members"])
        assert "".join(f"    alignas(8) {kind}{name};\n" for kind, name in members) == entry["members"], text
        listed = re.findall(r"\[\[texture\((\d+)\)\]\]", entry["textures"])
        assert listed == [str(k) for k in range(len(listed))], text
        pointers = tuple("*" in kind for kind, _ in members)
        found.append(Function(entry["name"], pointers, len(listed), int(entry["threads"])))
    return found


def compile(text: str, options: Sequence[str] = compiler.OPTIONS) -> bytes:
    """The shared object for a translation unit. Objects are kept, by their contents, in a store.

    Raises:
        MslError: the compiler refuses the text.
    """
    plain = text.replace("#include <metal_stdlib>\n", "")
    plain = _SHARED.sub(r"\1static \2", _ATTRIBUTE.sub(" ", plain))
    launches = "".join(_launch(function, "threadgroup_barrier" in text) for function in functions(text))
    unit = f'{_header()}\n#line 1 "kernel.metal"\n{plain}{launches}'
    try:
        return compiler.build(unit, options)
    except RuntimeError as error:
        raise MslError(str(error)) from None


def _launch(function: Function, meeting: bool) -> str:
    textures = "".join(
        f"texture3d<float>{{(const tack_texture *)p[{k}]}}, " for k in range(1, 1 + function.textures)
    )
    return (
        f'\nextern "C" __attribute__((visibility("default"))) void emulate_{function.name}(\n'
        "    void **parameters, const unsigned grid[3], const unsigned block[3]) {\n"
        "    tack_launch([](void **p) {\n"
        f"        {function.name}(*(const tack_{function.name}_arguments *)p[0], {textures}\n"
        "            blockIdx, threadIdx, blockDim, gridDim);\n"
        f"    }}, {int(meeting)}, parameters, grid, block);\n}}\n"
    )


@functools.cache
def _header() -> str:
    return (compiler.HERE / "msl.h").read_text()
