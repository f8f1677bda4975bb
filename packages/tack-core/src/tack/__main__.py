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
    check = commands.add_parser("validate", help="check that devices compute what they should")
    check.add_argument("--device", help="the one to check, such as cuda:1; without it, all that there are")
    check.add_argument("--quick", action="store_true", help="take smaller problems")
    check.add_argument("--only", action="append", default=[], metavar="CHECK", help="run this check alone")
    about = "write the report to a file as JSON, or print it instead of the table"
    check.add_argument("--json", nargs="?", const="-", metavar="FILE", help=about)
    options = parser.parse_args(argv)
    return _info(options) if options.command == "info" else _validate(options)


def _info(options: argparse.Namespace) -> int:
    from tack.info import collect, render

    facts = collect()
    print(json.dumps(facts, indent=2) if options.json else render(facts))
    return 0


def _validate(options: argparse.Namespace) -> int:
    from tack.validate.command import validate

    def say(text: str) -> None:
        if options.json != "-":
            print(text, flush=True)

    try:
        report = validate(options.device, quick=options.quick, only=options.only, say=say)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    text = json.dumps(report, indent=2, ensure_ascii=False)
    if options.json == "-":
        print(text)
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        print(f"the report is in {options.json}")
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
