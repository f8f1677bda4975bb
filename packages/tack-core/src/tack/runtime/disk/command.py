"""``python -m tack.cache``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from tack import cache
from tack.runtime.disk.config import UNLIMITED, mpi_rank

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tack.cache", description="Tack's kernel cache on disk.")
    commands = parser.add_subparsers(dest="command", required=True)
    about = {
        "info": "settings, entries and size",
        "prune": "delete the least recently used entries past the size limit",
        "clear": "delete this Tack version's entries",
        "pack": "put this version's entries into one file for MPI jobs",
    }
    for name, text in about.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="print JSON")
        if name == "prune":
            command.add_argument("--max-size", metavar="SIZE", help="another limit, such as 200M")
        if name == "clear":
            command.add_argument("--all", action="store_true", help="every version's, and the bundles")
    options = parser.parse_args(argv)
    try:
        facts = _run(options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(facts, indent=2) if options.json else _table(options.command, facts))
    return 0


def _run(options: argparse.Namespace) -> dict[str, Any]:
    if options.command == "info":
        return cache.info()
    if options.command == "prune":
        return cache.prune(options.max_size)
    if options.command == "clear":
        return cache.clear(all=options.all)
    return cache.pack()


def _table(command: str, facts: dict[str, Any]) -> str:
    if command == "pack":
        return f"packed {facts['entries']} entries, {_bytes(facts['bytes'])}, into {facts['path']}"
    if command != "info":
        return f"deleted {facts['deleted']} entries, {_bytes(facts['freed'])}"
    rank = mpi_rank()
    limit = facts["max_size"]
    rows = [
        ("directory", facts["directory"] or "none: there is no home directory"),
        ("mode", facts["mode"] + ("" if rank is None else f" (rank {rank} of an MPI job)")),
        ("size limit", "unlimited" if limit in (None, UNLIMITED) else _bytes(limit)),
        ("version", facts["version"] or "unknown"),
        ("entries", f"{facts['entries']}, {_bytes(facts['bytes'])}"),
        (
            "all versions",
            f"{facts['versions']}: {facts['all_entries']} entries, {_bytes(facts['all_bytes'])}",
        ),
        ("bundles", f"{facts['bundles']}, {_bytes(facts['bundle_bytes'])}"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
