"""Where the cache is, how it is used, and how large it may get: variables, arguments, launchers."""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings
from typing import Final

from tack.errors import CacheWarning
from tack.runtime.settings import bad_value, choice

__all__ = ["MODES", "Config", "configure", "current", "mpi_rank", "parse_size", "version_name", "warn_once"]

MODES: Final = ("write", "read", "bundle", "off")
UNLIMITED: Final = -1
_DEFAULT_SIZE: Final = 1 << 30
_SIZE: Final = r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?"

# The variables by which launchers tell a process its rank and the number of ranks.
_LAUNCHERS: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PALS_RANKID", "PALS_SIZE"),
    ("ALPS_APP_PE", "ALPS_APP_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # the second is srun's alone, not a batch script's
)


class Config:
    """``directory`` is None where there is no place for a cache; ``max_size`` is in bytes, or -1."""

    __slots__ = ("directory", "max_size", "mode")

    def __init__(self, directory: str | None, mode: str, max_size: int) -> None:
        self.directory = directory
        self.mode = mode
        self.max_size = max_size


_given: dict[str, str | int] = {}
_current: Config | None = None
_warned: set[str] = set()


def warn_once(cause: str, message: str) -> None:
    """A `CacheWarning`, at most one for each cause."""
    if cause not in _warned:
        _warned.add(cause)
        warnings.warn(message, CacheWarning, stacklevel=2)


def mpi_rank() -> int | None:
    """This process's rank in an MPI job of several, or None."""
    for rank, size in _LAUNCHERS:
        here = os.environ.get(rank, "")
        count = os.environ.get(size, "")
        if here.isdigit() and count.isdigit() and int(count) > 1:
            return int(here)
    return None


def parse_size(text: str, name: str = "TACK_CACHE_SIZE") -> int:
    """Bytes of ``"500M"`` or ``"2G"`` (binary units), or -1 of ``"unlimited"``.

    Raises:
        ValueError: it is neither.
    """
    if text.strip().lower() == "unlimited":
        return UNLIMITED
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise bad_value(name, text, ("a size such as 500M or 2G", "unlimited"))
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def configure(directory: str | None, mode: str | None, max_size: str | int | None) -> None:
    """See ``tack.cache.configure``."""
    if _current is not None:
        raise RuntimeError("tack.cache.configure must be called before the first kernel compiles")
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if isinstance(max_size, str):
        max_size = parse_size(max_size, "max_size")
    given = {"directory": directory, "mode": mode, "max_size": max_size}
    _given.update({k: v for k, v in given.items() if v is not None})


def current(freeze: bool = True) -> Config:
    """The settings; from the first use with ``freeze`` on, they stay.

    Raises:
        ValueError: a variable has a bad value.
    """
    global _current
    if _current is not None:
        return _current
    default = "write" if mpi_rank() is None else "bundle"
    mode = str(_given.get("mode") or choice("TACK_CACHE", MODES, default))
    size = _given.get("max_size")
    if size is None:
        text = os.environ.get("TACK_CACHE_SIZE", "")
        size = parse_size(text) if text.strip() else _DEFAULT_SIZE
    directory = str(_given.get("directory") or os.environ.get("TACK_CACHE_DIR") or "")
    config = Config(_absolute(directory) if directory else _default_directory(), mode, int(size))
    if freeze:
        _current = config
    return config


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _default_directory() -> str | None:
    """The user's cache directory; None if the user has no home."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser(r"~\AppData\Local")
        path = os.path.join(base, "tack", "Cache")
    elif sys.platform == "darwin":
        path = os.path.expanduser("~/Library/Caches/tack")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
        path = os.path.join(base, "tack")
    return path if os.path.isabs(path) else None


# --- Tack's own fingerprint -------------------------------------------------------------------


@functools.cache
def fingerprint() -> str | None:
    """The digest of what this Tack is: the list of an installed one's files, or a source tree's files.

    None if its files cannot be read, as in a zip archive.
    """
    from tack.runtime.disk.content import blake2b

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    data = _installed(root) or _source_tree(root)
    return blake2b(data).hexdigest() if data else None


def _installed(root: str) -> bytes | None:
    """The RECORD, with a hash of each file, of the distribution installed in this place."""
    from tack import __version__

    path = os.path.join(os.path.dirname(root), f"tack_core-{__version__}.dist-info", "RECORD")
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _source_tree(root: str) -> bytes | None:
    parts = []
    try:
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(f for f in folders if f != "__pycache__")
            for name in sorted(files):
                path = os.path.join(folder, name)
                with open(path, "rb", buffering=0) as file:
                    parts += [path[len(root) :].encode(), b"\0", file.read(), b"\0"]
    except OSError:
        return None
    return b"".join(parts)


@functools.cache
def version_name() -> str | None:
    """The name of the directory of this Tack's entries: another Tack or Python never reads them."""
    from tack.runtime.disk.content import digest
    from tack.runtime.disk.entry import FORMAT

    own = fingerprint()
    if own is None:
        return None
    return f"v{FORMAT}-{digest(f'{own} {sys.implementation.cache_tag}')[:32]}"
