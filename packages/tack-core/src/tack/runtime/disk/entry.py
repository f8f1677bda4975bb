"""The format of an entry and of a bundle: data only, checked before anything of it is used.

An entry is a magic string with the format's number, the SHA-256 of the rest, and sections, each
behind its length: the key as JSON, the facts as JSON, then texts and code. A bundle is the same
with an index as its one checked section and the entries, each with its own checksum, behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tack.runtime.disk.content import checksum, digest
from tack.runtime.disk.fastjson import dumps, loads

__all__ = ["FORMAT", "Key", "key_name", "key_text", "pack_bundle", "pack_entry", "read_bundle", "read_entry"]

FORMAT = 2
_MAGIC = b"tack\x00en" + bytes([FORMAT])
_BUNDLE = b"tack\x00bu" + bytes([FORMAT])
_HEAD = len(_MAGIC) + 32
_LENGTH = struct.Struct("<Q")

# The named parts of a key, in order.
Key = list[tuple[str, Any]]


def key_text(key: Key) -> str:
    """A key as it is hashed, stored and compared."""
    return dumps(key)


def key_name(text: str) -> str:
    """The file name of the entry with this key, without its suffix."""
    return digest(text)


def pack_entry(text: str, facts: Mapping[str, Any], sections: Sequence[bytes]) -> bytes:
    """The bytes of an entry."""
    parts = [text.encode(), dumps(facts).encode(), *sections]
    rest = b"".join([piece for part in parts for piece in (_LENGTH.pack(len(part)), part)])
    return b"".join([_MAGIC, checksum(rest), rest])


def read_entry(data: bytes, text: str | None = None) -> tuple[str, dict[str, Any], list[memoryview]] | None:
    """The key's text, the facts and the other sections, which stay where they are in ``data``.

    None if the entry is damaged.

    ``text`` is the key that it must have.
    """
    rest = memoryview(data)[_HEAD:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : _HEAD] != checksum(rest):
        return None
    parts: list[memoryview] = []
    at = 0
    while at < len(rest):
        if at + 8 > len(rest):
            return None
        (length,) = _LENGTH.unpack_from(rest, at)
        at += 8 + length
        if at > len(rest):
            return None
        parts.append(rest[at - length : at])
    try:
        found = str(parts[0], "utf-8")
        if text is not None and found != text:
            return None
        facts = loads(str(parts[1], "utf-8"))
    except (IndexError, ValueError):
        return None
    return (found, facts, parts[2:]) if isinstance(facts, dict) else None


def pack_bundle(entries: Mapping[str, bytes]) -> bytes:
    """The bytes of a bundle of entries by file name."""
    index = dumps([[name, len(data)] for name, data in entries.items()]).encode()
    head = [_BUNDLE, checksum(index), _LENGTH.pack(len(index)), index]
    return b"".join([*head, *entries.values()])


def read_bundle(data: bytes) -> dict[str, memoryview]:
    """The entries of a bundle, each to be checked when it is used.

    Raises:
        ValueError: the bundle is damaged, or not one.
    """
    view = memoryview(data)
    if bytes(view[: len(_BUNDLE)]) != _BUNDLE or len(view) < _HEAD + 8:
        raise ValueError("it is not a bundle of this version of Tack")
    (length,) = _LENGTH.unpack_from(view, _HEAD)
    index = bytes(view[_HEAD + 8 : _HEAD + 8 + length])
    if checksum(index) != bytes(view[len(_BUNDLE) : _HEAD]):
        raise ValueError("it is damaged")
    entries = {}
    at = _HEAD + 8 + length
    for name, size in loads(index.decode()):
        entries[name] = view[at : at + size]
        at += size
    if at != len(view):
        raise ValueError("it is cut short")
    return entries
