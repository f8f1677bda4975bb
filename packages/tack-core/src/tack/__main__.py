"""``python -m tack``: what a person asks of an installation."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tack", description="Tack, kernels in Python.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    info = commands.add_parser("info", help="show versions, devices and settings")
    info.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)

    from tack.info import collect, render

    facts = collect()
    print(json.dumps(facts, indent=2) if options.json else render(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
