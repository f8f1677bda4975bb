"""The device under test: the one that ``--target`` names. What it can do decides, and never which it is."""

from __future__ import annotations

from steered import (  # noqa: F401
    backend,
    busy,
    default_target,
    dispatch,
    emulated,
    in_a_process,
    later,
    settled_heap,
    steering,
)
