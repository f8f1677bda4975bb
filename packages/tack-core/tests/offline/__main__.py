"""The command line: ``python -m offline FOLDER [--compiler NAME [--arch NAME]] [--sample N]``.

Ends with status 1 if a source does not compile, or gives a warning that may be our mistake, and if a compiler
that ``TACK_REQUIRE_COMPILERS`` names is not there or has no source.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from offline.compilers import COMPILERS, required
from offline.sweep import sweep


def main() -> int:
    names = sorted({compiler.name for compiler in COMPILERS})
    parser = argparse.ArgumentParser(prog="python -m offline")
    parser.add_argument("folder", type=Path, help="what TACK_TEST_SOURCES named")
    parser.add_argument("--compiler", action="append", choices=names, help="one of them; else all")
    parser.add_argument("--arch", action="append", help="an architecture; else the usual ones")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="take every N-th source")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    options = parser.parse_args()
    try:
        needed = required()
    except ValueError as error:
        parser.error(str(error))
    is_clean = True
    chosen = []
    for compiler in COMPILERS:
        if compiler.name in (options.compiler or names):
            missing = compiler.missing()
            if missing is None:
                chosen.append(compiler._replace(architectures=tuple(options.arch or compiler.architectures)))
            else:
                print(f"{compiler.name}: {missing}", flush=True)
                is_clean &= compiler.name not in needed
    for outcome in sweep(options.folder, chosen, options.sample, options.workers):
        print(outcome, flush=True)
        for name, messages in outcome.failures.items():
            print(f"  {name} does not compile:\n{messages[:2000]}")
        for kind, message in outcome.messages.items():
            print(f"  {kind}: {message}")
        is_clean &= not (outcome.failures or outcome.alarming)
        is_clean &= outcome.count > 0 or outcome.compiler.name not in needed
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
