"""Compiles generated MSL to a shared object that runs it on the CPU, and says what its functions take.

The object exports ``emulate_<entry>(void **parameters, const unsigned grid[3], const unsigned block[3])`` for
each kernel function: the first parameter is the address of its structure of arguments, and the others are
those of its textures (`tack_texture` in msl.h).

Each unit is checked too, by clang as C++ for OpenCL, whose rules for address spaces are Metal's.
"""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from emulated import compiler, together

__all__ = ["CHECK", "Function", "MslError", "check", "checked_unit", "compile", "functions"]

_ENTRY = re.compile(
    r"struct (?P<struct>\w+) \{\n(?P<members>[^}]*)\};\n\n"
    r"\[\[kernel, max_total_threads_per_threadgroup\((?P<threads>\d+)\)\]\] void (?P<name>\w+)\(\n"
    r"    constant (?P=struct) &tack_arguments \[\[buffer\(0\)\]\],\n"
    r"(?P<textures>(?:    texture3d<float> .*\n)*)"
)
_MEMBER = re.compile(r"    alignas\(8\) (?P<type>[^;]*?)(?P<name>\w+);\n")
_ATTRIBUTE = re.compile(r" ?\[\[[^\]]*\]\]\s?")
_KERNEL = re.compile(r"\[\[kernel, [^\]]*\]\] void")
_SAMPLER = re.compile(r"^constexpr sampler (\w+)\((.*)\);$", re.MULTILINE)
# A type and the star or ampersand of a pointer or reference; operators have spaces around them.
_POINTER = re.compile(r"\b[a-z]\w*(?: \w+)* [*&](?=[\w)])")
_SPACES = {"device", "constant", "threadgroup", "thread"}
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
    check(text, strict=False)
    plain = _SHARED.sub(r"\1static \2", _plain(text))
    launches = "".join(_launch(function, "threadgroup_barrier" in text) for function in functions(text))
    unit = f'#line 1 "kernel.metal"\n{plain}{launches}'
    try:
        return compiler.build(_header(), unit, options)
    except RuntimeError as error:
        raise MslError(str(error)) from None


def _plain(text: str) -> str:
    """A unit in what C++ and C++ for OpenCL have in common."""
    plain = text.replace("#include <metal_stdlib>\n", "")
    return _SAMPLER.sub(r"constant sampler \1 = {\2};", _ATTRIBUTE.sub(" ", plain))


# Keywords of OpenCL that are names in MSL.
_KEYWORDS = (
    *("local", "global", "generic", "pipe", "read_only", "write_only", "read_write", "vec_step"),
    *("addrspace_cast", "image1d_t", "image1d_array_t", "image1d_buffer_t", "image2d_t", "image2d_array_t"),
    *("image2d_depth_t", "image2d_array_depth_t", "image2d_msaa_t", "image2d_array_msaa_t", "image3d_t"),
    *("image2d_msaa_depth_t", "image2d_array_msaa_depth_t"),
)
CHECK = (
    *("clang-19", "-x", "clcpp", "-cl-std=CLC++2021", "-target", "spir64"),
    *(f"-D{name}=tack_{name}" for name in _KEYWORDS),
    *("-cl-no-stdinc", "-Xclang", "-cl-ext=-all"),  # no function of OpenCL, no f64, no generic address space
    *("-D__METAL_VERSION__=320", "-fsyntax-only", "-"),
)
# Parameters are the slots of a launch, and helpers what a unit may need, so some of either are not used.
_UNUSED = ("-Wno-unused", "-Wno-unused-parameter", "-Wno-unused-but-set-parameter")
_STRICT = ("-Wall", "-Wextra", "-Werror", *_UNUSED)


def checked_unit(text: str) -> str:
    """A unit as `CHECK`, clang's command, reads it."""
    return f"{_header()}\n{_checked(text)}"


def _checked(text: str) -> str:
    return f'#line 1 "kernel.metal"\n{_plain(_KERNEL.sub("__kernel void", text))}'


def check(text: str, *, strict: bool = True) -> None:
    """Checks that a unit converts no address space to another, has no f64, and, if ``strict``, gives no
    warning.

    Raises:
        MslError: what the compiler says, or where a pointer does not say what it points to.
    """
    command = (*CHECK, *(_STRICT if strict else ("-w",)))
    if (shared := together.current()) is not None:
        _check_pointers(text)
        shared.ask(_Checks(command), text)
        return
    unit = checked_unit(text)
    digest = hashlib.sha256("\0".join((unit, *command)).encode()).hexdigest()
    kept = compiler.store() / digest[:2] / f"{digest}.checked"
    if kept.exists():
        return
    _check_pointers(text)
    _check(unit, command, text)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.touch()


def _check_pointers(text: str) -> None:
    """In MSL one without an address space is an error."""
    for pointer in _POINTER.finditer(text):
        if not _SPACES.intersection(pointer[0].split()):
            raise MslError(f"'{pointer[0]}' has no address space\n{text}")


def _check(unit: str, command: Sequence[str], text: str) -> None:
    done = subprocess.run(command, input=unit, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MslError(f"{done.stderr}\n{text}")


class _Checks(NamedTuple):
    """Checks many units as one."""

    command: tuple[str, ...]

    def __call__(self, texts: list[str]) -> list[MslError | None]:
        unit = compiler.joined(_header(), [_checked(text) for text in texts])
        try:
            _check(unit, self.command, "\n".join(texts))
        except MslError as error:
            if len(texts) == 1:
                return [error]
            return [found for text in texts for found in self([text])]  # which of them is it?
        return [None] * len(texts)


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
