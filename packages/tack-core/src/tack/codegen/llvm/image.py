"""From an object file to an image: code that is linked, but for where it will be.

LLVM's own linker needs LLVM in memory, which takes longer to load than all else that a process does
before it launches a kernel from the disk cache. An image is copied into memory as it is. It begins with a
slot for the address of each function of the C library that it calls, which the loader fills in.

This reads the objects that `jit` emits for x86-64 in the ELF format: small, position-independent code that
holds no addresses. For anything else `link` gives None, and LLVM compiles what it can load.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

__all__ = ["link"]

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_MACHINE, _RELOCATABLE = 62, 1
_SYMBOLS, _RELOCATIONS, _NO_BITS = 2, 4, 8
_WRITTEN, _LOADED = 1, 2
_GLOBAL = 1
_RELATIVE, _CALL, _SLOTS = 2, 4, (9, 41, 42)  # R_X86_64_PC32, PLT32, and GOTPCREL in three forms
_JUMP = b"\xff\x25"  # jmp *offset(%rip)
_ALIGNMENT = 64


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


def link(data: bytes) -> tuple[bytes, dict[str, Any]] | None:
    """The image of an object file, and what its loader has to know; None if there can be none.

    That is ``exports``, the offset of each of its functions in the image, and ``imports``, the names of
    those that it calls, in the order of their slots.
    """
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (_RELOCATABLE, _MACHINE):
        return None
    try:
        return _Linker(data).image()
    except LookupError:
        return None


class _Linker:
    """Reads one object; LookupError where it holds what an image cannot have."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        (start,) = struct.unpack_from("<Q", data, 0x28)
        size, count = struct.unpack_from("<HH", data, 0x3A)
        self.sections = [_Section(*_SECTION.unpack_from(data, start + k * size)) for k in range(count)]
        table = next(s for s in self.sections if s.kind == _SYMBOLS)
        strings = self.sections[table.link].offset
        entries = data[table.offset : table.offset + table.size]
        self.symbols = [_Symbol(*fields) for fields in _SYMBOL.iter_unpack(entries)]
        self.names = [_text(data, strings + symbol.name) for symbol in self.symbols]
        self.imports = [
            name for name, symbol in zip(self.names, self.symbols, strict=True) if name and not symbol.section
        ]
        self.stubs: dict[str, int] = {}

    def image(self) -> tuple[bytes, dict[str, Any]]:
        out = bytearray(8 * len(self.imports))
        places: dict[int, int] = {}
        for number, section in enumerate(self.sections):
            if not section.flags & _LOADED or not section.size:
                continue
            if section.flags & _WRITTEN or section.kind == _NO_BITS or section.alignment > _ALIGNMENT:
                raise LookupError("a section that an image cannot have")
            out += bytes(-len(out) % max(section.alignment, 1))
            places[number] = len(out)
            out += self.data[section.offset : section.offset + section.size]
        for name in self.imports:  # behind the code, so that a slot is near
            self.stubs[name] = len(out)
            out += _JUMP + struct.pack("<i", 8 * self.imports.index(name) - len(out) - 6)
        for section in self.sections:
            if section.kind == _RELOCATIONS and section.info in places:
                entries = self.data[section.offset : section.offset + section.size]
                for fields in _RELOCATION.iter_unpack(entries):
                    self._relocate(out, places, places[section.info], *fields)
        exports = {
            name: places[symbol.section] + symbol.value
            for name, symbol in zip(self.names, self.symbols, strict=True)
            if symbol.info >> 4 == _GLOBAL and symbol.section in places
        }
        return bytes(out), {"exports": exports, "imports": self.imports}

    def _relocate(
        self, out: bytearray, places: dict[int, int], base: int, offset: int, info: int, addend: int
    ) -> None:
        """Fills one reference in: all are relative to where they stand."""
        number, kind = info >> 32, info & 0xFFFFFFFF
        symbol, name = self.symbols[number], self.names[number]
        if kind in _SLOTS and name in self.imports:
            target = 8 * self.imports.index(name)
        elif kind in (_RELATIVE, _CALL) and symbol.section:
            target = places[symbol.section] + symbol.value
        elif kind in (_RELATIVE, _CALL):
            target = self.stubs[name]
        else:
            raise LookupError("a reference of another kind")
        struct.pack_into("<i", out, base + offset, target + addend - (base + offset))


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
