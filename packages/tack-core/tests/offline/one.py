"""One batch, in a process of its own, of which a compiler may take too much memory or the life.

python -m offline.one COMPILER ARCHITECTURE FILE ...

Writes what the compiler says, and ends with status 0 if it took the text, and with `REFUSED` if not.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from offline.batches import joined, read_unit
from offline.compilers import COMPILERS

__all__ = ["REFUSED"]

REFUSED = 3
_MEMORY = 8 << 30


def main(name: str, arch: str, *files: str) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    compiler = next(compiler for compiler in COMPILERS if compiler.name == name)
    batch = [read_unit(Path(file)) for file in files]
    is_compiled, messages = compiler.compile(joined(batch), arch, batch[0].options)
    sys.stdout.write(messages)
    return 0 if is_compiled else REFUSED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
