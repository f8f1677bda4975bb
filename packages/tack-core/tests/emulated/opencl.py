"""Compiles generated OpenCL C to a shared object that runs it on the CPU.

The object exports for each kernel ``emulate_<entry>(void **parameters, const unsigned grid[3],
const unsigned block[3])``, where ``parameters`` are the addresses of the kernel's, and
``describe_<entry>``, which says what those are and how large its blocks have to be (opencl.h).
"""

from __future__ import annotations

import functools
import re

from emulated import compiler

__all__ = ["compile"]

_ENTRY = re.compile(
    r"^__kernel void __attribute__\(\(reqd_work_group_size\(([\d, ]+)\)\)\) (\w+)\(", re.MULTILINE
)
_ATTRIBUTE = re.compile(r"__attribute__\(\(\w+(?:\([^)]*\))?\)\) ")
# Arrays of a workgroup are declared in kernels alone.
_SHARED = re.compile(r"^( +)__local (\w+ \w+\[)", re.MULTILINE)
# What is a name in OpenCL C and a word of C++; the operators' names are an option.
_NAMES = """
    alignas alignof catch char16_t char32_t class const_cast constexpr decltype delete dynamic_cast explicit
    export friend mutable namespace new noexcept nullptr operator private protected public reinterpret_cast
    static_assert static_cast template this thread_local throw try typeid typename using virtual wchar_t
"""


def compile(text: str) -> bytes:
    """The shared object for a translation unit. Objects are kept, by their contents, in a store.

    Raises:
        RuntimeError: the compiler refuses the text; the message is its own.
    """
    entries = _ENTRY.findall(text)
    assert len(entries) == text.count("__kernel "), text
    plain = _SHARED.sub(r"\1static \2", _ATTRIBUTE.sub("", text)).replace("(float4)(", "float4(")
    meeting = int("barrier(" in text)
    launches = "".join(f"\nTACK_EMULATE({name}, {meeting}, {block})" for block, name in entries)
    unit = f'#line 1 "kernel.cl"\n{plain}{launches}\n'
    return compiler.build(_header(), unit, (*compiler.OPTIONS, "-fno-operator-names"))


@functools.cache
def _header() -> str:
    renamed = "".join(f"#define {name} tack_named_{name}\n" for name in _NAMES.split())
    return f"{(compiler.HERE / 'opencl.h').read_text()}{renamed}"
