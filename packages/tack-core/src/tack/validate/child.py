"""A process that checks one device, or lists them: what `tack.validate.command` starts.

It writes a line of JSON for everything that it knows, at once, so that nothing is lost if it crashes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import tack
from tack.validate.checks import Check, Context, Lacking, load

__all__ = ["main"]

_LONGEST = 1000  # characters of an error


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("checks", nargs="*")
    options = parser.parse_args(argv)
    # What kernels print, or a driver, is not in between.
    stream = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def tell(**fact: Any) -> None:
        print(json.dumps(fact), file=stream, flush=True)

    if options.device is None:
        for fact in _devices():
            tell(**fact)
        return 0
    try:
        device = tack.device(options.device)
    except (RuntimeError, TypeError, ValueError) as error:
        tell(error=str(error))
        return 0
    tack.set_default_device(device)
    from tack.info import about_device

    tell(device=about_device(device))
    context, checks = Context(device, options.quick), load()
    for name in options.checks:
        tell(begin=name)
        tell(end=name, **_outcome(checks[name], context))
    return 0


def _devices() -> list[dict[str, Any]]:
    """Each device with whether it starts, and if not why, and what to do about it."""
    found = []
    for status in tack.devices():
        fact: dict[str, Any] = {"spec": status.spec, "available": status.device is not None}
        if status.device is None:
            try:
                tack.device(status.spec)
            except Exception as error:
                reason, _, fix = str(error).partition("\n  help: ")
                fact |= {"reason": status.reason or reason, "help": fix}
        found.append(fact)
    return found


def _outcome(check: Check, context: Context) -> dict[str, Any]:
    start = perf_counter()
    try:
        status, detail = "passed", check.run(context)
    except Lacking as error:
        status, detail = "lacking", str(error)
    except Exception as error:
        status, detail = "failed", f"{type(error).__name__}: {error}"[:_LONGEST]
    return {"status": status, "detail": detail, "seconds": round(perf_counter() - start, 4)}


if __name__ == "__main__":
    sys.exit(main())
