"""The disk cache: settings, contents, bundles, and why a kernel was not found in it.

``python -m tack.cache info|prune|clear|pack`` does the same from a shell. Kernels are cached without
any of this; `docs/kernel-cache.md` is the guide.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from tack.errors import CacheWarning
from tack.runtime.disk import config
from tack.runtime.disk import store as files
from tack.runtime.disk.entry import pack_bundle, read_bundle, read_entry
from tack.runtime.disk.explain import Explanation, explain_call

if TYPE_CHECKING:
    from tack.lang.kernel import Kernel

__all__ = ["CacheWarning", "clear", "configure", "explain", "info", "load_bundle", "pack", "prune"]


def configure(
    *,
    directory: str | os.PathLike[str] | None = None,
    mode: str | None = None,
    max_size: str | int | None = None,
) -> None:
    """Sets what the environment variables would, which it overrides; None leaves a setting as it is.

    Args:
        directory: where entries are kept (``TACK_CACHE_DIR``).
        mode: ``"write"``, ``"read"``, ``"bundle"`` or ``"off"`` (``TACK_CACHE``).
        max_size: bytes, or a size such as ``"500M"``, or ``"unlimited"`` (``TACK_CACHE_SIZE``).

    Raises:
        RuntimeError: a kernel was compiled before.
        ValueError: there is no such mode or size.
    """
    config.configure(None if directory is None else os.fspath(directory), mode, max_size)


def info() -> dict[str, Any]:
    """The settings, the entries and their size, this version's and all, and what this process did.

    Raises:
        ValueError: an environment variable has a bad value.
    """
    settings = config.current(freeze=False)
    version = config.version_name()
    facts: dict[str, Any] = {
        "directory": settings.directory,
        "mode": settings.mode,
        "max_size": None if settings.max_size == config.UNLIMITED else settings.max_size,
        "version": version,
        "mpi_rank": config.mpi_rank(),
    }
    own, everything, bundles = [0, 0], [0, 0], [0, 0]
    found = files.versions(settings.directory) if settings.directory else []
    for path in found:
        for file in files.files(path):
            if not file.name.endswith(files.TEMPORARY):
                size = _size(file.path)
                for total in (own, everything) if os.path.basename(path) == version else (everything,):
                    total[0] += 1
                    total[1] += size
    for path in _bundles(settings.directory):
        bundles[0] += 1
        bundles[1] += _size(path)
    process = files._store.counts if files._store is not None else None
    return {
        **facts,
        "entries": own[0],
        "bytes": own[1],
        "versions": len(found),
        "all_entries": everything[0],
        "all_bytes": everything[1],
        "bundles": bundles[0],
        "bundle_bytes": bundles[1],
        "process": process,
    }


def prune(max_size: str | int | None = None) -> dict[str, int]:
    """Deletes the least recently used entries past the limit now.

    Args:
        max_size: another limit than the cache's.

    Returns:
        ``{"deleted": entries, "freed": bytes}``.
    """
    settings = config.current(freeze=False)
    limit = settings.max_size if max_size is None else max_size
    if isinstance(limit, str):
        limit = config.parse_size(limit, "max_size")
    deleted, freed = files.prune(settings.directory, limit) if settings.directory else (0, 0)
    return {"deleted": deleted, "freed": freed}


def clear(*, all: bool = False) -> dict[str, int]:
    """Deletes this Tack version's entries; with ``all`` every version's, and the bundles.

    Nothing else in the directory is touched.

    Returns:
        ``{"deleted": files, "freed": bytes}``.
    """
    settings = config.current(freeze=False)
    directory, version = settings.directory, config.version_name()
    done = {"deleted": 0, "freed": 0}
    for path in files.versions(directory) if directory else []:
        if all or os.path.basename(path) == version:
            for file in list(files.files(path)):
                _delete(file.path, done)
            with contextlib.suppress(OSError):
                os.rmdir(path)
    if all and directory:
        for path in [*_bundles(directory), *files.leftovers(directory)]:
            _delete(path, done)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, files.MARK))
    if files._store is not None:
        files._store.forget_directory()
    return done


def pack() -> dict[str, Any]:
    """Puts this Tack version's entries into one file, which MPI jobs read instead of many.

    Damaged entries are left out.

    Returns:
        ``{"path": the bundle, "entries": their number, "bytes": its size}``.

    Raises:
        OSError: the bundle cannot be written.
        ValueError: there is no directory.
    """
    settings = config.current(freeze=False)
    directory, version = settings.directory, config.version_name()
    if directory is None or version is None:
        raise ValueError("there is no cache directory; set TACK_CACHE_DIR")
    entries = {}
    for file in files.files(os.path.join(directory, version)):
        if not file.name.endswith(files.TEMPORARY):
            with contextlib.suppress(OSError):
                with open(file.path, "rb") as stream:
                    data = stream.read()
                if read_entry(data) is not None:
                    entries[file.name] = data
    data = pack_bundle(dict(sorted(entries.items())))
    os.makedirs(directory, mode=0o700, exist_ok=True)
    files.put_file(directory, version + files.BUNDLE, data)
    return {
        "path": os.path.join(directory, version + files.BUNDLE),
        "entries": len(entries),
        "bytes": len(data),
    }


def load_bundle(path: str | os.PathLike[str] | None = None, *, comm: Any = None) -> int:
    """Reads a bundle before the first kernel, so that kernels are found in it; the number of entries.

    With ``comm`` every rank must call it: rank 0 reads the file, and the others get it by broadcast.
    A bundle that cannot be used gives 0 and, on rank 0, a `CacheWarning`.

    Args:
        path: the bundle; without it, the directory's for this version of Tack.
        comm: an mpi4py communicator, or anything with its ``Get_rank`` and ``bcast``.
    """
    where = _bundle_path() if path is None else os.fspath(path)
    data: bytes | None = None
    if comm is None or comm.Get_rank() == 0:
        data = _read_bundle(where)
    if comm is not None:
        data = comm.bcast(data, root=0)
    return files.store().use_bundle(data, where)


def _bundle_path() -> str:
    directory, version = config.current().directory, config.version_name()
    return "" if directory is None or version is None else os.path.join(directory, version + files.BUNDLE)


def _read_bundle(path: str) -> bytes | None:
    """A bundle's bytes, checked; None with a warning if it cannot be used."""
    try:
        data = files.load_bytes(path)
        read_bundle(data)
    except (OSError, ValueError) as error:
        config.warn_once("bundle", f"the bundle {path} is not used: {files.error_text(error)}")
        return None
    return data


def explain(kernel: Kernel, *args: object, **kwargs: object) -> Explanation:
    """Whether a call would find its kernel in the disk cache, and if not, what differs.

    Nothing is compiled or launched. The result has ``hit``, ``differs`` (the names of the key's
    parts that differ from the nearest entry's), and says it in words when printed.

    Raises:
        TypeError: the arguments do not fit the kernel.
    """
    return explain_call(kernel, args, kwargs)


def _size(path: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_size
    return 0


def _delete(path: str, done: dict[str, int]) -> None:
    size = _size(path)
    with contextlib.suppress(OSError):
        os.unlink(path)
        done["deleted"] += 1
        done["freed"] += size


def _bundles(directory: str | None) -> list[str]:
    if directory is None:
        return []
    names = []
    with contextlib.suppress(OSError):
        names = os.listdir(directory)
    stems = [n.removesuffix(files.BUNDLE) for n in names if n.endswith(files.BUNDLE)]
    return [os.path.join(directory, s + files.BUNDLE) for s in sorted(stems) if files.is_version(s)]


if __name__ == "__main__":
    from tack.runtime.disk.command import main

    raise SystemExit(main())
