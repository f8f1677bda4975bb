"""JSON by the interpreter's own scanner and encoder; `json` around them takes a millisecond to load."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

__all__ = ["dumps", "loads"]


def _functions() -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    try:
        own = importlib.import_module("_json")
        scan = own.make_scanner(
            SimpleNamespace(
                strict=True,
                object_hook=None,
                object_pairs_hook=None,
                parse_float=float,
                parse_int=int,
                parse_constant=float,
            )
        )
        # No markers, default or indent; the two separators; no sorting or skipping; NaN allowed.
        encode = own.make_encoder(None, None, own.encode_basestring_ascii, None, ":", ",", False, False, True)
    except (ImportError, AttributeError, TypeError):  # an interpreter without them, or with others
        import json

        return json.JSONEncoder(separators=(",", ":")).encode, json.loads

    def dumps(data: Any) -> str:
        return "".join(encode(data, 0))

    def loads(text: str) -> Any:
        try:
            found, end = scan(text, 0)
        except StopIteration:
            found, end = None, -1
        if end != len(text):
            raise ValueError("not JSON")
        return found

    return dumps, loads


dumps, loads = _functions()
